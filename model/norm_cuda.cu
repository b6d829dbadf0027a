/* norm_cuda.cu: LayerNorm and RMSNorm with the residual addition before them. See ops_cuda.h; definition: norm_cpu.c.
 *
 * Forward: a warp owns a row and reads it three times (sum, squares, result), the later times from the cache.
 * Backward: a block walks over every NORM_SLICES-th row; each thread owns a few columns, so that the gradients of weight
 * and bias gather in registers; a second launch adds the slices up in their order.
 */
#include "model/ops_cuda.h"

#include "attention/launch.cuh"
#include "model/vector.cuh"

#define THREADS        256
#define WARPS          (THREADS / 32)
#define NORM_SLICES    512
#define MOST_BACKWARD  512 /* threads of a block of the backward */
#define MOST_VECTORS   4
#define SLICE_GROUPS   8

struct norm_job {
    const uint16_t *residual, *delta, *delta_bias, *weight, *bias;
    uint16_t *sum, *y;
    float *statistics;
    size_t rows, columns;
    float epsilon;
    bool centred;
};

/* ---- forward ---- */

/* Eight of the row's numbers before they are normalised; the first time, their sum is rounded and written. */
static __device__ __forceinline__ void load_sum(const struct norm_job &job, size_t row, size_t column, float (&x)[VECTOR])
{
    const size_t at = row * job.columns + column;
    load_bf16(job.residual + at, x);
    if (!job.delta) {
        return;
    }
    float delta[VECTOR], bias[VECTOR] = {0};
    load_bf16(job.delta + at, delta);
    if (job.delta_bias) {
        load_bf16(job.delta_bias + column, bias);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        x[i] = bf16_round(x[i] + (delta[i] + bias[i]));
    }
    store_bf16(job.sum + at, x);
}

static __global__ void __launch_bounds__(THREADS) norm_forward_kernel(const struct norm_job job)
{
    const size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= job.rows) {
        return;
    }
    float total = 0, squares = 0, x[VECTOR];
    for (size_t column = lane * VECTOR; column < job.columns; column += 32 * VECTOR) {
        load_sum(job, row, column, x);
        for (int i = 0; i < VECTOR; i++) {
            total += x[i];
        }
    }
    const float mean = job.centred ? warp_sum(total) / (float)job.columns : 0.0f;
    const uint16_t *const from = (job.delta ? job.sum : job.residual) + row * job.columns;
    for (size_t column = lane * VECTOR; column < job.columns; column += 32 * VECTOR) {
        load_bf16(from + column, x); /* what this lane wrote */
        for (int i = 0; i < VECTOR; i++) {
            squares += (x[i] - mean) * (x[i] - mean);
        }
    }
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / (float)job.columns + job.epsilon);
    for (size_t column = lane * VECTOR; column < job.columns; column += 32 * VECTOR) {
        float weight[VECTOR], bias[VECTOR] = {0};
        load_bf16(from + column, x);
        load_bf16(job.weight + column, weight);
        if (job.bias) {
            load_bf16(job.bias + column, bias);
        }
        for (int i = 0; i < VECTOR; i++) {
            x[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
        }
        store_bf16(job.y + row * job.columns + column, x);
    }
    if (lane == 0) {
        job.statistics[2 * row] = mean;
        job.statistics[2 * row + 1] = inverse;
    }
}

bool norm_forward_cuda(const struct norm_shape *shape, const uint16_t *residual, const uint16_t *delta, const uint16_t *delta_bias,
                       const uint16_t *weight, const uint16_t *bias, uint16_t *sum, uint16_t *y, float *statistics, device_stream stream,
                       struct error *error)
{
    if (shape->rows == 0) {
        return true;
    }
    struct norm_job job = {};
    job.residual = residual;
    job.delta = delta;
    job.delta_bias = delta_bias;
    job.weight = weight;
    job.bias = bias;
    job.sum = sum;
    job.y = y;
    job.statistics = statistics;
    job.rows = shape->rows;
    job.columns = shape->columns;
    job.epsilon = shape->epsilon;
    job.centred = shape->centred;
    LAUNCH(norm_forward_kernel, blocks_for(shape->rows, WARPS), dim3(THREADS), 0, stream, job);
    return device_check("norm, forward", error);
}

/* ---- backward ---- */

struct norm_backward_job {
    const uint16_t *dy, *x, *weight; /* weight NULL: sums of dy's columns alone, for a bias */
    const float *statistics;
    uint16_t *dx;
    float *partial; /* [slices][2][columns]: of weight, of bias */
    size_t rows, columns;
    bool centred;
};

