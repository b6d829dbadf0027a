/* check_cuda_reduce.c: sums and norms of long arrays on the device. */
#include <math.h>
#include <stdlib.h>

#include "model/ops_cuda.h"
#include "tests/support_device.h"
#include "train/adamw.h"

struct reduction {
    float *device;
    double *out, *workspace;
};

static struct reduction reduction(const float *x, size_t count)
{
    return (struct reduction){upload(x, count * sizeof *x), upload(NULL, sizeof(double)),
                              upload(NULL, REDUCE_SLICES * sizeof(double))};
}

static double run(const struct reduction *it, size_t count, bool norm)
{
    struct error error;
    double out;
    must(norm ? norm_of_cuda(it->device, count, it->out, it->workspace, NULL, &error)
              : sum_cuda(it->device, count, it->out, it->workspace, NULL, &error),
         &error);
    download(&out, it->out, sizeof out);
    return out;
}

static void drop(struct reduction *it)
{
    release(it->device), release(it->out), release(it->workspace);
}

static const size_t counts[] = {1, 3, 4, 1023, 4096, 300001};

START_TEST(sum_and_norm_are_those_of_fp64)
{
    device_for_test();
    struct random_stream random = random_stream(1 + (uint64_t)_i);
    const size_t count = counts[_i];
    float *x = test_alloc(count * sizeof *x);
    random_normals(&random, x, count, 3);
    double sum = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i];
        size += fabs((double)x[i]);
    }
    struct reduction it = reduction(x, count);
    const double norm = gradient_norm_cpu(x, count);
    ck_assert_double_le(fabs(run(&it, count, false) - sum),
                        2 * (double)count * 0x1p-53 * size); /* both sides' roundings */
    ck_assert_double_le(fabs(run(&it, count, true) - norm), 2 * (double)(count + 4) * 0x1p-53 * norm);
    drop(&it);
    free(x);
}
END_TEST

START_TEST(norms_have_the_same_bits_every_time)
{
    device_for_test();
    struct random_stream random = random_stream(20);
    const size_t count = 100003;
    float *x = test_alloc(count * sizeof *x);
    random_normals(&random, x, count, 1);
    struct reduction it = reduction(x, count);
    const double first = run(&it, count, true);
    for (int i = 0; i < 3; i++) {
        ck_assert_double_eq(run(&it, count, true), first);
    }
    drop(&it);
    free(x);
}
END_TEST

START_TEST(one_bad_element_spoils_the_norm)
{
    device_for_test();
    const float bad[] = {NAN, INFINITY, -INFINITY};
    struct random_stream random = random_stream(30 + (uint64_t)_i);
    const size_t count = 5000;
    float *x = test_alloc(count * sizeof *x);
    random_normals(&random, x, count, 1);
    x[random_below(&random, count)] = bad[_i];
    struct reduction it = reduction(x, count);
    ck_assert(!isfinite(run(&it, count, true)));
    drop(&it);
    free(x);
}
END_TEST

START_TEST(large_elements_do_not_overflow_the_norm)
{
    device_for_test();
    const float x[4] = {3e38f, 0, 3e38f, 0};
    struct reduction it = reduction(x, 4);
    ck_assert_double_eq_tol(run(&it, 4, true) / ((double)3e38f * sqrt(2)), 1, 1e-12);
    drop(&it);
}
END_TEST

Suite *suite_cuda_reduce(void);

Suite *suite_cuda_reduce(void)
{
    Suite *suite = suite_create("cuda_reduce");
    TCase *tcase = tcase_create("cuda_reduce");
    tcase_add_loop_test(tcase, sum_and_norm_are_those_of_fp64, 0, sizeof counts / sizeof *counts);
    tcase_add_test(tcase, norms_have_the_same_bits_every_time);
    tcase_add_loop_test(tcase, one_bad_element_spoils_the_norm, 0, 3);
    tcase_add_test(tcase, large_elements_do_not_overflow_the_norm);
    suite_add_tcase(suite, tcase);
    return suite;
}
