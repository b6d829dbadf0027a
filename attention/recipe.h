/* recipe.h: which number format, scale and rounding every operand of attention has.
 *
 * A recipe is a struct of independent switches; a preset is a recipe with a name. The paper's sections 3.1 to 3.4 and
 * its appendix A say why each switch exists. Operands not named by a switch are FP32 accumulators.
 */
#ifndef ATTENTION_RECIPE_H
#define ATTENTION_RECIPE_H

#include <stdbool.h>
#include <stddef.h>

#include "attention/exponential.h"
#include "attention/scale.h"

enum operand_format {               /* an input tensor's format in one product */
                      OPERAND_FP32, /* not rounded: the yardstick */
                      OPERAND_BF16,
                      OPERAND_E4M3,  /* shared power-of-two exponent, see `exponents` */
                      OPERAND_NVFP4, /* E2M1, E4M3 scale per 16 elements along the contraction, power-of-two t per token
                                        or 128-token tile */
};

enum exponent_group {                  /* over what an E4M3 operand shares its exponent */
                      EXPONENT_BLOCK,  /* 32 tokens of one document, full head dim */
                      EXPONENT_TOKEN,  /* one token: causally exact */
                      EXPONENT_TENSOR, /* one FP32 scale over all tokens and heads of the call: leaks, also across
                                          documents */
};

enum probability_format {
    PROBABILITY_FP32,
    PROBABILITY_BF16,
    PROBABILITY_E4M3_FIXED, /* E4M3(2^(x - m + c)) */
    PROBABILITY_E4M3_GROUP, /* one exponent per row and 32 keys */
    PROBABILITY_E2M1,       /* NVFP4 along keys (PV) or queries (dV) */
};

enum dscore_format {
    DSCORE_FP32,
    DSCORE_BF16,
    DSCORE_E4M3,
    DSCORE_E2M1, /* NVFP4 along keys for dQ, along queries for dK */
};

enum dscore_scale {                /* over what an E4M3 dS shares its exponent */
                    DSCORE_BLOCK,  /* 32 queries x 32 keys */
                    DSCORE_ROW,    /* one query, 32 keys: causally exact */
                    DSCORE_TILE,   /* 128 x 128 */
                    DSCORE_TENSOR, /* the whole call */
                    DSCORE_FIXED,  /* 2^dscore_exponent */
};

enum value_groups {                       /* 4-bit V and K whose groups run along keys */
                    VALUE_KEYED_DIAGONAL, /* grouped off the diagonal tile, one power of two per key on it */
                    VALUE_GROUPED,        /* grouped on every tile: leaks */
                    VALUE_KEYED,          /* one power of two per key on every tile */
};

enum dquery_accumulation {
    DQUERY_FP32,
    DQUERY_FP16_SEQUENCE, /* one scale per document and head: leaks */
    DQUERY_FP16_CAUSAL,   /* scale from what the query can see */
};

enum delta_source {                  /* D_i = sum_d dO_id O_id, or the direct sum */
                    DELTA_QUANTIZED, /* the dO of dP: consistent */
                    DELTA_DIRECT,    /* sum_j P_ij dP_ij */
                    DELTA_ORIGINAL,  /* mismatch of section 4.5: the unquantized dO */
};

struct recipe {
    char name[32];
    enum operand_format score;                  /* Q, K in S = Q K^T */
    enum operand_format value;                  /* V in PV and dP */
    enum operand_format output_gradient;        /* dO in dP and dV */
    enum operand_format gradient;               /* Q, K in dK, dQ */
    enum probability_format probability;        /* P in PV */
    enum probability_format probability_dvalue; /* P in dV */
    enum dscore_format dscore;
    enum exponent_group exponents; /* of every E4M3 operand */
    enum scale_rule rule;
    enum dscore_scale dscore_scale;
    int dscore_exponent;            /* for DSCORE_FIXED */
    bool dscore_stochastic;         /* the dK operand of an E2M1 dS is rounded stochastically */
    enum value_groups value_groups; /* for a NVFP4 V (and K in dQ) */
    enum dquery_accumulation dquery;
    enum delta_source delta;
    bool hadamard_128;                          /* rotate Q and K where head_dim = 128 */
    bool hadamard;                              /* rotate Q and K at any power-of-two head_dim */
    int probability_shift;                      /* c */
    float rescale_threshold;                    /* tau */
    enum exponential_kind exponential;          /* forward */
    enum exponential_kind exponential_backward; /* differs only by deliberate mismatch */
    int diagonal_forward;  /* queries that share one diagonal decision in the forward: 128, or 256 */
    int diagonal_backward; /* the same in the backward */
    bool mismatch; /* allow a backward that does not match its forward (section 4.5): recipe_check refuses it otherwise
                    */
    bool forced;   /* allow c + tau beyond log2 448 (to show what happens there) */
};

enum causality { CAUSALITY_EXACT, CAUSALITY_IN_BLOCK, CAUSALITY_LEAKY };

size_t recipe_count(void);
const struct recipe *recipe_at(size_t index);       /* presets, in the order they are listed */
const struct recipe *recipe_find(const char *name); /* NULL if there is none of that name */

/* Sets one switch from text, as --recipe-set does: "dscore-scale=row". On failure returns false with one line in
 * `message`. The name becomes "<preset>+". */
bool recipe_set(struct recipe *recipe, const char *assignment, char *message, size_t message_bytes);

/* True if the switches agree with each other, the head dim and the device's abilities; else one line naming the
 * switches. */
bool recipe_check(const struct recipe *recipe, size_t head_dim, bool training, char *message, size_t message_bytes);

/* What the switches promise by construction (probe measures it). */
enum causality recipe_causality(const struct recipe *recipe);
const char *causality_name(enum causality causality); /* "exact", "in block", "leaky" */

bool recipe_rotates(const struct recipe *recipe, size_t head_dim);

/* Every switch as key and value text, for `flamia recipes`, the log and checkpoints: index from 0, false past the end.
 * Each pair, given back to recipe_set, reproduces the switch. */
bool recipe_switch(const struct recipe *recipe, size_t index, const char **key, char *value, size_t value_bytes,
                   const char **help);

#endif
