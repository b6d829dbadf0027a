/* check_network.c: the whole model on the CPU against the FP64 model, against itself, and what it refuses. */
#include <malloc.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model_case.h"
#include "tests/reference_model.h"
#include "tests/training_case.h"

#define ROWS   2
#define LENGTH 48
#define TOKENS ((size_t)ROWS * LENGTH)

static const struct attention_random keys = {.seed = 5, .step = 9};

static void forward(struct network *network, const char *recipe, const struct batch *batch, float *losses, double *sum)
{
    struct error error;
    ck_assert_msg(network_forward(network, recipe_find(recipe), batch, losses, sum, &error), "%s", error.text);
}

static void backward(struct network *network, const char *recipe, const struct batch *batch, float scale)
{
    struct error error;
    ck_assert_msg(network_backward(network, recipe_find(recipe), batch, scale, &keys, &error), "%s", error.text);
}

static struct network *training_network(const struct model_config *config, size_t tokens, struct random_stream *random)
{
    const struct network_options options = {.max_tokens = tokens, .training = true};
    struct network *network = case_network(config, &options);
    loud_parameters(network, random, network_parameters(network));
    return network;
}

/* ---- against FP64 ---- */

/* A dozen operations a layer, each off by about 2^-24 times the root of the terms of its sums (below 200), so about
 * 1e-6 each, mostly independent: 1e-5 of logits and of every tensor's gradient. Two batches add up, with different
 * scales. */
START_TEST(losses_and_gradients_are_those_of_the_fp64_model)
{
    struct random_stream random = random_stream((uint64_t)_i);
    const struct model_config config = case_config((enum model_case)_i, LENGTH);
    struct network *network = training_network(&config, TOKENS, &random);
    const struct parameter_table *table = network_table(network);
    double *parameters = widened(network_parameters(network), table->elements);
    double *gradients = calloc(table->elements, sizeof *gradients),
           *logits = test_alloc(TOKENS * CASE_VOCABULARY * sizeof *logits);
    ck_assert_ptr_nonnull(gradients);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, true);
    for (int pass = 0; pass < 2; pass++) {
        const float scale = pass ? 0.25f : 0.03125f;
        float losses[TOKENS];
        double sum, added = 0;
        random_batch_fill(batch, &random, CASE_VOCABULARY, true);
        forward(network, "fp32", batch, losses, &sum);
        const double expected =
            reference_model_batch(table, &config, parameters, batch, (double)scale, gradients, logits);
        for (size_t i = 0; i < TOKENS; i++) {
            added += (double)losses[i];
            ck_assert(batch->targets[i] >= 0 || losses[i] == 0);
        }
        ck_assert_double_le(fabs(sum - expected), 1e-6 * expected);
        ck_assert_double_le(fabs(sum - added), 1e-12 * sum);
        ck_assert_double_le(error_to_fp64(network_logits(network), 128, logits, TOKENS, CASE_VOCABULARY), 1e-5);
        backward(network, "fp32", batch, scale);
    }
    const char *worst;
    const double error = gradient_error(table, network_gradients(network), gradients, &worst);
    ck_assert_msg(error <= 1e-5, "%s: off by %g of itself", worst, error);
    free(parameters), free(gradients), free(logits);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* BF16 operands and results: 2^-9 each, a few of them one after the other in each of two layers; 0.05 is 25 such. */
START_TEST(exact_attention_adds_rounding_to_bf16_only)
{
    struct random_stream random = random_stream((uint64_t)(10 + _i));
    const struct model_config config = case_config((enum model_case)_i, LENGTH);
    struct network *network = training_network(&config, TOKENS, &random);
    const struct parameter_table *table = network_table(network);
    double *parameters = widened(network_parameters(network), table->elements);
    double *gradients = calloc(table->elements, sizeof *gradients), sum;
    ck_assert_ptr_nonnull(gradients);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, true);
    forward(network, "exact", batch, NULL, &sum);
    backward(network, "exact", batch, 1);
    const double expected = reference_model_batch(table, &config, parameters, batch, 1, gradients, NULL);
    const char *worst;
    const double error = gradient_error(table, network_gradients(network), gradients, &worst);
    ck_assert_double_le(fabs(sum - expected), 2e-3 * expected);
    ck_assert_msg(error <= 0.05, "%s: off by %g of itself", worst, error);
    free(parameters), free(gradients);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* Angles up to 300 radians, and positions that begin again: a table in BF16 knows no 257, and a position counted in the
 * row instead of the document turns queries and keys alike but moves learned positions. */
