/* activation_cuda.cu: GELU (tanh form) and SwiGLU. See ops_cuda.h; definition: activation_cpu.c.
 *
 * Both are x times a sigmoid. A thread owns eight numbers.
 */
#include "model/ops_cuda.h"

#include "attention/launch.cuh"
#include "model/vector.cuh"

#define THREADS    256
#define GELU_SCALE 0.797884561f /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f

/* 1 / (1 + 2^z); an infinite power gives 0. */
static __device__ __forceinline__ float sigmoid_base2(float z)
{
    return 1.0f / (1.0f + exp2f(z));
}

static __device__ __forceinline__ float gelu_sigmoid(float x)
{
    return sigmoid_base2((-2.0f * LOG2_E * GELU_SCALE) * (x + GELU_CUBIC * x * x * x));
}

static __device__ __forceinline__ size_t vector_of_thread()
{
    return ((size_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR;
}

static __global__ void __launch_bounds__(THREADS) gelu_forward_kernel(uint16_t *x, const uint16_t *bias, size_t columns, size_t count,
                                                                      uint16_t *y)
{
    const size_t at = vector_of_thread();
    if (at >= count) {
        return;
    }
    float value[VECTOR], added[VECTOR];
    load_bf16(x + at, value);
    if (bias) {
        load_bf16(bias + at % columns, added);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            value[i] = bf16_round(value[i] + added[i]);
        }
        store_bf16(x + at, value);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        value[i] *= gelu_sigmoid(value[i]);
    }
    store_bf16(y + at, value);
}

bool gelu_forward_cuda(uint16_t *x, const uint16_t *bias, size_t rows, size_t columns, uint16_t *y, device_stream stream,
                       struct error *error)
{
    const size_t count = rows * columns;
    if (count == 0) {
        return true;
    }
    LAUNCH(gelu_forward_kernel, blocks_for(count / VECTOR, THREADS), dim3(THREADS), 0, stream, x, bias, columns, count, y);
    return device_check("GELU, forward", error);
}

static __global__ void __launch_bounds__(THREADS) gelu_backward_kernel(const uint16_t *x, const uint16_t *dy, size_t count, uint16_t *dx)
{
    const size_t at = vector_of_thread();
    if (at >= count) {
        return;
    }
    float value[VECTOR], gradient[VECTOR];
    load_bf16(x + at, value);
    load_bf16(dy + at, gradient);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        const float s = gelu_sigmoid(value[i]), weight = s * (1.0f - s);
        const float slope = 2.0f * GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * value[i] * value[i]);
        gradient[i] *= s + (weight == 0.0f ? 0.0f : value[i] * weight * slope); /* slope may be huge where weight is 0 */
    }
    store_bf16(dx + at, gradient);
}

bool gelu_backward_cuda(const uint16_t *x, const uint16_t *dy, size_t count, uint16_t *dx, device_stream stream, struct error *error)
{
    if (count == 0) {
        return true;
    }
    LAUNCH(gelu_backward_kernel, blocks_for(count / VECTOR, THREADS), dim3(THREADS), 0, stream, x, dy, count, dx);
    return device_check("GELU, backward", error);
}

static __global__ void __launch_bounds__(THREADS) swiglu_forward_kernel(const uint16_t *x, size_t columns, size_t count, uint16_t *y)
{
    const size_t at = vector_of_thread();
    if (at >= count) {
        return;
    }
    const uint16_t *const from = x + at / columns * 2 * columns + at % columns;
    float gate[VECTOR], up[VECTOR];
    load_bf16(from, gate);
    load_bf16(from + columns, up);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        up[i] *= gate[i] * sigmoid_base2(-LOG2_E * gate[i]);
    }
    store_bf16(y + at, up);
}

bool swiglu_forward_cuda(const uint16_t *x, size_t rows, size_t columns, uint16_t *y, device_stream stream, struct error *error)
{
    const size_t count = rows * columns;
    if (count == 0) {
        return true;
    }
    LAUNCH(swiglu_forward_kernel, blocks_for(count / VECTOR, THREADS), dim3(THREADS), 0, stream, x, columns, count, y);
    return device_check("SwiGLU, forward", error);
}

static __global__ void __launch_bounds__(THREADS) swiglu_backward_kernel(const uint16_t *x, const uint16_t *dy, size_t columns,
                                                                         size_t count, uint16_t *dx)
{
    const size_t at = vector_of_thread();
    if (at >= count) {
        return;
    }
    const size_t first = at / columns * 2 * columns + at % columns;
    float gate[VECTOR], up[VECTOR], gradient[VECTOR];
    load_bf16(x + first, gate);
    load_bf16(x + first + columns, up);
    load_bf16(dy + at, gradient);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        const float s = sigmoid_base2(-LOG2_E * gate[i]), weight = s * (1.0f - s), value = gate[i];
        gate[i] = gradient[i] * up[i] * (s + (weight == 0.0f ? 0.0f : value * weight));
        up[i] = gradient[i] * value * s;
    }
    store_bf16(dx + first, gate);
    store_bf16(dx + first + columns, up);
}

bool swiglu_backward_cuda(const uint16_t *x, const uint16_t *dy, size_t rows, size_t columns, uint16_t *dx, device_stream stream,
                          struct error *error)
{
    const size_t count = rows * columns;
    if (count == 0) {
        return true;
    }
    LAUNCH(swiglu_backward_kernel, blocks_for(count / VECTOR, THREADS), dim3(THREADS), 0, stream, x, dy, columns, count, dx);
    return device_check("SwiGLU, backward", error);
}
