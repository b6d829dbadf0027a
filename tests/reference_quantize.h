/* reference_quantize.h: attention's quantizers again, element by element from their definitions: every element looks
 * its whole group up by itself. Nothing of attention/quantize_cpu.c is used. */
#ifndef TESTS_REFERENCE_QUANTIZE_H
#define TESTS_REFERENCE_QUANTIZE_H

#include "attention/quantize.h"

/* Owned arrays, laid out as struct operand says. */
struct reference_operand {
    enum representation representation;
    size_t tokens, heads, head_dim;
    float *values;
    uint8_t *codes, *exponents, *scales;
    double tensor_scale;
};

/* The representation that a preset's table gives an operand. */
enum representation reference_representation(const struct recipe *recipe, enum operand_role role);

/* One row as every quantizer reads it: BF16, rotated if `rotate`, BF16 again; unchanged for FP32. */
void reference_load(float *row, size_t head_dim, bool round, bool rotate);

/* Quantizes x [tokens][heads][head_dim], token stride `stride`. */
struct reference_operand reference_quantize(const struct recipe *recipe, enum operand_role role,
                                            const struct documents *documents, size_t tokens, size_t heads,
                                            size_t head_dim, const float *x, size_t stride);
void reference_operand_free(struct reference_operand *operand);

/* NVFP4 of one vector of up to 128 FP32 numbers (`count`, `step` apart), groups of 16 from its first: decoded values,
 * in place. A NaN or infinity makes its group NaN. */
void reference_nvfp4_vector(float *x, size_t count, size_t step);

#endif
