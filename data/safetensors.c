/* safetensors.c: the strict reader; see safetensors.h. The writer is in safetensors_write.c. */
#include "data/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct safetensors {
    struct file file;
    json_t *header;
    uint64_t data; /* offset of the first tensor's first byte */
    struct tensor_entry *entries;
    size_t count;
};

static const struct {
    const char *name;
    size_t size;
} types[TENSOR_TYPE_COUNT] = {
    [TENSOR_F32] = {"F32", 4}, [TENSOR_BF16] = {"BF16", 2}, [TENSOR_F16] = {"F16", 2}, [TENSOR_I64] = {"I64", 8}};

static bool read_header(struct safetensors *tensors, struct error *error);
static bool read_entries(struct safetensors *tensors, struct error *error);
static bool check_layout(const struct safetensors *tensors, struct error *error);

const char *tensor_type_name(enum tensor_type type)
{
    return types[type].name;
}

size_t tensor_type_size(enum tensor_type type)
{
    return types[type].size;
}

struct safetensors *safetensors_open(const char *path, struct error *error)
{
    struct file file;
    return file_open(&file, path, error) ? safetensors_open_file(&file, error) : NULL;
}

struct safetensors *safetensors_open_file(struct file *file, struct error *error)
{
    struct safetensors *tensors = calloc(1, sizeof *tensors);
    if (!tensors) {
        error_set(error, ERROR_FAILED, "%s: out of memory", file->path);
        file_close(file);
        return NULL;
    }
    tensors->file = *file;
    if (!read_header(tensors, error) || !read_entries(tensors, error) || !check_layout(tensors, error)) {
        safetensors_close(tensors);
        return NULL;
    }
    return tensors;
}

void safetensors_close(struct safetensors *tensors)
{
    if (tensors) {
        json_decref(tensors->header);
        free(tensors->entries);
        file_close(&tensors->file);
        free(tensors);
    }
}

static bool read_header(struct safetensors *tensors, struct error *error)
{
    const struct file *file = &tensors->file;
    uint8_t prefix[8];
    if (file->size < sizeof prefix) {
        return error_set(error, ERROR_FAILED,
                         "%s: %" PRIu64 " bytes, a safetensors file begins with 8 of header length; the file was cut",
                         file->path, file->size);
    }
    if (!file_read(file, 0, prefix, sizeof prefix, error)) {
        return false;
    }
    const uint64_t length = file_get_u64(prefix);
    if (length > SAFETENSORS_MAX_HEADER || length > file->size - sizeof prefix) {
        return error_set(error, ERROR_FAILED,
                         "%s: offset 0: header of %" PRIu64 " bytes, expected at most %" PRIu64
                         " (limit %d); cut, or no safetensors file",
                         file->path, length, file->size - sizeof prefix, SAFETENSORS_MAX_HEADER);
    }
    char *text = malloc(length > 0 ? (size_t)length : 1);
    if (!text) {
        return error_set(error, ERROR_FAILED, "%s: out of memory for a header of %" PRIu64 " bytes", file->path,
                         length);
    }
    json_error_t fault = {.text = "it is empty"};
    bool good = file_read(file, sizeof prefix, text, (size_t)length, error);
    if (good && (length == 0 || text[0] != '{')) {
        good = error_set(error, ERROR_FAILED, "%s: offset 8: the header does not begin with '{'; no safetensors file",
                         file->path);
    } else if (good) {
        tensors->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &fault);
        good = json_is_object(tensors->header) ||
               error_set(error, ERROR_FAILED, "%s: offset %d: header is no JSON object: %.200s", file->path,
                         8 + fault.position, fault.text);
    }
    free(text);
    tensors->data = sizeof prefix + length;
    return good;
}

static bool bad_entry(const struct safetensors *tensors, const char *name, const char *what, struct error *error)
{
    return error_set(error, ERROR_FAILED, "%s: tensor \"%.80s\": %s", tensors->file.path, name, what);
}

