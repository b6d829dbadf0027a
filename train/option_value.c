/* option_value.c: see option_value.h. */
#include "train/option_value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/preset.h"

/* ---- levels ---- */

static bool same_key(const char *one, const char *other)
{
    const size_t length = strcspn(one, "=");
    return length == strcspn(other, "=") && memcmp(one, other, length) == 0;
}

const char *level_place(const struct level *level, const struct assignment *assignment, char *buffer, size_t bytes)
{
    if (!level->file) {
        snprintf(buffer, bytes, "--%s", assignment->option->name);
    } else if (assignment->line > 0) {
        snprintf(buffer, bytes, "%s:%d: %s", level->file, assignment->line, assignment->option->name);
    } else {
        snprintf(buffer, bytes, "%s: %s", level->file, assignment->option->name);
    }
    return buffer;
}

bool level_add(struct level *level, const struct option *option, const char *text, size_t length, int line,
               struct error *error)
{
    struct assignment *items = realloc(level->items, (level->count + 1) * sizeof *items);
    char *copy = malloc(length + 1);
    if (items) {
        level->items = items;
    }
    if (!items || !copy) {
        free(copy);
        return error_set(error, ERROR_FAILED, "out of memory while reading options");
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    struct assignment *added = &level->items[level->count];
    *added = (struct assignment){option, copy, line};
    for (size_t i = 0; i < level->count; i++) {
        const struct assignment *earlier = &level->items[i];
        if (earlier->option != option || (option->type == OPTION_CHANGE && !same_key(earlier->text, copy))) {
            continue;
        }
        char place[256];
        level_place(level, added, place, sizeof place);
        error_set(error, ERROR_USAGE, "%s: given twice, '%.100s' and '%.100s'", place, earlier->text, copy);
        free(copy);
        return false;
    }
    level->count++;
    return true;
}

const struct assignment *level_find(const struct level *level, const char *name)
{
    for (size_t i = 0; i < level->count; i++) {
        if (strcmp(level->items[i].option->name, name) == 0) {
            return &level->items[i];
        }
    }
    return NULL;
}

void level_free(struct level *level)
{
    for (size_t i = 0; i < level->count; i++) {
        free(level->items[i].text);
    }
    free(level->items);
    level->items = NULL;
    level->count = 0;
}

/* ---- text to value ---- */

/* Decimal digits, sign, point, exponent: strtod itself would also take blanks, hexadecimal, "nan" and "inf". */
static bool is_decimal(const char *text)
{
    return *text && text[strspn(text, "0123456789+-.eE")] == '\0';
}

static bool set_integer(const struct option *option, void *field, const char *text, char *message, size_t bytes)
{
    char *end = NULL;
    errno = 0;
    const long long value = is_decimal(text) ? strtoll(text, &end, 10) : 0;
    if (!end || end == text || *end || errno == EINVAL) {
        snprintf(message, bytes, "expected an integer, found '%.100s'", text);
        return false;
    }
    if (errno == ERANGE || (double)value < option->low || (double)value > option->high) {
        snprintf(message, bytes, "expected an integer from %.17g to %.17g, found %.100s", option->low, option->high,
                 text);
        return false;
    }
    const int64_t stored = value; /* int64_t, uint64_t and size_t alike: never negative */
    memcpy(field, &stored, sizeof stored);
    return true;
}

static bool set_real(const struct option *option, void *field, const char *text, char *message, size_t bytes)
{
    char *end = NULL;
    const double value = is_decimal(text) ? strtod(text, &end) : 0;
    if (!end || end == text || *end) {
        snprintf(message, bytes, "expected a number, found '%.100s'", text);
        return false;
    }
    if (!(value >= option->low && value <= option->high)) {
        snprintf(message, bytes, "expected a number from %g to %g, found %.100s", option->low, option->high, text);
        return false;
    }
    if (option->type == OPTION_FLOAT) {
        const float stored = (float)value;
        memcpy(field, &stored, sizeof stored);
    } else {
        memcpy(field, &value, sizeof value);
    }
    return true;
}

/* Index of `text` in "a|b|c"; -1 if it is not there. */
static int choice_index(const char *choices, const char *text)
{
    const size_t length = strlen(text);
    int index = 0;
    for (const char *choice = choices; choice; index++) {
        const size_t size = strcspn(choice, "|");
        if (size == length && memcmp(choice, text, size) == 0) {
            return index;
        }
        choice = choice[size] ? choice + size + 1 : NULL;
    }
    return -1;
}

static bool set_text(const struct option *option, void *field, const char *text, char *message, size_t bytes)
{
    json_t *string = json_string(text); /* the log and checkpoints are JSON: what they cannot hold is refused here */
    const bool valid = string != NULL;
    json_decref(string);
    if (!valid) {
        snprintf(message, bytes, "expected UTF-8 text");
        return false;
    }
    const size_t length = strlen(text);
    if (length >= option->size) {
        snprintf(message, bytes, "expected at most %zu bytes, found %zu", option->size - 1, length);
        return false;
    }
    memset(field, 0, option->size);
    memcpy(field, text, length);
    return true;
}

static bool set_choice(const struct option *option, void *field, const char *text, char *message, size_t bytes)
{
    const int index = choice_index(option->choices, text);
    if (index < 0) {
        snprintf(message, bytes, "expected %s%s, found '%.100s'", strchr(option->choices, '|') ? "one of " : "",
                 option->choices, text);
        return false;
    }
    if (option->type == OPTION_WORD) {
        return set_text(option, field, text, message, bytes);
    }
    memcpy(field, &index, sizeof index); /* an enum of this project is an unsigned int */
    return true;
}

static bool set_recipe(struct recipe *recipe, const char *text, char *message, size_t bytes)
{
    const struct recipe *found = recipe_find(text);
    if (!*text) {
        memset(recipe, 0, sizeof *recipe);
        return true;
    }
    if (!found) {
        snprintf(message, bytes, "there is no recipe '%.100s'; `flamia recipes` lists them", text);
        return false;
    }
    *recipe = *found;
    return true;
}

bool option_set(const struct option *option, struct settings *settings, const char *text, char *message,
                size_t message_bytes)
{
    void *field = (char *)settings + option->offset;
    switch (option->type) {
    case OPTION_SWITCH:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
            snprintf(message, message_bytes, "expected true or false, found '%.100s'", text);
            return false;
        }
        *(bool *)field = *text == 't';
        return true;
    case OPTION_INTEGER:
        return set_integer(option, field, text, message, message_bytes);
    case OPTION_REAL:
    case OPTION_FLOAT:
        return set_real(option, field, text, message, message_bytes);
    case OPTION_CHOICE:
    case OPTION_WORD:
        return set_choice(option, field, text, message, message_bytes);
    case OPTION_PRESET:
        if (*text && !preset_find(text)) {
            snprintf(message, message_bytes, "there is no preset '%.100s'; `flamia train --help` lists them", text);
            return false;
        }
        return set_text(option, field, text, message, message_bytes);
    case OPTION_TEXT:
    case OPTION_CONFIG:
        return set_text(option, field, text, message, message_bytes);
    case OPTION_RECIPE:
        return set_recipe(field, text, message, message_bytes);
    case OPTION_CHANGE:
        if (((const struct recipe *)field)->name[0] == '\0') {
            snprintf(message, message_bytes, "'%.100s' needs a recipe to change: give --recipe too", text);
            return false;
        }
        return recipe_set(field, text, message, message_bytes);
    }
    return false;
}

