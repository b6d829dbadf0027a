/* bytes.c: documents of raw bytes; see bytes.h. */
#include "data/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_BYTES ((size_t)1 << 20)

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool parse_length(struct bytes_documents *documents, const char *text, struct error *error)
{
    documents->rule = BYTES_LENGTH;
    documents->length = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || documents->length > (INT64_MAX - (*c - '0')) / 10) {
            return error_set(error, ERROR_USAGE,
                             "documents \"length:%.40s\": expected a number of bytes from 1 to 2^63 - 1", text);
        }
        documents->length = 10 * documents->length + (*c - '0');
    }
    return documents->length > 0 ||
           error_set(error, ERROR_USAGE, "documents \"length:%.40s\": expected a number of bytes, at least 1", text);
}

static bool parse_delimiter(struct bytes_documents *documents, const char *text, struct error *error)
{
    documents->rule = BYTES_DELIMITER;
    const size_t digits = strlen(text);
    bool valid = digits > 0 && digits % 2 == 0 && digits <= 2 * (size_t)BYTES_MAX_DELIMITER;
    for (size_t i = 0; valid && i < digits; i += 2) {
        const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        valid = high >= 0 && low >= 0;
        documents->delimiter[i / 2] = (uint8_t)(valid ? 16 * high + low : 0);
    }
    documents->delimiter_length = digits / 2;
    return valid || error_set(error, ERROR_USAGE,
                              "documents \"delimiter:%.40s\": expected 1 to %d bytes as pairs of hex digits, as 0A0A "
                              "for an empty line",
                              text, BYTES_MAX_DELIMITER);
}

bool bytes_parse(struct bytes_documents *documents, const char *text, struct error *error)
{
    *documents = (struct bytes_documents){.rule = BYTES_ONE_DOCUMENT};
    if (strcmp(text, "none") == 0) {
        return true;
    }
    if (strncmp(text, "length:", 7) == 0) {
        return parse_length(documents, text + 7, error);
    }
    if (strncmp(text, "delimiter:", 10) == 0) {
        return parse_delimiter(documents, text + 10, error);
    }
    return error_set(error, ERROR_USAGE, "documents \"%.60s\": expected none, length:N or delimiter:HEX", text);
}

static bool index_lengths(int64_t length, int64_t bytes, int64_t first, struct document_index *index,
                          struct error *error)
{
    for (int64_t start = 0; start < bytes; start = length < bytes - start ? start + length : bytes) {
        if (!document_add(index, first + start, error)) {
            return false;
        }
    }
    return true;
}

/* Longest prefix of the delimiter that is also a proper suffix of its first n bytes, for all n (Knuth, Morris, Pratt):
 * a match may begin inside a failed one and may cross the pieces in which the file is read. */
static void make_fallback(const struct bytes_documents *documents, size_t *fallback)
{
    fallback[0] = 0;
    for (size_t n = 1, k = 0; n < documents->delimiter_length; n++) {
        while (k > 0 && documents->delimiter[k] != documents->delimiter[n]) {
            k = fallback[k - 1];
        }
        k += documents->delimiter[k] == documents->delimiter[n];
        fallback[n] = k;
    }
}

static bool index_delimiters(const struct bytes_documents *documents, const struct file *file, int64_t first,
                             struct document_index *index, struct error *error)
{
    size_t fallback[BYTES_MAX_DELIMITER] = {0};
    make_fallback(documents, fallback);
    uint8_t *piece = malloc(SCAN_BYTES);
    if (!piece) {
        return error_set(error, ERROR_FAILED, "%s: out of memory", file->path);
    }
    size_t matched = 0;
    bool good = document_add(index, first, error);
    for (uint64_t offset = 0; good && offset < file->size; offset += SCAN_BYTES) {
        const size_t bytes = file->size - offset < SCAN_BYTES ? (size_t)(file->size - offset) : SCAN_BYTES;
        good = file_read(file, offset, piece, bytes, error);
        for (size_t i = 0; good && i < bytes; i++) {
            while (matched > 0 && documents->delimiter[matched] != piece[i]) {
                matched = fallback[matched - 1];
            }
            matched += documents->delimiter[matched] == piece[i];
            if (matched == documents->delimiter_length) {
                matched = 0;
                good = document_add(index, first + (int64_t)(offset + i + 1), error);
            }
        }
    }
    free(piece);
    return good;
}

bool bytes_index(const struct bytes_documents *documents, const struct file *file, int64_t first,
                 struct document_index *index, struct error *error)
{
    const int64_t bytes = (int64_t)file->size;
    bool good = true;
    switch (documents->rule) {
    case BYTES_ONE_DOCUMENT:
        good = document_add(index, first, error);
        break;
    case BYTES_LENGTH:
        good = index_lengths(documents->length, bytes, first, index, error);
        break;
    case BYTES_DELIMITER:
        good = index_delimiters(documents, file, first, index, error);
        break;
    }
    if (good && documents->rule == BYTES_DELIMITER && bytes > 0 && index->count > 0 &&
        index->starts[index->count - 1] == first + bytes) {
        index->count--; /* the last delimiter ends the file: no document follows it */
        return true;
    }
    document_end(index, first + bytes);
    return good;
}
