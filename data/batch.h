/* batch.h: the tokens of one micro-batch, packed.
 *
 * `rows` sequences of `sequence_length` tokens lie one after the other. Each is cut into documents; no document crosses
 * the end of a row, so the documents of the batch simply follow each other. Attention, positions and the loss know
 * documents only.
 */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include <stddef.h>
#include <stdint.h>

#define TARGET_IGNORED (-1)

struct batch {
    size_t rows;            /* sequences */
    size_t sequence_length; /* T, tokens a sequence */
    size_t total_tokens;    /* rows * T */
    size_t documents;       /* pieces; at most total_tokens, none empty */
    size_t valid_targets;   /* targets that are not TARGET_IGNORED */
    int32_t *tokens;        /* [total_tokens], 0 <= id < vocabulary */
    int32_t *targets;       /* [total_tokens], the next token, or TARGET_IGNORED */
    int32_t *positions;     /* [total_tokens], from 0 in each document */
    int32_t *offsets;       /* [total_tokens + 1]: documents + 1 are used; first 0, last total_tokens */
    uint64_t first_sample;  /* global number of the first row */
};

#endif
