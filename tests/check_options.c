/* check_options.c: the command line: what is refused, what wins, and that help tells the truth. */
#include "tests/support.h"

#include <stdlib.h>
#include <string.h>

#include "train/option_check.h"
#include "train/option_value.h"
#include "train/options.h"
#include "train/preset.h"

#define WORDS_MOST 16

/* Parses "train" with up to WORDS_MOST words, the last NULL. */
static enum options_outcome parse(enum command_id command, struct settings *settings, struct error *error,
                                  const char *const *words)
{
    char *argv[WORDS_MOST + 1] = {(char *)"command"};
    int argc = 1;
    for (; words[argc - 1]; argc++) {
        argv[argc] = (char *)words[argc - 1];
    }
    return options_parse(command, argc, argv, settings, NULL, error);
}

#define PARSE(command, settings, error, ...) parse(command, settings, error, (const char *const[]){__VA_ARGS__, NULL})

/* Refused as a usage error whose one line holds `expected`. */
#define REFUSED(expected, ...)                                                                                         \
    do {                                                                                                               \
        struct settings refused_settings;                                                                              \
        struct error refused;                                                                                          \
        ck_assert_int_eq(PARSE(COMMAND_TRAIN, &refused_settings, &refused, __VA_ARGS__), OPTIONS_REFUSED);             \
        ck_assert_int_eq(refused.code, ERROR_USAGE);                                                                   \
        ck_assert_msg(strstr(refused.text, expected), "'%s' lacks '%s'", refused.text, expected);                      \
        ck_assert_ptr_null(strchr(refused.text, '\n'));                                                                \
    } while (0)

#define ACCEPTED(settings, ...)                                                                                        \
    do {                                                                                                               \
        struct error accepted_error;                                                                                   \
        const enum options_outcome accepted = PARSE(COMMAND_TRAIN, settings, &accepted_error, __VA_ARGS__);            \
        ck_assert_msg(accepted == OPTIONS_READY, "%s", accepted_error.text);                                           \
    } while (0)

static bool same_settings(enum command_id command, const struct settings *one, const struct settings *other)
{
    json_t *first = options_json(command, one), *second = options_json(command, other);
    const bool same = first && json_equal(first, second);
    json_decref(first);
    json_decref(second);
    return same;
}

static bool is_number(const struct option *option)
{
    return option->type == OPTION_INTEGER || option->type == OPTION_REAL || option->type == OPTION_FLOAT;
}

START_TEST(every_default_is_a_valid_value)
{
    struct settings settings;
    char message[512];
    memset(&settings, 0, sizeof settings);
    for (size_t i = 0; i < option_count(); i++) {
        if (option_at(i)->type != OPTION_CHANGE) {
            ck_assert_msg(option_set(option_at(i), &settings, option_at(i)->initial, message, sizeof message), "%s: %s",
                          option_at(i)->name, message);
        }
    }
}
END_TEST

START_TEST(no_options_are_the_defaults)
{
    for (int command = 0; command < COMMAND_COUNT; command++) {
        struct settings settings, defaults;
        struct error error;
        char *argv[] = {(char *)"command"};
        ck_assert_int_eq(options_parse((enum command_id)command, 1, argv, &settings, NULL, &error), OPTIONS_READY);
        options_defaults((enum command_id)command, &defaults);
        ck_assert(same_settings((enum command_id)command, &settings, &defaults));
    }
}
END_TEST

START_TEST(a_name_has_one_row_a_command)
{
    for (size_t i = 0; i < option_count(); i++) {
        for (size_t j = 0; j < i; j++) {
            ck_assert_msg(strcmp(option_at(i)->name, option_at(j)->name) != 0 ||
                              (option_at(i)->commands & option_at(j)->commands) == 0,
                          "%s", option_at(i)->name);
        }
    }
}
END_TEST

START_TEST(a_value_may_stand_apart_or_after_an_equals_sign)
{
    struct settings apart, joined;
    ACCEPTED(&apart, "--lr", "2e-3", "--data", "a=b", "--family", "llama");
    ACCEPTED(&joined, "--lr=2e-3", "--data=a=b", "--family=llama");
    ck_assert(apart.learning_rate == 2e-3);
    ck_assert_str_eq(apart.data, "a=b");
    ck_assert_int_eq(apart.model.family, MODEL_LLAMA);
    ck_assert(same_settings(COMMAND_TRAIN, &apart, &joined));
}
END_TEST

