/* documents.h: where the documents of a packed batch begin. Checked here once, on the host, when a batch is made; never
 * trusted. */
#ifndef ATTENTION_DOCUMENTS_H
#define ATTENTION_DOCUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "attention/status.h"

struct documents {
    const int32_t *offsets; /* [count + 1]; first 0, never decreasing (empty documents are legal), last total_tokens */
    size_t count;
};

/* ATTENTION_OK, or ATTENTION_BAD_OFFSETS. `total_tokens` must be below 2^31. */
enum attention_status documents_check(const struct documents *documents, size_t total_tokens);

/* Tokens of the longest document; 0 if there is none. */
size_t documents_longest(const struct documents *documents);

#endif
