/* tile.cuh: BF16 tiles in shared memory and the two products attention is made of, on one warp's fragments. For attention/ only.
 *
 * A tile is [rows][head_dim], its 16-byte chunks permuted (chunk ^ row % 8) so that ldmatrix meets no bank twice. A warp owns 16 rows of a
 * result; fragments are float [column blocks of 8][4] in mma.sync's accumulator layout (mma.cuh): a lane has rows g and g + 8.
 */
#ifndef ATTENTION_TILE_CUH
#define ATTENTION_TILE_CUH

#include "attention/formats.h"
#include "attention/mma.cuh"

#ifndef ALL_LANES
#define ALL_LANES 0xFFFFFFFFu
#endif

template <int head_dim> static __device__ __forceinline__ uint16_t *tile_chunk(uint16_t *tile, int row, int chunk)
{
    return tile + row * head_dim + ((chunk ^ (row & 7)) * 8);
}

/* Starts copying rows [0, valid) of from [..][head_dim] into the tile, zeros into the rest. The caller commits and waits. */
template <int head_dim, int rows, int threads>
static __device__ __forceinline__ void tile_load(uint16_t *tile, const uint16_t *from, int valid)
{
    constexpr int chunks = head_dim / 8;
    for (int index = (int)threadIdx.x; index < rows * chunks; index += threads) {
        const int row = index / chunks, chunk = index % chunks;
        const bool there = row < valid;
        copy_async_16(tile_chunk<head_dim>(tile, row, chunk), from + (there ? (size_t)row * head_dim + chunk * 8 : 0), there);
    }
}

/* c = a b^T over head_dim: rows [row, row + 16) of tile a, rows [0, 8 blocks) of tile b, as scores need it. */
template <int head_dim, int blocks>
static __device__ __forceinline__ void tile_scores(float (&c)[blocks][4], uint16_t *a, int row, uint16_t *b)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int block = 0; block < blocks; block++) {
        c[block][0] = c[block][1] = c[block][2] = c[block][3] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < head_dim / 16; k++) {
        uint32_t left[4];
        ldmatrix_x4(left, tile_chunk<head_dim>(a, row + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int block = 0; block < blocks; block += 2) {
            uint32_t right[4];
            ldmatrix_x4(right, tile_chunk<head_dim>(b, block * 8 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
            mma_bf16_m16n8k16(c[block], left, first);
            mma_bf16_m16n8k16(c[block + 1], left, second);
        }
    }
}

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
    return (uint32_t)bf16_encode(low) | (uint32_t)bf16_encode(high) << 16;
}

/* sum += p b over the inner blocks: p [16][8 inner], every value a BF16 number already; b rows [0, 8 inner) of a tile, all its head_dim columns. */
template <int head_dim, int inner>
static __device__ __forceinline__ void tile_accumulate(float (&sum)[head_dim / 8][4], const float (&p)[inner][4], uint16_t *b)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < inner / 2; k++) {
        const uint32_t left[4] = {pack_bf16(p[2 * k][0], p[2 * k][1]), pack_bf16(p[2 * k][2], p[2 * k][3]),
                                  pack_bf16(p[2 * k + 1][0], p[2 * k + 1][1]), pack_bf16(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int block = 0; block < head_dim / 8; block += 2) {
            uint32_t right[4];
            ldmatrix_x4_trans(right, tile_chunk<head_dim>(b, k * 16 + lane / 8 % 2 * 8 + lane % 8, block + lane / 16));
            const uint32_t first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
            mma_bf16_m16n8k16(sum[block], left, first);
            mma_bf16_m16n8k16(sum[block + 1], left, second);
        }
    }
}

/* The same with p in full FP32: three BF16 parts hold its 24 bits. For comparisons without P's and dS's rounding. */
template <int head_dim, int inner>
static __device__ __noinline__ void tile_accumulate_fp32(float (&sum)[head_dim / 8][4], const float (&p)[inner][4], uint16_t *b)
{
    float rest[inner][4], part[inner][4];
    for (int block = 0; block < inner; block++) {
        for (int i = 0; i < 4; i++) {
            rest[block][i] = p[block][i];
        }
    }
    for (int pass = 0; pass < 3; pass++) {
        for (int block = 0; block < inner; block++) {
            for (int i = 0; i < 4; i++) {
                part[block][i] = bf16_round(rest[block][i]);
                rest[block][i] -= part[block][i];
            }
        }
        tile_accumulate<head_dim, inner>(sum, part, b);
    }
}

/* Largest and sum over the four lanes that share a row. */
static __device__ __forceinline__ float quad_max(float x)
{
    const float pair = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(pair, __shfl_xor_sync(ALL_LANES, pair, 2));
}

static __device__ __forceinline__ uint32_t quad_max_bits(uint32_t x)
{
    const uint32_t other = __shfl_xor_sync(ALL_LANES, x, 1);
    const uint32_t pair = other > x ? other : x;
    const uint32_t across = __shfl_xor_sync(ALL_LANES, pair, 2);
    return across > pair ? across : pair;
}

static __device__ __forceinline__ float quad_sum(float x)
{
    const float pair = x + __shfl_xor_sync(ALL_LANES, x, 1);
    return pair + __shfl_xor_sync(ALL_LANES, pair, 2);
}

/* Row and column of element i of column block `block` in a fragment. */
static __device__ __forceinline__ int fragment_row(int i)
{
    return (int)threadIdx.x % 32 / 4 + (i / 2) * 8;
}

static __device__ __forceinline__ int fragment_column(int block, int i)
{
    return block * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
}

#endif
