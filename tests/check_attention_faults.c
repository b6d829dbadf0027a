/* check_attention_faults.c: what attention does with NaN, infinity, and calls that make no sense. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/probability_cpu.h"
#include "tests/attention_case.h"

/* ---- NaN: never swallowed, never outside its document or before its time ---- */

static size_t count_nan(const float *x, size_t count)
{
    size_t nans = 0;
    for (size_t i = 0; i < count; i++) {
        nans += isnan(x[i]) != 0;
    }
    return nans;
}

START_TEST(a_nan_shows_in_every_row_that_sees_it_and_in_no_other_document)
{
    static const float bad[] = {NAN, INFINITY};
    struct random_stream stream = random_stream(70 + (uint64_t)_i);
    static const size_t lengths[] = {40, 70, 33};
    const struct recipe *recipe = recipe_at((size_t)_i);
    enum { D = 16, FIRST = 40, END = 110, AT = 75 };
    for (int which = 0; which < 8; which++) { /* Q, K, V, dO; NaN, infinity */
        struct attention_case c = case_make(&stream, lengths, 3, 1, 1, D, true);
        float *const tensors[] = {c.query, c.key, c.value, c.output_gradient};
        tensors[which % 4][AT * D + 5] = bad[which / 4];
        case_run(&c, recipe);
        const bool tensor_wide = recipe->exponents == EXPONENT_TENSOR;
        const bool plain_infinity = which >= 4 && recipe->value == OPERAND_BF16; /* -inf is a score like another */
        if (which % 4 == 0) {
            ck_assert_msg(count_nan(c.output + AT * D, D) == D, "%s: Q at the row itself", recipe->name);
        } else if (which % 4 < 3 && !plain_infinity && recipe->value != OPERAND_FP32) {
            for (size_t row = AT; row < END; row++) {
                expect(count_nan(c.output + row * D, D) > 0, "%s: tensor %d, row %zu has no NaN", recipe->name,
                       which % 4, row);
            }
        }
        ck_assert_msg(
            count_nan(c.dquery, c.query_count) + count_nan(c.dvalue, c.key_count) + count_nan(c.dkey, c.key_count) > 0,
            "%s: tensor %d left no NaN in any gradient", recipe->name, which);
        ck_assert_msg(tensor_wide || count_nan(c.output, FIRST * D) + count_nan(c.output + END * D, 33 * D) +
                                             count_nan(c.dquery, FIRST * D) + count_nan(c.dquery + END * D, 33 * D) +
                                             count_nan(c.dkey, FIRST * D) + count_nan(c.dvalue + END * D, 33 * D) ==
                                         0,
                      "%s: tensor %d reached another document", recipe->name, which);
        if (recipe_causality(recipe) == CAUSALITY_EXACT && which % 4 != 3) {
            ck_assert_msg(count_nan(c.output, AT * D) + count_nan(c.dquery, AT * D) == 0,
                          "%s: tensor %d reached an earlier row", recipe->name, which);
        }
        case_free(&c);
    }
}
END_TEST

START_TEST(hidden_rows_have_an_infinite_lse_and_zero_output)
{
    /* The public form of the statistics. */
    const float lse[] = {1, INFINITY, -3, NAN};
    float natural[4];
    attention_public_lse(lse, natural, 4);
    ck_assert_float_eq_tol(natural[0], 0.6931472f, 1e-6f);
    ck_assert_float_eq(natural[1], -INFINITY);
    ck_assert_float_eq_tol(natural[2], -3 * 0.6931472f, 1e-6f);
    ck_assert(isnan(natural[3]));
}
END_TEST

