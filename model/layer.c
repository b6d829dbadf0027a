/* layer.c: one transformer block, forward and backward. See network_parts.h.
 *
 *   norm1 -> QKV (bias or RoPE) -> attention -> output projection -> + residual -> norm2 -> MLP -> + residual
 *
 * The additions to the residual stream are fused with the norm that reads the sum.
 */
#include <math.h>

#include "model/network_parts.h"
#include "model/ops.h"

static struct norm_shape norm_shape_of(const struct network *network, size_t tokens)
{
    return (struct norm_shape){tokens, network->config.width, network->config.family == MODEL_GPT2,
                               network->config.norm_epsilon};
}

void network_norm_forward(struct network *network, size_t layer, size_t tokens, const float *residual,
                          const float *delta, const float *delta_bias, float *sum)
{
    const struct norm_shape shape = norm_shape_of(network, tokens);
    if (layer < network->config.layers) {
        const struct layer_parameters *w = &network->weights[layer];
        norm_forward_cpu(&shape, residual, delta, delta_bias, w->norm1_weight, w->norm1_bias, sum,
                         network->layers[layer].norm1, network->layers[layer].statistics1);
        return;
    }
    const struct parameter *weight = parameter_find(&network->table, PARAMETER_FINAL_NORM_WEIGHT, 0);
    const struct parameter *bias = parameter_find(&network->table, PARAMETER_FINAL_NORM_BIAS, 0);
    norm_forward_cpu(&shape, residual, delta, delta_bias, network->parameters + weight->offset,
                     bias ? network->parameters + bias->offset : NULL, sum, network->final_norm,
                     network->final_statistics);
}

/* ---- attention ---- */

static struct attention_inputs inputs_of(const struct network *network, const float *qkv)
{
    const struct model_config *c = &network->config;
    const size_t stride = network_qkv_width(c), query = c->heads * c->head_dim, key = c->kv_heads * c->head_dim;
    return (struct attention_inputs){qkv, qkv + query, qkv + query + key, stride, stride, stride};
}

struct attention_shape network_attention_shape(const struct network *network, size_t tokens)
{
    const struct model_config *c = &network->config;
    const float scale = 1.0f / sqrtf((float)c->head_dim);
    return (struct attention_shape){tokens, c->heads, c->kv_heads, c->head_dim, true, scale};
}

static bool attention_failed(const struct layer_call *call, enum attention_status status, struct error *error)
{
    char reason[256];
    const struct model_config *c = &call->network->config;
    if (status == ATTENTION_BAD_RECIPE &&
        !recipe_check(call->recipe, c->head_dim, call->random != NULL, reason, sizeof reason)) {
        return !error_set(error, ERROR_FAILED, "%s", reason);
    }
    return status != ATTENTION_OK && !error_set(error, ERROR_FAILED, "layer %zu, recipe %s: %s", call->layer,
                                                call->recipe->name, attention_status_text(status));
}

static bool attend(const struct layer_call *call, struct error *error)
{
    struct network *network = call->network;
    const struct layer_buffers *layer = &network->layers[call->layer];
    const struct attention_shape shape = network_attention_shape(network, call->batch->total_tokens);
    const struct documents documents = {call->batch->offsets, call->batch->documents};
    const struct attention_inputs inputs = inputs_of(network, layer->qkv);
    const enum attention_status status =
        attention_forward_cpu(call->recipe, &shape, &documents, &inputs, layer->attention, shape.heads * shape.head_dim,
                              layer->lse, network->workspace, network->workspace_bytes, NULL);
    return !attention_failed(call, status, error);
}

static bool attend_backward(const struct layer_call *call, const float *doutput, struct error *error)
{
    struct network *network = call->network;
    const struct model_config *c = &network->config;
    const struct layer_buffers *layer = &network->layers[call->layer];
    const struct attention_shape shape = network_attention_shape(network, call->batch->total_tokens);
    const struct documents documents = {call->batch->offsets, call->batch->documents};
    const struct attention_inputs inputs = inputs_of(network, layer->qkv);
    const size_t width = shape.heads * shape.head_dim, stride = network_qkv_width(c);
    const struct attention_gradients gradients = {
        network->dqkv, network->dqkv + width, network->dqkv + width + c->kv_heads * c->head_dim, stride, stride,
        stride};
    struct attention_random random = *call->random;
    random.layer = (uint32_t)call->layer;
    const enum attention_status status =
        attention_backward_cpu(call->recipe, &shape, &documents, &inputs, layer->attention, width, layer->lse, doutput,
                               width, &random, &gradients, network->workspace, network->workspace_bytes, NULL);
    return !attention_failed(call, status, error);
}

/* Positions enter Q and K: GPT-2 has them in its embedding, so only the bias is added here. */
static void finish_qkv(const struct layer_call *call, float *qkv, bool backward)
{
    const struct network *network = call->network;
    const struct model_config *c = &network->config;
    const size_t tokens = call->batch->total_tokens, stride = network_qkv_width(c);
    if (c->family == MODEL_LLAMA) { /* query and key heads lie side by side */
        rope_cpu(qkv, stride, call->batch->positions, tokens, c->heads + c->kv_heads, c->head_dim, network->cosines,
                 network->sines, backward);
    } else if (!backward) {
        bias_forward_cpu(qkv, network->weights[call->layer].qkv_bias, tokens, stride);
    }
}

