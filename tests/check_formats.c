/* check_formats.c: every number format against a table made from exact arithmetic. */
#include <math.h>
#include <string.h>

#include "attention/formats.h"
#include "tests/reference_formats.h"
#include "tests/support.h"

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void expect_code(float x, unsigned found, unsigned expected, const char *format)
{
    expect(found == expected, "%s of %a: code 0x%02x, expected 0x%02x", format, (double)x, found, expected);
}

static void expect_all_codes(float x)
{
    expect_code(x, e4m3_encode(x), reference_e4m3_code(x), "E4M3");
    expect_code(x, e2m1_encode(x), reference_e2m1_code(x), "E2M1");
}

START_TEST(every_bf16_input_encodes_to_the_nearest_code)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        expect_all_codes(from_bits(bits << 16));
    }
}
END_TEST

START_TEST(random_fp32_inputs_encode_to_the_nearest_code)
{
    /* Half of them any bit pattern, half within the formats' ranges, where rounding happens. */
    struct random_stream stream = random_stream(1);
    const size_t count = test_is_sanitized() ? 100000 : 5000000;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = random_bits(&stream);
        expect_all_codes(from_bits((uint32_t)bits));
        const uint32_t exponent = 115 + (uint32_t)(bits >> 32) % 24; /* 2^-12 .. 2^11 */
        expect_all_codes(from_bits(((uint32_t)bits & 0x807FFFFFu) | exponent << 23));
    }
}
END_TEST

START_TEST(ties_and_their_neighbours_encode_to_the_even_or_nearer_code)
{
    for (unsigned code = 0; code + 1 < 0x7F; code++) {
        const float tie = (float)((reference_e4m3_value(code) + reference_e4m3_value(code + 1)) / 2);
        expect_code(tie, e4m3_encode(tie), code + (code & 1), "E4M3");
        expect_code(tie, e4m3_encode(nextafterf(tie, 0)), code, "E4M3 below");
        expect_code(tie, e4m3_encode(nextafterf(tie, INFINITY)), code + 1, "E4M3 above");
        expect_code(-tie, e4m3_encode(-tie), 0x80 | (code + (code & 1)), "E4M3");
    }
    for (unsigned code = 0; code + 1 < 8; code++) {
        const float tie = (float)((reference_e2m1_value(code) + reference_e2m1_value(code + 1)) / 2);
        expect_code(tie, e2m1_encode(tie), code + (code & 1), "E2M1");
        expect_code(tie, e2m1_encode(nextafterf(tie, 0)), code, "E2M1 below");
        expect_code(tie, e2m1_encode(nextafterf(tie, INFINITY)), code + 1, "E2M1 above");
        expect_code(-tie, e2m1_encode(-tie), 8 | (code + (code & 1)), "E2M1");
    }
}
END_TEST

START_TEST(e4m3_saturates_and_keeps_nan)
{
    const float large[] = {448, 464, 464.0625f, 465, 480, 1e3f, 3e10f, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        expect_code(large[i], e4m3_encode(large[i]), 0x7E, "E4M3");
        expect_code(-large[i], e4m3_encode(-large[i]), 0xFE, "E4M3");
    }
    expect_code(NAN, e4m3_encode(NAN), 0x7F, "E4M3");
    expect_code(-NAN, e4m3_encode(from_bits(0xFFC00001u)), 0x7F, "E4M3");
    ck_assert(isnan(e4m3_round(NAN)));
}
END_TEST

static const struct {
    float x;
    double value;
} e4m3_known[] =
    {
        {256, 256},
        {272, 256},
        {288, 288},
        {304, 320},
        {432, 448},
        {440, 448},
        {4.25f, 4.0},
        {4.75f, 5.0},
        {0x1p-9f, 0x1p-9},
        {0x1p-10f, 0},
        {1.01f * 0x1p-10f, 0x1p-9},
        {3 * 0x1p-10f, 0x1p-8},
        {0.99f * 0x1p-6f, 0x1p-6},
},
  e2m1_known[] = {
      {.25f, 0}, {.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}, {5.0001f, 6}, {7, 6}, {-.2f, -0.0},
};

START_TEST(known_values_round_as_published)
{
    for (size_t i = 0; i < sizeof e4m3_known / sizeof *e4m3_known; i++) {
        ck_assert_double_eq(e4m3_round(e4m3_known[i].x), e4m3_known[i].value);
    }
    for (size_t i = 0; i < sizeof e2m1_known / sizeof *e2m1_known; i++) {
        ck_assert_double_eq(e2m1_round(e2m1_known[i].x), e2m1_known[i].value);
    }
    expect_code(-.2f, e2m1_encode(-.2f), 8, "E2M1");
}
END_TEST

