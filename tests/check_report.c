/* check_report.c: the page holds what the logs hold, needs nothing from outside, and is whole or not there. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attention/recipe.h"
#include "tests/files.h"
#include "train/commands.h"
#include "train/report.h"
#include "train/report_picture.h"
#include "train/report_template.h"

/* A run folder with this log. */
static const char *make_run(const char *name, const char *log)
{
    const char *folder = path_in(scratch_folder(), name);
    char command[1200];
    snprintf(command, sizeof command, "mkdir -p '%s'", folder);
    ck_assert_int_eq(system(command), 0);
    write_file(path_in(folder, "log.jsonl"), log, strlen(log));
    return folder;
}

static const char small_log[] =
    "{\"event\":\"start\",\"step\":0,\"time\":1}\n"
    "{\"event\":\"step\",\"step\":1,\"loss\":5.5,\"grad_norm\":2,\"lr\":0.001,\"tokens_per_s\":100}\n"
    "{\"event\":\"step\",\"step\":2,\"loss\":null,\"grad_norm\":3,\"lr\":0.002}\n"
    "{\"event\":\"eval\",\"step\":2,\"own\":4.5,\"exact\":4.75,\"gap\":-0.25,\"gap_se\":0.5,\"bits_per_byte\":6,"
    "\"recipe\":\"mxfp8\",\"verdict\":\"</"
    "script><b>\",\"position_gap\":[1,null,\"x\"],\"position_se\":[0.5,0.5,0.5]}\n";

static json_t *read_run(const char *folder)
{
    struct error error = {0};
    json_t *run = report_run(folder, &error);
    ck_assert_msg(run != NULL, "%s", error.text);
    return run;
}

static double number(const json_t *run, const char *curve, size_t index)
{
    const json_t *item = json_array_get(json_object_get(run, curve), index);
    return json_is_number(item) ? json_number_value(item) : (double)NAN;
}

START_TEST(a_run_is_read_from_its_log)
{
    json_t *run = read_run(make_run("first", small_log));
    ck_assert_str_eq(json_string_value(json_object_get(run, "name")), "first");
    ck_assert_str_eq(json_string_value(json_object_get(run, "recipe")), "mxfp8");
    ck_assert_uint_eq(json_array_size(json_object_get(run, "steps")), 2);
    ck_assert(number(run, "steps", 1) == 2 && number(run, "loss", 0) == 5.5 && isnan(number(run, "loss", 1)));
    ck_assert(number(run, "grad_norm", 1) == 3 && number(run, "lr", 1) == 0.002);
    ck_assert(isnan(number(run, "tokens_per_s", 1)));
    const json_t *evaluation = json_array_get(json_object_get(run, "evals"), 0);
    ck_assert(json_number_value(json_object_get(evaluation, "gap")) == -0.25);
    const json_t *gaps = json_object_get(json_object_get(run, "position"), "gap");
    ck_assert_uint_eq(json_array_size(gaps), 3);
    ck_assert(json_is_null(json_array_get(gaps, 1)) && json_is_null(json_array_get(gaps, 2)));
    json_decref(run);
}
END_TEST

START_TEST(long_runs_are_drawn_as_means_that_keep_every_step)
{
    const size_t steps = 2345;
    char *log = test_alloc(steps * 64), *at = log;
    double sum = 0, total = 0;
    for (size_t i = 1; i <= steps; i++) {
        at += sprintf(at, "{\"event\":\"step\",\"step\":%zu,\"loss\":%zu}\n", i, i % 7);
    }
    json_t *run = read_run(make_run("long", log));
    const size_t stride = (size_t)json_integer_value(json_object_get(run, "stride")),
                 points = json_array_size(json_object_get(run, "steps"));
    ck_assert_uint_le(points, 1000);
    ck_assert_uint_eq(points, (steps + stride - 1) / stride);
    ck_assert(number(run, "steps", points - 1) == (double)steps);
    for (size_t p = 0; p < points; p++) {
        const size_t count = p + 1 < points ? stride : steps - p * stride;
        sum += number(run, "loss", p) * (double)count;
    }
    for (size_t i = 1; i <= steps; i++) {
        total += (double)(i % 7);
    }
    ck_assert_double_eq_tol(sum, total, 1e-6);
    json_decref(run);
    free(log);
}
END_TEST

