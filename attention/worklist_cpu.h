/* worklist_cpu.h: which tiles of queries there are, dearest first (paper, section 3.6.2). */
#ifndef ATTENTION_WORKLIST_CPU_H
#define ATTENTION_WORKLIST_CPU_H

#include "attention/attention.h"

struct work_item {
    int32_t begin, end; /* tokens of the document */
    int32_t first;      /* first query of the tile, a token of the batch */
    int32_t cost;       /* key tiles it visits */
};

/* Fills `items` (room for total_tokens of them) with the tiles of 128 queries of every document, by decreasing cost,
 * ties in token order. Returns how many. */
size_t worklist_build(const struct documents *documents, bool causal, struct work_item *items);

#endif
