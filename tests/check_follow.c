/* check_follow.c: twenty steps of training, followed by an independent FP64 program: model, loss, clipping, AdamW. */
#include "tests/training_case.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "tests/reference_model.h"
#include "train/learning_rate.h"
#include "train/options.h"
#include "train/step.h"

#define ROWS       2
#define LENGTH     40
#define VOCABULARY 61
#define STEPS      20

struct follower {
    double *parameters, *gradients, *mean, *square;
};

/* The step's loss; the gradient's norm is returned in `norm`. */
static double follow(struct follower *f, const struct parameter_table *table, const struct model_config *config,
                     const struct batch *batch, const struct settings *settings, int step, double *norm)
{
    double squares = 0;
    const double targets = (double)batch->valid_targets, rate = learning_rate_at(settings, step, STEPS);
    for (size_t i = 0; i < table->elements; i++) {
        f->gradients[i] = 0;
    }
    const double loss = reference_model_batch(table, config, f->parameters, batch, 1 / targets, f->gradients, NULL);
    for (size_t i = 0; i < table->elements; i++) {
        squares += f->gradients[i] * f->gradients[i];
    }
    *norm = sqrt(squares);
    for (size_t k = 0; k < table->count; k++) {
        const struct parameter *tensor = &table->entries[k];
        const double decay = tensor->columns > 1 ? settings->weight_decay : 0;
        for (size_t i = tensor->offset; i < tensor->offset + tensor->rows * tensor->columns; i++) {
            const double g = f->gradients[i] * (*norm > settings->clip ? settings->clip / *norm : 1);
            f->mean[i] += (1 - settings->beta1) * (g - f->mean[i]);
            f->square[i] += (1 - settings->beta2) * (g * g - f->square[i]);
            const double m = f->mean[i] / (1 - pow(settings->beta1, step + 1));
            const double v = f->square[i] / (1 - pow(settings->beta2, step + 1));
            f->parameters[i] -= rate * (m / (sqrt(v) + settings->epsilon) + decay * f->parameters[i]);
        }
    }
    return loss / targets;
}

/* FP32 against FP64. A gradient that is nearly zero may round to another sign, and Adam's first updates are of the size
 * of the rate whatever the gradient's is; such weights matter little to the loss, in
 * proportion to that gradient. Sixty seeds of both families reached 4e-7 and 8e-7. */
START_TEST(twenty_steps_follow_an_independent_fp64_program)
{
    struct random_stream random = random_stream((uint64_t)_i);
    const struct model_config config = tiny_model((enum model_family)_i, VOCABULARY, LENGTH);
    struct network *network = tiny_network(&config, ROWS * LENGTH, random_bits(&random));
    const struct parameter_table *table = network_table(network);
    struct batch *batch = random_batch(&random, ROWS, LENGTH, VOCABULARY, true);
    struct follower f = {calloc(table->elements, sizeof(double)), calloc(table->elements, sizeof(double)),
                         calloc(table->elements, sizeof(double)), calloc(table->elements, sizeof(double))};
    struct settings settings;
    struct adamw adamw;
    struct step_work work;
    struct error error;
    ck_assert(f.parameters && f.gradients && f.mean && f.square);
    for (size_t i = 0; i < table->elements; i++) {
        f.parameters[i] = (double)network_parameters(network)[i];
    }
    options_defaults(COMMAND_TRAIN, &settings);
    settings.warmup = 3;
    settings.clip = 1; /* norms begin above it and fall below */
    ck_assert(adamw_create(&adamw, table, &error) && step_work_create(&work, 1, ROWS * LENGTH, &error));
    for (int step = 0; step < STEPS; step++) {
        struct step_outcome outcome;
        double norm;
        if (step % 4 == 0) {
            random_batch_fill(batch, &random, VOCABULARY, true);
        }
        step_clear(&work);
        ck_assert(step_add(&work, batch, &error));
        ck_assert(step_gradients(network, recipe_find("fp32"), &work, 1, (uint64_t)step, &outcome, &error));
        step_update(network, &adamw, &settings, learning_rate_at(&settings, step, STEPS), &outcome);
        const double loss = follow(&f, table, &config, batch, &settings, step, &norm);
        ck_assert_msg(fabs(outcome.loss - loss) < 1e-5, "step %d: %.9g, expected %.9g", step, outcome.loss, loss);
        ck_assert_msg(fabs(outcome.gradient_norm - norm) < 1e-4 * norm, "step %d: norm %.9g, expected %.9g", step,
                      outcome.gradient_norm, norm);
    }
    free(f.parameters), free(f.gradients), free(f.mean), free(f.square);
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

Suite *suite_follow(void);
Suite *suite_follow(void)
{
    Suite *suite = suite_create("follow");
    TCase *tests = tcase_create("follow");
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_add_loop_test(tests, twenty_steps_follow_an_independent_fp64_program, MODEL_GPT2, MODEL_LLAMA + 1);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
