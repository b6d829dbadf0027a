/* reduce_cuda.cu: sums of long arrays in FP64. See ops_cuda.h.
 *
 * REDUCE_SLICES blocks take a slice each, whatever the GPU; one block adds the slices up. The order never changes.
 */
#include "model/ops_cuda.h"

#include "attention/launch.cuh"
#include "model/vector.cuh"

#define THREADS 256
#define QUAD    4

enum reduction { REDUCE_SUM, REDUCE_SQUARES };

/* Sum over the block, in thread 0. `exchange` [THREADS / 32]. */
static __device__ double block_sum(double x, double *exchange)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) {
        exchange[threadIdx.x / 32] = x;
    }
    __syncthreads();
    double sum = 0;
    for (unsigned i = 0; i < THREADS / 32; i++) {
        sum += exchange[i];
    }
    return sum;
}

static __device__ __forceinline__ double term(float x, enum reduction reduction)
{
    return reduction == REDUCE_SQUARES ? (double)x * (double)x : (double)x;
}

/* Quads of four numbers; the last may be short. */
static __global__ void __launch_bounds__(THREADS) slice_kernel(const float *x, size_t count, enum reduction reduction, double *partial)
{
    SHARED_ARRAY(double, exchange, THREADS / 32);
    const size_t quads = (count + QUAD - 1) / QUAD, slice = (quads + REDUCE_SLICES - 1) / REDUCE_SLICES;
    const size_t first = blockIdx.x * slice, end = first + slice < quads ? first + slice : quads;
    double sum = 0;
    for (size_t quad = first + threadIdx.x; quad < end; quad += THREADS) {
        if (quad * QUAD + QUAD <= count) {
            const float4 four = reinterpret_cast<const float4 *>(x)[quad];
            sum += (term(four.x, reduction) + term(four.y, reduction)) + (term(four.z, reduction) + term(four.w, reduction));
        } else {
            for (size_t i = quad * QUAD; i < count; i++) {
                sum += term(x[i], reduction);
            }
        }
    }
    sum = block_sum(sum, exchange);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
    }
}

static __global__ void __launch_bounds__(THREADS) total_kernel(const double *partial, enum reduction reduction, double *out)
{
    SHARED_ARRAY(double, exchange, THREADS / 32);
    double sum = 0;
    for (unsigned i = threadIdx.x; i < REDUCE_SLICES; i += THREADS) {
        sum += partial[i];
    }
    sum = block_sum(sum, exchange);
    if (threadIdx.x == 0) {
        *out = reduction == REDUCE_SQUARES ? sqrt(sum) : sum;
    }
}

static bool reduce(const float *x, size_t count, enum reduction reduction, double *out, double *workspace, device_stream stream,
                   struct error *error)
{
    LAUNCH(slice_kernel, dim3(REDUCE_SLICES), dim3(THREADS), 0, stream, x, count, reduction, workspace);
    LAUNCH(total_kernel, dim3(1), dim3(THREADS), 0, stream, workspace, reduction, out);
    return device_check("sum", error);
}

bool sum_cuda(const float *x, size_t count, double *sum, double *workspace, device_stream stream, struct error *error)
{
    return reduce(x, count, REDUCE_SUM, sum, workspace, stream, error);
}

bool norm_of_cuda(const float *x, size_t count, double *norm, double *workspace, device_stream stream, struct error *error)
{
    return reduce(x, count, REDUCE_SQUARES, norm, workspace, stream, error);
}
