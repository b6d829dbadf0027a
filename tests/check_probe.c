/* check_probe.c: the probe calls exact what is exact, and finds what leaks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/probe.h"
#include "attention/quantize.h"
#include "tests/support.h"

/* Documents that end inside blocks, a single token, an empty one. */
static const int32_t packed[] = {0, 40, 41, 41, 110, 160};
static const int32_t whole[] = {0, 160};
#define TOKENS 160

/* Rounding down leaks where a block's maximum saturates and ceases to, which is so in about four blocks of ten: eight
 * heads have enough of them that one will (0.6^90); elsewhere two heads on one will do. */
static struct probe *make(const struct recipe *recipe, const int32_t *offsets, size_t count, size_t head_dim)
{
    struct random_stream random = random_stream(head_dim + count);
    const size_t heads = recipe->rule == SCALE_FLOOR ? 8 : 2;
    const struct probe_setup setup = {
        .recipe = recipe,
        .shape = {TOKENS, heads, heads == 8 ? 8 : 1, head_dim, true, 1.0f / sqrtf((float)head_dim)},
        .documents = {offsets, count},
        .seed = random_bits(&random)};
    enum attention_status status;
    struct probe *probe = probe_create(&setup, &status);
    ck_assert_ptr_nonnull(probe);
    return probe;
}

static struct probe_outcome outcome_of(const char *name, size_t head_dim)
{
    struct probe_outcome total;
    const struct recipe *recipe = recipe_find(name);
    struct probe *probe = make(recipe, packed, 5, head_dim);
    ck_assert_int_eq(probe_run(probe, 5, &total, NULL), ATTENTION_OK);
    probe_destroy(probe);
    return total;
}

static const char *const exact[] = {"fp32", "exact", "mxfp8-causal", "nvfp4-causal"};
static const char *const in_block[] = {"mxfp8", "nvfp4", "fp4"};
static const char *const leaky[] = {"fp4-leaky", "fp8-tensor", "mxfp8-floor"};
#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

START_TEST(exact_recipes_move_no_bit)
{
    for (size_t head_dim = 64; head_dim <= 128; head_dim += 64) {
        const struct probe_outcome total = outcome_of(exact[_i], head_dim);
        ck_assert_int_eq(total.verdict, CAUSALITY_EXACT);
        ck_assert(!total.row_in_block && !total.row_outside && !total.other_document && !total.operand_moved);
        ck_assert(total.output_change == 0 && total.dquery_change == 0);
    }
}
END_TEST

START_TEST(block_recipes_stay_in_their_block)
{
    for (size_t head_dim = 64; head_dim <= 128; head_dim += 64) {
        const struct probe_outcome total = outcome_of(in_block[_i], head_dim);
        ck_assert_int_eq(total.verdict, CAUSALITY_IN_BLOCK);
        ck_assert(!total.row_outside && !total.other_document && total.operand_moved && !total.operand_above);
        ck_assert_uint_gt(total.groups_rescaled, 0);
    }
}
END_TEST

START_TEST(leaky_recipes_are_caught)
{
    ck_assert_int_eq(outcome_of(leaky[_i], 64).verdict, CAUSALITY_LEAKY);
    ck_assert_int_eq(outcome_of(leaky[_i], 128).verdict, CAUSALITY_LEAKY);
}
END_TEST

START_TEST(verdicts_are_what_the_switches_promise)
{
    const struct recipe *recipe = recipe_at((size_t)_i);
    ck_assert_int_eq(outcome_of(recipe->name, 64).verdict, recipe_causality(recipe));
}
END_TEST

START_TEST(only_tensor_wide_scales_cross_documents)
{
    const struct recipe *recipe = recipe_at((size_t)_i);
    const struct probe_outcome total = outcome_of(recipe->name, 64);
    ck_assert_int_eq(total.other_document, recipe->exponents == EXPONENT_TENSOR);
}
END_TEST

