/* backward_dquery_cuda.cu: dQ, and what must be known before it: D as a direct sum, the call's largest dS. Definition: backward_cpu.c.
 *
 * One block owns 128 queries of one document and head, eight warps 16 rows each. 32 keys a step:
 *   S = Q K^T, dP = dO V^T    from exactly decoded BF16 images
 *   P = 2^(x - lse), dS = P (dP - D), rounded as the recipe says
 *   dQ += dS K                in registers, key tiles ascending: the same bits every run
 * Where dS's scale needs a whole tile, its four steps are taken twice, first for the maxima.
 */
#include "attention/backward.cuh"

/* Shared memory: Q and dO of the tile, two stages of K, V and dQ's K, 32 rows each. */
template <int head_dim> struct dquery_memory {
    static constexpr int resident = 2 * TILE * head_dim, stage = 3 * STEP * head_dim;
    static constexpr size_t bytes = (resident + 2 * stage) * sizeof(uint16_t);
};

/* Where a block works. Queries and keys count from the document's start. */
struct query_place {
    uint32_t head, kv_head;
    int32_t begin;
    int tokens, query, rows, row; /* row: this warp's first */
    size_t key_row;               /* first key of the document in [kv_heads][total_tokens] */
};

/* One step of the walk over key tiles. */
struct key_step {
    int key, keys;     /* first key; how many of the 32 there are (may be <= 0) */
    bool survey;       /* only the maxima are wanted */
    bool last_of_tile; /* of its phase */
    bool diagonal;
};

static __device__ __forceinline__ struct key_step step_at(const struct backward_call &call, const struct query_place &place, int index, int phases)
{
    struct key_step step;
    const int tile = index / (phases * STEPS), within = index % (phases * STEPS);
    step.key = tile * TILE + within % STEPS * STEP;
    step.keys = place.tokens - step.key < STEP ? place.tokens - step.key : STEP;
    step.survey = phases == 2 && within < STEPS;
    step.last_of_tile = within % STEPS == STEPS - 1;
    step.diagonal = call.causal && place.query / call.diagonal_span == step.key / call.diagonal_span;
    return step;
}

template <int head_dim>
static __device__ __forceinline__ void load_step(const struct backward_call &call, const struct query_place &place, const struct key_step &step,
                                                 uint16_t *stage)
{
    const int valid = step.keys > 0 ? step.keys : 0;
    const size_t at = (place.key_row + (size_t)(valid > 0 ? step.key : 0)) * head_dim;
    tile_load<head_dim, STEP, THREADS>(stage, call.key + at, valid);
    tile_load<head_dim, STEP, THREADS>(stage + STEP * head_dim, call.value + at, valid);
    if (call.pass == PASS_GRADIENT) {
        tile_load<head_dim, STEP, THREADS>(stage + 2 * STEP * head_dim, (step.diagonal ? call.key_dquery_diagonal : call.key_dquery) + at, valid);
    }
    copy_async_commit();
}

/* P and dP of a step, 0 where the row may not look. */
template <int head_dim>
static __device__ __forceinline__ void rebuild(const struct backward_call &call, const struct query_place &place, const struct key_step &step,
                                               uint16_t *resident, uint16_t *stage, const float (&lse)[2], float (&p)[BLOCKS][4],
                                               float (&dp)[BLOCKS][4])
{
    tile_scores<head_dim, BLOCKS>(p, resident, place.row, stage);
    tile_scores<head_dim, BLOCKS>(dp, resident + TILE * head_dim, place.row, stage + STEP * head_dim);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = step.key + fragment_column(block, i), query = place.query + place.row + fragment_row(i);
            const bool visible = key < place.tokens && (!call.causal || key <= query);
            p[block][i] = visible ? probability_of(call, p[block][i], lse[i / 2]) : 0.0f;
            dp[block][i] = visible ? dp[block][i] : 0.0f;
        }
    }
}

