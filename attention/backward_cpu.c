/* backward_cpu.c: the reference backward (paper, sections 3.3 and 3.4).
 *
 * S is rebuilt from the forward's codes, P = 2^(x - lse), dP = dO V^T, dS = P (dP - D). dS is quantized before the
 * softmax scale. One pass over the pairs of tiles of a document serves all three gradients: heads of a group ascending,
 * query tiles ascending, key tiles ascending, so dK and dV add up over (head, query tile) and dQ over key tiles, each
 * in that order, in FP32.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "attention/delta_cpu.h"
#include "attention/formats.h"
#include "attention/operands_cpu.h"
#include "attention/probability_cpu.h"
#include "attention/tile_cpu.h"
#include "attention/worklist_cpu.h"

#define BACKWARD_ROLES                                                                                                 \
    (1u << ROLE_QUERY_SCORE | 1u << ROLE_KEY_SCORE | 1u << ROLE_VALUE_DPROBABILITY | 1u << ROLE_DOUTPUT_DPROBABILITY | \
     1u << ROLE_DOUTPUT_DVALUE | 1u << ROLE_QUERY_DKEY | 1u << ROLE_KEY_DQUERY | 1u << ROLE_KEY_DQUERY_DIAGONAL)
#define LANES 16

/* One thread's scratch. */
struct pair_tile {
    float probability[TILE * TILE];
    float dprobability[TILE * TILE];
    float dscore[TILE * TILE];     /* of dQ */
    float dscore_key[TILE * TILE]; /* of dK */
    float dquery[TILE * HEAD_DIM_MAX];
    float partial[TILE * HEAD_DIM_MAX]; /* one key tile's part of dQ, for 16-bit accumulation */
    uint8_t fold[TILE];
};

struct backward {
    const struct recipe *recipe;
    const struct attention_shape *shape;
    const struct attention_trace *trace;
    const struct attention_random *random;
    const struct attention_gradients *gradients;
    const float *lse; /* [H][total_tokens] */
    struct operand_set operands;
    float *key_columns, *value_columns; /* [kv_heads][head_dim][key_stride] */
    size_t key_stride;
    float *delta;          /* [H][total_tokens] */
    int16_t *dquery_scale; /* [H][total_tokens], 16-bit dQ only */
    float *dkey, *dvalue;  /* [kv_heads][total_tokens][head_dim] */
    struct work_item *items;
    struct pair_tile *scratch; /* [threads] */
    float tensor_scale;        /* DSCORE_TENSOR only */
    float factor;
};

static void carve(struct backward *backward, struct arena *arena)
{
    const struct attention_shape *shape = backward->shape;
    const size_t columns = shape->kv_heads * shape->head_dim * operand_key_stride(shape->total_tokens) * sizeof(float);
    const size_t rows = shape->heads * shape->total_tokens;
    const size_t key_rows = shape->kv_heads * shape->total_tokens * shape->head_dim * sizeof(float);
    operand_set_carve(&backward->operands, BACKWARD_ROLES, backward->recipe, shape, arena);
    backward->key_stride = operand_key_stride(shape->total_tokens);
    backward->key_columns = arena_take(arena, columns);
    backward->value_columns = arena_take(arena, columns);
    backward->delta = arena_take(arena, rows * sizeof *backward->delta);
    backward->dquery_scale =
        backward->recipe->dquery == DQUERY_FP32 ? NULL : arena_take(arena, rows * sizeof *backward->dquery_scale);
    backward->dkey = arena_take(arena, key_rows);
    backward->dvalue = arena_take(arena, key_rows);
    backward->items = arena_take(arena, shape->total_tokens * sizeof *backward->items);
    backward->scratch = arena_take(arena, (size_t)omp_get_max_threads() * sizeof *backward->scratch);
}

size_t attention_backward_workspace_cpu(const struct recipe *recipe, const struct attention_shape *shape)
{
    struct backward backward = {.recipe = recipe, .shape = shape};
    struct arena arena = arena_begin(NULL);
    carve(&backward, &arena);
    return arena.used + ARENA_SLACK;
}

size_t attention_workspace_bytes(const struct recipe *recipe, const struct attention_shape *shape)
{
    const size_t forward = attention_forward_workspace_cpu(recipe, shape);
    const size_t backward = attention_backward_workspace_cpu(recipe, shape);
    return forward > backward ? forward : backward;
}

/* ---- one pair of tiles: P, dP and dS ---- */

