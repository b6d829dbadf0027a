/* network.c: see network.h. Making a network, and its two passes from tokens to loss and back. */
#include "model/network.h"

#include <stdlib.h>
#include <string.h>

#include "model/network_parts.h"
#include "model/ops.h"

#define ALIGNMENT 64

/* ---- making one ---- */

static float *found(const struct network *network, float *values, enum parameter_kind kind, size_t layer)
{
    const struct parameter *entry = parameter_find(&network->table, kind, layer);
    return entry ? values + entry->offset : NULL;
}

static struct layer_parameters layer_view(const struct network *network, float *values, size_t layer)
{
    return (struct layer_parameters){
        .norm1_weight = found(network, values, PARAMETER_NORM1_WEIGHT, layer),
        .norm1_bias = found(network, values, PARAMETER_NORM1_BIAS, layer),
        .qkv_weight = found(network, values, PARAMETER_QKV_WEIGHT, layer),
        .qkv_bias = found(network, values, PARAMETER_QKV_BIAS, layer),
        .output_weight = found(network, values, PARAMETER_OUTPUT_WEIGHT, layer),
        .output_bias = found(network, values, PARAMETER_OUTPUT_BIAS, layer),
        .norm2_weight = found(network, values, PARAMETER_NORM2_WEIGHT, layer),
        .norm2_bias = found(network, values, PARAMETER_NORM2_BIAS, layer),
        .up_weight = found(network, values, PARAMETER_UP_WEIGHT, layer),
        .up_bias = found(network, values, PARAMETER_UP_BIAS, layer),
        .down_weight = found(network, values, PARAMETER_DOWN_WEIGHT, layer),
        .down_bias = found(network, values, PARAMETER_DOWN_BIAS, layer),
    };
}

static bool make_lists(struct network *network, struct error *error)
{
    const size_t layers = network->config.layers;
    network->layers = calloc(layers, sizeof *network->layers);
    network->weights = calloc(layers, sizeof *network->weights);
    network->weight_gradients = calloc(layers, sizeof *network->weight_gradients);
    return (network->layers && network->weights && network->weight_gradients) ||
           error_set(error, ERROR_FAILED, "model: no memory for lists of %zu layers", layers);
}

/* calloc: memory the first pass has not written is zero, and pages it never touches are never there. */
static bool make_memory(struct network *network, struct error *error)
{
    struct network_memory plan;
    const size_t bytes = network_carve(network, NULL, &plan);
    network->memory = calloc(1, bytes + ALIGNMENT);
    network->workspace_bytes = plan.workspace;
    network->workspace = malloc(plan.workspace);
    if (!network->memory || !network->workspace) {
        return error_set(
            error, ERROR_FAILED,
            "model: no memory for %zu bytes (parameters %zu, gradients %zu, activations %zu, workspace %zu): a smaller "
            "--micro-batch or --recompute needs less",
            plan.total, plan.parameters, plan.gradients, plan.activations, plan.workspace);
    }
    unsigned char *base = network->memory;
    network_carve(network, base + (ALIGNMENT - (uintptr_t)base % ALIGNMENT) % ALIGNMENT, &plan);
    return true;
}

static bool build(struct network *network, struct error *error)
{
    const struct model_config *c = &network->config;
    if (!parameter_table_make(&network->table, c, error) || !make_lists(network, error) ||
        !make_memory(network, error)) {
        return false;
    }
    for (size_t layer = 0; layer < c->layers; layer++) {
        network->weights[layer] = layer_view(network, network->parameters, layer);
        if (network->gradients) {
            network->weight_gradients[layer] = layer_view(network, network->gradients, layer);
        }
    }
    if (c->family == MODEL_LLAMA) {
        rope_tables(c->context, c->head_dim, c->rope_base, network->cosines, network->sines);
    }
    return true;
}

struct network *network_create(const struct model_config *config, const struct network_options *options,
                               struct error *error)
{
    if (options->max_tokens == 0 || options->max_tokens > INT32_MAX - TILE) {
        error_set(error, ERROR_USAGE, "model: a batch of %zu tokens, expected 1 to %d", options->max_tokens,
                  INT32_MAX - TILE);
        return NULL;
    }
    struct network *network = calloc(1, sizeof *network);
    if (!network) {
        error_set(error, ERROR_FAILED, "model: no memory for a network");
        return NULL;
    }
    network->config = *config;
    network->options = *options;
    if (!build(network, error)) {
        network_destroy(network);
        return NULL;
    }
    return network;
}

