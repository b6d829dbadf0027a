/* check_rowsums.c: forward and backward belong together: each row of dS sums to 0 but for the rounding of P and O.
 *
 * With D from the forward's O = sum P^ V^ / l, the row sum is sum_j (P_ij - P^_ij / l) dP_ij plus what O's rounding to
 * BF16 adds. So |sum_j dS_ij| <= u sum_j P_ij |dP_ij| + 2^-8 sum_d |dO^_id O_id| + F_i: u the relative rounding error
 * of P, F_i half the smallest code for P below E4M3's normal range (paper, section 3.3). In FP32, and with D as a
 * direct sum, only the errors of FP32 sums are left, 2^-20, growing with the size of lse, whose own rounding moves
 * sum_j P_ij from
 * 1. Deliberate mismatches (section 4.5) leave the bound.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/attention_oracle.h"

/* Row sums of a traced call, against their bound. */
struct row_sums {
    size_t rows, beyond;
    double worst; /* largest row sum / bound */
};

/* log2 of the value of one code unit of P of P V, for each visible key. */
static void code_units(const struct recipe *recipe, const double *x, const double *m, size_t visible, double slack,
                       double *unit)
{
    for (size_t j = 0; j < visible; j++) {
        unit[j] = m[j] - recipe->probability_shift;
        if (recipe->probability == PROBABILITY_E4M3_GROUP) {
            double peak = -INFINITY;
            for (size_t k = j - j % 32; k < j - j % 32 + 32 && k < visible; k++) {
                peak = fmax(peak, x[k] - m[k]);
            }
            unit[j] = m[j] + ceil(peak + slack) - 8;
        }
    }
}

static double rounding_of(const struct recipe *recipe, double lse)
{
    if (recipe->delta == DELTA_DIRECT || recipe->probability == PROBABILITY_FP32) {
        return 0x1p-20 * fmax(1, fabs(lse) / 5); /* lse is rounded to 2^-24 of itself */
    }
    return recipe->probability_dvalue == PROBABILITY_BF16 ? 0x1p-8 : 0x1p-4;
}

struct row_buffers {
    double *x, *m, *unit;
};

static double row_bound(const struct oracle *oracle, size_t begin, size_t token, size_t visible, size_t head,
                        const struct row_buffers *buffers)
{
    const struct attention_case *c = oracle->c;
    const struct recipe *recipe = oracle->recipe;
    const size_t total = c->shape.total_tokens, d = c->shape.head_dim, at = (head * total + token) * total + begin;
    const double lse = (double)c->lse[head * total + token], u = rounding_of(recipe, lse);
    double margin = 0, bound = 0, magnitude;
    for (size_t j = 0; j < visible; j++) {
        margin = fmax(margin, oracle_score_error(oracle, token, head, begin + j, &buffers->x[j]));
    }
    const bool clear = oracle_maximum(recipe, buffers->x, visible, 2 * margin + 1e-5, buffers->m);
    code_units(recipe, buffers->x, buffers->m, visible, 2 * margin + 1e-5, buffers->unit);
    for (size_t j = 0; j < visible; j++) {
        const double dp = fabs((double)c->trace.dprobability[at + j]);
        const double lag = clear ? 0 : (double)recipe->rescale_threshold;
        bound += u * (double)c->trace.probability[at + j] * dp;
        bound += u == 0x1p-4 ? exp2(buffers->unit[j] + lag - 10 - lse) * dp : 0;
    }
    if (recipe->delta != DELTA_DIRECT) {
        oracle_dot(oracle_row(oracle, ROLE_DOUTPUT_DPROBABILITY, token, head),
                   c->output + (token * c->shape.heads + head) * d, d, &magnitude);
        bound += (recipe->probability == PROBABILITY_FP32 ? u : 0x1p-8) * magnitude;
    }
    return bound;
}

static struct row_sums row_sums_of(const struct attention_case *c, const struct recipe *recipe)
{
    static const enum operand_role roles[] = {ROLE_QUERY_SCORE, ROLE_KEY_SCORE, ROLE_DOUTPUT_DPROBABILITY};
    struct oracle oracle = oracle_make(c, recipe, roles, 3);
    const size_t total = c->shape.total_tokens, longest = documents_longest(&c->documents);
    struct row_buffers buffers = {test_alloc(longest * sizeof(double)), test_alloc(longest * sizeof(double)),
                                  test_alloc(longest * sizeof(double))};
    struct row_sums sums = {0, 0, 0};
    for (size_t n = 0; n < c->documents.count; n++) {
        const size_t begin = (size_t)c->offsets[n], end = (size_t)c->offsets[n + 1];
        for (size_t token = begin; token < end; token++) {
            const size_t visible = c->shape.causal ? token - begin + 1 : end - begin;
            for (size_t head = 0; head < c->shape.heads; head++) {
                double sum = 0;
                for (size_t j = 0; j < visible; j++) {
                    sum += (double)c->trace.dscore[(head * total + token) * total + begin + j];
                }
                const double bound = row_bound(&oracle, begin, token, visible, head, &buffers);
                sums.rows++;
                sums.beyond += fabs(sum) > bound;
                sums.worst = fmax(sums.worst, fabs(sum) / bound);
            }
        }
    }
    free(buffers.x);
    free(buffers.m);
    free(buffers.unit);
    oracle_free(&oracle);
    return sums;
}

