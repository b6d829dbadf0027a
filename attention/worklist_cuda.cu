/* worklist_cuda.cu: the tiles of a batch's documents, dearest first, made on the device (paper, section 3.6.2). Definition: worklist_cpu.c.
 *
 * Count the tiles of each document, sum them up, let every item find its document, sort by cost. Sizes depend on capacities only: nothing
 * here waits for the device, and a captured graph serves any documents of the same total.
 */
#include "attention/attention_cuda.h"
#include "attention/launch.cuh"
#include "attention/sort_cuda.h"

#define THREADS 256

/* Pieces of the schedule's scratch memory. */
struct scratch {
    int32_t *tiles, *first_item; /* [max_documents + 1] */
    int32_t *unsorted;           /* [max_items][4] */
    int32_t *keys, *sorted_keys, *values, *sorted_values; /* [max_items] */
    void *library;
    size_t library_bytes;
};

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void *take(unsigned char *base, size_t *used, size_t bytes)
{
    void *piece = base ? base + *used : nullptr;
    *used += align(bytes);
    return piece;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Lays out schedule and scratch; with a NULL base only counts. Returns the bytes. */
static size_t lay_out(struct attention_schedule *schedule, struct scratch *scratch, unsigned char *base)
{
    size_t used = 0;
    const size_t documents = schedule->max_documents + 1, items = schedule->max_items;
    schedule->items = (int32_t *)take(base, &used, 4 * items * sizeof(int32_t));
    schedule->item_count = (int32_t *)take(base, &used, sizeof(int32_t));
    scratch->tiles = (int32_t *)take(base, &used, documents * sizeof(int32_t));
    scratch->first_item = (int32_t *)take(base, &used, documents * sizeof(int32_t));
    scratch->unsorted = (int32_t *)take(base, &used, 4 * items * sizeof(int32_t));
    scratch->keys = (int32_t *)take(base, &used, items * sizeof(int32_t));
    scratch->sorted_keys = (int32_t *)take(base, &used, items * sizeof(int32_t));
    scratch->values = (int32_t *)take(base, &used, items * sizeof(int32_t));
    scratch->sorted_values = (int32_t *)take(base, &used, items * sizeof(int32_t));
    scratch->library_bytes = sort_scratch_bytes(larger(documents, items));
    scratch->library = take(base, &used, scratch->library_bytes);
    return used;
}

static struct attention_schedule empty_schedule(size_t total_tokens, size_t max_documents)
{
    struct attention_schedule schedule = {};
    schedule.total_tokens = total_tokens;
    schedule.max_documents = max_documents;
    schedule.max_items = (total_tokens + TILE - 1) / TILE + max_documents;
    return schedule;
}

size_t attention_schedule_bytes(size_t total_tokens, size_t max_documents)
{
    struct attention_schedule schedule = empty_schedule(total_tokens, max_documents);
    struct scratch scratch;
    return lay_out(&schedule, &scratch, nullptr);
}

void attention_schedule_layout(struct attention_schedule *schedule, size_t total_tokens, size_t max_documents, void *memory)
{
    struct scratch scratch;
    *schedule = empty_schedule(total_tokens, max_documents);
    schedule->scratch_bytes = lay_out(schedule, &scratch, (unsigned char *)memory);
    schedule->scratch = memory;
}

static __global__ void count_kernel(const int32_t *offsets, const int32_t *document_count, int32_t max_documents, int32_t *tiles)
{
    const int32_t document = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (document <= max_documents) {
        const bool there = document < *document_count && document < max_documents;
        tiles[document] = there ? (offsets[document + 1] - offsets[document] + TILE - 1) / TILE : 0;
    }
}

/* Last document whose first item is at or before `item`, among those that have any. */
static __device__ int32_t document_of(const int32_t *first_item, int32_t max_documents, int32_t item)
{
    int32_t low = 0, high = max_documents; /* first_item[low] <= item < first_item[high] */
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (first_item[middle] <= item) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static __global__ void fill_kernel(const int32_t *offsets, const int32_t *first_item, int32_t max_documents, bool causal, int32_t max_items,
                                   int32_t *unsorted, int32_t *keys, int32_t *values)
{
    const int32_t item = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (item >= max_items) {
        return;
    }
    values[item] = item;
    if (item >= first_item[max_documents]) {
        keys[item] = -1; /* sorts behind everything */
        return;
    }
    const int32_t document = document_of(first_item, max_documents, item);
    const int32_t begin = offsets[document], end = offsets[document + 1], tile = item - first_item[document];
    const int32_t cost = causal ? tile + 1 : (end - begin + TILE - 1) / TILE;
    int32_t *to = unsorted + 4 * (size_t)item;
    to[0] = begin;
    to[1] = end;
    to[2] = begin + tile * TILE;
    to[3] = cost;
    keys[item] = cost;
}

static __global__ void gather_kernel(const int32_t *unsorted, const int32_t *sorted_values, const int32_t *total, int32_t max_items,
                                     int32_t *items, int32_t *item_count)
{
    const int32_t item = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
    if (item == 0) {
        *item_count = *total;
    }
    if (item < max_items && item < *total) {
        for (int i = 0; i < 4; i++) {
            items[4 * (size_t)item + i] = unsorted[4 * (size_t)sorted_values[item] + i];
        }
    }
}

static dim3 blocks_for(size_t count)
{
    return dim3((unsigned)((count + THREADS - 1) / THREADS));
}

enum attention_status attention_schedule_cuda(struct attention_schedule *schedule, const int32_t *offsets, const int32_t *document_count,
                                              bool causal, attention_stream stream)
{
    struct scratch scratch;
    lay_out(schedule, &scratch, (unsigned char *)schedule->scratch);
    schedule->offsets = offsets;
    schedule->document_count = document_count;
    const int32_t documents = (int32_t)schedule->max_documents, items = (int32_t)schedule->max_items;
    LAUNCH(count_kernel, blocks_for((size_t)documents + 1), dim3(THREADS), 0, stream, offsets, document_count, documents, scratch.tiles);
    if (sort_exclusive_sum(scratch.library, scratch.library_bytes, scratch.tiles, scratch.first_item, (size_t)documents + 1, stream) !=
        cudaSuccess) {
        return ATTENTION_DEVICE;
    }
    LAUNCH(fill_kernel, blocks_for((size_t)items), dim3(THREADS), 0, stream, offsets, scratch.first_item, documents, causal, items,
           scratch.unsorted, scratch.keys, scratch.values);
    if (sort_descending(scratch.library, scratch.library_bytes, scratch.keys, scratch.sorted_keys, scratch.values, scratch.sorted_values,
                        (size_t)items, stream) != cudaSuccess) {
        return ATTENTION_DEVICE;
    }
    LAUNCH(gather_kernel, blocks_for((size_t)items), dim3(THREADS), 0, stream, scratch.unsorted, scratch.sorted_values,
           scratch.first_item + documents, items, schedule->items, schedule->item_count);
    return cudaPeekAtLastError() == cudaSuccess ? ATTENTION_OK : ATTENTION_DEVICE;
}