START_TEST(a_switch_is_on_when_named_and_off_when_told)
{
    struct settings settings;
    ACCEPTED(&settings, "--dry-run", "--eval-exact=false");
    ck_assert(settings.dry_run);
    ck_assert(!settings.eval_exact);
    REFUSED("--dry-run: expected true or false", "--dry-run=yes");
    REFUSED("unexpected 'true'", "--dry-run", "true");
}
END_TEST

START_TEST(an_unknown_option_is_refused_with_the_nearest_name)
{
    REFUSED("did you mean --layers?", "--layeers", "3");
    REFUSED("did you mean --weight-decay?", "--weight_decay=0");
    REFUSED("did you mean --print-config?", "--printconfig");
    REFUSED("did you mean --help?", "-h");
    REFUSED("`flamia train --help` lists them", "--zzzzzzzzzzz", "3");
    REFUSED("is no option", "-lr", "1");
    REFUSED("is no option", "--=3");
}
END_TEST

START_TEST(an_abbreviation_is_not_taken)
{
    REFUSED("--step is no option", "--step", "3");
    REFUSED("--rec is no option", "--rec", "exact");
}
END_TEST

START_TEST(an_option_of_another_command_is_named_as_such)
{
    REFUSED("--prompt is no option of train, but of generate; `flamia train --help` lists", "--prompt", "x");
}
END_TEST

START_TEST(a_doubled_option_is_refused)
{
    REFUSED("--lr: given twice, '1' and '2'", "--lr", "1", "--lr=2");
    REFUSED("--quiet: given twice", "--quiet", "--quiet=false");
    REFUSED("--print-config: given twice", "--print-config", "--print-config");
    REFUSED("--recipe-set: given twice", "--recipe-set", "c=3", "--recipe-set", "c=2");
}
END_TEST

START_TEST(a_word_that_is_no_option_is_refused)
{
    REFUSED("unexpected 'mxfp8'", "mxfp8");
    REFUSED("unexpected '--lr'", "--", "--lr");
}
END_TEST

START_TEST(a_missing_value_is_refused_and_takes_no_option_for_one)
{
    REFUSED("--data: expected a value (PATH), found the end", "--data");
    REFUSED("--data: expected a value (PATH), found --quiet", "--data", "--quiet");
}
END_TEST

/* Every number: text that is none, or is one only in part. */
START_TEST(malformed_numbers_are_refused)
{
    static const char *const malformed[] = {"",    "abc", "1x", " 1", "1 ",  "0x10", "nan",
                                            "inf", "-",   "+",  ".",  "1,5", "--"};
    struct settings settings;
    char message[512];
    memset(&settings, 0, sizeof settings);
    for (size_t i = 0; i < option_count(); i++) {
        for (size_t j = 0; is_number(option_at(i)) && j < sizeof malformed / sizeof *malformed; j++) {
            ck_assert_msg(!option_set(option_at(i), &settings, malformed[j], message, sizeof message), "%s '%s'",
                          option_at(i)->name, malformed[j]);
        }
    }
    REFUSED("--lr: expected a number, found '1x'", "--lr", "1x");
    REFUSED("--steps: expected an integer, found '1.5'", "--steps", "1.5");
    REFUSED("--steps: expected an integer, found '1e3'", "--steps", "1e3");
}
END_TEST

