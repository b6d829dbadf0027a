/* check_training.c: whole runs of `flamia train` on small models: what they leave behind and what they refuse. */
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/checkpoint.h"
#include "train/commands.h"
#include "train/loop.h"
#include "train/options.h"
#include "train/signals.h"

#define WORDS_MOST 48
#define PATH_MOST  700

struct place {
    char folder[512]; /* scratch */
    char data[PATH_MOST], out[PATH_MOST], log[PATH_MOST], errors[PATH_MOST];
};

/* A file of 30 KB made of eight words, and names for what a run writes. */
static struct place make_place(uint64_t test)
{
    static const char *const words[] = {"attention ", "scales ", "leak ", "the ", "future ", "a ", "block ", "of\n"};
    struct place place;
    struct random_stream random = random_stream(test);
    snprintf(place.folder, sizeof place.folder, "%s", scratch_folder());
    snprintf(place.data, sizeof place.data, "%s/text", place.folder);
    snprintf(place.out, sizeof place.out, "%s/runs/one", place.folder);
    snprintf(place.log, sizeof place.log, "%s/runs/one/log.jsonl", place.folder);
    snprintf(place.errors, sizeof place.errors, "%s/errors", place.folder);
    FILE *file = fopen(place.data, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 6000; i++) {
        ck_assert_int_ge(fputs(words[random_below(&random, 8)], file), 0);
    }
    ck_assert_int_eq(fclose(file), 0);
    return place;
}

/* The options every run here has, then those given; ends with NULL. */
static int fill(char **argv, const struct place *place, const char *const *words)
{
    const char *const common[] = {
        "train",   "--data",  place->data, "--out", place->out,      "--layers", "1",        "--width", "32",
        "--heads", "2",       "--seq-len", "32",    "--batch",       "4",        "--warmup", "0",       "--threads",
        "1",       "--quiet", "--lr",      "3e-3",  "--eval-tokens", "512"};
    int argc = 0;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        argv[argc++] = (char *)common[i];
    }
    for (; *words; words++) {
        argv[argc++] = (char *)*words;
    }
    return argc;
}

/* `flamia train` with its stderr in place->errors. */
static int train(const struct place *place, const char *const *words)
{
    char *argv[WORDS_MOST];
    const int argc = fill(argv, place, words);
    ck_assert_ptr_nonnull(freopen(place->errors, "wb", stderr));
    const int exit_code = command_train(argc, argv);
    fflush(stderr);
    return exit_code;
}

#define TRAIN(place, ...) train(place, (const char *const[]){__VA_ARGS__, NULL})

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *text = test_alloc(1 << 20);
    text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

static void assert_said(const struct place *place, const char *expected)
{
    char *text = read_text(place->errors);
    ck_assert_msg(strstr(text, expected), "'%s' lacks '%s'", text, expected);
    ck_assert_msg(strncmp(text, "flamia: ", 8) == 0, "%s", text);
    free(text);
}

/* The records of one event, in order; the caller decrefs it. */
static json_t *records(const struct place *place, const char *event)
{
    char *text = read_text(place->log), *rest = text;
    json_t *found = json_array();
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "%s", line);
        if (strcmp(json_string_value(json_object_get(record, "event")), event) == 0) {
            json_array_append(found, record);
        }
        json_decref(record);
    }
    free(text);
    return found;
}

static double number(const json_t *records, size_t index, const char *key)
{
    return json_number_value(json_object_get(json_array_get(records, index), key));
}

/* Words of eight give about 0.7 nats a byte; a model that learns nothing stays at ln 256 = 5.5. */
START_TEST(a_run_learns_and_leaves_its_record)
{
    const struct place place = make_place(1);
    ck_assert_int_eq(TRAIN(&place, "--steps", "120", "--eval-every", "60", "--save-every", "50"), 0);
    json_t *steps = records(&place, "step"), *evals = records(&place, "eval"), *saves = records(&place, "save");
    ck_assert_uint_eq(json_array_size(steps), 120);
    ck_assert_double_gt(number(steps, 0, "loss"), 5);
    ck_assert_double_lt(number(steps, 119, "loss"), 2.5);
    ck_assert_double_eq(number(steps, 119, "tokens"), 120 * 4 * 32);
    ck_assert_uint_eq(json_array_size(evals), 2);
    ck_assert_double_lt(number(evals, 1, "own"), 2.5);
    ck_assert_double_le(fabs(number(evals, 1, "own") - number(evals, 1, "exact") - number(evals, 1, "gap")), 1e-7);
    ck_assert_uint_eq(json_array_size(saves), 3);
    ck_assert_double_eq(number(saves, 2, "step"), 120);
    json_decref(steps), json_decref(evals), json_decref(saves);
    json_t *start = records(&place, "start"), *end = records(&place, "end");
    const json_t *settings = json_object_get(json_array_get(start, 0), "settings");
    ck_assert_str_eq(json_string_value(json_object_get(settings, "recipe")), "mxfp8");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(end, 0), "reason")), "done");
    json_decref(start), json_decref(end);
}
END_TEST

