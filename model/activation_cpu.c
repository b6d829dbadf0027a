/* activation_cpu.c: GELU (tanh form) and SwiGLU. See ops.h.
 *
 * Both are x times a sigmoid: 0.5 (1 + tanh u) = 1 / (1 + e^(-2u)). The exponentials of a chunk are taken together, so
 * that they vectorise.
 */
#include "attention/exponential.h"
#include "model/ops.h"

#define CHUNK      256
#define LOG2_E     1.44269504f
#define GELU_SCALE 0.797884561f /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f

static size_t chunk_length(size_t count, size_t first)
{
    return count - first < CHUNK ? count - first : CHUNK;
}

/* s = 1 / (1 + 2^z), in place. An infinite power gives 0. */
static void sigmoids(float *z, size_t count)
{
    exponential_base2_array(EXPONENTIAL_EXACT, z, count);
    for (size_t i = 0; i < count; i++) {
        z[i] = 1.0f / (1.0f + z[i]);
    }
}

static void gelu_sigmoids(const float *x, size_t count, float *s)
{
    for (size_t i = 0; i < count; i++) {
        s[i] = (-2.0f * LOG2_E * GELU_SCALE) * (x[i] + GELU_CUBIC * x[i] * x[i] * x[i]);
    }
    sigmoids(s, count);
}

void gelu_forward_cpu(float *x, const float *bias, size_t rows, size_t columns, float *y)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < columns; first += CHUNK) {
            const size_t count = chunk_length(columns, first);
            float *in = x + row * columns + first, *out = y + row * columns + first, s[CHUNK];
            for (size_t i = 0; i < count; i++) {
                in[i] += bias[first + i];
            }
            gelu_sigmoids(in, count, s);
            for (size_t i = 0; i < count; i++) {
                out[i] = in[i] * s[i];
            }
        }
    }
}

void gelu_backward_cpu(const float *x, const float *dy, size_t count, float *dx)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < count; first += CHUNK) {
        const size_t length = chunk_length(count, first);
        float s[CHUNK];
        gelu_sigmoids(x + first, length, s);
        for (size_t i = 0; i < length; i++) {
            const float value = x[first + i];
            const float slope = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * value * value);
            const float weight = s[i] * (1.0f - s[i]); /* 0 far from the origin, where slope * value may be huge */
            dx[first + i] = dy[first + i] * (s[i] + (weight == 0.0f ? 0.0f : value * weight * slope));
        }
    }
}

static void silu_sigmoids(const float *gate, size_t count, float *s)
{
    for (size_t i = 0; i < count; i++) {
        s[i] = -LOG2_E * gate[i];
    }
    sigmoids(s, count);
}

void swiglu_forward_cpu(const float *x, size_t rows, size_t columns, float *y)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < columns; first += CHUNK) {
            const size_t count = chunk_length(columns, first);
            const float *gate = x + row * 2 * columns + first, *up = gate + columns;
            float s[CHUNK];
            silu_sigmoids(gate, count, s);
            for (size_t i = 0; i < count; i++) {
                y[row * columns + first + i] = gate[i] * s[i] * up[i];
            }
        }
    }
}

void swiglu_backward_cpu(const float *x, const float *dy, size_t rows, size_t columns, float *dx)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < columns; first += CHUNK) {
            const size_t count = chunk_length(columns, first), at = row * 2 * columns + first;
            const float *gate = x + at, *up = gate + columns, *g = dy + row * columns + first;
            float s[CHUNK];
            silu_sigmoids(gate, count, s);
            for (size_t i = 0; i < count; i++) {
                const float weight = s[i] * (1.0f - s[i]);
                dx[at + i] = g[i] * up[i] * (s[i] + (weight == 0.0f ? 0.0f : gate[i] * weight));
                dx[at + columns + i] = g[i] * gate[i] * s[i];
            }
        }
    }
}
