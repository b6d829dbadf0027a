/* quantize_cuda.h: how one tensor's quantization is described to its kernel. For attention/ only. */
#ifndef ATTENTION_QUANTIZE_CUDA_H
#define ATTENTION_QUANTIZE_CUDA_H

#include "attention/attention_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUANTIZE_OUTPUTS 3 /* most representations of one tensor */

struct quantize_output {
    enum representation representation;
    struct operand_cuda to; /* [heads][total_tokens][head_dim] and so on, as struct operand */
};

/* One launch: every representation that one tensor needs, and for dO the row sums D = sum_d image_d O_d. */
struct quantize_job {
    const uint16_t *x; /* [total_tokens][heads][head_dim], token stride `stride` */
    size_t stride;
    size_t total_tokens;
    uint32_t heads;
    uint32_t outputs;
    struct quantize_output output[QUANTIZE_OUTPUTS];
    bool rotate;
    float normal; /* fl32(1 / sqrt head_dim) */
    enum scale_rule rule;
    const int32_t *items, *item_count;
    uint32_t max_items;
    const uint16_t *attention_output; /* O, for D; NULL: none */
    size_t attention_output_stride;
    bool original_delta; /* D from x itself instead of output 0's image */
    float *delta;        /* [heads][total_tokens] */
};

/* Fills a job for `roles` of one tensor (same rotation). Outputs' buffers are the caller's. */
enum attention_status quantize_launch(const struct quantize_job *job, size_t head_dim, attention_stream stream);

#ifdef __cplusplus
}
#endif

#endif
