/* rope_cpu.c: rotary position embedding, half-split as in Hugging Face's Llama. See ops.h. */
#include <math.h>

#include "model/ops.h"

void rope_tables(size_t positions, size_t head_dim, float base, float *cosines, float *sines)
{
    const size_t half = head_dim / 2;
    for (size_t position = 0; position < positions; position++) {
        for (size_t i = 0; i < half; i++) {
            const double angle = (double)position * pow((double)base, -2.0 * (double)i / (double)head_dim);
            cosines[position * half + i] = (float)cos(angle);
            sines[position * half + i] = (float)sin(angle);
        }
    }
}

static void rotate(float *x, size_t half, const float *cosine, const float *sine, float sign)
{
    for (size_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half], s = sign * sine[i];
        x[i] = a * cosine[i] - b * s;
        x[i + half] = b * cosine[i] + a * s;
    }
}

void rope_cpu(float *x, size_t stride, const int32_t *positions, size_t rows, size_t heads, size_t head_dim,
              const float *cosines, const float *sines, bool backward)
{
    const size_t half = head_dim / 2;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        const size_t at = (size_t)positions[row] * half;
        for (size_t head = 0; head < heads; head++) {
            rotate(x + row * stride + head * head_dim, half, cosines + at, sines + at, backward ? -1.0f : 1.0f);
        }
    }
}