START_TEST(every_code_decodes_and_encodes_back)
{
    for (unsigned code = 0; code < 256; code++) {
        const float value = e4m3_decode((uint8_t)code);
        const double expected = reference_e4m3_value(code);
        expect(isnan(expected) ? isnan(value) : value == expected && !signbit(value) == !signbit(expected),
               "E4M3 code 0x%02x decodes to %a, expected %a", code, (double)value, expected);
        expect_code(value, e4m3_encode(value), isnan(expected) ? 0x7F : code, "E4M3");
    }
    for (unsigned code = 0; code < 16; code++) {
        const float value = e2m1_decode((uint8_t)code);
        const double expected = reference_e2m1_value(code);
        expect(value == expected && !signbit(value) == !signbit(expected), "E2M1 code 0x%x decodes to %a, expected %a",
               code, (double)value, expected);
        expect_code(value, e2m1_encode(value), code, "E2M1");
    }
}
END_TEST

START_TEST(every_e8m0_byte_is_a_power_of_two)
{
    for (unsigned byte = 0; byte < 255; byte++) {
        ck_assert_double_eq(e8m0_decode((uint8_t)byte), ldexp(1, (int)byte - 127));
        ck_assert_uint_eq(e8m0_encode((int)byte - 127), byte);
    }
    ck_assert(isnan(e8m0_decode(255)));
    ck_assert_uint_eq(float_to_bits(e8m0_decode(0)), 0x00400000u); /* 2^-127 is subnormal in FP32, not 0 */
}
END_TEST

START_TEST(bf16_rounds_to_nearest_even)
{
    struct random_stream stream = random_stream(2);
    for (size_t i = 0; i < 1000000; i++) {
        const float x = from_bits((uint32_t)random_bits(&stream));
        const float expected = reference_bf16(x), found = bf16_round(x);
        expect(isnan(x) ? isnan(found) : found == expected, "BF16 of %a is %a, expected %a", (double)x, (double)found,
               (double)expected);
    }
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = bf16_decode((uint16_t)bits), expected = (float)reference_bf16_value(bits);
        expect(isnan(expected) ? isnan(value) : value == expected, "BF16 code 0x%04x", bits);
        expect(isnan(expected) ? isnan(bf16_decode(bf16_encode(value))) : bf16_encode(value) == bits,
               "BF16 code 0x%04x", bits);
    }
    ck_assert_float_eq(bf16_round(from_bits(0x7F7FFFFFu)), INFINITY);
}
END_TEST

START_TEST(products_of_codes_and_scales_are_exact_in_bf16)
{
    /* What lets a BF16 matrix product stand for the block-scaled one. */
    for (unsigned code = 0; code < 0x7F; code++) {
        for (int e = -117; e <= 117; e++) {
            const float x = e4m3_decode((uint8_t)code) * e8m0_decode(e8m0_encode(e));
            expect(bf16_round(x) == x, "%a is not a BF16 number", (double)x);
        }
        for (unsigned four = 0; four < 8; four++) {
            const float x = e4m3_decode((uint8_t)code) * e2m1_decode((uint8_t)four);
            expect(bf16_round(x) == x, "%a is not a BF16 number", (double)x);
        }
    }
}
END_TEST

Suite *suite_formats(void);

Suite *suite_formats(void)
{
    Suite *suite = suite_create("formats");
    TCase *tcase = tcase_create("formats");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_bf16_input_encodes_to_the_nearest_code);
    tcase_add_test(tcase, random_fp32_inputs_encode_to_the_nearest_code);
    tcase_add_test(tcase, ties_and_their_neighbours_encode_to_the_even_or_nearer_code);
    tcase_add_test(tcase, e4m3_saturates_and_keeps_nan);
    tcase_add_test(tcase, known_values_round_as_published);
    tcase_add_test(tcase, every_code_decodes_and_encodes_back);
    tcase_add_test(tcase, every_e8m0_byte_is_a_power_of_two);
    tcase_add_test(tcase, bf16_rounds_to_nearest_even);
    tcase_add_test(tcase, products_of_codes_and_scales_are_exact_in_bf16);
    suite_add_tcase(suite, tcase);
    return suite;
}
