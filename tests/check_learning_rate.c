/* check_learning_rate.c: the schedules' ends, middles and shapes. */
#include "tests/support.h"

#include <math.h>

#include "train/learning_rate.h"
#include "train/options.h"

static struct settings make(enum schedule_kind schedule, int64_t warmup)
{
    struct settings settings;
    options_defaults(COMMAND_TRAIN, &settings);
    settings.schedule = schedule;
    settings.warmup = warmup;
    settings.learning_rate = 0.5;
    settings.minimum_learning_rate = 0.2;
    settings.decay_share = 0.25;
    return settings;
}

static void assert_rate(const struct settings *settings, int64_t step, int64_t steps, double expected)
{
    const double rate = learning_rate_at(settings, step, steps);
    ck_assert_msg(fabs(rate - expected) <= 1e-15, "step %d: %.17g, expected %.17g", (int)step, rate, expected);
}

START_TEST(the_rate_rises_linearly_to_the_highest)
{
    for (int schedule = SCHEDULE_COSINE; schedule <= SCHEDULE_WSD; schedule++) {
        const struct settings s = make((enum schedule_kind)schedule, 10);
        assert_rate(&s, 0, 100, 0.05);
        assert_rate(&s, 4, 100, 0.25);
        assert_rate(&s, 9, 100, 0.5);
        assert_rate(&s, 10, 100, 0.5);
    }
}
END_TEST

START_TEST(the_last_step_has_the_lowest_rate)
{
    for (int schedule = SCHEDULE_COSINE; schedule <= SCHEDULE_WSD; schedule++) {
        const struct settings s = make((enum schedule_kind)schedule, 10);
        assert_rate(&s, 99, 100, schedule == SCHEDULE_CONSTANT ? 0.5 : 0.1);
    }
}
END_TEST

START_TEST(half_way_the_cosine_and_the_line_are_half_way_down)
{
    const struct settings cosine = make(SCHEDULE_COSINE, 10), line = make(SCHEDULE_LINEAR, 10);
    assert_rate(&cosine, 55, 101, 0.3);
    assert_rate(&line, 55, 101, 0.3);
    /* A quarter of the way the cosine is (1 - 1 / sqrt 2) / 2 down, the line a quarter. */
    assert_rate(&cosine, 30, 91, 0.5 - 0.4 * (0.5 - 0.5 * sqrt(0.5)));
    assert_rate(&line, 30, 91, 0.4);
}
END_TEST

START_TEST(wsd_holds_then_falls_in_a_line)
{
    const struct settings s = make(SCHEDULE_WSD, 10);
    assert_rate(&s, 74, 100, 0.5);
    assert_rate(&s, 75, 100, 0.5 - 0.4 / 25);
    assert_rate(&s, 87, 100, 0.5 - 0.4 * 13 / 25);
}
END_TEST

START_TEST(no_warm_up_begins_at_the_highest)
{
    for (int schedule = SCHEDULE_COSINE; schedule <= SCHEDULE_WSD; schedule++) {
        const struct settings s = make((enum schedule_kind)schedule, 0);
        assert_rate(&s, 0, 100, 0.5);
    }
}
END_TEST

START_TEST(a_run_of_one_step_has_a_rate)
{
    const struct settings s = make(SCHEDULE_COSINE, 0), warm = make(SCHEDULE_COSINE, 1);
    assert_rate(&s, 0, 1, 0.5);
    assert_rate(&warm, 0, 1, 0.5);
}
END_TEST

START_TEST(the_rate_never_rises_after_the_warm_up_and_stays_between_its_ends)
{
    struct random_stream random = random_stream(1);
    for (int round = 0; round < 200; round++) {
        const int64_t steps = 1 + (int64_t)random_below(&random, 300);
        struct settings s = make((enum schedule_kind)(round % 4), (int64_t)random_below(&random, (size_t)steps));
        s.decay_share = random_uniform(&random) * (double)(steps - s.warmup - 1) / (double)steps;
        struct error error;
        ck_assert(learning_rate_check(&s, steps, &error));
        double before = s.learning_rate;
        for (int64_t step = s.warmup; step < steps; step++) {
            const double rate = learning_rate_at(&s, step, steps);
            ck_assert(rate <= before);
            ck_assert(rate >= s.learning_rate * s.minimum_learning_rate * (1 - 1e-15));
            before = rate;
        }
    }
}
END_TEST

START_TEST(a_run_too_short_for_its_warm_up_is_refused)
{
    struct settings s = make(SCHEDULE_COSINE, 10);
    struct error error;
    ck_assert(learning_rate_check(&s, 10, &error));
    ck_assert(!learning_rate_check(&s, 9, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    s.schedule = SCHEDULE_WSD;
    s.decay_share = 0.5;
    ck_assert(learning_rate_check(&s, 20, &error));
    ck_assert(!learning_rate_check(&s, 19, &error));
}
END_TEST

Suite *suite_learning_rate(void);
Suite *suite_learning_rate(void)
{
    Suite *suite = suite_create("learning_rate");
    TCase *tests = tcase_create("learning_rate");
    tcase_add_test(tests, the_rate_rises_linearly_to_the_highest);
    tcase_add_test(tests, the_last_step_has_the_lowest_rate);
    tcase_add_test(tests, half_way_the_cosine_and_the_line_are_half_way_down);
    tcase_add_test(tests, wsd_holds_then_falls_in_a_line);
    tcase_add_test(tests, no_warm_up_begins_at_the_highest);
    tcase_add_test(tests, a_run_of_one_step_has_a_rate);
    tcase_add_test(tests, the_rate_never_rises_after_the_warm_up_and_stays_between_its_ends);
    tcase_add_test(tests, a_run_too_short_for_its_warm_up_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
