/* safetensors_write.c: writes tensors as one safetensors file, whole or not at all. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/safetensors.h"

#define ALIGNMENT 8 /* of the first tensor in the file: readers that map the file get aligned elements */

static bool bad_source(const char *path, const char *name, const char *what, struct error *error)
{
    return error_set(error, ERROR_FAILED, "%s: tensor \"%.80s\" cannot be written: %s", path, name ? name : "", what);
}

/* Bytes of a tensor to be written; false if there is no such number. */
static bool source_bytes(const struct tensor_source *source, uint64_t *bytes)
{
    uint64_t product = tensor_type_size(source->type);
    bool empty = false;
    for (size_t i = 0; i < source->dimensions; i++) {
        const int64_t size = source->shape[i];
        if (size < 0 || (size > 0 && product > (uint64_t)INT64_MAX / (uint64_t)size)) {
            return false;
        }
        empty = empty || size == 0;
        product *= size > 0 ? (uint64_t)size : 1;
    }
    *bytes = empty ? 0 : product;
    return true;
}

/* Adds {dtype, shape, data_offsets} of one tensor. */
static bool add_source(json_t *header, const char *path, const struct tensor_source *source, uint64_t *offset,
                       struct error *error)
{
    uint64_t bytes = 0;
    if (!source->name || source->name[0] == '\0' || strcmp(source->name, "__metadata__") == 0) {
        return bad_source(path, source->name, "the name is empty or reserved", error);
    }
    if (json_object_get(header, source->name)) {
        return bad_source(path, source->name, "the name is there twice", error);
    }
    if ((unsigned)source->type >= TENSOR_TYPE_COUNT || source->dimensions > SAFETENSORS_MAX_DIMENSIONS ||
        !source_bytes(source, &bytes) || bytes > (uint64_t)INT64_MAX - *offset) {
        return bad_source(path, source->name, "its type or shape is impossible", error);
    }
    json_t *shape = json_array();
    for (size_t i = 0; i < source->dimensions; i++) {
        if (json_array_append_new(shape, json_integer(source->shape[i])) != 0) {
            json_decref(shape);
            return bad_source(path, source->name, "out of memory", error);
        }
    }
    /* json_pack takes `shape` over, also when it fails. */
    const uint64_t end = *offset + bytes;
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor_type_name(source->type), "shape", shape,
                              "data_offsets", (json_int_t)*offset, (json_int_t)end);
    if (json_object_set_new(header, source->name, entry) != 0) {
        return bad_source(path, source->name, "the name is no UTF-8, or memory ran out", error);
    }
    *offset += bytes;
    return true;
}

static bool add_metadata(json_t *header, const char *path, const struct tensor_text *metadata, size_t count,
                         struct error *error)
{
    json_t *object = json_object();
    bool good = object != NULL;
    for (size_t i = 0; good && i < count; i++) {
        good = !json_object_get(object, metadata[i].key) &&
               json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) == 0;
    }
    if (!good) {
        json_decref(object);
    }
    return (good && json_object_set_new(header, "__metadata__", object) == 0) ||
           error_set(error, ERROR_FAILED, "%s: metadata cannot be written: a key is there twice, or a text is no UTF-8",
                     path);
}

/* The header's text, padded with spaces; NULL on failure. Release with free. */
static char *make_header(const char *path, const struct tensor_source *tensors, size_t count,
                         const struct tensor_text *metadata, size_t metadata_count, size_t *length, struct error *error)
{
    uint64_t offset = 0;
    json_t *header = json_object();
    bool good = header != NULL || error_set(error, ERROR_FAILED, "%s: out of memory", path);
    good = good && (metadata_count == 0 || add_metadata(header, path, metadata, metadata_count, error));
    for (size_t i = 0; good && i < count; i++) {
        good = add_source(header, path, &tensors[i], &offset, error);
    }
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!good) {
        return NULL;
    }
    const size_t bytes = text ? strlen(text) : 0;
    *length = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *padded = text && *length <= SAFETENSORS_MAX_HEADER ? realloc(text, *length + 1) : NULL;
    if (!padded) {
        free(text);
        error_set(error, ERROR_FAILED, "%s: a header for %zu tensors cannot be made: out of memory, or above %d bytes",
                  path, count, SAFETENSORS_MAX_HEADER);
        return NULL;
    }
    memset(padded + bytes, ' ', *length - bytes);
    return padded;
}

static bool write_tensors(struct file_writer *writer, const char *header, size_t length,
                          const struct tensor_source *tensors, size_t count, struct error *error)
{
    uint8_t prefix[8];
    file_put_u64(prefix, length);
    if (!file_write(writer, prefix, sizeof prefix, error) || !file_write(writer, header, length, error)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        if (!source_bytes(&tensors[i], &bytes) || !file_write(writer, tensors[i].data, (size_t)bytes, error)) {
            return false;
        }
    }
    return true;
}

bool safetensors_write(const char *path, const struct tensor_source *tensors, size_t count,
                       const struct tensor_text *metadata, size_t metadata_count, struct error *error)
{
    struct file_writer writer;
    size_t length = 0;
    char *header = make_header(path, tensors, count, metadata, metadata_count, &length, error);
    bool good = header && file_writer_open(&writer, path, error);
    if (good) {
        good = write_tensors(&writer, header, length, tensors, count, error);
        if (good) {
            good = file_commit(&writer, error);
        } else {
            file_discard(&writer);
        }
    }
    free(header);
    return good;
}