/* A later query or dO is nobody's business, whatever the recipe shares along tokens, but for tensor-wide scales. */
START_TEST(later_queries_and_gradients_move_no_row)
{
    static const enum probe_tensor tensors[] = {PROBE_QUERY, PROBE_DOUTPUT};
    struct probe *probe = make(recipe_find("fp4"), whole, 1, 64);
    for (int tensor = 0; tensor < 2; tensor++) {
        for (int change = 0; change < PROBE_FINITE_CHANGES; change++) {
            struct probe_outcome outcome;
            ck_assert_int_eq(probe_perturb(probe, 77, tensors[tensor], (enum probe_change)change, &outcome),
                             ATTENTION_OK);
            ck_assert(!outcome.row_in_block && !outcome.row_outside);
        }
    }
    probe_destroy(probe);
}
END_TEST

/* A mild change certifies nothing: E4M3 codes of a block stay until its maximum has grown by thousands. */
START_TEST(coverage_tells_a_mild_probe_from_a_strong_one)
{
    struct probe *probe = make(recipe_find("mxfp8"), whole, 1, 64);
    struct probe_outcome mild, strong;
    ck_assert_int_eq(probe_perturb(probe, 100, PROBE_KEY_VALUE, PROBE_REDRAW, &mild), ATTENTION_OK);
    ck_assert_int_eq(probe_perturb(probe, 100, PROBE_KEY_VALUE, PROBE_GAIN_1E6, &strong), ATTENTION_OK);
    ck_assert_uint_eq(mild.groups, strong.groups);
    ck_assert_uint_eq(strong.groups_rescaled, strong.groups);
    ck_assert_uint_lt(mild.groups_rescaled, strong.groups_rescaled);
    ck_assert(strong.row_in_block && strong.output_change > 0);
    probe_destroy(probe);
}
END_TEST

/* NaN and infinity of a later token: exact recipes keep earlier rows; a shared block may not hide them. */
START_TEST(later_nan_does_not_reach_exact_rows)
{
    for (int change = PROBE_NAN; change <= PROBE_INFINITY; change++) {
        struct probe *probe = make(recipe_find(exact[_i]), packed, 5, 64);
        struct probe_outcome outcome;
        ck_assert_int_eq(probe_perturb(probe, 90, PROBE_KEY_VALUE, (enum probe_change)change, &outcome), ATTENTION_OK);
        ck_assert(!outcome.row_in_block && !outcome.row_outside && !outcome.other_document);
        probe_destroy(probe);
    }
}
END_TEST

START_TEST(nan_stays_in_its_block_and_document)
{
    struct probe *probe = make(recipe_find("mxfp8"), packed, 5, 64);
    struct probe_outcome outcome;
    ck_assert_int_eq(probe_perturb(probe, 90, PROBE_VALUE, PROBE_NAN, &outcome), ATTENTION_OK);
    ck_assert(outcome.row_in_block && !outcome.row_outside && !outcome.other_document);
    probe_destroy(probe);
}
END_TEST

START_TEST(perturbing_leaves_the_probe_as_it_was)
{
    struct probe *probe = make(recipe_find("fp4-leaky"), whole, 1, 64);
    struct probe_outcome first, second, between;
    ck_assert_int_eq(probe_perturb(probe, 50, PROBE_VALUE, PROBE_GAIN_100, &first), ATTENTION_OK);
    ck_assert_int_eq(probe_perturb(probe, 90, PROBE_KEY_VALUE, PROBE_SWAP, &between), ATTENTION_OK);
    ck_assert_int_eq(probe_perturb(probe, 50, PROBE_VALUE, PROBE_GAIN_100, &second), ATTENTION_OK);
    ck_assert(first.output_change == second.output_change && first.dquery_change == second.dquery_change);
    ck_assert_uint_eq(first.groups_rescaled, second.groups_rescaled);
    probe_destroy(probe);
}
END_TEST

