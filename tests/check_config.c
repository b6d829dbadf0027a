/* check_config.c: the configuration file: what --print-config prints is what --config takes; all else is refused with
 * file and line. */
#include "tests/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/option_value.h"
#include "train/options.h"
#include "train/preset.h"

static char *printed(enum command_id command, const struct settings *settings)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(memory);
    ck_assert(options_print_config(command, settings, memory));
    ck_assert_int_eq(fclose(memory), 0);
    return text;
}

static bool read_text(const char *text, struct settings *settings, struct error *error)
{
    return options_read_config(COMMAND_TRAIN, text, strlen(text), "run.json", settings, error);
}

static void refused(const char *text, const char *expected)
{
    struct settings settings;
    struct error error = {.code = ERROR_NONE};
    ck_assert_msg(!read_text(text, &settings, &error), "%s", text);
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, expected), "'%s' lacks '%s'", error.text, expected);
}

static void assert_round_trip(enum command_id command, const struct settings *settings)
{
    struct settings again;
    struct error error;
    char *text = printed(command, settings);
    ck_assert_msg(options_read_config(command, text, strlen(text), "run.json", &again, &error), "%s\n%s", error.text,
                  text);
    char *second = printed(command, &again);
    ck_assert_str_eq(text, second);
    /* Bit for bit, whatever the text says: every field of every row. */
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *option = option_at(i);
        if ((option->commands & (1u << command)) && option->type != OPTION_RECIPE && option->type != OPTION_CHANGE) {
            ck_assert_msg(memcmp((const char *)settings + option->offset, (const char *)&again + option->offset,
                                 option->size) == 0,
                          "%s", option->name);
        }
    }
    ck_assert_str_eq(settings->recipe.name, again.recipe.name);
    free(text);
    free(second);
}

START_TEST(printed_presets_read_back)
{
    for (size_t i = 0; i < preset_count(); i++) {
        struct settings settings;
        struct error error;
        char *argv[] = {(char *)"train", (char *)"--preset", (char *)preset_at(i)->name};
        ck_assert_int_eq(options_parse(COMMAND_TRAIN, 3, argv, &settings, NULL, &error), OPTIONS_READY);
        assert_round_trip(COMMAND_TRAIN, &settings);
    }
}
END_TEST

START_TEST(printed_defaults_of_every_command_read_back)
{
    for (int command = 0; command < COMMAND_COUNT; command++) {
        struct settings settings;
        options_defaults((enum command_id)command, &settings);
        assert_round_trip((enum command_id)command, &settings);
    }
}
END_TEST

/* Options whose values contradict no other's, whatever they are. */
static const char *const independent[] = {
    "seed",         "threads",    "quiet",     "out",          "dry-run",       "time-limit",
    "save-every",   "keep",       "log-every", "on-nonfinite", "deterministic", "rope-base",
    "norm-epsilon", "data",       "val-data",  "lr",           "min-lr",        "beta1",
    "beta2",        "eps",        "clip",      "recompute",    "weight-decay",  "peak-flops",
    "eval-every",   "eval-exact", "layers",    "vocabulary",   "eval-tokens"};

static void random_value(struct random_stream *random, const struct option *option, char *text, size_t bytes)
{
    static const char *const texts[] = {"", "a b", "\"quoted\"\\", "t\xc3\xa4st\xf0\x9f\x98\x80", "line\nbreak\t\x01"};
    const double low = option->low, share = random_uniform(random);
    switch (option->type) {
    case OPTION_SWITCH:
        snprintf(text, bytes, "%s", share < 0.5 ? "true" : "false");
        return;
    case OPTION_INTEGER: {
        const double value = floor(low + share * (option->high - low));
        snprintf(text, bytes, "%.0f", share < 0.3 ? low + floor(share * 10) : value);
        return;
    }
    case OPTION_REAL:
    case OPTION_FLOAT: /* all magnitudes and digits */
        snprintf(text, bytes, "%.17g", low + (option->high - low) * share * exp2(-40 * random_uniform(random)));
        return;
    case OPTION_CHOICE:
        snprintf(text, bytes, "%.*s", (int)strcspn(option->choices, "|"), option->choices);
        return;
    default:
        snprintf(text, bytes, "%s", texts[random_below(random, sizeof texts / sizeof *texts)]);
    }
}

