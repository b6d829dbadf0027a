/* dquery_scale_cuda.cu: the scales of a 16-bit dQ. Definition: delta_cpu.c (paper, appendix A.4).
 *
 * One warp walks one document of one head, its lanes holding the channels of a row: a running maximum is a chain by nature, and this switch is for
 * experiments, not for speed.
 */
#include "attention/launch.cuh"
#include "attention/operands_cuda.h"
#include "attention/tile.cuh"

static __device__ float warp_sum(float x)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, distance);
    }
    return x;
}

static __device__ float warp_max(float x)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
    }
    return x;
}

/* 14 - E with bound < 2^E, clamped to +-126. */
static __device__ int16_t scale_of_bound(float bound)
{
    if (bound == 0.0f) {
        return 126;
    }
    if (!(bound <= 3.4e38f)) {
        return -126;
    }
    int exponent;
    frexpf(bound, &exponent);
    const int scale = 14 - exponent;
    return (int16_t)(scale > 126 ? 126 : scale < -126 ? -126 : scale);
}

struct norms {
    float doutput, value, key;
};

static __device__ struct norms row_norms(const uint16_t *doutput, const uint16_t *value, const uint16_t *key, int head_dim, int lane)
{
    struct norms norms = {0.0f, 0.0f, 0.0f};
    for (int i = lane; i < head_dim; i += 32) {
        const float o = bf16_decode(doutput[i]), v = bf16_decode(value[i]);
        norms.doutput += o * o;
        norms.value += v * v;
        norms.key = fmaxf(norms.key, fabsf(bf16_decode(key[i])));
    }
    norms.doutput = sqrtf(warp_sum(norms.doutput));
    norms.value = sqrtf(warp_sum(norms.value));
    norms.key = warp_max(norms.key);
    return norms;
}

static __global__ void scale_kernel(const uint16_t *doutput, const uint16_t *value, const uint16_t *key, const int32_t *offsets,
                                    const int32_t *document_count, size_t total_tokens, uint32_t heads, uint32_t group, int head_dim,
                                    bool running, bool own, int16_t *scales)
{
    const int lane = (int)threadIdx.x;
    const uint32_t head = blockIdx.x % heads, kv_head = head / group;
    const int32_t document = (int32_t)(blockIdx.x / heads);
    if (document >= *document_count) {
        return;
    }
    struct norms most = {0.0f, 0.0f, 0.0f};
    for (int pass = running ? 1 : 0; pass < 2; pass++) {
        for (int32_t token = offsets[document]; token < offsets[document + 1]; token++) {
            const size_t row = (size_t)head * total_tokens + (size_t)token, key_row = (size_t)kv_head * total_tokens + (size_t)token;
            const struct norms here = row_norms(doutput + row * head_dim, value + key_row * head_dim, key + key_row * head_dim, head_dim, lane);
            most.doutput = fmaxf(most.doutput, here.doutput);
            most.value = fmaxf(most.value, here.value);
            most.key = fmaxf(most.key, here.key);
            if (lane == 0) {
                scales[row] = scale_of_bound(2.0f * (own ? here.doutput : most.doutput) * most.value * most.key);
            }
        }
    }
}

enum attention_status dquery_scales_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                         const struct attention_schedule *schedule, const struct operands_cuda *operands,
                                         attention_stream stream)
{
    const bool own = recipe->dquery == DQUERY_FP16_CAUSAL;
    LAUNCH(scale_kernel, dim3((unsigned)(schedule->max_documents * shape->heads)), dim3(32), 0, stream,
           operands->image[ROLE_DOUTPUT_DPROBABILITY], operands->image[ROLE_VALUE_DPROBABILITY], operands->image[ROLE_KEY_DQUERY_DIAGONAL],
           schedule->offsets, schedule->document_count, shape->total_tokens, (uint32_t)shape->heads,
           (uint32_t)(shape->heads / shape->kv_heads), (int)shape->head_dim, own && shape->causal, own, operands->dquery_scale);
    return cudaPeekAtLastError() == cudaSuccess ? ATTENTION_OK : ATTENTION_DEVICE;
}