/* A mask off by one, seen from outside: V shifted by a token, so that row i reads V of i + 1. */
START_TEST(a_shifted_value_is_caught)
{
    const size_t width = 64;
    float *value = test_alloc(TOKENS * width * sizeof *value), *other = test_alloc(TOKENS * width * sizeof *other);
    struct random_stream random = random_stream(9);
    random_normals(&random, value, TOKENS * width, 1);
    memcpy(other, value, TOKENS * width * sizeof *value);
    other[101 * width] += 1; /* token 101 is what row 100 would read */
    float *outputs[2];
    for (int run = 0; run < 2; run++) {
        const struct attention_shape shape = {TOKENS - 1, 1, 1, width, true, 0.125f};
        const int32_t offsets[] = {0, TOKENS - 1};
        const struct documents documents = {offsets, 1};
        const float *shifted = (run ? other : value) + width;
        const struct attention_inputs inputs = {value, value, shifted, width, width, width};
        const size_t bytes = attention_workspace_bytes(recipe_find("exact"), &shape);
        void *workspace = test_alloc(bytes);
        float *lse = test_alloc(TOKENS * sizeof *lse);
        outputs[run] = test_alloc(TOKENS * width * sizeof(float));
        ck_assert_int_eq(attention_forward_cpu(recipe_find("exact"), &shape, &documents, &inputs, outputs[run], width,
                                               lse, workspace, bytes, NULL),
                         ATTENTION_OK);
        free(workspace);
        free(lse);
    }
    ck_assert(memcmp(outputs[0] + 100 * width, outputs[1] + 100 * width, width * sizeof(float)) != 0);
    ck_assert(memcmp(outputs[0] + 99 * width, outputs[1] + 99 * width, width * sizeof(float)) == 0);
    for (int run = 0; run < 2; run++) {
        free(outputs[run]);
    }
    free(value);
    free(other);
}
END_TEST

START_TEST(the_picture_is_empty_above_the_diagonal_where_it_must_be)
{
    enum { SIDE = 40 };
    const int32_t offsets[] = {0, SIDE};
    size_t positions[SIDE], early = 0, late = 0;
    float changes[SIDE * SIDE];
    const struct probe_setup setup = {.recipe = recipe_find(_i ? "fp4-leaky" : "exact"),
                                      .shape = {SIDE, 1, 1, 64, true, 0.125f},
                                      .documents = {offsets, 1},
                                      .seed = 3};
    enum attention_status status;
    struct probe *probe = probe_create(&setup, &status);
    for (size_t i = 0; i < SIDE; i++) {
        positions[i] = i;
    }
    ck_assert_int_eq(probe_picture(probe, PROBE_GAIN_1E4, positions, SIDE, changes), ATTENTION_OK);
    for (size_t row = 0; row < SIDE; row++) {
        for (size_t column = 0; column < SIDE; column++) {
            early += row < column && changes[row * SIDE + column] != 0;
            late += row >= column && changes[row * SIDE + column] != 0;
        }
    }
    ck_assert_uint_eq(late, SIDE * (SIDE + 1) / 2);
    ck_assert_int_eq(early > 0, _i);
    probe_destroy(probe);
}
END_TEST

START_TEST(positions_are_ascending_and_inside)
{
    size_t positions[64];
    for (size_t count = 1; count <= 64; count++) {
        const struct documents documents = {packed, 5};
        const size_t found = probe_positions(&documents, count, positions);
        ck_assert_uint_ge(found, 1);
        for (size_t i = 0; i < found; i++) {
            ck_assert(positions[i] < TOKENS && (i == 0 || positions[i] > positions[i - 1]));
        }
    }
}
END_TEST

