/* read_model.c: see read_model.h. */
#include "train/read_model.h"

#include <stdlib.h>
#include <string.h>

/* The variants of a place, one at a time: BLAS may round a row differently at another place of a larger product, and
 * every bit counts here. */
struct variants {
    struct batch batch;
    int32_t *memory;
    size_t length;
    float *rows; /* [256][vocabulary]: logits at t */
    size_t vocabulary;
};

static bool make_variants(struct variants *variants, struct error *error)
{
    const size_t tokens = variants->length;
    struct batch *batch = &variants->batch;
    variants->memory = malloc((3 * tokens + 2) * sizeof *variants->memory);
    variants->rows = malloc(READ_VALUES * variants->vocabulary * sizeof *variants->rows);
    if (!variants->memory || !variants->rows) {
        return error_set(error, ERROR_FAILED, "probe: no memory for %d variants of %zu tokens", READ_VALUES,
                         variants->length);
    }
    *batch = (struct batch){.rows = 1,
                            .sequence_length = variants->length,
                            .total_tokens = tokens,
                            .documents = 1,
                            .tokens = variants->memory,
                            .targets = variants->memory + tokens,
                            .positions = variants->memory + 2 * tokens,
                            .offsets = variants->memory + 3 * tokens};
    for (size_t i = 0; i < tokens; i++) {
        batch->targets[i] = TARGET_IGNORED;
        batch->positions[i] = (int32_t)i;
    }
    batch->offsets[0] = 0;
    batch->offsets[1] = (int32_t)tokens;
    return true;
}

static bool run_variants(struct variants *variants, struct network *network, const struct recipe *recipe,
                         const uint8_t *text, size_t place, struct error *error)
{
    const size_t stride = network_config(network)->padded_vocabulary, row_bytes = variants->vocabulary * sizeof(float);
    for (size_t i = 0; i < variants->length; i++) {
        variants->batch.tokens[i] = (int32_t)text[i];
    }
    for (size_t value = 0; value < READ_VALUES; value++) {
        variants->batch.tokens[place + 1] = (int32_t)value;
        if (!network_forward(network, recipe, &variants->batch, NULL, NULL, error)) {
            return false;
        }
        memcpy(variants->rows + value * variants->vocabulary, network_logits(network) + place * stride, row_bytes);
    }
    return true;
}

bool read_model(struct network *network, const struct recipe *recipe, const uint8_t *text, size_t length, size_t places,
                struct reading *reading, struct error *error)
{
    struct variants variants = {.length = length, .vocabulary = network_config(network)->vocabulary};
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