START_TEST(micro_batches_change_the_losses_by_rounding_only)
{
    const struct place whole = make_place(2), cut = make_place(2);
    ck_assert_int_eq(TRAIN(&whole, "--steps", "3", "--recipe", "fp32"), 0);
    ck_assert_int_eq(TRAIN(&cut, "--steps", "3", "--recipe", "fp32", "--micro-batch", "1"), 0);
    json_t *one = records(&whole, "step"), *other = records(&cut, "step");
    for (size_t i = 0; i < 3; i++) { /* Adam's first steps have the size of the rate whatever the gradient's: 1e-4 */
        ck_assert_double_le(fabs(number(one, i, "loss") - number(other, i, "loss")), i == 0 ? 1e-6 * 5.6 : 1e-4);
    }
    json_decref(one), json_decref(other);
}
END_TEST

START_TEST(a_folder_that_holds_a_run_is_not_touched)
{
    const struct place place = make_place(3);
    ck_assert_int_eq(TRAIN(&place, "--steps", "2"), 0);
    char *before = read_text(place.log);
    ck_assert_int_eq(TRAIN(&place, "--steps", "2"), ERROR_USAGE);
    assert_said(&place, "--resume auto");
    char *after = read_text(place.log);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
}
END_TEST

START_TEST(resuming_goes_on_where_the_run_was)
{
    const struct place place = make_place(4), straight = make_place(4);
    ck_assert_int_eq(TRAIN(&straight, "--steps", "6", "--lr-schedule", "constant"), 0);
    ck_assert_int_eq(TRAIN(&place, "--steps", "4", "--lr-schedule", "constant", "--resume", "auto"), 0);
    ck_assert_int_eq(TRAIN(&place, "--steps", "6", "--lr-schedule", "constant", "--resume", "auto"), 0);
    json_t *one = records(&straight, "step"), *other = records(&place, "step");
    ck_assert_uint_eq(json_array_size(other), 6);
    for (size_t i = 0; i < 6; i++) {
        ck_assert(number(one, i, "loss") == number(other, i, "loss"));
    }
    json_decref(one), json_decref(other);
}
END_TEST

START_TEST(a_run_whose_data_order_would_change_is_not_resumed)
{
    const struct place place = make_place(5);
    ck_assert_int_eq(TRAIN(&place, "--steps", "2"), 0);
    ck_assert_int_eq(TRAIN(&place, "--steps", "4", "--resume", "auto", "--seed", "2"), ERROR_USAGE);
    assert_said(&place, "--seed 2: the run in ");
    ck_assert_int_eq(TRAIN(&place, "--steps", "4", "--resume", "auto", "--split", "80/10/10"), ERROR_USAGE);
    assert_said(&place, "--split 80/10/10: the run in ");
}
END_TEST

START_TEST(an_older_checkpoint_goes_on_in_another_folder_only)
{
    const struct place place = make_place(6);
    char old[PATH_MOST];
    snprintf(old, sizeof old, "%s/runs/one/checkpoints/step_00000002", place.folder);
    ck_assert_int_eq(TRAIN(&place, "--steps", "4", "--save-every", "2"), 0);
    ck_assert_int_eq(TRAIN(&place, "--steps", "5", "--resume", old), ERROR_USAGE);
    assert_said(&place, "is not the newest checkpoint");
    struct place second = place;
    snprintf(second.out, sizeof second.out, "%s/two", place.folder);
    snprintf(second.log, sizeof second.log, "%s/two/log.jsonl", place.folder);
    ck_assert_int_eq(TRAIN(&second, "--steps", "3", "--resume", old), 0);
    json_t *steps = records(&second, "step");
    ck_assert_uint_eq(json_array_size(steps), 1);
    ck_assert_double_eq(number(steps, 0, "step"), 3);
    json_decref(steps);
}
END_TEST

