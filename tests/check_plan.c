/* check_plan.c: how long a run is, what it reads and what it takes, before it begins. */
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>

#include "train/adamw.h"
#include "train/options.h"
#include "train/plan.h"

#define TOKENS 10000

static struct dataset *make_dataset(size_t tokens, size_t vocabulary)
{
    uint32_t *ids = test_alloc(tokens * sizeof *ids);
    const int64_t start = 0;
    struct error error;
    for (size_t i = 0; i < tokens; i++) {
        ids[i] = (uint32_t)(i % vocabulary);
    }
    struct dataset *dataset = dataset_from_tokens(ids, tokens, &start, 1, vocabulary, &error);
    ck_assert_msg(dataset != NULL, "%s", error.text);
    free(ids);
    return dataset;
}

static struct settings make_settings(void)
{
    struct settings settings;
    options_defaults(COMMAND_TRAIN, &settings);
    settings.sequence_length = 100;
    settings.batch = 8;
    settings.steps = 0;
    settings.warmup = 0;
    memcpy(settings.split, "80/20/0", sizeof "80/20/0");
    return settings;
}

static struct run_plan plan_of(const struct settings *settings)
{
    struct dataset *dataset = make_dataset(TOKENS, 256);
    struct run_plan plan;
    struct error error;
    ck_assert_msg(run_plan_make(&plan, settings, dataset, dataset, &error), "%s", error.text);
    dataset_close(dataset);
    return plan;
}

START_TEST(tokens_are_rounded_up_to_steps)
{
    struct settings settings = make_settings();
    settings.tokens = 8 * 100 * 5 + 1;
    ck_assert_int_eq(plan_of(&settings).steps, 6);
    settings.tokens = 8 * 100 * 5;
    ck_assert_int_eq(plan_of(&settings).steps, 5);
}
END_TEST

START_TEST(epochs_count_rows_of_the_training_share)
{
    struct settings settings = make_settings();
    settings.epochs = 1; /* 80 rows of 8000 tokens, 8 a step */
    ck_assert_int_eq(plan_of(&settings).steps, 10);
    settings.epochs = 1.01;
    ck_assert_int_eq(plan_of(&settings).steps, 11);
}
END_TEST

START_TEST(shares_are_those_of_the_split)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    const struct run_plan plan = plan_of(&settings);
    ck_assert_uint_eq(plan.train_begin, 0);
    ck_assert_uint_eq(plan.train_end, 8000);
    ck_assert_uint_eq(plan.val_begin, 8000);
    ck_assert_uint_eq(plan.val_end, 10000);
}
END_TEST

START_TEST(validation_data_of_its_own_is_used_whole)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    memcpy(settings.val_data, "other", sizeof "other");
    struct dataset *training = make_dataset(TOKENS, 256), *validation = make_dataset(700, 256);
    struct run_plan plan;
    struct error error;
    ck_assert(run_plan_make(&plan, &settings, training, validation, &error));
    ck_assert_uint_eq(plan.train_end - plan.train_begin, TOKENS);
    ck_assert_uint_eq(plan.val_end - plan.val_begin, 700);
    dataset_close(training);
    dataset_close(validation);
}
END_TEST

START_TEST(a_validation_share_below_a_sequence_is_left_out)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    memcpy(settings.split, "99.5/0.5/0", sizeof "99.5/0.5/0");
    const struct run_plan plan = plan_of(&settings);
    ck_assert_uint_eq(plan.val_begin, plan.val_end);
}
END_TEST

static void refused(const struct settings *settings, size_t tokens, size_t vocabulary, const char *expected)
{
    struct dataset *dataset = make_dataset(tokens, vocabulary);
    struct run_plan plan;
    struct error error;
    ck_assert(!run_plan_make(&plan, settings, dataset, dataset, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, expected), "'%s' lacks '%s'", error.text, expected);
    dataset_close(dataset);
}

START_TEST(what_cannot_be_trained_is_refused)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    refused(&settings, TOKENS, 257, "its vocabulary is 257, the model's 256");
    refused(&settings, 120, 256, "the training share has 96 tokens");
    settings.steps = 0;
    settings.epochs = 1;
    settings.warmup = 11;
    refused(&settings, TOKENS, 256, "--warmup 11 is longer than the run's 10 steps");
}
END_TEST

START_TEST(memory_is_the_sum_of_its_parts)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    settings.micro_batch = 2;
    const struct run_plan plan = plan_of(&settings);
    ck_assert_uint_eq(plan.micro_batches, 4);
    ck_assert_uint_eq(plan.micro_batch, 2);
    ck_assert_uint_eq(plan.optimizer, 2 * plan.network.parameters);
    ck_assert_uint_ge(plan.network.parameters, 4 * plan.parameters);
    ck_assert_uint_eq(plan.total, plan.network.total + plan.optimizer + plan.batches);
}
END_TEST

START_TEST(smaller_micro_batches_and_recomputation_take_less)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    const size_t whole = plan_of(&settings).total;
    settings.micro_batch = 1;
    const size_t cut = plan_of(&settings).total;
    settings.recompute = true;
    ck_assert_uint_lt(cut, whole);
    ck_assert_uint_lt(plan_of(&settings).total, cut);
}
END_TEST

START_TEST(a_run_beyond_the_machine_is_refused_with_advice)
{
    struct settings settings = make_settings();
    settings.steps = 1;
    struct run_plan plan = plan_of(&settings);
    struct error error;
    ck_assert(run_plan_fits(&plan, &settings, &error));
    plan.total = (size_t)1 << 60;
    ck_assert(!run_plan_fits(&plan, &settings, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    ck_assert_ptr_nonnull(strstr(error.text, "--micro-batch"));
}
END_TEST

Suite *suite_plan(void);
Suite *suite_plan(void)
{
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("plan");
    tcase_add_test(tests, tokens_are_rounded_up_to_steps);
    tcase_add_test(tests, epochs_count_rows_of_the_training_share);
    tcase_add_test(tests, shares_are_those_of_the_split);
    tcase_add_test(tests, validation_data_of_its_own_is_used_whole);
    tcase_add_test(tests, a_validation_share_below_a_sequence_is_left_out);
    tcase_add_test(tests, what_cannot_be_trained_is_refused);
    tcase_add_test(tests, memory_is_the_sum_of_its_parts);
    tcase_add_test(tests, smaller_micro_batches_and_recomputation_take_less);
    tcase_add_test(tests, a_run_beyond_the_machine_is_refused_with_advice);
    suite_add_tcase(suite, tests);
    return suite;
}
