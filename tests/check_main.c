/* check_main.c: the program as a user's shell sees it: exit codes, one line of error, help for every command. */
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/options.h"

/* The program lies beside the runner of the tests, unless FLAMIA says otherwise. */
static void find_program(void)
{
    char path[600];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    ck_assert_int_gt(length, 0);
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    ck_assert_ptr_nonnull(slash);
    memcpy(slash, "/flamia", sizeof "/flamia");
    ck_assert_int_eq(setenv("FLAMIA", path, 0), 0);
    const char *program = getenv("FLAMIA");
    ck_assert_msg(program && access(program, X_OK) == 0, "%s is not there: `make` builds it", path);
}

struct answer {
    int exit_code;
    char out[65536], err[4096];
};

static void read_whole(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    ck_assert_int_eq(fclose(file), 0);
}

/* "$FLAMIA" `words`; a word that begins with > says where stdout goes instead. */
static void ask(struct answer *answer, const char *words)
{
    char command[2048], out[600], err[600];
    const char *folder = scratch_folder();
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(err, sizeof err, "%s/err", folder);
    snprintf(command, sizeof command, "\"$FLAMIA\" >%s 2>%s %s", out, err, words); /* the last redirection holds */
    const int status = system(command);
    ck_assert(WIFEXITED(status));
    answer->exit_code = WEXITSTATUS(status);
    read_whole(out, answer->out, sizeof answer->out);
    read_whole(err, answer->err, sizeof answer->err);
}

static void assert_one_line(const struct answer *answer, const char *expected)
{
    ck_assert_msg(strncmp(answer->err, "flamia: ", 8) == 0 && strstr(answer->err, expected), "%s", answer->err);
    ck_assert_ptr_eq(strchr(answer->err, '\n'), answer->err + strlen(answer->err) - 1);
    ck_assert_str_eq(answer->out, "");
}

static struct answer answer; /* too large for the stack of a checker; each test has its own process */

START_TEST(no_command_is_a_usage_error_with_the_list)
{
    ask(&answer, "");
    ck_assert_int_eq(answer.exit_code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(answer.err, "train a model"));
}
END_TEST

START_TEST(an_unknown_command_is_refused_with_the_list)
{
    ask(&answer, "tran");
    ck_assert_int_eq(answer.exit_code, ERROR_USAGE);
    assert_one_line(&answer, "there is no command 'tran'; there are train");
}
END_TEST

START_TEST(every_command_has_help)
{
    struct answer all;
    ask(&all, "--help");
    ck_assert_int_eq(all.exit_code, 0);
    for (int command = 0; command < COMMAND_COUNT; command++) {
        char words[64];
        const struct command_info *info = command_info((enum command_id)command);
        ck_assert_msg(strstr(all.out, info->summary) != NULL, "%s", info->name);
        snprintf(words, sizeof words, "%s --help", info->name);
        ask(&answer, words);
        ck_assert_int_eq(answer.exit_code, 0);
        ck_assert_ptr_nonnull(strstr(answer.out, info->summary));
        ck_assert_str_eq(answer.err, "");
    }
}
END_TEST

START_TEST(every_command_refuses_an_unknown_option)
{
    for (int command = 0; command < COMMAND_COUNT; command++) {
        char words[64];
        snprintf(words, sizeof words, "%s --no-such-option", command_info((enum command_id)command)->name);
        ask(&answer, words);
        ck_assert_int_eq(answer.exit_code, ERROR_USAGE);
        assert_one_line(&answer, "--no-such-option is no option of");
    }
}
END_TEST

START_TEST(the_version_is_told)
{
    ask(&answer, "--version");
    ck_assert_int_eq(answer.exit_code, 0);
    ck_assert_int_eq(strncmp(answer.out, "flamia ", 7), 0);
}
END_TEST

START_TEST(an_answer_that_a_full_disk_loses_is_an_error)
{
    static const char *const asked[] = {"--version", "--help", "train --help", "train --print-config"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char words[64];
        snprintf(words, sizeof words, "%s >/dev/full", asked[i]);
        ask(&answer, words);
        ck_assert_int_eq(answer.exit_code, ERROR_FAILED);
        assert_one_line(&answer, "stdout cannot be written");
    }
}
END_TEST

START_TEST(printed_settings_are_taken_back)
{
    char words[700], path[600];
    snprintf(path, sizeof path, "%s/config.json", scratch_folder());
    snprintf(words, sizeof words, "train --preset llama-160m --lr 7e-5 --print-config >%s", path);
    ask(&answer, words);
    ck_assert_int_eq(answer.exit_code, 0);
    static char first[65536];
    read_whole(path, first, sizeof first);
    snprintf(words, sizeof words, "train --config %s --print-config", path);
    ask(&answer, words);
    ck_assert_int_eq(answer.exit_code, 0);
    ck_assert_str_eq(answer.out, first);
}
END_TEST

Suite *suite_main(void);
Suite *suite_main(void)
{
    Suite *suite = suite_create("main");
    TCase *tests = tcase_create("main");
    tcase_add_checked_fixture(tests, find_program, NULL);
    tcase_add_test(tests, no_command_is_a_usage_error_with_the_list);
    tcase_add_test(tests, an_unknown_command_is_refused_with_the_list);
    tcase_add_test(tests, every_command_has_help);
    tcase_add_test(tests, every_command_refuses_an_unknown_option);
    tcase_add_test(tests, the_version_is_told);
    tcase_add_test(tests, an_answer_that_a_full_disk_loses_is_an_error);
    tcase_add_test(tests, printed_settings_are_taken_back);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