START_TEST(random_settings_read_back_bit_for_bit)
{
    struct random_stream random = random_stream(1);
    for (int round = 0; round < 50; round++) {
        struct settings settings;
        options_defaults(COMMAND_TRAIN, &settings);
        for (size_t i = 0; i < sizeof independent / sizeof *independent; i++) {
            const struct option *option = option_find(COMMAND_TRAIN, independent[i], strlen(independent[i]));
            char text[256], message[512];
            ck_assert_ptr_nonnull(option);
            random_value(&random, option, text, sizeof text);
            ck_assert_msg(option_set(option, &settings, text, message, sizeof message), "%s: %s", independent[i],
                          message);
        }
        settings.model.layers = settings.model.layers % 100 + 1; /* sizes whose products fit */
        settings.model.vocabulary = settings.model.vocabulary % 100000 + 1;
        settings.model.padded_vocabulary = (settings.model.vocabulary + 127) / 128 * 128;
        assert_round_trip(COMMAND_TRAIN, &settings);
    }
}
END_TEST

START_TEST(changed_recipes_read_back)
{
    struct settings settings, again;
    struct error error;
    char *argv[] = {(char *)"train",        (char *)"--recipe",     (char *)"mxfp8",
                    (char *)"--recipe-set", (char *)"tau=0.3",      (char *)"--recipe-set",
                    (char *)"c=2",          (char *)"--recipe-set", (char *)"hadamard-128=0"};
    ck_assert_int_eq(options_parse(COMMAND_TRAIN, 9, argv, &settings, NULL, &error), OPTIONS_READY);
    assert_round_trip(COMMAND_TRAIN, &settings);
    char *text = printed(COMMAND_TRAIN, &settings);
    ck_assert(read_text(text, &again, &error));
    ck_assert_int_eq(again.recipe.probability_shift, 2);
    ck_assert(again.recipe.rescale_threshold == 0.3f);
    ck_assert(!again.recipe.hadamard_128);
    free(text);
}
END_TEST

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

static enum options_outcome parse_with(const char *path, const char *option, struct settings *settings,
                                       struct error *error)
{
    char *argv[] = {(char *)"train", (char *)"--config", (char *)path, (char *)option};
    return options_parse(COMMAND_TRAIN, option ? 4 : 3, argv, settings, NULL, error);
}

START_TEST(the_command_line_wins_over_the_file_and_the_file_over_its_preset)
{
    char path[600];
    struct settings settings;
    struct error error;
    static const char text[] = "{\"lr\": 7, \"preset\": \"enwik8\", \"batch\": 4, \"micro-batch\": 2}";
    snprintf(path, sizeof path, "%s/config.json", scratch_folder());
    write_file(path, text, strlen(text));
    ck_assert_int_eq(parse_with(path, "--batch=6", &settings, &error), OPTIONS_READY);
    ck_assert(settings.learning_rate == 7);
    ck_assert_int_eq(settings.batch, 6);
    ck_assert_int_eq(settings.sequence_length, 1024);
    ck_assert_str_eq(settings.config_path, path);
    ck_assert_int_eq(parse_with(path, "--preset=gpt2-124m", &settings, &error), OPTIONS_READY);
    ck_assert(settings.learning_rate == 7);
    ck_assert_uint_eq(settings.model.layers, 12);
    ck_assert_str_eq(settings.preset, "gpt2-124m");
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_refused)
{
    char path[600];
    struct settings settings;
    struct error error;
    snprintf(path, sizeof path, "%s/none.json", scratch_folder());
    ck_assert_int_eq(parse_with(path, NULL, &settings, &error), OPTIONS_REFUSED);
    ck_assert_ptr_nonnull(strstr(error.text, "none.json: No such file"));
    ck_assert_int_eq(parse_with(scratch_folder(), NULL, &settings, &error), OPTIONS_REFUSED);
    ck_assert_ptr_nonnull(strstr(error.text, "directory"));
}
END_TEST

START_TEST(a_file_that_is_no_configuration_by_its_size_is_refused)
{
    char path[600];
    struct settings settings;
    struct error error;
    const size_t bytes = 1048577;
    char *text = test_alloc(bytes);
    memset(text, ' ', bytes);
    text[0] = '{';
    text[bytes - 1] = '}';
    snprintf(path, sizeof path, "%s/large.json", scratch_folder());
    write_file(path, text, bytes);
    free(text);
    ck_assert_int_eq(parse_with(path, NULL, &settings, &error), OPTIONS_REFUSED);
    ck_assert_ptr_nonnull(strstr(error.text, "at most 1048576 bytes"));
}
END_TEST

START_TEST(unknown_keys_are_refused_with_their_line)
{
    refused("{\"lr\": 1,\n\n \"laers\": 3}", "run.json:3: 'laers' is no option of train");
    refused("{\"prompt\": \"x\"}", "run.json:1: 'prompt' is no option of train");
    refused("{\"config\": \"x\"}", "run.json:1: 'config' is no option");
    refused("{\"\": 1}", "run.json:1: '' is no option");
}
END_TEST

