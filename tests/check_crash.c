/* check_crash.c: runs tests/crash.sh, which kills the program while it saves. 40 times here; `tests/crash.sh 200` by
 * hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support.h"

/* The program lies beside the runner of the tests, unless FLAMIA says otherwise. */
static void find_program(void)
{
    char path[1024];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "flamia");
    ck_assert_int_gt(length, 0);
    path[length] = 0;
    char *slash = strrchr(path, '/');
    ck_assert_ptr_nonnull(slash);
    memcpy(slash + 1, "flamia", sizeof "flamia");
    ck_assert_int_eq(setenv("FLAMIA", path, 0), 0);
    ck_assert_msg(access(getenv("FLAMIA"), X_OK) == 0, "%s is not there: `make` builds it", getenv("FLAMIA"));
}

START_TEST(a_run_killed_at_any_moment_goes_on_with_the_same_bits)
{
    find_program();
    ck_assert_int_eq(system(test_is_sanitized() ? "tests/crash.sh 10" : "tests/crash.sh 40"), 0);
}
END_TEST

Suite *suite_crash(void);
Suite *suite_crash(void)
{
    Suite *suite = suite_create("crash");
    TCase *tests = tcase_create("crash");
    tcase_set_timeout(tests, 240);
    tcase_add_test(tests, a_run_killed_at_any_moment_goes_on_with_the_same_bits);
    suite_add_tcase(suite, tests);
    return suite;
}
