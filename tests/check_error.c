/* check_error.c: errors are one bounded line, whatever they are made from. */
#include <stdlib.h>
#include <string.h>

#include "data/error.h"
#include "tests/support.h"

Suite *suite_error(void);

START_TEST(message_and_code_arrive)
{
    struct error error = {0};
    ck_assert(!error_set(&error, ERROR_USAGE, "%s: %d tokens", "a.bin", 7));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_str_eq(error.text, "a.bin: 7 tokens");
}
END_TEST

START_TEST(long_message_is_cut_visibly)
{
    struct error error;
    char name[2000];
    for (size_t length = 1; length < sizeof name; length += 97) {
        memset(name, 'x', length);
        name[length] = '\0';
        error_set(&error, ERROR_FAILED, "%s", name);
        if (length < sizeof error.text) {
            ck_assert_str_eq(error.text, name);
        } else {
            ck_assert_uint_eq(strlen(error.text), sizeof error.text - 1);
            ck_assert_str_eq(error.text + sizeof error.text - 5, "x...");
        }
    }
}
END_TEST

START_TEST(longest_message_that_fits_is_whole)
{
    struct error error;
    char name[sizeof error.text];
    memset(name, 'y', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    error_set(&error, ERROR_FAILED, "%s", name);
    ck_assert_str_eq(error.text, name);
}
END_TEST

START_TEST(message_may_be_put_before_an_earlier_one)
{
    struct error error;
    error_set(&error, ERROR_FAILED, "disk full");
    error_set(&error, error.code, "checkpoint: %s", error.text);
    ck_assert_str_eq(error.text, "checkpoint: disk full");
}
END_TEST

START_TEST(nobody_has_to_listen)
{
    ck_assert(!error_set(NULL, ERROR_FAILED, "%d", 1));
}
END_TEST

Suite *suite_error(void)
{
    Suite *suite = suite_create("error");
    TCase *tests = tcase_create("error");
    tcase_add_test(tests, message_and_code_arrive);
    tcase_add_test(tests, long_message_is_cut_visibly);
    tcase_add_test(tests, longest_message_that_fits_is_whole);
    tcase_add_test(tests, message_may_be_put_before_an_earlier_one);
    tcase_add_test(tests, nobody_has_to_listen);
    suite_add_tcase(suite, tests);
    return suite;
}