static bool read_metadata(const struct safetensors *tensors, json_t *metadata, struct error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return error_set(error, ERROR_FAILED, "%s: \"__metadata__\" is no JSON object", tensors->file.path);
    }
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value)) {
            return error_set(error, ERROR_FAILED, "%s: \"__metadata__\": \"%.80s\" is no string", tensors->file.path,
                             key);
        }
    }
    return true;
}

static bool read_type(const struct safetensors *tensors, const json_t *value, struct tensor_entry *entry,
                      struct error *error)
{
    char message[96];
    if (!json_is_string(value)) {
        return bad_entry(tensors, entry->name, "\"dtype\" is missing or no string", error);
    }
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        if (strcmp(json_string_value(value), types[type].name) == 0) {
            entry->type = (enum tensor_type)type;
            return true;
        }
    }
    snprintf(message, sizeof message, "dtype \"%.20s\"; expected F32, BF16, F16 or I64", json_string_value(value));
    return bad_entry(tensors, entry->name, message, error);
}

static bool read_shape(const struct safetensors *tensors, const json_t *value, struct tensor_entry *entry,
                       struct error *error)
{
    char message[96];
    if (!json_is_array(value) || json_array_size(value) > SAFETENSORS_MAX_DIMENSIONS) {
        snprintf(message, sizeof message, "\"shape\" is no array of at most %d dimensions", SAFETENSORS_MAX_DIMENSIONS);
        return bad_entry(tensors, entry->name, message, error);
    }
    entry->dimensions = json_array_size(value);
    entry->elements = 1;
    bool empty = false;
    for (size_t i = 0; i < entry->dimensions; i++) {
        const json_t *dimension = json_array_get(value, i);
        const json_int_t size = json_integer_value(dimension);
        if (!json_is_integer(dimension) || size < 0) {
            return bad_entry(tensors, entry->name, "\"shape\" holds something other than sizes", error);
        }
        entry->shape[i] = size;
        empty = empty || size == 0;
        /* The product of the other sizes must not overflow behind a zero either: programs multiply in any order. */
        if (size > 0 && entry->elements > (size_t)INT64_MAX / 8 / (size_t)size) {
            return bad_entry(tensors, entry->name, "the product of the shape overflows", error);
        }
        entry->elements *= size > 0 ? (size_t)size : 1;
    }
    entry->elements = empty ? 0 : entry->elements;
    entry->bytes = entry->elements * types[entry->type].size;
    return true;
}

static bool read_range(const struct safetensors *tensors, const json_t *value, struct tensor_entry *entry,
                       struct error *error)
{
    const uint64_t size = tensors->file.size - tensors->data;
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (!json_is_array(value) || json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return bad_entry(tensors, entry->name, "\"data_offsets\" are no two integers", error);
    }
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > size) {
        return error_set(error, ERROR_FAILED,
                         "%s: tensor \"%.80s\": bytes %" PRId64 " to %" PRId64 " of the %" PRIu64
                         " that the file has; is it cut?",
                         tensors->file.path, entry->name, (int64_t)begin, (int64_t)end, size);
    }
    if ((uint64_t)(end - begin) != entry->bytes) {
        return error_set(error, ERROR_FAILED,
                         "%s: tensor \"%.80s\": %s, shape of %zu elements needs %zu bytes, data_offsets give %" PRId64,
                         tensors->file.path, entry->name, types[entry->type].name, entry->elements, entry->bytes,
                         (int64_t)(end - begin));
    }
    entry->offset = tensors->data + (uint64_t)begin;
    return true;
}

