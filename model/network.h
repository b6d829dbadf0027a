/* network.h: forward and backward of a whole model over a packed batch, on the CPU.
 *
 * FP32 throughout but inside attention, which does what its recipe says. The network owns its parameters, gradients and
 * activations; the optimizer and checkpoints see them as flat buffers described by the parameter table.
 */
#ifndef MODEL_NETWORK_H
#define MODEL_NETWORK_H

#include "attention/attention.h"
#include "data/batch.h"
#include "model/config.h"
#include "model/parameters.h"

struct network_options {
    size_t max_tokens; /* of one batch */
    bool training;     /* false: no gradients, no saved activations */
    bool recompute;    /* keep a layer's input only, and run its forward again in the backward */
};

struct network; /* defined in network_parts.h, for the files of model/ only */

struct network *network_create(const struct model_config *config, const struct network_options *options,
                               struct error *error);
void network_destroy(struct network *network);

/* What network_create would take, in bytes, by kind; for the plan printed before allocation. */
struct network_memory {
    size_t parameters, gradients, activations, workspace, total;
};
void network_memory_plan(const struct model_config *config, const struct network_options *options,
                         struct network_memory *plan);

const struct model_config *network_config(const struct network *network);
const struct parameter_table *network_table(const struct network *network);
float *network_parameters(struct network *network); /* [table->elements] */
float *network_gradients(struct network *network);  /* [table->elements]; NULL if not training */

/* Forward. losses [total_tokens]: -ln p(target) in nats, 0 where the target is ignored; may be NULL with no loss
 * computed. Returns the sum over valid targets in `loss_sum` (FP64). Errors: a token id outside the vocabulary (named),
 * a batch larger than max_tokens, attention's. */
bool network_forward(struct network *network, const struct recipe *recipe, const struct batch *batch, float *losses,
                     double *loss_sum, struct error *error);

/* Backward of the last network_forward with the same arguments: adds to the gradients d(loss_sum * scale). `scale` is 1
 * / (valid targets of the whole step). `random` keys stochastic rounding; its layer is set here. */
bool network_backward(struct network *network, const struct recipe *recipe, const struct batch *batch, float scale,
                      const struct attention_random *random, struct error *error);

void network_zero_gradients(struct network *network);

/* Logits of the last forward: [total_tokens][padded_vocabulary], valid until the backward overwrites them. */
const float *network_logits(const struct network *network);

/* Q, K, V (after RoPE) of a layer in the last training forward, and its dO in the last backward (NULL before one):
 * pointers into the activations with the strides attention saw. dO is kept only if network_keep_output_gradients was
 * called before the backward. */
struct network_attention_view {
    struct attention_shape shape;
    struct attention_inputs inputs;
    const float *output, *output_gradient; /* strides heads * head_dim */
};
bool network_attention(const struct network *network, size_t layer, struct network_attention_view *view);
bool network_keep_output_gradients(struct network *network, struct error *error);

#endif
