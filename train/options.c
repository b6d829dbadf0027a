/* options.c: parses the command line and lays the levels of options over each other. See options.h. */
#include "train/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train/config_file.h"
#include "train/option_check.h"
#include "train/option_value.h"
#include "train/preset.h"

/* ---- one level over the settings ---- */

static bool assign(const struct level *level, const struct assignment *assignment, struct settings *settings,
                   struct error *error)
{
    char place[256], message[320];
    if (option_set(assignment->option, settings, assignment->text, message, sizeof message)) {
        return true;
    }
    return error_set(error, ERROR_USAGE, "%s: %s", level_place(level, assignment, place, sizeof place), message);
}

static bool has(const struct level *level, const char *name)
{
    return level_find(level, name) != NULL;
}

/* What a level that gives some options takes back of the levels below it: the run's length is given in one unit, and
 * sizes that follow from a size follow from the new one. */
static void withdraw(const struct level *level, struct settings *settings)
{
    if (has(level, "steps") || has(level, "tokens") || has(level, "epochs")) {
        settings->steps = 0;
        settings->tokens = 0;
        settings->epochs = 0;
    }
    struct model_config *model = &settings->model;
    if (has(level, "width") || has(level, "heads")) {
        model->head_dim = 0;
    }
    if (has(level, "width") || has(level, "family")) {
        model->ffn = 0;
    }
    if (has(level, "heads")) {
        model->kv_heads = 0;
    }
    if (has(level, "seq-len")) {
        model->context = 0;
    }
}

static bool apply(const struct level *level, struct settings *settings, struct error *error)
{
    withdraw(level, settings);
    for (size_t i = 0; i < level->count; i++) { /* changes of the recipe come after it, wherever they stand */
        if (level->items[i].option->type != OPTION_CHANGE && !assign(level, &level->items[i], settings, error)) {
            return false;
        }
    }
    for (size_t i = 0; i < level->count; i++) {
        if (level->items[i].option->type == OPTION_CHANGE && !assign(level, &level->items[i], settings, error)) {
            return false;
        }
    }
    return true;
}

static bool apply_preset(const char *name, struct settings *settings, struct error *error)
{
    const struct preset *preset = preset_find(name);
    struct level level = {.file = name};
    bool done = true;
    for (const char *word = preset ? preset->values : ""; done && *word;) {
        const size_t length = strcspn(word, " "), key = strcspn(word, "=");
        done = level_add(&level, option_find(COMMAND_TRAIN, word, key), word + key + 1, length - key - 1, 0, error);
        word += length + (word[length] == ' ');
    }
    done = done && apply(&level, settings, error);
    level_free(&level);
    return done;
}

/* Every row's default; where a name has two rows, the command's own last. */
static void initialise(enum command_id command, struct settings *settings)
{
    memset(settings, 0, sizeof *settings);
    for (int own = 0; own < 2; own++) {
        for (size_t i = 0; i < option_count(); i++) {
            const struct option *option = option_at(i);
            char message[320];
            if (option->type != OPTION_CHANGE && (own == ((option->commands & (1u << command)) != 0))) {
                (void)option_set(option, settings, option->initial, message, sizeof message); /* tested to be valid */
            }
        }
    }
}

void options_defaults(enum command_id command, struct settings *settings)
{
    struct error error;
    initialise(command, settings);
    (void)options_complete(command, settings, &error); /* tested to agree */
}

/* ---- the command line ---- */