/* A query tile of one head against a key tile; queries and keys count from the document's start. */
struct tile_pair {
    size_t begin; /* the document's first token */
    size_t head, kv_head;
    size_t query, key, rows, keys, columns;
    bool boundary;
};

static struct tile_pair make_pair(const struct attention_shape *shape, size_t begin, size_t tokens, size_t head,
                                  size_t query, size_t key)
{
    struct tile_pair pair = {
        .begin = begin, .head = head, .kv_head = head / (shape->heads / shape->kv_heads), .query = query, .key = key};
    pair.rows = tokens - query < TILE ? tokens - query : TILE;
    pair.keys = tokens - key < TILE ? tokens - key : TILE;
    pair.columns = (pair.keys + TOKEN_BLOCK - 1) / TOKEN_BLOCK * TOKEN_BLOCK;
    pair.boundary = shape->causal && key == query;
    return pair;
}

static size_t visible_keys(const struct tile_pair *pair, size_t row)
{
    const size_t causal = pair->query + row + 1 - pair->key;
    return pair->boundary && causal < pair->keys ? causal : pair->keys;
}

static size_t query_row(const struct backward *backward, const struct tile_pair *pair, size_t row)
{
    return pair->head * backward->shape->total_tokens + pair->begin + pair->query + row;
}

static size_t key_row(const struct backward *backward, const struct tile_pair *pair)
{
    return pair->kv_head * backward->shape->total_tokens + pair->begin + pair->key;
}

/* P = 2^(x - lse) and dP, both 0 where the row may not look. */
static void rebuild(const struct backward *backward, struct pair_tile *tile, const struct tile_pair *pair)
{
    const size_t head_dim = backward->shape->head_dim, first = query_row(backward, pair, 0) * head_dim;
    const size_t column = pair->kv_head * head_dim * backward->key_stride + pair->begin + pair->key;
    tile_product(backward->operands.values[ROLE_QUERY_SCORE] + first, head_dim, backward->key_columns + column,
                 backward->key_stride, pair->rows, pair->columns, head_dim, tile->probability, TILE);
    tile_product(backward->operands.values[ROLE_DOUTPUT_DPROBABILITY] + first, head_dim,
                 backward->value_columns + column, backward->key_stride, pair->rows, pair->columns, head_dim,
                 tile->dprobability, TILE);
    for (size_t row = 0; row < pair->rows; row++) {
        float *p = tile->probability + row * TILE, *dp = tile->dprobability + row * TILE;
        const size_t visible = visible_keys(pair, row);
        const float lse = backward->lse[query_row(backward, pair, row)];
        for (size_t j = 0; j < pair->columns; j++) {
            p[j] = j < visible ? p[j] * backward->factor - lse : -INFINITY;
            dp[j] = j < visible ? dp[j] : 0.0f;
        }
        exponential_base2_array(backward->recipe->exponential_backward, p, pair->columns);
    }
}

static void form_dscore(const struct backward *backward, struct pair_tile *tile, const struct tile_pair *pair)
{
    for (size_t row = 0; row < pair->rows; row++) {
        const float delta = backward->delta[query_row(backward, pair, row)];
        const float *p = tile->probability + row * TILE, *dp = tile->dprobability + row * TILE;
        const size_t visible = visible_keys(pair, row);
        for (size_t j = 0; j < pair->columns; j++) {
            const float value = p[j] * (dp[j] - delta);
            tile->dscore[row * TILE + j] = j < visible ? value : 0.0f; /* not 0 * NaN */
        }
    }
}

static void copy_trace(const struct backward *backward, float *matrix, const float *tile, const struct tile_pair *pair)
{
    for (size_t row = 0; matrix && row < pair->rows; row++) {
        memcpy(matrix + query_row(backward, pair, row) * backward->shape->total_tokens + pair->begin + pair->key,
               tile + row * TILE, visible_keys(pair, row) * sizeof(float));
    }
}

/* ---- passes over all pairs before the gradients: D as a direct sum, the largest dS ---- */

static float row_dot(const float *p, const float *dp, size_t columns)
{
    float sums[LANES] = {0};
    for (size_t j = 0; j < columns; j += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            sums[i] += p[j + i] * dp[j + i];
        }
    }
    float total = sums[0];
    for (size_t i = 1; i < LANES; i++) {
        total += sums[i];
    }
    return total;
}

/* D_i += sum_j P_ij dP_ij, key tiles ascending. */
static void add_direct_delta(const struct backward *backward, const struct pair_tile *tile,
                             const struct tile_pair *pair)
{
    for (size_t row = 0; row < pair->rows; row++) {
        float *delta = &backward->delta[query_row(backward, pair, row)];
        *delta = (pair->key == 0 ? 0.0f : *delta) +
                 row_dot(tile->probability + row * TILE, tile->dprobability + row * TILE, pair->columns);
    }
}

