/* adamw_cuda.cu: see adamw_cuda.h. Built without contraction: the operations and their order are adamw_cpu.c's. */
#include "train/adamw_cuda.h"

#include <cmath>
#include <cstdlib>

#include "attention/launch.cuh"
#include "attention/philox.h"
#include "model/vector.cuh"

#define THREADS 256
#define CHUNK   8192 /* elements of a block */

struct adamw_chunk {
    uint64_t first; /* a multiple of 8: tensors start at multiples of 64 */
    uint32_t count, decays;
};

/* ---- rounding ---- */

/* Up with the probability that the dropped bits say. NaN and infinity stay what they are. */
static __device__ __forceinline__ uint16_t bf16_stochastic(float x, uint32_t random)
{
    const uint32_t bits = float_to_bits(x);
    return (bits & 0x7F800000u) == 0x7F800000u ? bf16_encode(x) : (uint16_t)((bits + (random & 0xFFFFu)) >> 16);
}

/* Element `at`'s random word: Philox with key seed and counter (at / 4, step), word at % 4. Eight elements: two blocks. */
static __device__ __forceinline__ void random_words(const struct adamw_step &step, uint64_t at, uint32_t (&word)[VECTOR])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint64_t counter = at / 4 + half;
        const struct philox_block block =
            philox4x32_10((uint32_t)step.seed, (uint32_t)(step.seed >> 32), (uint32_t)counter, (uint32_t)(counter >> 32),
                          (uint32_t)step.number, (uint32_t)(step.number >> 32));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            word[4 * half + i] = block.word[i];
        }
    }
}

/* ---- the update ---- */

struct adamw_job {
    struct adamw_cuda adamw;
    const struct adamw_step *step;
    const double *norm;
    uint16_t *weights;
    const float *gradients;
};

/* The last vector of a tensor may be short: its lanes past the end compute on zeros and are not written. */
template <class T> static __device__ __forceinline__ void load_some(const T *from, int count, T (&x)[VECTOR])
{
    for (int i = 0; i < VECTOR; i++) {
        x[i] = i < count ? from[i] : (T)0;
    }
}

template <class T> static __device__ __forceinline__ void store_some(T *to, int count, const T (&x)[VECTOR])
{
    for (int i = 0; i < count; i++) {
        to[i] = x[i];
    }
}

static __device__ __forceinline__ void load_floats(const float *from, int count, float (&x)[VECTOR])
{
    if (count == VECTOR) {
        load_fp32(from, x);
    } else {
        load_some(from, count, x);
    }
}

static __device__ __forceinline__ void store_floats(float *to, int count, const float (&x)[VECTOR])
{
    if (count == VECTOR) {
        store_fp32(to, x);
    } else {
        store_some(to, count, x);
    }
}

static __device__ __forceinline__ void load_parameters(const struct adamw_job &job, size_t at, int count, float (&p)[VECTOR])
{
    if (job.adamw.masters) {
        load_floats(job.adamw.masters + at, count, p);
        return;
    }
    uint16_t codes[VECTOR];
    if (count == VECTOR) {
        load_bf16(job.weights + at, p);
        return;
    }
    load_some(job.weights + at, count, codes);
    for (int i = 0; i < VECTOR; i++) {
        p[i] = bf16_decode(codes[i]);
    }
}

static __device__ __forceinline__ void store_weights(const struct adamw_job &job, const struct adamw_step &step, size_t at, int count,
                                                     const float (&p)[VECTOR])
{
    uint16_t codes[VECTOR];
    if (job.adamw.stochastic) {
        uint32_t word[VECTOR];
        random_words(step, at, word);
        for (int i = 0; i < VECTOR; i++) {
            codes[i] = bf16_stochastic(p[i], word[i]);
        }
    } else {
        for (int i = 0; i < VECTOR; i++) {
            codes[i] = bf16_encode(p[i]);
        }
    }
    if (count == VECTOR) {
        uint32_t pairs[4];
        for (int i = 0; i < 4; i++) {
            pairs[i] = (uint32_t)codes[2 * i] | (uint32_t)codes[2 * i + 1] << 16;
        }
        *reinterpret_cast<uint4 *>(job.weights + at) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
        store_some(job.weights + at, count, codes);
    }
}

