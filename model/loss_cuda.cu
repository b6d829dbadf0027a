/* loss_cuda.cu: softmax cross-entropy, fused: loss and gradient while the row's logits are at hand. See ops_cuda.h;
 * definition: loss_cpu.c.
 *
 * A block owns a row. First pass: largest logit and sum of exponentials, rescaled whenever a thread meets a larger one.
 * Second pass: the gradient, in place.
 */
#include "model/ops_cuda.h"

#include "attention/launch.cuh"
#include "data/batch.h"
#include "model/vector.cuh"

#define THREADS 256
#define WARPS   (THREADS / 32)

struct loss_job {
    uint16_t *logits;
    const int32_t *targets;
    size_t vocabulary, stride;
    float *losses;
    const float *scale;
};

/* This thread's largest logit and its sum of e^(logit - largest). NaN logits end up in the sum. */
static __device__ void scan_row(const uint16_t *row, size_t vocabulary, float &most, float &sum)
{
    most = -INFINITY;
    sum = 0;
    for (size_t at = threadIdx.x * VECTOR; at < vocabulary; at += THREADS * VECTOR) {
        float x[VECTOR], largest = most;
        load_bf16(row + at, x);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            x[i] = at + i < vocabulary ? x[i] : -INFINITY;
            largest = fmaxf(largest, x[i]);
        }
        if (largest == -INFINITY) { /* nothing but -inf so far, and NaN, which fmaxf passes over */
            for (int i = 0; i < VECTOR; i++) {
                sum = x[i] != x[i] ? x[i] : sum;
            }
            continue;
        }
        sum *= exp2f((most - largest) * LOG2_E);
        most = largest;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            sum += exp2f((x[i] - largest) * LOG2_E);
        }
    }
}

/* Both over the whole block, in every thread, in a fixed order. */
static __device__ void combine(float &most, float &sum, float *exchange)
{
    const unsigned warp = threadIdx.x / 32;
    const float own = most;
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) {
        exchange[warp] = most;
    }
    __syncthreads();
    for (unsigned i = 0; i < WARPS; i++) {
        most = fmaxf(most, exchange[i]);
    }
    sum = warp_sum(own == -INFINITY ? sum : sum * exp2f((own - most) * LOG2_E));
    if (threadIdx.x % 32 == 0) {
        exchange[WARPS + warp] = sum;
    }
    __syncthreads();
    sum = 0;
    for (unsigned i = 0; i < WARPS; i++) {
        sum += exchange[WARPS + i];
    }
}

static __device__ void clear_row(uint16_t *row, size_t stride)
{
    const float zeros[VECTOR] = {0};
    for (size_t at = threadIdx.x * VECTOR; at < stride; at += THREADS * VECTOR) {
        store_bf16(row + at, zeros);
    }
}

static __device__ void write_gradient(uint16_t *row, size_t target, const struct loss_job &job, float most, float sum)
{
    const float scale = *job.scale, factor = scale / sum;
    for (size_t at = threadIdx.x * VECTOR; at < job.stride; at += THREADS * VECTOR) {
        float x[VECTOR];
        load_bf16(row + at, x);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            const float probability = exp2f((x[i] - most) * LOG2_E) * factor;
            x[i] = at + i < job.vocabulary ? probability - (at + i == target ? scale : 0.0f) : 0.0f;
        }
        store_bf16(row + at, x);
    }
}

static __global__ void __launch_bounds__(THREADS) loss_kernel(const struct loss_job job)
{
    SHARED_ARRAY(float, exchange, 2 * WARPS);
    uint16_t *const row = job.logits + (size_t)blockIdx.x * job.stride;
    const int32_t target = job.targets[blockIdx.x];
    if (target == TARGET_IGNORED) { /* the whole block */
        if (threadIdx.x == 0) {
            job.losses[blockIdx.x] = 0;
        }
        if (job.scale) {
            clear_row(row, job.stride);
        }
        return;
    }
    const float of_target = bf16_decode(row[target]); /* before anyone passes combine's barriers and overwrites it */
    float most, sum;
    scan_row(row, job.vocabulary, most, sum);
    combine(most, sum, exchange);
    if (threadIdx.x == 0) {
        job.losses[blockIdx.x] = logf(sum) + (most - of_target);
    }
    if (job.scale) {
        write_gradient(row, (size_t)target, job, most, sum);
    }
}

bool loss_cuda(uint16_t *logits, const int32_t *targets, size_t rows, size_t vocabulary, size_t stride, float *losses, const float *scale,
               device_stream stream, struct error *error)
{
    if (rows == 0) {
        return true;
    }
    struct loss_job job = {};
    job.logits = logits;
    job.targets = targets;
    job.vocabulary = vocabulary;
    job.stride = stride;
    job.losses = losses;
    job.scale = scale;
    LAUNCH(loss_kernel, dim3((unsigned)rows), dim3(THREADS), 0, stream, job);
    return device_check("loss", error);
}
