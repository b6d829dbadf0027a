/* attention_cuda.h: attention on a GPU, every recipe, head dims 64 and 128 (paper, sections 3.3 to 3.6).
 *
 * The same contract as attention.h with BF16 tensors in device memory. A schedule is made once for each batch, on the
 * device, from device offsets: its kernels' grids depend on capacities only, so one captured graph serves every set of
 * documents of the same total. No call allocates or waits.
 *
 * Products run on BF16 tensor cores over exactly decoded operands. What a GPU lacks is refused by attention_check_cuda,
 * by name.
 */
#ifndef ATTENTION_ATTENTION_CUDA_H
#define ATTENTION_ATTENTION_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "attention/quantize.h"

typedef struct CUstream_st *attention_stream; /* a cudaStream_t */

/* The device's view of a batch. Buffers belong to the caller (attention_schedule_bytes); contents are written by
 * attention_schedule_cuda. */
struct attention_schedule {
    const int32_t *offsets;        /* device [max_documents + 1] */
    const int32_t *document_count; /* device, one number <= max_documents */
    size_t total_tokens, max_documents;
    int32_t *items;      /* device [max_items][4]: begin, end, first token, cost; dearest first */
    int32_t *item_count; /* device, one number */
    size_t max_items;    /* ceil(total_tokens / 128) + max_documents */
    void *scratch;
    size_t scratch_bytes;
};

size_t attention_schedule_bytes(size_t total_tokens, size_t max_documents);

/* Lays the schedule out in `memory` (device, attention_schedule_bytes). No device work. */
void attention_schedule_layout(struct attention_schedule *schedule, size_t total_tokens, size_t max_documents,
                               void *memory);

/* Lists and sorts the tiles of the documents that `offsets` and `document_count` (device) describe now. */
enum attention_status attention_schedule_cuda(struct attention_schedule *schedule, const int32_t *offsets,
                                              const int32_t *document_count, bool causal, attention_stream stream);

struct attention_inputs_cuda {
    const uint16_t *query, *key, *value;           /* BF16 [total_tokens][H or Hk][head_dim] */
    size_t query_stride, key_stride, value_stride; /* elements, multiples of 8 */
};

struct attention_gradients_cuda {
    uint16_t *query, *key, *value;
    size_t query_stride, key_stride, value_stride;
};

/* seed and step are read from device memory, so that a captured graph draws new numbers every time. */
struct attention_random_cuda {
    const uint64_t *seed_step; /* device [2] */
    uint32_t layer, query_offset;
};

/* Everything a GPU cannot do of what the CPU can: one line in `message`. `shared_bytes`: what a block may have. */
bool attention_check_cuda(const struct recipe *recipe, const struct attention_shape *shape, size_t shared_bytes,
                          char *message, size_t message_bytes);

size_t attention_workspace_bytes_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                      size_t max_documents);

/* O [total_tokens][H][head_dim] BF16; lse [H][total_tokens] FP32, base 2, +inf for rows that see no key. */
enum attention_status attention_forward_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                             const struct attention_schedule *schedule,
                                             const struct attention_inputs_cuda *inputs, uint16_t *output,
                                             size_t output_stride, float *lse, void *workspace, size_t workspace_bytes,
                                             attention_stream stream);

enum attention_status attention_backward_cuda(const struct recipe *recipe, const struct attention_shape *shape,
                                              const struct attention_schedule *schedule,
                                              const struct attention_inputs_cuda *inputs, const uint16_t *output,
                                              size_t output_stride, const float *lse, const uint16_t *output_gradient,
                                              size_t output_gradient_stride, const struct attention_random_cuda *random,
                                              const struct attention_gradients_cuda *gradients, void *workspace,
                                              size_t workspace_bytes, attention_stream stream);

/* One operand alone, with its codes and scales, for tests and inspect: buffers as struct operand, in device memory;
 * `image` BF16 takes the place of `values` and may not be NULL. */
struct operand_cuda {
    uint16_t *image;
    uint8_t *codes, *exponents, *scales;
    uint32_t *amax_bits; /* device, one number: REPRESENTATION_E4M3_TENSOR only; written */
};
enum attention_status quantize_operand_cuda(const struct recipe *recipe, enum operand_role role,
                                            const struct attention_schedule *schedule, size_t heads, size_t head_dim,
                                            const uint16_t *x, size_t stride, const struct operand_cuda *operand,
                                            attention_stream stream);

#ifdef __cplusplus
}
#endif

#endif
