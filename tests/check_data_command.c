/* check_data_command.c: `flamia data` describes, checks and writes data sets, and refuses misuse before it touches a
 * file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/shard.h"
#include "tests/files.h"
#include "train/commands.h"

Suite *suite_data_command(void);

static struct dataset *open_set(const char *path)
{
    struct error error = {0};
    struct dataset *dataset = dataset_open(path, "none", &error);
    ck_assert_msg(dataset != NULL, "%s", error.text);
    return dataset;
}

/* Runs `flamia data` with the words of `arguments` (parted by single spaces) and standard input from `input`; returns
 * its exit code. Its standard output goes to FOLDER/out, standard error to FOLDER/err. */
static int run_data(const char *folder, const char *arguments, const char *input)
{
    char *words = strdup(arguments), *argv[32] = {(char *)"data"};
    int argc = 1;
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    const char *out = path_in(folder, "out"), *err = path_in(folder, "err");
    fflush(NULL);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const int in_fd = open(input, O_RDONLY), out_fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600),
                  err_fd = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (in_fd < 0 || out_fd < 0 || err_fd < 0 || dup2(in_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(err_fd, 2) < 0) {
            _exit(99);
        }
        const int code = command_data(argc, argv);
        fflush(NULL);
        _exit(code);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    free(words);
    return WEXITSTATUS(status);
}

static void assert_said(const char *folder, const char *stream, const char *part)
{
    size_t count;
    uint8_t *text = read_file(path_in(folder, stream), &count);
    ck_assert_msg(memmem(text, count, part, strlen(part)) != NULL, "\"%.*s\" does not say \"%s\"", (int)count,
                  (const char *)text, part);
    free(text);
}

static const char *write_words(const char *folder, const uint32_t *words, size_t count, size_t extra_bytes)
{
    const char *path = path_in(folder, "ids");
    uint8_t *bytes = test_alloc(4 * count + extra_bytes);
    for (size_t i = 0; i < count; i++) {
        file_put_u32(bytes + 4 * i, words[i]);
    }
    write_file(path, bytes, 4 * count + extra_bytes);
    free(bytes);
    return path;
}

#define END UINT32_C(0xFFFFFFFF)

START_TEST(written_shard_has_the_documents_of_its_input)
{
    const char *folder = scratch_folder();
    char arguments[600];
    const uint32_t words[] = {1, 2, END, END, 3, END, 299, 0};
    snprintf(arguments, sizeof arguments, "write --out %s/x.bin --vocabulary 300 --tokenizer mine --end-of-text 7",
             folder);
    ck_assert_int_eq(run_data(folder, arguments, write_words(folder, words, 8, 0)), 0);
    struct dataset *dataset = open_set(path_in(folder, "x.bin"));
    ck_assert_uint_eq(dataset_tokens(dataset), 5);
    ck_assert_uint_eq(dataset_documents(dataset), 3);
    ck_assert_uint_eq(dataset_empty_documents(dataset), 1);
    ck_assert_str_eq(dataset_tokenizer(dataset), "mine");
    int64_t starts[3];
    ck_assert_uint_eq(dataset_starts(dataset, 0, 5, starts, 3), 2);
    ck_assert(starts[0] == 2 && starts[1] == 3);
    ck_assert_int_eq(dataset_file(dataset, 0).shard->end_of_text, 7);
    dataset_close(dataset);
    snprintf(arguments, sizeof arguments, "info %s/x.bin", folder);
    ck_assert_int_eq(run_data(folder, arguments, "/dev/null"), 0);
    assert_said(folder, "out", "tokenizer   mine, vocabulary 300, end of text 7");
    assert_said(folder, "out", "3 (and 1 empty); shortest 1, median 2, longest 2");
}
END_TEST

START_TEST(long_input_arrives_whole)
{
    struct random_stream random = random_stream(4);
    const char *folder = scratch_folder();
    char arguments[600];
    const size_t count = 16384 * 2 + random_below(&random, 40000); /* several reads of the input */
    uint32_t *words = test_alloc(count * sizeof *words);
    size_t tokens = 0, documents = 1;
    for (size_t i = 0; i < count; i++) {
        const bool separator = i > 0 && i + 1 < count && random_below(&random, 100) == 0;
        words[i] = separator ? END : (uint32_t)random_below(&random, 100000);
        tokens += !separator, documents += separator;
    }
    snprintf(arguments, sizeof arguments, "write --out %s/x.bin --vocabulary=100000", folder);
    ck_assert_int_eq(run_data(folder, arguments, write_words(folder, words, count, 0)), 0);
    struct dataset *dataset = open_set(path_in(folder, "x.bin"));
    int32_t *ids = test_alloc(tokens * sizeof *ids);
    struct error error;
    ck_assert_uint_eq(dataset_tokens(dataset), tokens);
    ck_assert_uint_eq(dataset_documents(dataset) + dataset_empty_documents(dataset), documents);
    ck_assert(dataset_read(dataset, 0, tokens, ids, &error));
    for (size_t i = 0, at = 0; i < count; i++) {
        if (words[i] != END) {
            ck_assert_int_eq(ids[at++], (int32_t)words[i]);
        }
    }
    dataset_close(dataset);
    free(ids);
    free(words);
}
END_TEST

