/* check_step.c: a step's loss and gradients do not depend on how it is cut; clipping; what is not finite is named. */
#include "tests/training_case.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "train/options.h"
#include "train/step.h"

#define ROWS       8
#define LENGTH     16
#define VOCABULARY 50

static struct step_work gather(const struct batch *batch, size_t rows)
{
    struct step_work work;
    struct error error;
    ck_assert(step_work_create(&work, ROWS / rows, rows * LENGTH, &error));
    for (size_t first = 0; first < ROWS; first += rows) {
        struct batch *part = batch_part(batch, first, rows);
        ck_assert_msg(step_add(&work, part, &error), "%s", error.text);
        batch_free_part(part);
    }
    return work;
}

static struct step_outcome gradients_of(struct network *network, const char *recipe, const struct step_work *work)
{
    struct step_outcome outcome;
    struct error error;
    ck_assert_msg(step_gradients(network, recipe_find(recipe), work, 7, 3, &outcome, &error), "%s", error.text);
    return outcome;
}

/* FP32 sums of at most 128 targets in another order: 1e-6 and 1e-5 are several hundred roundings. */
START_TEST(loss_and_gradients_do_not_depend_on_the_cut)
{
    for (int family = MODEL_GPT2; family <= MODEL_LLAMA; family++) {
        struct random_stream random = random_stream((uint64_t)family);
        const struct model_config config = tiny_model((enum model_family)family, VOCABULARY, LENGTH);
        struct network *network = tiny_network(&config, ROWS * LENGTH, 1);
        struct batch *batch = random_batch(&random, ROWS, LENGTH, VOCABULARY, true);
        const size_t elements = network_table(network)->elements;
        float *whole = test_alloc(elements * sizeof(float));
        double loss = 0;
        for (size_t rows = ROWS; rows > 0; rows /= 2) {
            struct step_work work = gather(batch, rows);
            const struct step_outcome outcome = gradients_of(network, "fp32", &work);
            ck_assert(outcome.finite);
            if (rows == ROWS) {
                loss = outcome.loss;
                memcpy(whole, network_gradients(network), elements * sizeof(float));
            }
            ck_assert_double_le(fabs(outcome.loss - loss), 1e-6 * loss);
            ck_assert_double_le(relative_error(network_gradients(network), whole, elements), 1e-5);
            step_work_destroy(&work);
        }
        free(whole);
        batch_free(batch);
        network_destroy(network);
    }
}
END_TEST

/* One micro-batch with a single target and one with many: the loss is the mean over targets, not of the two means. */
START_TEST(the_loss_is_the_mean_over_targets)
{
    struct random_stream random = random_stream(2);
    const struct model_config config = tiny_model(MODEL_GPT2, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, LENGTH, 1);
    struct batch *one = random_batch(&random, 1, LENGTH, VOCABULARY, false),
                 *many = random_batch(&random, 1, LENGTH, VOCABULARY, false);
    for (size_t i = 1; i < LENGTH; i++) {
        one->targets[i] = TARGET_IGNORED;
    }
    one->valid_targets = 1;
    one->targets[0] = 5;
    float *parameters = network_parameters(network); /* far from uniform, so that the two means differ */
    for (size_t i = 0; i < network_table(network)->elements; i++) {
        parameters[i] *= 20;
    }
    struct error error;
    struct step_work work;
    double first, second;
    float losses[LENGTH];
    ck_assert(network_forward(network, recipe_find("fp32"), one, losses, &first, &error));
    ck_assert(network_forward(network, recipe_find("fp32"), many, losses, &second, &error));
    ck_assert(step_work_create(&work, 2, LENGTH, &error));
    ck_assert(step_add(&work, one, &error) && step_add(&work, many, &error));
    const struct step_outcome outcome = gradients_of(network, "fp32", &work);
    const double targets = 1 + (double)many->valid_targets;
    ck_assert_double_le(fabs(outcome.loss - (first + second) / targets), 1e-6 * outcome.loss);
    step_work_destroy(&work);
    batch_free(one);
    batch_free(many);
    network_destroy(network);
}
END_TEST

START_TEST(a_step_has_room_for_what_it_was_made_for)
{
    struct random_stream random = random_stream(3);
    struct batch *batch = random_batch(&random, 2, LENGTH, VOCABULARY, true);
    struct step_work work;
    struct error error;
    ck_assert(step_work_create(&work, 1, LENGTH, &error));
    ck_assert(!step_add(&work, batch, &error));
    struct batch *part = batch_part(batch, 0, 1);
    ck_assert(step_add(&work, part, &error));
    ck_assert(!step_add(&work, part, &error));
    step_clear(&work);
    ck_assert(step_add(&work, part, &error));
    ck_assert_uint_eq(work.tokens, LENGTH);
    ck_assert_uint_eq(work.valid_targets, part->valid_targets);
    step_work_destroy(&work);
    batch_free_part(part);
    batch_free(batch);
}
END_TEST

