/* sample.h: drawing the next token from logits. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "data/error.h"

struct sampler {
    double temperature; /* 0: the most likely token */
    size_t top_k;       /* only the k most likely; 0: all */
    uint64_t seed;
};

/* The token at place `index` of the text: a pure function of logits, sampler and index. `scratch` [vocabulary]. Fails
 * on logits that are not finite. */
bool sample_token(const struct sampler *sampler, const float *logits, size_t vocabulary, uint64_t index,
                  double *scratch, int32_t *token, struct error *error);

#endif
