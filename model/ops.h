/* ops.h: the operations of a layer on the CPU, forward and backward, in FP32. For model/ only.
 *
 * Rows are tokens. Results do not depend on the number of threads: every sum is taken by one thread in a fixed order.
 * Gradients of parameters are added to what is there; gradients of activations are written, unless a comment says
 * added.
 */
#ifndef MODEL_OPS_H
#define MODEL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- linear_cpu.c: y [rows][out] = x [rows][in] w [out][in]^T, by CBLAS ---- */

void linear_forward_cpu(const float *x, const float *w, size_t rows, size_t in, size_t out, float *y);
void linear_backward_input_cpu(const float *dy, const float *w, size_t rows, size_t in, size_t out, float *dx);
void linear_backward_weight_cpu(const float *dy, const float *x, size_t rows, size_t in, size_t out,
                                float *dw);                                      /* added */
void bias_backward_cpu(const float *dy, size_t rows, size_t columns, float *db); /* added */

/* ---- norm_cpu.c: LayerNorm (with bias) and RMSNorm (bias NULL, centred false), fused with the residual before it ----
 */

struct norm_shape {
    size_t rows, columns;
    bool centred; /* LayerNorm: the mean is taken off */
    float epsilon;
};

/* sum = residual + delta + delta_bias (delta NULL: sum = residual is not written; delta_bias may be NULL); y =
 * norm(sum) * weight + bias. statistics [rows][2]: mean (0 if not centred) and 1 / deviation. */
void norm_forward_cpu(const struct norm_shape *shape, const float *residual, const float *delta,
                      const float *delta_bias, const float *weight, const float *bias, float *sum, float *y,
                      float *statistics);

/* dx += gradient through the norm; dweight, dbias (NULL if none) added. x is what was normalised. */
void norm_backward_cpu(const struct norm_shape *shape, const float *dy, const float *x, const float *weight,
                       const float *statistics, float *dx, float *dweight, float *dbias);

/* ---- rope_cpu.c ---- */

/* cosines, sines [positions][head_dim / 2]: angles position * base^(-2 i / head_dim), taken in FP64. */
void rope_tables(size_t positions, size_t head_dim, float base, float *cosines, float *sines);

/* Rotates the first `heads` heads of each row in place, pairing channel i with i + head_dim / 2; backward: the other
 * way round. */
void rope_cpu(float *x, size_t stride, const int32_t *positions, size_t rows, size_t heads, size_t head_dim,
              const float *cosines, const float *sines, bool backward);

/* x [rows][columns] += bias. */
void bias_forward_cpu(float *x, const float *bias, size_t rows, size_t columns);

/* ---- activation_cpu.c ---- */

/* x += bias, kept; y = gelu(x), the tanh form. */
void gelu_forward_cpu(float *x, const float *bias, size_t rows, size_t columns, float *y);
void gelu_backward_cpu(const float *x, const float *dy, size_t count, float *dx);

/* x [rows][2 columns]: gate, then up. y = silu(gate) * up. */
void swiglu_forward_cpu(const float *x, size_t rows, size_t columns, float *y);
void swiglu_backward_cpu(const float *x, const float *dy, size_t rows, size_t columns, float *dx);

/* ---- embedding_cpu.c ---- */

/* y [rows][columns] = tokens' rows, plus positions' rows if there is a table for them. */
void embedding_forward_cpu(const int32_t *tokens, const int32_t *positions, const float *token_table,
                           const float *position_table, size_t rows, size_t columns, float *y);
void embedding_backward_cpu(const int32_t *tokens, const int32_t *positions, const float *dy, size_t rows,
                            size_t columns, float *token_gradient, float *position_gradient); /* added */

/* ---- loss_cpu.c: softmax cross-entropy over the true vocabulary ---- */

/* losses [rows]: -ln p(target), 0 where the target is ignored; statistics [rows][2]: largest logit, sum of
 * exponentials. Returns their sum. */
double loss_forward_cpu(const float *logits, const int32_t *targets, size_t rows, size_t vocabulary, size_t stride,
                        float *losses, float *statistics);

/* logits become their gradient times `scale`: 0 for ignored rows and for columns past the vocabulary. */
void loss_backward_cpu(float *logits, const int32_t *targets, size_t rows, size_t vocabulary, size_t stride,
                       const float *statistics, float scale);

#endif
