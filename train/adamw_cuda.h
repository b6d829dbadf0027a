/* adamw_cuda.h: the optimizer on the GPU, over the flat buffers of the parameter table. Definition: adamw.h.
 *
 * Two forms. With FP32 masters, they are the parameters and the BF16 weights their rounded copy, to the nearest or
 * stochastically; masters, moments and, to the nearest, weights have the bits of adamw_update_cpu on the same
 * gradients. Without masters the BF16 weights are the parameters, rounded stochastically, which keeps small updates on
 * average.
 *
 * What changes from step to step is read from device memory, so that a captured graph can be launched again; clipping
 * follows the gradient norm where reduce_cuda.cu left it, and a norm that is not finite makes the update do nothing.
 */
#ifndef TRAIN_ADAMW_CUDA_H
#define TRAIN_ADAMW_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "model/device.h"
#include "train/adamw.h"

struct adamw_chunk; /* a piece of one tensor, the work of one block */

struct adamw_cuda {
    float *masters; /* device [elements], or NULL */
    float *mean, *square;
    struct adamw_chunk *chunks; /* device */
    size_t chunk_count;
    bool stochastic;
};

/* One step's numbers; made on the host, used in device memory. */
struct adamw_step {
    float beta1, beta2, rest1, rest2, rate, root, epsilon, keep; /* keep: of parameters that decay */
    double clip;                                                 /* 0: none */
    uint64_t seed, number;                                       /* of the stochastic rounding */
};

/* Moments at zero, masters (if wanted) unset: copy the parameters there. `stochastic` without masters is a must. */
bool adamw_cuda_create(struct adamw_cuda *adamw, const struct parameter_table *table, bool masters, bool stochastic,
                       struct error *error);
bool adamw_cuda_destroy(struct adamw_cuda *adamw, struct error *error);
size_t adamw_cuda_bytes(const struct parameter_table *table, bool masters);

/* The numbers of update `t` (from 1); settings->gradient_scale is not used. */
struct adamw_step adamw_step_make(const struct adamw_settings *settings, double clip, int64_t t, uint64_t seed);

/* One update: weights BF16, gradients FP32, norm (of all gradients) and step in device memory. */
bool adamw_update_cuda(const struct adamw_cuda *adamw, const struct adamw_step *step, const double *norm,
                       uint16_t *weights, const float *gradients, device_stream stream, struct error *error);

/* weights = the masters, rounded to the nearest. */
bool adamw_weights_cuda(const struct adamw_cuda *adamw, uint16_t *weights, device_stream stream, struct error *error);

#ifdef __cplusplus
}
#endif

#endif