START_TEST(a_step_without_a_target_is_refused)
{
    struct random_stream random = random_stream(4);
    const struct model_config config = tiny_model(MODEL_GPT2, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, ROWS * LENGTH, 1);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, VOCABULARY, false);
    for (size_t i = 0; i < batch->total_tokens; i++) {
        batch->targets[i] = TARGET_IGNORED;
    }
    batch->valid_targets = 0;
    struct step_work work = gather(batch, ROWS);
    struct step_outcome outcome;
    struct error error = {.code = ERROR_NONE};
    ck_assert(!step_gradients(network, recipe_find("fp32"), &work, 7, 3, &outcome, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    step_work_destroy(&work);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* Any weight that this batch uses, in every recipe: the tensor is named. */
START_TEST(a_broken_weight_is_named)
{
    struct random_stream random = random_stream(5);
    const struct model_config config = tiny_model(MODEL_GPT2, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, ROWS * LENGTH, 1);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, VOCABULARY, false);
    struct step_work work = gather(batch, ROWS);
    const struct parameter_table *table = network_table(network);
    for (size_t i = 0; i < recipe_count(); i++) {
        const struct parameter *tensor = &table->entries[random_below(&random, table->count)];
        /* Rows of the embedding that no token names would not show. */
        const size_t row = tensor->kind == PARAMETER_TOKEN_EMBEDDING ? (size_t)batch->tokens[0] : 0;
        float *weight = network_parameters(network) + tensor->offset + row * tensor->columns;
        const float kept = *weight;
        *weight = i % 2 ? NAN : INFINITY;
        const struct step_outcome outcome = gradients_of(network, recipe_at(i)->name, &work);
        char expected[96];
        snprintf(expected, sizeof expected, "weight %s", tensor->name);
        ck_assert_msg(!outcome.finite && outcome.weights_broken, "%s: %s", recipe_at(i)->name, tensor->name);
        ck_assert_str_eq(outcome.culprit, expected);
        *weight = kept;
    }
    step_work_destroy(&work);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

/* Adam's mean after one update is (1 - beta1) times the gradient it saw. */
static void check_clipping(double clip, bool clips)
{
    struct random_stream random = random_stream(6);
    const struct model_config config = tiny_model(MODEL_GPT2, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, ROWS * LENGTH, 1);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, VOCABULARY, true);
    struct step_work work = gather(batch, ROWS);
    const struct step_outcome outcome = gradients_of(network, "exact", &work);
    struct settings settings;
    struct adamw adamw;
    struct error error;
    options_defaults(COMMAND_TRAIN, &settings);
    settings.clip = clip * outcome.gradient_norm;
    ck_assert(adamw_create(&adamw, network_table(network), &error));
    step_update(network, &adamw, &settings, 1e-3, &outcome);
    const double seen = gradient_norm_cpu(adamw.mean, network_table(network)->elements) / (1 - settings.beta1);
    const double expected = clips ? settings.clip : outcome.gradient_norm;
    ck_assert_double_le(fabs(seen - expected), 1e-6 * expected); /* three FP32 roundings an element */
    adamw_destroy(&adamw);
    step_work_destroy(&work);
    batch_free(batch);
    network_destroy(network);
}

START_TEST(a_gradient_above_the_limit_is_clipped_to_it)
{
    check_clipping(0.25, true);
}
END_TEST

START_TEST(a_gradient_below_the_limit_is_left_alone)
{
    check_clipping(1.5, false);
}
END_TEST

START_TEST(a_limit_of_0_clips_nothing)
{
    check_clipping(0, false);
}
END_TEST

/* Ten rows of noise are learned by heart: from ln 50 = 3.9 to below 2.9 in every recipe that trains. */
START_TEST(repeated_steps_lower_the_loss)
{
    const struct recipe *recipe = recipe_at((size_t)_i);
    struct random_stream random = random_stream(7);
    const struct model_config config = tiny_model(_i % 2 ? MODEL_GPT2 : MODEL_LLAMA, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, ROWS * LENGTH, 1);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, VOCABULARY, false);
    struct step_work work = gather(batch, ROWS / 2);
    struct settings settings;
    struct adamw adamw;
    struct error error;
    options_defaults(COMMAND_TRAIN, &settings);
    ck_assert(adamw_create(&adamw, network_table(network), &error));
    double first = 0, last = 0;
    for (int step = 0; step < 40; step++) {
        const struct step_outcome outcome = gradients_of(network, recipe->name, &work);
        ck_assert(outcome.finite);
        step_update(network, &adamw, &settings, 3e-3, &outcome);
        last = outcome.loss;
        first = step == 0 ? last : first;
    }
    ck_assert_msg(fabs(first - log(VOCABULARY)) < 0.2, "%s begins at %g", recipe->name, first);
    ck_assert_msg(last < first - 1, "%s: %g to %g", recipe->name, first, last);
    adamw_destroy(&adamw);
    step_work_destroy(&work);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small models a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_step(void);
Suite *suite_step(void)
{
    Suite *suite = suite_create("step");
    TCase *tests = tcase_create("step");
    tcase_add_test(tests, loss_and_gradients_do_not_depend_on_the_cut);
    tcase_add_test(tests, the_loss_is_the_mean_over_targets);
    tcase_add_test(tests, a_step_has_room_for_what_it_was_made_for);
    tcase_add_test(tests, a_step_without_a_target_is_refused);
    tcase_add_test(tests, a_broken_weight_is_named);
    tcase_add_test(tests, a_gradient_above_the_limit_is_clipped_to_it);
    tcase_add_test(tests, a_gradient_below_the_limit_is_left_alone);
    tcase_add_test(tests, a_limit_of_0_clips_nothing);
    tcase_add_loop_test(tests, repeated_steps_lower_the_loss, 0, (int)recipe_count());
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
