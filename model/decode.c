/* decode.c: see decode.h. One row through every layer, its keys and values kept. */
#include "model/decode.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "model/network_parts.h"
#include "model/ops.h"

struct decoder {
    struct network *network;
    size_t capacity, length;
    float *memory;
    float *keys, *values;         /* [layers][capacity][Hk head_dim], rounded to BF16 */
    float *row, *normed, *linear; /* [C] */
    float *qkv, *up, *activation; /* [Q], [U], [F] */
    float *attention;             /* [A] */
    float *scores;                /* [capacity] */
    float *logits;                /* [padded V] */
};

static size_t cache_width(const struct model_config *c)
{
    return c->kv_heads * c->head_dim;
}

/* Lays the pieces out; with a NULL base only counts floats. */
static size_t carve(struct decoder *decoder, float *base)
{
    const struct model_config *c = &decoder->network->config;
    const size_t cache = c->layers * decoder->capacity * cache_width(c);
    const struct {
        float **piece;
        size_t floats;
    } pieces[] = {{&decoder->keys, cache},
                  {&decoder->values, cache},
                  {&decoder->row, c->width},
                  {&decoder->normed, c->width},
                  {&decoder->linear, c->width},
                  {&decoder->qkv, network_qkv_width(c)},
                  {&decoder->up, network_up_width(c)},
                  {&decoder->activation, c->ffn},
                  {&decoder->attention, c->heads * c->head_dim},
                  {&decoder->scores, decoder->capacity},
                  {&decoder->logits, c->padded_vocabulary}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        *pieces[i].piece = base ? base + used : NULL;
        used += (pieces[i].floats + 15) / 16 * 16;
    }
    return used;
}

struct decoder *decoder_create(struct network *network, size_t capacity, struct error *error)
{
    if (capacity == 0 || capacity > network->config.context) {
        error_set(error, ERROR_USAGE, "generate: %zu tokens, expected 1 to the model's context of %zu", capacity,
                  network->config.context);
        return NULL;
    }
    struct decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder) {
        decoder->network = network;
        decoder->capacity = capacity;
        const size_t floats = carve(decoder, NULL);
        decoder->memory = calloc(floats, sizeof(float));
        carve(decoder, decoder->memory);
    }
    if (!decoder || !decoder->memory) {
        error_set(error, ERROR_FAILED, "generate: no memory for a cache of %zu tokens", capacity);
        free(decoder);
        return NULL;
    }
    return decoder;
}

void decoder_destroy(struct decoder *decoder)
{
    if (decoder) {
        free(decoder->memory);
        free(decoder);
    }
}

void decoder_reset(struct decoder *decoder)
{
    decoder->length = 0;
}

/* y [out] = w [out][in] x + bias */
static void product(const float *w, const float *x, const float *bias, size_t in, size_t out, float *y)
{
    cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)out, (blasint)in, 1.0f, w, (blasint)in, x, 1, 0.0f, y, 1);
    for (size_t i = 0; bias && i < out; i++) {
        y[i] += bias[i];
    }
}

/* One head's row of exact attention over the cache. */
static void attend_head(struct decoder *decoder, size_t head, const float *keys, const float *values)
{
    const struct model_config *c = &decoder->network->config;
    const size_t count = decoder->length + 1, stride = cache_width(c),
                 at = head / (c->heads / c->kv_heads) * c->head_dim;
    const float *query = decoder->qkv + head * c->head_dim;
    float *out = decoder->attention + head * c->head_dim, most = -INFINITY, sum = 0;
    const float scale = 1.0f / sqrtf((float)c->head_dim);
    for (size_t j = 0; j < count; j++) {
        decoder->scores[j] = scale * cblas_sdot((blasint)c->head_dim, query, 1, keys + j * stride + at, 1);
        most = decoder->scores[j] > most ? decoder->scores[j] : most;
    }
    memset(out, 0, c->head_dim * sizeof *out);
    for (size_t j = 0; j < count; j++) {
        const float p = expf(decoder->scores[j] - most);
        sum += p;
        cblas_saxpy((blasint)c->head_dim, p, values + j * stride + at, 1, out, 1);
    }
    for (size_t i = 0; i < c->head_dim; i++) {
        out[i] /= sum;
    }
}

