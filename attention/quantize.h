/* quantize.h: the operands of each product of attention, quantized as a recipe says.
 *
 * One input tensor can feed several products whose contractions run along different axes, so one tensor can have
 * several operands: V of `fp4` is quantized along d for dP, along keys for PV, and per key for PV on the diagonal tile.
 * An operand here is the codes, the scales and the exactly decoded values; the reference computes with the values, GPU
 * kernels with the codes, and tests compare both.
 */
#ifndef ATTENTION_QUANTIZE_H
#define ATTENTION_QUANTIZE_H

#include "attention/attention.h"

enum operand_role {
    ROLE_QUERY_SCORE,           /* Q in S */
    ROLE_KEY_SCORE,             /* K in S */
    ROLE_VALUE_OUTPUT,          /* V in PV off the diagonal tile (everywhere, if the recipe does not tell them apart) */
    ROLE_VALUE_OUTPUT_DIAGONAL, /* V in PV on the diagonal tile */
    ROLE_VALUE_DPROBABILITY,    /* V in dP */
    ROLE_DOUTPUT_DPROBABILITY,  /* dO in dP */
    ROLE_DOUTPUT_DVALUE,        /* dO in dV */
    ROLE_QUERY_DKEY,            /* Q in dK */
    ROLE_KEY_DQUERY,            /* K in dQ off the diagonal tile */
    ROLE_KEY_DQUERY_DIAGONAL,   /* K in dQ on the diagonal tile */
    ROLE_COUNT,
};

/* How an operand is represented; derived from the recipe. */
enum representation {
    REPRESENTATION_FP32,
    REPRESENTATION_BF16,
    REPRESENTATION_E4M3_BLOCK,    /* exponents: one per token, shared by 32 */
    REPRESENTATION_E4M3_TOKEN,    /* exponents: one per token */
    REPRESENTATION_E4M3_TENSOR,   /* one FP32 scale */
    REPRESENTATION_NVFP4_CHANNEL, /* groups of 16 along d; t per token in `exponents` (as E8M0) */
    REPRESENTATION_NVFP4_TOKEN,   /* groups of 16 along tokens, per column; t per 128-token tile and column */
    REPRESENTATION_E2M1_KEY,      /* one exponent per token */
};

enum representation operand_representation(const struct recipe *recipe, enum operand_role role);
const char *operand_role_name(enum operand_role role);
const char *representation_name(enum representation representation);
bool operand_rotated(const struct recipe *recipe, enum operand_role role, size_t head_dim); /* Q and K roles only */

/* Caller's buffers; any but `values` may be NULL. `heads` is H for Q and dO, Hk for K and V. */
struct operand {
    float *values;      /* [heads][total_tokens][head_dim], decoded: a byte 255 exponent decodes to NaN */
    uint8_t *codes;     /* [heads][total_tokens][head_dim], one code a byte; unused for FP32 and BF16 */
    uint8_t *exponents; /* E8M0: [heads][total_tokens], or [heads][total_tokens][head_dim] for NVFP4_TOKEN (t of the
                           element's tile) */
    uint8_t *scales;    /* UE4M3 of the element's group: [heads][total_tokens][head_dim], NVFP4 only */
    float tensor_scale; /* E4M3_TENSOR only */
};

/* Quantizes x [total_tokens][heads][head_dim] (token stride `stride`), rounded to BF16 first (not for FP32), rotated if
 * the role is. */
void quantize_operand_cpu(const struct recipe *recipe, enum operand_role role, const struct documents *documents,
                          size_t total_tokens, size_t heads, size_t head_dim, const float *x, size_t stride,
                          struct operand *operand);

/* x[0..head_dim) rotated in place: Sylvester order, FP32 butterflies, one multiply by fl32(1/sqrt(head_dim)). Its own
 * inverse. Not rounded. head_dim is a power of two. */
void hadamard_rotate(float *x, size_t head_dim);
float hadamard_normal(size_t head_dim); /* fl32(1/sqrt(head_dim)) */

#endif