START_TEST(bad_input_leaves_no_shard)
{
    const char *folder = scratch_folder();
    char arguments[600];
    const uint32_t good[] = {1, 2}, wild[] = {1, 300}, empty[] = {END, END};
    snprintf(arguments, sizeof arguments, "write --out %s/x.bin --vocabulary 300", folder);
    ck_assert_int_eq(run_data(folder, arguments, write_words(folder, good, 2, 3)), 1);
    assert_said(folder, "err", "3 bytes of an id");
    ck_assert_int_eq(run_data(folder, arguments, write_words(folder, wild, 2, 0)), 1);
    assert_said(folder, "err", "token 1 is 300");
    ck_assert_int_eq(run_data(folder, arguments, write_words(folder, empty, 2, 0)), 1);
    assert_said(folder, "err", "holds no token");
    ck_assert_int_eq(run_data(folder, arguments, write_words(folder, good, 0, 0)), 1);
    ck_assert_uint_eq(files_in(folder), 3); /* ids, out, err */
}
END_TEST

START_TEST(check_goes_on_after_a_bad_file)
{
    const char *folder = scratch_folder();
    char arguments[1200];
    const uint32_t ids[] = {1, 2, 9};
    write_gpt2_shard(path_in(folder, "a.bin"), ids, 3);
    write_gpt2_shard(path_in(folder, "b.bin"), ids, 3);
    ck_assert_int_eq(truncate(path_in(folder, "a.bin"), 1028), 0);
    snprintf(arguments, sizeof arguments, "check %s/a.bin %s/b.bin", folder, folder);
    ck_assert_int_eq(run_data(folder, arguments, "/dev/null"), 1);
    assert_said(folder, "err", "a.bin: header says 3 tokens");
    assert_said(folder, "out", "b.bin: ok, 3 tokens, 1 documents");
    snprintf(arguments, sizeof arguments, "check --vocabulary 9 %s/b.bin", folder);
    ck_assert_int_eq(run_data(folder, arguments, "/dev/null"), 1);
    assert_said(folder, "err", "token 2 (offset 1028) is 9");
}
END_TEST

START_TEST(misuse_is_exit_code_two)
{
    static const char *const cases[] = {
        "",
        "frobnicate",
        "info",
        "check",
        "write",
        "write --out /nonexistent/x.bin",
        "write --vocabulary 300",
        "write --vocabulary 300 --out /nonexistent/x.bin extra",
        "write --vocabulary 300 --out /nonexistent/x.bin --width 3",
        "write --vocabulary 300 --out /nonexistent/x.bin --width 1",
        "write --vocabulary 300 --out /nonexistent/x.bin --end-of-text 300",
        "write --vocabulary 300 --out /nonexistent/x.bin --end-of-text=-1",
        "write --vocabulary 300 --out /nonexistent/x.bin --end-of-text 1x",
        "write --vocabulary 300 --out /nonexistent/x.bin --documents length:2",
        "write --vocabulary 300 --vocabulary 300 --out /nonexistent/x.bin",
        "info --out x /nonexistent",
        "info --vocabulary 7 /nonexistent",
        "check --frobnicate /nonexistent",
        "check --documents lines /nonexistent",
    };
    const char *folder = scratch_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(run_data(folder, cases[i], "/dev/null") == 2, "data %s", cases[i]);
        assert_said(folder, "err", "flamia: ");
    }
}
END_TEST

Suite *suite_data_command(void)
{
    Suite *suite = suite_create("data_command");
    TCase *tests = tcase_create("data_command");
    tcase_add_test(tests, written_shard_has_the_documents_of_its_input);
    tcase_add_test(tests, long_input_arrives_whole);
    tcase_add_test(tests, bad_input_leaves_no_shard);
    tcase_add_test(tests, check_goes_on_after_a_bad_file);
    tcase_add_test(tests, misuse_is_exit_code_two);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
