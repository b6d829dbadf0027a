/* options_print.c: the option table as help, as a configuration file and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "train/option_value.h"
#include "train/preset.h"

/* ---- help ---- */

static void print_wrapped(FILE *to, const char *text, size_t column, size_t width)
{
    size_t at = column;
    while (*text) {
        const size_t word = strcspn(text, " ");
        if (at > column && at + 1 + word > width) {
            fprintf(to, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", (int)word, text);
        at += word;
        text += word + strspn(text + word, " ");
    }
    fputc('\n', to);
}

static void describe(const struct option *option, char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "%s", option->help);
    const bool number = option->type == OPTION_INTEGER || option->type == OPTION_REAL || option->type == OPTION_FLOAT;
    if (number && option->high >= 0x1p53) {
        used += snprintf(text + used, bytes - (size_t)used, "; %.10g or more", option->low);
    } else if (number) {
        used += snprintf(text + used, bytes - (size_t)used, "; %.10g to %.10g", option->low, option->high);
    } else if (option->choices) {
        used += snprintf(text + used, bytes - (size_t)used, "; %s", option->choices);
    }
    if (option->initial[0] != '\0') {
        snprintf(text + used, bytes - (size_t)used, " (default: %s)", option->initial);
    }
}

static void print_row(FILE *to, const char *name, const char *value, const char *text)
{
    enum { COLUMN = 32, WIDTH = 110 };
    char left[64];
    snprintf(left, sizeof left, "  --%s%s%s", name, value ? " " : "", value ? value : "");
    fprintf(to, "%-*s", COLUMN, left);
    if (strlen(left) >= COLUMN) {
        fprintf(to, "\n%*s", COLUMN, "");
    }
    print_wrapped(to, text, COLUMN, WIDTH);
}

static void print_presets(FILE *to)
{
    fprintf(to, "\nPresets:\n");
    for (size_t i = 0; i < preset_count(); i++) {
        const struct preset *preset = preset_at(i);
        fprintf(to, "  %-12s %s\n", preset->name, preset->summary);
        if (*preset->values) {
            fprintf(to, "%15s", "");
            print_wrapped(to, preset->values, 15, 110);
        }
    }
}

void options_print_help(enum command_id command, FILE *to)
{
    const struct command_info *info = command_info(command);
    fprintf(to, "usage: flamia %s%s%s [--OPTION VALUE | --OPTION=VALUE]...\n\n%s\n", info->name,
            *info->operands ? " " : "", info->operands, info->summary);
    const char *heading = "";
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *option = option_at(i);
        if (!(option->commands & (1u << command))) {
            continue;
        }
        if (strcmp(heading, option->heading) != 0) {
            heading = option->heading;
            fprintf(to, "\n%s:\n", heading);
        }
        char text[512];
        describe(option, text, sizeof text);
        print_row(to, option->name, option->value, text);
    }
    fprintf(to, "\nAnswers:\n");
    print_row(to, "help", NULL, "print this and stop");
    print_row(to, "print-config", NULL, "print all settings as JSON, which --config takes, and stop");
    if (command == COMMAND_TRAIN) {
        print_presets(to);
    }
}

/* ---- JSON ---- */

static bool is_listed(const struct option *option, enum command_id command)
{
    return (option->commands & (1u << command)) != 0 && option->type != OPTION_CONFIG;
}

static json_t *changes_json(const struct recipe *recipe)
{
    json_t *array = json_array();
    char change[128];
    for (size_t i = 0; array && recipe_change(recipe, i, change, sizeof change); i++) {
        if (json_array_append_new(array, json_string(change)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *value_json(const struct option *option, const struct settings *settings)
{
    char text[SETTINGS_PATH];
    option_get(option, settings, text, sizeof text);
    switch (option->type) {
    case OPTION_SWITCH:
        return json_boolean(*text == 't');
    case OPTION_INTEGER:
        return json_integer(strtoll(text, NULL, 10));
    case OPTION_REAL:
    case OPTION_FLOAT:
        return json_real(strtod(text, NULL));
    case OPTION_CHANGE:
        return changes_json((const struct recipe *)(const void *)((const char *)settings + option->offset));
    default:
        return json_string(text);
    }
}

json_t *options_json(enum command_id command, const struct settings *settings)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < option_count(); i++) {
        const struct option *option = option_at(i);
        if (is_listed(option, command) &&
            json_object_set_new(object, option->name, value_json(option, settings)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* Numbers are printed as they were written, not as jansson does (0.001, not 0.001000000000000000021): people edit this.
 */
bool options_print_config(enum command_id command, const struct settings *settings, FILE *to)
{
    bool done = fputc('{', to) != EOF;
    const char *separator = "\n";
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *option = option_at(i);
        if (!is_listed(option, command)) {
            continue;
        }
        char text[SETTINGS_PATH];
        option_get(option, settings, text, sizeof text);
        json_t *value = value_json(option, settings);
        char *dumped = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
        const bool number = json_is_number(value);
        done = done && dumped && fprintf(to, "%s  \"%s\": %s", separator, option->name, number ? text : dumped) > 0;
        separator = ",\n";
        free(dumped);
        json_decref(value);
    }
    return fprintf(to, "\n}\n") > 0 && done;
}
