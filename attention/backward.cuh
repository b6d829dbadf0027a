/* backward.cuh: what the two backward kernels share: the call, rebuilding P and dP, and writing finished rows. For attention/ only. */
#ifndef ATTENTION_BACKWARD_CUH
#define ATTENTION_BACKWARD_CUH

#include "attention/exponential_forms.h"
#include "attention/launch.cuh"
#include "attention/operands_cuda.h"
#include "attention/rotate.cuh"
#include "attention/round.cuh"

#define WARPS   8
#define THREADS (32 * WARPS)
#define STEP    32         /* columns (keys or queries) a step */
#define BLOCKS  (STEP / 8) /* column blocks of a step's fragments */
#define STEPS   (TILE / STEP)

enum backward_pass {
    PASS_DELTA,    /* D_i = sum_j P_ij dP_ij */
    PASS_LARGEST,  /* the call's largest |dS| */
    PASS_GRADIENT,
};

/* What the kernels need of the recipe, and where everything is. Images [heads or kv_heads][total_tokens][head_dim]. */
struct backward_call {
    const uint16_t *query, *key, *value, *doutput;   /* of S and dP */
    const uint16_t *query_dkey, *doutput_dvalue;     /* of dK and dV */
    const uint16_t *key_dquery, *key_dquery_diagonal;
    const uint8_t *fold, *fold_diagonal; /* E8M0 [kv_heads][total_tokens], or NULL */
    const float *lse;
    float *delta;                /* [heads][total_tokens] */
    const int16_t *dquery_scale; /* [heads][total_tokens] or NULL */
    uint32_t *dscore_largest;
    uint16_t *dquery, *dkey, *dvalue;
    size_t dquery_stride, dkey_stride, dvalue_stride;
    const int32_t *items, *item_count;
    const uint64_t *seed_step;
    size_t total_tokens;
    uint32_t heads, kv_heads, layer, query_offset;
    enum probability_format probability;
    enum dscore_format dscore;
    enum dscore_scale dscore_scale;
    enum scale_rule rule;
    int dscore_exponent, diagonal_span;
    enum backward_pass pass;
    float factor, softmax_scale, normal;
    bool causal, polynomial, rotated, stochastic;
};

static __device__ __forceinline__ float probability_of(const struct backward_call &call, float score, float lse)
{
    const float x = score * call.factor - lse;
    return call.polynomial ? base2_polynomial(x) : exp2_fast(x);
}

/* True if dS's scale needs the whole 128 x 128 tile, so that a tile is visited twice. */
static __device__ __forceinline__ bool needs_tile_largest(const struct backward_call &call)
{
    return call.dscore == DSCORE_E2M1 || (call.dscore == DSCORE_E4M3 && call.dscore_scale == DSCORE_TILE);
}

template <int blocks> static __device__ __forceinline__ uint32_t fragment_largest(const float (&x)[blocks][4])
{
    return larger_bits(half_largest(x, 0), half_largest(x, 1));
}

/* E4M3 with the exponent of a 32 x 32 block: this warp's 16 rows and its neighbour's. `exchange` [WARPS]. All warps call. */
static __device__ __forceinline__ void round_square(float (&x)[BLOCKS][4], enum scale_rule rule, uint32_t *exchange)
{
    const int warp = (int)threadIdx.x / 32;
    const uint32_t own = warp_max_u32(fragment_largest(x));
    if (threadIdx.x % 32 == 0) {
        exchange[warp] = own;
    }
    __syncthreads();
    const uint32_t other = exchange[warp ^ 1];
    __syncthreads();
    round_scaled(x, dscore_block_scale(larger_bits(own, other), rule));
}

/* Finished rows of this warp: through shared memory (FP32 [16][head_dim] a warp), rotated back, scaled, rounded to BF16 once. */
template <int head_dim>
static __device__ void write_rows(float (&sum)[head_dim / 8][4], float *shared, int row, int rows, bool rotated, float normal, float scale,
                                  uint16_t *out, size_t stride)
{
    constexpr int per_lane = head_dim / 32;
    const int lane = (int)threadIdx.x % 32;
    float *own = shared + (int)threadIdx.x / 32 * 16 * head_dim;
#pragma unroll
    for (int block = 0; block < head_dim / 8; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            own[fragment_row(i) * head_dim + fragment_column(block, i)] = sum[block][i];
        }
    }
    __syncwarp();
    for (int r = 0; r < 16 && row + r < rows; r++) {
        float x[per_lane];
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            x[i] = own[r * head_dim + lane * per_lane + i];
        }
        if (rotated) {
            rotate_row<head_dim>(x, lane, normal);
        }
        uint16_t *to = out + (size_t)(row + r) * stride + lane * per_lane;
#pragma unroll
        for (int i = 0; i < per_lane; i += 2) {
            *(uint32_t *)(to + i) = pack_bf16(x[i] * scale, x[i + 1] * scale);
        }
    }
    __syncwarp();
}

#ifdef __cplusplus
extern "C" {
#endif
enum attention_status backward_dquery_launch(const struct backward_call *call, const struct attention_shape *shape, size_t max_items,
                                             attention_stream stream);
enum attention_status backward_dkey_launch(const struct backward_call *call, const struct attention_shape *shape, size_t max_items,
                                           attention_stream stream);
#ifdef __cplusplus
}
#endif

#endif
