/* network_memory.c: how a network's memory is laid out, and the plan of it. See network_parts.h. */
#include <string.h>

#include "model/network_parts.h"

#define ALIGNMENT 64 /* bytes */

struct carver {
    unsigned char *base;
    size_t used;
};

static float *take(struct carver *carver, size_t floats, size_t *counted)
{
    const size_t bytes = (floats * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *piece = carver->base ? carver->base + carver->used : NULL;
    carver->used += bytes;
    *counted += bytes;
    return piece;
}

size_t network_qkv_width(const struct model_config *config)
{
    return (config->heads + 2 * config->kv_heads) * config->head_dim;
}

size_t network_up_width(const struct model_config *config)
{
    return config->family == MODEL_LLAMA ? 2 * config->ffn : config->ffn;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t network_workspace_bytes(const struct model_config *config, size_t tokens)
{
    const struct attention_shape shape = {tokens, config->heads, config->kv_heads, config->head_dim, true, 1.0f};
    size_t most = 0;
    for (size_t i = 0; i < recipe_count(); i++) {
        most = larger(most, attention_workspace_bytes(recipe_at(i), &shape));
    }
    return most;
}

/* All of a layer's activations but its input. */
static void carve_layer(struct carver *carver, const struct model_config *c, size_t tokens, struct layer_buffers *layer,
                        size_t *counted)
{
    layer->norm1 = take(carver, tokens * c->width, counted);
    layer->statistics1 = take(carver, tokens * 2, counted);
    layer->qkv = take(carver, tokens * network_qkv_width(c), counted);
    layer->lse = take(carver, tokens * c->heads, counted);
    layer->attention = take(carver, tokens * c->heads * c->head_dim, counted);
    layer->middle = take(carver, tokens * c->width, counted);
    layer->norm2 = take(carver, tokens * c->width, counted);
    layer->statistics2 = take(carver, tokens * 2, counted);
    layer->up = take(carver, tokens * network_up_width(c), counted);
    layer->activation = take(carver, tokens * c->ffn, counted);
}

static void carve_layers(struct network *network, struct carver *carver, size_t *counted)
{
    const struct model_config *c = &network->config;
    const bool shared = !network->options.training || network->options.recompute;
    struct layer_buffers common = {0}, scratch = {0};
    float *inputs[2] = {NULL, NULL};
    if (shared) {
        carve_layer(carver, c, network->options.max_tokens, &common, counted);
    }
    for (size_t layer = 0; layer <= c->layers; layer++) { /* one more input: the last layer's output */
        struct layer_buffers *to = network->layers && layer < c->layers ? &network->layers[layer] : &scratch;
        *to = common;
        float **input = network->options.training || layer < 2 ? NULL : &inputs[layer % 2];
        float *buffer = input ? *input : take(carver, network->options.max_tokens * c->width, counted);
        inputs[layer % 2] = buffer;
        to->input = buffer;
        if (layer == c->layers) {
            network->final_input = buffer;
        } else if (!shared) {
            carve_layer(carver, c, network->options.max_tokens, to, counted);
        }
    }
}

static void carve_ends(struct network *network, struct carver *carver, size_t *counted)
{
    const struct model_config *c = &network->config;
    const size_t tokens = network->options.max_tokens;
    network->final_norm = take(carver, tokens * c->width, counted);
    network->final_statistics = take(carver, tokens * 2, counted);
    network->logits = take(carver, tokens * c->padded_vocabulary, counted);
    network->loss_statistics = take(carver, tokens * 2, counted);
    network->losses = take(carver, tokens, counted);
    network->linear = take(carver, tokens * c->width, counted);
    if (network->options.training) {
        network->dresidual = take(carver, tokens * c->width, counted);
        network->dnorm = take(carver, tokens * c->width, counted);
        network->dup = take(carver, tokens * network_up_width(c), counted);
        network->dactivation = take(carver, tokens * larger(c->ffn, c->heads * c->head_dim), counted);
        network->dqkv = take(carver, tokens * network_qkv_width(c), counted);
    }
    if (c->family == MODEL_LLAMA) {
        network->cosines = take(carver, c->context * c->head_dim / 2, counted);
        network->sines = take(carver, c->context * c->head_dim / 2, counted);
    }
}

size_t network_carve(struct network *network, unsigned char *base, struct network_memory *plan)
{
    struct carver carver = {base, 0};
    memset(plan, 0, sizeof *plan);
    network->parameters = take(&carver, network->table.elements, &plan->parameters);
    if (network->options.training) {
        network->gradients = take(&carver, network->table.elements, &plan->gradients);
    }
    carve_layers(network, &carver, &plan->activations);
    carve_ends(network, &carver, &plan->activations);
    plan->workspace = network_workspace_bytes(&network->config, network->options.max_tokens);
    plan->total = carver.used + plan->workspace;
    return carver.used;
}

void network_memory_plan(const struct model_config *config, const struct network_options *options,
                         struct network_memory *plan)
{
    struct network network = {.config = *config, .options = *options};
    struct error error;
    memset(plan, 0, sizeof *plan);
    if (parameter_table_make(&network.table, config, &error)) {
        network_carve(&network, NULL, plan);
        parameter_table_free(&network.table);
    }
}
