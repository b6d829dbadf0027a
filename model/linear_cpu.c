/* linear_cpu.c: matrix products by CBLAS. See ops.h. */
#include <cblas.h>

#include "model/ops.h"

void linear_forward_cpu(const float *x, const float *w, size_t rows, size_t in, size_t out, float *y)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)rows, (blasint)out, (blasint)in, 1.0f, x, (blasint)in,
                w, (blasint)in, 0.0f, y, (blasint)out);
}

void linear_backward_input_cpu(const float *dy, const float *w, size_t rows, size_t in, size_t out, float *dx)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)in, (blasint)out, 1.0f, dy,
                (blasint)out, w, (blasint)in, 0.0f, dx, (blasint)in);
}

void linear_backward_weight_cpu(const float *dy, const float *x, size_t rows, size_t in, size_t out, float *dw)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)out, (blasint)in, (blasint)rows, 1.0f, dy,
                (blasint)out, x, (blasint)in, 1.0f, dw, (blasint)in);
}

#define COLUMN_BLOCK 64

void bias_backward_cpu(const float *dy, size_t rows, size_t columns, float *db)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < columns; first += COLUMN_BLOCK) {
        const size_t width = columns - first < COLUMN_BLOCK ? columns - first : COLUMN_BLOCK;
        float sums[COLUMN_BLOCK] = {0};
        for (size_t row = 0; row < rows; row++) {
            const float *from = dy + row * columns + first;
            for (size_t i = 0; i < width; i++) {
                sums[i] += from[i];
            }
        }
        for (size_t i = 0; i < width; i++) {
            db[first + i] += sums[i];
        }
    }
}

void bias_forward_cpu(float *x, const float *bias, size_t rows, size_t columns)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < columns; i++) {
            x[row * columns + i] += bias[i];
        }
    }
}
