/* check_hadamard.c: the rotation of channels. */
#include <math.h>
#include <string.h>

#include "attention/attention.h"
#include "attention/quantize.h"
#include "tests/reference_quantize.h"
#include "tests/support.h"

START_TEST(equals_the_sylvester_matrix)
{
    /* Entry (i, j) of the Sylvester matrix is -1 to the number of common bits. Log2(d) additions and one product, each
     * within 2^-24 of the largest partial sum, whose size is at most sum |x|. */
    struct random_stream stream = random_stream(1);
    for (size_t d = 16; d <= 256; d *= 2) {
        float x[256], y[256];
        random_normals(&stream, x, d, 1);
        memcpy(y, x, sizeof y);
        hadamard_rotate(y, d);
        double magnitude = 0;
        for (size_t j = 0; j < d; j++) {
            magnitude += fabs((double)x[j]);
        }
        for (size_t i = 0; i < d; i++) {
            double sum = 0;
            for (size_t j = 0; j < d; j++) {
                sum += __builtin_parityll(i & j) ? -(double)x[j] : (double)x[j];
            }
            ck_assert_double_eq_tol(y[i], sum / sqrt((double)d), 10 * 0x1p-24 * magnitude / sqrt((double)d));
        }
    }
}
END_TEST

START_TEST(has_the_bits_of_the_ordered_butterflies)
{
    struct random_stream stream = random_stream(2);
    for (size_t d = 16; d <= 256; d *= 2) {
        for (int repeat = 0; repeat < 100; repeat++) {
            float x[256], y[256];
            random_normals(&stream, x, d, (float)exp(5 * random_normal(&stream)));
            memcpy(y, x, sizeof y);
            hadamard_rotate(x, d);
            reference_load(y, d, false, true); /* rounds the result to BF16 */
            reference_load(x, d, true, false);
            ck_assert_mem_eq(x, y, d * sizeof *x);
        }
    }
}
END_TEST

START_TEST(is_its_own_inverse_and_keeps_length)
{
    struct random_stream stream = random_stream(3);
    float x[128], y[128];
    random_normals(&stream, x, 128, 1);
    memcpy(y, x, sizeof y);
    hadamard_rotate(y, 128);
    double before = 0, after = 0;
    for (size_t i = 0; i < 128; i++) {
        before += (double)x[i] * (double)x[i];
        after += (double)y[i] * (double)y[i];
    }
    ck_assert_double_eq_tol(after / before, 1, 1e-5);
    hadamard_rotate(y, 128);
    ck_assert_double_lt(relative_error(y, x, 128), 1e-6); /* 2 * 8 roundings of 2^-24, typically 3e-7 */
}
END_TEST

START_TEST(spreads_an_outlier_over_all_channels)
{
    float x[128] = {0};
    x[77] = 128;
    hadamard_rotate(x, 128);
    for (size_t i = 0; i < 128; i++) {
        ck_assert_float_eq(fabsf(x[i]), 128 * (float)(1 / sqrt(128.0)));
    }
}
END_TEST

Suite *suite_hadamard(void);

Suite *suite_hadamard(void)
{
    Suite *suite = suite_create("hadamard");
    TCase *tcase = tcase_create("hadamard");
    tcase_add_test(tcase, equals_the_sylvester_matrix);
    tcase_add_test(tcase, has_the_bits_of_the_ordered_butterflies);
    tcase_add_test(tcase, is_its_own_inverse_and_keeps_length);
    tcase_add_test(tcase, spreads_an_outlier_over_all_channels);
    suite_add_tcase(suite, tcase);
    return suite;
}