START_TEST(a_block_of_ds_that_holds_nan_or_infinity_is_nan)
{
    /* Rows 37 and key 70 of a tile: its own 32 x 32 block, its row's 32 keys, or the tile; and nothing else. */
    static const char *const scales[][2] = {{"dscore-scale=block"}, {"dscore-scale=row"}, {"dscore-scale=tile"}};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct random_stream stream = random_stream(75);
    float *tile = test_alloc(TILE * TILE * sizeof *tile), *key = test_alloc(TILE * TILE * sizeof *key);
    for (size_t i = 0; i < 9; i++) {
        const struct recipe recipe = recipe_with("mxfp8", scales[i % 3]);
        const struct tile_place place = {0};
        random_normals(&stream, tile, TILE * TILE, 1);
        tile[37 * TILE + 70] = bad[i / 3];
        memcpy(key, tile, TILE * TILE * sizeof *tile);
        dscore_quantize(&recipe, tile, key, TILE, TILE, NULL, 0, &place);
        for (size_t at = 0; at < TILE * TILE; at++) {
            const size_t row = at / TILE, column = at % TILE;
            const bool same_block = row / 32 == 1 && column / 32 == 2;
            const bool expected = i % 3 == 0 ? same_block : i % 3 == 1 ? same_block && row == 37 : true;
            expect((isnan(tile[at]) && isnan(key[at])) == expected && (isnan(tile[at]) || isnan(key[at])) == expected,
                   "%s: dS of row %zu, key %zu is %g", scales[i % 3][0], row, column, (double)tile[at]);
        }
    }
    ck_assert(isnan(dscore_tensor_scale(0x7F800000u)) && isnan(dscore_tensor_scale(0x7FC00000u)));
    free(tile);
    free(key);
}
END_TEST

/* ---- refusals ---- */

START_TEST(bad_calls_are_refused_with_a_status)
{
    struct random_stream stream = random_stream(80);
    static const size_t lengths[] = {10, 6};
    struct attention_case c = case_make(&stream, lengths, 2, 4, 2, 16, true);
    const struct recipe *recipe = recipe_find("exact");
    const size_t bytes = attention_workspace_bytes(recipe, &c.shape);
    void *workspace = test_alloc(bytes);
    const struct attention_inputs good = {c.query, c.key, c.value, 64, 32, 32};
    struct attention_inputs inputs = good;
    struct attention_shape shape = c.shape;
    static const char *const loose[] = {"c=8", "tau=2", NULL};
    struct recipe refused = recipe_with("mxfp8", loose);
    const int32_t offsets[][3] = {{1, 10, 16}, {0, 12, 10}, {0, 10, 15}, {0, -1, 16}};
#define FORWARD(recipe_, shape_, documents_, inputs_, stride_, bytes_)                                                 \
    attention_forward_cpu((recipe_), (shape_), (documents_), (inputs_), c.output, (stride_), c.lse, workspace,         \
                          (bytes_), NULL)
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_OK);
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes - 1), ATTENTION_WORKSPACE);
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 63, bytes), ATTENTION_BAD_STRIDE);
    ck_assert_int_eq(FORWARD(&refused, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_RECIPE);
    inputs.key_stride = 31;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &inputs, 64, bytes), ATTENTION_BAD_STRIDE);
    inputs = good;
    inputs.value = NULL;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &inputs, 64, bytes), ATTENTION_BAD_STRIDE);
    shape.kv_heads = 3;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_SHAPE);
    shape.kv_heads = 0;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_SHAPE);
    shape = c.shape;
    shape.head_dim = 24;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_SHAPE);
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        const struct documents bad = {offsets[i], 2};
        ck_assert_int_eq(FORWARD(recipe, &c.shape, &bad, &good, 64, bytes), ATTENTION_BAD_OFFSETS);
    }
#undef FORWARD
    free(workspace);
    case_free(&c);
}
END_TEST

START_TEST(every_status_has_its_own_text)
{
    for (int i = 0; i <= ATTENTION_STATUS_COUNT; i++) {
        const char *text = attention_status_text((enum attention_status)i);
        ck_assert_ptr_nonnull(text);
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(text, attention_status_text((enum attention_status)j));
        }
    }
}
END_TEST

Suite *suite_attention_faults(void);

Suite *suite_attention_faults(void)
{
    Suite *suite = suite_create("attention_faults");
    TCase *tcase = tcase_create("attention_faults");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_nan_shows_in_every_row_that_sees_it_and_in_no_other_document, 0, (int)recipe_count());
    tcase_add_test(tcase, a_block_of_ds_that_holds_nan_or_infinity_is_nan);
    tcase_add_test(tcase, hidden_rows_have_an_infinite_lse_and_zero_output);
    tcase_add_test(tcase, bad_calls_are_refused_with_a_status);
    tcase_add_test(tcase, every_status_has_its_own_text);
    suite_add_tcase(suite, tcase);
    return suite;
}