/* ---- forward ---- */

bool layer_forward(const struct layer_call *call, float *output, struct error *error)
{
    struct network *network = call->network;
    const struct model_config *c = &network->config;
    const struct layer_buffers *layer = &network->layers[call->layer];
    const struct layer_parameters *w = &network->weights[call->layer];
    const size_t tokens = call->batch->total_tokens;
    linear_forward_cpu(layer->norm1, w->qkv_weight, tokens, c->width, network_qkv_width(c), layer->qkv);
    finish_qkv(call, layer->qkv, false);
    if (!attend(call, error)) {
        return false;
    }
    linear_forward_cpu(layer->attention, w->output_weight, tokens, c->heads * c->head_dim, c->width, network->linear);
    const struct norm_shape shape = norm_shape_of(network, tokens);
    norm_forward_cpu(&shape, layer->input, network->linear, w->output_bias, w->norm2_weight, w->norm2_bias,
                     layer->middle, layer->norm2, layer->statistics2);
    linear_forward_cpu(layer->norm2, w->up_weight, tokens, c->width, network_up_width(c), layer->up);
    if (c->family == MODEL_LLAMA) {
        swiglu_forward_cpu(layer->up, tokens, c->ffn, layer->activation);
    } else {
        gelu_forward_cpu(layer->up, w->up_bias, tokens, c->ffn, layer->activation);
    }
    if (output) { /* NULL: run again for its activations only */
        linear_forward_cpu(layer->activation, w->down_weight, tokens, c->ffn, c->width, network->linear);
        network_norm_forward(network, call->layer + 1, tokens, layer->middle, network->linear, w->down_bias, output);
    }
    return true;
}

/* ---- backward ---- */

/* Gradients of a linear's weight, bias (NULL: none) and input. */
static void linear_backward(const float *dy, const float *x, const float *w, size_t rows, size_t in, size_t out,
                            float *dx, float *dw, float *db)
{
    linear_backward_weight_cpu(dy, x, rows, in, out, dw);
    if (db) {
        bias_backward_cpu(dy, rows, out, db);
    }
    linear_backward_input_cpu(dy, w, rows, in, out, dx);
}

static void mlp_backward(const struct layer_call *call)
{
    struct network *network = call->network;
    const struct model_config *c = &network->config;
    const struct layer_buffers *layer = &network->layers[call->layer];
    const struct layer_parameters *w = &network->weights[call->layer], *g = &network->weight_gradients[call->layer];
    const size_t tokens = call->batch->total_tokens;
    linear_backward(network->dresidual, layer->activation, w->down_weight, tokens, c->ffn, c->width,
                    network->dactivation, g->down_weight, g->down_bias);
    if (c->family == MODEL_LLAMA) {
        swiglu_backward_cpu(layer->up, network->dactivation, tokens, c->ffn, network->dup);
    } else {
        gelu_backward_cpu(layer->up, network->dactivation, tokens * c->ffn, network->dup);
    }
    linear_backward(network->dup, layer->norm2, w->up_weight, tokens, c->width, network_up_width(c), network->dnorm,
                    g->up_weight, g->up_bias);
    const struct norm_shape shape = norm_shape_of(network, tokens);
    norm_backward_cpu(&shape, network->dnorm, layer->middle, w->norm2_weight, layer->statistics2, network->dresidual,
                      g->norm2_weight, g->norm2_bias);
}

bool layer_backward(const struct layer_call *call, struct error *error)
{
    struct network *network = call->network;
    const struct model_config *c = &network->config;
    const struct layer_buffers *layer = &network->layers[call->layer];
    const struct layer_parameters *w = &network->weights[call->layer], *g = &network->weight_gradients[call->layer];
    const size_t tokens = call->batch->total_tokens, width = c->heads * c->head_dim;
    mlp_backward(call);
    float *doutput = network->kept_doutput ? network->kept_doutput + call->layer * network->options.max_tokens * width
                                           : network->dactivation;
    linear_backward(network->dresidual, layer->attention, w->output_weight, tokens, width, c->width, doutput,
                    g->output_weight, g->output_bias);
    if (!attend_backward(call, doutput, error)) {
        return false;
    }
    finish_qkv(call, network->dqkv, true);
    linear_backward(network->dqkv, layer->norm1, w->qkv_weight, tokens, c->width, network_qkv_width(c), network->dnorm,
                    g->qkv_weight, g->qkv_bias);
    const struct norm_shape shape = norm_shape_of(network, tokens);
    norm_backward_cpu(&shape, network->dnorm, layer->input, w->norm1_weight, layer->statistics1, network->dresidual,
                      g->norm1_weight, g->norm1_bias);
    return true;
}

bool network_attention(const struct network *network, size_t layer, struct network_attention_view *view)
{
    if (!network->forward_done || !network->options.training || network->options.recompute ||
        layer >= network->config.layers) {
        return false;
    }
    const struct layer_buffers *buffers = &network->layers[layer];
    const size_t width = network->config.heads * network->config.head_dim;
    view->shape = network_attention_shape(network, network->last_tokens);
    view->inputs = inputs_of(network, buffers->qkv);
    view->output = buffers->attention;
    view->output_gradient = network->kept_doutput && network->backward_done
                                ? network->kept_doutput + layer * network->options.max_tokens * width
                                : NULL;
    return true;
}
