/* pack.c: cuts a row into documents; see pack.h. */
#include "data/pack.h"

void pack_begin(struct batch *batch, size_t sequence_length, uint64_t first_sample)
{
    batch->rows = 0;
    batch->sequence_length = sequence_length;
    batch->total_tokens = 0;
    batch->documents = 0;
    batch->valid_targets = 0;
    batch->first_sample = first_sample;
    batch->offsets[0] = 0;
}

/* Tokens [begin, end) of the row are one document; `predicts` if the token at `end` is the same document's. */
static void pack_piece(struct batch *batch, const int32_t *ids, size_t begin, size_t end, bool predicts)
{
    const size_t at = batch->total_tokens;
    for (size_t i = begin; i < end; i++) {
        batch->tokens[at + i] = ids[i];
        batch->positions[at + i] = (int32_t)(i - begin);
        batch->targets[at + i] = i + 1 < end || predicts ? ids[i + 1] : TARGET_IGNORED;
    }
    batch->valid_targets += end - begin - !predicts;
    batch->documents++;
    batch->offsets[batch->documents] = (int32_t)(at + end);
}

void pack_row(struct batch *batch, const int32_t *ids, bool has_next, const int64_t *starts, size_t documents)
{
    const size_t length = batch->sequence_length;
    size_t begin = 0;
    bool ends_at_row = false; /* does a document begin right behind the row? */
    for (size_t d = 0; d < documents; d++) {
        const size_t start = (size_t)starts[d];
        if (start == length) {
            ends_at_row = true;
            break;
        }
        pack_piece(batch, ids, begin, start, false);
        begin = start;
    }
    pack_piece(batch, ids, begin, length, has_next && !ends_at_row);
    batch->rows++;
    batch->total_tokens += length;
}
