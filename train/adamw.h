/* adamw.h: the optimizer, over the flat buffers that the parameter table describes.
 *
 *     m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *     p -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay p)
 *
 * in FP32, t counting updates from 1 (a skipped step is no update). Only tensors the table says so decay.
 */
#ifndef TRAIN_ADAMW_H
#define TRAIN_ADAMW_H

#include "model/parameters.h"

struct adamw {
    float *mean, *square; /* m, v: [table->elements] */
    int64_t updates;      /* t of the last update; 0: none yet */
};

struct adamw_settings {
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    double gradient_scale; /* multiplies the gradients first: clipping */
};

bool adamw_create(struct adamw *adamw, const struct parameter_table *table, struct error *error);
void adamw_destroy(struct adamw *adamw);
size_t adamw_bytes(size_t elements); /* what adamw_create takes */

/* One update; the result does not depend on the number of threads. */
void adamw_update_cpu(struct adamw *adamw, const struct parameter_table *table, const struct adamw_settings *settings,
                      float *parameters, const float *gradients);

/* Euclidean norm, summed in FP64 in an order that the number of threads does not change. NaN or infinite if any element
 * is. */
double gradient_norm_cpu(const float *gradients, size_t elements);

/* The first tensor with a NaN or an infinity in `values`; NULL if there is none. */
const struct parameter *parameter_nonfinite(const struct parameter_table *table, const float *values);

#endif
