/* loader.c: one thread makes batches ahead of the consumer, in a ring of buffers.
 *
 * The ring has three: one that the consumer looks at, one ready, one being made. All state that both threads touch is
 * under the mutex; a buffer itself belongs to one of them at a time. An error ends the thread and is handed over after
 * the batches that were made before it.
 */
#include "data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "data/pack.h"

#define BUFFERS      3
#define LARGEST_STEP ((uint64_t)1 << 62) /* samples; far beyond any run, and sums stay below 2^64 */

struct loader {
    const struct dataset *dataset;
    struct loader_options options;
    size_t rows;          /* of an epoch */
    size_t rows_per_rank; /* of a step */

    /* The thread's own. */
    uint64_t step_first; /* sample at which the step begins */
    size_t micro_first;  /* row of this rank's share of the step at which the next batch begins */
    int32_t *ids;        /* [T + 1] */
    int64_t *starts;     /* [T + 1] */

    pthread_t thread;
    bool started;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct batch batches[BUFFERS];
    void *memory[BUFFERS];
    size_t next;  /* buffer handed out next */
    size_t ready; /* buffers made */
    bool held;    /* the consumer looks at the buffer before `next` */
    bool stop, finished;
    struct error error; /* of the thread; code 0 if it came to the end */
};

static void *produce(void *argument);

static bool check_options(const struct dataset *dataset, const struct loader_options *options, struct error *error)
{
    const struct loader_options *o = options;
    if (o->begin > o->end || o->end > dataset_tokens(dataset)) {
        return error_set(error, ERROR_FAILED, "%s: share [%zu, %zu) is not in its %zu tokens", dataset_path(dataset),
                         o->begin, o->end, dataset_tokens(dataset));
    }
    if (o->sequence_length == 0 || o->batch == 0 || o->micro_batch == 0 || o->ranks == 0 || o->vocabulary == 0) {
        return error_set(
            error, ERROR_USAGE,
            "sequence length %zu, batch %zu, micro-batch %zu, ranks %zu, vocabulary %zu: each must be at least 1",
            o->sequence_length, o->batch, o->micro_batch, o->ranks, o->vocabulary);
    }
    if (o->rank >= o->ranks || o->batch % o->ranks != 0 || o->batch / o->ranks % o->micro_batch != 0) {
        return error_set(error, ERROR_USAGE,
                         "batch of %zu sequences, micro-batch %zu, rank %zu of %zu: the ranks must divide the batch, "
                         "and the micro-batch a rank's part",
                         o->batch, o->micro_batch, o->rank, o->ranks);
    }
    if (o->sequence_length > INT32_MAX || o->micro_batch > INT32_MAX / o->sequence_length) {
        return error_set(error, ERROR_USAGE, "micro-batch of %zu x %zu tokens: must stay below 2^31", o->micro_batch,
                         o->sequence_length);
    }
    if (o->batch >= LARGEST_STEP || o->first_sample >= LARGEST_STEP) {
        return error_set(error, ERROR_USAGE, "batch %zu, first sample %" PRIu64 ": must be below 2^62", o->batch,
                         o->first_sample);
    }
    if (!o->allocate != !o->release) {
        return error_set(error, ERROR_FAILED, "loader: an allocator needs its release, and the reverse");
    }
    if (o->end - o->begin < o->sequence_length) {
        return error_set(error, ERROR_USAGE,
                         "%s: the share [%zu, %zu) has %zu tokens, fewer than one sequence of %zu: shorten the "
                         "sequence or change the split",
                         dataset_path(dataset), o->begin, o->end, o->end - o->begin, o->sequence_length);
    }
    return true;
}

static bool allocate_buffers(struct loader *loader, struct error *error)
{
    const struct loader_options *options = &loader->options;
    const size_t tokens = options->micro_batch * options->sequence_length;
    const size_t bytes = (4 * tokens + 1) * sizeof(int32_t);
    loader->ids = malloc((options->sequence_length + 1) * sizeof *loader->ids);
    loader->starts = malloc((options->sequence_length + 1) * sizeof *loader->starts);
    bool good = loader->ids && loader->starts;
    for (size_t i = 0; good && i < BUFFERS; i++) {
        int32_t *memory = options->allocate ? options->allocate(bytes, options->context) : malloc(bytes);
        loader->memory[i] = memory;
        good = memory != NULL;
        if (good) {
            loader->batches[i] = (struct batch){.tokens = memory,
                                                .targets = memory + tokens,
                                                .positions = memory + 2 * tokens,
                                                .offsets = memory + 3 * tokens};
        }
    }
    return good || error_set(error, ERROR_FAILED, "out of memory for %d batches of %zu tokens", BUFFERS, tokens);
}

/* Signals are the main thread's: the loader's inherits a mask that blocks them all. */
static bool start_thread(struct loader *loader, struct error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    int failure = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failure == 0) {
        failure = pthread_create(&loader->thread, NULL, produce, loader);
        loader->started = failure == 0;
        const int restored = pthread_sigmask(SIG_SETMASK, &before, NULL);
        failure = failure != 0 ? failure : restored;
    }
    return failure == 0 ||
           error_set(error, ERROR_FAILED, "the loader's thread cannot be started: %s", strerror(failure));
}

