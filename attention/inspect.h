/* inspect.h: what quantization does to the operands of attention, in numbers: the student's window.
 *
 * Statistics of a whole operand, of P and dS, and a close look at one channel of one block of 32 tokens, before and
 * after a later token grows.
 */
#ifndef ATTENTION_INSPECT_H
#define ATTENTION_INSPECT_H

#include "attention/quantize.h"

#define INSPECT_SCALES 256 /* scale bytes: E8M0 for power-of-two scales, UE4M3 for NVFP4's */

struct inspection {
    enum representation representation;
    size_t elements;
    size_t zeroed;                 /* nonzero values whose code is zero */
    size_t saturated;              /* values beyond the largest code of their block */
    size_t poisoned;               /* values that decode to NaN */
    double relative_error, cosine; /* of the decoded values to the input, as vectors */
    size_t scales[INSPECT_SCALES]; /* how many groups have this scale byte; all zero where there is none */
    double smallest, largest;      /* magnitudes of the input */
};

/* x [total_tokens][heads][head_dim], dense. The input is what the quantizer reads: rounded to BF16, rotated if the role
 * is. */
enum attention_status inspect_operand(const struct recipe *recipe, enum operand_role role,
                                      const struct documents *documents, size_t total_tokens, size_t heads,
                                      size_t head_dim, const float *x, struct inspection *inspection);

/* P and dS of one forward and backward. */
struct inspect_call {
    const struct recipe *recipe;
    struct attention_shape shape;
    struct documents documents;
    const float *query, *key, *value, *doutput; /* dense */
    uint64_t seed;
};
enum inspect_intermediate { INSPECT_PROBABILITY, INSPECT_DSCORE_QUERY, INSPECT_DSCORE_KEY, INSPECT_INTERMEDIATES };
const char *inspect_intermediate_name(enum inspect_intermediate intermediate);

/* Fills one inspection for each intermediate; representation and scales have no meaning there. */
enum attention_status inspect_call(const struct inspect_call *call,
                                   struct inspection inspections[INSPECT_INTERMEDIATES]);

/* One channel of the 32-block that `token` is in. */
struct inspect_row {
    float input, decoded, decoded_after; /* after: with the block's last token made `gain` times as large */
    uint8_t code, code_after;
    double scale, scale_after; /* what the code is multiplied by */
};
struct inspect_block {
    size_t first, rows; /* tokens of the batch */
    struct inspect_row row[TOKEN_BLOCK];
};
enum attention_status inspect_block(const struct recipe *recipe, enum operand_role role,
                                    const struct documents *documents, size_t total_tokens, size_t heads,
                                    size_t head_dim, const float *x, size_t head, size_t channel, size_t token,
                                    float gain, struct inspect_block *block);

#endif
