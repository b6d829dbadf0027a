/* delta_cpu.h: what the backward needs to know of each query row before it starts: D, and the scale of a 16-bit dQ. For
 * attention/ only. */
#ifndef ATTENTION_DELTA_CPU_H
#define ATTENTION_DELTA_CPU_H

#include "attention/operands_cpu.h"

/* D_i = sum_d dO_id O_id for every row, [H][total_tokens]; dO as dP uses it (DELTA_QUANTIZED), or as given, rounded to
 * BF16 (DELTA_ORIGINAL). */
void delta_from_output(const struct recipe *recipe, const struct attention_shape *shape, const float *doutput_image,
                       const float *doutput, size_t doutput_stride, const float *output, size_t output_stride,
                       float *delta);

/* s_i of DQUERY_FP16_CAUSAL and DQUERY_FP16_SEQUENCE, [H][total_tokens]: dQ's partials are multiplied by 2^s_i, with
 * s_i = 14 - E, 2 |dO_i| max |V_j| max |K_j|_inf < 2^E, over the keys the row can see, or over the document (paper,
 * appendix A.4). Images as in operands_cpu.h. */
void dquery_scales(const struct recipe *recipe, const struct attention_shape *shape, const struct documents *documents,
                   const float *doutput, const float *value, const float *key, int16_t *scales);

#endif
