/* probe_picture.c: see probe_picture.h. */
#include "train/probe_picture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/file.h"

struct text {
    char *bytes;
    size_t used, capacity;
    bool broken;
};

static void append(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(struct text *text, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line || text->broken) {
        text->broken = true;
        return;
    }
    if (text->used + (size_t)length > text->capacity) {
        const size_t capacity = 2 * text->capacity + sizeof line;
        char *larger = realloc(text->bytes, capacity);
        if (!larger) {
            text->broken = true;
            return;
        }
        text->bytes = larger;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->used, line, (size_t)length);
    text->used += (size_t)length;
}

#define LEVELS 3

/* How dark a change is drawn: a change of 1 is darkest, of 1e-6 pale, none not at all. */
static int level_of(double change)
{
    return change <= 0 ? 0 : (int)fmin(LEVELS, fmax(1.0, ceil(LEVELS * (1.0 + log10(change) / 7.0))));
}

/* null stands for a change that is not finite. */
static double change_at(const json_t *row, size_t column)
{
    const json_t *change = json_array_get(row, column);
    return json_is_null(change) ? 1 : json_number_value(change);
}

/* One row: a rectangle for each run of cells of one level. Earlier rows, which must not move, are red. */
static void append_row(struct text *text, const json_t *changes, size_t row)
{
    const size_t count = json_array_size(changes);
    for (size_t first = 0, end; first < count; first = end) {
        const int level = level_of(change_at(changes, first));
        const bool early = row < first;
        for (end = first + 1; end < count && (row < end) == early && level_of(change_at(changes, end)) == level;) {
            end++;
        }
        if (level > 0) {
            append(text, "<rect x=\"%zu\" y=\"%zu\" width=\"%zu\" height=\"1\" fill=\"%s\" fill-opacity=\"%.2f\"/>\n",
                   first, row, end - first, early ? "#d62728" : "#1f4e79", (double)level / LEVELS);
        }
    }
}

static void append_grid(struct text *text, size_t tokens)
{
    for (size_t at = 32; at < tokens; at += 32) {
        append(text, "<path d=\"M%zu 0V%zuM0 %zuH%zu\" stroke=\"#999\" stroke-width=\"0.15\"/>\n", at, tokens, at,
               tokens);
    }
}

bool probe_picture_svg(const json_t *picture, const char *path, struct error *error)
{
    const json_t *changes = json_object_get(picture, "changes");
    const size_t tokens = json_array_size(changes);
    struct text text = {NULL, 0, 0, false};
    append(&text,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 -12 %zu %zu\" width=\"480\" "
           "font-family=\"sans-serif\" font-size=\"4\">\n",
           tokens + 14, tokens + 22);
    append(&text, "<rect x=\"-10\" y=\"-12\" width=\"%zu\" height=\"%zu\" fill=\"#fff\"/>\n", tokens + 14, tokens + 22);
    append(&text, "<text x=\"0\" y=\"-4\">%s: %s</text>\n", json_string_value(json_object_get(picture, "recipe")),
           json_string_value(json_object_get(picture, "verdict")));
    append(&text, "<text x=\"0\" y=\"%zu\">perturbed token (K and V x 100)</text>\n", tokens + 6);
    append(&text, "<text transform=\"translate(-3 %zu) rotate(-90)\">row of O and dQ that moves</text>\n", tokens);
    append_grid(&text, tokens);
    append(&text, "<rect width=\"%zu\" height=\"%zu\" fill=\"none\" stroke=\"#333\" stroke-width=\"0.3\"/>\n", tokens,
           tokens);
    for (size_t row = 0; row < tokens; row++) {
        append_row(&text, json_array_get(changes, row), row);
    }
    append(&text, "</svg>\n");
    const bool done = text.broken ? error_set(error, ERROR_FAILED, "%s: no memory for the picture", path)
                                  : file_write_whole(path, text.bytes, text.used, error);
    free(text.bytes);
    return done;
}
