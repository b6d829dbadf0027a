/* forward_cuda.cu: the forward on BF16 tensor cores, every recipe. Definition: forward_cpu.c.
 *
 * One block owns 128 queries of one document and head; eight warps own 16 rows each:
 *   S = Q K^T      from exactly decoded BF16 images, 128 keys at a time
 *   P = 2^(x - m)  online softmax, kept maximum, rounded as the recipe says, in registers
 *   O += P V       P's accumulator layout is the product's operand layout
 * Key and value tiles are double-buffered behind cp.async. Shared memory: Q 128 rows, K and V twice 128 rows.
 */
#include "attention/exponential_forms.h"
#include "attention/launch.cuh"
#include "attention/operands_cuda.h"
#include "attention/round.cuh"

#define WARPS   8
#define THREADS (32 * WARPS)
#define BLOCKS  (TILE / 8) /* column blocks of a score fragment */

/* What the kernel needs of the recipe, and where everything is. */
struct forward_call {
    const uint16_t *query, *key, *value, *value_diagonal; /* images [heads or kv_heads][total_tokens][head_dim] */
    const uint8_t *fold, *fold_diagonal;                  /* E8M0 [kv_heads][total_tokens], or NULL */
    uint16_t *output;
    size_t output_stride;
    float *lse;
    const int32_t *items, *item_count;
    size_t total_tokens;
    uint32_t heads, group; /* query heads; of one key/value head */
    enum probability_format probability;
    enum exponential_kind exponential;
    int shift, diagonal_span;
    float threshold, factor;
    bool causal;
};

static __device__ __forceinline__ float exponential_of(enum exponential_kind kind, float x)
{
    switch (kind) {
    case EXPONENTIAL_EXACT:
        return exp2_fast(x);
    case EXPONENTIAL_POLYNOMIAL:
        return base2_polynomial(x);
    case EXPONENTIAL_SCHRAUDOLPH:
        return base2_schraudolph(x);
    case EXPONENTIAL_MITCHELL:
        return base2_mitchell(x);
    }
    return 0.0f;
}

template <int head_dim> struct row_state {
    float output[head_dim / 8][4];
    float maximum[2], sum[2]; /* rows g and g + 8; the sum is this lane's part */
};

/* Raises the running maximum of a row half where the tile exceeds it by more than the threshold. */
template <int head_dim> static __device__ __forceinline__ void raise_maximum(struct row_state<head_dim> &state, int half, float most, float threshold)
{
    const float old = state.maximum[half];
    if (!(old == -INFINITY || most - old > threshold)) {
        return;
    }
    const float alpha = old == -INFINITY ? 0.0f : exp2_fast(old - most);
    state.maximum[half] = most;
    state.sum[half] *= alpha;
#pragma unroll
    for (int block = 0; block < head_dim / 8; block++) {
        state.output[block][2 * half] *= alpha;
        state.output[block][2 * half + 1] *= alpha;
    }
}

/* One exponent per row and 32 keys, e = ceil(largest x - m) - 8. `x` holds x - m of the row half, p the probabilities. */
static __device__ __forceinline__ void round_group_half(float (&p)[BLOCKS][4], int half, const float (&peaks)[BLOCKS / 4])
{
#pragma unroll
    for (int group = 0; group < BLOCKS / 4; group++) {
        const float peak = peaks[group];
        const int e = peak < -118.0f ? -126 : (int)ceilf(fminf(peak, 100.0f)) - 8;
        const float up = exponent_to_float(-e), down = exponent_to_float(e);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float &value = p[group * 4 + i / 2][2 * half + i % 2];
            value = e4m3_round(value * up) * down;
        }
    }
}

/* Scores become probabilities: masks, maxima, exponentials, l. `limit` [2]: visible keys of each row half. */
template <int head_dim>
static __device__ __forceinline__ void softmax(const struct forward_call &call, struct row_state<head_dim> &state, float (&s)[BLOCKS][4],
                                               const int (&limit)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = -INFINITY;
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; i++) {
            float &x = s[i / 2][2 * half + i % 2];
            x = fragment_column(i / 2, i % 2) < limit[half] ? x * call.factor : -INFINITY;
            most = fmaxf(most, x);
        }
        raise_maximum<head_dim>(state, half, quad_max(most), call.threshold);
        float peaks[BLOCKS / 4];
