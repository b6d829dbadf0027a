/* round.cuh: quantizing P and dS in a warp's registers. Definition: probability_cpu.c. For attention/ only.
 *
 * A fragment is float [blocks][4], blocks of 8 columns, rows g and g + 8 of the warp's 16. "Along the row" means along its columns: keys in the
 * kernels whose rows are queries, queries in the one whose rows are keys. Values stay decoded: each is a BF16 number afterwards, but for
 * the FP32 forms.
 */
#ifndef ATTENTION_ROUND_CUH
#define ATTENTION_ROUND_CUH

#include "attention/attention_cuda.h"
#include "attention/philox.h"
#include "attention/scale_forms.h"
#include "attention/tile.cuh"

#define INFINITY_BITS 0x7F800000u

static __device__ __forceinline__ uint32_t magnitude_of(float x)
{
    return float_to_bits(x) & 0x7FFFFFFFu;
}

static __device__ __forceinline__ uint32_t larger_bits(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Largest magnitude of row half `half` (0: row g, 1: row g + 8), over the lane's own elements. */
template <int blocks> static __device__ __forceinline__ uint32_t half_largest(const float (&x)[blocks][4], int half)
{
    uint32_t most = 0;
#pragma unroll
    for (int block = 0; block < blocks; block++) {
        most = larger_bits(most, larger_bits(magnitude_of(x[block][2 * half]), magnitude_of(x[block][2 * half + 1])));
    }
    return most;
}

template <int blocks> static __device__ __forceinline__ void round_bf16(float (&x)[blocks][4])
{
#pragma unroll
    for (int block = 0; block < blocks; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[block][i] = bf16_round(x[block][i]);
        }
    }
}

/* E4M3(x 2^shift) / 2^shift */
template <int blocks> static __device__ __forceinline__ void round_e4m3(float (&x)[blocks][4], int shift)
{
    const float up = exponent_to_float(shift), down = exponent_to_float(-shift);
#pragma unroll
    for (int block = 0; block < blocks; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[block][i] = e4m3_round(x[block][i] * up) * down;
        }
    }
}

/* 2^-e and 2^e of an E4M3 dS block from the bits of its largest magnitude; NaN both, and with them the block, if that is not finite. */
struct block_scale {
    float down, up;
};

static __device__ __forceinline__ struct block_scale dscore_block_scale(uint32_t amax, enum scale_rule rule)
{
    const int e = exponent_e4m3(float_from_bits(amax < INFINITY_BITS ? amax : 0u), rule);
    struct block_scale scale;
    scale.down = amax < INFINITY_BITS ? exponent_to_float(-e) : float_from_bits(0x7FC00000u);
    scale.up = exponent_to_float(e);
    return scale;
}

/* E4M3(x down) up */
template <int blocks> static __device__ __forceinline__ void round_scaled(float (&x)[blocks][4], struct block_scale scale)
{
#pragma unroll
    for (int block = 0; block < blocks; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[block][i] = e4m3_round(x[block][i] * scale.down) * scale.up;
        }
    }
}

/* One FP32 scale, fl32(amax / 448), for the whole call. */
template <int blocks> static __device__ __forceinline__ void round_tensor(float (&x)[blocks][4], uint32_t amax)
{
    const float scale = amax < INFINITY_BITS ? __fdiv_rn(float_from_bits(amax), E4M3_MAX) : float_from_bits(0x7FC00000u);
    const float divisor = scale == 0.0f ? 1.0f : scale;
#pragma unroll
    for (int block = 0; block < blocks; block++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[block][i] = bf16_round(e4m3_round(__fdiv_rn(x[block][i], divisor)) * scale);
        }
    }
}

static __device__ __forceinline__ float nvfp4_group_scale(uint32_t amax, float down)
{
    return amax >= INFINITY_BITS ? float_from_bits(0x7FC00000u) : e4m3_round(__fdiv_rn(float_from_bits(amax) * down, 6.0f));
}

static __device__ __forceinline__ int nvfp4_tile_exponent(uint32_t amax)
{
    return exponent_nvfp4(float_from_bits(amax < INFINITY_BITS ? amax : INFINITY_BITS - 1));
}

/* Up with the probability of the fraction; as e2m1_stochastic in probability_cpu.c. */
static __device__ __forceinline__ float e2m1_stochastic(float x, float uniform)
{
    const uint32_t bits = magnitude_of(x), at_most_6 = bits > 0x40C00000u ? 0x40C00000u : bits;
    const uint32_t step = at_most_6 < 0x40000000u ? 0x3F000000u : at_most_6 < 0x40800000u ? 0x3F800000u : 0x40000000u;
    const float steps = float_from_bits(at_most_6) * float_from_bits(0x7F000000u - step), whole = (float)(int32_t)steps;
    const float up = uniform < steps - whole ? 1.0f : 0.0f;
    const uint32_t rounded = float_to_bits((whole + up) * float_from_bits(step));
    return float_from_bits((float_to_bits(x) & 0x80000000u) | (bits > INFINITY_BITS ? bits : rounded));
}

/* Counter and key of stochastic rounding (probability_cpu.h): rows of the fragment are keys, columns queries. */
struct dice {
    bool on;
    uint32_t seed, step, query, key, head, layer; /* numbers of the fragment's first column and row */
};

static __device__ __forceinline__ float dice_throw(const struct dice &dice, int key_row, int query_column)
{
    const uint32_t key = dice.key + (uint32_t)key_row;
    const struct philox_block random =
        philox4x32_10(dice.seed, dice.step, dice.query + (uint32_t)query_column, key / 4, dice.head, dice.layer);
    return philox_uniform(key % 4 == 0 ? random.word[0] : key % 4 == 1 ? random.word[1] : key % 4 == 2 ? random.word[2] : random.word[3]);
}

/* NVFP4 in groups of 16 along the row. `tile_largest`: of each row half over its whole 128-element tile, already reduced over the quad. */
template <int blocks>
static __device__ __forceinline__ void round_nvfp4(float (&x)[blocks][4], const uint32_t (&tile_largest)[2], const struct dice &dice)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int t = nvfp4_tile_exponent(tile_largest[half]);
        const float down = exponent_to_float(-t), up = exponent_to_float(t);
#pragma unroll
        for (int block = 0; block < blocks; block += 2) {
            uint32_t amax = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                amax = larger_bits(amax, magnitude_of(x[block + i / 2][2 * half + i % 2]));
            }
            const float scale = nvfp4_group_scale(quad_max_bits(amax), down);
            const float divisor = scale == 0.0f ? 1.0f : scale;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &value = x[block + i / 2][2 * half + i % 2];
                const float scaled = __fdiv_rn(value * down, divisor);
                const float rounded =
                    dice.on ? e2m1_stochastic(scaled, dice_throw(dice, fragment_row(2 * half), fragment_column(block + i / 2, i % 2)))
                            : e2m1_round(scaled);
                value = rounded * scale * up;
            }
        }
    }
}

#endif
