/* read_model.c: see read_model.h. */
#include "train/read_model.h"

#include <stdlib.h>
#include <string.h>

/* The 256 variants of a place as 256 documents of one batch, or one at a time. */
struct variants {
    struct batch batch;
    int32_t *memory;
    size_t count, length;
    float *rows; /* [256][vocabulary]: logits at t */
    size_t vocabulary;
};

static bool make_variants(struct variants *variants, struct error *error)
{
    const size_t tokens = variants->count * variants->length;
    struct batch *batch = &variants->batch;
    variants->memory = malloc((4 * tokens + 1) * sizeof *variants->memory);
    variants->rows = malloc(READ_VALUES * variants->vocabulary * sizeof *variants->rows);
    if (!variants->memory || !variants->rows) {
        return error_set(error, ERROR_FAILED, "probe: no memory for %zu variants of %zu tokens", variants->count,
                         variants->length);
    }
    *batch = (struct batch){.rows = variants->count,
                            .sequence_length = variants->length,
                            .total_tokens = tokens,
                            .documents = variants->count,
                            .tokens = variants->memory,
                            .targets = variants->memory + tokens,
                            .positions = variants->memory + 2 * tokens,
                            .offsets = variants->memory + 3 * tokens};
    for (size_t i = 0; i < tokens; i++) {
        batch->targets[i] = TARGET_IGNORED;
        batch->positions[i] = (int32_t)(i % variants->length);
    }
    for (size_t i = 0; i <= variants->count; i++) {
        batch->offsets[i] = (int32_t)(i * variants->length);
    }
    return true;
}

static bool run_variants(struct variants *variants, struct network *network, const struct recipe *recipe,
                         const uint8_t *text, size_t place, struct error *error)
{
    const size_t stride = network_config(network)->padded_vocabulary, row_bytes = variants->vocabulary * sizeof(float);
    for (size_t first = 0; first < READ_VALUES; first += variants->count) {
        for (size_t i = 0; i < variants->batch.total_tokens; i++) {
            const size_t token = i % variants->length;
            variants->batch.tokens[i] =
                token == place + 1 ? (int32_t)(first + i / variants->length) : (int32_t)text[token];
        }
        if (!network_forward(network, recipe, &variants->batch, NULL, NULL, error)) {
            return false;
        }
        for (size_t variant = 0; variant < variants->count; variant++) {
            memcpy(variants->rows + (first + variant) * variants->vocabulary,
                   network_logits(network) + (variant * variants->length + place) * stride, row_bytes);
        }
    }
    return true;
}

bool read_model(struct network *network, const struct recipe *recipe, const uint8_t *text, size_t length, size_t places,
                struct reading *reading, struct error *error)
{
    struct variants variants = {.count = reading_needs_own_call(recipe) ? 1 : READ_VALUES,
                                .length = length,
                                .vocabulary = network_config(network)->vocabulary};
    memset(reading, 0, sizeof *reading);
    if (variants.vocabulary < READ_VALUES || length < 2 || places == 0 || length > network_config(network)->context) {
        return error_set(error, ERROR_USAGE,
                         "probe --read: a vocabulary of at least 256, 2 to %zu tokens of text and a place are needed; "
                         "found %zu, %zu, %zu",
                         network_config(network)->context, variants.vocabulary, length, places);
    }
    bool done = make_variants(&variants, error);
    for (size_t i = 0; done && i < places; i++) {
        const size_t place = reading_place(length, places, i);
        done = run_variants(&variants, network, recipe, text, place, error);
        if (done) {
            const size_t bytes = variants.vocabulary * sizeof(float);
            reading_add(reading, place, reading_matches(variants.rows, bytes, bytes, READ_VALUES, text[place + 1]));
        }
    }
    reading_finish(reading);
    free(variants.memory);
    free(variants.rows);
    return done;
}