static __device__ __forceinline__ void update_vector(const struct adamw_job &job, const struct adamw_step &step, float scale, float keep,
                                                     size_t at, int count)
{
    float p[VECTOR], g[VECTOR], m[VECTOR], v[VECTOR];
    load_parameters(job, at, count, p);
    load_floats(job.gradients + at, count, g);
    load_floats(job.adamw.mean + at, count, m);
    load_floats(job.adamw.square + at, count, v);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        const float gradient = scale * g[i];
        m[i] = step.beta1 * m[i] + step.rest1 * gradient;
        v[i] = step.beta2 * v[i] + step.rest2 * gradient * gradient;
        p[i] = keep * p[i] - step.rate * m[i] / (sqrtf(v[i]) * step.root + step.epsilon);
    }
    store_floats(job.adamw.mean + at, count, m);
    store_floats(job.adamw.square + at, count, v);
    if (job.adamw.masters) {
        store_floats(job.adamw.masters + at, count, p);
    }
    store_weights(job, step, at, count, p);
}

static __global__ void __launch_bounds__(THREADS) adamw_kernel(const struct adamw_job job)
{
    const struct adamw_chunk chunk = job.adamw.chunks[blockIdx.x];
    const struct adamw_step step = *job.step;
    const double norm = *job.norm;
    if (!isfinite(norm)) {
        return;
    }
    const float scale = step.clip > 0 && norm > step.clip ? (float)(step.clip / norm) : 1.0f;
    const float keep = chunk.decays ? step.keep : 1.0f;
    for (uint32_t at = threadIdx.x * VECTOR; at < chunk.count; at += THREADS * VECTOR) {
        const uint32_t left = chunk.count - at;
        update_vector(job, step, scale, keep, chunk.first + at, left < VECTOR ? (int)left : VECTOR);
    }
}

bool adamw_update_cuda(const struct adamw_cuda *adamw, const struct adamw_step *step, const double *norm, uint16_t *weights,
                       const float *gradients, device_stream stream, struct error *error)
{
    struct adamw_job job = {};
    job.adamw = *adamw;
    job.step = step;
    job.norm = norm;
    job.weights = weights;
    job.gradients = gradients;
    LAUNCH(adamw_kernel, dim3((unsigned)adamw->chunk_count), dim3(THREADS), 0, stream, job);
    return device_check("AdamW", error);
}

static __global__ void __launch_bounds__(THREADS) weights_kernel(const struct adamw_job job)
{
    const struct adamw_chunk chunk = job.adamw.chunks[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < chunk.count; i += THREADS) {
        job.weights[chunk.first + i] = bf16_encode(job.adamw.masters[chunk.first + i]);
    }
}

bool adamw_weights_cuda(const struct adamw_cuda *adamw, uint16_t *weights, device_stream stream, struct error *error)
{
    struct adamw_job job = {};
    job.adamw = *adamw;
    job.weights = weights;
    LAUNCH(weights_kernel, dim3((unsigned)adamw->chunk_count), dim3(THREADS), 0, stream, job);
    return device_check("rounding of weights", error);
}

/* ---- the host's part ---- */

struct adamw_step adamw_step_make(const struct adamw_settings *settings, double clip, int64_t t, uint64_t seed)
{
    struct adamw_step step = {};
    step.beta1 = (float)settings->beta1;
    step.beta2 = (float)settings->beta2;
    step.rest1 = (float)(1 - settings->beta1);
    step.rest2 = (float)(1 - settings->beta2);
    step.rate = (float)(settings->learning_rate / (1 - std::pow(settings->beta1, (double)t)));
    step.root = (float)(1 / std::sqrt(1 - std::pow(settings->beta2, (double)t)));
    step.epsilon = (float)settings->epsilon;
    step.keep = (float)(1 - settings->learning_rate * settings->weight_decay);
    step.clip = clip;
    step.seed = seed;
    step.number = (uint64_t)t;
    return step;
}

