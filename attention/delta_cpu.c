/* delta_cpu.c: see delta_cpu.h. */
#include "attention/delta_cpu.h"

#include <math.h>

#include "attention/formats.h"

#define LANES 16

/* In a fixed order: 16 partial sums, then those in ascending order. head_dim is a multiple of 16. */
static float dot(const float *a, const float *b, size_t count)
{
    float sums[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            sums[lane] += a[i + lane] * b[i + lane];
        }
    }
    float total = sums[0];
    for (size_t lane = 1; lane < LANES; lane++) {
        total += sums[lane];
    }
    return total;
}

void delta_from_output(const struct recipe *recipe, const struct attention_shape *shape, const float *doutput_image,
                       const float *doutput, size_t doutput_stride, const float *output, size_t output_stride,
                       float *delta)
{
    const size_t head_dim = shape->head_dim;
#pragma omp parallel for collapse(2) schedule(static)
    for (size_t head = 0; head < shape->heads; head++) {
        for (size_t token = 0; token < shape->total_tokens; token++) {
            const float *o = output + token * output_stride + head * head_dim;
            const float *image = doutput_image + (head * shape->total_tokens + token) * head_dim;
            float original[HEAD_DIM_MAX];
            for (size_t i = 0; recipe->delta == DELTA_ORIGINAL && i < head_dim; i++) {
                original[i] = bf16_round(doutput[token * doutput_stride + head * head_dim + i]);
            }
            delta[head * shape->total_tokens + token] =
                dot(recipe->delta == DELTA_ORIGINAL ? original : image, o, head_dim);
        }
    }
}

static float largest(const float *x, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    return most;
}

static float larger(float a, float b)
{
    return b > a ? b : a;
}

/* 14 - E with bound < 2^E, clamped to +-126. */
static int16_t scale_of_bound(float bound)
{
    int exponent = 0;
    if (bound == 0) {
        return 126;
    }
    if (!isfinite(bound)) {
        return -126;
    }
    frexpf(bound, &exponent); /* bound = f 2^exponent with f < 1 */
    const int scale = 14 - exponent;
    return (int16_t)(scale > 126 ? 126 : scale < -126 ? -126 : scale);
}

struct running {
    float doutput, value, key;
};

static void document_scales(const struct recipe *recipe, const struct attention_shape *shape, size_t head, size_t begin,
                            size_t end, const float *doutput, const float *value, const float *key, int16_t *scales)
{
    const size_t head_dim = shape->head_dim, total = shape->total_tokens,
                 kv_head = head / (shape->heads / shape->kv_heads);
    const bool running = recipe->dquery == DQUERY_FP16_CAUSAL && shape->causal;
    struct running most = {0, 0, 0};
    for (int pass = running; pass < 2; pass++) { /* a first pass over the document where its maxima are wanted */
        for (size_t token = begin; token < end; token++) {
            const float *rows[] = {doutput + (head * total + token) * head_dim,
                                   value + (kv_head * total + token) * head_dim,
                                   key + (kv_head * total + token) * head_dim};
            const float norm = sqrtf(dot(rows[0], rows[0], head_dim));
            most.doutput = larger(most.doutput, norm);
            most.value = larger(most.value, sqrtf(dot(rows[1], rows[1], head_dim)));
            most.key = larger(most.key, largest(rows[2], head_dim));
            const float own = recipe->dquery == DQUERY_FP16_CAUSAL ? norm : most.doutput;
            scales[head * total + token] = scale_of_bound(2.0f * own * most.value * most.key);
        }
    }
}

void dquery_scales(const struct recipe *recipe, const struct attention_shape *shape, const struct documents *documents,
                   const float *doutput, const float *value, const float *key, int16_t *scales)
{
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t head = 0; head < shape->heads; head++) {
        for (size_t document = 0; document < documents->count; document++) {
            document_scales(recipe, shape, head, (size_t)documents->offsets[document],
                            (size_t)documents->offsets[document + 1], doutput, value, key, scales);
        }
    }
}
