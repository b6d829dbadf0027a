/* check_decode.c: one token at a time gives what the whole row gives. */
#include <omp.h>
#include <string.h>

#include "model/decode.h"
#include "tests/model_case.h"
#include "tests/training_case.h"

#define LENGTH 70

struct case_decoder {
    struct model_config config;
    struct network *network;
    struct decoder *decoder;
    struct batch *batch;
};

static struct case_decoder make(int which, struct random_stream *random)
{
    struct case_decoder c = {.config = case_config((enum model_case)which, LENGTH)};
    const struct network_options options = {.max_tokens = LENGTH};
    struct error error;
    c.network = case_network(&c.config, &options);
    loud_parameters(c.network, random, network_parameters(c.network));
    c.decoder = decoder_create(c.network, LENGTH, &error);
    ck_assert_ptr_nonnull(c.decoder);
    c.batch = random_batch(random, 1, LENGTH, CASE_VOCABULARY, false);
    return c;
}

static void release(struct case_decoder *c)
{
    batch_free(c->batch);
    decoder_destroy(c->decoder);
    network_destroy(c->network);
}

static const float *feed(struct case_decoder *c, int32_t token)
{
    const float *logits;
    struct error error;
    ck_assert_msg(decoder_step(c->decoder, token, &logits, &error), "%s", error.text);
    return logits;
}

/* The decoder rounds Q, K and V to BF16 (2^-9 each) and nothing else, `fp32` nothing: their sum through two layers is
 * about 1e-2 of a row's logits at most. A position too few or a neighbour's key head moves them by their own size. */
START_TEST(every_step_gives_the_logits_of_the_whole_row)
{
    struct random_stream random = random_stream((uint64_t)_i);
    struct case_decoder c = make(_i, &random);
    struct error error;
    ck_assert(network_forward(c.network, recipe_find("fp32"), c.batch, NULL, NULL, &error));
    for (size_t i = 0; i < LENGTH; i++) {
        const float *logits = feed(&c, c.batch->tokens[i]);
        const double moved = relative_error(logits, network_logits(c.network) + i * 128, CASE_VOCABULARY);
        ck_assert_msg(moved <= 0.05, "position %zu: off by %g of the logits", i, moved);
    }
    release(&c);
}
END_TEST

/* Values alone, and attention that cannot choose: with zero queries every score is 0. Values that BF16 holds leave the
 * decoder nothing to round, so it must agree with `fp32` to FP32 rounding; 1e-5 as for the whole model. Queries and
 * keys come from weights 0; values from weights 0 and, in GPT-2, a bias of BF16 numbers. Then the decoder's linears,
 * norms, MLP, embedding and head are all that is left, and they are compared as tightly as FP32 allows. */
START_TEST(all_but_attention_agrees_to_fp32_rounding)
{
    struct random_stream random = random_stream((uint64_t)(10 + _i));
    struct case_decoder c = make(_i, &random);
    const struct parameter_table *table = network_table(c.network);
    float *parameters = network_parameters(c.network);
    for (size_t k = 0; k < table->count; k++) {
        const struct parameter *tensor = &table->entries[k];
        float *values = parameters + tensor->offset;
        for (size_t i = 0; i < tensor->rows * tensor->columns; i++) {
            if (tensor->kind == PARAMETER_QKV_WEIGHT) {
                values[i] = 0;
            } else if (tensor->kind == PARAMETER_QKV_BIAS) {
                values[i] = (float)((int)random_below(&random, 17) - 8) / 16;
            }
        }
    }
    struct error error;
    ck_assert(network_forward(c.network, recipe_find("fp32"), c.batch, NULL, NULL, &error));
    for (size_t i = 0; i < LENGTH; i++) {
        const float *logits = feed(&c, c.batch->tokens[i]);
        ck_assert_double_le(relative_error(logits, network_logits(c.network) + i * 128, CASE_VOCABULARY), 1e-5);
    }
    release(&c);
}
END_TEST

START_TEST(a_reset_forgets_everything)
{
    struct random_stream random = random_stream((uint64_t)(20 + _i));
    struct case_decoder c = make(_i, &random);
    float first[8][CASE_VOCABULARY];
    for (size_t i = 0; i < 8; i++) {
        memcpy(first[i], feed(&c, c.batch->tokens[i]), sizeof first[i]);
    }
    decoder_reset(c.decoder);
    for (size_t i = 20; i < 40; i++) {
        feed(&c, c.batch->tokens[i]);
    }
    decoder_reset(c.decoder);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_int_eq(memcmp(first[i], feed(&c, c.batch->tokens[i]), sizeof first[i]), 0);
    }
    release(&c);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_and_changes_nothing)
{
    struct random_stream random = random_stream((uint64_t)(30 + _i));
    struct case_decoder c = make(_i, &random);
    struct error error = {0};
    const float *logits;
    float expected[CASE_VOCABULARY];
    feed(&c, 1);
    memcpy(expected, feed(&c, 2), sizeof expected);
    decoder_reset(c.decoder);
    feed(&c, 1);
    ck_assert(!decoder_step(c.decoder, CASE_VOCABULARY, &logits, &error));
    ck_assert_msg(strstr(error.text, "id 61") != NULL, "%s", error.text);
    ck_assert(!decoder_step(c.decoder, -1, &logits, &error));
    ck_assert_int_eq(memcmp(expected, feed(&c, 2), sizeof expected), 0);
    for (size_t i = 2; i < LENGTH; i++) {
        feed(&c, 3);
    }
    ck_assert(!decoder_step(c.decoder, 3, &logits, &error));
    ck_assert_msg(strstr(error.text, "full") != NULL, "%s", error.text);
    release(&c);
}
END_TEST

START_TEST(a_cache_beyond_the_context_is_refused)
{
    struct random_stream random = random_stream(40);
    struct case_decoder c = make(CASE_LLAMA, &random);
    struct error error = {0};
    ck_assert_ptr_null(decoder_create(c.network, LENGTH + 1, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_ptr_null(decoder_create(c.network, 0, &error));
    release(&c);
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small models a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_decode(void);
Suite *suite_decode(void)
{
    Suite *suite = suite_create("decode");
    TCase *tests = tcase_create("decode");
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_add_loop_test(tests, every_step_gives_the_logits_of_the_whole_row, 0, MODEL_CASES);
    tcase_add_loop_test(tests, all_but_attention_agrees_to_fp32_rounding, 0, MODEL_CASES);
    tcase_add_loop_test(tests, a_reset_forgets_everything, 0, MODEL_CASES);
    tcase_add_loop_test(tests, what_does_not_fit_is_refused_and_changes_nothing, 0, MODEL_CASES);
    tcase_add_test(tests, a_cache_beyond_the_context_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
