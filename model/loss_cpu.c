/* loss_cpu.c: softmax cross-entropy over the true vocabulary. See ops.h. */
#include <math.h>
#include <string.h>

#include "attention/exponential.h"
#include "data/batch.h"
#include "model/ops.h"

#define CHUNK  512
#define LANES  16
#define LOG2_E 1.44269504f

static float largest(const float *x, size_t count)
{
    float lanes[LANES];
    for (size_t lane = 0; lane < LANES; lane++) {
        lanes[lane] = -INFINITY;
    }
    for (size_t first = 0; first < count; first += LANES) {
        const size_t width = count - first < LANES ? count - first : LANES;
        for (size_t lane = 0; lane < width; lane++) {
            lanes[lane] = x[first + lane] > lanes[lane] ? x[first + lane] : lanes[lane];
        }
    }
    float most = lanes[0];
    for (size_t lane = 1; lane < LANES; lane++) {
        most = lanes[lane] > most ? lanes[lane] : most;
    }
    return most;
}

/* e^(x - most) for a chunk. */
static void exponentials(const float *x, size_t count, float most, float *e)
{
    for (size_t i = 0; i < count; i++) {
        e[i] = (x[i] - most) * LOG2_E;
    }
    exponential_base2_array(EXPONENTIAL_EXACT, e, count);
}

static double sum_exponentials(const float *x, size_t count, float most)
{
    double total = 0;
    for (size_t first = 0; first < count; first += CHUNK) {
        const size_t width = count - first < CHUNK ? count - first : CHUNK;
        float e[CHUNK], lanes[LANES] = {0};
        exponentials(x + first, width, most, e);
        memset(e + width, 0, (CHUNK - width) * sizeof *e);
        for (size_t i = 0; i < CHUNK; i += LANES) {
            for (size_t lane = 0; lane < LANES; lane++) {
                lanes[lane] += e[i + lane];
            }
        }
        for (size_t lane = 0; lane < LANES; lane++) {
            total += (double)lanes[lane];
        }
    }
    return total;
}

double loss_forward_cpu(const float *logits, const int32_t *targets, size_t rows, size_t vocabulary, size_t stride,
                        float *losses, float *statistics)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        const float *x = logits + row * stride;
        losses[row] = 0;
        if (targets[row] == TARGET_IGNORED) {
            continue;
        }
        const float most = largest(x, vocabulary);
        const double sum = sum_exponentials(x, vocabulary, most);
        losses[row] = (float)(log(sum) + ((double)most - (double)x[targets[row]]));
        statistics[2 * row] = most;
        statistics[2 * row + 1] = (float)sum;
    }
    double total = 0;
    for (size_t row = 0; row < rows; row++) {
        total += (double)losses[row];
    }
    return total;
}

void loss_backward_cpu(float *logits, const int32_t *targets, size_t rows, size_t vocabulary, size_t stride,
                       const float *statistics, float scale)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        float *x = logits + row * stride;
        if (targets[row] == TARGET_IGNORED) {
            memset(x, 0, stride * sizeof *x);
            continue;
        }
        const float most = statistics[2 * row], factor = scale / statistics[2 * row + 1];
        for (size_t first = 0; first < vocabulary; first += CHUNK) {
            const size_t width = vocabulary - first < CHUNK ? vocabulary - first : CHUNK;
            float e[CHUNK];
            exponentials(x + first, width, most, e);
            for (size_t i = 0; i < width; i++) {
                x[first + i] = e[i] * factor;
            }
        }
        x[targets[row]] -= scale;
        memset(x + vocabulary, 0, (stride - vocabulary) * sizeof *x);
    }
}
