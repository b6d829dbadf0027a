/* device_kernels.cu: see device_kernels.h. */
#include "tests/device_kernels.h"

#include "attention/launch.cuh"
#include "attention/mma.cuh"

#define ALL_LANES 0xFFFFFFFFu

static bool launched()
{
    return cudaGetLastError() == cudaSuccess;
}

/* ---- matrix products ---- */

static __device__ uint32_t pair(const uint16_t *matrix, int stride, int row, int column, bool down)
{
    const uint32_t first = matrix[row * stride + column];
    const uint32_t second = down ? matrix[(row + 1) * stride + column] : matrix[row * stride + column + 1];
    return first | second << 16;
}

static __device__ void add_to(float *c, const float (&sum)[4])
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sum[i];
    }
}

static __device__ void take_from(const float *c, float (&sum)[4])
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        sum[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    }
}

static __global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *c)
{
    const int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    const uint32_t left[4] = {pair(a, 16, g, 2 * t, false), pair(a, 16, g + 8, 2 * t, false),
                              pair(a, 16, g, 2 * t + 8, false), pair(a, 16, g + 8, 2 * t + 8, false)};
    const uint32_t right[2] = {pair(b, 8, 2 * t, g, true), pair(b, 8, 2 * t + 8, g, true)};
    float sum[4];
    take_from(c, sum);
    mma_bf16_m16n8k16(sum, left, right);
    add_to(c, sum);
}

bool trial_product(const uint16_t *a, const uint16_t *b, float *c, device_stream stream)
{
    LAUNCH(product_kernel, dim3(1), dim3(32), 0, stream, a, b, c);
    return launched();
}

/* B's rows are 16 bytes apart; its two 8 x 8 halves are read transposed, the other two addresses repeat them. */
static __global__ void tile_product_kernel(const uint16_t *a, const uint16_t *b, float *c)
{
    SHARED_ARRAY(uint16_t, left_tile, 16 * 16);
    SHARED_ARRAY(uint16_t, right_tile, 16 * 8);
    const int lane = (int)threadIdx.x;
    copy_async_16(left_tile + lane * 8, a + lane * 8, true);
    if (lane < 16) {
        copy_async_16(right_tile + lane * 8, b + lane * 8, true);
    }
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    uint32_t left[4], halves[4];
    ldmatrix_x4(left, left_tile + lane % 16 * 16 + lane / 16 * 8);
    ldmatrix_x4_trans(halves, right_tile + lane % 16 * 8);
    const uint32_t right[2] = {halves[0], halves[1]};
    float sum[4];
    take_from(c, sum);
    mma_bf16_m16n8k16(sum, left, right);
    add_to(c, sum);
}

bool trial_tile_product(const uint16_t *a, const uint16_t *b, float *c, device_stream stream)
{
    LAUNCH(tile_product_kernel, dim3(1), dim3(32), 0, stream, a, b, c);
    return launched();
}

/* ---- warps and blocks ---- */

static __global__ void shuffle_kernel(const int32_t *in, int32_t *out, int parameter, int width)
{
    const int lane = (int)threadIdx.x;
    const int32_t own = in[lane];
    out[lane] = __shfl_sync(ALL_LANES, own, parameter, width);
    out[32 + lane] = __shfl_up_sync(ALL_LANES, own, (unsigned)parameter, width);
    out[64 + lane] = __shfl_down_sync(ALL_LANES, own, (unsigned)parameter, width);
    out[96 + lane] = __shfl_xor_sync(ALL_LANES, own, parameter, width);
}

bool trial_shuffles(const int32_t *in, int32_t *out, int parameter, int width, device_stream stream)
{
    LAUNCH(shuffle_kernel, dim3(1), dim3(32), 0, stream, in, out, parameter, width);
    return launched();
}

static __global__ void vote_kernel(const uint32_t *in, uint32_t *out)
{
    const uint32_t own = in[threadIdx.x];
    const uint32_t ballot = __ballot_sync(ALL_LANES, own != 0);
    const int any = __any_sync(ALL_LANES, own != 0), all = __all_sync(ALL_LANES, own != 0);
    const uint32_t largest = warp_max_u32(own);
    if (threadIdx.x == 0) {
        out[0] = ballot;
        out[1] = any != 0;
        out[2] = all != 0;
        out[3] = largest;
    }
}

bool trial_votes(const uint32_t *in, uint32_t *out, device_stream stream)
{
    LAUNCH(vote_kernel, dim3(1), dim3(32), 0, stream, in, out);
    return launched();
}

static __global__ void sum_kernel(const int32_t *in, int32_t *out, int32_t *all)
{
    SHARED_MEMORY(int32_t, numbers);
    const unsigned thread = threadIdx.x;
    numbers[thread] = in[blockIdx.x * blockDim.x + thread];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half) {
            numbers[thread] += numbers[thread + half];
        }
        __syncthreads();
    }
    if (thread == 0) {
        out[blockIdx.x] = numbers[0];
        atomicAdd(all, numbers[0]);
    }
}

