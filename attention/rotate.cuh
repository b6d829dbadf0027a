/* rotate.cuh: one row's Hadamard transform by a warp, the bits of hadamard.c. For attention/ only.
 *
 * A lane holds head_dim / 32 neighbouring channels.
 */
#ifndef ATTENTION_ROTATE_CUH
#define ATTENTION_ROTATE_CUH

#include <cuda_runtime.h>

#ifndef ALL_LANES
#define ALL_LANES 0xFFFFFFFFu
#endif

/* Sylvester order: strides 1 .. head_dim / 2; the lower index keeps a + b, the upper a - b. */
template <int head_dim> static __device__ void rotate_row(float (&x)[head_dim / 32], int lane, float normal)
{
    constexpr int per_lane = head_dim / 32;
#pragma unroll
    for (int stride = 1; stride < per_lane; stride *= 2) {
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            if ((i & stride) == 0) {
                const float a = x[i], b = x[i + stride];
                x[i] = __fadd_rn(a, b);
                x[i + stride] = __fadd_rn(a, -b);
            }
        }
    }
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            const float other = __shfl_xor_sync(ALL_LANES, x[i], distance);
            x[i] = (lane & distance) == 0 ? __fadd_rn(x[i], other) : __fadd_rn(other, -x[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        x[i] = __fmul_rn(x[i], normal);
    }
}

#endif