START_TEST(numbers_out_of_range_are_refused_and_the_ends_taken)
{
    struct settings settings;
    memset(&settings, 0, sizeof settings);
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *option = option_at(i);
        if (!is_number(option)) {
            continue;
        }
        char text[64], message[512];
        const double step = option->type == OPTION_INTEGER ? 1 : 0.5;
        for (int end = 0; end < 2; end++) {
            const double limit = end ? option->high : option->low;
            snprintf(text, sizeof text, option->type == OPTION_INTEGER ? "%.0f" : "%.17g", limit);
            ck_assert_msg(option_set(option, &settings, text, message, sizeof message), "%s: %s", option->name,
                          message);
            const double beyond = end ? limit * 1.001 + step : limit - step;
            snprintf(text, sizeof text, option->type == OPTION_INTEGER ? "%.0f" : "%.17g", beyond);
            ck_assert_msg(!option_set(option, &settings, text, message, sizeof message), "%s %s", option->name, text);
        }
    }
    REFUSED("--seed: expected an integer from 0 to", "--seed", "99999999999999999999");
    REFUSED("--beta2: expected a number from 0 to 0.999999, found 1", "--beta2", "1");
}
END_TEST

START_TEST(integers_are_exact_to_2_53)
{
    struct settings settings;
    ACCEPTED(&settings, "--seed", "9007199254740991");
    ck_assert_uint_eq(settings.seed, 9007199254740991u);
}
END_TEST

START_TEST(words_outside_their_list_are_refused)
{
    struct settings settings;
    char message[512];
    memset(&settings, 0, sizeof settings);
    for (size_t i = 0; i < option_count(); i++) {
        const char *const wrong[] = {"", "|", "no such word", "cos", option_at(i)->choices};
        for (size_t j = 0; option_at(i)->choices && j < sizeof wrong / sizeof *wrong; j++) {
            if (strchr(option_at(i)->choices, '|') || j < 4) { /* a list of one word is that word */
                ck_assert(!option_set(option_at(i), &settings, wrong[j], message, sizeof message));
            }
        }
    }
    REFUSED("--device: expected cpu, found 'cuda'", "--device", "cuda");
    REFUSED("--lr-schedule: expected one of cosine|linear|constant|wsd, found 'Cosine'", "--lr-schedule", "Cosine");
    REFUSED("--preset: there is no preset 'gpt5'", "--preset", "gpt5");
    REFUSED("--recipe: there is no recipe 'int8'", "--recipe", "int8");
}
END_TEST

START_TEST(text_that_is_too_long_or_no_utf8_is_refused)
{
    char path[SETTINGS_PATH + 1];
    memset(path, 'x', SETTINGS_PATH);
    path[SETTINGS_PATH] = '\0';
    REFUSED("--data: expected at most 1023 bytes, found 1024", "--data", path);
    REFUSED("--data: expected UTF-8", "--data", "a\xff");
}
END_TEST

START_TEST(contradictions_are_refused)
{
    REFUSED("--steps, --tokens, --epochs: expected one of them above 0, found several", "--steps", "3", "--tokens=9");
    REFUSED("--steps, --tokens, --epochs: expected one of them above 0, found none", "--steps", "0");
    REFUSED("--micro-batch 3 does not divide --batch 8", "--micro-batch", "3");
    REFUSED("--warmup 50 is longer than the run's 49 steps", "--steps", "49");
    REFUSED("--decay-share 0.96 overlap", "--lr-schedule", "wsd", "--decay-share", "0.96");
    REFUSED("--seq-len 256 is longer than --context 255", "--context", "255");
    REFUSED("less than 2^31 tokens", "--seq-len", "16777216", "--batch", "16777216");
    REFUSED("heads (3) x head-dim (48)", "--heads", "3", "--head-dim", "48");
    REFUSED("tied must be true", "--tied=false");
    REFUSED("--recipe-set", "--recipe-set", "value=fp32", "--recipe-set", "no-such-switch=1");
    REFUSED("--recipe exact+", "--recipe", "exact", "--recipe-set", "dscore-scale=row");
}
END_TEST

START_TEST(a_change_without_a_recipe_is_refused)
{
    struct settings settings;
    struct error error;
    ck_assert_int_eq(PARSE(COMMAND_EVAL, &settings, &error, "--recipe-set", "c=3"), OPTIONS_REFUSED);
    ck_assert_ptr_nonnull(strstr(error.text, "give --recipe too"));
}
END_TEST

