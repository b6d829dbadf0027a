/* probe.h: does a later token move an earlier row? (paper, sections 3.2 and 4.5, appendix A.3)
 *
 * Attention runs twice, forward and backward, on inputs that differ in one token's K, V, Q or dO. Whatever changes at
 * an earlier row came from the future. Verdicts are taken on decoded operands and on which rows move, not on how far:
 *   exact     no bit of an earlier row of O or dQ, nor of an earlier token's decoded operands, moves
 *   in block  rows before the token's 32-block are bit-equal, and operand values that earlier rows read change only
 * below their block's normal range (|x| < 2^-6 2^e) leaky     anything more, or any change in another document A mild
 * perturbation certifies nothing: power-of-two scales keep E4M3 codes until the block's maximum grows 2^14-fold. So
 * gains reach 1e6, and coverage, how many scale groups changed at all, is reported beside every verdict.
 */
#ifndef ATTENTION_PROBE_H
#define ATTENTION_PROBE_H

#include "attention/attention.h"

enum probe_tensor { PROBE_KEY, PROBE_VALUE, PROBE_KEY_VALUE, PROBE_QUERY, PROBE_DOUTPUT, PROBE_TENSOR_COUNT };

enum probe_change {
    PROBE_REDRAW, /* a new draw of the same size */
    PROBE_GAIN_4,
    PROBE_GAIN_100,
    PROBE_GAIN_1E4,
    PROBE_GAIN_1E6,
    PROBE_ZERO,
    PROBE_SWAP, /* with the token after it */
    PROBE_NAN,  /* these two are no part of a verdict */
    PROBE_INFINITY,
    PROBE_CHANGE_COUNT,
};
#define PROBE_FINITE_CHANGES PROBE_NAN

const char *probe_tensor_name(enum probe_tensor tensor);
const char *probe_change_name(enum probe_change change);

/* What is probed. Inputs are [total_tokens][heads or kv_heads][head_dim], dense; NULL: N(0, 1) from `seed`, rounded to
 * BF16. */
struct probe_setup {
    const struct recipe *recipe;
    struct attention_shape shape; /* causal */
    struct documents documents;
    const float *query, *key, *value, *doutput;
    uint64_t seed;
};

/* One perturbation. Relative changes are |new - old| / (largest |old| of the row). */
struct probe_outcome {
    bool row_in_block, row_outside; /* an earlier row of O or dQ moved: in the token's 32-block, before it */
    bool other_document;            /* a row of another document moved */
    bool operand_moved,
        operand_above; /* an earlier token's operand moved; one that earlier rows read did, in the normal range */
    double output_change, dquery_change; /* largest, at earlier rows of the document */
    double document_change;              /* largest of either, in other documents */
    size_t groups, groups_rescaled;      /* scale groups that hold the token; that have another scale now */
    enum causality verdict;
};

struct probe; /* inputs, the unperturbed run, scratch */

/* NULL and a status if the recipe, shape or offsets are wrong or memory is short. */
struct probe *probe_create(const struct probe_setup *setup, enum attention_status *status);
void probe_destroy(struct probe *probe);

/* Perturbs token `position` in one way. */
enum attention_status probe_perturb(struct probe *probe, size_t position, enum probe_tensor tensor,
                                    enum probe_change change, struct probe_outcome *outcome);

/* Adds an outcome to a total: flags or-ed, changes and verdicts their worst, groups summed. Begin with a zeroed total.
 */
void probe_add(struct probe_outcome *total, const struct probe_outcome *outcome);

/* Every finite change of every tensor at `count` positions spread over all documents. `table`
 * [PROBE_TENSOR_COUNT][PROBE_FINITE_CHANGES] may be NULL. */
enum attention_status probe_run(struct probe *probe, size_t count, struct probe_outcome *total,
                                struct probe_outcome *table);

/* The picture: changes [total_tokens][columns]: largest relative change of row i of O and dQ when token positions[j]'s
 * K and V are perturbed. */
enum attention_status probe_picture(struct probe *probe, enum probe_change change, const size_t *positions,
                                    size_t columns, float *changes);

/* The positions that probe_run uses: `count` of them, ascending, spread over the tokens, with both edges of blocks and
 * tiles among them. Returns how many there are (at most `count`). */
size_t probe_positions(const struct documents *documents, size_t count, size_t *positions);

#endif
