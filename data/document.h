/* document.h: where the documents of a stream of tokens begin.
 *
 * Boundaries are explicit: they come from the shard's index, from a rule stated beside its format, or from the
 * delimiter that was asked for; never from a token that might also be padding. Empty documents are counted and left
 * out, so starts ascend strictly.
 */
#ifndef DATA_DOCUMENT_H
#define DATA_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/error.h"

struct document_index {
    int64_t *starts; /* [count], strictly ascending */
    size_t count;
    size_t capacity;
    size_t empty; /* documents without a token, left out */
};

/* Adds a document that begins at `start`, at or after the one before. */
bool document_add(struct document_index *index, int64_t start, struct error *error);

/* Ends the last document at `tokens`: one that begins there is empty. More may be added afterwards, from `tokens` on.
 */
void document_end(struct document_index *index, int64_t tokens);

/* Starts in (first, first + count): writes at most `capacity` of them, returns how many there are. */
size_t document_starts(const struct document_index *index, int64_t first, int64_t count, int64_t *starts,
                       size_t capacity);

void document_free(struct document_index *index);

#endif
