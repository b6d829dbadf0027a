/* check_exponential.c: the base-2 exponentials, each against FP64. */
#include <math.h>
#include <string.h>

#include "attention/exponential.h"
#include "tests/support.h"

static const enum exponential_kind all_kinds[] = {EXPONENTIAL_EXACT, EXPONENTIAL_POLYNOMIAL, EXPONENTIAL_SCHRAUDOLPH,
                                                  EXPONENTIAL_MITCHELL};

/* Least and greatest relative error over [low, high], at evenly spaced and random points. */
static void error_range(enum exponential_kind kind, float low, float high, double *least, double *most)
{
    struct random_stream stream = random_stream(17);
    *least = INFINITY;
    *most = -INFINITY;
    const int count = 200000;
    for (int i = 0; i < count; i++) {
        const float even = low + (high - low) * ((float)i / (float)(count - 1));
        const float x = i & 1 ? even : low + (high - low) * (float)random_uniform(&stream);
        const double error = (double)exponential_base2(kind, x) / exp2(x) - 1;
        *least = fmin(*least, error);
        *most = fmax(*most, error);
    }
}

START_TEST(exact_is_within_two_units_in_the_last_place)
{
    double least, most;
    error_range(EXPONENTIAL_EXACT, -125, 0, &least, &most);
    ck_assert_double_gt(least, -0x1p-22);
    ck_assert_double_lt(most, 0x1p-22);
    error_range(EXPONENTIAL_EXACT, 0, 16, &least, &most);
    ck_assert_double_gt(least, -0x1p-22);
    ck_assert_double_lt(most, 0x1p-22);
}
END_TEST

START_TEST(exact_is_exact_at_integers)
{
    for (int n = -126; n <= 127; n++) {
        ck_assert_float_eq(exponential_base2(EXPONENTIAL_EXACT, (float)n), ldexpf(1, n));
    }
}
END_TEST

START_TEST(exact_is_zero_below_the_normal_range)
{
    ck_assert_float_eq(exponential_base2(EXPONENTIAL_EXACT, -126), 0x1p-126f);
    ck_assert_float_eq(exponential_base2(EXPONENTIAL_EXACT, -126.0001f), 0);
    ck_assert_float_eq(exponential_base2(EXPONENTIAL_EXACT, -130), 0);
}
END_TEST

START_TEST(polynomial_is_within_its_fit)
{
    /* The best cubic with p(0) = 1 on [0, 1) has a relative error near 1e-4. */
    double least, most;
    error_range(EXPONENTIAL_POLYNOMIAL, -126, 16, &least, &most);
    ck_assert_double_gt(least, -2e-4);
    ck_assert_double_lt(most, 2e-4);
}
END_TEST

START_TEST(mitchell_errs_between_minus_4_9_and_plus_1_percent)
{
    /* (1 + f) 2^-f lies in [1, 1.0615]; the offset multiplies it by 2^0.25 / 1.25 = 0.9514. */
    double least, most;
    error_range(EXPONENTIAL_MITCHELL, -100, 2, &least, &most);
    ck_assert_double_gt(least, -0.049);
    ck_assert_double_lt(least, -0.047);
    ck_assert_double_lt(most, 0.0102);
    ck_assert_double_gt(most, 0.008);
}
END_TEST

START_TEST(schraudolph_errs_by_a_few_percent_and_not_on_average)
{
    /* Offset 0.0573: 1 - 0.0573 / 2 = -2.9 % at powers of two and 1.0615 - 0.0573 / 1.36 = +1.9 % between, each moved
     * by a rounding to seven bits of mantissa (0.4 %). */
    double least, most, sum = 0;
    error_range(EXPONENTIAL_SCHRAUDOLPH, -100, 8, &least, &most);
    ck_assert_double_gt(least, -0.04);
    ck_assert_double_lt(most, 0.025);
    for (int i = 0; i < 10000; i++) {
        const float x = -20 + (float)i * 0.001f;
        sum += (double)exponential_base2(EXPONENTIAL_SCHRAUDOLPH, x) / exp2(x) - 1;
    }
    ck_assert_double_eq_tol(sum / 10000, 0, 0.004);
}
END_TEST

START_TEST(far_below_every_form_is_tiny_finite_and_not_negative)
{
    /* Without a clamp, the bit forms wrap: -383 would come out as a NaN. */
    static const float far[] = {-127, -128, -130.5f, -200,  -256,   -382,     -383,
                                -384, -500, -1000,   -1e4f, -1e30f, -INFINITY};
    for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++) {
        for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
            const float y = exponential_base2(all_kinds[k], far[i]);
            expect(y >= 0 && y <= 0x1p-120f, "kind %d: 2^%g = %g", (int)all_kinds[k], (double)far[i], (double)y);
        }
        ck_assert_float_eq(exponential_base2(all_kinds[k], -INFINITY), 0);
    }
}
END_TEST

START_TEST(nan_is_not_swallowed)
{
    for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++) {
        expect(isnan(exponential_base2(all_kinds[k], NAN)), "kind %d", (int)all_kinds[k]);
    }
}
END_TEST

START_TEST(never_decreases)
{
    for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++) {
        float last = 0;
        for (int i = 0; i <= 260000; i++) {
            const float x = -128 + (float)i * 0.0005f; /* to 2 */
            const float y = exponential_base2(all_kinds[k], x);
            /* Forms made of pieces may step back by a rounding where the pieces meet. */
            expect(y >= last * (1 - 3e-4f), "kind %d at %g: %g after %g", (int)all_kinds[k], (double)x, (double)y,
                   (double)last);
            last = y;
        }
    }
}
END_TEST

START_TEST(arrays_have_the_bits_of_single_values)
{
    struct random_stream stream = random_stream(3);
    for (size_t k = 0; k < sizeof all_kinds / sizeof *all_kinds; k++) {
        for (size_t count = 0; count < 70; count++) {
            float x[70], y[70];
            random_normals(&stream, x, count, 40);
            for (size_t i = 0; i < count; i++) {
                x[i] = -fabsf(x[i]);
                y[i] = exponential_base2(all_kinds[k], x[i]);
            }
            exponential_base2_array(all_kinds[k], x, count);
            ck_assert_mem_eq(x, y, count * sizeof *x);
        }
    }
}
END_TEST

Suite *suite_exponential(void);

Suite *suite_exponential(void)
{
    Suite *suite = suite_create("exponential");
    TCase *tcase = tcase_create("exponential");
    tcase_set_timeout(tcase, 20);
    tcase_add_test(tcase, exact_is_within_two_units_in_the_last_place);
    tcase_add_test(tcase, exact_is_exact_at_integers);
    tcase_add_test(tcase, exact_is_zero_below_the_normal_range);
    tcase_add_test(tcase, polynomial_is_within_its_fit);
    tcase_add_test(tcase, mitchell_errs_between_minus_4_9_and_plus_1_percent);
    tcase_add_test(tcase, schraudolph_errs_by_a_few_percent_and_not_on_average);
    tcase_add_test(tcase, far_below_every_form_is_tiny_finite_and_not_negative);
    tcase_add_test(tcase, nan_is_not_swallowed);
    tcase_add_test(tcase, never_decreases);
    tcase_add_test(tcase, arrays_have_the_bits_of_single_values);
    suite_add_tcase(suite, tcase);
    return suite;
}