struct loader *loader_create(const struct dataset *dataset, const struct loader_options *options, struct error *error)
{
    if (!check_options(dataset, options, error) ||
        !dataset_check_ids(dataset, options->begin, options->end - options->begin, options->vocabulary, error)) {
        return NULL;
    }
    struct loader *loader = calloc(1, sizeof *loader);
    if (!loader) {
        error_set(error, ERROR_FAILED, "out of memory for the loader");
        return NULL;
    }
    loader->dataset = dataset;
    loader->options = *options;
    loader->rows = (options->end - options->begin) / options->sequence_length;
    loader->rows_per_rank = options->batch / options->ranks;
    loader->step_first = options->first_sample;
    pthread_mutex_init(&loader->mutex, NULL); /* cannot fail with default attributes on Linux */
    pthread_cond_init(&loader->changed, NULL);
    if (!allocate_buffers(loader, error) || !start_thread(loader, error)) {
        loader_destroy(loader);
        return NULL;
    }
    return loader;
}

void loader_destroy(struct loader *loader)
{
    if (!loader) {
        return;
    }
    if (loader->started) {
        pthread_mutex_lock(&loader->mutex);
        loader->stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        pthread_join(loader->thread, NULL);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        if (loader->memory[i] && loader->options.release) {
            loader->options.release(loader->memory[i], loader->options.context);
        } else {
            free(loader->memory[i]);
        }
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    free(loader->ids);
    free(loader->starts);
    free(loader);
}

size_t loader_rows(const struct loader *loader)
{
    return loader->rows;
}

size_t loader_dropped_tokens(const struct loader *loader)
{
    return (loader->options.end - loader->options.begin) % loader->options.sequence_length;
}

const struct batch *loader_next(struct loader *loader, struct error *error)
{
    const struct batch *batch = NULL;
    pthread_mutex_lock(&loader->mutex);
    if (loader->held) {
        loader->held = false;
        pthread_cond_broadcast(&loader->changed);
    }
    while (loader->ready == 0 && !loader->finished) {
        pthread_cond_wait(&loader->changed, &loader->mutex);
    }
    if (loader->ready > 0) {
        batch = &loader->batches[loader->next];
        loader->next = (loader->next + 1) % BUFFERS;
        loader->ready--;
        loader->held = true;
    } else if (error) {
        *error = loader->error;
    }
    pthread_mutex_unlock(&loader->mutex);
    return batch;
}

static bool load_row(struct loader *loader, uint64_t sample, struct batch *batch)
{
    const struct loader_options *options = &loader->options;
    const size_t length = options->sequence_length;
    const uint64_t epoch = sample / loader->rows, index = sample % loader->rows;
    const uint64_t row = options->shuffle ? order_permute(options->seed, epoch, index, loader->rows) : index;
    const size_t first = options->begin + (size_t)row * length;
    const bool has_next = first + length < options->end;
    if (!dataset_read(loader->dataset, first, length + has_next, loader->ids, &loader->error)) {
        return false;
    }
    const size_t documents = dataset_starts(loader->dataset, first, length + 1, loader->starts, length);
    for (size_t d = 0; d < documents; d++) {
        loader->starts[d] -= (int64_t)first;
    }
    pack_row(batch, loader->ids, has_next, loader->starts, documents);
    return true;
}

/* Makes the next batch; false at the end and on an error. */
static bool load_batch(struct loader *loader, struct batch *batch)
{
    const struct loader_options *options = &loader->options;
    const uint64_t limit = options->wrap ? UINT64_MAX : loader->rows;
    /* Rank 0's part of a step is filled first: while it has a row here, all ranks get a batch. */
    if (loader->step_first + loader->micro_first >= limit) {
        return false;
    }
    const uint64_t first = loader->step_first + options->rank * loader->rows_per_rank + loader->micro_first;
    pack_begin(batch, options->sequence_length, first);
    for (uint64_t i = 0; i < options->micro_batch && first + i < limit; i++) {
        if (!load_row(loader, first + i, batch)) {
            return false;
        }
    }
    loader->micro_first += options->micro_batch;
    if (loader->micro_first == loader->rows_per_rank) {
        loader->micro_first = 0;
        loader->step_first += options->batch;
    }
    return true;
}

static void *produce(void *argument)
{
    struct loader *loader = argument;
    pthread_mutex_lock(&loader->mutex);
    bool more = true;
    while (more) {
        while (!loader->stop && loader->ready + loader->held == BUFFERS) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
        }
        if (loader->stop) {
            break;
        }
        /* Buffers [next, next + ready) are made; the one behind them is free, as the consumer's lies before `next`. */
        struct batch *batch = &loader->batches[(loader->next + loader->ready) % BUFFERS];
        pthread_mutex_unlock(&loader->mutex);
        more = load_batch(loader, batch);
        pthread_mutex_lock(&loader->mutex);
        loader->ready += more;
        pthread_cond_broadcast(&loader->changed);
    }
    loader->finished = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}
