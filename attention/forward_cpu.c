/* forward_cpu.c: the reference forward (paper, sections 2 and 3).
 *
 * One work item is 128 queries of one document and head. Key tiles of 128 keys from the document's start are visited in
 * ascending order with an online base-2 softmax; the running maximum is kept until a tile exceeds it by tau. What a row
 * may not see is never part of a maximum, a group or a sum.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/operands_cpu.h"
#include "attention/probability_cpu.h"
#include "attention/tile_cpu.h"
#include "attention/worklist_cpu.h"

#define FORWARD_ROLES                                                                                                  \
    (1u << ROLE_QUERY_SCORE | 1u << ROLE_KEY_SCORE | 1u << ROLE_VALUE_OUTPUT | 1u << ROLE_VALUE_OUTPUT_DIAGONAL)
#define LANES 16

/* One thread's scratch. */
struct query_tile {
    float score[TILE * TILE]; /* x, then P */
    float output[TILE * HEAD_DIM_MAX];
    float peaks[TILE * (TILE / TOKEN_BLOCK)];
    float maximum[TILE], sum[TILE];
    uint8_t fold[TILE];
};

struct forward {
    const struct recipe *recipe;
    const struct attention_shape *shape;
    const struct attention_trace *trace;
    struct operand_set operands;
    float *key_columns; /* [kv_heads][head_dim][key_stride] */
    size_t key_stride;
    struct work_item *items;
    struct query_tile *scratch; /* [threads] */
    float *output;
    size_t output_stride;
    float *lse;
    float factor; /* softmax_scale * log2 e */
};

static void carve(struct forward *forward, struct arena *arena)
{
    const struct attention_shape *shape = forward->shape;
    operand_set_carve(&forward->operands, FORWARD_ROLES, forward->recipe, shape, arena);
    forward->key_stride = operand_key_stride(shape->total_tokens);
    forward->key_columns = arena_take(arena, shape->kv_heads * shape->head_dim * forward->key_stride * sizeof(float));
    forward->items = arena_take(arena, shape->total_tokens * sizeof *forward->items);
    forward->scratch = arena_take(arena, (size_t)omp_get_max_threads() * sizeof *forward->scratch);
}

size_t attention_forward_workspace_cpu(const struct recipe *recipe, const struct attention_shape *shape)
{
    struct forward forward = {.recipe = recipe, .shape = shape};
    struct arena arena = arena_begin(NULL);
    carve(&forward, &arena);
    return arena.used + ARENA_SLACK;
}

/* ---- one key tile ---- */

/* Where a pair of tiles lies; queries and keys count from the document's start. */
struct tile_pair {
    size_t query, key; /* first of each tile */
    size_t rows, keys; /* there are */
    size_t columns;    /* keys, rounded up to whole blocks of 32 */
    bool boundary;     /* the causal boundary runs through this pair */
};

static size_t visible_keys(const struct tile_pair *pair, size_t row)
{
    const size_t causal = pair->query + row + 1 - pair->key;
    return pair->boundary && causal < pair->keys ? causal : pair->keys;
}

/* x = s * factor where visible, -inf elsewhere; returns the largest visible x. */
static float scale_and_mask(float *x, size_t visible, size_t columns, float factor)
{
    float most[LANES];
    for (size_t i = 0; i < LANES; i++) {
        most[i] = -INFINITY;
    }
    for (size_t j = 0; j < columns; j += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            x[j + i] = j + i < visible ? x[j + i] * factor : -INFINITY;
            most[i] = x[j + i] > most[i] ? x[j + i] : most[i];
        }
    }
    for (size_t i = 1; i < LANES; i++) {
        most[0] = most[i] > most[0] ? most[i] : most[0];
    }
    return most[0];
}

/* Sum of a row in a fixed order: 16 partial sums, then those in ascending order. Zeros after the visible keys change
 * nothing. */
static float row_sum(const float *p, size_t columns)
{
    float sums[LANES] = {0};
    for (size_t j = 0; j < columns; j += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            sums[i] += p[j + i];
        }
    }
    float total = sums[0];
    for (size_t i = 1; i < LANES; i++) {
        total += sums[i];
    }
    return total;
}