START_TEST(a_long_document_at_the_end_of_a_row_has_its_own_positions)
{
    enum { first = 20, length = 300 };
    struct random_stream random = random_stream((uint64_t)(20 + _i));
    const size_t row = first + test_tokens(length);
    const struct model_config config = case_config((enum model_case)_i, row);
    struct network *network = training_network(&config, row, &random);
    double *parameters = widened(network_parameters(network), network_table(network)->elements);
    double *logits = test_alloc(row * CASE_VOCABULARY * sizeof *logits);
    struct batch *batch = random_batch(&random, 1, row, CASE_VOCABULARY, false);
    batch->documents = 2;
    batch->offsets[1] = first;
    batch->offsets[2] = (int32_t)row;
    for (size_t i = first; i < row; i++) {
        batch->positions[i] -= first;
    }
    forward(network, "fp32", batch, NULL, NULL);
    reference_model_batch(network_table(network), &config, parameters, batch, 1, NULL, logits);
    ck_assert_double_le(error_to_fp64(network_logits(network), 128, logits, row, CASE_VOCABULARY), 1e-5);
    free(parameters), free(logits);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* ---- against itself ---- */

/* Documents of a batch, each as a batch. The sums of linears may be taken in another order: FP32 rounding. */
START_TEST(packed_documents_give_what_they_give_alone)
{
    static const size_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 5, 8};
    struct random_stream random = random_stream((uint64_t)(30 + _i));
    const struct model_config config = case_config((enum model_case)_i, 160);
    struct network *network = training_network(&config, 160, &random);
    const size_t elements = network_table(network)->elements;
    struct batch *batch = random_batch(&random, 1, 160, CASE_VOCABULARY, false);
    batch->documents = 0;
    for (size_t d = 0, at = 0; d < sizeof lengths / sizeof *lengths; at += lengths[d++]) {
        batch->offsets[batch->documents++] = (int32_t)at;
        for (size_t i = 0; i < lengths[d]; i++) {
            batch->positions[at + i] = (int32_t)i;
        }
    }
    batch->offsets[batch->documents] = 160;
    float *gradients = test_alloc(elements * sizeof(float)), *logits = test_alloc((size_t)160 * 128 * sizeof(float));
    double sum, alone = 0, part;
    forward(network, "fp32", batch, NULL, &sum);
    memcpy(logits, network_logits(network), (size_t)160 * 128 * sizeof(float));
    backward(network, "fp32", batch, 1);
    memcpy(gradients, network_gradients(network), elements * sizeof(float));
    network_zero_gradients(network);
    for (size_t d = 0; d < batch->documents; d++) {
        const size_t at = (size_t)batch->offsets[d], length = lengths[d];
        int32_t offsets[2] = {0, (int32_t)length};
        const struct batch document = {.rows = 1,
                                       .sequence_length = length,
                                       .total_tokens = length,
                                       .documents = 1,
                                       .tokens = batch->tokens + at,
                                       .targets = batch->targets + at,
                                       .positions = batch->positions + at,
                                       .offsets = offsets};
        forward(network, "fp32", &document, NULL, &part);
        alone += part;
        ck_assert_double_le(relative_error(network_logits(network), logits + at * 128, length * 128), 1e-5);
        backward(network, "fp32", &document, 1);
    }
    ck_assert_double_le(fabs(sum - alone), 1e-6 * sum);
    ck_assert_double_le(relative_error(network_gradients(network), gradients, elements), 1e-5);
    free(gradients), free(logits);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* The gradients of two networks of the same weights, made by the recipe with these options, differ in no bit. */
static void same_gradients(const char *recipe, const struct network_options *one, const struct network_options *other,
                           int which)
{
    struct random_stream random = random_stream((uint64_t)(40 + which));
    const struct model_config config = case_config((enum model_case)which, LENGTH);
    struct network *networks[2] = {case_network(&config, one), case_network(&config, other)};
    const size_t elements = network_table(networks[0])->elements;
    loud_parameters(networks[0], &random, network_parameters(networks[0]));
    memcpy(network_parameters(networks[1]), network_parameters(networks[0]), elements * sizeof(float));
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, true);
    double sums[2];
    for (int i = 0; i < 2; i++) {
        forward(networks[i], recipe, batch, NULL, &sums[i]);
        backward(networks[i], recipe, batch, 0.01f);
    }
    ck_assert(sums[0] == sums[1]);
    ck_assert_int_eq(memcmp(network_gradients(networks[0]), network_gradients(networks[1]), elements * sizeof(float)),
                     0);
    batch_free(batch);
    network_destroy(networks[0]);
    network_destroy(networks[1]);
}

