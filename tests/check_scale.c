/* check_scale.c: shared exponents under both rules, on every BF16 maximum. */
#include <math.h>

#include "attention/formats.h"
#include "attention/scale.h"
#include "tests/reference_formats.h"
#include "tests/support.h"

static void expect_exponent(int found, int expected, float amax)
{
    expect(found == expected, "exponent of %a is %d, expected %d", (double)amax, found, expected);
}

START_TEST(every_bf16_maximum_gets_the_exponent_its_definition_says)
{
    for (unsigned bits = 0; bits < 0x7F80; bits++) {
        const float amax = bf16_decode((uint16_t)bits);
        expect_exponent(scale_exponent_e4m3(amax, SCALE_UP), reference_exponent_up(amax, 448), amax);
        expect_exponent(scale_exponent_e4m3(amax, SCALE_FLOOR), reference_exponent_floor(amax, 8), amax);
        expect_exponent(scale_exponent_e2m1(amax, SCALE_UP), reference_exponent_up(amax, 6), amax);
        expect_exponent(scale_exponent_e2m1(amax, SCALE_FLOOR), reference_exponent_floor(amax, 2), amax);
        expect_exponent(scale_exponent_nvfp4(amax), amax == 0 ? 0 : reference_exponent_up(amax, 2688), amax);
    }
}
END_TEST

START_TEST(random_fp32_maxima_get_the_exponent_their_definition_says)
{
    struct random_stream stream = random_stream(1);
    for (size_t i = 0; i < 100000; i++) {
        const float amax = float_from_bits((uint32_t)random_bits(&stream) % 0x7F800000u);
        expect_exponent(scale_exponent_e4m3(amax, SCALE_UP), reference_exponent_up(amax, 448), amax);
        expect_exponent(scale_exponent_e4m3(amax, SCALE_FLOOR), reference_exponent_floor(amax, 8), amax);
        expect_exponent(scale_exponent_e2m1(amax, SCALE_UP), reference_exponent_up(amax, 6), amax);
        expect_exponent(scale_exponent_nvfp4(amax), amax == 0 ? 0 : reference_exponent_up(amax, 2688), amax);
    }
}
END_TEST

START_TEST(thresholds_sit_exactly_at_the_largest_code)
{
    /* The largest maximum that an exponent takes, and the next FP32 number above it. */
    for (int e = -126; e < 119; e++) {
        const float top8 = ldexpf(448, e), top4 = ldexpf(6, e);
        expect_exponent(scale_exponent_e4m3(top8, SCALE_UP), e, top8);
        expect_exponent(scale_exponent_e4m3(nextafterf(top8, INFINITY), SCALE_UP), e + 1, nextafterf(top8, INFINITY));
        expect_exponent(scale_exponent_e2m1(top4, SCALE_UP), e, top4);
        expect_exponent(scale_exponent_e2m1(nextafterf(top4, INFINITY), SCALE_UP), e + 1, nextafterf(top4, INFINITY));
    }
    for (int t = -126; t < 116; t++) {
        expect_exponent(scale_exponent_nvfp4(ldexpf(2688, t)), t, ldexpf(2688, t));
        expect_exponent(scale_exponent_nvfp4(nextafterf(ldexpf(2688, t), INFINITY)), t + 1, ldexpf(2688, t));
    }
}
END_TEST

START_TEST(published_maxima_give_the_published_bytes)
{
    static const struct {
        float amax;
        unsigned floor, up;
    } known[] = {{150, 126, 126}, {240, 126, 127}, {447, 127, 127}, {448, 127, 127},
                 {449, 127, 128}, {512, 128, 128}, {960, 128, 129}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ck_assert_uint_eq(e8m0_encode(scale_exponent_e4m3(known[i].amax, SCALE_FLOOR)), known[i].floor);
        ck_assert_uint_eq(e8m0_encode(scale_exponent_e4m3(known[i].amax, SCALE_UP)), known[i].up);
    }
}
END_TEST

static float through(float x, float amax, enum scale_rule rule)
{
    const int e = scale_exponent_e4m3(amax, rule);
    return e4m3_round(x * exponent_to_float(-e)) * exponent_to_float(e);
}

START_TEST(rounding_up_never_clamps_and_floor_does)
{
    ck_assert_float_eq(through(957, 960, SCALE_FLOOR), 896);
    ck_assert_float_eq(through(960, 960, SCALE_FLOOR), 896);
    ck_assert_float_eq(through(240, 240, SCALE_FLOOR), 224);
    ck_assert_float_eq(through(957, 960, SCALE_UP), 960);
    ck_assert_float_eq(through(960, 960, SCALE_UP), 960);
    ck_assert_float_eq(through(240, 240, SCALE_UP), 240);
    for (unsigned bits = 1; bits < 0x7F80; bits++) {
        const float amax = bf16_decode((uint16_t)bits);
        const float scaled = amax * exponent_to_float(-scale_exponent_e4m3(amax, SCALE_UP));
        expect(scaled <= 448, "%a is scaled to %g", (double)amax, (double)scaled);
    }
}
END_TEST

START_TEST(tiny_blocks_stay_finite)
{
    static const struct {
        float amax;
        unsigned code;
    } known[] = {{2e-36f, 0x7b}, {1e-36f, 0x73}, {1e-37f, 0x59}, {1e-39f, 0x23}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const int e = scale_exponent_e4m3(known[i].amax, SCALE_UP);
        ck_assert_int_eq(e, EXPONENT_ZERO);
        ck_assert_uint_eq(e4m3_encode(known[i].amax * exponent_to_float(-e)), known[i].code);
    }
}
END_TEST

START_TEST(finite_maxima_never_reach_the_bytes_kept_for_infinity)
{
    ck_assert_uint_eq(e8m0_encode(scale_exponent_e4m3(0x1.fffffep127f, SCALE_UP)), 247);
    ck_assert_uint_eq(e8m0_encode(scale_exponent_e4m3(0x1.fffffep127f, SCALE_FLOOR)), 246);
    ck_assert_uint_eq(e8m0_encode(scale_exponent_e2m1(0x1.fffffep127f, SCALE_UP)), 253);
}
END_TEST

Suite *suite_scale(void);

Suite *suite_scale(void)
{
    Suite *suite = suite_create("scale");
    TCase *tcase = tcase_create("scale");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, every_bf16_maximum_gets_the_exponent_its_definition_says);
    tcase_add_test(tcase, random_fp32_maxima_get_the_exponent_their_definition_says);
    tcase_add_test(tcase, thresholds_sit_exactly_at_the_largest_code);
    tcase_add_test(tcase, published_maxima_give_the_published_bytes);
    tcase_add_test(tcase, rounding_up_never_clamps_and_floor_does);
    tcase_add_test(tcase, tiny_blocks_stay_finite);
    tcase_add_test(tcase, finite_maxima_never_reach_the_bytes_kept_for_infinity);
    suite_add_tcase(suite, tcase);
    return suite;
}