/* Multiplies dS by 2^(sign * e) of its keys; zeros stay. */
static __device__ __forceinline__ void fold_keys(float (&x)[BLOCKS][4], const uint8_t *exponents, int keys, int sign)
{
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = fragment_column(block, i);
            const uint8_t byte = key < keys ? exponents[key] : 127;
            const float power = byte == E8M0_NAN ? float_from_bits(0x7FC00000u) : exponent_to_float(sign * ((int)byte - 127));
            x[block][i] = x[block][i] == 0.0f ? 0.0f : x[block][i] * power;
        }
    }
}

/* E4M3 with one exponent per query and 32 keys. */
static __device__ __forceinline__ void round_each_row(float (&x)[BLOCKS][4], enum scale_rule rule)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const struct block_scale scale = dscore_block_scale(quad_max_bits(half_largest(x, half)), rule);
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; i++) {
            float &value = x[i / 2][2 * half + i % 2];
            value = e4m3_round(value * scale.down) * scale.up;
        }
    }
}

/* The dS of dQ. `largest` [2]: of each row half over the tile, or of the whole tile. */
static __device__ __forceinline__ void round_dscore(const struct backward_call &call, float (&x)[BLOCKS][4], const uint32_t (&largest)[2],
                                                    uint32_t *exchange)
{
    if (call.dscore == DSCORE_BF16) {
        round_bf16(x);
    } else if (call.dscore == DSCORE_E2M1) {
        struct dice none = {};
        round_nvfp4(x, largest, none);
    } else if (call.dscore == DSCORE_E4M3) {
        switch (call.dscore_scale) {
        case DSCORE_BLOCK:
            round_square(x, call.rule, exchange);
            break;
        case DSCORE_ROW:
            round_each_row(x, call.rule);
            break;
        case DSCORE_TILE:
            round_scaled(x, dscore_block_scale(largest[0], call.rule));
            break;
        case DSCORE_TENSOR:
            round_tensor(x, *call.dscore_largest);
            break;
        case DSCORE_FIXED:
            round_e4m3(x, -call.dscore_exponent);
            break;
        }
    }
}

/* The largest |dS| of the tile so far: per row half over its quad, or (DSCORE_TILE) over the block at the tile's last step. */
static __device__ __forceinline__ void survey(const struct backward_call &call, const struct key_step &step, const float (&x)[BLOCKS][4],
                                              uint32_t (&largest)[2], uint32_t *exchange)
{
    largest[0] = larger_bits(largest[0], quad_max_bits(half_largest(x, 0)));
    largest[1] = larger_bits(largest[1], quad_max_bits(half_largest(x, 1)));
    if (call.dscore_scale != DSCORE_TILE || !step.last_of_tile) {
        return;
    }
    const uint32_t own = warp_max_u32(larger_bits(largest[0], largest[1]));
    if (threadIdx.x % 32 == 0) {
        exchange[threadIdx.x / 32] = own;
    }
    __syncthreads();
    for (int warp = 0; warp < WARPS; warp++) {
        largest[0] = larger_bits(largest[0], exchange[warp]);
    }
    __syncthreads();
}

/* One key tile's part of dQ rounded to FP16 with each row's scale and added in FP16; the part starts again from zero. */
template <int head_dim>
static __device__ __forceinline__ void add_f16(float (&sum)[head_dim / 8][4], float (&part)[head_dim / 8][4], const float (&scale)[2])
{
#pragma unroll
    for (int block = 0; block < head_dim / 8; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum[block][i] = f16_round(sum[block][i] + f16_round(part[block][i] * scale[i / 2]));
            part[block][i] = 0.0f;
        }
    }
}

/* What a warp carries through the walk. */
template <int head_dim> struct query_rows {
    float dquery[head_dim / 8][4];
    float lse[2], delta[2], direct[2];
    uint32_t largest[2];
};

