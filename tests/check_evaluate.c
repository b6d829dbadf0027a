/* check_evaluate.c: losses, the paired gap and its standard error against sums made by hand; what the gap is said to
 * mean. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"
#include "tests/training_case.h"
#include "train/evaluate.h"
#include "train/evaluation_record.h"

#define VOCABULARY 50
#define LENGTH     64
#define TOKENS     ((size_t)1000) /* 15 rows and a tail; documents of 7 to 60 tokens */

struct evaluated {
    struct dataset *dataset;
    struct network *network;
    struct model_config config;
};

static struct evaluated make(uint64_t test, size_t vocabulary)
{
    struct evaluated made = {.config = tiny_model(MODEL_GPT2, vocabulary, LENGTH)};
    struct random_stream random = random_stream(test);
    struct error error = {0};
    uint32_t ids[TOKENS];
    int64_t starts[TOKENS];
    size_t documents = 0;
    for (size_t i = 0; i < TOKENS; i++) {
        ids[i] = (uint32_t)random_below(&random, vocabulary);
    }
    for (size_t at = 0; at < TOKENS; at += 7 + random_below(&random, 54)) {
        starts[documents++] = (int64_t)at;
    }
    made.dataset = dataset_from_tokens(ids, TOKENS, starts, documents, vocabulary, &error);
    ck_assert_msg(made.dataset != NULL, "%s", error.text);
    made.network = tiny_network(&made.config, 4 * LENGTH, random_bits(&random));
    /* Sharper weights than a fresh model's, so that recipes differ. */
    for (size_t i = 0; i < network_table(made.network)->elements; i++) {
        network_parameters(made.network)[i] *= 4;
    }
    return made;
}

static void release(struct evaluated *made)
{
    network_destroy(made->network);
    dataset_close(made->dataset);
}

static struct evaluation score(const struct evaluated *made, const char *recipe, size_t rows, size_t most, bool exact)
{
    const struct evaluate_request request = {.dataset = made->dataset,
                                             .begin = 0,
                                             .end = TOKENS,
                                             .sequence_length = LENGTH,
                                             .rows = rows,
                                             .max_tokens = most,
                                             .exact = exact};
    struct evaluation evaluation;
    struct error error = {0};
    ck_assert_msg(evaluate(made->network, recipe_find(recipe), &request, &evaluation, &error), "%s", error.text);
    return evaluation;
}

/* Losses of every target by either recipe, and which document of the evaluation it is in. */
struct by_hand {
    double own[TOKENS], exact[TOKENS];
    size_t document[TOKENS], position[TOKENS], count, documents;
};

static void score_by_hand(const struct evaluated *made, const char *recipe, struct by_hand *hand)
{
    const struct loader_options options = {.end = TOKENS,
                                           .sequence_length = LENGTH,
                                           .batch = 1,
                                           .micro_batch = 1,
                                           .ranks = 1,
                                           .vocabulary = made->config.vocabulary};
    struct error error = {0};
    struct loader *loader = loader_create(made->dataset, &options, &error);
    ck_assert_msg(loader != NULL, "%s", error.text);
    memset(hand, 0, sizeof *hand);
    float own[LENGTH], exact[LENGTH];
    double sum;
    for (const struct batch *batch; (batch = loader_next(loader, &error));) {
        ck_assert(network_forward(made->network, recipe_find(recipe), batch, own, &sum, &error));
        ck_assert(network_forward(made->network, recipe_find("exact"), batch, exact, &sum, &error));
        for (size_t d = 0; d < batch->documents; d++) {
            bool any = false;
            for (int32_t i = batch->offsets[d]; i < batch->offsets[d + 1]; i++) {
                if (batch->targets[i] != TARGET_IGNORED) {
                    hand->own[hand->count] = (double)own[i];
                    hand->exact[hand->count] = (double)exact[i];
                    hand->document[hand->count] = hand->documents;
                    hand->position[hand->count++] = (size_t)(i - batch->offsets[d]) % EVALUATE_POSITIONS;
                    any = true;
                }
            }
            hand->documents += any;
        }
    }
    loader_destroy(loader);
}

/* Mean difference and its standard error from residuals of documents, for one position of the group or all (SIZE_MAX).
 */
static void gap_by_hand(const struct by_hand *hand, size_t position, double *gap, double *se)
{
    double sums[TOKENS] = {0}, counts[TOKENS] = {0}, sum = 0, count = 0, squares = 0, documents = 0;
    for (size_t i = 0; i < hand->count; i++) {
        if (position == SIZE_MAX || hand->position[i] == position) {
            sums[hand->document[i]] += hand->own[i] - hand->exact[i];
            counts[hand->document[i]]++;
            sum += hand->own[i] - hand->exact[i];
            count++;
        }
    }
    *gap = sum / count;
    for (size_t d = 0; d < hand->documents; d++) {
        const double residual = sums[d] - *gap * counts[d];
        squares += residual * residual;
        documents += counts[d] > 0;
    }
    *se = sqrt(squares * documents / (documents - 1)) / count;
}

