/* check_activation.c: GELU and SwiGLU against FP64, each bound derived from its roundings; u = 2^-24. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "model/ops.h"
#include "tests/support.h"

#define U 0x1p-24

static float *normals(struct random_stream *random, size_t count, float scale)
{
    float *x = test_alloc(count * sizeof *x);
    random_normals(random, x, count, scale);
    return x;
}

static float *copy(const float *x, size_t count)
{
    float *y = test_alloc(count * sizeof *y);
    return memcpy(y, x, count * sizeof *y);
}

/* Sizes that are no multiple of a vector or a chunk, and 1. */
static size_t odd_size(struct random_stream *random, size_t most)
{
    return 1 + random_below(random, most);
}

/* Ordinary values, and some from 10^-10 to 10^most. */
static void some_values(struct random_stream *random, float *x, size_t count, size_t most)
{
    for (size_t i = 0; i < count; i++) {
        const float size = random_below(random, 8) ? 4.0f : powf(10, (float)random_below(random, 11 + most) - 10);
        x[i] = size * (float)random_normal(random);
    }
}

/* Sigmoid of z: the exponential's argument carries 4 roundings and 3 more follow, so relative 4 u |z| (1 - s) + 4 u;
 * |z| s (1 - s) < 0.28, thus 6 u of x; doubled. */
START_TEST(gelu_is_that_of_fp64)
{
    struct random_stream random = random_stream((uint64_t)(80 + _i));
    const size_t rows = odd_size(&random, 5), columns = odd_size(&random, 700), count = rows * columns;
    float *x = test_alloc(count * sizeof *x), *bias = normals(&random, columns, 1), *y = test_alloc(count * sizeof *y);
    some_values(&random, x, count, 30); /* cubes and slopes overflow */
    float *start = copy(x, count);
    gelu_forward_cpu(x, bias, rows, columns, y);
    for (size_t i = 0; i < count; i++) {
        const float kept = start[i] + bias[i % columns];
        expect(x[i] == kept, "the biased input is not kept");
        const double v = (double)kept, expected = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
        expect(fabs((double)y[i] - expected) <= 12 * U * fabs(v), "gelu(%g) = %.9g, not %.9g", v, (double)y[i],
               expected);
    }
    free(x), free(bias), free(y), free(start);
}
END_TEST

/* s' = s + v s (1 - s) slope: 1 - s is off by u of 1 where s is nearly 1 (until s rounds to 1, at v = 5.6), which v
 * slope multiplies; the rest is as in the forward, times at most 1.2. */
START_TEST(the_gradient_of_gelu_is_that_of_fp64)
{
    struct random_stream random = random_stream((uint64_t)(90 + _i));
    const size_t count = odd_size(&random, 3000);
    float *x = test_alloc(count * sizeof *x), *dy = normals(&random, count, 1), *dx = test_alloc(count * sizeof *dx);
    some_values(&random, x, count, 30); /* cubes and slopes overflow */
    gelu_backward_cpu(x, dy, count, dx);
    for (size_t i = 0; i < count; i++) {
        const double v = (double)x[i], t = tanh(0.7978845608028654 * (v + 0.044715 * v * v * v));
        const double slope = 0.7978845608028654 * (1 + 3 * 0.044715 * v * v);
        const double expected = fabs(v) > 20 ? v > 0 : 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope;
        const double slack = U * (24 + (fabs(v) < 8 ? 4 * fabs(v) * slope : 0));
        expect(fabs((double)dx[i] - (double)dy[i] * expected) <= slack * fabs((double)dy[i]),
               "gelu'(%g) = %.9g, not %.9g", v, (double)dx[i] / (double)dy[i], expected);
    }
    free(x), free(dy), free(dx);
}
END_TEST

/* As gelu's. Both factors and the gradient may be of any size, so all is relative to their product. */
START_TEST(swiglu_and_its_gradient_are_those_of_fp64)
{
    struct random_stream random = random_stream((uint64_t)(100 + _i));
    const size_t rows = odd_size(&random, 5), columns = odd_size(&random, 600), count = rows * columns;
    float *x = test_alloc(2 * count * sizeof *x), *y = test_alloc(count * sizeof *y), *dy = normals(&random, count, 1),
          *dx = test_alloc(2 * count * sizeof *dx);
    some_values(&random, x, 2 * count, 17); /* their products do not overflow */
    swiglu_forward_cpu(x, rows, columns, y);
    swiglu_backward_cpu(x, dy, rows, columns, dx);
    for (size_t i = 0; i < count; i++) {
        const size_t at = i / columns * 2 * columns + i % columns;
        const double gate = (double)x[at], up = (double)x[at + columns], g = (double)dy[i], s = 1 / (1 + exp(-gate));
        const double tail = 1 / (1 + exp(gate)), slope = s + gate * s * tail;
        const double tiny = 1e-37; /* products of subnormals */
        expect(fabs((double)y[i] - gate * s * up) <= 12 * U * fabs(gate * up) + tiny, "gate %g, up %g: %g", gate, up,
               (double)y[i]);
        expect(fabs((double)dx[at + columns] - g * gate * s) <= 12 * U * fabs(g * gate) + tiny, "up's gradient at %g",
               gate);
        expect(fabs((double)dx[at] - g * up * slope) <=
                   U * (24 + (fabs(gate) < 20 ? 4 * fabs(gate) : 0)) * fabs(g * up) + tiny,
               "gate's gradient at %g: %.9g, not %.9g", gate, (double)dx[at], g * up * slope);
    }
    free(x), free(y), free(dy), free(dx);
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small inputs a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_activation(void);
Suite *suite_activation(void)
{
    Suite *suite = suite_create("activation");
    TCase *tests = tcase_create("activation");
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_add_loop_test(tests, gelu_is_that_of_fp64, 0, 10);
    tcase_add_loop_test(tests, the_gradient_of_gelu_is_that_of_fp64, 0, 10);
    tcase_add_loop_test(tests, swiglu_and_its_gradient_are_those_of_fp64, 0, 10);
    suite_add_tcase(suite, tests);
    return suite;
}
