/* rope_cuda.cu: rotary position embedding in place. See ops_cuda.h; definition: rope_cpu.c.
 *
 * A thread owns eight channels of a head's first half and their partners in the second.
 */
#include "model/ops_cuda.h"

#include "attention/launch.cuh"
#include "model/vector.cuh"

#define THREADS 256

struct rope_job {
    uint16_t *x;
    const int32_t *positions;
    const float *cosines, *sines;
    size_t stride, rows, heads, head_dim;
    float sign;
};

static __global__ void __launch_bounds__(THREADS) rope_kernel(const struct rope_job job)
{
    const size_t half = job.head_dim / 2, vectors = half / VECTOR, work = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t channel = work % vectors * VECTOR, head = work / vectors % job.heads, row = work / vectors / job.heads;
    if (row >= job.rows) {
        return;
    }
    uint16_t *const at = job.x + row * job.stride + head * job.head_dim + channel;
    const size_t angle = (size_t)job.positions[row] * half + channel;
    float a[VECTOR], b[VECTOR], cosine[VECTOR], sine[VECTOR];
    load_bf16(at, a);
    load_bf16(at + half, b);
    load_fp32(job.cosines + angle, cosine);
    load_fp32(job.sines + angle, sine);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        const float first = a[i], s = job.sign * sine[i];
        a[i] = first * cosine[i] - b[i] * s;
        b[i] = b[i] * cosine[i] + first * s;
    }
    store_bf16(at, a);
    store_bf16(at + half, b);
}

bool rope_cuda(uint16_t *x, size_t stride, const int32_t *positions, size_t rows, size_t heads, size_t head_dim, const float *cosines,
               const float *sines, bool backward, device_stream stream, struct error *error)
{
    const size_t work = rows * heads * (head_dim / 2 / VECTOR);
    if (work == 0) {
        return true;
    }
    struct rope_job job = {};
    job.x = x;
    job.positions = positions;
    job.cosines = cosines;
    job.sines = sines;
    job.stride = stride;
    job.rows = rows;
    job.heads = heads;
    job.head_dim = head_dim;
    job.sign = backward ? -1.0f : 1.0f;
    LAUNCH(rope_kernel, blocks_for(work, THREADS), dim3(THREADS), 0, stream, job);
    return device_check("rotary positions", error);
}
