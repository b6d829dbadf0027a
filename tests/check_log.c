/* check_log.c: the run's record: what is written is read back, what a kill tore or a resumption left behind is dropped,
 * and a record that cannot be written is an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/files.h"
#include "train/log.h"
#include "train/signals.h"

static struct log open_log(const char *folder, int64_t step)
{
    struct log log;
    struct error error = {0};
    ck_assert_msg(log_open(&log, folder, step, &error), "%s", error.text);
    return log;
}

static void append(struct log *log, const char *event, int64_t step, double loss)
{
    struct error error = {0};
    ck_assert_msg(
        log_write(log, event, json_pack("{s:I, s:o}", "step", (json_int_t)step, "loss", log_real(loss)), &error), "%s",
        error.text);
}

/* The log's text, ended with a 0; freed by the caller. */
static char *text_of(const char *folder)
{
    size_t bytes;
    uint8_t *raw = read_file(path_in(folder, "log.jsonl"), &bytes);
    char *text = test_alloc(bytes + 1);
    memcpy(text, raw, bytes);
    text[bytes] = 0;
    free(raw);
    return text;
}

/* Records of the log as "event:step ...". */
static void expect_records(const char *folder, const char *expected)
{
    char *text = text_of(folder), *rest = text, found[512] = "";
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "no JSON: %s", line);
        ck_assert(json_is_real(json_object_get(record, "time")));
        const size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%s:%d", used ? " " : "",
                 json_string_value(json_object_get(record, "event")),
                 (int)json_integer_value(json_object_get(record, "step")));
        json_decref(record);
    }
    ck_assert_str_eq(found, expected);
    free(text);
}

START_TEST(a_record_a_line_with_9_significant_digits)
{
    const char *folder = scratch_folder();
    struct log log = open_log(folder, -1);
    append(&log, "step", 1, 1.0 / 3);
    append(&log, "step", 2, 123456789.123);
    log_close(&log);
    char *text = text_of(folder);
    ck_assert_ptr_nonnull(strstr(text, "\"loss\":0.333333333,"));
    ck_assert_ptr_nonnull(strstr(text, "\"loss\":123456789.0,"));
    ck_assert_ptr_eq(strchr(strchr(text, '\n') + 1, '\n'), text + strlen(text) - 1);
    free(text);
    expect_records(folder, "step:1 step:2");
}
END_TEST

START_TEST(what_is_not_finite_is_null)
{
    const char *folder = scratch_folder();
    struct log log = open_log(folder, -1);
    append(&log, "skip", 1, NAN);
    append(&log, "skip", 2, -INFINITY);
    log_close(&log);
    char *text = text_of(folder);
    ck_assert_ptr_nonnull(strstr(text, "\"loss\":null"));
    ck_assert_ptr_nonnull(strstr(strchr(text, '\n'), "\"loss\":null"));
    free(text);
}
END_TEST

START_TEST(a_new_run_does_not_write_into_an_old_log)
{
    const char *folder = scratch_folder();
    struct log log = open_log(folder, -1);
    struct error error = {0};
    log_close(&log);
    ck_assert(!log_open(&log, folder, -1, &error));
    assert_error_names(&error, "log.jsonl");
}
END_TEST

START_TEST(a_resumed_run_drops_later_records_and_its_end)
{
    const char *folder = scratch_folder();
    struct log log = open_log(folder, -1);
    append(&log, "start", 0, 0);
    for (int64_t step = 1; step <= 5; step++) {
        append(&log, "step", step, 1);
    }
    append(&log, "save", 3, 0);
    append(&log, "eval", 5, 0);
    append(&log, "end", 2, 0);
    log_close(&log);
    log = open_log(folder, 3);
    append(&log, "start", 3, 0);
    append(&log, "step", 4, 2);
    log_close(&log);
    expect_records(folder, "start:0 step:1 step:2 step:3 save:3 start:3 step:4");
}
END_TEST

START_TEST(a_torn_last_line_is_dropped_wherever_it_was_torn)
{
    const char *line = "{\"event\":\"step\",\"step\":2,\"time\":1.5}\n";
    const char *whole = "{\"event\":\"step\",\"step\":1,\"time\":1.0}\n";
    for (size_t length = 0; length < strlen(line); length++) {
        const char *folder = scratch_folder();
        char text[256];
        snprintf(text, sizeof text, "%s%.*s", whole, (int)length, line);
        write_file(path_in(folder, "log.jsonl"), text, strlen(text));
        struct log log = open_log(folder, 9);
        append(&log, "step", 3, 1);
        log_close(&log);
        expect_records(folder, "step:1 step:3");
    }
}
END_TEST

START_TEST(lines_that_are_no_records_are_dropped_when_resuming)
{
    const char *folder = scratch_folder();
    const char text[] = "{\"event\":\"step\",\"step\":1,\"time\":1.0}\nnonsense\n[1]\n\n{\"step\":1}\n\0\n"
                        "{\"event\":\"step\",\"step\":2,\"time\":1.0}\n";
    write_file(path_in(folder, "log.jsonl"), text, sizeof text - 1);
    struct log log = open_log(folder, 9);
    log_close(&log);
    expect_records(folder, "step:1 step:2");
}
END_TEST

START_TEST(a_resumed_run_without_a_log_begins_one)
{
    const char *folder = scratch_folder();
    struct log log = open_log(folder, 7);
    append(&log, "start", 7, 0);
    log_close(&log);
    expect_records(folder, "start:7");
}
END_TEST

START_TEST(a_record_that_does_not_fit_on_the_disk_is_an_error_and_the_earlier_ones_stay)
{
    const char *folder = scratch_folder();
    struct log log = open_log(folder, -1);
    struct error error = {0};
    struct rlimit limit;
    ck_assert(signals_install(&error));
    append(&log, "step", 1, 1);
    char *text = text_of(folder);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = strlen(text) + 10; /* room for a part of the next */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const bool written = log_write(&log, "step", json_pack("{s:i}", "step", 2), &error);
    limit.rlim_cur = before;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(!written);
    assert_error_names(&error, "log.jsonl");
    log_close(&log);
    log = open_log(folder, 1); /* the torn record goes */
    log_close(&log);
    expect_records(folder, "step:1");
    free(text);
}
END_TEST

START_TEST(a_folder_that_is_not_there_is_named)
{
    struct log log;
    struct error error = {0};
    ck_assert(!log_open(&log, path_in(scratch_folder(), "none"), -1, &error));
    assert_error_names(&error, "/none/log.jsonl");
}
END_TEST

Suite *suite_log(void);
Suite *suite_log(void)
{
    Suite *suite = suite_create("log");
    TCase *tests = tcase_create("log");
    tcase_add_test(tests, a_record_a_line_with_9_significant_digits);
    tcase_add_test(tests, what_is_not_finite_is_null);
    tcase_add_test(tests, a_new_run_does_not_write_into_an_old_log);
    tcase_add_test(tests, a_resumed_run_drops_later_records_and_its_end);
    tcase_add_test(tests, a_torn_last_line_is_dropped_wherever_it_was_torn);
    tcase_add_test(tests, lines_that_are_no_records_are_dropped_when_resuming);
    tcase_add_test(tests, a_resumed_run_without_a_log_begins_one);
    tcase_add_test(tests, a_record_that_does_not_fit_on_the_disk_is_an_error_and_the_earlier_ones_stay);
    tcase_add_test(tests, a_folder_that_is_not_there_is_named);
    suite_add_tcase(suite, tests);
    return suite;
}
