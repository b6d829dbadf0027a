/* quantize_cuda.cu: the quantizers on the device. Definition: quantize_cpu.c; codes, exponents and images are bit-equal.
 *
 * One block owns 128 tokens of one document and one head: it reads them once, rotates, rounds to BF16 into shared memory, and writes every
 * representation asked for. Warp w owns rows 16 w .. 16 w + 15, which is also group w of 16 along tokens. A lane holds head_dim / 32
 * neighbouring channels. Built without FMA contraction: the order and rounding of every operation is part of the contract.
 */
#include "attention/quantize_cuda.h"

#include "attention/formats.h"
#include "attention/launch.cuh"
#include "attention/mma.cuh"
#include "attention/rotate.cuh"
#include "attention/scale_forms.h"

#define WARPS         8
#define THREADS       (32 * WARPS)
#define ROWS_PER_WARP (TILE / WARPS)
#define GROUP         16
#define INFINITY_BITS 0x7F800000u
#define NAN_BITS      0x7FC00000u

/* ---- one row in a warp's registers ---- */

static __device__ __forceinline__ uint32_t magnitude_bits(float x)
{
    return float_to_bits(x) & 0x7FFFFFFFu;
}

template <int head_dim>
static __device__ void load_row(const struct quantize_job &job, size_t token, uint32_t head, int lane, float (&x)[head_dim / 32])
{
    constexpr int per_lane = head_dim / 32;
    const uint16_t *from = job.x + token * job.stride + (size_t)head * head_dim + lane * per_lane;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        x[i] = bf16_decode(from[i]);
    }
    if (job.rotate) {
        rotate_row<head_dim>(x, lane, job.normal);
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            x[i] = bf16_round(x[i]);
        }
    }
}

template <int per_lane> static __device__ uint32_t lane_largest(const float (&x)[per_lane])
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        const uint32_t m = magnitude_bits(x[i]);
        most = m > most ? m : most;
    }
    return most;
}

template <int per_lane> static __device__ uint32_t lane_largest_finite(const float (&x)[per_lane])
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        const uint32_t m = magnitude_bits(x[i]);
        most = m > most && m < INFINITY_BITS ? m : most;
    }
    return most;
}

/* ---- writing ---- */

/* This lane's part of one row: image and codes. `row` counts from the start of the operand (head * total_tokens + token). */
template <int head_dim>
static __device__ void put_row(const struct operand_cuda &to, size_t row, int lane, const float (&values)[head_dim / 32],
                               const uint8_t (&codes)[head_dim / 32])
{
    constexpr int per_lane = head_dim / 32;
    const size_t first = row * head_dim + (size_t)lane * per_lane;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        to.image[first + i] = bf16_encode(values[i]);
        if (to.codes) {
            to.codes[first + i] = codes[i];
        }
    }
}

/* What every representation works on: the tile in shared memory and where it lies. */
struct tile_view {
    const uint16_t *tile; /* [TILE][head_dim] BF16 */
    int rows;
    size_t first_row; /* of the operand */
    int warp, lane;
};

template <int head_dim> static __device__ void read_tile(const struct tile_view &view, int row, float (&x)[head_dim / 32])
{
    constexpr int per_lane = head_dim / 32;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        x[i] = bf16_decode(view.tile[row * head_dim + view.lane * per_lane + i]);
    }
}

/* ---- representations, one row by one warp ---- */

template <int head_dim> static __device__ void encode_plain(const struct tile_view &view, const struct operand_cuda &to, int row)
{
    float x[head_dim / 32];
    const uint8_t codes[head_dim / 32] = {0};
    read_tile<head_dim>(view, row, x);
    struct operand_cuda image = to;
    image.codes = NULL;
    put_row<head_dim>(image, view.first_row + row, view.lane, x, codes);
}