void network_destroy(struct network *network)
{
    if (network) {
        parameter_table_free(&network->table);
        free(network->layers);
        free(network->weights);
        free(network->weight_gradients);
        free(network->memory);
        free(network->workspace);
        free(network->kept_doutput);
        free(network);
    }
}

const struct model_config *network_config(const struct network *network)
{
    return &network->config;
}

const struct parameter_table *network_table(const struct network *network)
{
    return &network->table;
}

float *network_parameters(struct network *network)
{
    return network->parameters;
}

float *network_gradients(struct network *network)
{
    return network->gradients;
}

void network_zero_gradients(struct network *network)
{
    if (network->gradients) {
        memset(network->gradients, 0, network->table.elements * sizeof *network->gradients);
    }
}

const float *network_logits(const struct network *network)
{
    return network->logits;
}

bool network_keep_output_gradients(struct network *network, struct error *error)
{
    const struct model_config *c = &network->config;
    if (!network->kept_doutput) {
        network->kept_doutput = calloc(c->layers * network->options.max_tokens * c->heads * c->head_dim, sizeof(float));
    }
    return network->kept_doutput ||
           error_set(error, ERROR_FAILED, "model: no memory to keep dO of %zu layers", c->layers);
}

/* ---- what a batch must be ---- */

static bool ids_fit(const struct model_config *c, const struct batch *batch, struct error *error)
{
    for (size_t i = 0; i < batch->total_tokens; i++) {
        const int32_t token = batch->tokens[i], target = batch->targets[i], position = batch->positions[i];
        if (token < 0 || (size_t)token >= c->vocabulary) {
            return error_set(error, ERROR_FAILED,
                             "batch: token %zu has id %d, expected 0 to %zu: is the data of another vocabulary?", i,
                             token, c->vocabulary - 1);
        }
        if (target != TARGET_IGNORED && (target < 0 || (size_t)target >= c->vocabulary)) {
            return error_set(error, ERROR_FAILED, "batch: target %zu has id %d, expected 0 to %zu, or %d for none", i,
                             target, c->vocabulary - 1, TARGET_IGNORED);
        }
        if (position < 0 || (size_t)position >= c->context) {
            return error_set(error, ERROR_FAILED, "batch: token %zu is at position %d, the model's context is %zu", i,
                             position, c->context);
        }
    }
    return true;
}

static bool batch_fits(const struct network *network, const struct batch *batch, struct error *error)
{
    const struct documents documents = {batch->offsets, batch->documents};
    if (batch->total_tokens == 0 || batch->total_tokens > network->options.max_tokens) {
        return error_set(error, ERROR_FAILED, "batch: %zu tokens, the network was made for 1 to %zu",
                         batch->total_tokens, network->options.max_tokens);
    }
    if (documents_check(&documents, batch->total_tokens) != ATTENTION_OK) {
        return error_set(error, ERROR_FAILED, "batch: %s", attention_status_text(ATTENTION_BAD_OFFSETS));
    }
    return ids_fit(&network->config, batch, error);
}

/* A recipe with switches of its own may need more than every preset does. */
static bool workspace_fits(struct network *network, const struct recipe *recipe, size_t tokens, struct error *error)
{
    const struct attention_shape shape = network_attention_shape(network, tokens);
    const size_t bytes = attention_workspace_bytes(recipe, &shape);
    if (bytes > network->workspace_bytes) {
        void *larger = realloc(network->workspace, bytes);
        if (!larger) {
            return error_set(error, ERROR_FAILED, "model: no memory for attention's workspace of %zu bytes", bytes);
        }
        network->workspace = larger;
        network->workspace_bytes = bytes;
    }
    return true;
}

/* ---- the passes ---- */

static const float *head_weight(const struct network *network)
{
    const float *head = found(network, network->parameters, PARAMETER_HEAD_WEIGHT, 0);
    return head ? head : found(network, network->parameters, PARAMETER_TOKEN_EMBEDDING, 0);
}

/* Input of layer `layer`, or the residual stream after the last. */
static float *layer_input(const struct network *network, size_t layer)
{
    return layer < network->config.layers ? network->layers[layer].input : network->final_input;
}