static size_t tensor_elements(const struct parameter *tensor)
{
    return tensor->rows * tensor->columns;
}

static size_t count_chunks(const struct parameter_table *table)
{
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        count += (tensor_elements(&table->entries[i]) + CHUNK - 1) / CHUNK;
    }
    return count;
}

static void list_chunks(const struct parameter_table *table, struct adamw_chunk *chunks)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct parameter *const tensor = &table->entries[i];
        const size_t elements = tensor_elements(tensor);
        for (size_t first = 0; first < elements; first += CHUNK) {
            chunks->first = tensor->offset + first;
            chunks->count = (uint32_t)(elements - first < CHUNK ? elements - first : CHUNK);
            chunks->decays = tensor->decays;
            chunks++;
        }
    }
}

size_t adamw_cuda_bytes(const struct parameter_table *table, bool masters)
{
    return (masters ? 3 : 2) * table->elements * sizeof(float) + count_chunks(table) * sizeof(struct adamw_chunk);
}

static bool upload_chunks(struct adamw_cuda *adamw, const struct parameter_table *table, struct error *error)
{
    const size_t bytes = adamw->chunk_count * sizeof(struct adamw_chunk);
    auto *const chunks = static_cast<struct adamw_chunk *>(std::malloc(bytes > 0 ? bytes : 1));
    if (!chunks) {
        return error_set(error, ERROR_FAILED, "out of memory: %zu bytes for the optimizer's list of work", bytes);
    }
    list_chunks(table, chunks);
    const bool done = device_copy_in(adamw->chunks, chunks, bytes, nullptr, error) && device_stream_wait(nullptr, error);
    std::free(chunks);
    return done;
}

bool adamw_cuda_create(struct adamw_cuda *adamw, const struct parameter_table *table, bool masters, bool stochastic, struct error *error)
{
    const size_t bytes = table->elements * sizeof(float);
    *adamw = {};
    adamw->stochastic = stochastic;
    adamw->chunk_count = count_chunks(table);
    if (!masters && !stochastic) {
        return error_set(error, ERROR_USAGE, "BF16 weights without FP32 masters have to be rounded stochastically");
    }
    adamw->mean = static_cast<float *>(device_alloc(bytes, "the optimizer's first moment", error));
    adamw->square = adamw->mean ? static_cast<float *>(device_alloc(bytes, "the optimizer's second moment", error)) : nullptr;
    adamw->masters =
        adamw->square && masters ? static_cast<float *>(device_alloc(bytes, "the optimizer's FP32 weights", error)) : nullptr;
    adamw->chunks = adamw->square && (adamw->masters || !masters)
                        ? static_cast<struct adamw_chunk *>(device_alloc(adamw->chunk_count * sizeof(struct adamw_chunk),
                                                                         "the optimizer's list of work", error))
                        : nullptr;
    if (adamw->chunks && device_fill(adamw->mean, 0, bytes, nullptr, error) && device_fill(adamw->square, 0, bytes, nullptr, error) &&
        upload_chunks(adamw, table, error)) {
        return true;
    }
    adamw_cuda_destroy(adamw, nullptr); /* the first error is the one to tell */
    return false;
}

bool adamw_cuda_destroy(struct adamw_cuda *adamw, struct error *error)
{
    const bool mean = device_free(adamw->mean, error), square = device_free(adamw->square, error);
    const bool masters = device_free(adamw->masters, error), chunks = device_free(adamw->chunks, error);
    *adamw = {};
    return mean && square && masters && chunks;
}
