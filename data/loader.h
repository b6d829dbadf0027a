/* loader.h: batches in an order that is a pure function of (seed, epoch, index), made ahead of time by one thread.
 *
 * A sample is one row: tokens [i T, (i + 1) T) of the share of the stream that is read, cut at document starts. A
 * document that is longer than what is left of its row is cut; its pieces are documents of their own, from position 0.
 * The last token of a piece predicts the next token if that is the same document's; else its target is ignored. The
 * tail that does not fill a row is left out and counted. Samples are numbered globally: sample s is index s % rows of
 * epoch s / rows, sent through a bijection of (seed, epoch) if shuffled. Rank r of R takes rows r * rows_per_rank .. of
 * each step's batch, so resuming at any step on any number of ranks goes on with the next unseen one.
 * A step of more rows than an epoch has takes some of them again, from the next epoch's order.
 */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/batch.h"
#include "data/dataset.h"

struct loader_options {
    size_t begin, end;      /* share of the stream, tokens */
    size_t sequence_length; /* T */
    size_t batch;           /* rows of a step, all ranks */
    size_t micro_batch;     /* rows of one batch handed out; divides batch / ranks */
    size_t rank, ranks;     /* 0 of 1 on one process */
    size_t vocabulary;      /* the model's: ids at or above are refused, naming the offset */
    uint64_t seed;
    bool shuffle;
    bool wrap;             /* begin the next epoch when one ends; else loader_next says it is over */
    uint64_t first_sample; /* cursor: where to start */
    void *(*allocate)(size_t bytes, void *context); /* NULL: malloc; page-locked memory on a GPU */
    void (*release)(void *memory, void *context);
    void *context;
};

struct loader;

struct loader *loader_create(const struct dataset *dataset, const struct loader_options *options, struct error *error);
void loader_destroy(struct loader *loader);

/* Rows of an epoch, tokens the tail leaves out. */
size_t loader_rows(const struct loader *loader);
size_t loader_dropped_tokens(const struct loader *loader);

/* The next micro-batch; the loader owns it until the following call. NULL with error->code = ERROR_NONE at the end
 * (wrap = false, the last batch may have fewer rows), else an error. */
const struct batch *loader_next(struct loader *loader, struct error *error);

/* Image of `index` under the bijection of [0, count) that (seed, epoch) names. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t count);

#endif