/* Sums of both numbers over the block, the same in every thread. `exchange` [2][MOST_BACKWARD / 32]; the caller changes
 * halves from call to call, so that one barrier is enough. */
static __device__ __forceinline__ void block_sums(float &first, float &second, float (*exchange)[MOST_BACKWARD / 32])
{
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32;
    first = warp_sum(first);
    second = warp_sum(second);
    if (threadIdx.x % 32 == 0) {
        exchange[0][warp] = first;
        exchange[1][warp] = second;
    }
    __syncthreads();
    first = second = 0;
    for (unsigned i = 0; i < warps; i++) {
        first += exchange[0][i];
        second += exchange[1][i];
    }
}

static __device__ __forceinline__ size_t column_of(int vector)
{
    return ((size_t)vector * blockDim.x + threadIdx.x) * VECTOR;
}

/* One vector of a row: its normalised numbers and dy times weight. */
static __device__ __forceinline__ void load_row(const struct norm_backward_job &job, size_t row, size_t column, float mean, float inverse,
                                                float (&dy)[VECTOR], float (&normed)[VECTOR], float (&weighted)[VECTOR])
{
    float x[VECTOR], weight[VECTOR];
    load_bf16(job.dy + row * job.columns + column, dy);
    load_bf16(job.x + row * job.columns + column, x);
    load_bf16(job.weight + column, weight);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        normed[i] = (x[i] - mean) * inverse;
        weighted[i] = dy[i] * weight[i];
    }
}

template <int vectors> static __global__ void __launch_bounds__(MOST_BACKWARD) norm_backward_kernel(const struct norm_backward_job job)
{
    SHARED_ARRAY(float, exchange, 2 * 2 * MOST_BACKWARD / 32);
    float dweight[vectors][VECTOR] = {}, dbias[vectors][VECTOR] = {}, dy[VECTOR], normed[VECTOR], weighted[VECTOR];
    unsigned half = 0;
    for (size_t row = blockIdx.x; row < job.rows; row += gridDim.x, half ^= 1) {
        const float mean = job.statistics[2 * row], inverse = job.statistics[2 * row + 1];
        float plain = 0, projected = 0;
#pragma unroll
        for (int v = 0; v < vectors; v++) {
            if (column_of(v) < job.columns) {
                load_row(job, row, column_of(v), mean, inverse, dy, normed, weighted);
                for (int i = 0; i < VECTOR; i++) {
                    plain += weighted[i];
                    projected += weighted[i] * normed[i];
                    dweight[v][i] += dy[i] * normed[i];
                    dbias[v][i] += dy[i];
                }
            }
        }
        block_sums(plain, projected, reinterpret_cast<float(*)[MOST_BACKWARD / 32]>(exchange) + 2 * half);
        const float shift = job.centred ? plain / (float)job.columns : 0.0f, slope = projected / (float)job.columns;
#pragma unroll
        for (int v = 0; v < vectors; v++) {
            if (column_of(v) < job.columns) {
                float dx[VECTOR];
                uint16_t *const to = job.dx + row * job.columns + column_of(v);
                load_row(job, row, column_of(v), mean, inverse, dy, normed, weighted);
                load_bf16(to, dx);
                for (int i = 0; i < VECTOR; i++) {
                    dx[i] += inverse * (weighted[i] - shift - normed[i] * slope);
                }
                store_bf16(to, dx);
            }
        }
    }
#pragma unroll
    for (int v = 0; v < vectors; v++) {
        if (column_of(v) < job.columns) {
            float *const to = job.partial + (size_t)blockIdx.x * 2 * job.columns + column_of(v);
            store_fp32(to, dweight[v]);
            store_fp32(to + job.columns, dbias[v]);
        }
    }
}

static __global__ void __launch_bounds__(MOST_BACKWARD) bias_kernel(const struct norm_backward_job job)
{
    for (size_t column = column_of(0); column < job.columns; column += (size_t)blockDim.x * VECTOR) {
        float dbias[VECTOR] = {0}, dy[VECTOR];
        for (size_t row = blockIdx.x; row < job.rows; row += gridDim.x) {
            load_bf16(job.dy + row * job.columns + column, dy);
            for (int i = 0; i < VECTOR; i++) {
                dbias[i] += dy[i];
            }
        }
        store_fp32(job.partial + (size_t)blockIdx.x * job.columns + column, dbias);
    }
}

