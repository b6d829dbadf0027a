/* check_readme.c: the commands that the READMEs show work as shown. */
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

START_TEST(the_first_page_runs)
{
    find_program();
    ck_assert_int_eq(system("tests/readme.sh README.md"), 0);
}
END_TEST

START_TEST(the_tour_of_attention_runs)
{
    find_program();
    ck_assert_int_eq(system("tests/readme.sh attention/README.md"), 0);
}
END_TEST

Suite *suite_readme(void);
Suite *suite_readme(void)
{
    Suite *suite = suite_create("readme");
    TCase *tests = tcase_create("readme");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_first_page_runs);
    tcase_add_test(tests, the_tour_of_attention_runs);
    suite_add_tcase(suite, tests);
    return suite;
}
