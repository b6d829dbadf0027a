/* network_parts.h: the inside of a network, for the files of model/ only.
 *
 * One block of memory holds everything; network_carve lays it out (and, with a NULL base, only counts, which is the
 * memory plan). What a layer's backward needs of its forward is kept per layer when training; with recompute only each
 * layer's input is, and one set of the rest serves all layers in turn, as it does when not training.
 */
#ifndef MODEL_NETWORK_PARTS_H
#define MODEL_NETWORK_PARTS_H

#include "model/network.h"

/* Activations of one layer; N = tokens, C = width, Q = (H + 2 Hk) head_dim, A = H head_dim, U = F or 2 F. */
struct layer_buffers {
    float *input;       /* [N][C], the residual stream before the layer */
    float *norm1;       /* [N][C] */
    float *statistics1; /* [N][2] */
    float *qkv;         /* [N][Q], rotated */
    float *lse;         /* [H][N] */
    float *attention;   /* [N][A] */
    float *middle;      /* [N][C], the residual stream between attention and MLP */
    float *norm2;       /* [N][C] */
    float *statistics2; /* [N][2] */
    float *up;          /* [N][U], bias added */
    float *activation;  /* [N][F] */
};

/* Parameters of one layer, or their gradients; NULL where the family has none. */
struct layer_parameters {
    float *norm1_weight, *norm1_bias, *qkv_weight, *qkv_bias, *output_weight, *output_bias;
    float *norm2_weight, *norm2_bias, *up_weight, *up_bias, *down_weight, *down_bias;
};

struct network {
    struct model_config config;
    struct network_options options;
    struct parameter_table table;
    void *memory;
    float *parameters, *gradients;                       /* [table.elements] */
    struct layer_parameters *weights, *weight_gradients; /* [layers] */
    struct layer_buffers *layers;                        /* [layers] */
    float *final_input;                                  /* [N][C], the residual stream after the last layer */
    float *final_norm;                                   /* [N][C] */
    float *final_statistics;                             /* [N][2] */
    float *logits;                                       /* [N][padded V] */
    float *loss_statistics;                              /* [N][2] */
    float *losses;                                       /* [N], where the caller wants none */
    float *linear;          /* [N][C], a linear's output on its way into the residual stream */
    float *dresidual;       /* [N][C] */
    float *dnorm;           /* [N][C] */
    float *dup;             /* [N][U] */
    float *dactivation;     /* [N][max(F, A)] */
    float *dqkv;            /* [N][Q] */
    float *cosines, *sines; /* [context][head_dim / 2] */
    void *workspace;        /* of attention, grown to what a recipe asks for */
    size_t workspace_bytes;
    float *kept_doutput; /* [layers][N][A] or NULL */
    bool forward_done, backward_done;
    size_t last_tokens;
};

/* Lays out the network's memory from `base` (NULL: counts) and fills `plan`. Needs config, options and table. */
size_t network_carve(struct network *network, unsigned char *base, struct network_memory *plan);

size_t network_qkv_width(const struct model_config *config); /* Q */
size_t network_up_width(const struct model_config *config);  /* U */

/* Workspace for `tokens` tokens in any preset recipe. */
size_t network_workspace_bytes(const struct model_config *config, size_t tokens);

struct attention_shape network_attention_shape(const struct network *network, size_t tokens);

/* What one layer does in one pass. */
struct layer_call {
    struct network *network;
    const struct recipe *recipe;
    const struct batch *batch;
    size_t layer;
    const struct attention_random *random; /* backward only */
};

/* From layer.input (its norm1 is done already) to `output` [N][C]; also takes the norm that follows: the next layer's
 * first, or the final one. */
bool layer_forward(const struct layer_call *call, float *output, struct error *error);

/* network->dresidual: gradient by the layer's output on entry, by its input on return. */
bool layer_backward(const struct layer_call *call, struct error *error);

/* Norm before a layer (layer < layers) or the final norm (layer == layers), of residual + delta + bias, which is
 * written to `sum` (delta NULL: of the residual alone). */
void network_norm_forward(struct network *network, size_t layer, size_t tokens, const float *residual,
                          const float *delta, const float *delta_bias, float *sum);

#endif
