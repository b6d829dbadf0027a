/* shard_write.c: writes flamia shards from a stream of ids whose length is not known beforehand: the header is filled
 * in last. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard.h"
#include "data/shard_format.h"

#define PIECE 4096 /* tokens encoded at a time */

static bool check_options(const char *path, int width, int64_t vocabulary, int64_t end_of_text, const char *tokenizer,
                          struct error *error)
{
    if (width != 1 && width != 2 && width != 4) {
        return error_set(error, ERROR_USAGE, "%s: a token cannot have %d bytes; expected 1, 2 or 4", path, width);
    }
    const int64_t most = (int64_t)1 << (width == 4 ? 31 : 8 * width);
    if (vocabulary < 1 || vocabulary > most) {
        return error_set(error, ERROR_USAGE,
                         "%s: a vocabulary of %" PRId64 " does not fit %d bytes a token (1 to %" PRId64 ")", path,
                         vocabulary, width, most);
    }
    if (end_of_text < -1 || end_of_text >= vocabulary) {
        return error_set(error, ERROR_USAGE,
                         "%s: end-of-text id %" PRId64 " is not in the vocabulary of %" PRId64 " (-1: none)", path,
                         end_of_text, vocabulary);
    }
    const size_t length = strlen(tokenizer);
    return (length > 0 && length < SHARD_TOKENIZER) ||
           error_set(error, ERROR_USAGE, "%s: the tokenizer's name has %zu bytes; expected 1 to %d", path, length,
                     SHARD_TOKENIZER - 1);
}

bool shard_writer_open(struct shard_writer *writer, const char *path, int width, int64_t vocabulary,
                       int64_t end_of_text, const char *tokenizer, struct error *error)
{
    *writer = (struct shard_writer){.file.fd = -1, .checksum = FILE_CHECKSUM_START};
    if (width == 0) {
        width = vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
    }
    if (!check_options(path, width, vocabulary, end_of_text, tokenizer, error) ||
        !file_writer_open(&writer->file, path, error)) {
        return false;
    }
    writer->shard =
        (struct shard){.kind = SHARD_FLAMIA, .width = width, .vocabulary = vocabulary, .end_of_text = end_of_text};
    memcpy(writer->shard.tokenizer, tokenizer, strlen(tokenizer));
    static const uint8_t
        blank[SHARD_HEADER]; /* overwritten at the end; until then no reader takes the file for a shard */
    if (!file_write(&writer->file, blank, SHARD_HEADER, error)) {
        shard_writer_discard(writer);
        return false;
    }
    return true;
}

bool shard_writer_document(struct shard_writer *writer, struct error *error)
{
    const size_t count = (size_t)writer->shard.documents;
    if (count == writer->starts_capacity) {
        const size_t capacity = count > 0 ? 2 * count : 64;
        int64_t *starts =
            capacity <= SIZE_MAX / sizeof *starts ? realloc(writer->starts, capacity * sizeof *starts) : NULL;
        if (!starts) {
            return error_set(error, ERROR_FAILED, "%s: out of memory for %zu documents", writer->file.path, capacity);
        }
        writer->starts = starts;
        writer->starts_capacity = capacity;
    }
    writer->starts[count] = writer->shard.tokens;
    writer->shard.documents++;
    return true;
}

/* Everything behind the header goes through here. */
static bool write_body(struct shard_writer *writer, const uint8_t *bytes, size_t count, struct error *error)
{
    writer->checksum = file_checksum(writer->checksum, bytes, count);
    return file_write(&writer->file, bytes, count, error);
}

bool shard_writer_tokens(struct shard_writer *writer, const uint32_t *ids, size_t count, struct error *error)
{
    uint8_t bytes[4 * PIECE];
    const size_t width = (size_t)writer->shard.width;
    if (count > 0 && writer->shard.documents == 0 && !shard_writer_document(writer, error)) {
        return false;
    }
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t piece = count - at < PIECE ? count - at : PIECE;
        for (size_t i = 0; i < piece; i++) {
            const uint32_t id = ids[at + i];
            if (id >= writer->shard.vocabulary) {
                return error_set(error, ERROR_FAILED,
                                 "%s: token %" PRId64 " is %" PRIu32 ", the vocabulary has %" PRId64 " ids",
                                 writer->file.path, writer->shard.tokens + (int64_t)i, id, writer->shard.vocabulary);
            }
            for (size_t b = 0; b < width; b++) {
                bytes[i * width + b] = (uint8_t)(id >> (8 * b));
            }
        }
        if (!write_body(writer, bytes, piece * width, error)) {
            return false;
        }
        writer->shard.tokens += (int64_t)piece;
    }
    return true;
}

static bool write_index(struct shard_writer *writer, struct error *error)
{
    static const uint8_t zeros[8];
    const struct shard *shard = &writer->shard;
    if (!write_body(writer, zeros, (size_t)(shard->index_offset - writer->file.written), error)) {
        return false;
    }
    for (int64_t i = 0; i < shard->documents; i++) {
        uint8_t start[8];
        file_put_u64(start, (uint64_t)writer->starts[i]);
        if (!write_body(writer, start, sizeof start, error)) {
            return false;
        }
    }
    return true;
}

static void make_header(const struct shard_writer *writer, uint8_t *header)
{
    const struct shard *shard = &writer->shard;
    memset(header, 0, SHARD_HEADER);
    file_put_u32(header, SHARD_MAGIC);
    file_put_u32(header + 4, SHARD_VERSION);
    file_put_u32(header + 8, (uint32_t)shard->width);
    file_put_u64(header + 16, (uint64_t)shard->tokens);
    file_put_u64(header + 24, (uint64_t)shard->vocabulary);
    file_put_u64(header + 32, (uint64_t)shard->end_of_text);
    file_put_u64(header + 40, (uint64_t)shard->documents);
    file_put_u64(header + 48, shard->index_offset);
    file_put_u64(header + 56, writer->checksum);
    memcpy(header + 64, shard->tokenizer, SHARD_TOKENIZER);
    memcpy(header + SHARD_AT_SIGNATURE, SHARD_SIGNATURE, 8);
    file_put_u64(header + SHARD_AT_HEADER_CHECKSUM,
                 file_checksum(FILE_CHECKSUM_START, header, SHARD_AT_HEADER_CHECKSUM));
}

bool shard_writer_commit(struct shard_writer *writer, struct error *error)
{
    uint8_t header[SHARD_HEADER];
    writer->shard.index_offset = shard_index_offset(writer->shard.tokens, writer->shard.width);
    bool good = write_index(writer, error);
    if (good) {
        make_header(writer, header);
        good = file_rewrite(&writer->file, 0, header, SHARD_HEADER, error) && file_commit(&writer->file, error);
    }
    shard_writer_discard(writer);
    return good;
}

void shard_writer_discard(struct shard_writer *writer)
{
    file_discard(&writer->file);
    free(writer->starts);
    writer->starts = NULL;
    writer->starts_capacity = 0;
}