START_TEST(recomputed_layers_change_no_bit)
{
    const struct network_options kept = {.max_tokens = TOKENS, .training = true},
                                 again = {.max_tokens = TOKENS, .training = true, .recompute = true};
    static const char *const recipes[] = {"fp32", "exact", "mxfp8", "fp4"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        same_gradients(recipes[i], &kept, &again, _i);
    }
}
END_TEST

START_TEST(room_for_more_tokens_changes_no_bit)
{
    const struct network_options close = {.max_tokens = TOKENS, .training = true},
                                 wide = {.max_tokens = 3 * TOKENS + 7, .training = true};
    same_gradients("exact", &close, &wide, _i);
}
END_TEST

START_TEST(a_network_that_does_not_train_gives_the_same_logits)
{
    struct random_stream random = random_stream((uint64_t)(50 + _i));
    struct model_config config = case_config((enum model_case)_i, LENGTH);
    config.layers = 5; /* residual buffers are used in turn */
    const struct network_options options = {.max_tokens = TOKENS};
    struct network *training = training_network(&config, TOKENS, &random), *still = case_network(&config, &options);
    memcpy(network_parameters(still), network_parameters(training), network_table(training)->elements * sizeof(float));
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, true);
    struct error error = {0};
    forward(training, "mxfp8", batch, NULL, NULL);
    forward(still, "mxfp8", batch, NULL, NULL);
    ck_assert_int_eq(memcmp(network_logits(still), network_logits(training), TOKENS * 128 * sizeof(float)), 0);
    ck_assert_ptr_null(network_gradients(still));
    ck_assert(!network_backward(still, recipe_find("mxfp8"), batch, 1, &keys, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    batch_free(batch);
    network_destroy(training);
    network_destroy(still);
}
END_TEST

/* `fp4` rounds dS at random: the seed moves gradients, and the layer in the caller's keys is overwritten. */
START_TEST(random_bits_are_keyed_by_seed_and_the_networks_own_layers)
{
    struct random_stream random = random_stream((uint64_t)(90 + _i));
    const struct model_config config = case_config((enum model_case)_i, LENGTH);
    struct network *network = training_network(&config, TOKENS, &random);
    const size_t bytes = network_table(network)->elements * sizeof(float);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, true);
    const struct attention_random given[3] = {keys, {keys.seed, keys.step, 5, 0}, {keys.seed + 1, keys.step, 0, 0}};
    float *gradients = test_alloc(bytes);
    struct error error;
    double sum;
    for (int i = 0; i < 3; i++) {
        network_zero_gradients(network);
        forward(network, "fp4", batch, NULL, &sum);
        ck_assert(network_backward(network, recipe_find("fp4"), batch, 1, &given[i], &error));
        if (i == 0) {
            memcpy(gradients, network_gradients(network), bytes);
        }
        ck_assert_int_eq(memcmp(gradients, network_gradients(network), bytes) != 0, i == 2);
    }
    free(gradients);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* What attention is shown to have read gives what it is shown to have written; keeping dO changes no gradient. */
START_TEST(the_view_of_a_layers_attention_is_what_it_saw)
{
    struct random_stream random = random_stream((uint64_t)(60 + _i));
    const struct model_config config = case_config((enum model_case)_i, LENGTH);
    struct network *network = training_network(&config, TOKENS, &random);
    const size_t width = config.heads * config.head_dim, elements = network_table(network)->elements;
    const struct recipe *recipe = recipe_find("mxfp8");
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, true);
    struct network_attention_view view;
    struct error error;
    ck_assert(!network_attention(network, 0, &view));
    double sum;
    forward(network, "mxfp8", batch, NULL, &sum);
    backward(network, "mxfp8", batch, 1);
    ck_assert(network_attention(network, 1, &view) && !view.output_gradient);
    float *gradients = test_alloc(elements * sizeof(float)), *output = test_alloc(TOKENS * width * sizeof(float)),
          *lse = test_alloc(TOKENS * config.heads * sizeof(float));
    memcpy(gradients, network_gradients(network), elements * sizeof(float));
    network_zero_gradients(network);
    ck_assert(network_keep_output_gradients(network, &error));
    forward(network, "mxfp8", batch, NULL, &sum);
    backward(network, "mxfp8", batch, 1);
    ck_assert_int_eq(memcmp(gradients, network_gradients(network), elements * sizeof(float)), 0);
    const struct documents documents = {batch->offsets, batch->documents};
    for (size_t layer = 0; layer < config.layers; layer++) {
        ck_assert(network_attention(network, layer, &view) && view.output_gradient);
        const size_t bytes = attention_workspace_bytes(recipe, &view.shape);
        void *workspace = test_alloc(bytes);
        ck_assert_int_eq(attention_forward_cpu(recipe, &view.shape, &documents, &view.inputs, output, width, lse,
                                               workspace, bytes, NULL),
                         ATTENTION_OK);
        ck_assert_int_eq(memcmp(output, view.output, TOKENS * width * sizeof(float)), 0);
        free(workspace);
    }
    ck_assert(!network_attention(network, config.layers, &view));
    free(gradients), free(output), free(lse);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* Of blocks taken from the system, counted by the C library; its own upkeep is a few bytes a block and a page each.
 * Under sanitizers it counts nothing, and the sum alone is checked. */
START_TEST(the_plan_is_what_is_taken)
{
    for (int mode = 0; mode < 3; mode++) {
        const struct model_config config = case_config((enum model_case)_i, LENGTH);
        const struct network_options options = {4096, mode > 0, mode > 1};
        struct network_memory plan;
        network_memory_plan(&config, &options, &plan);
        ck_assert_uint_eq(plan.total, plan.parameters + plan.gradients + plan.activations + plan.workspace);
        const struct mallinfo2 before = mallinfo2();
        struct network *network = case_network(&config, &options);
        const struct mallinfo2 after = mallinfo2();
        const double taken = (double)(after.uordblks + after.hblkhd) - (double)(before.uordblks + before.hblkhd);
        if (before.uordblks > 0 && !test_is_sanitized()) {
            ck_assert_double_ge(taken, (double)plan.total);
            ck_assert_double_le(taken, (double)plan.total + 65536);
        }
        network_destroy(network);
    }
}
END_TEST

/* ---- refused ---- */

struct refusal {
    const char *part; /* of the message */
    void (*spoil)(struct batch *batch);
};

static void spoil_token(struct batch *batch)
{
    batch->tokens[37] = CASE_VOCABULARY; /* a padded row: it exists, and means nothing */
}

static void spoil_negative(struct batch *batch)
{
    batch->tokens[0] = -1;
}

static void spoil_target(struct batch *batch)
{
    batch->targets[41] = CASE_VOCABULARY;
}

static void spoil_target_below(struct batch *batch)
{
    batch->targets[41] = -2;
}

static void spoil_position(struct batch *batch)
{
    batch->positions[LENGTH - 1] = LENGTH;
}

static void spoil_offsets(struct batch *batch)
{
    batch->offsets[batch->documents]--;
}

static void spoil_size(struct batch *batch)
{
    batch->total_tokens = TOKENS + 1;
}

static const struct refusal refusals[] = {
    {"token 37 has id 61", spoil_token},
    {"token 0 has id -1", spoil_negative},
    {"target 41 has id 61", spoil_target},
    {"target 41 has id -2", spoil_target_below},
    {"at position 48", spoil_position},
    {"offsets", spoil_offsets},
    {"97 tokens", spoil_size},
};

START_TEST(a_batch_that_does_not_fit_is_refused)
{
    struct random_stream random = random_stream((uint64_t)(70 + _i));
    const struct model_config config = case_config(CASE_LLAMA, LENGTH);
    struct network *network = training_network(&config, TOKENS, &random);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, false);
    struct error error = {0};
    double sum;
    refusals[_i].spoil(batch);
    ck_assert(!network_forward(network, recipe_find("exact"), batch, NULL, &sum, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    ck_assert_msg(strstr(error.text, refusals[_i].part) != NULL, "%s", error.text);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

START_TEST(a_backward_needs_a_forward_of_its_own)
{
    struct random_stream random = random_stream(80);
    const struct model_config config = case_config(CASE_GPT2, LENGTH);
    struct network *network = training_network(&config, TOKENS, &random);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, CASE_VOCABULARY, false);
    struct error error = {0};
    double sum;
    ck_assert(!network_backward(network, recipe_find("exact"), batch, 1, &keys, &error));
    forward(network, "exact", batch, NULL, &sum);
    backward(network, "exact", batch, 1);
    ck_assert(!network_backward(network, recipe_find("exact"), batch, 1, &keys, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

START_TEST(a_network_of_no_tokens_or_too_many_is_refused)
{
    const struct model_config config = case_config(CASE_GPT2, LENGTH);
    static const size_t sizes[] = {0, (size_t)1 << 31, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct network_options options = {.max_tokens = sizes[i]};
        struct error error = {0};
        ck_assert_ptr_null(network_create(&config, &options, &error));
        ck_assert_int_eq(error.code, ERROR_USAGE);
    }
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small models a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_network(void);
Suite *suite_network(void)
{
    Suite *suite = suite_create("network");
    TCase *tests = tcase_create("network");
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_add_loop_test(tests, losses_and_gradients_are_those_of_the_fp64_model, 0, MODEL_CASES);
    tcase_add_loop_test(tests, exact_attention_adds_rounding_to_bf16_only, 0, MODEL_CASES);
    tcase_add_loop_test(tests, a_long_document_at_the_end_of_a_row_has_its_own_positions, 0, MODEL_CASES);
    tcase_add_loop_test(tests, packed_documents_give_what_they_give_alone, 0, MODEL_CASES);
    tcase_add_loop_test(tests, recomputed_layers_change_no_bit, 0, MODEL_CASES);
    tcase_add_loop_test(tests, room_for_more_tokens_changes_no_bit, 0, MODEL_CASES);
    tcase_add_loop_test(tests, a_network_that_does_not_train_gives_the_same_logits, 0, MODEL_CASES);
    tcase_add_loop_test(tests, random_bits_are_keyed_by_seed_and_the_networks_own_layers, 0, MODEL_CASES);
    tcase_add_loop_test(tests, the_view_of_a_layers_attention_is_what_it_saw, 0, MODEL_CASES);
    tcase_add_loop_test(tests, the_plan_is_what_is_taken, 0, MODEL_CASES);
    tcase_add_loop_test(tests, a_batch_that_does_not_fit_is_refused, 0, (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(tests, a_backward_needs_a_forward_of_its_own);
    tcase_add_test(tests, a_network_of_no_tokens_or_too_many_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