/* Codes of a format with one exponent for the row; amax has been taken over the block it belongs to. */
template <int head_dim, bool four_bit>
static __device__ void encode_exponent(const struct tile_view &view, const struct operand_cuda &to, int row, uint32_t amax,
                                       enum scale_rule rule)
{
    constexpr int per_lane = head_dim / 32;
    float x[per_lane];
    uint8_t codes[per_lane] = {0};
    read_tile<head_dim>(view, row, x);
    const bool poisoned = amax >= INFINITY_BITS;
    const float largest = float_from_bits(poisoned ? 0u : amax);
    const int e = four_bit ? exponent_e2m1(largest, SCALE_UP) : exponent_e4m3(largest, rule);
    const float down = exponent_to_float(-e), up = exponent_to_float(e);
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        const float scaled = __fmul_rn(x[i], down);
        const float rounded = four_bit ? e2m1_round(scaled) : e4m3_round(scaled);
        codes[i] = poisoned || amax == 0 ? 0 : four_bit ? e2m1_code_of(rounded) : e4m3_code_of(rounded);
        x[i] = poisoned ? float_from_bits(NAN_BITS) : amax == 0 ? 0.0f : __fmul_rn(rounded, up);
    }
    put_row<head_dim>(to, view.first_row + row, view.lane, x, codes);
    if (to.exponents && view.lane == 0) {
        to.exponents[view.first_row + row] = poisoned ? E8M0_NAN : e8m0_encode(e);
    }
}

template <int head_dim> static __device__ void encode_tensor(const struct tile_view &view, const struct operand_cuda &to, int row)
{
    constexpr int per_lane = head_dim / 32;
    float x[per_lane];
    uint8_t codes[per_lane] = {0};
    read_tile<head_dim>(view, row, x);
    const uint32_t amax = *to.amax_bits;
    const bool poisoned = amax >= INFINITY_BITS;
    const float scale = poisoned ? 0.0f : __fdiv_rn(float_from_bits(amax), 448.0f);
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        const float rounded = scale == 0.0f ? 0.0f : e4m3_round(__fdiv_rn(x[i], scale));
        codes[i] = e4m3_code_of(rounded);
        x[i] = poisoned ? float_from_bits(NAN_BITS) : __fmul_rn(rounded, scale);
    }
    put_row<head_dim>(to, view.first_row + row, view.lane, x, codes);
}

/* Scale of an NVFP4 group: a UE4M3 value, or NaN. */
static __device__ __forceinline__ float nvfp4_scale(uint32_t amax, float down)
{
    return amax >= INFINITY_BITS ? float_from_bits(NAN_BITS) : e4m3_round(__fdiv_rn(__fmul_rn(float_from_bits(amax), down), 6.0f));
}

/* One element: its E2M1 value, given 2^-t and the group's scale. */
static __device__ __forceinline__ float nvfp4_round(float x, float down, float scale)
{
    return scale == 0.0f || scale != scale ? 0.0f : e2m1_round(__fdiv_rn(__fmul_rn(x, down), scale));
}

template <int head_dim> static __device__ void encode_channel_groups(const struct tile_view &view, const struct operand_cuda &to, int row)
{
    constexpr int per_lane = head_dim / 32, lanes_per_group = GROUP / per_lane;
    float x[per_lane];
    uint8_t codes[per_lane];
    read_tile<head_dim>(view, row, x);
    const int t = exponent_nvfp4(float_from_bits(warp_max_u32(lane_largest_finite(x))));
    const float down = exponent_to_float(-t), up = exponent_to_float(t);
    uint32_t amax = lane_largest(x);
#pragma unroll
    for (int distance = 1; distance < lanes_per_group; distance *= 2) {
        const uint32_t other = __shfl_xor_sync(ALL_LANES, amax, distance);
        amax = other > amax ? other : amax;
    }
    const float scale = nvfp4_scale(amax, down);
    const size_t first = (view.first_row + row) * head_dim + (size_t)view.lane * per_lane;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        const float rounded = nvfp4_round(x[i], down, scale);
        codes[i] = e2m1_code_of(rounded);
        x[i] = __fmul_rn(__fmul_rn(rounded, scale), up);
        if (to.scales) {
            to.scales[first + i] = e4m3_code_of(scale);
        }
    }
    put_row<head_dim>(to, view.first_row + row, view.lane, x, codes);
    if (to.exponents && view.lane == 0) {
        to.exponents[view.first_row + row] = e8m0_encode(t);
    }
}

/* ---- representations that need the whole tile ---- */

template <int head_dim>
static __device__ void encode_token_blocks(const struct tile_view &view, const struct operand_cuda &to, enum scale_rule rule, bool per_token,
                                           uint32_t *row_largest)
{
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP; row++) {
        float x[head_dim / 32];
        read_tile<head_dim>(view, row, x);
        const uint32_t amax = warp_max_u32(lane_largest(x));
        if (view.lane == 0) {
            row_largest[row] = amax; /* rows past the end are zero */
        }
    }
    __syncthreads();
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP && row < view.rows; row++) {
        const uint32_t own = row_largest[row];
        const uint32_t block = warp_max_u32(row_largest[row / TOKEN_BLOCK * TOKEN_BLOCK + view.lane]);
        encode_exponent<head_dim, false>(view, to, row, per_token ? own : block, rule);
    }
    __syncthreads();
}