#pragma unroll
        for (int group = 0; group < BLOCKS / 4; group++) {
            peaks[group] = -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; i++) {
            float &x = s[i / 2][2 * half + i % 2];
            x -= state.maximum[half];
            peaks[i / 8] = fmaxf(peaks[i / 8], x);
            x = limit[half] > 0 ? exponential_of(call.exponential, x) : 0.0f;
            state.sum[half] += x;
        }
        if (call.probability == PROBABILITY_E4M3_GROUP) {
#pragma unroll
            for (int group = 0; group < BLOCKS / 4; group++) {
                peaks[group] = quad_max(peaks[group]);
            }
            round_group_half(s, half, peaks);
        }
    }
}

/* Multiplies each column by 2^(sign * e) of its key; zeros stay. */
static __device__ __forceinline__ void fold_columns(float (&p)[BLOCKS][4], const uint8_t *exponents, int keys, int sign)
{
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
        for (int column = 0; column < 2; column++) {
            const int key = fragment_column(block, column);
            const uint8_t byte = key < keys ? exponents[key] : 127;
            const float power = byte == E8M0_NAN ? float_from_bits(0x7FC00000u) : exponent_to_float(sign * ((int)byte - 127));
            p[block][column] = p[block][column] == 0.0f ? 0.0f : p[block][column] * power;
            p[block][column + 2] = p[block][column + 2] == 0.0f ? 0.0f : p[block][column + 2] * power;
        }
    }
}

static __device__ __forceinline__ void round_probability(const struct forward_call &call, float (&p)[BLOCKS][4], const uint8_t *fold, int keys)
{
    if (call.probability == PROBABILITY_BF16) {
        round_bf16(p);
    } else if (call.probability == PROBABILITY_E4M3_FIXED) {
        round_e4m3(p, call.shift);
    } else if (call.probability == PROBABILITY_E2M1) {
        if (fold) {
            fold_columns(p, fold, keys, 1);
        }
        const uint32_t largest[2] = {quad_max_bits(half_largest(p, 0)), quad_max_bits(half_largest(p, 1))};
        struct dice none = {};
        round_nvfp4(p, largest, none);
        if (fold) {
            fold_columns(p, fold, keys, -1);
        }
    }
}

template <int head_dim>
static __device__ void write_rows(const struct forward_call &call, struct row_state<head_dim> &state, uint32_t head, int32_t first, int row, int rows)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(state.sum[half]);
        const int at = row + fragment_row(2 * half);
        if (at >= rows) {
            continue;
        }
        const size_t token = (size_t)(first + at);
        uint16_t *out = call.output + token * call.output_stride + (size_t)head * head_dim;
        const bool blind = sum == 0.0f && state.maximum[half] == -INFINITY;
#pragma unroll
        for (int block = 0; block < head_dim / 8; block++) {
            const float left = blind ? 0.0f : state.output[block][2 * half] / sum;
            const float right = blind ? 0.0f : state.output[block][2 * half + 1] / sum;
            *(uint32_t *)(out + fragment_column(block, 0)) = pack_bf16(left, right);
        }
        if (threadIdx.x % 4 == 0) {
            call.lse[(size_t)head * call.total_tokens + token] = blind ? INFINITY : state.maximum[half] + log2f(sum);
        }
    }
}

/* Starts the copies of one key tile into one stage. */
template <int head_dim>
static __device__ __forceinline__ void load_keys(const struct forward_call &call, uint16_t *stage, size_t key_row, int key, int tokens, bool diagonal)
{
    const size_t at = (key_row + (size_t)key) * head_dim;
    const uint16_t *value = diagonal ? call.value_diagonal : call.value;
    tile_load<head_dim, TILE, THREADS>(stage, call.key + at, tokens - key);
    tile_load<head_dim, TILE, THREADS>(stage + TILE * head_dim, value + at, tokens - key);
    copy_async_commit();
}

static __device__ __forceinline__ bool on_diagonal(const struct forward_call &call, int query, int key)
{
    return call.causal && query / call.diagonal_span == key / call.diagonal_span;
}