static void rescale_row(const struct forward *forward, struct query_tile *tile, size_t row, float maximum, float *trace,
                        size_t traced)
{
    const size_t head_dim = forward->shape->head_dim;
    const float alpha =
        tile->maximum[row] == -INFINITY ? 0.0f : exponential_base2(EXPONENTIAL_EXACT, tile->maximum[row] - maximum);
    tile->maximum[row] = maximum;
    tile->sum[row] *= alpha;
    for (size_t i = 0; i < head_dim; i++) {
        tile->output[row * head_dim + i] *= alpha;
    }
    for (size_t j = 0; trace && j < traced; j++) {
        trace[j] *= alpha;
    }
}

/* Largest visible x - m of each 32 keys. */
static void group_peaks(const float *x, size_t columns, float *peaks)
{
    for (size_t first = 0; first < columns; first += TOKEN_BLOCK) {
        float peak = -INFINITY;
        for (size_t j = first; j < first + TOKEN_BLOCK; j++) {
            peak = x[j] > peak ? x[j] : peak;
        }
        peaks[first / TOKEN_BLOCK] = peak;
    }
}

/* Scores of one row become P = 2^(x - m), and l grows by their unquantized sum. */
static void softmax_row(const struct forward *forward, struct query_tile *tile, const struct tile_pair *pair,
                        size_t row, float *trace)
{
    float *x = tile->score + row * TILE;
    const float most = scale_and_mask(x, visible_keys(pair, row), pair->columns, forward->factor);
    if (tile->maximum[row] == -INFINITY || most - tile->maximum[row] > forward->recipe->rescale_threshold) {
        rescale_row(forward, tile, row, most, trace, pair->key);
    }
    for (size_t j = 0; j < pair->columns; j++) {
        x[j] -= tile->maximum[row];
    }
    if (forward->recipe->probability == PROBABILITY_E4M3_GROUP) {
        group_peaks(x, pair->columns, tile->peaks + row * (TILE / TOKEN_BLOCK));
    }
    exponential_base2_array(forward->recipe->exponential, x, pair->columns);
    tile->sum[row] += row_sum(x, pair->columns);
}

/* Row of a [H][total][total] trace for a query, at the document's first key; NULL if there is no trace. */
static float *trace_row(float *matrix, const struct attention_shape *shape, size_t head, size_t query, size_t begin)
{
    return matrix ? matrix + (head * shape->total_tokens + query) * shape->total_tokens + begin : NULL;
}

static void visit_key_tile(const struct forward *forward, struct query_tile *tile, const struct work_item *item,
                           size_t head, const struct tile_pair *pair)
{
    const struct recipe *recipe = forward->recipe;
    const struct attention_shape *shape = forward->shape;
    const size_t head_dim = shape->head_dim, kv_head = head / (shape->heads / shape->kv_heads);
    const size_t query = (size_t)item->begin + pair->query, key = (size_t)item->begin + pair->key;
    float *const probability_trace = forward->trace ? forward->trace->probability_value : NULL;
    tile_product(forward->operands.values[ROLE_QUERY_SCORE] + (head * shape->total_tokens + query) * head_dim, head_dim,
                 forward->key_columns + kv_head * head_dim * forward->key_stride + key, forward->key_stride, pair->rows,
                 pair->columns, head_dim, tile->score, TILE);
    for (size_t row = 0; row < pair->rows; row++) {
        softmax_row(forward, tile, pair, row,
                    trace_row(probability_trace, shape, head, query + row, (size_t)item->begin));
    }
    const bool diagonal = operand_on_diagonal(shape->causal, pair->query, pair->key, recipe->diagonal_forward);
    const enum operand_role role = diagonal ? ROLE_VALUE_OUTPUT_DIAGONAL : ROLE_VALUE_OUTPUT;
    const uint8_t *exponents = forward->operands.exponents[role];
    if (exponents) {
        memset(tile->fold, 127, sizeof tile->fold);
        memcpy(tile->fold, exponents + kv_head * shape->total_tokens + key, pair->keys);
    }
    probability_quantize(recipe, tile->score, pair->rows, pair->columns, tile->peaks, exponents ? tile->fold : NULL);
    tile_accumulate(tile->score, TILE,
                    forward->operands.values[role] + (kv_head * shape->total_tokens + key) * head_dim, head_dim,
                    pair->rows, head_dim, pair->keys, pair->boundary ? TILE_LOWER : TILE_FULL, tile->output, head_dim);
    for (size_t row = 0; probability_trace && row < pair->rows; row++) {
        memcpy(trace_row(probability_trace, shape, head, query + row, key), tile->score + row * TILE,
               visible_keys(pair, row) * sizeof(float));
    }
}

