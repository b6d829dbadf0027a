/* config_file.c: see config_file.h. jansson checks the JSON and refuses doubled keys; it keeps keys in their order but
 * not their lines, so those are found by walking the (valid) text once more. */
#include "train/config_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Line, from 1, of the key number `index` of the outermost object; 0 if there are fewer. The text is valid JSON. */
static int key_line(const char *text, size_t bytes, size_t index)
{
    int line = 1, depth = 0;
    bool is_key = false; /* at depth 1: a string that comes next is a key */
    for (size_t i = 0; i < bytes; i++) {
        switch (text[i]) {
        case '\n':
            line++;
            break;
        case '{':
        case '[':
            is_key = ++depth == 1;
            break;
        case '}':
        case ']':
            depth--;
            break;
        case ',':
            is_key = depth == 1;
            break;
        case '"':
            if (is_key && index-- == 0) {
                return line;
            }
            is_key = false;
            for (i++; i < bytes && text[i] != '"'; i++) {
                i += text[i] == '\\';
            }
            break;
        default:
            break;
        }
    }
    return 0;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "null";
    }
}

static const char *expected_type(const struct option *option)
{
    switch (option->type) {
    case OPTION_SWITCH:
        return "true or false";
    case OPTION_INTEGER:
    case OPTION_REAL:
    case OPTION_FLOAT:
        return "a number";
    case OPTION_CHANGE:
        return "an array of texts";
    default:
        return "text";
    }
}

/* A value of the right type as the text that the command line would have. False: of another type. */
static bool value_text(const struct option *option, const json_t *value, char *buffer, size_t bytes, const char **text,
                       size_t *length)
{
    *text = buffer;
    switch (option->type) {
    case OPTION_SWITCH:
        snprintf(buffer, bytes, "%s", json_is_true(value) ? "true" : "false");
        *length = strlen(buffer);
        return json_is_boolean(value);
    case OPTION_INTEGER:
    case OPTION_REAL:
    case OPTION_FLOAT:
        if (json_is_integer(value)) {
            snprintf(buffer, bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        } else {
            snprintf(buffer, bytes, "%.17g", json_real_value(value));
        }
        *length = strlen(buffer);
        return json_is_number(value);
    default:
        *text = json_string_value(value);
        *length = json_string_length(value);
        return json_is_string(value);
    }
}

static bool add_value(struct level *level, const struct option *option, const json_t *value, int line,
                      struct error *error)
{
    char buffer[64];
    const char *text;
    size_t length;
    if (!value_text(option, value, buffer, sizeof buffer, &text, &length)) {
        const struct assignment here = {option, NULL, line};
        char place[256];
        return error_set(error, ERROR_USAGE, "%s: expected %s, found %s",
                         level_place(level, &here, place, sizeof place), expected_type(option), type_name(value));
    }
    return level_add(level, option, text, length, line, error);
}

static bool add_pair(struct level *level, enum command_id command, const char *key, const json_t *value, int line,
                     struct error *error)
{
    const struct option *option = option_find(command, key, strlen(key));
    if (!option || option->type == OPTION_CONFIG) {
        return error_set(error, ERROR_USAGE, "%s:%d: '%.100s' is no option of %s; `flamia %s --print-config` shows all",
                         level->file, line, key, command_info(command)->name, command_info(command)->name);
    }
    if (option->type != OPTION_CHANGE || !json_is_array(value)) {
        return option->type == OPTION_CHANGE
                   ? error_set(error, ERROR_USAGE, "%s:%d: %s: expected %s, found %s", level->file, line, key,
                               expected_type(option), type_name(value))
                   : add_value(level, option, value, line, error);
    }
    size_t index;
    json_t *item;
    json_array_foreach(value, index, item)
    {
        if (!add_value(level, option, item, line, error)) {
            return false;
        }
    }
    return true;
}

bool config_read(struct level *level, enum command_id command, const char *text, size_t bytes, struct error *error)
{
    json_error_t wrong;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (!root) {
        return error_set(error, ERROR_USAGE, "%s:%d: %s", level->file, wrong.line, wrong.text);
    }
    bool done = json_is_object(root);
    if (!done) {
        error_set(error, ERROR_USAGE, "%s: expected an object of options, found %s", level->file, type_name(root));
    }
    const char *key;
    json_t *value;
    size_t index = 0;
    json_object_foreach(root, key, value)
    {
        done = done && add_pair(level, command, key, value, key_line(text, bytes, index++), error);
    }
    json_decref(root);
    return done;
}

bool config_read_file(struct level *level, enum command_id command, struct error *error)
{
    FILE *file = fopen(level->file, "rb");
    if (!file) {
        return error_set(error, ERROR_USAGE, "--config: %s: %s", level->file, strerror(errno));
    }
    char *text = malloc(CONFIG_FILE_MOST + 1);
    const size_t bytes = text ? fread(text, 1, CONFIG_FILE_MOST + 1, file) : 0;
    const bool failed = !text || ferror(file);
    const int reason = errno;
    fclose(file);
    bool done = false;
    if (failed) {
        error_set(error, ERROR_USAGE, "--config: %s: %s", level->file, text ? strerror(reason) : "out of memory");
    } else if (bytes > CONFIG_FILE_MOST) {
        error_set(error, ERROR_USAGE, "--config: %s: expected at most %d bytes of JSON, found more", level->file,
                  CONFIG_FILE_MOST);
    } else {
        done = config_read(level, command, text, bytes, error);
    }
    free(text);
    return done;
}
