/* ops_cuda.h: the operations of ops.h on the GPU, but for the linears. All pointers are device memory.
 *
 * Activations, their gradients and weights are BF16; sums, statistics and gradients of parameters are FP32. The same
 * call gives the same bits on every GPU: sums are cut into pieces that depend on the shape alone and taken in a fixed
 * order, without atomics. Nothing allocates or waits; every call can be recorded in a graph. As in ops.h, gradients of
 * parameters are added to what is there.
 *
 * Arrays start at multiples of 16 bytes, and widths, strides and head dims are multiples that ops_fit_cuda checks.
 * False, with an error: a launch failed. Zero rows are no error.
 */
#ifndef MODEL_OPS_CUDA_H
#define MODEL_OPS_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "model/device.h"
#include "model/ops.h"

/* Refuses, by name, the shapes the kernels do not have. */
bool ops_fit_cuda(size_t width, size_t feed_forward, size_t head_dim, size_t padded_vocabulary, struct error *error);

/* ---- norm_cuda.cu: as norm_forward_cpu and norm_backward_cpu; what is normalised is the rounded sum ---- */

bool norm_forward_cuda(const struct norm_shape *shape, const uint16_t *residual, const uint16_t *delta,
                       const uint16_t *delta_bias, const uint16_t *weight, const uint16_t *bias, uint16_t *sum,
                       uint16_t *y, float *statistics, device_stream stream, struct error *error);

size_t norm_workspace_bytes_cuda(size_t columns);
bool norm_backward_cuda(const struct norm_shape *shape, const uint16_t *dy, const uint16_t *x, const uint16_t *weight,
                        const float *statistics, uint16_t *dx, float *dweight, float *dbias, void *workspace,
                        device_stream stream, struct error *error);

/* db [columns] += sums of dy's columns; the workspace of the norm. */
bool bias_backward_cuda(const uint16_t *dy, size_t rows, size_t columns, float *db, void *workspace,
                        device_stream stream, struct error *error);

/* ---- rope_cuda.cu: as rope_cpu; tables FP32, from rope_tables ---- */

bool rope_cuda(uint16_t *x, size_t stride, const int32_t *positions, size_t rows, size_t heads, size_t head_dim,
               const float *cosines, const float *sines, bool backward, device_stream stream, struct error *error);

/* ---- activation_cuda.cu; bias may be NULL ---- */

bool gelu_forward_cuda(uint16_t *x, const uint16_t *bias, size_t rows, size_t columns, uint16_t *y,
                       device_stream stream, struct error *error);
bool gelu_backward_cuda(const uint16_t *x, const uint16_t *dy, size_t count, uint16_t *dx, device_stream stream,
                        struct error *error);
bool swiglu_forward_cuda(const uint16_t *x, size_t rows, size_t columns, uint16_t *y, device_stream stream,
                         struct error *error);
bool swiglu_backward_cuda(const uint16_t *x, const uint16_t *dy, size_t rows, size_t columns, uint16_t *dx,
                          device_stream stream, struct error *error);

/* ---- embedding_cuda.cu ---- */

bool embedding_forward_cuda(const int32_t *tokens, const int32_t *positions, const uint16_t *token_table,
                            const uint16_t *position_table, size_t rows, size_t columns, uint16_t *y,
                            device_stream stream, struct error *error);

/* gradient [table_rows][columns] += dy's rows, each to the table row `ids` names, in the order of rows; once for the
 * tokens and once for the positions. */
size_t embedding_workspace_bytes_cuda(size_t rows);
bool embedding_backward_cuda(const int32_t *ids, size_t rows, size_t table_rows, const uint16_t *dy, size_t columns,
                             float *gradient, void *workspace, device_stream stream, struct error *error);

/* ---- loss_cuda.cu: softmax cross-entropy over the true vocabulary, and its gradient in place of the logits ---- */

/* losses [rows]: -ln p(target), 0 where the target is ignored. `scale` points to one number in device memory; the
 * logits become their gradient times it, 0 for ignored rows and past the vocabulary. NULL: they stay. */
bool loss_cuda(uint16_t *logits, const int32_t *targets, size_t rows, size_t vocabulary, size_t stride, float *losses,
               const float *scale, device_stream stream, struct error *error);

/* ---- reduce_cuda.cu ---- */

#define REDUCE_SLICES 1024 /* doubles of workspace */

bool sum_cuda(const float *x, size_t count, double *sum, double *workspace, device_stream stream, struct error *error);

/* Euclidean norm, in FP64; NaN or infinite if any element is. */
bool norm_of_cuda(const float *x, size_t count, double *norm, double *workspace, device_stream stream,
                  struct error *error);

#ifdef __cplusplus
}
#endif

#endif
