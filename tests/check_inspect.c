/* check_inspect.c: what inspect says of operands whose answers are known. */
#include <math.h>
#include <stdlib.h>

#include "attention/formats.h"
#include "attention/inspect.h"
#include "tests/support.h"

#define TOKENS   64
#define HEAD_DIM 32

static const int32_t offsets[] = {0, TOKENS};
static const struct documents documents = {offsets, 1};

static float *normals(uint64_t test)
{
    struct random_stream random = random_stream(test);
    float *x = test_alloc(TOKENS * HEAD_DIM * sizeof *x);
    random_normals(&random, x, TOKENS * HEAD_DIM, 1);
    return x;
}

static struct inspection inspect(const char *recipe, enum operand_role role, const float *x)
{
    struct inspection inspection;
    ck_assert_int_eq(inspect_operand(recipe_find(recipe), role, &documents, TOKENS, 1, HEAD_DIM, x, &inspection),
                     ATTENTION_OK);
    ck_assert_uint_eq(inspection.elements, TOKENS * HEAD_DIM);
    return inspection;
}

START_TEST(unquantized_operands_have_no_error)
{
    float *x = normals(1);
    const struct inspection plain = inspect("fp32", ROLE_VALUE_OUTPUT, x),
                            rounded = inspect("exact", ROLE_VALUE_OUTPUT, x);
    ck_assert(plain.relative_error == 0 && plain.zeroed == 0 && plain.saturated == 0 && plain.poisoned == 0);
    ck_assert(rounded.relative_error == 0); /* BF16 is what the quantizers read */
    free(x);
}
END_TEST

/* E4M3 rounds normal values to within 2^-4, so errors are below that; with 3 bits of mantissa they are not far below.
 */
START_TEST(errors_have_the_size_of_the_format)
{
    float *x = normals(2);
    const struct inspection eight = inspect("mxfp8", ROLE_VALUE_OUTPUT, x),
                            four = inspect("fp4", ROLE_VALUE_DPROBABILITY, x);
    ck_assert(eight.relative_error > 0x1p-8 && eight.relative_error < 0x1p-4);
    ck_assert(four.relative_error > eight.relative_error && four.relative_error < 0.25);
    ck_assert(eight.cosine > 0.998 && four.cosine > 0.97 && four.cosine < eight.cosine);
    free(x);
}
END_TEST

START_TEST(scales_are_counted)
{
    float *x = normals(3);
    const struct inspection block = inspect("mxfp8", ROLE_VALUE_OUTPUT, x), group = inspect("nvfp4", ROLE_KEY_SCORE, x);
    size_t blocks = 0, groups = 0;
    for (size_t i = 0; i < INSPECT_SCALES; i++) {
        blocks += block.scales[i];
        groups += group.scales[i];
    }
    ck_assert_uint_eq(blocks, TOKENS);
    ck_assert_uint_eq(groups, TOKENS * HEAD_DIM / 16);
    free(x);
}
END_TEST

START_TEST(an_outlier_zeroes_and_floor_saturates)
{
    float *x = normals(4);
    x[5] = 500.0f; /* 500 / 2^8 = 1.95: beyond 448 of the rounded-down exponent */
    const struct inspection up = inspect("mxfp8", ROLE_VALUE_OUTPUT, x),
                            down = inspect("mxfp8-floor", ROLE_VALUE_OUTPUT, x);
    ck_assert_uint_eq(up.saturated, 0);
    ck_assert_uint_ge(down.saturated, 1);
    x[5] = 1e9f;
    ck_assert_uint_gt(inspect("mxfp8", ROLE_VALUE_OUTPUT, x).zeroed, TOKEN_BLOCK * HEAD_DIM / 2);
    x[5] = NAN;
    ck_assert_uint_eq(inspect("mxfp8", ROLE_VALUE_OUTPUT, x).poisoned, TOKEN_BLOCK * HEAD_DIM);
    free(x);
}
END_TEST

START_TEST(probabilities_and_dscores)
{
    float *q = normals(5), *k = normals(6), *v = normals(7), *g = normals(8);
    struct inspection inspections[INSPECT_INTERMEDIATES];
    const struct inspect_call call = {
        recipe_find(_i ? "fp4" : "exact"), {TOKENS, 1, 1, HEAD_DIM, true, 0.18f}, documents, q, k, v, g, 1};
    ck_assert_int_eq(inspect_call(&call, inspections), ATTENTION_OK);
    for (int i = 0; i < INSPECT_INTERMEDIATES; i++) {
        ck_assert_uint_eq(inspections[i].elements, TOKENS * (TOKENS + 1) / 2);
        ck_assert(inspections[i].relative_error < (_i ? 0.4 : 0.01));
        ck_assert(_i ? inspections[i].zeroed > 0 : inspections[i].cosine > 0.9999);
    }
    free(q);
    free(k);
    free(v);
    free(g);
}
END_TEST

START_TEST(a_block_shows_what_a_later_token_changes)
{
    float *x = normals(9);
    struct inspect_block grouped, keyed;
    ck_assert_int_eq(inspect_block(recipe_find("fp4"), ROLE_VALUE_OUTPUT, &documents, TOKENS, 1, HEAD_DIM, x, 0, 3, 40,
                                   1e4f, &grouped),
                     ATTENTION_OK);
    ck_assert_int_eq(inspect_block(recipe_find("fp4"), ROLE_VALUE_OUTPUT_DIAGONAL, &documents, TOKENS, 1, HEAD_DIM, x,
                                   0, 3, 40, 1e4f, &keyed),
                     ATTENTION_OK);
    size_t moved = 0;
    ck_assert_uint_eq(grouped.first, 32);
    ck_assert_uint_eq(grouped.rows, 32);
    for (size_t i = 0; i + 1 < grouped.rows; i++) {
        moved += float_to_bits(grouped.row[i].decoded) != float_to_bits(grouped.row[i].decoded_after);
        ck_assert_uint_eq(float_to_bits(keyed.row[i].decoded), float_to_bits(keyed.row[i].decoded_after));
        ck_assert_float_eq(grouped.row[i].input, bf16_round(x[(32 + i) * HEAD_DIM + 3]));
        ck_assert_double_eq((double)grouped.row[i].decoded,
                            (double)e2m1_decode(grouped.row[i].code) * grouped.row[i].scale);
    }
    ck_assert_uint_gt(moved, 0);
    ck_assert_int_eq(inspect_block(recipe_find("fp4"), ROLE_VALUE_OUTPUT, &documents, TOKENS, 1, HEAD_DIM, x, 0, 3,
                                   TOKENS, 2, &keyed),
                     ATTENTION_BAD_SHAPE);
    free(x);
}
END_TEST

Suite *suite_inspect(void);
Suite *suite_inspect(void)
{
    Suite *suite = suite_create("inspect");
    TCase *tests = tcase_create("inspect");
    tcase_add_test(tests, unquantized_operands_have_no_error);
    tcase_add_test(tests, errors_have_the_size_of_the_format);
    tcase_add_test(tests, scales_are_counted);
    tcase_add_test(tests, an_outlier_zeroes_and_floor_saturates);
    tcase_add_loop_test(tests, probabilities_and_dscores, 0, 2);
    tcase_add_test(tests, a_block_shows_what_a_later_token_changes);
    suite_add_tcase(suite, tests);
    return suite;
}