START_TEST(losses_gap_and_standard_errors_are_those_made_by_hand)
{
    static struct by_hand hand;
    struct evaluated made = make(1, VOCABULARY);
    score_by_hand(&made, "fp4", &hand);
    const struct evaluation evaluation = score(&made, "fp4", 1, 0, true);
    double own = 0, exact = 0, gap, se;
    for (size_t i = 0; i < hand.count; i++) {
        own += hand.own[i];
        exact += hand.exact[i];
    }
    ck_assert_uint_eq(evaluation.tokens, hand.count);
    ck_assert_uint_eq(evaluation.documents, hand.documents);
    /* FP64 sums of the same floats; differences of nearly equal losses lose up to 1e-13 of them. */
    ck_assert_double_eq_tol(evaluation.own, own / (double)hand.count, 1e-11);
    ck_assert_double_eq_tol(evaluation.exact, exact / (double)hand.count, 1e-11);
    gap_by_hand(&hand, SIZE_MAX, &gap, &se);
    ck_assert_double_eq_tol(evaluation.gap, gap, 1e-11);
    ck_assert_double_eq_tol(evaluation.gap_se, se, 1e-7 * se + 1e-9);
    ck_assert_double_gt(se, 1e-5); /* else nothing was compared */
    for (size_t position = 0; position < EVALUATE_POSITIONS; position++) {
        if (evaluation.position_tokens[position] > 1) {
            gap_by_hand(&hand, position, &gap, &se);
            ck_assert_double_eq_tol(evaluation.position_gap[position], gap, 1e-11);
            if (!isnan(se)) {
                ck_assert_double_eq_tol(evaluation.position_se[position], se, 1e-7 * se + 1e-9);
            }
        }
    }
    release(&made);
}
END_TEST

/* In FP32 attention: what is rounded to BF16 or FP8 turns the last bit of a linear layer, which may differ with the
 * number of rows, into 2^-8 or 2^-4 of an element. */
START_TEST(the_loss_does_not_depend_on_sequences_at_a_time)
{
    struct evaluated made = make(2, VOCABULARY);
    const struct evaluation one = score(&made, "fp32", 1, 0, false);
    for (size_t rows = 2; rows <= 4; rows++) { /* 15 rows: the last batch is short for 2 and 4 */
        const struct evaluation many = score(&made, "fp32", rows, 0, false);
        ck_assert_uint_eq(many.tokens, one.tokens);
        ck_assert_uint_eq(many.documents, one.documents);
        ck_assert_double_eq_tol(many.own, one.own, 1e-6 * one.own);
    }
    release(&made);
}
END_TEST

START_TEST(exact_against_itself_has_no_gap)
{
    struct evaluated made = make(3, VOCABULARY);
    const struct evaluation evaluation = score(&made, "exact", 2, 0, true);
    ck_assert(evaluation.gap == 0 && evaluation.gap_se == 0 && evaluation.own == evaluation.exact);
    ck_assert_int_eq(evaluation_judge(&evaluation, CAUSALITY_EXACT), VERDICT_NO_DIFFERENCE);
    release(&made);
}
END_TEST

START_TEST(no_more_tokens_are_scored_than_asked)
{
    struct evaluated made = make(4, VOCABULARY);
    const struct evaluation all = score(&made, "mxfp8", 3, 0, false);
    const size_t limits[] = {1, 63, 64, 100, 500};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        ck_assert_uint_eq(score(&made, "mxfp8", 3, limits[i], false).tokens, limits[i]);
    }
    ck_assert_uint_eq(score(&made, "mxfp8", 3, 5000, false).tokens, all.tokens);
    release(&made);
}
END_TEST

START_TEST(without_exact_there_is_no_gap)
{
    struct evaluated made = make(5, VOCABULARY);
    const struct evaluation evaluation = score(&made, "mxfp8", 2, 0, false);
    ck_assert(!evaluation.has_exact && isnan(evaluation.exact) && isnan(evaluation.gap) && isnan(evaluation.gap_se));
    ck_assert_int_eq(evaluation_judge(&evaluation, CAUSALITY_LEAKY), VERDICT_NONE);
    release(&made);
}
END_TEST

START_TEST(a_model_that_knows_nothing_scores_ln_v)
{
    struct evaluated made = make(6, VOCABULARY);
    memset(network_parameters(made.network), 0, network_table(made.network)->elements * sizeof(float));
    const struct evaluation evaluation = score(&made, "exact", 2, 0, true);
    ck_assert_double_eq_tol(evaluation.own, log(VOCABULARY), 1e-6);
    release(&made);
}
END_TEST

START_TEST(a_share_without_a_target_is_an_error)
{
    struct evaluated made = make(7, VOCABULARY);
    const struct evaluate_request request = {
        .dataset = made.dataset, .begin = 0, .end = 10, .sequence_length = LENGTH, .rows = 1};
    struct evaluation evaluation;
    struct error error = {0};
    ck_assert(!evaluate(made.network, recipe_find("exact"), &request, &evaluation, &error));
    ck_assert_int_ne(error.code, ERROR_NONE);
    ck_assert_ptr_nonnull(strstr(error.text, "64"));
    release(&made);
}
END_TEST