template <int head_dim>
static __device__ __forceinline__ void visit_step(const struct backward_call &call, const struct query_place &place, const struct key_step &step,
                                                  struct query_rows<head_dim> &rows, float (&into)[head_dim / 8][4], uint16_t *resident,
                                                  uint16_t *stage, uint32_t *exchange)
{
    float p[BLOCKS][4], dp[BLOCKS][4];
    rebuild<head_dim>(call, place, step, resident, stage, rows.lse, p, dp);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            rows.direct[i / 2] += p[block][i] * dp[block][i];
            p[block][i] = p[block][i] == 0.0f ? 0.0f : p[block][i] * (dp[block][i] - rows.delta[i / 2]);
        }
    }
    if (call.pass == PASS_LARGEST) {
        rows.largest[0] = larger_bits(rows.largest[0], fragment_largest(p));
    }
    if (call.pass != PASS_GRADIENT) {
        return;
    }
    const uint8_t *exponents = step.diagonal ? call.fold_diagonal : call.fold;
    const bool folded = exponents && call.dscore == DSCORE_E2M1;
    if (folded) {
        fold_keys(p, exponents + place.key_row + step.key, step.keys, 1);
    }
    if (step.survey) {
        survey(call, step, p, rows.largest, exchange);
        return;
    }
    round_dscore(call, p, rows.largest, exchange);
    if (folded) {
        fold_keys(p, exponents + place.key_row + step.key, step.keys, -1);
    }
    if (call.dscore == DSCORE_FP32) {
        tile_accumulate_fp32<head_dim, BLOCKS>(into, p, stage + 2 * STEP * head_dim);
    } else {
        tile_accumulate<head_dim, BLOCKS>(into, p, stage + 2 * STEP * head_dim);
    }
    if (step.last_of_tile) {
        rows.largest[0] = rows.largest[1] = 0;
    }
}

template <int head_dim> static __device__ void load_rows(const struct backward_call &call, const struct query_place &place, struct query_rows<head_dim> &rows)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = place.row + fragment_row(2 * half);
        const size_t index = (size_t)place.head * call.total_tokens + (size_t)(place.begin + place.query + at);
        const bool there = at < place.rows;
        rows.lse[half] = there ? call.lse[index] : INFINITY; /* P = 0 past the end */
        rows.delta[half] = there && call.pass != PASS_DELTA ? call.delta[index] : 0.0f;
    }
}

/* D, or the largest dS, of this warp's rows. */
template <int head_dim> static __device__ void finish_prepass(const struct backward_call &call, const struct query_place &place, const struct query_rows<head_dim> &rows)
{
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(rows.direct[half]);
        const int at = place.row + fragment_row(2 * half);
        if (call.pass == PASS_DELTA && at < place.rows && threadIdx.x % 4 == 0) {
            call.delta[(size_t)place.head * call.total_tokens + (size_t)(place.begin + place.query + at)] = sum;
        }
    }
    const uint32_t largest = warp_max_u32(rows.largest[0]);
    if (call.pass == PASS_LARGEST && threadIdx.x % 32 == 0) {
        atomicMax(call.dscore_largest, largest);
    }
}

template <int head_dim> static __device__ struct query_place place_of(const struct backward_call &call, const int32_t *item)
{
    struct query_place place;
    place.head = blockIdx.x % call.heads;
    place.kv_head = place.head / (call.heads / call.kv_heads);
    place.begin = item[0];
    place.tokens = item[1] - item[0];
    place.query = item[2] - item[0];
    place.rows = place.tokens - place.query < TILE ? place.tokens - place.query : TILE;
    place.row = (int)threadIdx.x / 32 * 16;
    place.key_row = (size_t)place.kv_head * call.total_tokens + (size_t)place.begin;
    return place;
}

