/* norm_cpu.c: LayerNorm and RMSNorm with the residual addition before them, one pass over memory. See ops.h. */
#include <math.h>

#include "model/ops.h"

#define LANES        16
#define COLUMN_BLOCK 64

static float fold(const float *lanes)
{
    float total = lanes[0];
    for (size_t i = 1; i < LANES; i++) {
        total += lanes[i];
    }
    return total;
}

/* Sum of (x - shift)^power, power 1 or 2, in a fixed order whatever the length. */
static float sum_of(const float *x, size_t count, float shift, bool squared)
{
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            const float value = x[i + lane] - shift;
            lanes[lane] += squared ? value * value : value;
        }
    }
    for (size_t lane = 0; i < count; i++, lane++) {
        const float value = x[i] - shift;
        lanes[lane] += squared ? value * value : value;
    }
    return fold(lanes);
}

/* The row that is normalised: the residual itself, or its sum with what a linear added. */
static const float *add_residual(const float *residual, const float *delta, const float *delta_bias, size_t columns,
                                 float *sum)
{
    if (!delta || !sum) {
        return residual;
    }
    for (size_t i = 0; i < columns; i++) {
        sum[i] = residual[i] + (delta_bias ? delta[i] + delta_bias[i] : delta[i]);
    }
    return sum;
}

void norm_forward_cpu(const struct norm_shape *shape, const float *residual, const float *delta,
                      const float *delta_bias, const float *weight, const float *bias, float *sum, float *y,
                      float *statistics)
{
    const size_t columns = shape->columns;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < shape->rows; row++) {
        const float *x = add_residual(residual + row * columns, delta ? delta + row * columns : NULL, delta_bias,
                                      columns, sum ? sum + row * columns : NULL);
        float *out = y + row * columns;
        const float mean = shape->centred ? sum_of(x, columns, 0, false) / (float)columns : 0.0f;
        const float inverse = 1.0f / sqrtf(sum_of(x, columns, mean, true) / (float)columns + shape->epsilon);
        for (size_t i = 0; i < columns; i++) {
            const float normed = (x[i] - mean) * inverse * weight[i];
            out[i] = bias ? normed + bias[i] : normed;
        }
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

/* sum w dy and sum w dy xhat over one row. */
static void row_sums(const float *dy, const float *x, const float *weight, float mean, float inverse, size_t columns,
                     float *plain, float *projected)
{
    float plains[LANES] = {0}, projections[LANES] = {0};
    for (size_t first = 0; first < columns; first += LANES) {
        const size_t width = columns - first < LANES ? columns - first : LANES;
        for (size_t lane = 0; lane < width; lane++) {
            const float g = dy[first + lane] * weight[first + lane];
            plains[lane] += g;
            projections[lane] += g * ((x[first + lane] - mean) * inverse);
        }
    }
    *plain = fold(plains);
    *projected = fold(projections);
}

static void parameter_gradients(const struct norm_shape *shape, const float *dy, const float *x,
                                const float *statistics, float *dweight, float *dbias)
{
    const size_t columns = shape->columns;
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < columns; first += COLUMN_BLOCK) {
        const size_t width = columns - first < COLUMN_BLOCK ? columns - first : COLUMN_BLOCK;
        float weights[COLUMN_BLOCK] = {0}, biases[COLUMN_BLOCK] = {0};
        for (size_t row = 0; row < shape->rows; row++) {
            const float *g = dy + row * columns + first, *value = x + row * columns + first;
            const float mean = statistics[2 * row], inverse = statistics[2 * row + 1];
            for (size_t i = 0; i < width; i++) {
                weights[i] += g[i] * ((value[i] - mean) * inverse);
                biases[i] += g[i];
            }
        }
        for (size_t i = 0; i < width; i++) {
            dweight[first + i] += weights[i];
            if (dbias) {
                dbias[first + i] += biases[i];
            }
        }
    }
}

void norm_backward_cpu(const struct norm_shape *shape, const float *dy, const float *x, const float *weight,
                       const float *statistics, float *dx, float *dweight, float *dbias)
{
    const size_t columns = shape->columns;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < shape->rows; row++) {
        const float *g = dy + row * columns, *value = x + row * columns;
        const float mean = statistics[2 * row], inverse = statistics[2 * row + 1];
        float plain, projected;
        row_sums(g, value, weight, mean, inverse, columns, &plain, &projected);
        const float shift = shape->centred ? plain / (float)columns : 0.0f, slope = projected / (float)columns;
        for (size_t i = 0; i < columns; i++) {
            const float normed = (value[i] - mean) * inverse;
            dx[row * columns + i] += inverse * (g[i] * weight[i] - shift - normed * slope);
        }
    }
    parameter_gradients(shape, dy, x, statistics, dweight, dbias);
}
