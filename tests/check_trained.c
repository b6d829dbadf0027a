/* check_trained.c: `flamia eval` and `flamia generate` on a run that `flamia train` left, and what they refuse. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/file.h"
#include "tests/files.h"
#include "train/commands.h"
#include "train/probe_weights.h"

#define OPTIONS_MOST 48

struct place {
    const char *folder, *data, *run, *output, *errors;
};

static struct place make_place(void)
{
    struct place place = {.folder = scratch_folder()};
    place.data = path_in(place.folder, "text");
    place.run = path_in(place.folder, "run");
    place.output = path_in(place.folder, "stdout");
    place.errors = path_in(place.folder, "stderr");
    char text[8000];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = "the cat sat on the mat. "[i % 24];
    }
    write_file(place.data, text, sizeof text);
    return place;
}

/* Runs a command with its output in the place's files. */
static int call(const struct place *place, int (*command)(int, char **), const char *const *words)
{
    char *argv[OPTIONS_MOST];
    int argc = 0;
    for (; words[argc]; argc++) {
        ck_assert_int_lt(argc, OPTIONS_MOST);
        argv[argc] = (char *)words[argc];
    }
    ck_assert_ptr_nonnull(freopen(place->output, "wb", stdout));
    ck_assert_ptr_nonnull(freopen(place->errors, "wb", stderr));
    const int exit_code = command(argc, argv);
    fflush(stdout);
    fflush(stderr);
    return exit_code;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void train(const struct place *place, const char *vocabulary)
{
    const int exit_code = call(place, command_train,
                               WORDS("train", "--data", place->data, "--out", place->run, "--layers", "1", "--width",
                                     "32", "--heads", "2", "--seq-len", "32", "--batch", "4", "--steps", "20", "--lr",
                                     "3e-3", "--warmup", "0", "--eval-every", "0", "--eval-tokens", "256", "--quiet",
                                     "--threads", "1", "--vocabulary", vocabulary));
    ck_assert_int_eq(exit_code, 0);
}

/* A file's text, ended with a 0; freed by the caller. */
static char *text_of(const char *path)
{
    size_t bytes;
    uint8_t *raw = read_file(path, &bytes);
    char *text = test_alloc(bytes + 1);
    memcpy(text, raw, bytes);
    text[bytes] = 0;
    free(raw);
    return text;
}

static void expect_said(const struct place *place, const char *part)
{
    char *text = text_of(place->errors);
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" does not say \"%s\"", text, part);
    ck_assert_msg(strncmp(text, "flamia: ", 8) == 0, "%s", text);
    free(text);
}

/* ---- generate ---- */

#define GENERATE(place, ...) call(place, command_generate, WORDS("generate", "--checkpoint", (place)->run, __VA_ARGS__))

START_TEST(generation_begins_with_the_prompt_and_has_the_length_asked_for)
{
    const struct place place = make_place();
    train(&place, "256");
    /* 32 is the model's context: the text outgrows it three times over. */
    ck_assert_int_eq(GENERATE(&place, "--prompt", "the cat", "--max-new-tokens", "100"), 0);
    size_t bytes;
    uint8_t *text = read_file(place.output, &bytes);
    ck_assert_uint_eq(bytes, 7 + 100 + 1);
    ck_assert_int_eq(memcmp(text, "the cat", 7), 0);
    ck_assert_int_eq(text[bytes - 1], '\n');
    free(text);
}
END_TEST

START_TEST(generation_is_a_function_of_the_seed)
{
    const struct place place = make_place();
    char *texts[3];
    const char *const seeds[] = {"5", "5", "6"};
    train(&place, "256");
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(GENERATE(&place, "--seed", seeds[i], "--temperature", "2", "--max-new-tokens", "60"), 0);
        texts[i] = text_of(place.output);
    }
    ck_assert_str_eq(texts[0], texts[1]);
    ck_assert_str_ne(texts[0], texts[2]); /* 60 tokens at twice the temperature: equal by chance below 1e-20 */
    for (size_t i = 0; i < 3; i++) {
        free(texts[i]);
    }
}
END_TEST

START_TEST(a_prompt_longer_than_the_context_is_cut_and_said_so)
{
    const struct place place = make_place();
    char prompt[101];
    memset(prompt, 'a', 100);
    prompt[100] = 0;
    train(&place, "256");
    ck_assert_int_eq(GENERATE(&place, "--prompt", prompt, "--max-new-tokens", "5"), 0);
    expect_said(&place, "100 tokens, the model's context 32");
}
END_TEST

