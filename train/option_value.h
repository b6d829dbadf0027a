/* option_value.h: one option's value, as text and in struct settings; and a level of options, which is what the
 * defaults, the preset, the configuration file and the command line each give. For the files that make up options.h. */
#ifndef TRAIN_OPTION_VALUE_H
#define TRAIN_OPTION_VALUE_H

#include "train/options.h"

struct assignment {
    const struct option *option;
    char *text; /* owned */
    int line;   /* of a file; 0: unknown, or the command line */
};

struct level {
    const char *file; /* NULL: the command line */
    struct assignment *items;
    size_t count;
};

/* Adds a copy of `length` bytes of text. An option that is there already is refused, but for OPTION_CHANGE, whose keys
 * must differ. */
bool level_add(struct level *level, const struct option *option, const char *text, size_t length, int line,
               struct error *error);
const struct assignment *level_find(const struct level *level, const char *name);
void level_free(struct level *level);

/* Where an assignment stands, for messages: "--lr", or "run.json:7: lr". Returns `buffer`. */
const char *level_place(const struct level *level, const struct assignment *assignment, char *buffer, size_t bytes);

/* Puts `text` into the option's field. On failure `message` says what was expected and found. */
bool option_set(const struct option *option, struct settings *settings, const char *text, char *message,
                size_t message_bytes);

/* The field's value as text that option_set takes back bit for bit; `bytes` >= SETTINGS_PATH. Not for OPTION_CHANGE. */
void option_get(const struct option *option, const struct settings *settings, char *text, size_t bytes);

/* Name of the recipe that `recipe` was made from, without the "+" of a changed one. */
void recipe_base_name(const struct recipe *recipe, char *name, size_t bytes);

/* The switch `index` (from 0) in which `recipe` differs from the one it was made from, as KEY=VALUE; false past the
 * last. */
bool recipe_change(const struct recipe *recipe, size_t index, char *text, size_t bytes);

/* Gives a recipe that differs from its base in nothing its base's name. */
void recipe_normalise(struct recipe *recipe);

#endif