START_TEST(bad_shapes_are_refused)
{
    const struct probe_setup setup = {
        .recipe = recipe_find("exact"), .shape = {TOKENS, 3, 2, 64, true, 0.125f}, .documents = {whole, 1}};
    enum attention_status status;
    ck_assert_ptr_null(probe_create(&setup, &status));
    ck_assert_int_eq(status, ATTENTION_BAD_SHAPE);
    struct probe *probe = make(recipe_find("exact"), whole, 1, 64);
    struct probe_outcome outcome;
    ck_assert_int_eq(probe_perturb(probe, TOKENS, PROBE_KEY, PROBE_ZERO, &outcome), ATTENTION_BAD_SHAPE);
    probe_destroy(probe);
}
END_TEST

/* One channel of 32 values of 0.3 whose last one grows: what becomes of the first (worked out by hand from the
 * formats). */
START_TEST(the_first_of_a_block_changes_as_worked_out)
{
    enum { WIDTH = 16 };
    const struct {
        const char *recipe;
        enum operand_role role;
        float last, first;
    } cases[] = {
        {"mxfp8", ROLE_VALUE_OUTPUT, 0.3f, 0.3125f},        {"mxfp8", ROLE_VALUE_OUTPUT, 3.0f, 0.3125f},
        {"mxfp8", ROLE_VALUE_OUTPUT, 3000.0f, 0.3125f},     {"mxfp8", ROLE_VALUE_OUTPUT, 30000.0f, 0.25f},
        {"mxfp8-causal", ROLE_VALUE_OUTPUT, 3e4f, 0.3125f},
    };
    const int32_t offsets[] = {0, TOKEN_BLOCK};
    const struct documents documents = {offsets, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x[TOKEN_BLOCK * WIDTH], values[TOKEN_BLOCK * WIDTH];
        for (size_t k = 0; k < TOKEN_BLOCK * WIDTH; k++) {
            x[k] = k / WIDTH == TOKEN_BLOCK - 1 ? cases[i].last : 0.3f;
        }
        struct operand operand = {.values = values};
        quantize_operand_cpu(recipe_find(cases[i].recipe), cases[i].role, &documents, TOKEN_BLOCK, 1, WIDTH, x, WIDTH,
                             &operand);
        ck_assert_float_eq(values[0], cases[i].first);
    }
}
END_TEST

Suite *suite_probe(void);
Suite *suite_probe(void)
{
    Suite *suite = suite_create("probe");
    TCase *verdicts = tcase_create("verdicts"), *rest = tcase_create("probe");
    tcase_set_timeout(verdicts, 30);
    tcase_set_timeout(rest, 10);
    tcase_add_loop_test(verdicts, exact_recipes_move_no_bit, 0, COUNT(exact));
    tcase_add_loop_test(verdicts, block_recipes_stay_in_their_block, 0, COUNT(in_block));
    tcase_add_loop_test(verdicts, leaky_recipes_are_caught, 0, COUNT(leaky));
    tcase_add_loop_test(verdicts, verdicts_are_what_the_switches_promise, 0, (int)recipe_count());
    tcase_add_loop_test(verdicts, only_tensor_wide_scales_cross_documents, 0, (int)recipe_count());
    tcase_add_test(rest, later_queries_and_gradients_move_no_row);
    tcase_add_test(rest, coverage_tells_a_mild_probe_from_a_strong_one);
    tcase_add_loop_test(rest, later_nan_does_not_reach_exact_rows, 0, COUNT(exact));
    tcase_add_test(rest, nan_stays_in_its_block_and_document);
    tcase_add_test(rest, perturbing_leaves_the_probe_as_it_was);
    tcase_add_test(rest, a_shifted_value_is_caught);
    tcase_add_loop_test(rest, the_picture_is_empty_above_the_diagonal_where_it_must_be, 0, 2);
    tcase_add_test(rest, positions_are_ascending_and_inside);
    tcase_add_test(rest, bad_shapes_are_refused);
    tcase_add_test(rest, the_first_of_a_block_changes_as_worked_out);
    suite_add_tcase(suite, verdicts);
    suite_add_tcase(suite, rest);
    return suite;
}