START_TEST(a_model_of_other_tokens_speaks_ids)
{
    const struct place place = make_place();
    train(&place, "300");
    ck_assert_int_eq(GENERATE(&place, "--prompt", "116 104,101", "--max-new-tokens", "4", "--temperature", "0"), 0);
    char *text = text_of(place.output);
    int ids[7], used = 0;
    ck_assert_int_eq(
        sscanf(text, "%d %d %d %d %d %d %d %n", &ids[0], &ids[1], &ids[2], &ids[3], &ids[4], &ids[5], &ids[6], &used),
        7);
    ck_assert(ids[0] == 116 && ids[1] == 104 && ids[2] == 101);
    ck_assert_int_eq(text[used], '\0');
    free(text);
    ck_assert_int_eq(GENERATE(&place, "--max-new-tokens", "4"), ERROR_USAGE);
    expect_said(&place, "--prompt");
    ck_assert_int_eq(GENERATE(&place, "--prompt", "12 300"), ERROR_USAGE);
    expect_said(&place, "'300'");
    ck_assert_int_eq(GENERATE(&place, "--prompt", "hello"), ERROR_USAGE);
    expect_said(&place, "'hello'");
    ck_assert_int_eq(GENERATE(&place, "--prompt", "12 -3"), ERROR_USAGE);
    ck_assert_int_eq(GENERATE(&place, "--prompt", "99999999999999999999"), ERROR_USAGE);
}
END_TEST

START_TEST(a_tokenizer_turns_ids_into_text)
{
    const struct place place = make_place();
    const char *tokenizer = path_in(place.folder, "tokenizer.bin");
    /* llm.c's version 2: 256 words of header, then each token's length and bytes; token i is "<i>". */
    uint8_t bytes[1024 + 300 * 8] = {0};
    size_t used = 1024;
    file_put_u32(bytes, 20240328);
    file_put_u32(bytes + 4, 2);
    file_put_u32(bytes + 8, 300);
    file_put_u32(bytes + 12, 299);
    for (int i = 0; i < 300; i++) {
        const int length = sprintf((char *)bytes + used + 1, "<%d>", i);
        bytes[used] = (uint8_t)length;
        used += 1 + (size_t)length;
    }
    write_file(tokenizer, bytes, used);
    train(&place, "300");
    ck_assert_int_eq(GENERATE(&place, "--prompt", "7 8", "--max-new-tokens", "1", "--tokenizer", tokenizer), 0);
    char *text = text_of(place.output);
    ck_assert_msg(strncmp(text, "<7><8><", 7) == 0, "%s", text);
    free(text);
}
END_TEST

START_TEST(what_cannot_be_generated_from_is_refused)
{
    const struct place place = make_place();
    ck_assert_int_eq(call(&place, command_generate, WORDS("generate", "--prompt", "a")), ERROR_USAGE);
    expect_said(&place, "--checkpoint");
    ck_assert_int_eq(GENERATE(&place, "--prompt", "a"), ERROR_FAILED);
    expect_said(&place, place.run);
    train(&place, "256");
    ck_assert_int_eq(GENERATE(&place, "--recipe", "mxfp8"), ERROR_USAGE);
    expect_said(&place, "--recipe mxfp8");
    ck_assert_int_eq(truncate(path_in(place.run, "checkpoints/step_00000020/model.safetensors"), 999), 0);
    ck_assert_int_eq(GENERATE(&place, "--prompt", "a"), ERROR_FAILED);
    expect_said(&place, "model.safetensors");
}
END_TEST

START_TEST(output_that_nobody_takes_is_an_error)
{
    struct place place = make_place();
    train(&place, "256");
    if (access("/dev/full", W_OK) != 0) {
        return;
    }
    place.output = "/dev/full";
    ck_assert_int_eq(GENERATE(&place, "--prompt", "a"), ERROR_FAILED);
    expect_said(&place, "standard output");
    ck_assert_int_eq(call(&place, command_eval, WORDS("eval", "--checkpoint", place.run)), ERROR_FAILED);
    expect_said(&place, "standard output");
}
END_TEST

/* ---- eval ---- */

/* The number that follows `name` at a line's start in what eval printed. */
static double printed(const struct place *place, const char *name)
{
    char *text = text_of(place->output), *rest = text;
    double value = (double)NAN;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtod(line + strlen(name), NULL);
        }
    }
    free(text);
    return value;
}

/* `key` of the log's last evaluation. */
static double logged(const struct place *place, const char *key)
{
    char *text = text_of(path_in(place->run, "log.jsonl")), *rest = text;
    double value = (double)NAN;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        json_t *record = json_loads(line, 0, NULL);
        if (strcmp(json_string_value(json_object_get(record, "event")), "eval") == 0) {
            value = json_number_value(json_object_get(record, key));
        }
        json_decref(record);
    }
    free(text);
    return value;
}