template <int head_dim>
static __device__ void encode_token_groups(const struct tile_view &view, const struct operand_cuda &to, uint32_t *group_largest)
{
    constexpr int per_lane = head_dim / 32;
    uint32_t own[per_lane] = {0};
    uint32_t finite[per_lane] = {0};
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP; row++) {
        float x[per_lane];
        read_tile<head_dim>(view, row, x);
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            const uint32_t m = magnitude_bits(x[i]);
            own[i] = m > own[i] ? m : own[i];
            finite[i] = m > finite[i] && m < INFINITY_BITS ? m : finite[i];
        }
    }
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        group_largest[view.warp * head_dim + view.lane * per_lane + i] = finite[i];
    }
    __syncthreads();
    float down[per_lane], up[per_lane], scale[per_lane];
    uint8_t byte[per_lane];
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        uint32_t most = 0;
        for (int group = 0; group < WARPS; group++) {
            const uint32_t m = group_largest[group * head_dim + view.lane * per_lane + i];
            most = m > most ? m : most;
        }
        const int t = exponent_nvfp4(float_from_bits(most));
        down[i] = exponent_to_float(-t);
        up[i] = exponent_to_float(t);
        byte[i] = e8m0_encode(t);
        scale[i] = nvfp4_scale(own[i], down[i]);
    }
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP && row < view.rows; row++) {
        float x[per_lane];
        uint8_t codes[per_lane];
        const size_t first = (view.first_row + row) * head_dim + (size_t)view.lane * per_lane;
        read_tile<head_dim>(view, row, x);
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            const float rounded = nvfp4_round(x[i], down[i], scale[i]);
            codes[i] = e2m1_code_of(rounded);
            x[i] = __fmul_rn(__fmul_rn(rounded, scale[i]), up[i]);
            if (to.scales) {
                to.scales[first + i] = e4m3_code_of(scale[i]);
            }
            if (to.exponents) {
                to.exponents[first + i] = byte[i];
            }
        }
        put_row<head_dim>(to, view.first_row + row, view.lane, x, codes);
    }
    __syncthreads();
}

/* ---- the kernels ---- */

template <int head_dim>
static __device__ void encode(const struct tile_view &view, const struct quantize_job &job, const struct quantize_output &output,
                              uint32_t *shared)
{
    if (output.representation == REPRESENTATION_E4M3_BLOCK || output.representation == REPRESENTATION_E4M3_TOKEN) {
        encode_token_blocks<head_dim>(view, output.to, job.rule, output.representation == REPRESENTATION_E4M3_TOKEN, shared);
        return;
    }
    if (output.representation == REPRESENTATION_NVFP4_TOKEN) {
        encode_token_groups<head_dim>(view, output.to, shared);
        return;
    }
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP && row < view.rows; row++) {
        if (output.representation == REPRESENTATION_BF16) {
            encode_plain<head_dim>(view, output.to, row);
        } else if (output.representation == REPRESENTATION_E4M3_TENSOR) {
            encode_tensor<head_dim>(view, output.to, row);
        } else if (output.representation == REPRESENTATION_NVFP4_CHANNEL) {
            encode_channel_groups<head_dim>(view, output.to, row);
        } else {
            float x[head_dim / 32];
            read_tile<head_dim>(view, row, x);
            encode_exponent<head_dim, true>(view, output.to, row, warp_max_u32(lane_largest(x)), SCALE_UP);
        }
    }
}

/* D of this warp's rows, from the image just written (or from x). */
template <int head_dim> static __device__ void sum_delta(const struct tile_view &view, const struct quantize_job &job, uint32_t head, size_t token)
{
    constexpr int per_lane = head_dim / 32;
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP && row < view.rows; row++) {
        const uint16_t *image = job.output[0].to.image + (view.first_row + row) * head_dim + view.lane * per_lane;
        const uint16_t *original = job.x + (token + row) * job.stride + (size_t)head * head_dim + view.lane * per_lane;
        const uint16_t *from = job.original_delta ? original : image;
        const uint16_t *o =
            job.attention_output + (token + row) * job.attention_output_stride + (size_t)head * head_dim + view.lane * per_lane;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            sum += bf16_decode(from[i]) * bf16_decode(o[i]);
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        }
        if (view.lane == 0) {
            job.delta[view.first_row + row] = sum;
        }
    }
}