static uint32_t largest_dscore(const struct pair_tile *tile, const struct tile_pair *pair)
{
    uint32_t most = 0;
    for (size_t row = 0; row < pair->rows; row++) {
        for (size_t j = 0; j < pair->columns; j++) {
            const uint32_t m = float_to_bits(tile->dscore[row * TILE + j]) & 0x7FFFFFFFu;
            most = m > most ? m : most;
        }
    }
    return most;
}

/* Visits every pair; with `direct`, sums D; else returns the bits of the largest dS. */
static uint32_t prepass(const struct backward *backward, size_t item_count, bool direct)
{
    uint32_t most = 0;
#pragma omp parallel for collapse(2) schedule(dynamic) reduction(max : most)
    for (size_t index = 0; index < item_count; index++) {
        for (size_t head = 0; head < backward->shape->heads; head++) {
            const struct work_item *item = &backward->items[index];
            const size_t begin = (size_t)item->begin, tokens = (size_t)item->end - begin,
                         query = (size_t)item->first - begin;
            struct pair_tile *tile = &backward->scratch[omp_get_thread_num()];
            for (size_t key = 0; key < (size_t)item->cost * TILE; key += TILE) {
                const struct tile_pair pair = make_pair(backward->shape, begin, tokens, head, query, key);
                rebuild(backward, tile, &pair);
                if (direct) {
                    add_direct_delta(backward, tile, &pair);
                    continue;
                }
                form_dscore(backward, tile, &pair);
                const uint32_t m = largest_dscore(tile, &pair);
                most = m > most ? m : most;
            }
        }
    }
    return most;
}

/* ---- the gradients ---- */

/* One key tile's part of dQ, rounded to FP16 with each row's scale and added in FP16. */
static void add_dquery_f16(const struct backward *backward, struct pair_tile *tile, const struct tile_pair *pair,
                           const float *keys)
{
    const size_t head_dim = backward->shape->head_dim;
    memset(tile->partial, 0, pair->rows * head_dim * sizeof(float));
    tile_accumulate(tile->dscore, TILE, keys, head_dim, pair->rows, head_dim, pair->keys,
                    pair->boundary ? TILE_LOWER : TILE_FULL, tile->partial, head_dim);
    for (size_t row = 0; row < pair->rows; row++) {
        const float scale = exponent_to_float(backward->dquery_scale[query_row(backward, pair, row)]);
        float *sum = tile->dquery + row * head_dim;
        for (size_t i = 0; i < head_dim; i++) {
            sum[i] = f16_round(sum[i] + f16_round(tile->partial[row * head_dim + i] * scale));
        }
    }
}

static void add_dquery(const struct backward *backward, struct pair_tile *tile, const struct tile_pair *pair,
                       enum operand_role role)
{
    const size_t head_dim = backward->shape->head_dim;
    const float *keys = backward->operands.values[role] + key_row(backward, pair) * head_dim;
    if (backward->recipe->dquery != DQUERY_FP32) {
        add_dquery_f16(backward, tile, pair, keys);
        return;
    }
    tile_accumulate(tile->dscore, TILE, keys, head_dim, pair->rows, head_dim, pair->keys,
                    pair->boundary ? TILE_LOWER : TILE_FULL, tile->dquery, head_dim);
}

