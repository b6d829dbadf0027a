/* check_resume.c: a run that goes on from a checkpoint is, bit for bit, the run that was never interrupted.
 *
 * 40 steps of 6 rows over 77 rows: three epoch edges lie in the run, two of them within a step. Each of the 39
 * checkpoints on the way is gone on from, in a folder of its own, with the schedule, the moments, stochastic rounding
 * (fp4) and the order of samples all in play.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/files.h"
#include "train/commands.h"

#define STEPS  40
#define LENGTH 16
#define ROWS   77

struct course {
    const char *family, *recipe, *micro_batch;
};

/* 77 rows for training and 5 more that --split leaves for validation. */
static const char *write_data(const char *folder, uint64_t test)
{
    struct random_stream random = random_stream(test);
    const char *path = path_in(folder, "text");
    uint8_t bytes[(ROWS + 5) * LENGTH];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)("etaoin \n"[random_below(&random, 8)]);
    }
    write_file(path, bytes, sizeof bytes);
    return path;
}

/* `flamia train` with its options; returns its exit code. `from`: what --resume is given. */
static int try_train(const struct course *course, const char *data, const char *out, const char *from,
                     const char *save_every)
{
    char split[64];
    snprintf(split, sizeof split, "%.3f/%.3f", 94.0, 6.0); /* 94 % of 82 rows are 77.08 */
    const char *words[] = {"train",
                           "--data",
                           data,
                           "--out",
                           out,
                           "--split",
                           split,
                           "--family",
                           course->family,
                           "--recipe",
                           course->recipe,
                           "--micro-batch",
                           course->micro_batch,
                           "--layers",
                           "1",
                           "--width",
                           "32",
                           "--heads",
                           "2",
                           "--seq-len",
                           "16",
                           "--batch",
                           "6",
                           "--steps",
                           "40",
                           "--warmup",
                           "7",
                           "--lr",
                           "1e-2",
                           "--threads",
                           "1",
                           "--quiet",
                           "--eval-every",
                           "0",
                           "--eval-tokens",
                           "32",
                           "--keep",
                           "0",
                           "--save-every",
                           save_every,
                           "--documents",
                           "delimiter:0a",
                           "--resume",
                           from};
    return command_train((int)(sizeof words / sizeof *words), (char **)words);
}

/* `from`: a checkpoint's folder, or NULL. */
static void train(const struct course *course, const char *data, const char *out, const char *from)
{
    ck_assert_int_eq(try_train(course, data, out, from ? from : "never", from ? "0" : "1"), 0);
}

/* The step records after `after`, each without the members that tell time; the caller decrefs it. */
static json_t *steps_after(const char *out, int64_t after)
{
    json_t *found = json_array();
    FILE *file = fopen(path_in(out, "log.jsonl"), "r");
    ck_assert_ptr_nonnull(file);
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) > 0) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(record);
        const char *event = json_string_value(json_object_get(record, "event"));
        if (strcmp(event, "step") == 0 && json_integer_value(json_object_get(record, "step")) > after) {
            json_object_del(record, "time");
            json_object_del(record, "tokens_per_s");
            json_array_append(found, record);
        }
        json_decref(record);
    }
    free(line);
    fclose(file);
    return found;
}

static const char *final_file(const char *out, const char *name)
{
    char part[96];
    snprintf(part, sizeof part, "checkpoints/step_%08d/%s", STEPS, name);
    return path_in(out, part);
}

static void expect_same_file(const char *one, const char *other, const char *name, int step)
{
    size_t bytes, other_bytes;
    uint8_t *first = read_file(final_file(one, name), &bytes),
            *second = read_file(final_file(other, name), &other_bytes);
    ck_assert_uint_eq(bytes, other_bytes);
    ck_assert_msg(memcmp(first, second, bytes) == 0, "resumed at step %d, %s ends with other bits", step, name);
    free(first);
    free(second);
}

/* All of state.json but the time it took and the settings' folders. */
static json_t *final_state(const char *out)
{
    json_t *state = json_load_file(final_file(out, "state.json"), 0, NULL);
    ck_assert_ptr_nonnull(state);
    json_object_del(state, "seconds");
    json_object_del(state, "settings");
    return state;
}