static bool read_entry(const struct safetensors *tensors, const char *name, json_t *value, struct tensor_entry *entry,
                       struct error *error)
{
    entry->name = name;
    if (name[0] == '\0') {
        return bad_entry(tensors, name, "has an empty name", error);
    }
    if (!json_is_object(value) || json_object_size(value) != 3) {
        return bad_entry(tensors, name, "is no object of dtype, shape and data_offsets", error);
    }
    return read_type(tensors, json_object_get(value, "dtype"), entry, error) &&
           read_shape(tensors, json_object_get(value, "shape"), entry, error) &&
           read_range(tensors, json_object_get(value, "data_offsets"), entry, error);
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor_entry *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) { /* empty ones before the tensor that begins there */
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static bool read_entries(struct safetensors *tensors, struct error *error)
{
    const char *name;
    json_t *value;
    const size_t size = json_object_size(tensors->header);
    tensors->entries = calloc(size > 0 ? size : 1, sizeof *tensors->entries);
    if (!tensors->entries) {
        return error_set(error, ERROR_FAILED, "%s: out of memory for %zu tensors", tensors->file.path, size);
    }
    json_object_foreach(tensors->header, name, value)
    {
        const bool good = strcmp(name, "__metadata__") == 0
                              ? read_metadata(tensors, value, error)
                              : read_entry(tensors, name, value, &tensors->entries[tensors->count++], error);
        if (!good) {
            return false;
        }
    }
    qsort(tensors->entries, tensors->count, sizeof *tensors->entries, by_offset);
    return true;
}

static bool check_layout(const struct safetensors *tensors, struct error *error)
{
    uint64_t end = tensors->data;
    const char *before = "the header";
    for (size_t i = 0; i < tensors->count; i++) {
        const struct tensor_entry *entry = &tensors->entries[i];
        if (entry->offset != end) {
            return error_set(error, ERROR_FAILED,
                             "%s: tensor \"%.80s\" begins at byte %" PRIu64 ", \"%.80s\" ends at %" PRIu64
                             ": %s; the file is damaged",
                             tensors->file.path, entry->name, entry->offset, before, end,
                             entry->offset < end ? "they overlap" : "a gap");
        }
        end += entry->bytes;
        before = entry->name;
    }
    return end == tensors->file.size || error_set(error, ERROR_FAILED,
                                                  "%s: %" PRIu64 " bytes behind the last tensor, which ends at %" PRIu64
                                                  "; the file is damaged, or was written in two formats",
                                                  tensors->file.path, tensors->file.size - end, end);
}

const char *safetensors_path(const struct safetensors *tensors)
{
    return tensors->file.path;
}

size_t safetensors_count(const struct safetensors *tensors)
{
    return tensors->count;
}

const struct tensor_entry *safetensors_entry(const struct safetensors *tensors, size_t index)
{
    return index < tensors->count ? &tensors->entries[index] : NULL;
}

const struct tensor_entry *safetensors_find(const struct safetensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->entries[i].name, name) == 0) {
            return &tensors->entries[i];
        }
    }
    return NULL;
}

const char *safetensors_metadata(const struct safetensors *tensors, const char *key)
{
    return json_string_value(json_object_get(json_object_get(tensors->header, "__metadata__"), key));
}

/* "F32 [3, 4]" */
static void describe(enum tensor_type type, size_t dimensions, const int64_t *shape, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%s [", types[type].name);
    for (size_t i = 0; i < dimensions && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    }
    if (length < size) {
        snprintf(text + length, size - length, "]");
    }
}

const struct tensor_entry *safetensors_expect(const struct safetensors *tensors, const char *name,
                                              enum tensor_type type, size_t dimensions, const int64_t *shape,
                                              struct error *error)
{
    const struct tensor_entry *entry = safetensors_find(tensors, name);
    if (!entry) {
        error_set(error, ERROR_FAILED, "%s: tensor \"%.80s\" is not there (%zu others are)", tensors->file.path, name,
                  tensors->count);
        return NULL;
    }
    bool same = entry->type == type && entry->dimensions == dimensions;
    for (size_t i = 0; same && i < dimensions; i++) {
        same = entry->shape[i] == shape[i];
    }
    if (!same) {
        char found[160], expected[160];
        describe(entry->type, entry->dimensions, entry->shape, found, sizeof found);
        describe(type, dimensions, shape, expected, sizeof expected);
        error_set(error, ERROR_FAILED, "%s: tensor \"%.80s\" is %s, expected %s", tensors->file.path, name, found,
                  expected);
        return NULL;
    }
    return entry;
}

bool safetensors_read(const struct safetensors *tensors, const struct tensor_entry *entry, void *to,
                      struct error *error)
{
    return file_read(&tensors->file, entry->offset, to, entry->bytes, error);
}
