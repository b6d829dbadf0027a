/* operands_cuda.h: the quantized operands of one call on the device, laid out in the caller's workspace. For attention/
 * only.
 *
 * As operands_cpu.h: roles of one tensor that share a representation share an image. BF16 images [heads or
 * kv_heads][total_tokens][head_dim].
 */
#ifndef ATTENTION_OPERANDS_CUDA_H
#define ATTENTION_OPERANDS_CUDA_H

#include "attention/quantize_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPERANDS_FORWARD                                                                                               \
    (1u << ROLE_QUERY_SCORE | 1u << ROLE_KEY_SCORE | 1u << ROLE_VALUE_OUTPUT | 1u << ROLE_VALUE_OUTPUT_DIAGONAL)
#define OPERANDS_BACKWARD                                                                                              \
    (1u << ROLE_QUERY_SCORE | 1u << ROLE_KEY_SCORE | 1u << ROLE_VALUE_DPROBABILITY | 1u << ROLE_DOUTPUT_DPROBABILITY | \
     1u << ROLE_DOUTPUT_DVALUE | 1u << ROLE_QUERY_DKEY | 1u << ROLE_KEY_DQUERY | 1u << ROLE_KEY_DQUERY_DIAGONAL)

struct operands_cuda {
    unsigned roles;
    uint16_t *image[ROLE_COUNT];
    uint8_t *fold[ROLE_COUNT]; /* E8M0 [heads][total_tokens] where the representation is E2M1_KEY, else NULL */
    bool owner[ROLE_COUNT];    /* not shared from an earlier role */
    uint32_t *amax_bits;       /* [ROLE_COUNT] */
    float *delta;              /* [H][total_tokens], backward only */
    int16_t *dquery_scale;     /* [H][total_tokens], 16-bit dQ only */
    uint32_t *dscore_largest;  /* one number, DSCORE_TENSOR */
};

/* What the backward adds to the launch that quantizes dO. */
struct doutput_job {
    const uint16_t *doutput, *output;
    size_t doutput_stride, output_stride;
};

/* Lays the operands of `roles` out in the workspace. */
enum attention_status operands_cuda_begin(struct operands_cuda *operands, const struct recipe *recipe,
                                          const struct attention_shape *shape, unsigned roles, void *workspace,
                                          size_t workspace_bytes);

/* Quantizes them: one launch per tensor. `doutput` is NULL in the forward; with it D is summed unless the recipe sums
 * it directly. */
enum attention_status operands_cuda_fill(const struct operands_cuda *operands, const struct recipe *recipe,
                                         const struct attention_shape *shape, const struct attention_schedule *schedule,
                                         const struct attention_inputs_cuda *inputs, const struct doutput_job *doutput,
                                         attention_stream stream);

/* The scales of a 16-bit dQ, into operands->dquery_scale. */
enum attention_status dquery_scales_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                         const struct attention_schedule *schedule,
                                         const struct operands_cuda *operands, attention_stream stream);

#ifdef __cplusplus
}
#endif

#endif