bool trial_sums(const int32_t *in, int32_t *out, int32_t *all, unsigned blocks, device_stream stream)
{
    LAUNCH(sum_kernel, dim3(blocks), dim3(TRIAL_THREADS), TRIAL_THREADS * sizeof(int32_t), stream, in, out, all);
    return launched();
}

static __global__ void neighbour_kernel(int32_t *out, bool barrier)
{
    SHARED_ARRAY(int32_t, numbers, TRIAL_THREADS);
    numbers[threadIdx.x] = (int32_t)threadIdx.x;
    if (barrier) {
        __syncthreads();
    }
    out[threadIdx.x] = numbers[(threadIdx.x + 1) % TRIAL_THREADS];
}

bool trial_neighbours(int32_t *out, bool barrier, device_stream stream)
{
    LAUNCH(neighbour_kernel, dim3(1), dim3(TRIAL_THREADS), 0, stream, out, barrier);
    return launched();
}

static __global__ void copy_kernel(const uint32_t *in, uint32_t *out)
{
    SHARED_ARRAY(uint32_t, numbers, 8);
    if (threadIdx.x == 0) {
        copy_async_16(numbers, in, true);
        copy_async_commit();
        copy_async_16(numbers + 4, in, false);
        copy_async_commit();
        out[0] = numbers[0];
        copy_async_wait<1>();
        out[1] = numbers[0];
        out[2] = numbers[4];
        copy_async_wait<0>();
        out[3] = numbers[4];
    }
}

bool trial_copy(const uint32_t *in, uint32_t *out, device_stream stream)
{
    LAUNCH(copy_kernel, dim3(1), dim3(32), 0, stream, in, out);
    return launched();
}

static __global__ void increment_kernel(int32_t *x, size_t count)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        x[i]++;
    }
}

bool trial_increment(int32_t *x, size_t count, device_stream stream)
{
    LAUNCH(increment_kernel, dim3((unsigned)((count + TRIAL_THREADS - 1) / TRIAL_THREADS)), dim3(TRIAL_THREADS), 0, stream, x, count);
    return launched();
}

/* ---- mistakes ---- */

static __device__ void mistake_of_lanes(enum trial_mistake mistake)
{
    const bool first = threadIdx.x < 16;
    if (mistake == MISTAKE_LANE_LEFT && threadIdx.x == 5) {
        return;
    }
    if (mistake == MISTAKE_LANE_LEFT) {
        __shfl_xor_sync(ALL_LANES, 1, 1);
    } else if (mistake == MISTAKE_MASK) {
        __syncwarp(first ? 0x0000FFFFu : 0x0000FFFFu);
    } else if (mistake == MISTAKE_LANES_DIVERGENT) {
        if (first) {
            __syncwarp();
        } else {
            __shfl_xor_sync(ALL_LANES, 1, 1);
        }
    }
}

static __global__ void mistake_kernel(enum trial_mistake mistake, int32_t *memory, size_t count)
{
    SHARED_MEMORY(int32_t, dynamic);
    SHARED_ARRAY(int32_t, fixed, 32);
    const bool first = threadIdx.x < blockDim.x / 2;
    fixed[threadIdx.x % 32] = dynamic[threadIdx.x % 32] = 0;
    if (fixed[threadIdx.x % 32] != 0) {
        return;
    }
    if (mistake == MISTAKE_BARRIER_SKIPPED && first) {
        __syncthreads();
    } else if (mistake == MISTAKE_BARRIER_DIVERGENT) {
        if (first) {
            __syncthreads();
        } else {
            __syncthreads();
        }
    } else if (threadIdx.x < 32) {
        mistake_of_lanes(mistake);
    }
    if (threadIdx.x > 0) {
        return;
    }
    volatile int32_t *const any = memory; /* the compiler may not leave the mistake out */
    if (mistake == MISTAKE_READ_BEHIND) {
        any[0] = any[count];
    } else if (mistake == MISTAKE_WRITE_BEFORE) {
        any[-1] = 1;
    } else if (mistake == MISTAKE_SHARED_BEHIND) {
        ((volatile int32_t *)dynamic)[33] = 1;
    } else if (mistake == MISTAKE_SHARED_ARRAY_BEHIND) {
        ((volatile int32_t *)fixed)[33] = 1;
    } else if (mistake == MISTAKE_NULL) {
        any[0] = *(volatile int32_t *)nullptr;
    }
}

bool trial_mistake(enum trial_mistake mistake, int32_t *memory, size_t count, device_stream stream)
{
    LAUNCH(mistake_kernel, dim3(1), dim3(64), 33 * sizeof(int32_t), stream, mistake, memory, count);
    return launched();
}
