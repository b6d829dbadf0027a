/* vector.cuh: BF16 and FP32 arrays by sixteen bytes, and sums over a warp. For *_cuda.cu only. */
#ifndef MODEL_VECTOR_CUH
#define MODEL_VECTOR_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "attention/formats.h"

#define VECTOR    8 /* BF16 numbers in 16 bytes */
#define ALL_LANES 0xFFFFFFFFu
#define LOG2_E    1.44269504f

/* `from` and `to` aligned to 16 bytes. */
static __device__ __forceinline__ void load_bf16(const uint16_t *from, float (&x)[VECTOR])
{
    const uint4 bits = *reinterpret_cast<const uint4 *>(from);
    const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[2 * i] = float_from_bits(pairs[i] << 16);
        x[2 * i + 1] = float_from_bits(pairs[i] & 0xFFFF0000u);
    }
}

static __device__ __forceinline__ void store_bf16(uint16_t *to, const float (&x)[VECTOR])
{
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = (uint32_t)bf16_encode(x[2 * i]) | (uint32_t)bf16_encode(x[2 * i + 1]) << 16;
    }
    *reinterpret_cast<uint4 *>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

static __device__ __forceinline__ void load_fp32(const float *from, float (&x)[VECTOR])
{
    const float4 low = reinterpret_cast<const float4 *>(from)[0], high = reinterpret_cast<const float4 *>(from)[1];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

static __device__ __forceinline__ void store_fp32(float *to, const float (&x)[VECTOR])
{
    reinterpret_cast<float4 *>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

/* The same sum in every lane, always taken in the same order. */
template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, distance);
    }
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    }
    return x;
}

/* Blocks of `threads` for `count` threads of work. */
static inline dim3 blocks_for(size_t count, size_t threads)
{
    return dim3((unsigned)((count + threads - 1) / threads));
}

#endif