START_TEST(torn_and_foreign_lines_are_passed_over)
{
    char log[2048];
    snprintf(log, sizeof log, "nonsense\n[1,2]\n{\"event\":7}\n{\"event\":\"step\"}\n%s{\"event\":\"step\",\"st",
             small_log);
    json_t *run = read_run(make_run("torn", log));
    ck_assert_uint_eq(json_array_size(json_object_get(run, "steps")), 2);
    json_decref(run);
}
END_TEST

START_TEST(a_folder_without_a_run_or_with_an_empty_one_is_named)
{
    struct error error = {0};
    ck_assert_ptr_null(report_run(path_in(scratch_folder(), "none"), &error));
    assert_error_names(&error, "/none/log.jsonl");
    ck_assert_ptr_null(report_run(make_run("empty", "{\"event\":\"start\",\"step\":0}\n"), &error));
    assert_error_names(&error, "nothing to draw");
}
END_TEST

/* The page's text, ended with a 0. */
static char *page_of(const char *path)
{
    size_t bytes;
    uint8_t *raw = read_file(path, &bytes);
    char *page = test_alloc(bytes + 1);
    memcpy(page, raw, bytes);
    page[bytes] = 0;
    free(raw);
    return page;
}

START_TEST(the_page_holds_the_runs_and_no_text_of_theirs_ends_the_script)
{
    const char *runs[] = {make_run("</script>", small_log), make_run("b<!--", small_log)};
    const char *path = path_in(scratch_folder(), "page.html");
    struct error error = {0};
    ck_assert_msg(report_write(path, runs, 2, NULL, &error), "%s", error.text);
    char *page = page_of(path);
    char *begin = strstr(page, "id=\"data\">");
    ck_assert_ptr_nonnull(begin);
    begin += strlen("id=\"data\">");
    const size_t length = strcspn(begin, "<");
    ck_assert_int_eq(strncmp(begin + length, "</script>", 9), 0);
    json_t *data = json_loadb(begin, length, 0, NULL);
    ck_assert_ptr_nonnull(data);
    const json_t *run = json_array_get(json_object_get(data, "runs"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(run, "name")), "b<!--");
    const json_t *evaluation = json_array_get(json_object_get(run, "evals"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(evaluation, "verdict")), "</script><b>");
    ck_assert_ptr_null(strstr(page, "@REPORT_DATA@"));
    ck_assert_ptr_nonnull(strstr(begin + length, "</html>"));
    json_decref(data);
    free(page);
}
END_TEST

START_TEST(the_template_is_the_committed_file_and_asks_nobody_for_anything)
{
    size_t bytes;
    uint8_t *file = read_file("scripts/report.html", &bytes);
    ck_assert_uint_eq(report_template_bytes, bytes);
    ck_assert_int_eq(memcmp(report_template, file, bytes), 0);
    const char *page = (const char *)report_template;
    const char *const outside[] = {"src=", "href=", "url(", "@import", "https://", "fetch(", "XMLHttp", "import("};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        ck_assert_msg(strstr(page, outside[i]) == NULL, "the page has %s", outside[i]);
    }
    /* The name of SVG's elements is the only address, and not one that is loaded. */
    for (const char *at = page; (at = strstr(at, "http://")); at++) {
        ck_assert_int_eq(strncmp(at, "http://www.w3.org/2000/svg", 26), 0);
    }
    free(file);
}
END_TEST

