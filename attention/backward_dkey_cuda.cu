/* backward_dkey_cuda.cu: dK and dV. Definition: backward_cpu.c.
 *
 * One block owns 128 keys of one document and key/value head, eight warps 16 keys each; it visits the heads of its group and their query tiles in
 * ascending order, 32 queries a step, with everything transposed:
 *   S^T = K Q^T, dP^T = V dO^T    from exactly decoded BF16 images
 *   P^T = 2^(x - lse), dS^T = P^T (dP^T - D), each rounded as the recipe says
 *   dV += P^T dO, dK += dS^T Q    in registers: the same bits every run
 * Where a scale needs a whole 128 x 128 tile, its four steps are taken twice, first for the maxima.
 */
#include "attention/backward.cuh"

/* Shared memory: K and V of the tile; two stages of Q and dO for S and dP, Q for dK, dO for dV, 32 rows each, with lse and D. */
template <int head_dim> struct dkey_memory {
    static constexpr int resident = 2 * TILE * head_dim, rows = 4 * STEP * head_dim, stage = rows + 2 * 2 * STEP; /* in 16-bit units */
    static constexpr size_t bytes = (resident + 2 * stage) * sizeof(uint16_t);
};

/* Where a block works. Queries and keys count from the document's start. */
struct key_place {
    uint32_t kv_head;
    int32_t begin;
    int tokens, key, keys, row; /* row: this warp's first key of the tile */
};

struct query_step {
    uint32_t head;
    int query, queries; /* first query; how many of the 32 there are (may be <= 0) */
    bool survey, last_of_tile;
};

/* Query tiles a key tile meets: from its own on if causal. */
static __device__ __forceinline__ int first_tile(const struct backward_call &call, const struct key_place &place)
{
    return call.causal ? place.key / TILE : 0;
}

static __device__ __forceinline__ struct query_step step_at(const struct backward_call &call, const struct key_place &place, int index, int phases)
{
    struct query_step step;
    const int tiles = (place.tokens + TILE - 1) / TILE - first_tile(call, place), per_tile = phases * STEPS;
    const int tile = index / per_tile, within = index % per_tile;
    step.head = place.kv_head * (call.heads / call.kv_heads) + (uint32_t)(tile / tiles);
    step.query = (first_tile(call, place) + tile % tiles) * TILE + within % STEPS * STEP;
    step.queries = place.tokens - step.query < STEP ? place.tokens - step.query : STEP;
    step.survey = phases == 2 && within < STEPS;
    step.last_of_tile = within % STEPS == STEPS - 1;
    return step;
}

template <int head_dim>
static __device__ __forceinline__ void load_step(const struct backward_call &call, const struct key_place &place, const struct query_step &step,
                                                 uint16_t *stage)
{
    const int valid = step.queries > 0 ? step.queries : 0;
    const size_t row = (size_t)step.head * call.total_tokens + (size_t)(place.begin + (valid > 0 ? step.query : 0));
    const size_t at = row * head_dim;
    tile_load<head_dim, STEP, THREADS>(stage, call.query + at, valid);
    tile_load<head_dim, STEP, THREADS>(stage + STEP * head_dim, call.doutput + at, valid);
    if (call.query_dkey != call.query) {
        tile_load<head_dim, STEP, THREADS>(stage + 2 * STEP * head_dim, call.query_dkey + at, valid);
    }
    if (call.doutput_dvalue != call.doutput) {
        tile_load<head_dim, STEP, THREADS>(stage + 3 * STEP * head_dim, call.doutput_dvalue + at, valid);
    }
    float *statistics = (float *)(stage + 4 * STEP * head_dim);
    if (threadIdx.x < 2 * STEP) {
        const int query = (int)threadIdx.x % STEP;
        const bool there = query < valid;
        statistics[threadIdx.x] = threadIdx.x < STEP ? (there ? call.lse[row + query] : INFINITY) : (there ? call.delta[row + query] : 0.0f);
    }
    copy_async_commit();
}

/* P^T and dS^T of a step, 0 where the query may not look. */
template <int head_dim>
static __device__ __forceinline__ void rebuild(const struct backward_call &call, const struct key_place &place, const struct query_step &step,
                                               uint16_t *resident, uint16_t *stage, float (&p)[BLOCKS][4], float (&ds)[BLOCKS][4])
{
    const float *statistics = (const float *)(stage + 4 * STEP * head_dim);
    tile_scores<head_dim, BLOCKS>(p, resident, place.row, stage);
    tile_scores<head_dim, BLOCKS>(ds, resident + TILE * head_dim, place.row, stage + STEP * head_dim);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = fragment_column(block, i), query = step.query + column, key = place.key + place.row + fragment_row(i);
            const bool visible = key < place.tokens && query < place.tokens && (!call.causal || key <= query);
            const float probability = visible ? probability_of(call, p[block][i], statistics[column]) : 0.0f;
            ds[block][i] = probability == 0.0f ? 0.0f : probability * (ds[block][i] - statistics[STEP + column]);
            p[block][i] = probability;
        }
    }
}