START_TEST(sizes_follow_from_others_unless_given)
{
    struct settings settings;
    ACCEPTED(&settings, "--preset", "enwik8", "--width", "256");
    ck_assert_uint_eq(settings.model.head_dim, 32);
    ck_assert_uint_eq(settings.model.ffn, 1024);
    ck_assert_uint_eq(settings.model.context, 1024);
    ACCEPTED(&settings, "--seq-len", "96", "--vocabulary", "257");
    ck_assert_uint_eq(settings.model.context, 96);
    ck_assert_uint_eq(settings.model.padded_vocabulary, 384);
    ACCEPTED(&settings, "--preset", "llama-160m", "--heads", "24", "--kv-heads", "3", "--head-dim", "32");
    ck_assert_uint_eq(settings.model.kv_heads, 3);
    ck_assert_uint_eq(settings.model.head_dim, 32);
    ck_assert_uint_eq(settings.model.ffn, 2048);
}
END_TEST

START_TEST(a_length_in_another_unit_replaces_the_presets)
{
    struct settings settings;
    ACCEPTED(&settings, "--preset", "enwik8", "--epochs", "1.5");
    ck_assert_int_eq(settings.steps, 0);
    ck_assert(settings.epochs == 1.5);
}
END_TEST

START_TEST(changes_of_a_recipe_follow_it_wherever_they_stand)
{
    struct settings before, after;
    ACCEPTED(&before, "--recipe-set", "c=3", "--recipe", "mxfp8-floor", "--recipe-set=tau=2");
    ACCEPTED(&after, "--recipe", "mxfp8-floor", "--recipe-set", "tau=2", "--recipe-set", "c=3");
    ck_assert_str_eq(before.recipe.name, "mxfp8-floor+");
    ck_assert_int_eq(before.recipe.probability_shift, 3);
    ck_assert(same_settings(COMMAND_TRAIN, &before, &after));
}
END_TEST

START_TEST(a_change_to_what_is_there_changes_no_name)
{
    struct settings settings;
    ACCEPTED(&settings, "--recipe", "mxfp8", "--recipe-set", "c=4");
    ck_assert_str_eq(settings.recipe.name, "mxfp8");
}
END_TEST

START_TEST(every_preset_is_complete)
{
    for (size_t i = 0; i < preset_count(); i++) {
        struct settings settings;
        ACCEPTED(&settings, "--preset", preset_at(i)->name);
        ck_assert_str_eq(settings.preset, preset_at(i)->name);
    }
}
END_TEST

START_TEST(the_command_line_wins_over_its_preset)
{
    struct settings settings;
    ACCEPTED(&settings, "--layers", "3", "--preset", "enwik8", "--lr", "5");
    ck_assert_uint_eq(settings.model.layers, 3);
    ck_assert_uint_eq(settings.model.width, 1024);
    ck_assert(settings.learning_rate == 5);
}
END_TEST

/* Help as text; the caller frees it. */
static char *help_text(enum command_id command)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(memory);
    options_print_help(command, memory);
    ck_assert_int_eq(fclose(memory), 0);
    return text;
}

START_TEST(help_lists_every_option_of_its_command_and_no_other)
{
    for (int command = 0; command < COMMAND_COUNT; command++) {
        char *text = help_text((enum command_id)command);
        for (size_t i = 0; i < option_count(); i++) {
            char line[64];
            const struct option *option = option_at(i);
            snprintf(line, sizeof line, "\n  --%s%s%s", option->name, option->value ? " " : "",
                     option->value ? option->value : "");
            const struct option *own = option_find((enum command_id)command, option->name, strlen(option->name));
            const bool taken = own && strcmp(own->value ? own->value : "", option->value ? option->value : "") == 0;
            ck_assert_msg((strstr(text, line) != NULL) == taken, "%s: %s", command_info((enum command_id)command)->name,
                          option->name);
        }
        free(text);
    }
}
END_TEST

