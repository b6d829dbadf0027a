/* check_random_labels.c: nothing can be learned from fresh random bytes, unless the label is seen.
 *
 * The loss of every step is taken on bytes never seen before, so its mean over n targets is, for a causal model, at
 * least ln V + s^2 / 2 where s is the spread of -ln p, give or take s / sqrt(n). With n >= 4096 (here it is three times
 * that) a causal model stays above ln V - 0.01 by at least nine standard errors whatever s is: (0.01 + s^2 / 2) / (s /
 * 64) >= 64 sqrt(0.02).
 */
#include "tests/training_case.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "train/options.h"
#include "train/step.h"

#define VOCABULARY 256
#define LENGTH     72 /* no multiple of 32 */
#define ROWS       4
#define STEPS      200

enum labels {
    LABEL_NEXT,   /* what training asks for */
    LABEL_BEFORE, /* the token before this one: what a mask that is off the wrong way would show, through attention only
                   */
};

static void relabel(struct batch *batch)
{
    batch->valid_targets = 0;
    for (size_t i = 0; i < batch->total_tokens; i++) {
        batch->targets[i] = batch->positions[i] > 0 ? batch->tokens[i - 1] : TARGET_IGNORED;
        batch->valid_targets += batch->positions[i] > 0;
    }
}

/* Mean loss of the last quarter of `steps`. */
static double train(const struct recipe *recipe, enum labels labels, bool packed, int steps,
                    struct random_stream *random)
{
    const struct model_config config = tiny_model(MODEL_GPT2, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, ROWS * LENGTH, random_bits(random));
    struct batch *batch = random_batch(random, ROWS, LENGTH, VOCABULARY, packed);
    struct step_work work;
    struct adamw adamw;
    struct error error;
    struct settings settings;
    options_defaults(COMMAND_TRAIN, &settings);
    ck_assert(adamw_create(&adamw, network_table(network), &error));
    ck_assert(step_work_create(&work, 1, ROWS * LENGTH, &error));
    const int quarter = steps / 4;
    double sum = 0;
    for (int step = 0; step < steps; step++) {
        struct step_outcome outcome;
        random_batch_fill(batch, random, VOCABULARY, packed);
        if (labels == LABEL_BEFORE) {
            relabel(batch);
        }
        step_clear(&work);
        ck_assert(step_add(&work, batch, &error));
        ck_assert_msg(step_gradients(network, recipe, &work, 1, (uint64_t)step, &outcome, &error), "%s", error.text);
        ck_assert(outcome.finite);
        step_update(network, &adamw, &settings, 5e-3, &outcome);
        sum += step >= steps - quarter ? outcome.loss : 0;
    }
    step_work_destroy(&work);
    adamw_destroy(&adamw);
    batch_free(batch);
    network_destroy(network);
    return sum / quarter;
}

START_TEST(random_bytes_cannot_be_learned)
{
    const struct recipe *recipe = recipe_at((size_t)_i / 2);
    struct random_stream random = random_stream((uint64_t)_i);
    if (recipe_causality(recipe) != CAUSALITY_LEAKY) {
        const int steps = test_is_sanitized() ? 64 : STEPS;
        const double loss = train(recipe, LABEL_NEXT, _i % 2 != 0, steps, &random);
        ck_assert_msg(loss > log(VOCABULARY) - 0.01, "%s: %g", recipe->name, loss);
    }
}
END_TEST

START_TEST(a_label_that_attention_sees_is_learned)
{
    struct random_stream random = random_stream(100);
    const double loss = train(recipe_find("mxfp8"), LABEL_BEFORE, _i != 0, STEPS, &random);
    ck_assert_msg(loss < 1, "%g", loss);
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small models a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_random_labels(void);
Suite *suite_random_labels(void)
{
    Suite *suite = suite_create("random_labels");
    TCase *tests = tcase_create("random_labels");
    tcase_add_loop_test(tests, random_bytes_cannot_be_learned, 0, 2 * (int)recipe_count());
    tcase_add_loop_test(tests, a_label_that_attention_sees_is_learned, 0, 2);
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