template <int head_dim> __global__ void __launch_bounds__(THREADS, 1) forward_kernel(const struct forward_call call)
{
    SHARED_MEMORY(uint16_t, shared);
    const uint32_t index = blockIdx.x / call.heads; /* items outermost: dearest first over all heads */
    if ((int32_t)index >= *call.item_count) {
        return;
    }
    const int32_t *item = call.items + 4 * (size_t)index;
    const uint32_t head = blockIdx.x % call.heads, kv_head = head / call.group;
    const int32_t begin = item[0], first = item[2];
    const int tokens = item[1] - begin, query = first - begin, rows = tokens - query < TILE ? tokens - query : TILE;
    const int key_tiles = item[3], row = (int)threadIdx.x / 32 * 16;
    const size_t key_row = (size_t)kv_head * call.total_tokens + (size_t)begin;
    uint16_t *const queries = shared, *const stages = shared + TILE * head_dim;
    constexpr int stage_size = 2 * TILE * head_dim;
    tile_load<head_dim, TILE, THREADS>(queries, call.query + ((size_t)head * call.total_tokens + (size_t)first) * head_dim, rows);
    load_keys<head_dim>(call, stages, key_row, 0, tokens, on_diagonal(call, query, 0));
    struct row_state<head_dim> state = {};
    state.maximum[0] = state.maximum[1] = -INFINITY;
    for (int tile = 0; tile < key_tiles; tile++) {
        const int key = tile * TILE, keys = tokens - key < TILE ? tokens - key : TILE;
        uint16_t *const stage = stages + tile % 2 * stage_size;
        if (tile + 1 < key_tiles) {
            load_keys<head_dim>(call, stages + (tile + 1) % 2 * stage_size, key_row, key + TILE, tokens, on_diagonal(call, query, key + TILE));
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        float s[BLOCKS][4];
        tile_scores<head_dim, BLOCKS>(s, queries, row, stage);
        int limit[2];
        for (int half = 0; half < 2; half++) {
            const int causal_limit = query + row + fragment_row(2 * half) + 1 - key;
            limit[half] = call.causal && causal_limit < keys ? causal_limit : keys;
        }
        softmax<head_dim>(call, state, s, limit);
        const bool diagonal = on_diagonal(call, query, key);
        const uint8_t *exponents = diagonal ? call.fold_diagonal : call.fold;
        round_probability(call, s, exponents ? exponents + key_row + key : NULL, keys);
        if (call.probability == PROBABILITY_FP32) {
            tile_accumulate_fp32<head_dim, BLOCKS>(state.output, s, stage + TILE * head_dim);
        } else {
            tile_accumulate<head_dim, BLOCKS>(state.output, s, stage + TILE * head_dim);
        }
        __syncthreads(); /* the stage is refilled in the next round */
    }
    write_rows<head_dim>(call, state, head, first, row, rows);
}

template <int head_dim>
static enum attention_status launch(const struct forward_call &call, const struct attention_shape *shape, size_t max_items, cudaStream_t stream)
{
    const size_t bytes = 5 * TILE * head_dim * sizeof(uint16_t);
    if (cudaFuncSetAttribute(forward_kernel<head_dim>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess) {
        return ATTENTION_DEVICE;
    }
    LAUNCH(forward_kernel<head_dim>, dim3((unsigned)(shape->heads * max_items)), dim3(THREADS), bytes, stream, call);
    return cudaPeekAtLastError() == cudaSuccess ? ATTENTION_OK : ATTENTION_DEVICE;
}

enum attention_status attention_forward_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                             const struct attention_schedule *schedule, const struct attention_inputs_cuda *inputs,
                                             uint16_t *output, size_t output_stride, float *lse, void *workspace, size_t workspace_bytes,
                                             attention_stream stream)
{
    struct operands_cuda operands;
    enum attention_status status = operands_cuda_begin(&operands, recipe, shape, OPERANDS_FORWARD, workspace, workspace_bytes);
    if (status == ATTENTION_OK) {
        status = operands_cuda_fill(&operands, recipe, shape, schedule, inputs, NULL, stream);
    }
    if (status != ATTENTION_OK) {
        return status;
    }
    struct forward_call call = {};
    call.query = operands.image[ROLE_QUERY_SCORE];
    call.key = operands.image[ROLE_KEY_SCORE];
    call.value = operands.image[ROLE_VALUE_OUTPUT];
    call.value_diagonal = operands.image[ROLE_VALUE_OUTPUT_DIAGONAL];
    call.fold = operands.fold[ROLE_VALUE_OUTPUT];
    call.fold_diagonal = operands.fold[ROLE_VALUE_OUTPUT_DIAGONAL];
    call.output = output;
    call.output_stride = output_stride;
    call.lse = lse;
    call.items = schedule->items;
    call.item_count = schedule->item_count;
    call.total_tokens = shape->total_tokens;
    call.heads = (uint32_t)shape->heads;
    call.group = (uint32_t)(shape->heads / shape->kv_heads);
    call.probability = recipe->probability;
    call.exponential = recipe->exponential;
    call.shift = recipe->probability_shift;
    call.diagonal_span = recipe->diagonal_forward;
    call.threshold = recipe->rescale_threshold;
    call.factor = shape->softmax_scale * 1.44269504088896341f;
    call.causal = shape->causal;
    return shape->head_dim == 64 ? launch<64>(call, shape, schedule->max_items, stream)
                                 : launch<128>(call, shape, schedule->max_items, stream);
}
