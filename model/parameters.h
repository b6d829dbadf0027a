/* parameters.h: the one table of a model's parameters.
 *
 * It drives initialisation, the optimizer (which tensors decay), checkpoints, export and tests. All parameters lie in
 * one flat FP32 buffer in table order; gradients and moments use the same offsets.
 */
#ifndef MODEL_PARAMETERS_H
#define MODEL_PARAMETERS_H

#include <stdint.h>

#include "model/config.h"

enum parameter_init {
    INIT_NORMAL,
    INIT_NORMAL_RESIDUAL,
    INIT_ZERO,
    INIT_ONE
}; /* normal: sd 0.02; residual: 0.02 / sqrt(2 layers) */

enum parameter_kind {                               /* which of a layer's tensors, or of the model's */
                      PARAMETER_TOKEN_EMBEDDING,    /* [padded V][C] */
                      PARAMETER_POSITION_EMBEDDING, /* [T][C], GPT-2 */
                      PARAMETER_NORM1_WEIGHT,
                      PARAMETER_NORM1_BIAS, /* [C] */
                      PARAMETER_QKV_WEIGHT, /* [(H + 2 Hk) head_dim][C]: rows of Q, then K, then V */
                      PARAMETER_QKV_BIAS,
                      PARAMETER_OUTPUT_WEIGHT, /* [C][H head_dim] */
                      PARAMETER_OUTPUT_BIAS,
                      PARAMETER_NORM2_WEIGHT,
                      PARAMETER_NORM2_BIAS,
                      PARAMETER_UP_WEIGHT, /* GPT-2 [F][C]; Llama [2 F][C]: gate rows, then up rows */
                      PARAMETER_UP_BIAS,
                      PARAMETER_DOWN_WEIGHT, /* [C][F] */
                      PARAMETER_DOWN_BIAS,
                      PARAMETER_FINAL_NORM_WEIGHT,
                      PARAMETER_FINAL_NORM_BIAS,
                      PARAMETER_HEAD_WEIGHT, /* [padded V][C], untied only */
                      PARAMETER_KIND_COUNT,
};

struct parameter {
    char name[64]; /* "layers.3.qkv.weight": also the checkpoint's name */
    enum parameter_kind kind;
    size_t layer;         /* 0 for the model's own */
    size_t rows, columns; /* columns = 1 for vectors */
    size_t offset;        /* elements from the start of the flat buffer; a multiple of 64 */
    enum parameter_init init;
    bool decays; /* matrices do, vectors do not */
};

struct parameter_table {
    struct parameter *entries;
    size_t count;
    size_t elements; /* of the flat buffer, padding included */
};

/* Builds the table; release with parameter_table_free. */
bool parameter_table_make(struct parameter_table *table, const struct model_config *config, struct error *error);
void parameter_table_free(struct parameter_table *table);

/* The entry of a kind and layer; NULL if this family has none. */
const struct parameter *parameter_find(const struct parameter_table *table, enum parameter_kind kind, size_t layer);

/* Fills `values` [elements] from `seed`, each tensor from its own counter-based stream, so that a tensor's start does
 * not depend on the others. Padding and padded vocabulary rows are zero. */
void parameters_initialise(const struct parameter_table *table, const struct model_config *config, uint64_t seed,
                           float *values);

#endif