/* out [columns] += the slices' sums, those of one group after the other: a block owns 32 columns. */
static __global__ void slices_kernel(const float *partial, size_t slices, size_t stride, size_t columns, float *out)
{
    SHARED_ARRAY(float, sums, SLICE_GROUPS * 32);
    const size_t column = (size_t)blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < columns) {
        for (size_t slice = threadIdx.y; slice < slices; slice += SLICE_GROUPS) {
            sum += partial[slice * stride + column];
        }
    }
    sums[threadIdx.y * 32 + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        for (unsigned group = 1; group < SLICE_GROUPS; group++) {
            sum += sums[group * 32 + threadIdx.x];
        }
        out[column] += sum;
    }
}

static void add_slices(const float *partial, size_t slices, size_t stride, size_t columns, float *out, device_stream stream)
{
    if (out) {
        LAUNCH(slices_kernel, blocks_for(columns, 32), dim3(32, SLICE_GROUPS), 0, stream, partial, slices, stride, columns, out);
    }
}

static size_t slices_of(size_t rows)
{
    return rows < NORM_SLICES ? rows : NORM_SLICES;
}

/* Threads of a block that owns whole rows: a vector each, whole warps. */
static size_t threads_for(size_t columns)
{
    const size_t wanted = (columns / VECTOR + 31) / 32 * 32;
    return wanted < MOST_BACKWARD ? wanted : MOST_BACKWARD;
}

size_t norm_workspace_bytes_cuda(size_t columns)
{
    return NORM_SLICES * 2 * columns * sizeof(float);
}

bool norm_backward_cuda(const struct norm_shape *shape, const uint16_t *dy, const uint16_t *x, const uint16_t *weight,
                        const float *statistics, uint16_t *dx, float *dweight, float *dbias, void *workspace, device_stream stream,
                        struct error *error)
{
    if (shape->rows == 0) {
        return true;
    }
    struct norm_backward_job job = {};
    job.dy = dy;
    job.x = x;
    job.weight = weight;
    job.statistics = statistics;
    job.dx = dx;
    job.partial = (float *)workspace;
    job.rows = shape->rows;
    job.columns = shape->columns;
    job.centred = shape->centred;
    const size_t slices = slices_of(job.rows), threads = threads_for(job.columns), vectors = job.columns / VECTOR;
    const dim3 grid((unsigned)slices), block((unsigned)threads);
    if (vectors <= threads) {
        LAUNCH(norm_backward_kernel<1>, grid, block, 0, stream, job);
    } else if (vectors <= 2 * threads) {
        LAUNCH(norm_backward_kernel<2>, grid, block, 0, stream, job);
    } else {
        LAUNCH(norm_backward_kernel<MOST_VECTORS>, grid, block, 0, stream, job);
    }
    add_slices(job.partial, slices, 2 * job.columns, job.columns, dweight, stream);
    add_slices(job.partial + job.columns, slices, 2 * job.columns, job.columns, dbias, stream);
    return device_check("norm, backward", error);
}

bool bias_backward_cuda(const uint16_t *dy, size_t rows, size_t columns, float *db, void *workspace, device_stream stream,
                        struct error *error)
{
    if (rows == 0) {
        return true;
    }
    struct norm_backward_job job = {};
    job.dy = dy;
    job.partial = (float *)workspace;
    job.rows = rows;
    job.columns = columns;
    LAUNCH(bias_kernel, dim3((unsigned)slices_of(rows)), dim3((unsigned)threads_for(columns)), 0, stream, job);
    add_slices(job.partial, slices_of(rows), columns, columns, db, stream);
    return device_check("gradient of a bias", error);
}

bool ops_fit_cuda(size_t width, size_t feed_forward, size_t head_dim, size_t padded_vocabulary, struct error *error)
{
    const size_t widest = (size_t)MOST_BACKWARD * MOST_VECTORS * VECTOR;
    if (width % VECTOR != 0 || width > widest) {
        return error_set(error, ERROR_USAGE, "width %zu: on the GPU it has to be a multiple of %d up to %zu", width, VECTOR, widest);
    }
    if (feed_forward % VECTOR != 0 || padded_vocabulary % VECTOR != 0) {
        return error_set(error, ERROR_USAGE, "feed-forward width %zu, padded vocabulary %zu: on the GPU both have to be multiples of %d",
                         feed_forward, padded_vocabulary, VECTOR);
    }
    if (head_dim % (2 * VECTOR) != 0) {
        return error_set(error, ERROR_USAGE, "head dim %zu: on the GPU it has to be a multiple of %d", head_dim, 2 * VECTOR);
    }
    return true;
}