START_TEST(a_dry_run_writes_nothing)
{
    const struct place place = make_place(7);
    ck_assert_ptr_nonnull(freopen("/dev/null", "wb", stdout));
    ck_assert_int_eq(TRAIN(&place, "--steps", "2", "--dry-run"), 0);
    ck_assert_int_ne(access(place.out, F_OK), 0);
}
END_TEST

START_TEST(what_is_missing_is_named)
{
    const struct place place = make_place(8);
    char *no_data[] = {(char *)"train", (char *)"--out", (char *)place.out};
    char *no_out[] = {(char *)"train", (char *)"--data", (char *)place.data};
    ck_assert_ptr_nonnull(freopen(place.errors, "wb", stderr));
    ck_assert_int_eq(command_train(3, no_data), ERROR_USAGE);
    fflush(stderr);
    assert_said(&place, "--data: expected");
    ck_assert_ptr_nonnull(freopen(place.errors, "wb", stderr));
    ck_assert_int_eq(command_train(3, no_out), ERROR_USAGE);
    fflush(stderr);
    assert_said(&place, "--out: expected");
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_named)
{
    struct place place = make_place(9);
    snprintf(place.out, sizeof place.out, "%s/text/below-a-file", place.folder);
    ck_assert_int_eq(TRAIN(&place, "--steps", "2"), ERROR_FAILED);
    assert_said(&place, "--out: ");
}
END_TEST

/* ---- runs that are interfered with between their beginning and their steps ---- */

struct session {
    struct settings settings;
    struct run run;
};

static void begin(struct session *session, const struct place *place, const char *const *words)
{
    char *argv[WORDS_MOST];
    struct error error;
    const int argc = fill(argv, place, words);
    ck_assert_int_eq(options_parse(COMMAND_TRAIN, argc, argv, &session->settings, NULL, &error), OPTIONS_READY);
    ck_assert(signals_install(&error));
    ck_assert_msg(run_plan_open(&session->run, &session->settings, &error) && run_begin(&session->run, &error), "%s",
                  error.text);
}

#define BEGIN(session, place, ...) begin(session, place, (const char *const[]){__VA_ARGS__, NULL})

static bool has_checkpoint(const struct place *place)
{
    char folder[CHECKPOINT_PATH];
    struct error error = {.code = ERROR_NONE};
    return checkpoint_find(place->out, folder, &error);
}

START_TEST(a_broken_weight_ends_the_run_by_name_and_saves_nothing)
{
    const struct place place = make_place(10);
    struct session session;
    struct error error;
    BEGIN(&session, &place, "--steps", "5", "--save-every", "1", "--on-nonfinite", _i ? "skip" : "stop");
    struct network *network = session.run.state.network;
    const struct parameter *tensor = parameter_find(network_table(network), PARAMETER_UP_WEIGHT, 0);
    network_parameters(network)[tensor->offset + 3] = NAN;
    ck_assert(!run_loop(&session.run, &error));
    ck_assert_int_eq(error.code, ERROR_NONFINITE);
    ck_assert_msg(strstr(error.text, tensor->name) && strstr(error.text, "step 1:"), "%s", error.text);
    ck_assert_int_eq(session.run.state.adamw.updates, 0);
    run_close(&session.run);
    ck_assert(!has_checkpoint(&place));
    json_t *end = records(&place, "end");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(end, 0), "reason")), "not finite");
    json_decref(end);
}
END_TEST

START_TEST(a_run_that_ended_before_its_first_checkpoint_begins_again)
{
    const struct place place = make_place(15);
    struct session session;
    struct error error;
    BEGIN(&session, &place, "--steps", "5");
    network_parameters(session.run.state.network)[0] = NAN;
    (void)run_loop(&session.run, &error);
    run_close(&session.run);
    ck_assert_int_eq(TRAIN(&place, "--steps", "2", "--resume", "auto"), 0);
    json_t *steps = records(&place, "step");
    ck_assert_uint_eq(json_array_size(steps), 2);
    ck_assert_double_eq(number(steps, 0, "step"), 1);
    json_decref(steps);
}
END_TEST

