/* read.c: see read.h. The 256 variants of a place are 256 documents of one packed call: documents do not touch each
 * other. */
#include "attention/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/philox.h"

void reading_add(struct reading *reading, size_t place, size_t matches)
{
    const double bits = log2((double)READ_VALUES / (double)matches);
    reading->bits += bits;
    reading->unique += matches == 1;
    reading->places++;
    reading->position_bits[place % READ_POSITIONS] += bits;
    reading->position_places[place % READ_POSITIONS]++;
}

void reading_finish(struct reading *reading)
{
    if (reading->places > 0) {
        reading->bits /= (double)reading->places;
        reading->unique /= (double)reading->places;
    }
    for (size_t i = 0; i < READ_POSITIONS; i++) {
        if (reading->position_places[i] > 0) {
            reading->position_bits[i] /= (double)reading->position_places[i];
        }
    }
}

size_t reading_matches(const void *rows, size_t stride, size_t bytes, size_t variants, size_t truth)
{
    const unsigned char *const base = rows, *const true_row = base + truth * stride;
    size_t matches = 0;
    for (size_t i = 0; i < variants; i++) {
        matches += memcmp(base + i * stride, true_row, bytes) == 0;
    }
    return matches;
}

bool reading_needs_own_call(const struct recipe *recipe)
{
    return recipe->exponents == EXPONENT_TENSOR;
}

size_t reading_place(size_t length, size_t places, size_t i)
{
    const size_t last = length - 2, spread = places > 1 ? i * last / (places - 1) : last / 2; /* t + 1 <= length - 1 */
    const size_t shifted = spread / READ_POSITIONS * READ_POSITIONS + (i * 7 + 3) % READ_POSITIONS;
    return shifted <= last ? shifted : spread;
}

/* ---- attention alone ---- */

enum { QUERY, KEY, VALUE, TENSORS };

struct bench {
    const struct recipe *recipe;
    struct attention_shape shape;
    size_t variants; /* documents of a call */
    int32_t *offsets;
    float *table;           /* [TENSORS][256][width] */
    float *inputs[TENSORS]; /* [variants * length][width] */
    float *output, *lse;
    void *workspace;
    size_t workspace_bytes;
};

static void fill_table(float *table, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const struct philox_block random = philox4x32_10((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)i,
                                                         (uint32_t)((uint64_t)i >> 32), 0, 0x72656164u);
        const double u = ((double)random.word[0] + 0.5) * 0x1p-32, v = (double)random.word[1] * 0x1p-32;
        table[i] = bf16_round((float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v)));
    }
}

static void free_bench(struct bench *bench)
{
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        free(bench->inputs[tensor]);
    }
    free(bench->offsets);
    free(bench->table);
    free(bench->output);
    free(bench->lse);
    free(bench->workspace);
}

static bool make_bench(struct bench *bench, size_t length, uint64_t seed)
{
    const size_t width = bench->shape.heads * bench->shape.head_dim, tokens = bench->shape.total_tokens;
    bench->offsets = malloc((bench->variants + 1) * sizeof *bench->offsets);
    bench->table = malloc(TENSORS * READ_VALUES * width * sizeof(float));
    bench->output = malloc(tokens * width * sizeof(float));
    bench->lse = malloc(bench->shape.heads * tokens * sizeof(float));
    bench->workspace_bytes = attention_workspace_bytes(bench->recipe, &bench->shape);
    bench->workspace = malloc(bench->workspace_bytes);
    bool done = bench->offsets && bench->table && bench->output && bench->lse && bench->workspace;
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        bench->inputs[tensor] = malloc(tokens * width * sizeof(float));
        done = done && bench->inputs[tensor];
    }
    for (size_t i = 0; done && i <= bench->variants; i++) {
        bench->offsets[i] = (int32_t)(i * length);
    }
    if (done) {
        fill_table(bench->table, TENSORS * READ_VALUES * width, seed);
    }
    return done;
}

static void put_token(struct bench *bench, size_t row, uint8_t byte)
{
    const size_t width = bench->shape.heads * bench->shape.head_dim;
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        memcpy(bench->inputs[tensor] + row * width, bench->table + ((size_t)tensor * READ_VALUES + byte) * width,
               width * sizeof(float));
    }
}

/* Outputs at row t of all 256 variants, gathered in `rows` [256][width]. */
static enum attention_status run_variants(struct bench *bench, const uint8_t *text, size_t length, size_t place,
                                          float *rows)
{
    const size_t width = bench->shape.heads * bench->shape.head_dim;
    const struct documents documents = {bench->offsets, bench->variants};
    const struct attention_inputs inputs = {
        bench->inputs[QUERY], bench->inputs[KEY], bench->inputs[VALUE], width, width, width};
    for (size_t first = 0; first < READ_VALUES; first += bench->variants) {
        for (size_t variant = 0; variant < bench->variants; variant++) {
            for (size_t token = 0; token < length; token++) {
                const size_t row = variant * length + token;
                put_token(bench, row, token == place + 1 ? (uint8_t)(first + variant) : text[token]);
            }
        }
        const enum attention_status status =
            attention_forward_cpu(bench->recipe, &bench->shape, &documents, &inputs, bench->output, width, bench->lse,
                                  bench->workspace, bench->workspace_bytes, NULL);
        if (status != ATTENTION_OK) {
            return status;
        }
        for (size_t variant = 0; variant < bench->variants; variant++) {
            memcpy(rows + (first + variant) * width, bench->output + (variant * length + place) * width,
                   width * sizeof(float));
        }
    }
    return ATTENTION_OK;
}

enum attention_status reading_of_attention(const struct recipe *recipe, size_t heads, size_t head_dim,
                                           const uint8_t *text, size_t length, size_t places, uint64_t seed,
                                           struct reading *reading)
{
    const size_t variants = reading_needs_own_call(recipe) ? 1 : READ_VALUES, width = heads * head_dim;
    memset(reading, 0, sizeof *reading);
    if (length < 2 || places == 0) {
        return ATTENTION_BAD_SHAPE;
    }
    struct bench bench = {.recipe = recipe,
                          .variants = variants,
                          .shape = {variants * length, heads, heads, head_dim, true, 1.0f / sqrtf((float)head_dim)}};
    float *rows = malloc(READ_VALUES * width * sizeof *rows);
    enum attention_status status = rows && make_bench(&bench, length, seed) ? ATTENTION_OK : ATTENTION_WORKSPACE;
    for (size_t i = 0; status == ATTENTION_OK && i < places; i++) {
        const size_t place = reading_place(length, places, i);
        status = run_variants(&bench, text, length, place, rows);
        if (status == ATTENTION_OK) {
            reading_add(
                reading, place,
                reading_matches(rows, width * sizeof *rows, width * sizeof *rows, READ_VALUES, text[place + 1]));
        }
    }
    reading_finish(reading);
    free_bench(&bench);
    free(rows);
    return status;
}
