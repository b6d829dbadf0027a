/* options.h: from the command line and a configuration file to struct settings, by one table.
 *
 * The table (option_table.c) says of every option its name, type, range, default, help, which commands take it and
 * which field of struct settings it fills; parsing, --help, --print-config, the configuration file and the log's first
 * record all come from it. A name may have two rows for different commands, where its default or meaning differs.
 *
 * Precedence: defaults < preset < --config FILE < command line. No abbreviations; `--name value` and `--name=value` are
 * the same; a switch is on when it is named, `--name=false` turns it off. Unknown, doubled, malformed, out of range and
 * contradictory options are refused before any work, with exit code 2.
 *
 *     int command_eval(int argc, char **argv)
 *     {
 *         struct settings settings;
 *         int exit_code;
 *         if (!options_start(COMMAND_EVAL, argc, argv, &settings, NULL, &exit_code)) {
 *             return exit_code;
 *         }
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "data/error.h"
#include "train/settings.h"

enum command_id {
    COMMAND_TRAIN,
    COMMAND_EVAL,
    COMMAND_GENERATE,
    COMMAND_PROBE,
    COMMAND_INSPECT,
    COMMAND_RECIPES,
    COMMAND_SELFTEST,
    COMMAND_DATA,
    COMMAND_REPORT,
    COMMAND_COUNT,
};

struct command_info {
    const char *name;
    const char *operands; /* what may follow that is no option, as help shows it; "" for nothing */
    size_t most_operands;
    const char *summary; /* one line */
};

const struct command_info *command_info(enum command_id command);

/* Words on the command line that are no options. */
#define OPERANDS_MAX 16
struct operands {
    const char *items[OPERANDS_MAX];
    size_t count;
};

enum options_outcome {
    OPTIONS_READY,        /* settings are complete and agree with each other */
    OPTIONS_HELP,         /* --help was asked for */
    OPTIONS_PRINT_CONFIG, /* settings are complete; --print-config was asked for */
    OPTIONS_REFUSED,      /* error says why; its code is ERROR_USAGE (or ERROR_FAILED for an unreadable file) */
};

/* argv[0] is not looked at. `operands` may be NULL for a command that takes none. */
enum options_outcome options_parse(enum command_id command, int argc, char **argv, struct settings *settings,
                                   struct operands *operands, struct error *error);

/* options_parse, and what it asks for: help and configuration on stdout, an error on stderr. True: go on; false: return
 * `exit_code`. */
bool options_start(enum command_id command, int argc, char **argv, struct settings *settings, struct operands *operands,
                   int *exit_code);

/* The defaults of a command, as if it were given no options; always agree with each other. */
void options_defaults(enum command_id command, struct settings *settings);

/* Reads a configuration (a JSON object whose keys are option names) from memory over what `settings` holds, as --config
 * does with a file. `name` is the file's, for messages. */
bool options_read_config(enum command_id command, const char *text, size_t bytes, const char *name,
                         struct settings *settings, struct error *error);

/* Every option a command takes with its value, as an object for the log and checkpoints; the caller decrefs it. NULL
 * without memory. */
json_t *options_json(enum command_id command, const struct settings *settings);

/* The same as text, which --config gives back. False if writing failed. */
bool options_print_config(enum command_id command, const struct settings *settings, FILE *to);

void options_print_help(enum command_id command, FILE *to);

/* ---- the table, for the files above and the tests ---- */

enum option_type {
    OPTION_SWITCH,  /* bool */
    OPTION_INTEGER, /* int64_t, uint64_t or size_t, not negative */
    OPTION_REAL,    /* double */
    OPTION_FLOAT,   /* float */
    OPTION_CHOICE,  /* enum: one of `choices`, in the enum's order */
    OPTION_WORD,    /* char [size]: one of `choices` */
    OPTION_TEXT,    /* char [size], UTF-8 */
    OPTION_PRESET,  /* char [size]: a preset's name */
    OPTION_RECIPE,  /* struct recipe: a recipe's name, or "" for none given */
    OPTION_CHANGE,  /* struct recipe: KEY=VALUE, may be repeated */
    OPTION_CONFIG,  /* char [size]: --config */
};

struct option {
    const char *name; /* without the dashes */
    enum option_type type;
    uint32_t commands; /* bit 1 << enum command_id */
    size_t offset, size;
    const char *initial; /* the default, as text the parser takes */
    double low, high;    /* numbers */
    const char *choices; /* "a|b|c" */
    const char *value;   /* what help calls the value */
    const char *heading; /* the group it is listed under */
    const char *help;
};

size_t option_count(void);
const struct option *option_at(size_t index);

/* The row of `name` that `command` takes; NULL if there is none. `length`: of the name. */
const struct option *option_find(enum command_id command, const char *name, size_t length);

#endif