START_TEST(lines_are_counted_past_escapes_and_nests)
{
    refused("{\"data\": \"a\\\"}{[,\\\\\",\n\"recipe-set\": [\n\"c=3\",\"tau=1\"],\n\"l\\u0072\": \"x\"}",
            "run.json:4: lr: expected a number, found text");
}
END_TEST

START_TEST(doubled_keys_are_refused_with_their_line)
{
    refused("{\"lr\": 1,\n \"lr\": 1}", "run.json:2: duplicate object key");
    refused("{\"recipe-set\":\n[\"c=3\",\n \"c=2\"]}", "recipe-set: given twice, 'c=3' and 'c=2'");
}
END_TEST

START_TEST(values_of_another_type_are_refused)
{
    refused("{\"lr\": \"1\"}", "run.json:1: lr: expected a number, found text");
    refused("{\"lr\": null}", "lr: expected a number, found null");
    refused("{\"layers\": true}", "layers: expected a number, found true or false");
    refused("{\"layers\": 2.5}", "layers: expected an integer, found '2.5'");
    refused("{\"tied\": 1}", "tied: expected true or false, found a number");
    refused("{\"data\": [\"x\"]}", "data: expected text, found an array");
    refused("{\"recipe-set\": \"c=3\"}", "recipe-set: expected an array of texts, found text");
    refused("{\"recipe-set\": [3]}", "recipe-set: expected an array of texts, found a number");
    refused("[1]", "expected an object of options, found an array");
}
END_TEST

START_TEST(values_out_of_range_and_contradictions_are_refused_as_on_the_command_line)
{
    refused("{\n\"beta1\": -1}", "run.json:2: beta1: expected a number from 0 to 0.999999");
    refused("{\"steps\": 1e300}", "steps: expected an integer");
    refused("{\"steps\": 3, \"tokens\": 5}", "--steps, --tokens, --epochs");
    refused("{\"recipe\": \"int8\"}", "there is no recipe 'int8'");
    refused("{\"preset\": \"none\"}", "there is no preset 'none'");
}
END_TEST

START_TEST(text_that_is_no_json_is_refused)
{
    static const char *const wrong[] = {"",
                                        " ",
                                        "{",
                                        "{\"lr\"",
                                        "{\"lr\": 1,}",
                                        "{\"lr\": 1} x",
                                        "{'lr': 1}",
                                        "{\"lr\": 01}",
                                        "{\"lr\": 1e400}",
                                        "{\"lr\": 99999999999999999999}",
                                        "{\"data\": \"\\u0000\"}",
                                        "{\"data\": \"\xff\"}",
                                        "{\"lr\": NaN}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(wrong[i], "run.json:");
    }
}
END_TEST

START_TEST(every_cut_of_a_configuration_is_refused)
{
    struct settings settings;
    struct error error;
    options_defaults(COMMAND_TRAIN, &settings);
    char *text = printed(COMMAND_TRAIN, &settings);
    const size_t whole = strlen(text) - 2; /* without "}\n" */
    for (size_t bytes = 0; bytes <= whole; bytes++) {
        ck_assert(!options_read_config(COMMAND_TRAIN, text, bytes, "run.json", &settings, &error));
        ck_assert_int_eq(error.code, ERROR_USAGE);
    }
    free(text);
}
END_TEST

START_TEST(nests_without_end_are_refused)
{
    const size_t depth = 100000;
    char *text = test_alloc(depth + 1);
    memset(text, '[', depth);
    text[depth] = '\0';
    refused(text, "run.json:1:");
    free(text);
}
END_TEST

Suite *suite_config(void);
Suite *suite_config(void)
{
    Suite *suite = suite_create("config");
    TCase *tests = tcase_create("config");
    tcase_add_test(tests, printed_presets_read_back);
    tcase_add_test(tests, printed_defaults_of_every_command_read_back);
    tcase_add_test(tests, random_settings_read_back_bit_for_bit);
    tcase_add_test(tests, changed_recipes_read_back);
    tcase_add_test(tests, the_command_line_wins_over_the_file_and_the_file_over_its_preset);
    tcase_add_test(tests, a_file_that_cannot_be_read_is_refused);
    tcase_add_test(tests, a_file_that_is_no_configuration_by_its_size_is_refused);
    tcase_add_test(tests, unknown_keys_are_refused_with_their_line);
    tcase_add_test(tests, lines_are_counted_past_escapes_and_nests);
    tcase_add_test(tests, doubled_keys_are_refused_with_their_line);
    tcase_add_test(tests, values_of_another_type_are_refused);
    tcase_add_test(tests, values_out_of_range_and_contradictions_are_refused_as_on_the_command_line);
    tcase_add_test(tests, text_that_is_no_json_is_refused);
    tcase_add_test(tests, every_cut_of_a_configuration_is_refused);
    tcase_add_test(tests, nests_without_end_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
