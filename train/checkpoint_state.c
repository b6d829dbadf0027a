/* checkpoint_state.c: state.json, written and read. See checkpoint.h.
 *
 * 64-bit numbers that may exceed JSON's signed range (cursor, identity, checksums) are hexadecimal text.
 */
#include <cblas.h>
#include <inttypes.h>
#include <jansson.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "train/checkpoint_parts.h"
#include "train/options.h"
#include "train/version.h"

#define STATE_FORMAT 1

const char *const checkpoint_file_names[CHECKPOINT_FILES] = {"model.safetensors", "optimizer.safetensors"};

/* ---- writing ---- */

static json_t *hexadecimal(uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *files_json(const struct checkpoint_info *info)
{
    json_t *files = json_object();
    for (size_t i = 0; i < CHECKPOINT_FILES; i++) {
        json_t *entry = json_pack("{s:I, s:o}", "bytes", (json_int_t)info->files[i].bytes, "checksum",
                                  hexadecimal(info->files[i].checksum));
        if (!files || !entry || json_object_set_new(files, checkpoint_file_names[i], entry) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

char *checkpoint_state_text(const struct checkpoint_info *info)
{
    json_t *root = json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:I, s:o, s:f, s:o, s:I, s:s, s:o, s:o}", "format", STATE_FORMAT, "build",
        info->build, "step", (json_int_t)info->step, "updates", (json_int_t)info->updates, "skipped",
        (json_int_t)info->skipped, "tokens", (json_int_t)info->tokens, "sample", hexadecimal(info->sample), "seconds",
        info->seconds, "data_identity", hexadecimal(info->data_identity), "threads", (json_int_t)info->threads, "blas",
        info->blas, "files", files_json(info), "settings", options_json(COMMAND_TRAIN, &info->settings));
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

void checkpoint_marker(char marker[CHECKPOINT_MARKER + 1], const char *state, size_t bytes)
{
    snprintf(marker, CHECKPOINT_MARKER + 1, "%016" PRIx64 "\n", file_checksum(FILE_CHECKSUM_START, state, bytes));
}

void checkpoint_describe_machine(struct checkpoint_info *info)
{
    info->threads = omp_get_max_threads();
    snprintf(info->blas, sizeof info->blas, "%s", openblas_get_corename());
    snprintf(info->build, sizeof info->build, "%s", FLAMIA_VERSION);
}

/* ---- reading ---- */

struct reader {
    const json_t *object;
    const char *name; /* the file's, for messages */
    struct error *error;
};

static bool read_integer(const struct reader *reader, const char *key, int64_t low, int64_t *value)
{
    const json_t *item = json_object_get(reader->object, key);
    if (!json_is_integer(item) || json_integer_value(item) < low) {
        return error_set(reader->error, ERROR_FAILED,
                         "%s: \"%s\": expected an integer of at least %" PRId64 "; use an older checkpoint",
                         reader->name, key, low);
    }
    *value = json_integer_value(item);
    return true;
}

static bool read_hexadecimal(const struct reader *reader, const char *key, uint64_t *value)
{
    const char *text = json_string_value(json_object_get(reader->object, key));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) {
        return error_set(reader->error, ERROR_FAILED,
                         "%s: \"%s\": expected 16 hexadecimal digits; use an older checkpoint", reader->name, key);
    }
    *value = strtoull(text, NULL, 16);
    return true;
}

static bool read_text(const struct reader *reader, const char *key, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(reader->object, key));
    if (!text || strlen(text) >= size) {
        return error_set(reader->error, ERROR_FAILED,
                         "%s: \"%s\": expected a text of fewer than %zu bytes; use an older checkpoint", reader->name,
                         key, size);
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool read_seconds(const struct reader *reader, double *seconds)
{
    const json_t *item = json_object_get(reader->object, "seconds");
    if (!json_is_number(item) || !(json_number_value(item) >= 0)) {
        return error_set(reader->error, ERROR_FAILED,
                         "%s: \"seconds\": expected a number of at least 0; use an older checkpoint", reader->name);
    }
    *seconds = json_number_value(item);
    return true;
}

static bool read_files(const struct reader *reader, struct checkpoint_info *info)
{
    const json_t *files = json_object_get(reader->object, "files");
    for (size_t i = 0; i < CHECKPOINT_FILES; i++) {
        const struct reader entry = {json_object_get(files, checkpoint_file_names[i]), reader->name, reader->error};
        int64_t bytes = 0;
        if (!json_is_object(entry.object)) {
            return error_set(reader->error, ERROR_FAILED,
                             "%s: \"files\": expected an entry for %s; use an older checkpoint", reader->name,
                             checkpoint_file_names[i]);
        }
        if (!read_integer(&entry, "bytes", 0, &bytes) ||
            !read_hexadecimal(&entry, "checksum", &info->files[i].checksum)) {
            return false;
        }
        info->files[i].bytes = (uint64_t)bytes;
    }
    return true;
}

/* Settings go through the same reader as a configuration file. */
static bool read_settings(const struct reader *reader, struct checkpoint_info *info)
{
    const json_t *settings = json_object_get(reader->object, "settings");
    char *text = json_is_object(settings) ? json_dumps(settings, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) {
        return error_set(reader->error, ERROR_FAILED, "%s: \"settings\": expected an object; use an older checkpoint",
                         reader->name);
    }
    options_defaults(COMMAND_TRAIN, &info->settings);
    const bool done =
        options_read_config(COMMAND_TRAIN, text, strlen(text), reader->name, &info->settings, reader->error);
    free(text);
    if (!done && reader->error) {
        reader->error->code = ERROR_FAILED; /* the file is wrong, not the command line */
    }
    return done;
}

static bool read_state(const struct reader *reader, struct checkpoint_info *info)
{
    int64_t format = 0;
    if (!json_is_object(reader->object) || !read_integer(reader, "format", 0, &format)) {
        return error_set(reader->error, ERROR_FAILED,
                         "%s: expected a checkpoint's state, an object with \"format\"; use an older checkpoint",
                         reader->name);
    }
    if (format != STATE_FORMAT) {
        return error_set(reader->error, ERROR_FAILED,
                         "%s: format %" PRId64 ", expected %d: it was written by another version of flamia",
                         reader->name, format, STATE_FORMAT);
    }
    return read_integer(reader, "step", 0, &info->step) && read_integer(reader, "updates", 0, &info->updates) &&
           read_integer(reader, "skipped", 0, &info->skipped) && read_integer(reader, "tokens", 0, &info->tokens) &&
           read_hexadecimal(reader, "sample", &info->sample) && read_seconds(reader, &info->seconds) &&
           read_hexadecimal(reader, "data_identity", &info->data_identity) &&
           read_integer(reader, "threads", 1, &info->threads) &&
           read_text(reader, "blas", info->blas, sizeof info->blas) &&
           read_text(reader, "build", info->build, sizeof info->build) && read_files(reader, info) &&
           read_settings(reader, info);
}

bool checkpoint_parse_state(const char *text, size_t bytes, const char *name, struct checkpoint_info *info,
                            struct error *error)
{
    json_error_t where;
    memset(info, 0, sizeof *info);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        return error_set(error, ERROR_FAILED, "%s: line %d: no JSON: %s; use an older checkpoint", name, where.line,
                         where.text);
    }
    const struct reader reader = {root, name, error};
    const bool done = read_state(&reader, info);
    json_decref(root);
    return done;
}