static size_t edit_distance(const char *one, const char *other)
{
    size_t row[64];
    const size_t length = strlen(other);
    if (length >= sizeof row / sizeof *row) {
        return length;
    }
    for (size_t j = 0; j <= length; j++) {
        row[j] = j;
    }
    for (size_t i = 0; one[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            const size_t replaced = diagonal + (one[i] != other[j]);
            const size_t shorter = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[length];
}

/* The option of `command` whose name is nearest; NULL if none is near. */
static const char *nearest(enum command_id command, const char *name)
{
    static const char *const others[] = {"help", "print-config"};
    const char *best = NULL;
    size_t least = 2 + strlen(name) / 4;
    for (size_t i = 0; i < option_count() + 2; i++) {
        const bool row = i < option_count();
        if (row && !(option_at(i)->commands & (1u << command))) {
            continue;
        }
        const char *candidate = row ? option_at(i)->name : others[i - option_count()];
        const size_t distance = edit_distance(name, candidate);
        if (distance < least) {
            least = distance;
            best = candidate;
        }
    }
    return best;
}

static bool refuse_unknown(enum command_id command, const char *word, struct error *error)
{
    const char *const own = command_info(command)->name;
    const size_t dashes = strspn(word, "-");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    const char *elsewhere = NULL;
    for (int other = 0; other < COMMAND_COUNT && dashes == 2 && !elsewhere; other++) {
        if (option_find((enum command_id)other, name, strlen(name))) {
            elsewhere = command_info((enum command_id)other)->name;
        }
    }
    const char *meant = nearest(command, strcmp(name, "h") == 0 ? "help" : name);
    char hint[96];
    snprintf(hint, sizeof hint, meant ? "did you mean --%s?" : "`flamia %s --help` lists them", meant ? meant : own);
    return elsewhere
               ? error_set(error, ERROR_USAGE, "--%s is no option of %s, but of %s; %s", name, own, elsewhere, hint)
               : error_set(error, ERROR_USAGE, "%.100s is no option of %s; %s", word, own, hint);
}

/* One option at argv[*index] and, if it is apart, its value. */
static bool take_option(enum command_id command, int argc, char **argv, int *index, struct level *level,
                        struct error *error)
{
    const char *const word = argv[*index];
    const size_t length = strcspn(word, "=");
    const struct option *option = length > 2 ? option_find(command, word + 2, length - 2) : NULL;
    if (!option) {
        return refuse_unknown(command, word, error);
    }
    const char *value = "true";
    if (word[length] == '=') {
        value = word + length + 1;
    } else if (option->type != OPTION_SWITCH) {
        const char *next = *index + 1 < argc ? argv[*index + 1] : NULL;
        if (!next || strncmp(next, "--", 2) == 0) {
            return error_set(error, ERROR_USAGE, "--%s: expected a value (%s), found %s", option->name, option->value,
                             next ? next : "the end of the command line");
        }
        value = next;
        ++*index;
    }
    return level_add(level, option, value, strlen(value), 0, error);
}

static bool take_operand(enum command_id command, const char *word, struct operands *operands, struct error *error)
{
    const struct command_info *info = command_info(command);
    if (!operands || operands->count >= info->most_operands) {
        return error_set(error, ERROR_USAGE, "%s: unexpected '%.100s'; options begin with --", info->name, word);
    }
    operands->items[operands->count++] = word;
    return true;
}

static bool read_command_line(enum command_id command, int argc, char **argv, struct level *level,
                              struct operands *operands, bool *print, struct error *error)
{
    bool options = true; /* until "--" */
    for (int i = 1; i < argc; i++) {
        bool done = true;
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && strcmp(argv[i], "--print-config") == 0) {
            done = !*print || error_set(error, ERROR_USAGE, "--print-config: given twice");
            *print = true;
        } else if (options && argv[i][0] == '-' && argv[i][1] != '\0') {
            done = take_option(command, argc, argv, &i, level, error);
        } else {
            done = take_operand(command, argv[i], operands, error);
        }
        if (!done) {
            return false;
        }
    }
    return true;
}

static bool asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            return true;
        }
    }
    return false;
}

/* Defaults, preset, file, command line, in this order. */
static bool lay(enum command_id command, const struct level *file, const struct level *line, struct settings *settings,
                struct error *error)
{
    const struct level *from = has(line, "preset") ? line : file;
    const struct assignment *preset = level_find(from, "preset");
    initialise(command, settings);
    if (preset && (!assign(from, preset, settings, error) || !apply_preset(preset->text, settings, error))) {
        return false;
    }
    return apply(file, settings, error) && apply(line, settings, error) && options_complete(command, settings, error);
}

enum options_outcome options_parse(enum command_id command, int argc, char **argv, struct settings *settings,
                                   struct operands *operands, struct error *error)
{
    error->code = ERROR_NONE;
    if (asks_help(argc, argv)) {
        return OPTIONS_HELP;
    }
    struct level file = {.file = ""}, line = {.file = NULL};
    bool print = false;
    if (operands) {
        operands->count = 0;
    }
    bool done = read_command_line(command, argc, argv, &line, operands, &print, error);
    const struct assignment *config = level_find(&line, "config");
    if (done && config && *config->text) {
        file.file = config->text;
        done = config_read_file(&file, command, error);
    }
    done = done && lay(command, &file, &line, settings, error);
    level_free(&file);
    level_free(&line);
    return !done ? OPTIONS_REFUSED : print ? OPTIONS_PRINT_CONFIG : OPTIONS_READY;
}

bool options_read_config(enum command_id command, const char *text, size_t bytes, const char *name,
                         struct settings *settings, struct error *error)
{
    struct level file = {.file = name}, line = {.file = NULL};
    const bool done = config_read(&file, command, text, bytes, error) && lay(command, &file, &line, settings, error);
    level_free(&file);
    return done;
}

/* What is still buffered may not reach a full disk: that is found out here. */
static int finish_answer(const char *option, bool printed)
{
    if (fflush(stdout) == 0 && !ferror(stdout) && printed) {
        return ERROR_NONE;
    }
    fprintf(stderr, "flamia: %s: stdout cannot be written: %s\n", option, strerror(errno));
    return ERROR_FAILED;
}

bool options_start(enum command_id command, int argc, char **argv, struct settings *settings, struct operands *operands,
                   int *exit_code)
{
    struct error error;
    *exit_code = 0;
    switch (options_parse(command, argc, argv, settings, operands, &error)) {
    case OPTIONS_READY:
        return true;
    case OPTIONS_HELP:
        options_print_help(command, stdout);
        *exit_code = finish_answer("--help", true);
        break;
    case OPTIONS_PRINT_CONFIG:
        *exit_code = finish_answer("--print-config", options_print_config(command, settings, stdout));
        break;
    case OPTIONS_REFUSED:
        fprintf(stderr, "flamia: %s\n", error.text);
        *exit_code = error.code;
        break;
    }
    return false;
}
