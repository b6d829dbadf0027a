/* figure_sgemm.c: the rate of OpenBLAS's sgemm at the sizes of a small model's layers: what training is measured
 * against. Prints GFLOP/s. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROWS    2048
#define IN      384
#define OUT     1536
#define REPEATS 21

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

int main(void)
{
    float *x = calloc(ROWS * IN, sizeof *x), *w = calloc(OUT * IN, sizeof *w), *y = calloc(ROWS * OUT, sizeof *y);
    double times[REPEATS];
    if (!x || !w || !y) {
        fprintf(stderr, "figure_sgemm: no memory\n");
        return 1;
    }
    for (int i = 0; i < REPEATS; i++) {
        const double start = seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, ROWS, OUT, IN, 1.0f, x, IN, w, IN, 0.0f, y, OUT);
        times[i] = seconds() - start;
    }
    qsort(times, REPEATS, sizeof *times, ascending);
    printf("%.1f GFLOP/s sgemm, %d x %d x %d\n", 2e-9 * ROWS * IN * OUT / times[REPEATS / 2], ROWS, IN, OUT);
    free(x);
    free(w);
    free(y);
    return 0;
}