static void visit_pair(const struct backward *backward, struct pair_tile *tile, const struct tile_pair *pair)
{
    const struct recipe *recipe = backward->recipe;
    const size_t head_dim = backward->shape->head_dim, keys = key_row(backward, pair),
                 first = query_row(backward, pair, 0) * head_dim;
    const enum tile_mask mask = pair->boundary ? TILE_UPPER : TILE_FULL;
    const struct attention_trace none = {.probability_value = NULL}, *trace = backward->trace ? backward->trace : &none;
    rebuild(backward, tile, pair);
    form_dscore(backward, tile, pair);
    copy_trace(backward, trace->probability, tile->probability, pair);
    copy_trace(backward, trace->dprobability, tile->dprobability, pair);
    copy_trace(backward, trace->dscore, tile->dscore, pair);
    memcpy(tile->dscore_key, tile->dscore, pair->rows * TILE * sizeof(float));
    const bool diagonal =
        operand_on_diagonal(backward->shape->causal, pair->query, pair->key, recipe->diagonal_backward);
    const enum operand_role role = diagonal ? ROLE_KEY_DQUERY_DIAGONAL : ROLE_KEY_DQUERY;
    const uint8_t *exponents = backward->operands.exponents[role];
    if (exponents) {
        memset(tile->fold, 127, sizeof tile->fold);
        memcpy(tile->fold, exponents + keys, pair->keys);
    }
    const struct attention_random *random = backward->random;
    const uint32_t token = (uint32_t)pair->begin + random->query_offset;
    const struct tile_place place = {
        random->seed,         random->step, token + (uint32_t)pair->query, token + (uint32_t)pair->key,
        (uint32_t)pair->head, random->layer};
    dscore_quantize(recipe, tile->dscore, tile->dscore_key, pair->rows, pair->columns, exponents ? tile->fold : NULL,
                    backward->tensor_scale, &place);
    copy_trace(backward, trace->dscore_query, tile->dscore, pair);
    copy_trace(backward, trace->dscore_key, tile->dscore_key, pair);
    add_dquery(backward, tile, pair, role);
    tile_accumulate_transposed(tile->dscore_key, TILE, backward->operands.values[ROLE_QUERY_DKEY] + first, head_dim,
                               pair->keys, head_dim, pair->rows, mask, backward->dkey + keys * head_dim, head_dim);
    probability_quantize_dvalue(recipe, tile->probability, pair->rows, pair->columns);
    tile_accumulate_transposed(tile->probability, TILE, backward->operands.values[ROLE_DOUTPUT_DVALUE] + first,
                               head_dim, pair->keys, head_dim, pair->rows, mask, backward->dvalue + keys * head_dim,
                               head_dim);
}

/* A finished row: rotated back, times `scale`, rounded to BF16 once. */
static void write_row(const struct backward *backward, float *x, bool rotated, float scale, float *out)
{
    const size_t head_dim = backward->shape->head_dim;
    if (rotated) {
        hadamard_rotate(x, head_dim);
    }
    for (size_t i = 0; i < head_dim; i++) {
        const float value = x[i] * scale;
        out[i] = backward->recipe->score == OPERAND_FP32 ? value : bf16_round(value);
    }
}

static void write_dquery(const struct backward *backward, struct pair_tile *tile, const struct tile_pair *pair)
{
    const struct attention_gradients *gradients = backward->gradients;
    const size_t head_dim = backward->shape->head_dim;
    const bool rotated = operand_rotated(backward->recipe, ROLE_KEY_DQUERY, head_dim);
    for (size_t row = 0; row < pair->rows; row++) {
        float *x = tile->dquery + row * head_dim;
        if (backward->dquery_scale) {
            const float scale = exponent_to_float(-backward->dquery_scale[query_row(backward, pair, row)]);
            for (size_t i = 0; i < head_dim; i++) {
                x[i] *= scale;
            }
        }
        float *out =
            gradients->query + (pair->begin + pair->query + row) * gradients->query_stride + pair->head * head_dim;
        write_row(backward, x, rotated, backward->shape->softmax_scale, out);
    }
}

static void write_dkey_dvalue(const struct backward *backward, size_t kv_head, size_t begin, size_t end)
{
    const struct attention_gradients *gradients = backward->gradients;
    const size_t head_dim = backward->shape->head_dim;
    const bool rotated = operand_rotated(backward->recipe, ROLE_QUERY_DKEY, head_dim);
    for (size_t token = begin; token < end; token++) {
        const size_t row = (kv_head * backward->shape->total_tokens + token) * head_dim;
        write_row(backward, backward->dkey + row, rotated, backward->shape->softmax_scale,
                  gradients->key + token * gradients->key_stride + kv_head * head_dim);
        write_row(backward, backward->dvalue + row, false, 1.0f,
                  gradients->value + token * gradients->value_stride + kv_head * head_dim);
    }
}

/* One document and key/value head. */
static void visit_document(const struct backward *backward, size_t kv_head, size_t begin, size_t end)
{
    const struct attention_shape *shape = backward->shape;
    const size_t group = shape->heads / shape->kv_heads, tokens = end - begin, head_dim = shape->head_dim;
    const size_t row = (kv_head * shape->total_tokens + begin) * head_dim;
    struct pair_tile *tile = &backward->scratch[omp_get_thread_num()];
    memset(backward->dkey + row, 0, tokens * head_dim * sizeof(float));
    memset(backward->dvalue + row, 0, tokens * head_dim * sizeof(float));
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (size_t query = 0; query < tokens; query += TILE) {
            const size_t last = shape->causal ? query + 1 : tokens;
            struct tile_pair pair = make_pair(shape, begin, tokens, head, query, 0);
            memset(tile->dquery, 0, pair.rows * head_dim * sizeof(float));
            for (size_t key = 0; key < last; key += TILE) {
                pair = make_pair(shape, begin, tokens, head, query, key);
                visit_pair(backward, tile, &pair);
            }
            write_dquery(backward, tile, &pair);
        }
    }
    write_dkey_dvalue(backward, kv_head, begin, end);
}

