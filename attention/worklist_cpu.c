/* worklist_cpu.c: see worklist_cpu.h. */
#include "attention/worklist_cpu.h"

#include <stdlib.h>

static int dearest_first(const void *left, const void *right)
{
    const struct work_item *a = left, *b = right;
    if (a->cost != b->cost) {
        return a->cost > b->cost ? -1 : 1;
    }
    return a->first < b->first ? -1 : a->first > b->first;
}

size_t worklist_build(const struct documents *documents, bool causal, struct work_item *items)
{
    size_t count = 0;
    for (size_t document = 0; document < documents->count; document++) {
        const int32_t begin = documents->offsets[document], end = documents->offsets[document + 1];
        for (int32_t first = begin; first < end; first += TILE) {
            const int32_t tiles = causal ? (first - begin) / TILE + 1 : (end - begin + TILE - 1) / TILE;
            items[count++] = (struct work_item){begin, end, first, tiles};
        }
    }
    qsort(items, count, sizeof *items, dearest_first);
    return count;
}