/* "(default: X)" under an option is what an empty command line gives it. */
START_TEST(help_tells_the_defaults)
{
    struct settings defaults;
    options_defaults(COMMAND_TRAIN, &defaults);
    char *text = help_text(COMMAND_TRAIN);
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *option = option_at(i);
        if (!(option->commands & (1u << COMMAND_TRAIN)) || option->initial[0] == '\0') {
            continue;
        }
        char line[64], shown[128], message[512];
        snprintf(line, sizeof line, "\n  --%s%s", option->name, option->value ? " " : "\n");
        line[strcspn(line + 1, "\n") + 1] = '\0';
        const char *row = strstr(text, line);
        const char *found = row ? strstr(row, "(default:") : NULL;
        ck_assert_msg(found && sscanf(found, "(default: %127[^)])", shown) == 1, "%s", option->name);
        struct settings set = defaults;
        ck_assert_msg(option_set(option, &set, shown, message, sizeof message), "%s: %s", option->name, message);
        struct error error;
        ck_assert(options_complete(COMMAND_TRAIN, &set, &error)); /* 0 stands for what is derived */
        ck_assert_msg(same_settings(COMMAND_TRAIN, &set, &defaults), "%s %s", option->name, shown);
    }
    free(text);
}
END_TEST

START_TEST(help_is_given_whatever_else_is_wrong)
{
    struct settings settings;
    struct error error;
    ck_assert_int_eq(PARSE(COMMAND_TRAIN, &settings, &error, "--bogus", "--help"), OPTIONS_HELP);
}
END_TEST

START_TEST(operands_reach_a_command_that_takes_them)
{
    struct settings settings;
    struct error error;
    struct operands operands;
    char *argv[] = {(char *)"data", (char *)"info", (char *)"--", (char *)"--odd-name"};
    ck_assert_int_eq(options_parse(COMMAND_DATA, 4, argv, &settings, &operands, &error), OPTIONS_READY);
    ck_assert_uint_eq(operands.count, 2);
    ck_assert_str_eq(operands.items[1], "--odd-name");
}
END_TEST

Suite *suite_options(void);
Suite *suite_options(void)
{
    Suite *suite = suite_create("options");
    TCase *table = tcase_create("table");
    tcase_add_test(table, every_default_is_a_valid_value);
    tcase_add_test(table, no_options_are_the_defaults);
    tcase_add_test(table, a_name_has_one_row_a_command);
    tcase_add_test(table, every_preset_is_complete);
    tcase_add_test(table, help_lists_every_option_of_its_command_and_no_other);
    tcase_add_test(table, help_tells_the_defaults);
    suite_add_tcase(suite, table);
    TCase *taken = tcase_create("taken");
    tcase_add_test(taken, a_value_may_stand_apart_or_after_an_equals_sign);
    tcase_add_test(taken, a_switch_is_on_when_named_and_off_when_told);
    tcase_add_test(taken, integers_are_exact_to_2_53);
    tcase_add_test(taken, sizes_follow_from_others_unless_given);
    tcase_add_test(taken, a_length_in_another_unit_replaces_the_presets);
    tcase_add_test(taken, changes_of_a_recipe_follow_it_wherever_they_stand);
    tcase_add_test(taken, a_change_to_what_is_there_changes_no_name);
    tcase_add_test(taken, the_command_line_wins_over_its_preset);
    tcase_add_test(taken, help_is_given_whatever_else_is_wrong);
    tcase_add_test(taken, operands_reach_a_command_that_takes_them);
    suite_add_tcase(suite, taken);
    TCase *refused = tcase_create("refused");
    tcase_add_test(refused, an_unknown_option_is_refused_with_the_nearest_name);
    tcase_add_test(refused, an_abbreviation_is_not_taken);
    tcase_add_test(refused, an_option_of_another_command_is_named_as_such);
    tcase_add_test(refused, a_doubled_option_is_refused);
    tcase_add_test(refused, a_word_that_is_no_option_is_refused);
    tcase_add_test(refused, a_missing_value_is_refused_and_takes_no_option_for_one);
    tcase_add_test(refused, malformed_numbers_are_refused);
    tcase_add_test(refused, numbers_out_of_range_are_refused_and_the_ends_taken);
    tcase_add_test(refused, words_outside_their_list_are_refused);
    tcase_add_test(refused, text_that_is_too_long_or_no_utf8_is_refused);
    tcase_add_test(refused, contradictions_are_refused);
    tcase_add_test(refused, a_change_without_a_recipe_is_refused);
    suite_add_tcase(suite, refused);
    return suite;
}
