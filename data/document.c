/* document.c: a growing, sorted list of document starts. */
#include "data/document.h"

#include <stdlib.h>

bool document_add(struct document_index *index, int64_t start, struct error *error)
{
    if (index->count > 0 && index->starts[index->count - 1] == start) {
        index->empty++; /* the one before has no token */
        return true;
    }
    if (index->count == index->capacity) {
        const size_t capacity = index->capacity > 0 ? 2 * index->capacity : 64;
        int64_t *starts =
            capacity <= SIZE_MAX / sizeof *starts ? realloc(index->starts, capacity * sizeof *starts) : NULL;
        if (!starts) {
            return error_set(error, ERROR_FAILED, "out of memory for the starts of %zu documents", capacity);
        }
        index->starts = starts;
        index->capacity = capacity;
    }
    index->starts[index->count++] = start;
    return true;
}

void document_end(struct document_index *index, int64_t tokens)
{
    if (index->count > 0 && index->starts[index->count - 1] == tokens) {
        index->count--;
        index->empty++;
    }
}

/* Index of the first start above `position`. */
static size_t upper_bound(const struct document_index *index, int64_t position)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (index->starts[middle] > position) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

size_t document_starts(const struct document_index *index, int64_t first, int64_t count, int64_t *starts,
                       size_t capacity)
{
    size_t found = 0;
    for (size_t i = upper_bound(index, first); i < index->count && index->starts[i] - first < count; i++) {
        if (found < capacity) {
            starts[found] = index->starts[i];
        }
        found++;
    }
    return found;
}

void document_free(struct document_index *index)
{
    free(index->starts);
    *index = (struct document_index){0};
}