/* Attention reads Q, K and V rounded to BF16, as it does in training. */
static void attend(struct decoder *decoder, size_t layer, int32_t position)
{
    const struct network *network = decoder->network;
    const struct model_config *c = &network->config;
    const size_t query = c->heads * c->head_dim, width = cache_width(c), base = layer * decoder->capacity * width;
    float *keys = decoder->keys + base, *values = decoder->values + base;
    if (c->family == MODEL_LLAMA) {
        rope_cpu(decoder->qkv, network_qkv_width(c), &position, 1, c->heads + c->kv_heads, c->head_dim,
                 network->cosines, network->sines, false);
    }
    for (size_t i = 0; i < network_qkv_width(c); i++) {
        decoder->qkv[i] = bf16_round(decoder->qkv[i]);
    }
    memcpy(keys + decoder->length * width, decoder->qkv + query, width * sizeof(float));
    memcpy(values + decoder->length * width, decoder->qkv + query + width, width * sizeof(float));
    for (size_t head = 0; head < c->heads; head++) {
        attend_head(decoder, head, keys, values);
    }
}

static void normalise(const struct decoder *decoder, const float *weight, const float *bias)
{
    const struct model_config *c = &decoder->network->config;
    const struct norm_shape shape = {1, c->width, c->family == MODEL_GPT2, c->norm_epsilon};
    float statistics[2];
    norm_forward_cpu(&shape, decoder->row, NULL, NULL, weight, bias, NULL, decoder->normed, statistics);
}

static void add_to_row(struct decoder *decoder)
{
    for (size_t i = 0; i < decoder->network->config.width; i++) {
        decoder->row[i] += decoder->linear[i];
    }
}

static void run_layer(struct decoder *decoder, size_t layer, int32_t position)
{
    const struct model_config *c = &decoder->network->config;
    const struct layer_parameters *w = &decoder->network->weights[layer];
    normalise(decoder, w->norm1_weight, w->norm1_bias);
    product(w->qkv_weight, decoder->normed, w->qkv_bias, c->width, network_qkv_width(c), decoder->qkv);
    attend(decoder, layer, position);
    product(w->output_weight, decoder->attention, w->output_bias, c->heads * c->head_dim, c->width, decoder->linear);
    add_to_row(decoder);
    normalise(decoder, w->norm2_weight, w->norm2_bias);
    product(w->up_weight, decoder->normed, NULL, c->width, network_up_width(c), decoder->up);
    if (c->family == MODEL_LLAMA) {
        swiglu_forward_cpu(decoder->up, 1, c->ffn, decoder->activation);
    } else {
        gelu_forward_cpu(decoder->up, w->up_bias, 1, c->ffn, decoder->activation);
    }
    product(w->down_weight, decoder->activation, w->down_bias, c->ffn, c->width, decoder->linear);
    add_to_row(decoder);
}

static const float *parameter(const struct network *network, enum parameter_kind kind)
{
    const struct parameter *entry = parameter_find(&network->table, kind, 0);
    return entry ? network->parameters + entry->offset : NULL;
}

bool decoder_step(struct decoder *decoder, int32_t token, const float **logits, struct error *error)
{
    const struct network *network = decoder->network;
    const struct model_config *c = &network->config;
    if (token < 0 || (size_t)token >= c->vocabulary) {
        return error_set(error, ERROR_FAILED, "generate: token id %d, expected 0 to %zu", token, c->vocabulary - 1);
    }
    if (decoder->length == decoder->capacity) {
        return error_set(error, ERROR_FAILED, "generate: the cache holds %zu tokens and is full", decoder->capacity);
    }
    const int32_t position = (int32_t)decoder->length;
    const float *embedding = parameter(network, PARAMETER_TOKEN_EMBEDDING),
                *head = parameter(network, PARAMETER_HEAD_WEIGHT);
    embedding_forward_cpu(&token, &position, embedding, parameter(network, PARAMETER_POSITION_EMBEDDING), 1, c->width,
                          decoder->row);
    for (size_t layer = 0; layer < c->layers; layer++) {
        run_layer(decoder, layer, position);
    }
    normalise(decoder, parameter(network, PARAMETER_FINAL_NORM_WEIGHT), parameter(network, PARAMETER_FINAL_NORM_BIAS));
    product(head ? head : embedding, decoder->normed, NULL, c->width, c->padded_vocabulary, decoder->logits);
    decoder->length++;
    *logits = decoder->logits;
    return true;
}
