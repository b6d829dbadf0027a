/* bytes.h: a file of raw bytes as tokens 0..255, and the ways to cut it into documents. */
#ifndef DATA_BYTES_H
#define DATA_BYTES_H

#include "data/document.h"
#include "data/file.h"

#define BYTES_VOCABULARY    256
#define BYTES_MAX_DELIMITER 64

enum bytes_rule {
    BYTES_ONE_DOCUMENT, /* "none": the file is one document */
    BYTES_LENGTH,       /* "length:N": a document every N bytes; the last may be short */
    BYTES_DELIMITER,    /* "delimiter:HEX": each occurrence ends a document and belongs to it; found left to right, not
                           overlapping */
};

struct bytes_documents {
    enum bytes_rule rule;
    int64_t length;
    uint8_t delimiter[BYTES_MAX_DELIMITER];
    size_t delimiter_length;
};

/* Reads "none", "length:N" or "delimiter:HEX"; anything else is an ERROR_USAGE. */
bool bytes_parse(struct bytes_documents *documents, const char *text, struct error *error);

/* Adds the starts of the file's documents to `index`, counted from `first`. */
bool bytes_index(const struct bytes_documents *documents, const struct file *file, int64_t first,
                 struct document_index *index, struct error *error);

#endif