/* Everything known before the first pair of gradients: operands, D, scales. */
static void prepare(struct backward *backward, const struct documents *documents, const struct attention_inputs *inputs,
                    const float *output, size_t output_stride, const float *doutput, size_t doutput_stride)
{
    const struct recipe *recipe = backward->recipe;
    const struct attention_shape *shape = backward->shape;
    float *const *images = backward->operands.values;
    operand_set_fill(&backward->operands, recipe, shape, documents, inputs, doutput, doutput_stride);
    operand_transpose(images[ROLE_KEY_SCORE], shape->kv_heads, shape->total_tokens, shape->head_dim,
                      backward->key_columns);
    operand_transpose(images[ROLE_VALUE_DPROBABILITY], shape->kv_heads, shape->total_tokens, shape->head_dim,
                      backward->value_columns);
    const size_t count = worklist_build(documents, shape->causal, backward->items);
    if (recipe->delta == DELTA_DIRECT) {
        prepass(backward, count, true);
    } else {
        delta_from_output(recipe, shape, images[ROLE_DOUTPUT_DPROBABILITY], doutput, doutput_stride, output,
                          output_stride, backward->delta);
    }
    if (recipe->dscore == DSCORE_E4M3 && recipe->dscore_scale == DSCORE_TENSOR) {
        backward->tensor_scale = dscore_tensor_scale(prepass(backward, count, false));
    }
    if (backward->dquery_scale) {
        dquery_scales(recipe, shape, documents, images[ROLE_DOUTPUT_DPROBABILITY], images[ROLE_VALUE_DPROBABILITY],
                      images[ROLE_KEY_DQUERY_DIAGONAL], backward->dquery_scale);
    }
    if (backward->trace && backward->trace->delta) {
        memcpy(backward->trace->delta, backward->delta, shape->heads * shape->total_tokens * sizeof(float));
    }
}

static bool gradients_fit(const struct attention_shape *shape, const struct attention_gradients *gradients,
                          size_t output_stride, size_t output_gradient_stride)
{
    const size_t query = shape->heads * shape->head_dim, key = shape->kv_heads * shape->head_dim;
    return gradients->query && gradients->key && gradients->value && gradients->query_stride >= query &&
           gradients->key_stride >= key && gradients->value_stride >= key && output_stride >= query &&
           output_gradient_stride >= query;
}

enum attention_status attention_backward_cpu(const struct recipe *recipe, const struct attention_shape *shape,
                                             const struct documents *documents, const struct attention_inputs *inputs,
                                             const float *output, size_t output_stride, const float *lse,
                                             const float *output_gradient, size_t output_gradient_stride,
                                             const struct attention_random *random,
                                             const struct attention_gradients *gradients, void *workspace,
                                             size_t workspace_bytes, const struct attention_trace *trace)
{
    const enum attention_status status =
        attention_check(recipe, shape, documents, inputs, true, workspace, workspace_bytes);
    if (status != ATTENTION_OK || shape->total_tokens == 0) {
        return status;
    }
    if (!output || !lse || !output_gradient || !random || !gradients ||
        !gradients_fit(shape, gradients, output_stride, output_gradient_stride)) {
        return ATTENTION_BAD_STRIDE;
    }
    struct backward backward = {.recipe = recipe,
                                .shape = shape,
                                .trace = trace,
                                .random = random,
                                .gradients = gradients,
                                .lse = lse,
                                .factor = shape->softmax_scale * 1.44269504088896341f};
    struct arena arena = arena_begin(workspace);
    carve(&backward, &arena);
    prepare(&backward, documents, inputs, output, output_stride, output_gradient, output_gradient_stride);
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t document = 0; document < documents->count; document++) {
        for (size_t kv_head = 0; kv_head < shape->kv_heads; kv_head++) {
            visit_document(&backward, kv_head, (size_t)documents->offsets[document],
                           (size_t)documents->offsets[document + 1]);
        }
    }
    return ATTENTION_OK;
}