/* ---- one query tile ---- */

static void write_rows(const struct forward *forward, const struct query_tile *tile, const struct work_item *item,
                       size_t head, size_t rows, size_t keys)
{
    const struct attention_shape *shape = forward->shape;
    const size_t head_dim = shape->head_dim;
    for (size_t row = 0; row < rows; row++) {
        const size_t query = (size_t)item->first + row;
        const float sum = tile->sum[row];
        const bool blind = sum == 0 && tile->maximum[row] == -INFINITY; /* saw no key */
        float *out = forward->output + query * forward->output_stride + head * head_dim;
        for (size_t i = 0; i < head_dim; i++) {
            const float value = blind ? 0.0f : tile->output[row * head_dim + i] / sum;
            out[i] = forward->recipe->score == OPERAND_FP32 ? value : bf16_round(value);
        }
        forward->lse[head * shape->total_tokens + query] = blind ? INFINITY : tile->maximum[row] + log2f(sum);
        float *trace = trace_row(forward->trace ? forward->trace->probability_value : NULL, shape, head, query,
                                 (size_t)item->begin);
        for (size_t j = 0; trace && j < keys && (!shape->causal || j <= query - (size_t)item->begin); j++) {
            trace[j] /= sum;
        }
    }
}

static void visit_query_tile(const struct forward *forward, struct query_tile *tile, const struct work_item *item,
                             size_t head)
{
    const bool causal = forward->shape->causal;
    const size_t tokens = (size_t)(item->end - item->begin), query = (size_t)(item->first - item->begin);
    const size_t rows = tokens - query < TILE ? tokens - query : TILE;
    const size_t keys = causal ? query + rows : tokens;
    for (size_t row = 0; row < rows; row++) {
        tile->maximum[row] = -INFINITY;
        tile->sum[row] = 0;
    }
    memset(tile->output, 0, rows * forward->shape->head_dim * sizeof(float));
    for (size_t key = 0; key < keys; key += TILE) {
        struct tile_pair pair = {.query = query, .key = key, .rows = rows};
        pair.keys = tokens - key < TILE ? tokens - key : TILE;
        pair.columns = (pair.keys + TOKEN_BLOCK - 1) / TOKEN_BLOCK * TOKEN_BLOCK;
        pair.boundary = causal && key == query;
        visit_key_tile(forward, tile, item, head, &pair);
    }
    write_rows(forward, tile, item, head, rows, keys);
}

enum attention_status attention_forward_cpu(const struct recipe *recipe, const struct attention_shape *shape,
                                            const struct documents *documents, const struct attention_inputs *inputs,
                                            float *output, size_t output_stride, float *lse, void *workspace,
                                            size_t workspace_bytes, const struct attention_trace *trace)
{
    const enum attention_status status =
        attention_check(recipe, shape, documents, inputs, false, workspace, workspace_bytes);
    if (status != ATTENTION_OK) {
        return status;
    }
    if (shape->total_tokens == 0) {
        return ATTENTION_OK;
    }
    if (!output || !lse || output_stride < shape->heads * shape->head_dim) {
        return ATTENTION_BAD_STRIDE;
    }
    struct forward forward = {.recipe = recipe,
                              .shape = shape,
                              .trace = trace,
                              .output = output,
                              .output_stride = output_stride,
                              .lse = lse,
                              .factor = shape->softmax_scale * 1.44269504088896341f};
    struct arena arena = arena_begin(workspace);
    carve(&forward, &arena);
    operand_set_fill(&forward.operands, recipe, shape, documents, inputs, NULL, 0);
    operand_transpose(forward.operands.values[ROLE_KEY_SCORE], shape->kv_heads, shape->total_tokens, shape->head_dim,
                      forward.key_columns);
    const size_t count = worklist_build(documents, shape->causal, forward.items);
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t index = 0; index < count; index++) {
        for (size_t head = 0; head < shape->heads; head++) {
            visit_query_tile(&forward, &forward.scratch[omp_get_thread_num()], &forward.items[index], head);
        }
    }
    return ATTENTION_OK;
}

void attention_public_lse(const float *lse, float *natural, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        natural[i] = lse[i] == INFINITY ? -INFINITY : lse[i] * 0.693147180559945309f;
    }
}