static void expect_same_run(const char *one, const char *other, int step)
{
    json_t *first = steps_after(one, step), *second = steps_after(other, 0);
    ck_assert_uint_eq(json_array_size(second), (size_t)(STEPS - step));
    for (size_t i = 0; i < json_array_size(first); i++) {
        ck_assert_msg(json_equal(json_array_get(first, i), json_array_get(second, i)),
                      "resumed at step %d, the record of step %zu is another", step, (size_t)step + i + 1);
    }
    json_decref(first);
    json_decref(second);
    first = final_state(one);
    second = final_state(other);
    ck_assert_msg(json_equal(first, second), "resumed at step %d, the final state is another", step);
    json_decref(first);
    json_decref(second);
    expect_same_file(one, other, "model.safetensors", step);
    expect_same_file(one, other, "optimizer.safetensors", step);
}

static void resume_everywhere(const struct course *course, uint64_t test)
{
    const char *folder = scratch_folder(), *data = write_data(folder, test), *whole = path_in(folder, "whole");
    train(course, data, whole, NULL);
    for (int step = 1; step < STEPS; step++) {
        char part[64];
        snprintf(part, sizeof part, "from_%d", step);
        const char *out = path_in(folder, part);
        snprintf(part, sizeof part, "checkpoints/step_%08d", step);
        train(course, data, out, path_in(whole, part));
        expect_same_run(whole, out, step);
    }
}

START_TEST(every_step_can_be_resumed_without_accumulation)
{
    resume_everywhere(&(struct course){"gpt2", "mxfp8", "6"}, 1);
}
END_TEST

START_TEST(every_step_can_be_resumed_with_accumulation_over_3)
{
    resume_everywhere(&(struct course){"llama", "fp4", "2"}, 2);
}
END_TEST

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A run at step 5 on a disk that takes its log, but not the checkpoint of step 10. */
START_TEST(a_run_that_a_full_disk_stopped_goes_on_with_the_same_bits)
{
    const struct course course = {"gpt2", "mxfp8", "6"};
    const char *folder = scratch_folder(), *data = write_data(folder, 4), *whole = path_in(folder, "whole"),
               *out = path_in(folder, "run");
    char command[2400];
    size_t bytes;
    train(&course, data, whole, NULL);
    snprintf(command, sizeof command,
             "mkdir -p '%s/checkpoints' && cp -r '%s/checkpoints/step_00000005' '%s/checkpoints'", out, whole, out);
    ck_assert_int_eq(system(command), 0);
    free(read_file(final_file(whole, "model.safetensors"), &bytes));
    limit_files(bytes - 1);
    const int exit_code = try_train(&course, data, out, "auto", "10");
    limit_files(RLIM_INFINITY);
    ck_assert_int_eq(exit_code, ERROR_FAILED);
    ck_assert_uint_eq(files_in(path_in(out, "checkpoints")), 1);
    ck_assert_int_eq(try_train(&course, data, out, "auto", "10"), 0);
    expect_same_file(whole, out, "model.safetensors", 5);
    expect_same_file(whole, out, "optimizer.safetensors", 5);
}
END_TEST

/* Counts up to both edges: the runs above would be equal without them too, but show less. */
START_TEST(the_run_crosses_epochs_within_a_step)
{
    ck_assert_int_gt(STEPS * 6, 3 * ROWS);
    ck_assert_int_ne(ROWS % 6, 0);
    const struct course course = {"gpt2", "mxfp8", "6"};
    const char *folder = scratch_folder(), *out = path_in(folder, "run");
    train(&course, write_data(folder, 3), out, NULL);
    FILE *file = fopen(path_in(out, "log.jsonl"), "r");
    char *line = NULL;
    size_t capacity = 0;
    ck_assert_ptr_nonnull(file);
    ck_assert_int_gt(getline(&line, &capacity, file), 0);
    json_t *start = json_loads(line, 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(start, "data"), "rows")), ROWS);
    json_decref(start);
    free(line);
    fclose(file);
}
END_TEST

Suite *suite_resume(void);
Suite *suite_resume(void)
{
    Suite *suite = suite_create("resume");
    TCase *tests = tcase_create("resume");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, every_step_can_be_resumed_without_accumulation);
    tcase_add_test(tests, every_step_can_be_resumed_with_accumulation_over_3);
    tcase_add_test(tests, a_run_that_a_full_disk_stopped_goes_on_with_the_same_bits);
    tcase_add_test(tests, the_run_crosses_epochs_within_a_step);
    suite_add_tcase(suite, tests);
    return suite;
}