static struct row_sums run(struct attention_case *c, const struct recipe *recipe)
{
    case_run(c, recipe);
    return row_sums_of(c, recipe);
}

START_TEST(row_sums_stay_within_their_bound)
{
    struct random_stream stream = random_stream((uint64_t)_i);
    const size_t lengths[] = {test_tokens(200), 1, 40};
    for (int causal = 0; causal < 2; causal++) {
        for (float sharpness = 1; sharpness <= 4; sharpness *= 4) {
            struct attention_case c = case_make(&stream, lengths, 3, 2, 1, 64, causal);
            c.shape.softmax_scale *= sharpness;
            case_trace(&c);
            const struct row_sums sums = run(&c, recipe_at((size_t)_i));
            ck_assert_msg(sums.beyond == 0, "%s: %zu of %zu rows beyond the bound, the worst by %.3g",
                          recipe_at((size_t)_i)->name, sums.beyond, sums.rows, sums.worst);
            case_free(&c);
        }
    }
}
END_TEST

START_TEST(a_mismatched_p_or_exponential_leaves_the_bound)
{
    /* 4-bit P forward and 8-bit P backward; an approximate exponential forward only. */
    static const char *const presets[] = {"mxfp8", "fp32"};
    static const char *const switches[][4] = {{"probability=e2m1", "c=0", "mismatch=1"},
                                              {"exponential=polynomial", "mismatch=1"}};
    struct random_stream stream = random_stream(100 + (uint64_t)_i);
    const size_t lengths[] = {test_tokens(150), 60, 30};
    const struct recipe mismatched = recipe_with(presets[_i], switches[_i]);
    struct attention_case c = case_make(&stream, lengths, 3, 4, 2, 64, true), other = case_copy(&c);
    case_trace(&c);
    case_trace(&other);
    const struct row_sums good = run(&c, recipe_find(presets[_i])), bad = run(&other, &mismatched);
    ck_assert_uint_eq(good.beyond, 0);
    ck_assert_uint_gt(bad.beyond, 0);
    ck_assert_double_gt(relative_error(other.dquery, c.dquery, c.query_count), 1e-5);
    case_free(&c);
    case_free(&other);
}
END_TEST

START_TEST(d_from_another_do_leaves_the_bound)
{
    /* Roundings that all go one way: dO = 17/16 becomes 1, and every P but the largest, 0.534 of it, becomes 0.5625.
     * With D from the quantized dO the row sum is the 5 % of P, within 2^-4; with D from the other dO, 12 % of D. */
    static const char *const switches[] = {"delta=original", "mismatch=1", NULL};
    const struct recipe mismatched = recipe_with("mxfp8", switches);
    struct random_stream stream = random_stream(110);
    static const size_t lengths[] = {40};
    struct attention_case c = case_make(&stream, lengths, 1, 1, 1, 16, false);
    c.shape.softmax_scale = (float)(log2(1 / 0.534) / 1.4426950408889634 / 16);
    for (size_t i = 0; i < c.query_count; i++) {
        c.query[i] = 1;
        c.key[i] = i < 16 ? 1 : 0;
        c.value[i] = 1;
        c.output_gradient[i] = 1.0625f;
    }
    case_trace(&c);
    const struct row_sums good = run(&c, recipe_find("mxfp8"));
    ck_assert_uint_eq(good.beyond, 0);
    const struct row_sums bad = run(&c, &mismatched);
    ck_assert_uint_eq(bad.beyond, bad.rows);
    case_free(&c);
}
END_TEST

START_TEST(diagonals_of_two_widths_move_the_gradient)
{
    /* Only rows 128 to 255 can tell, those for which tile 0 is diagonal in one pass and not in the other. */
    static const char *const switches[][4] = {{"delta=quantized", "diagonal-forward=256", "mismatch=1"},
                                              {"delta=quantized", "diagonal-backward=256", "mismatch=1"}};
    static const char *const from_output[] = {"delta=quantized", NULL};
    const struct recipe consistent = recipe_with("fp4", from_output);
    struct random_stream stream = random_stream(120);
    static const size_t lengths[] = {200};
    struct attention_case c = case_make(&stream, lengths, 1, 1, 1, 32, true), other = case_copy(&c);
    case_run(&c, &consistent);
    for (size_t i = 0; i < 2; i++) {
        const struct recipe mismatched = recipe_with("fp4", switches[i]);
        case_run(&other, &mismatched);
        ck_assert_mem_eq(other.dquery, c.dquery, 128 * 32 * sizeof(float));
        ck_assert_double_gt(relative_error(other.dquery + 128 * 32, c.dquery + 128 * 32, 72 * 32), 1e-3);
    }
    case_free(&c);
    case_free(&other);
}
END_TEST

Suite *suite_rowsums(void);

Suite *suite_rowsums(void)
{
    Suite *suite = suite_create("rowsums");
    TCase *tcase = tcase_create("rowsums");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, row_sums_stay_within_their_bound, 0, (int)recipe_count());
    tcase_add_loop_test(tcase, a_mismatched_p_or_exponential_leaves_the_bound, 0, 2);
    tcase_add_test(tcase, d_from_another_do_leaves_the_bound);
    tcase_add_test(tcase, diagonals_of_two_widths_move_the_gradient);
    suite_add_tcase(suite, tcase);
    return suite;
}
