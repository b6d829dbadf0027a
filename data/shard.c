/* shard.c: recognising, checking and reading shards; see shard.h. The writer is in shard_write.c. */
#include "data/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard_format.h"

#define SCAN_TOKENS ((size_t)1 << 18)
#define SCAN_STARTS ((size_t)1 << 14)

static const struct {
    const char *name;
    uint32_t magic;
    uint32_t version;
    int width;
    int64_t vocabulary, document_token;
    const char *tokenizer;
} kinds[] = {
    [SHARD_GPT2] = {"llm.c GPT-2", 20240520, 1, 2, 50257, 50256, "gpt2"},
    [SHARD_LLAMA3] = {"llm.c Llama-3", 20240801, 7, 4, 128256, 128000, "llama3"},
    [SHARD_FLAMIA] = {"flamia", SHARD_MAGIC, SHARD_VERSION, 0, 0, -1, ""},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static const struct {
    uint32_t magic;
    const char *what;
} others[] = {
    {20240326, "an llm.c model file"},     {20240327, "an llm.c debug state"},
    {20240328, "an llm.c tokenizer"},      {20240522, "an llm.c multiple-choice file"},
    {20240527, "an llm.c training state"},
};

static bool read_flamia_header(const struct file *file, const uint8_t *header, struct shard *shard,
                               struct error *error);

const char *shard_kind_name(enum shard_kind kind)
{
    return kinds[kind].name;
}

static uint32_t swapped(uint32_t x)
{
    return x >> 24 | (x >> 8 & 0xFF00u) | (x << 8 & 0xFF0000u) | x << 24;
}

/* Offset of the first byte that is not zero in [from, to); `to` if there is none. */
static size_t first_nonzero(const uint8_t *bytes, size_t from, size_t to)
{
    while (from < to && bytes[from] == 0) {
        from++;
    }
    return from;
}

/* A header of zeros behind three numbers, the third of which fits the file's size, is a shard's, whatever its first
 * number says. */
static bool is_shaped_like_shard(const struct file *file, const uint8_t *header)
{
    const uint64_t tokens = file_get_u32(header + 8);
    const uint64_t payload = file->size - SHARD_HEADER;
    return tokens > 0 && first_nonzero(header, 12, SHARD_HEADER) == SHARD_HEADER &&
           (payload == 2 * tokens || payload == 4 * tokens);
}

bool shard_recognise(const struct file *file, bool *is_shard, struct error *error)
{
    uint8_t header[SHARD_HEADER] = {0};
    const size_t bytes = file->size < SHARD_HEADER ? (size_t)file->size : SHARD_HEADER;
    *is_shard = false;
    if (!file_read(file, 0, header, bytes, error)) {
        return false;
    }
    const uint32_t magic = file_get_u32(header);
    for (size_t i = 0; i < KINDS; i++) {
        if (bytes >= 4 && magic == kinds[i].magic) {
            *is_shard = true;
            return true;
        }
        if (bytes >= 4 && swapped(magic) == kinds[i].magic) {
            return error_set(error, ERROR_FAILED,
                             "%s: offset 0: magic %" PRIu32
                             " of %s shards in reversed byte order; convert it to little-endian",
                             file->path, kinds[i].magic, kinds[i].name);
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (bytes == SHARD_HEADER && magic == others[i].magic) {
            return error_set(error, ERROR_FAILED, "%s: is %s (magic %" PRIu32 "), not tokens to train on", file->path,
                             others[i].what, magic);
        }
    }
    if (bytes >= 8 && memcmp(header, "BIN.TOK\n", 8) == 0) {
        return error_set(error, ERROR_FAILED,
                         "%s: is an llmq shard (BIN.TOK), which is not read; write it anew with `flamia data write`",
                         file->path);
    }
    if (bytes == SHARD_HEADER &&
        (memcmp(header + SHARD_AT_SIGNATURE, SHARD_SIGNATURE, 8) == 0 || is_shaped_like_shard(file, header))) {
        return error_set(error, ERROR_FAILED,
                         "%s: offset 0: has a shard's header but magic %" PRIu32 "; expected %" PRIu32 ", %" PRIu32
                         " or %" PRIu32 "; is the file damaged?",
                         file->path, magic, kinds[0].magic, kinds[1].magic, kinds[2].magic);
    }
    return true;
}

/* llm.c's header says nothing but the count. */
static bool read_llmc_header(const struct file *file, const uint8_t *header, struct shard *shard, struct error *error)
{
    const int64_t tokens = (int32_t)file_get_u32(header + 8);
    const uint64_t payload = file->size - SHARD_HEADER;
    const uint64_t width = (uint64_t)kinds[shard->kind].width;
    if (tokens < 0 || payload % width != 0 || (uint64_t)tokens != payload / width) {
        return error_set(error, ERROR_FAILED,
                         "%s: header says %" PRId64 " tokens of %" PRIu64 " bytes, file holds %" PRIu64 "%s (%" PRIu64
                         " bytes, expected %" PRId64 "); cut while downloaded? Fetch or write it anew",
                         file->path, tokens, width, payload / width, payload % width != 0 ? " and a part of one" : "",
                         file->size, SHARD_HEADER + tokens * (int64_t)width);
    }
    const size_t stray = first_nonzero(header, 12, SHARD_HEADER);
    if (stray < SHARD_HEADER) {
        return error_set(error, ERROR_FAILED,
                         "%s: offset %zu: %s headers hold zeros there, found byte %u; is the file damaged?", file->path,
                         stray, kinds[shard->kind].name, header[stray]);
    }
    shard->width = (int)width;
    shard->tokens = tokens;
    shard->vocabulary = kinds[shard->kind].vocabulary;
    shard->end_of_text = kinds[shard->kind].document_token;
    snprintf(shard->tokenizer, sizeof shard->tokenizer, "%s", kinds[shard->kind].tokenizer);
    return true;
}

bool shard_read_header(const struct file *file, struct shard *shard, struct error *error)
{
    uint8_t header[SHARD_HEADER];
    *shard = (struct shard){0};
    if (file->size < SHARD_HEADER) {
        return error_set(error, ERROR_FAILED, "%s: %" PRIu64 " bytes, a shard's header alone has %d; the file was cut",
                         file->path, file->size, SHARD_HEADER);
    }
    if (!file_read(file, 0, header, SHARD_HEADER, error)) {
        return false;
    }
    const uint32_t magic = file_get_u32(header), version = file_get_u32(header + 4);
    size_t kind = 0;
    while (kind < KINDS && kinds[kind].magic != magic) {
        kind++;
    }
    if (kind == KINDS) {
        return error_set(error, ERROR_FAILED, "%s: offset 0: magic %" PRIu32 " is no shard's", file->path, magic);
    }
    if (version != kinds[kind].version) {
        return error_set(error, ERROR_FAILED, "%s: offset 4: %s version %" PRIu32 ", expected %" PRIu32, file->path,
                         kinds[kind].name, version, kinds[kind].version);
    }
    shard->kind = (enum shard_kind)kind;
    return shard->kind == SHARD_FLAMIA ? read_flamia_header(file, header, shard, error)
                                       : read_llmc_header(file, header, shard, error);
}

/* The fields of a flamia header that bound each other. The header's own checksum has been verified: what is refused
 * here was written so. */
static const char *flamia_header_fault(const struct file *file, const uint8_t *header, const struct shard *shard)
{
    const uint64_t body = file->size - SHARD_HEADER;
    if (shard->width != 1 && shard->width != 2 && shard->width != 4) {
        return "bytes per token (offset 8) are not 1, 2 or 4";
    }
    if (shard->vocabulary < 1 || shard->vocabulary > (int64_t)1 << (shard->width == 4 ? 31 : 8 * shard->width)) {
        return "the vocabulary (offset 24) does not fit the token width";
    }
    if (shard->end_of_text < -1 || shard->end_of_text >= shard->vocabulary) {
        return "the end-of-text id (offset 32) is not in the vocabulary";
    }
    if (shard->tokens < 0 || (uint64_t)shard->tokens > body / (uint64_t)shard->width) {
        return "the file is shorter than its tokens (offset 16)";
    }
    if (shard->documents < 0 || (uint64_t)shard->documents > body / 8 || (shard->documents == 0 && shard->tokens > 0)) {
        return "the number of documents (offset 40) is impossible";
    }
    if (shard->index_offset != shard_index_offset(shard->tokens, shard->width)) {
        return "the document index (offset 48) is not behind the tokens";
    }
    if (!memchr(shard->tokenizer, 0, SHARD_TOKENIZER) || shard->tokenizer[0] == 0) {
        return "the tokenizer (offset 64) has no name or no end";
    }
    if (file_get_u32(header + 12) != 0 || first_nonzero(header, SHARD_AT_ZEROS, SHARD_HEADER) != SHARD_HEADER) {
        return "reserved bytes are not zero";
    }
    return NULL;
}

static bool read_flamia_header(const struct file *file, const uint8_t *header, struct shard *shard, struct error *error)
{
    const uint64_t found = file_checksum(FILE_CHECKSUM_START, header, SHARD_AT_HEADER_CHECKSUM);
    const uint64_t expected = file_get_u64(header + SHARD_AT_HEADER_CHECKSUM);
    if (memcmp(header + SHARD_AT_SIGNATURE, SHARD_SIGNATURE, 8) != 0 || found != expected) {
        return error_set(error, ERROR_FAILED,
                         "%s: header's checksum is %016" PRIx64 ", expected %016" PRIx64
                         "; the file is damaged: write it anew",
                         file->path, found, expected);
    }
    shard->width = (int)(int32_t)file_get_u32(header + 8);
    shard->tokens = (int64_t)file_get_u64(header + 16);
    shard->vocabulary = (int64_t)file_get_u64(header + 24);
    shard->end_of_text = (int64_t)file_get_u64(header + 32);
    shard->documents = (int64_t)file_get_u64(header + 40);
    shard->index_offset = file_get_u64(header + 48);
    shard->checksum = file_get_u64(header + 56);
    memcpy(shard->tokenizer, header + 64, SHARD_TOKENIZER);
    const char *fault = flamia_header_fault(file, header, shard);
    if (fault) {
        return error_set(error, ERROR_FAILED, "%s: %s (%" PRIu64 " bytes in all); cut, or written by another program?",
                         file->path, fault, file->size);
    }
    const uint64_t size = shard->index_offset + 8 * (uint64_t)shard->documents;
    if (size != file->size) {
        return error_set(error, ERROR_FAILED,
                         "%s: header says %" PRId64 " tokens and %" PRId64 " documents, %" PRIu64
                         " bytes, file has %" PRIu64 "; cut while copied? Write or copy it anew",
                         file->path, shard->tokens, shard->documents, size, file->size);
    }
    return true;
}

uint64_t shard_index_offset(int64_t tokens, int width)
{
    return (SHARD_HEADER + (uint64_t)tokens * (uint64_t)width + 7) / 8 * 8;
}

void shard_decode(const uint8_t *bytes, int width, size_t count, uint32_t *ids)
{
    for (size_t i = 0; i < count; i++) {
        ids[i] = width == 1 ? bytes[i] : width == 2 ? file_get_u16(bytes + 2 * i) : file_get_u32(bytes + 4 * i);
    }
}

/* What a validation needs at hand: the file, and room for a piece of it. */
struct scan {
    const struct file *file;
    const struct shard *shard;
    uint8_t *bytes;
    uint32_t *ids;
    uint64_t checksum;
};

static bool scan_tokens(struct scan *scan, int64_t first, struct document_index *index, struct error *error)
{
    const struct shard *shard = scan->shard;
    const bool by_token = shard->kind != SHARD_FLAMIA;
    bool good = !by_token || document_add(index, first, error);
    for (int64_t at = 0; good && at < shard->tokens; at += SCAN_TOKENS) {
        const size_t count = shard->tokens - at < (int64_t)SCAN_TOKENS ? (size_t)(shard->tokens - at) : SCAN_TOKENS;
        const uint64_t offset = SHARD_HEADER + (uint64_t)at * (uint64_t)shard->width;
        if (!file_read(scan->file, offset, scan->bytes, count * (size_t)shard->width, error)) {
            return false;
        }
        shard_decode(scan->bytes, shard->width, count, scan->ids);
        if (!by_token) {
            scan->checksum = file_checksum(scan->checksum, scan->bytes, count * (size_t)shard->width);
        }
        for (size_t i = 0; good && i < count; i++) {
            if (scan->ids[i] >= shard->vocabulary) {
                return error_set(error, ERROR_FAILED,
                                 "%s: token %" PRId64 " (offset %" PRIu64 ") is %" PRIu32
                                 "; ids of this %s shard are below %" PRId64,
                                 scan->file->path, at + (int64_t)i, offset + i * (size_t)shard->width, scan->ids[i],
                                 kinds[shard->kind].name, shard->vocabulary);
            }
            /* The file's first token begins a document in any case, and is there already. */
            if (by_token && (int64_t)scan->ids[i] == shard->end_of_text && at + (int64_t)i > 0) {
                good = document_add(index, first + at + (int64_t)i, error);
            }
        }
    }
    return good;
}

static bool scan_padding(struct scan *scan, struct error *error)
{
    const uint64_t begin = SHARD_HEADER + (uint64_t)scan->shard->tokens * (uint64_t)scan->shard->width;
    const size_t bytes = (size_t)(scan->shard->index_offset - begin);
    if (!file_read(scan->file, begin, scan->bytes, bytes, error)) {
        return false;
    }
    scan->checksum = file_checksum(scan->checksum, scan->bytes, bytes);
    return first_nonzero(scan->bytes, 0, bytes) == bytes ||
           error_set(error, ERROR_FAILED,
                     "%s: offset %" PRIu64 ": the bytes between tokens and document index are not zero",
                     scan->file->path, begin);
}

static bool scan_index(struct scan *scan, int64_t first, struct document_index *index, struct error *error)
{
    const struct shard *shard = scan->shard;
    int64_t before = 0;
    for (int64_t at = 0; at < shard->documents; at += SCAN_STARTS) {
        const size_t count =
            shard->documents - at < (int64_t)SCAN_STARTS ? (size_t)(shard->documents - at) : SCAN_STARTS;
        const uint64_t offset = shard->index_offset + 8 * (uint64_t)at;
        if (!file_read(scan->file, offset, scan->bytes, 8 * count, error)) {
            return false;
        }
        scan->checksum = file_checksum(scan->checksum, scan->bytes, 8 * count);
        for (size_t i = 0; i < count; i++) {
            const int64_t start = (int64_t)file_get_u64(scan->bytes + 8 * i);
            const bool is_first = at == 0 && i == 0;
            if (start < before || start > shard->tokens || (is_first && start != 0)) {
                return error_set(error, ERROR_FAILED,
                                 "%s: offset %" PRIu64 ": document %" PRId64 " begins at token %" PRId64
                                 "; expected %" PRId64 " to %" PRId64,
                                 scan->file->path, offset + 8 * i, at + (int64_t)i, start, before,
                                 is_first ? 0 : shard->tokens);
            }
            if (!document_add(index, first + start, error)) {
                return false;
            }
            before = start;
        }
    }
    return true;
}

static bool scan_all(struct scan *scan, int64_t first, struct document_index *index, struct error *error)
{
    if (!scan_tokens(scan, first, index, error)) {
        return false;
    }
    if (scan->shard->kind == SHARD_FLAMIA) {
        if (!scan_padding(scan, error) || !scan_index(scan, first, index, error)) {
            return false;
        }
        if (scan->checksum != scan->shard->checksum) {
            return error_set(error, ERROR_FAILED,
                             "%s: checksum of tokens and index is %016" PRIx64 ", expected %016" PRIx64
                             "; the file is damaged: write or copy it anew",
                             scan->file->path, scan->checksum, scan->shard->checksum);
        }
    }
    document_end(index, first + scan->shard->tokens);
    return true;
}

bool shard_validate(const struct file *file, const struct shard *shard, int64_t first, struct document_index *index,
                    struct error *error)
{
    struct scan scan = {file, shard, malloc(4 * SCAN_TOKENS), malloc(SCAN_TOKENS * sizeof(uint32_t)),
                        FILE_CHECKSUM_START};
    const bool good = scan.bytes && scan.ids ? scan_all(&scan, first, index, error)
                                             : error_set(error, ERROR_FAILED, "%s: out of memory", file->path);
    free(scan.bytes);
    free(scan.ids);
    return good;
}
