/* check_progress.c: the human line of a step. */
#include "tests/support.h"

#include <math.h>
#include <string.h>

#include "train/progress.h"

static const struct progress sample = {.step = 7,
                                       .steps = 1000,
                                       .loss = 5.4321987654,
                                       .gradient_norm = 0.12345,
                                       .learning_rate = 6e-4,
                                       .tokens_per_second = 12345.6,
                                       .flops_per_token = 1e6,
                                       .peak_flops = 1e11,
                                       .seconds_left = 3725.4};

START_TEST(the_line_has_all_of_a_step)
{
    char line[256];
    progress_line(&sample, line, sizeof line);
    ck_assert_str_eq(line,
                     "step    7/1000  loss 5.432199  norm 0.1235  lr 6.00e-04  12346 tok/s  mfu 12.3%  eta 1:02:05");
}
END_TEST

START_TEST(utilisation_is_not_made_up)
{
    struct progress progress = sample;
    char line[256];
    progress.peak_flops = 0;
    ck_assert(isnan(progress_mfu(&progress)));
    progress_line(&progress, line, sizeof line);
    ck_assert_ptr_nonnull(strstr(line, "mfu n/a"));
}
END_TEST

START_TEST(durations_carry_over)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0:00:00"},        {59.4, "0:00:59"}, {59.6, "0:01:00"}, {3599.5, "1:00:00"},
                 {360000, "100:00:00"}, {INFINITY, "n/a"}, {NAN, "n/a"},      {-1, "n/a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        progress_duration(cases[i].seconds, text, sizeof text);
        ck_assert_str_eq(text, cases[i].text);
    }
}
END_TEST

Suite *suite_progress(void);
Suite *suite_progress(void)
{
    Suite *suite = suite_create("progress");
    TCase *tests = tcase_create("progress");
    tcase_add_test(tests, the_line_has_all_of_a_step);
    tcase_add_test(tests, utilisation_is_not_made_up);
    tcase_add_test(tests, durations_carry_over);
    suite_add_tcase(suite, tests);
    return suite;
}