/* `half`: dQ is accumulated in FP16. */
template <int head_dim, bool half> __global__ void __launch_bounds__(THREADS, 1) dquery_kernel(const struct backward_call call)
{
    using memory = dquery_memory<head_dim>;
    SHARED_MEMORY(uint16_t, shared);
    SHARED_ARRAY(uint32_t, exchange, WARPS);
    const uint32_t index = blockIdx.x / call.heads;
    if ((int32_t)index >= *call.item_count) {
        return;
    }
    const int32_t *item = call.items + 4 * (size_t)index;
    const struct query_place place = place_of<head_dim>(call, item);
    const size_t first = ((size_t)place.head * call.total_tokens + (size_t)item[2]) * head_dim;
    uint16_t *const stages = shared + memory::resident;
    tile_load<head_dim, TILE, THREADS>(shared, call.query + first, place.rows);
    tile_load<head_dim, TILE, THREADS>(shared + TILE * head_dim, call.doutput + first, place.rows);
    const int phases = call.pass == PASS_GRADIENT && needs_tile_largest(call) ? 2 : 1, steps = item[3] * phases * STEPS;
    load_step<head_dim>(call, place, step_at(call, place, 0, phases), stages);
    struct query_rows<head_dim> rows = {};
    load_rows<head_dim>(call, place, rows);
    float part[half ? head_dim / 8 : 1][4] = {};
    float scale[2] = {1.0f, 1.0f};
    for (int h = 0; half && h < 2; h++) {
        const int at = place.row + fragment_row(2 * h);
        scale[h] = at < place.rows
                       ? exponent_to_float(call.dquery_scale[(size_t)place.head * call.total_tokens + (size_t)(item[2] + at)])
                       : 1.0f;
    }
    for (int s = 0; s < steps; s++) {
        const struct key_step step = step_at(call, place, s, phases);
        if (s + 1 < steps) {
            load_step<head_dim>(call, place, step_at(call, place, s + 1, phases), stages + (s + 1) % 2 * memory::stage);
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        uint16_t *const stage = stages + s % 2 * memory::stage;
        if constexpr (half) {
            visit_step<head_dim>(call, place, step, rows, part, shared, stage, exchange);
            if (step.last_of_tile && !step.survey) {
                add_f16<head_dim>(rows.dquery, part, scale);
            }
        } else {
            visit_step<head_dim>(call, place, step, rows, rows.dquery, shared, stage, exchange);
        }
        __syncthreads(); /* the stage is refilled in the next round */
    }
    if (call.pass != PASS_GRADIENT) {
        finish_prepass<head_dim>(call, place, rows);
        return;
    }
    for (int i = 0; half && i < head_dim / 8 * 4; i++) {
        rows.dquery[i / 4][i % 4] *= 1.0f / scale[i % 4 / 2]; /* powers of two */
    }
    write_rows<head_dim>(rows.dquery, (float *)shared, place.row, place.rows, call.rotated, call.normal, call.softmax_scale,
                         call.dquery + (size_t)item[2] * call.dquery_stride + (size_t)place.head * head_dim, call.dquery_stride);
}

template <int head_dim, bool half>
static enum attention_status launch(const struct backward_call &call, size_t max_items, cudaStream_t stream)
{
    constexpr size_t bytes = dquery_memory<head_dim>::bytes;
    if (cudaFuncSetAttribute(dquery_kernel<head_dim, half>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess) {
        return ATTENTION_DEVICE;
    }
    LAUNCH((dquery_kernel<head_dim, half>), dim3((unsigned)(call.heads * max_items)), dim3(THREADS), bytes, stream, call);
    return cudaPeekAtLastError() == cudaSuccess ? ATTENTION_OK : ATTENTION_DEVICE;
}

enum attention_status backward_dquery_launch(const struct backward_call *call, const struct attention_shape *shape, size_t max_items,
                                             attention_stream stream)
{
    const bool half = call->dquery_scale && call->pass == PASS_GRADIENT;
    if (shape->head_dim == 64) {
        return half ? launch<64, true>(*call, max_items, stream) : launch<64, false>(*call, max_items, stream);
    }
    return half ? launch<128, true>(*call, max_items, stream) : launch<128, false>(*call, max_items, stream);
}