/* Finite weights whose products overflow. */
static void overflow(struct session *session)
{
    struct network *network = session->run.state.network;
    const struct parameter *tensor = parameter_find(network_table(network), PARAMETER_DOWN_WEIGHT, 0);
    for (size_t i = 0; i < tensor->rows * tensor->columns; i++) {
        network_parameters(network)[tensor->offset + i] = i % 2 ? 3e38f : -3e38f;
    }
}

START_TEST(a_loss_that_overflows_ends_the_run)
{
    const struct place place = make_place(11);
    struct session session;
    struct error error;
    BEGIN(&session, &place, "--steps", "5");
    overflow(&session);
    ck_assert(!run_loop(&session.run, &error));
    ck_assert_int_eq(error.code, ERROR_NONFINITE);
    ck_assert_msg(strstr(error.text, "step 1: loss is not finite"), "%s", error.text);
    ck_assert_msg(strstr(error.text, "--on-nonfinite skip"), "%s", error.text);
    run_close(&session.run);
    ck_assert(!has_checkpoint(&place));
}
END_TEST

START_TEST(steps_that_overflow_can_be_skipped_and_are_counted)
{
    const struct place place = make_place(12);
    struct session session;
    struct error error;
    BEGIN(&session, &place, "--steps", "3", "--on-nonfinite", "skip", "--split", "100/0/0");
    overflow(&session);
    ck_assert_ptr_nonnull(freopen(place.errors, "wb", stderr));
    ck_assert_msg(run_loop(&session.run, &error), "%s", error.text);
    ck_assert_int_eq(session.run.state.skipped, 3);
    ck_assert_int_eq(session.run.state.step, 3);
    ck_assert_int_eq(session.run.state.adamw.updates, 0);
    run_close(&session.run);
    json_t *skips = records(&place, "skip");
    ck_assert_uint_eq(json_array_size(skips), 3);
    json_decref(skips);
}
END_TEST

START_TEST(a_signal_saves_and_leaves)
{
    const struct place place = make_place(13);
    struct session session;
    struct error error;
    BEGIN(&session, &place, "--steps", "1000");
    ck_assert_int_eq(raise(_i ? SIGTERM : SIGINT), 0);
    ck_assert_ptr_nonnull(freopen("/dev/null", "wb", stdout));
    ck_assert_msg(run_loop(&session.run, &error), "%s", error.text);
    ck_assert_int_eq(session.run.state.step, 1);
    run_close(&session.run);
    ck_assert(has_checkpoint(&place));
    json_t *end = records(&place, "end");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(end, 0), "reason")), _i ? "SIGTERM" : "SIGINT");
    json_decref(end);
}
END_TEST

START_TEST(the_time_limit_saves_and_leaves)
{
    const struct place place = make_place(14);
    ck_assert_ptr_nonnull(freopen("/dev/null", "wb", stdout));
    ck_assert_int_eq(TRAIN(&place, "--steps", "100000000", "--time-limit", "1"), 0);
    ck_assert(has_checkpoint(&place));
    json_t *end = records(&place, "end");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(end, 0), "reason")), "time limit");
    json_decref(end);
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small models a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_training(void);
Suite *suite_training(void)
{
    Suite *suite = suite_create("training");
    TCase *tests = tcase_create("training");
    tcase_add_test(tests, a_run_learns_and_leaves_its_record);
    tcase_add_test(tests, micro_batches_change_the_losses_by_rounding_only);
    tcase_add_test(tests, a_folder_that_holds_a_run_is_not_touched);
    tcase_add_test(tests, resuming_goes_on_where_the_run_was);
    tcase_add_test(tests, a_run_whose_data_order_would_change_is_not_resumed);
    tcase_add_test(tests, an_older_checkpoint_goes_on_in_another_folder_only);
    tcase_add_test(tests, a_dry_run_writes_nothing);
    tcase_add_test(tests, what_is_missing_is_named);
    tcase_add_test(tests, a_folder_that_cannot_be_made_is_named);
    tcase_add_loop_test(tests, a_broken_weight_ends_the_run_by_name_and_saves_nothing, 0, 2);
    tcase_add_test(tests, a_run_that_ended_before_its_first_checkpoint_begins_again);
    tcase_add_test(tests, a_loss_that_overflows_ends_the_run);
    tcase_add_test(tests, steps_that_overflow_can_be_skipped_and_are_counted);
    tcase_add_loop_test(tests, a_signal_saves_and_leaves, 0, 2);
    tcase_add_test(tests, the_time_limit_saves_and_leaves);
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    return suite;
}