/* ---- value to text ---- */

/* The shortest decimal that reads back as the same number. */
static void print_shortest(double value, bool single, char *text, size_t bytes)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (single ? (float)strtod(text, NULL) == (float)value : strtod(text, NULL) == value) {
            return;
        }
    }
}

static void print_choice(const char *choices, unsigned index, char *text, size_t bytes)
{
    while (index-- > 0 && strchr(choices, '|')) {
        choices = strchr(choices, '|') + 1;
    }
    snprintf(text, bytes, "%.*s", (int)strcspn(choices, "|"), choices);
}

void option_get(const struct option *option, const struct settings *settings, char *text, size_t bytes)
{
    const void *field = (const char *)settings + option->offset;
    int64_t integer;
    double real;
    float single;
    unsigned choice;
    switch (option->type) {
    case OPTION_SWITCH:
        snprintf(text, bytes, "%s", *(const bool *)field ? "true" : "false");
        return;
    case OPTION_INTEGER:
        memcpy(&integer, field, sizeof integer);
        snprintf(text, bytes, "%lld", (long long)integer);
        return;
    case OPTION_REAL:
        memcpy(&real, field, sizeof real);
        print_shortest(real, false, text, bytes);
        return;
    case OPTION_FLOAT:
        memcpy(&single, field, sizeof single);
        print_shortest((double)single, true, text, bytes);
        return;
    case OPTION_CHOICE:
        memcpy(&choice, field, sizeof choice);
        print_choice(option->choices, choice, text, bytes);
        return;
    case OPTION_RECIPE:
        recipe_base_name(field, text, bytes);
        return;
    case OPTION_WORD:
    case OPTION_TEXT:
    case OPTION_PRESET:
    case OPTION_CONFIG:
        snprintf(text, bytes, "%s", (const char *)field);
        return;
    case OPTION_CHANGE:
        *text = '\0';
        return;
    }
}

/* ---- recipes and what was changed in them ---- */

void recipe_base_name(const struct recipe *recipe, char *name, size_t bytes)
{
    const size_t length = strlen(recipe->name);
    const bool changed = length > 0 && recipe->name[length - 1] == '+';
    snprintf(name, bytes, "%.*s", (int)(changed ? length - 1 : length), recipe->name);
}

bool recipe_change(const struct recipe *recipe, size_t index, char *text, size_t bytes)
{
    char name[sizeof recipe->name], value[64], base_value[64];
    recipe_base_name(recipe, name, sizeof name);
    const struct recipe *base = recipe_find(name);
    const char *key, *help;
    for (size_t i = 0; base && recipe_switch(recipe, i, &key, value, sizeof value, &help); i++) {
        if (!recipe_switch(base, i, &key, base_value, sizeof base_value, &help) || strcmp(value, base_value) == 0) {
            continue;
        }
        if (index-- == 0) {
            snprintf(text, bytes, "%s=%s", key, value);
            return true;
        }
    }
    return false;
}

void recipe_normalise(struct recipe *recipe)
{
    char change[128];
    if (recipe->name[0] != '\0' && !recipe_change(recipe, 0, change, sizeof change)) {
        recipe_base_name(recipe, change, sizeof change);
        memcpy(recipe->name, change, strlen(change) + 1);
    }
}