/* ---- verdicts ---- */

static struct evaluation judged(double gap, double se, double last, double last_se)
{
    struct evaluation evaluation = {.own = 2 + gap, .exact = 2, .gap = gap, .gap_se = se, .has_exact = true};
    evaluation.position_gap[EVALUATE_POSITIONS - 1] = last;
    evaluation.position_se[EVALUATE_POSITIONS - 1] = last_se;
    return evaluation;
}

START_TEST(verdicts_follow_the_gap_the_probe_and_the_last_position)
{
    const struct {
        double gap, se, last, last_se;
        enum causality probed;
        enum evaluation_verdict verdict;
        const char *says;
    } cases[] = {
        {+0.00035, 0.00007, 0, 1, CAUSALITY_IN_BLOCK, VERDICT_COST, "quantization costs 0.00035 +- 0.00007"},
        {+0.0031, 0.001, 0, 1, CAUSALITY_LEAKY, VERDICT_COST, "costs"},
        {+0.0029, 0.001, 0, 1, CAUSALITY_LEAKY, VERDICT_NO_DIFFERENCE, "no difference seen"},
        {-0.0029, 0.001, 0, 1, CAUSALITY_LEAKY, VERDICT_NO_DIFFERENCE, "no difference seen"},
        {-0.0031, 0.001, 0.0019, 0.001, CAUSALITY_LEAKY, VERDICT_LEAK, "leak: 0.00310 +- 0.00100"},
        {-0.0031, 0.001, -0.0019, 0.001, CAUSALITY_LEAKY, VERDICT_LEAK, "leak"},
        {-0.0031, 0.001, -0.0021, 0.001, CAUSALITY_LEAKY, VERDICT_FITTED, "fitted"},
        {-0.0031, 0.001, 0, 0.001, CAUSALITY_IN_BLOCK, VERDICT_FITTED, "fitted"},
        {-0.0031, 0.001, 0, 0.001, CAUSALITY_EXACT, VERDICT_FITTED, "fitted"},
        {-0.0031, 0.001, NAN, NAN, CAUSALITY_LEAKY, VERDICT_FITTED, "fitted"},
        {-0.0031, NAN, 0, 0.001, CAUSALITY_LEAKY, VERDICT_NONE, "too few documents"},
        {NAN, NAN, 0, 0, CAUSALITY_LEAKY, VERDICT_NONE, "too few documents"},
        {0, 0, 0, 0, CAUSALITY_LEAKY, VERDICT_NO_DIFFERENCE, "no difference seen"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct evaluation evaluation = judged(cases[i].gap, cases[i].se, cases[i].last, cases[i].last_se);
        char text[256];
        ck_assert_msg(evaluation_judge(&evaluation, cases[i].probed) == cases[i].verdict, "case %zu", i);
        evaluation_sentence(&evaluation, cases[i].probed, text, sizeof text);
        ck_assert_msg(strstr(text, cases[i].says) != NULL, "case %zu says \"%s\"", i, text);
    }
}
END_TEST

START_TEST(the_record_holds_what_the_log_promises)
{
    struct evaluation evaluation = judged(-0.5, 0.01, NAN, NAN);
    evaluation.bits_per_byte = NAN;
    json_t *record = evaluation_record(&evaluation, "fp4-leaky", CAUSALITY_LEAKY);
    ck_assert_ptr_nonnull(record);
    ck_assert(json_number_value(json_object_get(record, "own")) == 1.5);
    ck_assert(json_number_value(json_object_get(record, "gap")) == -0.5);
    ck_assert(json_is_null(json_object_get(record, "bits_per_byte")));
    ck_assert_str_eq(json_string_value(json_object_get(record, "recipe")), "fp4-leaky");
    ck_assert_str_eq(json_string_value(json_object_get(record, "causality")), "leaky");
    const json_t *gaps = json_object_get(record, "position_gap");
    ck_assert_uint_eq(json_array_size(gaps), EVALUATE_POSITIONS);
    ck_assert(json_is_null(json_array_get(gaps, EVALUATE_POSITIONS - 1)));
    ck_assert(json_is_string(json_object_get(record, "verdict")));
    json_decref(record);
}
END_TEST

Suite *suite_evaluate(void);
Suite *suite_evaluate(void)
{
    Suite *suite = suite_create("evaluate");
    TCase *tests = tcase_create("evaluate");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, losses_gap_and_standard_errors_are_those_made_by_hand);
    tcase_add_test(tests, the_loss_does_not_depend_on_sequences_at_a_time);
    tcase_add_test(tests, exact_against_itself_has_no_gap);
    tcase_add_test(tests, no_more_tokens_are_scored_than_asked);
    tcase_add_test(tests, without_exact_there_is_no_gap);
    tcase_add_test(tests, a_model_that_knows_nothing_scores_ln_v);
    tcase_add_test(tests, a_share_without_a_target_is_an_error);
    tcase_add_test(tests, verdicts_follow_the_gap_the_probe_and_the_last_position);
    tcase_add_test(tests, the_record_holds_what_the_log_promises);
    suite_add_tcase(suite, tests);
    return suite;
}
