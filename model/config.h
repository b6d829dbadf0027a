/* config.h: the shape of a model, and the shapes that have names.
 *
 * Two families: GPT-2 (LayerNorm, learned positions, GELU (tanh form), biases, tied head) and Llama (RMSNorm,
 * half-split RoPE, SwiGLU, no biases, grouped-query attention, tied or untied head).
 */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "data/error.h"

enum model_family { MODEL_GPT2, MODEL_LLAMA };

struct model_config {
    enum model_family family;
    size_t layers;
    size_t width;             /* C, channels of the residual stream */
    size_t heads;             /* H */
    size_t kv_heads;          /* Hk, divides H; = H for GPT-2 */
    size_t head_dim;          /* H * head_dim need not equal C for Llama; does for GPT-2 */
    size_t ffn;               /* hidden width of the MLP: 4 C for GPT-2 */
    size_t vocabulary;        /* V: token ids below it */
    size_t padded_vocabulary; /* V rounded up to a multiple of 128: rows of the embedding; extra logits never enter the
                                 softmax */
    size_t context;           /* T: longest document, and rows of the position table (GPT-2) */
    bool tied_head;
    float norm_epsilon; /* 1e-5 */
    float rope_base;    /* Llama: 10000 or 500000 */
};

const char *model_family_name(enum model_family family); /* "gpt2", "llama" */

/* Every field positive, heads divide, head_dim a multiple of 16 up to 256, sizes whose products fit; else one line
 * naming the field. */
bool model_config_check(const struct model_config *config, struct error *error);

/* Parameters in total, and FLOPs (multiply and add apart) of one training step per token at row length T: 6 N + 12
 * layers H head_dim T (causal halves the second). */
size_t model_parameter_count(const struct model_config *config);
double model_flops_per_token(const struct model_config *config, size_t sequence_length);

#endif