bool network_forward(struct network *network, const struct recipe *recipe, const struct batch *batch, float *losses,
                     double *loss_sum, struct error *error)
{
    const struct model_config *c = &network->config;
    if (!batch_fits(network, batch, error) || !workspace_fits(network, recipe, batch->total_tokens, error)) {
        return false;
    }
    network->forward_done = network->backward_done = false;
    const size_t tokens = batch->total_tokens;
    embedding_forward_cpu(batch->tokens, batch->positions,
                          found(network, network->parameters, PARAMETER_TOKEN_EMBEDDING, 0),
                          found(network, network->parameters, PARAMETER_POSITION_EMBEDDING, 0), tokens, c->width,
                          layer_input(network, 0));
    network_norm_forward(network, 0, tokens, layer_input(network, 0), NULL, NULL, NULL);
    for (size_t layer = 0; layer < c->layers; layer++) {
        const struct layer_call call = {network, recipe, batch, layer, NULL};
        if (!layer_forward(&call, layer_input(network, layer + 1), error)) {
            return false;
        }
    }
    linear_forward_cpu(network->final_norm, head_weight(network), tokens, c->width, c->padded_vocabulary,
                       network->logits);
    if (loss_sum) {
        *loss_sum = loss_forward_cpu(network->logits, batch->targets, tokens, c->vocabulary, c->padded_vocabulary,
                                     losses ? losses : network->losses, network->loss_statistics);
    }
    network->forward_done = true;
    network->last_tokens = tokens;
    return true;
}

static void head_backward(struct network *network, const struct batch *batch, float scale)
{
    const struct model_config *c = &network->config;
    const size_t tokens = batch->total_tokens;
    float *head_gradient = found(network, network->gradients, PARAMETER_HEAD_WEIGHT, 0);
    head_gradient = head_gradient ? head_gradient : found(network, network->gradients, PARAMETER_TOKEN_EMBEDDING, 0);
    loss_backward_cpu(network->logits, batch->targets, tokens, c->vocabulary, c->padded_vocabulary,
                      network->loss_statistics, scale);
    linear_backward_weight_cpu(network->logits, network->final_norm, tokens, c->width, c->padded_vocabulary,
                               head_gradient);
    linear_backward_input_cpu(network->logits, head_weight(network), tokens, c->width, c->padded_vocabulary,
                              network->dnorm);
    memset(network->dresidual, 0, tokens * c->width * sizeof *network->dresidual);
    const struct norm_shape shape = {tokens, c->width, c->family == MODEL_GPT2, c->norm_epsilon};
    norm_backward_cpu(&shape, network->dnorm, network->final_input,
                      found(network, network->parameters, PARAMETER_FINAL_NORM_WEIGHT, 0), network->final_statistics,
                      network->dresidual, found(network, network->gradients, PARAMETER_FINAL_NORM_WEIGHT, 0),
                      found(network, network->gradients, PARAMETER_FINAL_NORM_BIAS, 0));
}

/* Runs a layer's forward again for the activations its backward reads. */
static bool run_again(const struct layer_call *call, struct error *error)
{
    network_norm_forward(call->network, call->layer, call->batch->total_tokens, layer_input(call->network, call->layer),
                         NULL, NULL, NULL);
    return layer_forward(call, NULL, error);
}

bool network_backward(struct network *network, const struct recipe *recipe, const struct batch *batch, float scale,
                      const struct attention_random *random, struct error *error)
{
    const struct model_config *c = &network->config;
    if (!network->options.training || !network->forward_done || network->backward_done ||
        network->last_tokens != batch->total_tokens) {
        return error_set(
            error, ERROR_FAILED,
            "model: a backward needs the forward of the same batch before it, on a network made for training");
    }
    head_backward(network, batch, scale);
    for (size_t layer = c->layers; layer-- > 0;) {
        const struct layer_call call = {network, recipe, batch, layer, random};
        if ((network->options.recompute && !run_again(&call, error)) || !layer_backward(&call, error)) {
            return false;
        }
    }
    embedding_backward_cpu(batch->tokens, batch->positions, network->dresidual, batch->total_tokens, c->width,
                           found(network, network->gradients, PARAMETER_TOKEN_EMBEDDING, 0),
                           found(network, network->gradients, PARAMETER_POSITION_EMBEDDING, 0));
    network->backward_done = true;
    return true;
}