/* E4M3 with one exponent per query and 32 keys: a column of this warp's 16 rows and its neighbour's. */
static __device__ __forceinline__ void round_each_column(float (&x)[BLOCKS][4], enum scale_rule rule, uint32_t *exchange)
{
    const int warp = (int)threadIdx.x / 32;
    uint32_t own[2 * BLOCKS];
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        own[i] = larger_bits(magnitude_of(x[i / 2][i % 2]), magnitude_of(x[i / 2][i % 2 + 2]));
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
            own[i] = larger_bits(own[i], __shfl_xor_sync(ALL_LANES, own[i], distance));
        }
        if (threadIdx.x % 32 < 4) {
            exchange[warp * STEP + fragment_column(i / 2, i % 2)] = own[i];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        const uint32_t other = exchange[(warp ^ 1) * STEP + fragment_column(i / 2, i % 2)];
        const struct block_scale scale = dscore_block_scale(larger_bits(own[i], other), rule);
        x[i / 2][i % 2] = e4m3_round(x[i / 2][i % 2] * scale.down) * scale.up;
        x[i / 2][i % 2 + 2] = e4m3_round(x[i / 2][i % 2 + 2] * scale.down) * scale.up;
    }
    __syncthreads();
}

/* The dS of dK. `largest` [2]: of each key over the tile's queries, or of the whole tile. */
static __device__ __forceinline__ void round_dscore(const struct backward_call &call, float (&x)[BLOCKS][4], const uint32_t (&largest)[2],
                                                    const struct dice &dice, uint32_t *exchange)
{
    if (call.dscore == DSCORE_BF16) {
        round_bf16(x);
    } else if (call.dscore == DSCORE_E2M1) {
        round_nvfp4(x, largest, dice);
    } else if (call.dscore == DSCORE_E4M3) {
        switch (call.dscore_scale) {
        case DSCORE_BLOCK:
            round_square(x, call.rule, exchange);
            break;
        case DSCORE_ROW:
            round_each_column(x, call.rule, exchange);
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

static __device__ __forceinline__ void round_probability(const struct backward_call &call, float (&p)[BLOCKS][4], const uint32_t (&largest)[2])
{
    if (call.probability == PROBABILITY_BF16) {
        round_bf16(p);
    } else if (call.probability == PROBABILITY_E4M3_FIXED) {
        round_e4m3(p, 8);
    } else if (call.probability == PROBABILITY_E2M1) {
        struct dice none = {};
        round_nvfp4(p, largest, none);
    }
}

/* What a warp carries through the walk. */
template <int head_dim> struct key_rows {
    float dkey[head_dim / 8][4], dvalue[head_dim / 8][4];
    uint32_t dscore_largest[2], probability_largest[2];
};

/* The tile's maxima so far: per key over its quad, or (DSCORE_TILE) over the block at the tile's last step. */
template <int head_dim>
static __device__ __forceinline__ void survey(const struct backward_call &call, const struct query_step &step, const float (&p)[BLOCKS][4],
                                              const float (&ds)[BLOCKS][4], struct key_rows<head_dim> &rows, uint32_t *exchange)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        rows.dscore_largest[half] = larger_bits(rows.dscore_largest[half], quad_max_bits(half_largest(ds, half)));
        rows.probability_largest[half] = larger_bits(rows.probability_largest[half], quad_max_bits(half_largest(p, half)));
    }
    if (call.dscore != DSCORE_E4M3 || !step.last_of_tile) {
        return;
    }
    const uint32_t own = warp_max_u32(larger_bits(rows.dscore_largest[0], rows.dscore_largest[1]));
    if (threadIdx.x % 32 == 0) {
        exchange[threadIdx.x / 32] = own;
    }
    __syncthreads();
    for (int warp = 0; warp < WARPS; warp++) {
        rows.dscore_largest[0] = larger_bits(rows.dscore_largest[0], exchange[warp]);
    }
    __syncthreads();
}

template <int head_dim>
static __device__ __forceinline__ void visit_step(const struct backward_call &call, const struct key_place &place, const struct query_step &step,
                                                  struct key_rows<head_dim> &rows, uint16_t *resident, uint16_t *stage, uint32_t *exchange)
{
    float p[BLOCKS][4], ds[BLOCKS][4];
    rebuild<head_dim>(call, place, step, resident, stage, p, ds);
    if (step.survey) {
        survey<head_dim>(call, step, p, ds, rows, exchange);
        return;
    }
    struct dice dice = {};
    dice.on = call.stochastic;
    if (dice.on) {
        const uint32_t token = (uint32_t)place.begin + call.query_offset;
        dice.seed = (uint32_t)call.seed_step[0];
        dice.step = (uint32_t)call.seed_step[1];
        dice.query = token + (uint32_t)step.query;
        dice.key = token + (uint32_t)(place.key + place.row);
        dice.head = step.head;
        dice.layer = call.layer;
    }
    round_dscore(call, ds, rows.dscore_largest, dice, exchange);
    uint16_t *const query_image = call.query_dkey != call.query ? stage + 2 * STEP * head_dim : stage;
    if (call.dscore == DSCORE_FP32) {
        tile_accumulate_fp32<head_dim, BLOCKS>(rows.dkey, ds, query_image);
    } else {
        tile_accumulate<head_dim, BLOCKS>(rows.dkey, ds, query_image);
    }
    round_probability(call, p, rows.probability_largest);
    uint16_t *const doutput_image = call.doutput_dvalue != call.doutput ? stage + 3 * STEP * head_dim : stage + STEP * head_dim;
    if (call.probability == PROBABILITY_FP32) {
        tile_accumulate_fp32<head_dim, BLOCKS>(rows.dvalue, p, doutput_image);
    } else {
        tile_accumulate<head_dim, BLOCKS>(rows.dvalue, p, doutput_image);
    }
    if (step.last_of_tile) {
        rows.dscore_largest[0] = rows.dscore_largest[1] = 0;
        rows.probability_largest[0] = rows.probability_largest[1] = 0;
    }
}

template <int head_dim> __global__ void __launch_bounds__(THREADS, 1) dkey_kernel(const struct backward_call call)
{
    using memory = dkey_memory<head_dim>;
    SHARED_MEMORY(uint16_t, shared);
    SHARED_ARRAY(uint32_t, exchange, WARPS * STEP);
    const int32_t index = *call.item_count - 1 - (int32_t)(blockIdx.x / call.kv_heads); /* most query tiles first, where causal */
    if (index < 0) {
        return;
    }
    const int32_t *item = call.items + 4 * (size_t)index;
    struct key_place place;
    place.kv_head = blockIdx.x % call.kv_heads;
    place.begin = item[0];
    place.tokens = item[1] - item[0];
    place.key = item[2] - item[0];
    place.keys = place.tokens - place.key < TILE ? place.tokens - place.key : TILE;
    place.row = (int)threadIdx.x / 32 * 16;
    const size_t first = ((size_t)place.kv_head * call.total_tokens + (size_t)item[2]) * head_dim;
    uint16_t *const stages = shared + memory::resident;
    tile_load<head_dim, TILE, THREADS>(shared, call.key + first, place.keys);
    tile_load<head_dim, TILE, THREADS>(shared + TILE * head_dim, call.value + first, place.keys);
    const int phases = needs_tile_largest(call) || call.probability == PROBABILITY_E2M1 ? 2 : 1;
    const int tiles = (place.tokens + TILE - 1) / TILE - first_tile(call, place);
    const int steps = tiles * (int)(call.heads / call.kv_heads) * phases * STEPS;
    load_step<head_dim>(call, place, step_at(call, place, 0, phases), stages);
    struct key_rows<head_dim> rows = {};
    for (int s = 0; s < steps; s++) {
        if (s + 1 < steps) {
            load_step<head_dim>(call, place, step_at(call, place, s + 1, phases), stages + (s + 1) % 2 * memory::stage);
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        visit_step<head_dim>(call, place, step_at(call, place, s, phases), rows, shared, stages + s % 2 * memory::stage, exchange);
        __syncthreads(); /* the stage is refilled in the next round */
    }
    write_rows<head_dim>(rows.dkey, (float *)shared, place.row, place.keys, call.rotated, call.normal, call.softmax_scale,
                         call.dkey + (size_t)item[2] * call.dkey_stride + (size_t)place.kv_head * head_dim, call.dkey_stride);
    write_rows<head_dim>(rows.dvalue, (float *)shared, place.row, place.keys, false, call.normal, 1.0f,
                         call.dvalue + (size_t)item[2] * call.dvalue_stride + (size_t)place.kv_head * head_dim, call.dvalue_stride);
}

template <int head_dim> static enum attention_status launch(const struct backward_call &call, size_t max_items, cudaStream_t stream)
{
    constexpr size_t bytes = dkey_memory<head_dim>::bytes;
    if (cudaFuncSetAttribute(dkey_kernel<head_dim>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess) {
        return ATTENTION_DEVICE;
    }
    LAUNCH(dkey_kernel<head_dim>, dim3((unsigned)(call.kv_heads * max_items)), dim3(THREADS), bytes, stream, call);
    return cudaPeekAtLastError() == cudaSuccess ? ATTENTION_OK : ATTENTION_DEVICE;
}

enum attention_status backward_dkey_launch(const struct backward_call *call, const struct attention_shape *shape, size_t max_items,
                                           attention_stream stream)
{
    return shape->head_dim == 64 ? launch<64>(*call, max_items, stream) : launch<128>(*call, max_items, stream);
}
