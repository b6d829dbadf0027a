/* vocabulary.c: bytes of each token; see vocabulary.h. */
#include "data/vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>

#include "data/file.h"

#define HEADER_BYTES   1024
#define MAGIC          20240328
#define LARGEST_FILE   ((uint64_t)1 << 30)
#define GPT2_END       50256 /* version 1 files do not say it */
#define BYTES_IN_TOTAL 256

struct vocabulary {
    size_t size;
    int64_t end_of_text;
    bool is_bytes;
    uint8_t *bytes;  /* of all tokens, one after the other */
    size_t *offsets; /* [size + 1] into `bytes` */
};

static struct vocabulary *allocate(size_t size, size_t bytes, struct error *error)
{
    struct vocabulary *vocabulary = calloc(1, sizeof *vocabulary);
    if (vocabulary) {
        vocabulary->size = size;
        vocabulary->end_of_text = -1;
        vocabulary->bytes = malloc(bytes > 0 ? bytes : 1);
        vocabulary->offsets = calloc(size + 1, sizeof *vocabulary->offsets);
    }
    if (!vocabulary || !vocabulary->bytes || !vocabulary->offsets) {
        vocabulary_free(vocabulary);
        error_set(error, ERROR_FAILED, "out of memory for a vocabulary of %zu tokens", size);
        return NULL;
    }
    return vocabulary;
}

struct vocabulary *vocabulary_bytes(struct error *error)
{
    struct vocabulary *vocabulary = allocate(BYTES_IN_TOTAL, BYTES_IN_TOTAL, error);
    if (!vocabulary) {
        return NULL;
    }
    vocabulary->is_bytes = true;
    for (size_t i = 0; i < BYTES_IN_TOTAL; i++) {
        vocabulary->bytes[i] = (uint8_t)i;
        vocabulary->offsets[i + 1] = i + 1;
    }
    return vocabulary;
}

/* `text` is the whole file; its header has been checked. */
static bool read_tokens(struct vocabulary *vocabulary, const char *path, const uint8_t *text, size_t size,
                        struct error *error)
{
    size_t at = HEADER_BYTES, used = 0;
    for (size_t id = 0; id < vocabulary->size; id++) {
        const size_t length = at < size ? text[at] : 0;
        if (at >= size || length > size - at - 1) {
            return error_set(error, ERROR_FAILED,
                             "%s: offset %zu: the file ends in token %zu of %zu; cut while downloaded?", path, at, id,
                             vocabulary->size);
        }
        for (size_t i = 0; i < length; i++) {
            vocabulary->bytes[used++] = text[at + 1 + i];
        }
        vocabulary->offsets[id + 1] = used;
        at += 1 + length;
    }
    return at == size || error_set(error, ERROR_FAILED,
                                   "%s: offset %zu: %zu bytes behind the last of %zu tokens; is it another file?", path,
                                   at, size - at, vocabulary->size);
}

static bool check_header(const struct file *file, const uint8_t *header, struct error *error)
{
    const uint32_t magic = file_get_u32(header), version = file_get_u32(header + 4), size = file_get_u32(header + 8);
    if (magic != MAGIC || version < 1 || version > 2) {
        return error_set(error, ERROR_FAILED,
                         "%s: offset 0: magic %" PRIu32 ", version %" PRIu32
                         "; expected llm.c's tokenizer.bin, %d, version 1 or 2",
                         file->path, magic, version, MAGIC);
    }
    if (size == 0 || size > file->size - HEADER_BYTES) {
        return error_set(error, ERROR_FAILED,
                         "%s: offset 8: %" PRIu32 " tokens cannot be in %" PRIu64 " bytes; cut while downloaded?",
                         file->path, size, file->size);
    }
    if (version == 2 && file_get_u32(header + 12) >= size) {
        return error_set(error, ERROR_FAILED,
                         "%s: offset 12: end-of-text id %" PRIu32 " is not among %" PRIu32 " tokens", file->path,
                         file_get_u32(header + 12), size);
    }
    return true;
}

static struct vocabulary *read_file(const struct file *file, struct error *error)
{
    if (file->size < HEADER_BYTES || file->size > LARGEST_FILE) {
        error_set(error, ERROR_FAILED,
                  "%s: %" PRIu64 " bytes; a tokenizer.bin has %d of header and at most 2^30 in all", file->path,
                  file->size, HEADER_BYTES);
        return NULL;
    }
    uint8_t *text = malloc((size_t)file->size);
    if (!text) {
        error_set(error, ERROR_FAILED, "%s: out of memory", file->path);
        return NULL;
    }
    struct vocabulary *vocabulary = NULL;
    if (file_read(file, 0, text, (size_t)file->size, error) && check_header(file, text, error)) {
        vocabulary = allocate(file_get_u32(text + 8), (size_t)file->size, error);
    }
    if (vocabulary && !read_tokens(vocabulary, file->path, text, (size_t)file->size, error)) {
        vocabulary_free(vocabulary);
        vocabulary = NULL;
    }
    if (vocabulary && file_get_u32(text + 4) == 2) {
        vocabulary->end_of_text = file_get_u32(text + 12);
    } else if (vocabulary && vocabulary->size > GPT2_END) {
        vocabulary->end_of_text = GPT2_END;
    }
    free(text);
    return vocabulary;
}

struct vocabulary *vocabulary_open(const char *path, struct error *error)
{
    struct file file;
    if (!file_open(&file, path, error)) {
        return NULL;
    }
    struct vocabulary *vocabulary = read_file(&file, error);
    file_close(&file);
    return vocabulary;
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    if (vocabulary) {
        free(vocabulary->bytes);
        free(vocabulary->offsets);
        free(vocabulary);
    }
}

size_t vocabulary_size(const struct vocabulary *vocabulary)
{
    return vocabulary->size;
}

int64_t vocabulary_end_of_text(const struct vocabulary *vocabulary)
{
    return vocabulary->end_of_text;
}

const uint8_t *vocabulary_decode(const struct vocabulary *vocabulary, int64_t id, size_t *length)
{
    *length = 0;
    if (id < 0 || (uint64_t)id >= vocabulary->size) {
        return NULL;
    }
    const size_t begin = vocabulary->offsets[id];
    *length = vocabulary->offsets[id + 1] - begin;
    return vocabulary->bytes + begin;
}

bool vocabulary_encode(const struct vocabulary *vocabulary, const uint8_t *text, size_t length, int32_t *ids,
                       size_t *count, struct error *error)
{
    *count = 0;
    if (!vocabulary->is_bytes) {
        return error_set(error, ERROR_FAILED,
                         "text cannot be tokenized with a tokenizer.bin, which has no merges; give the ids "
                         "(scripts/tokenize.py makes them)");
    }
    for (size_t i = 0; i < length; i++) {
        ids[i] = text[i];
    }
    *count = length;
    return true;
}