START_TEST(evaluating_a_run_gives_what_its_last_evaluation_gave)
{
    const struct place place = make_place();
    train(&place, "256");
    ck_assert_int_eq(call(&place, command_eval,
                          WORDS("eval", "--checkpoint", place.run, "--eval-tokens", "256", "--micro-batch", "4")),
                     0);
    /* The same computation: only the six printed digits are between them. */
    ck_assert_double_eq_tol(printed(&place, "own"), logged(&place, "own"), 1e-6);
    ck_assert_double_eq_tol(printed(&place, "exact"), logged(&place, "exact"), 1e-6);
    ck_assert_double_eq_tol(printed(&place, "gap  "), logged(&place, "gap"), 1e-6);
    ck_assert(!isnan(logged(&place, "own")));
}
END_TEST

START_TEST(another_recipe_and_other_data_can_be_scored)
{
    const struct place place = make_place();
    const char *other = path_in(place.folder, "other");
    char text[2000];
    memset(text, '#', sizeof text);
    write_file(other, text, sizeof text);
    train(&place, "256");
    ck_assert_int_eq(call(&place, command_eval, WORDS("eval", "--checkpoint", place.run, "--recipe", "exact")), 0);
    ck_assert(printed(&place, "gap  ") == 0);
    const double own = printed(&place, "own");
    ck_assert_int_eq(call(&place, command_eval, WORDS("eval", "--checkpoint", place.run, "--val-data", other)), 0);
    ck_assert_double_gt(printed(&place, "own"), own + 1); /* a character the model never saw */
    ck_assert_int_eq(call(&place, command_eval, WORDS("eval", "--checkpoint", place.run, "--eval-exact=false")), 0);
    ck_assert(isnan(printed(&place, "gap  ")));
}
END_TEST

START_TEST(what_cannot_be_scored_is_refused)
{
    const struct place place = make_place();
    train(&place, "256");
    ck_assert_int_eq(call(&place, command_eval, WORDS("eval")), ERROR_USAGE);
    expect_said(&place, "--checkpoint");
    ck_assert_int_eq(call(&place, command_eval, WORDS("eval", "--checkpoint", place.run, "--split", "100")),
                     ERROR_USAGE);
    expect_said(&place, "--split");
    ck_assert_int_eq(
        call(&place, command_eval, WORDS("eval", "--checkpoint", place.run, "--data", path_in(place.folder, "none"))),
        ERROR_FAILED);
    expect_said(&place, "none");
}
END_TEST

START_TEST(the_probe_of_trained_weights_calls_a_leaky_recipe_leaky)
{
    const struct place place = make_place();
    struct trained trained;
    struct error error = {0};
    enum causality verdict = CAUSALITY_EXACT;
    train(&place, "256");
    ck_assert_msg(trained_find(&trained, "eval", place.run, &error), "%s", error.text);
    ck_assert_msg(probe_weights(&trained, recipe_find("fp4-leaky"), &verdict, &error), "%s", error.text);
    ck_assert_int_eq(verdict, CAUSALITY_LEAKY);
    ck_assert_msg(probe_weights(&trained, recipe_find("mxfp8"), &verdict, &error), "%s", error.text);
    ck_assert_int_eq(verdict, CAUSALITY_IN_BLOCK);
    ck_assert_msg(probe_weights(&trained, recipe_find("exact"), &verdict, &error), "%s", error.text);
    ck_assert_int_eq(verdict, CAUSALITY_EXACT);
}
END_TEST

Suite *suite_trained(void);
Suite *suite_trained(void)
{
    Suite *suite = suite_create("trained");
    TCase *tests = tcase_create("trained");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, generation_begins_with_the_prompt_and_has_the_length_asked_for);
    tcase_add_test(tests, generation_is_a_function_of_the_seed);
    tcase_add_test(tests, a_prompt_longer_than_the_context_is_cut_and_said_so);
    tcase_add_test(tests, a_model_of_other_tokens_speaks_ids);
    tcase_add_test(tests, a_tokenizer_turns_ids_into_text);
    tcase_add_test(tests, what_cannot_be_generated_from_is_refused);
    tcase_add_test(tests, output_that_nobody_takes_is_an_error);
    tcase_add_test(tests, evaluating_a_run_gives_what_its_last_evaluation_gave);
    tcase_add_test(tests, another_recipe_and_other_data_can_be_scored);
    tcase_add_test(tests, what_cannot_be_scored_is_refused);
    tcase_add_test(tests, the_probe_of_trained_weights_calls_a_leaky_recipe_leaky);
    suite_add_tcase(suite, tests);
    return suite;
}
