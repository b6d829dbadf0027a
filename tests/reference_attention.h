/* reference_attention.h: attention and its gradients in FP64, by the plain formulas, a document at a time. */
#ifndef TESTS_REFERENCE_ATTENTION_H
#define TESTS_REFERENCE_ATTENTION_H

#include "attention/attention.h"

/* All tensors are packed [total_tokens][H or Hk][head_dim]; lse [H][total_tokens] in base 2. Results are rounded to
 * FP32 once. */
void reference_forward(const struct attention_shape *shape, const struct documents *documents, const float *query,
                       const float *key, const float *value, float *output, float *lse);
void reference_backward(const struct attention_shape *shape, const struct documents *documents, const float *query,
                        const float *key, const float *value, const float *output_gradient, float *query_gradient,
                        float *key_gradient, float *value_gradient);

/* max - min over the visible scores (natural units), the widest row. */
double reference_score_range(const struct attention_shape *shape, const struct documents *documents, const float *query,
                             const float *key);

#endif
