/* attention.h: causal (or full) self-attention over packed documents, forward and backward, in any recipe.
 *
 * Tokens of a batch are packed: `total_tokens` rows, documents marked by offsets. Row t of head h of a tensor begins at
 * base + t * stride + h * head_dim; strides are in elements, so Q, K and V may lie side by side in one buffer. H query
 * heads share Hk key/value heads in groups of H / Hk. Nothing crosses a document in any recipe but those with
 * tensor-wide scales.
 *
 * The CPU functions are the definition (readable first). They take FP32 values and round them to BF16 themselves,
 * unless the recipe is fp32; outputs are BF16-rounded floats, likewise. No function allocates, prints or exits; the
 * caller gives a workspace.
 */
#ifndef ATTENTION_ATTENTION_H
#define ATTENTION_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention/documents.h"
#include "attention/recipe.h"
#include "attention/status.h"

#define TOKEN_BLOCK  32  /* tokens that share an operand's exponent */
#define TILE         128 /* queries, keys of a tile */
#define HEAD_DIM_MAX 256

struct attention_shape {
    size_t total_tokens;
    size_t heads;    /* H */
    size_t kv_heads; /* Hk, divides H */
    size_t head_dim; /* CPU: any multiple of 16 up to 256 */
    bool causal;
    float softmax_scale;
};

struct attention_inputs {
    const float *query, *key, *value;              /* [total_tokens][H or Hk][head_dim] */
    size_t query_stride, key_stride, value_stride; /* elements from one token to the next */
};

struct attention_gradients {
    float *query, *key, *value; /* dQ, dK, dV: every row is written */
    size_t query_stride, key_stride, value_stride;
};

/* What keys the stochastic rounding of dS: the same values give the same bits. */
struct attention_random {
    uint64_t seed;
    uint64_t step;
    uint32_t layer;
    uint32_t query_offset; /* added to token numbers: where this call's tokens begin in the step */
};

/* Intermediates of a call, for tests, inspect and the probe. Any pointer may be NULL. Each is
 * [H][total_tokens][total_tokens], row = query; only pairs of one document that the mask allows are written. */
struct attention_trace {
    float *probability_value; /* forward: what multiplied V, divided by l */
    float *probability;       /* backward: 2^(x - lse), unrounded */
    float *dprobability;      /* backward: dP */
    float *dscore;            /* backward: P (dP - D), before it is quantized */
    float *dscore_query;      /* backward: the dS of dQ, decoded */
    float *dscore_key;        /* backward: the dS of dK, decoded */
    float *delta;             /* backward: D, [H][total_tokens] */
};

/* Bytes either pass needs. Depends on the counts only, not on where documents begin. */
size_t attention_workspace_bytes(const struct recipe *recipe, const struct attention_shape *shape);

/* O [total_tokens][H][head_dim] and lse [H][total_tokens]: base 2, FP32, +inf for a row that sees no key (its O is 0).
 */
enum attention_status attention_forward_cpu(const struct recipe *recipe, const struct attention_shape *shape,
                                            const struct documents *documents, const struct attention_inputs *inputs,
                                            float *output, size_t output_stride, float *lse, void *workspace,
                                            size_t workspace_bytes, const struct attention_trace *trace);

/* Gradients of the same call. `output` and `lse` are the forward's. dQ and dK include softmax_scale. */
enum attention_status attention_backward_cpu(const struct recipe *recipe, const struct attention_shape *shape,
                                             const struct documents *documents, const struct attention_inputs *inputs,
                                             const float *output, size_t output_stride, const float *lse,
                                             const float *output_gradient, size_t output_gradient_stride,
                                             const struct attention_random *random,
                                             const struct attention_gradients *gradients, void *workspace,
                                             size_t workspace_bytes, const struct attention_trace *trace);

/* Base-2 lse as kept above to the public natural logarithm: -inf for a row that sees no key. */
void attention_public_lse(const float *lse, float *natural, size_t count);

#endif
