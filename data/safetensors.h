/* safetensors.h: named tensors in one file, in Hugging Face's format.
 *
 * 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets: [begin, end]}}, then the
 * tensors' bytes without gaps. The reader refuses whatever is not exactly that, with the reason: a header that is too
 * long, cut or no JSON; names twice; unknown types; shapes whose product overflows or differs from the bytes; ranges
 * that overlap, leave gaps, or do not end where the file ends.
 */
#ifndef DATA_SAFETENSORS_H
#define DATA_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/error.h"
#include "data/file.h"

enum tensor_type { TENSOR_F32, TENSOR_BF16, TENSOR_F16, TENSOR_I64, TENSOR_TYPE_COUNT };

#define SAFETENSORS_MAX_DIMENSIONS 8
#define SAFETENSORS_MAX_HEADER     100000000 /* bytes: the format's own limit */

const char *tensor_type_name(enum tensor_type type); /* "F32", "BF16", "F16", "I64" */
size_t tensor_type_size(enum tensor_type type);      /* bytes an element */

/* A tensor to be written. Zero dimensions mean one element (a scalar); a dimension of 0 means no elements. */
struct tensor_source {
    const char *name; /* UTF-8, not empty, not "__metadata__" */
    enum tensor_type type;
    size_t dimensions;
    int64_t shape[SAFETENSORS_MAX_DIMENSIONS];
    const void *data; /* dense, row-major, native byte order of a little-endian machine */
};

struct tensor_text { /* one entry of "__metadata__" */
    const char *key, *value;
};

/* Writes `path` whole or not at all (file.h). Tensors lie in the file in the order given. */
bool safetensors_write(const char *path, const struct tensor_source *tensors, size_t count,
                       const struct tensor_text *metadata, size_t metadata_count, struct error *error);

/* A tensor in an opened file. */
struct tensor_entry {
    const char *name;
    enum tensor_type type;
    size_t dimensions;
    int64_t shape[SAFETENSORS_MAX_DIMENSIONS];
    size_t elements;
    size_t bytes;
    uint64_t offset; /* of its first byte, from the start of the file */
};

struct safetensors;

/* Opens a file and checks its header and size whole; no tensor is read yet. */
struct safetensors *safetensors_open(const char *path, struct error *error);

/* The same over a file that is open already (memory included); takes `file` over, also on failure. */
struct safetensors *safetensors_open_file(struct file *file, struct error *error);
void safetensors_close(struct safetensors *tensors);

const char *safetensors_path(const struct safetensors *tensors);
size_t safetensors_count(const struct safetensors *tensors);
const struct tensor_entry *safetensors_entry(const struct safetensors *tensors, size_t index); /* in order of offset */
const struct tensor_entry *safetensors_find(const struct safetensors *tensors, const char *name); /* NULL: not there */
const char *safetensors_metadata(const struct safetensors *tensors, const char *key);             /* NULL: not there */

/* The tensor `name`, which must have this type and shape, else one line that says what it has. */
const struct tensor_entry *safetensors_expect(const struct safetensors *tensors, const char *name,
                                              enum tensor_type type, size_t dimensions, const int64_t *shape,
                                              struct error *error);

/* Copies all of an entry's bytes to `to`. */
bool safetensors_read(const struct safetensors *tensors, const struct tensor_entry *entry, void *to,
                      struct error *error);

#endif
