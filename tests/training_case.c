/* training_case.c: see training_case.h. */
#include "tests/training_case.h"

#include <stdlib.h>
#include <string.h>

#include "data/pack.h"

struct model_config tiny_model(enum model_family family, size_t vocabulary, size_t context)
{
    return (struct model_config){
        .family = family,
        .layers = 2,
        .width = 64,
        .heads = 2,
        .kv_heads = family == MODEL_LLAMA ? 1 : 2,
        .head_dim = 32,
        .ffn = 256,
        .vocabulary = vocabulary,
        .padded_vocabulary = (vocabulary + 127) / 128 * 128,
        .context = context,
        .tied_head = family == MODEL_GPT2,
        .norm_epsilon = 1e-5f,
        .rope_base = 10000,
    };
}

struct network *tiny_network(const struct model_config *config, size_t max_tokens, uint64_t seed)
{
    struct error error;
    const struct network_options options = {.max_tokens = max_tokens, .training = true};
    struct network *network = network_create(config, &options, &error);
    ck_assert_msg(network != NULL, "%s", error.text);
    parameters_initialise(network_table(network), config, seed, network_parameters(network));
    return network;
}

void random_batch_fill(struct batch *batch, struct random_stream *random, size_t vocabulary, bool packed)
{
    const size_t rows = batch->rows, length = batch->sequence_length;
    int32_t *ids = test_alloc((length + 1) * sizeof *ids);
    int64_t *starts = test_alloc((length + 1) * sizeof *starts);
    pack_begin(batch, length, 0);
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i <= length; i++) {
            ids[i] = (int32_t)random_below(random, vocabulary);
        }
        size_t documents = 0;
        for (size_t at = 1 + random_below(random, 40); packed && at <= length; at += 1 + random_below(random, 40)) {
            starts[documents++] = (int64_t)at;
        }
        pack_row(batch, ids, true, starts, documents);
    }
    free(ids);
    free(starts);
}

struct batch *random_batch(struct random_stream *random, size_t rows, size_t sequence_length, size_t vocabulary,
                           bool packed)
{
    const size_t tokens = rows * sequence_length;
    struct batch *batch = test_alloc(sizeof *batch);
    *batch = (struct batch){.rows = rows, .sequence_length = sequence_length};
    batch->tokens = test_alloc(tokens * sizeof(int32_t));
    batch->targets = test_alloc(tokens * sizeof(int32_t));
    batch->positions = test_alloc(tokens * sizeof(int32_t));
    batch->offsets = test_alloc((tokens + 1) * sizeof(int32_t));
    random_batch_fill(batch, random, vocabulary, packed);
    return batch;
}

void batch_free(struct batch *batch)
{
    free(batch->tokens);
    free(batch->targets);
    free(batch->positions);
    free(batch->offsets);
    free(batch);
}

struct batch *batch_part(const struct batch *batch, size_t first, size_t rows)
{
    const size_t length = batch->sequence_length, begin = first * length, end = begin + rows * length;
    struct batch *part = test_alloc(sizeof *part);
    *part = *batch;
    part->rows = rows;
    part->total_tokens = end - begin;
    part->tokens += begin;
    part->targets += begin;
    part->positions += begin;
    part->offsets = test_alloc((end - begin + 1) * sizeof(int32_t));
    part->documents = 0;
    for (size_t d = 0; d <= batch->documents; d++) {
        const size_t offset = (size_t)batch->offsets[d];
        if (offset >= begin && offset <= end) {
            part->offsets[part->documents++] = (int32_t)(offset - begin);
        }
    }
    part->documents--; /* the last was the end */
    part->valid_targets = 0;
    for (size_t i = 0; i < part->total_tokens; i++) {
        part->valid_targets += part->targets[i] != TARGET_IGNORED;
    }
    return part;
}

void batch_free_part(struct batch *part)
{
    free(part->offsets);
    free(part);
}
