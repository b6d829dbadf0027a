/* check_signals.c: the first signal asks, the second ends the process; a full disk and a closed pipe are errors. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/files.h"
#include "train/signals.h"

START_TEST(a_first_signal_is_a_request)
{
    const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < 2; i++) {
        struct error error = {0};
        ck_assert_msg(signals_install(&error), "%s", error.text);
        ck_assert_int_eq(signals_requested(), 0);
        ck_assert_int_eq(raise(numbers[i]), 0);
        ck_assert_int_eq(signals_requested(), numbers[i]);
    }
}
END_TEST

START_TEST(a_second_signal_ends_the_process_at_once)
{
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (signals_install(NULL) && raise(SIGINT) == 0 && signals_requested() == SIGINT) {
            raise(SIGTERM);
        }
        _exit(7);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGTERM);
}
END_TEST

START_TEST(a_closed_pipe_is_an_error_of_write)
{
    int ends[2];
    ck_assert(signals_install(NULL));
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    ck_assert_int_eq(write(ends[1], "x", 1), -1);
    ck_assert_int_eq(errno, EPIPE);
    close(ends[1]);
}
END_TEST

START_TEST(a_file_size_limit_is_an_error_of_write)
{
    struct rlimit before;
    ck_assert(signals_install(NULL));
    FILE *file = fopen(path_in(scratch_folder(), "file"), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, before.rlim_max}), 0);
    const ssize_t written = write(fileno(file), "x", 1);
    const int reason = errno;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(written, -1);
    ck_assert_int_eq(reason, EFBIG);
    fclose(file);
}
END_TEST

Suite *suite_signals(void);
Suite *suite_signals(void)
{
    Suite *suite = suite_create("signals");
    TCase *tests = tcase_create("signals");
    tcase_add_test(tests, a_first_signal_is_a_request);
    tcase_add_test(tests, a_second_signal_ends_the_process_at_once);
    tcase_add_test(tests, a_closed_pipe_is_an_error_of_write);
    tcase_add_test(tests, a_file_size_limit_is_an_error_of_write);
    suite_add_tcase(suite, tests);
    return suite;
}