START_TEST(a_page_that_cannot_be_written_is_an_error)
{
    const char *run = make_run("run", small_log);
    struct error error = {0};
    ck_assert(!report_write(path_in(scratch_folder(), "none/page.html"), &run, 1, NULL, &error));
    assert_error_names(&error, "none/page.html");
    assert_devices_are_safe();
    if (access("/dev/full", W_OK) == 0) {
        ck_assert(!report_write("/dev/full", &run, 1, NULL, &error));
        assert_error_names(&error, "/dev/full");
    }
}
END_TEST

/* Cells above the diagonal that are not 0. */
static size_t seen_later(const json_t *picture)
{
    const json_t *rows = json_object_get(picture, "changes");
    size_t seen = 0;
    ck_assert_uint_eq(json_array_size(rows), PICTURE_TOKENS);
    for (size_t i = 0; i < PICTURE_TOKENS; i++) {
        const json_t *row = json_array_get(rows, i);
        ck_assert_uint_eq(json_array_size(row), PICTURE_TOKENS);
        for (size_t j = i + 1; j < PICTURE_TOKENS; j++) {
            const json_t *change = json_array_get(row, j);
            seen += !json_is_number(change) || json_number_value(change) != 0;
        }
    }
    return seen;
}

START_TEST(the_picture_of_an_exact_recipe_is_empty_above_its_diagonal_and_a_leaky_one_is_not)
{
    struct error error = {0};
    omp_set_num_threads(1); /* hundreds of small passes: two threads on a busy machine wait for each other in each */
    json_t *exact = report_picture(recipe_find("exact"), 16, &error);
    json_t *leaky = report_picture(recipe_find("fp4-leaky"), 16, &error);
    ck_assert_msg(exact && leaky, "%s", error.text);
    ck_assert_str_eq(json_string_value(json_object_get(exact, "verdict")), "exact");
    ck_assert_str_eq(json_string_value(json_object_get(leaky, "verdict")), "leaky");
    ck_assert_uint_eq(seen_later(exact), 0);
    ck_assert_uint_gt(seen_later(leaky), 100);
    ck_assert_double_gt(json_number_value(json_array_get(json_array_get(json_object_get(exact, "changes"), 9), 9)), 0);
    json_decref(exact);
    json_decref(leaky);
}
END_TEST

START_TEST(the_command_writes_beside_the_run_unless_told_otherwise)
{
    const char *run = make_run("run", small_log), *other = path_in(scratch_folder(), "other.html");
    char *beside[] = {(char *)"report", (char *)run};
    char *told[] = {(char *)"report", (char *)run, (char *)"--out", (char *)other};
    char *nothing[] = {(char *)"report"};
    ck_assert_int_eq(command_report(2, beside), 0);
    ck_assert_int_eq(access(path_in(run, "report.html"), R_OK), 0);
    ck_assert_int_eq(command_report(4, told), 0);
    ck_assert_int_eq(access(other, R_OK), 0);
    ck_assert_int_eq(command_report(1, nothing), ERROR_USAGE);
}
END_TEST

Suite *suite_report(void);
Suite *suite_report(void)
{
    Suite *suite = suite_create("report");
    TCase *tests = tcase_create("report");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_run_is_read_from_its_log);
    tcase_add_test(tests, long_runs_are_drawn_as_means_that_keep_every_step);
    tcase_add_test(tests, torn_and_foreign_lines_are_passed_over);
    tcase_add_test(tests, a_folder_without_a_run_or_with_an_empty_one_is_named);
    tcase_add_test(tests, the_page_holds_the_runs_and_no_text_of_theirs_ends_the_script);
    tcase_add_test(tests, the_template_is_the_committed_file_and_asks_nobody_for_anything);
    tcase_add_test(tests, a_page_that_cannot_be_written_is_an_error);
    tcase_add_test(tests, the_picture_of_an_exact_recipe_is_empty_above_its_diagonal_and_a_leaky_one_is_not);
    tcase_add_test(tests, the_command_writes_beside_the_run_unless_told_otherwise);
    suite_add_tcase(suite, tests);
    return suite;
}