template <int head_dim> __global__ void __launch_bounds__(THREADS) quantize_kernel(const struct quantize_job job)
{
    SHARED_ARRAY(uint16_t, tile, TILE * head_dim);
    SHARED_ARRAY(uint32_t, statistics, WARPS * head_dim);
    const uint32_t head = blockIdx.y;
    if ((int32_t)blockIdx.x >= *job.item_count) {
        return;
    }
    const int32_t *item = job.items + 4 * (size_t)blockIdx.x;
    const int32_t end = item[1], first = item[2];
    struct tile_view view;
    view.tile = tile;
    view.rows = end - first < TILE ? end - first : TILE;
    view.first_row = (size_t)head * job.total_tokens + (size_t)first;
    view.warp = (int)threadIdx.x / 32;
    view.lane = (int)threadIdx.x % 32;
    for (int row = view.warp * ROWS_PER_WARP; row < (view.warp + 1) * ROWS_PER_WARP; row++) {
        constexpr int per_lane = head_dim / 32;
        float x[per_lane] = {0};
        if (row < view.rows) {
            load_row<head_dim>(job, (size_t)(first + row), head, view.lane, x);
        }
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            tile[row * head_dim + view.lane * per_lane + i] = bf16_encode(x[i]);
        }
    }
    __syncthreads();
    for (uint32_t output = 0; output < job.outputs; output++) {
        encode<head_dim>(view, job, job.output[output], statistics);
    }
    if (job.attention_output) {
        __syncwarp();
        sum_delta<head_dim>(view, job, head, (size_t)first);
    }
}

/* Bits of the largest magnitude of the whole tensor, for E4M3_TENSOR: a maximum does not depend on the order it is taken in. */
template <int head_dim> __global__ void __launch_bounds__(THREADS) largest_kernel(const struct quantize_job job, uint32_t *amax_bits)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const size_t step = (size_t)gridDim.x * WARPS;
    uint32_t most = 0;
    for (size_t token = (size_t)blockIdx.x * WARPS + warp; token < job.total_tokens; token += step) {
        float x[head_dim / 32];
        load_row<head_dim>(job, token, blockIdx.y, lane, x);
        const uint32_t m = lane_largest(x);
        most = m > most ? m : most;
    }
    most = warp_max_u32(most);
    if (lane == 0) {
        atomicMax(amax_bits, most);
    }
}

template <int head_dim> static enum attention_status launch(const struct quantize_job *job, cudaStream_t stream)
{
    for (uint32_t output = 0; output < job->outputs; output++) {
        uint32_t *amax_bits = job->output[output].to.amax_bits;
        if (job->output[output].representation == REPRESENTATION_E4M3_TENSOR) {
            if (cudaMemsetAsync(amax_bits, 0, sizeof *amax_bits, stream) != cudaSuccess) {
                return ATTENTION_DEVICE;
            }
            LAUNCH(largest_kernel<head_dim>, dim3(64, job->heads), dim3(THREADS), 0, stream, *job, amax_bits);
        }
    }
    LAUNCH(quantize_kernel<head_dim>, dim3(job->max_items, job->heads), dim3(THREADS), 0, stream, *job);
    return cudaPeekAtLastError() == cudaSuccess ? ATTENTION_OK : ATTENTION_DEVICE;
}

enum attention_status quantize_launch(const struct quantize_job *job, size_t head_dim, attention_stream stream)
{
    return head_dim == 64 ? launch<64>(job, stream) : head_dim == 128 ? launch<128>(job, stream) : ATTENTION_BAD_SHAPE;
}

enum attention_status quantize_operand_cuda(const struct recipe *recipe, enum operand_role role,
                                            const struct attention_schedule *schedule, size_t heads, size_t head_dim,
                                            const uint16_t *x, size_t stride, const struct operand_cuda *operand,
                                            attention_stream stream)
{
    struct quantize_job job = {};
    job.x = x;
    job.stride = stride;
    job.total_tokens = schedule->total_tokens;
    job.heads = (uint32_t)heads;
    job.outputs = 1;
    job.output[0].representation = operand_representation(recipe, role);
    job.output[0].to = *operand;
    job.rotate = operand_rotated(recipe, role, head_dim);
    job.normal = hadamard_normal(head_dim);
    job.rule = recipe->rule;
    job.items = schedule->items;
    job.item_count = schedule->item_count;
    job.max_items = (uint32_t)schedule->max_items;
    return quantize_launch(&job, head_dim, stream);
}
