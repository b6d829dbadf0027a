/* pack.h: one row of the stream becomes tokens, targets, positions and documents of a batch. */
#ifndef DATA_PACK_H
#define DATA_PACK_H

#include <stdbool.h>

#include "data/batch.h"

/* Makes `batch` empty. Its arrays must have room for the rows to come. */
void pack_begin(struct batch *batch, size_t sequence_length, uint64_t first_sample);

/* Appends a row.
 *   ids     [T], or [T + 1] with `has_next`: the token behind the row, a target only
 *   starts  [documents] ascending in 1..T: where documents begin, counted from the row's first token; T means that the
 * token behind the row belongs to another document The row's first token begins a piece in any case. */
void pack_row(struct batch *batch, const int32_t *ids, bool has_next, const int64_t *starts, size_t documents);

#endif
