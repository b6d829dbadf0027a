/* evaluate.h: the same weights scored with the recipe's attention and with exact attention, on the same tokens (paper,
 * section 4.5).
 *
 * own - exact is what quantization costs, or, below zero, what it wins, which may be a leak. The standard error is over
 * documents, which are independent where tokens are not. A leak has nothing to read at the last position of a scale
 * group: that tells it from weights that have merely fitted themselves to the recipe's rounding.
 */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "model/network.h"

#define EVALUATE_POSITIONS 32 /* of the scale group */

struct evaluation {
    double own, exact;    /* nats a token */
    double gap, gap_se;   /* own - exact and its standard error; NAN without exact, or with fewer than two documents */
    double bits_per_byte; /* own / ln 2; of bytes a token, if the tokens are bytes, else NAN */
    size_t tokens, documents; /* scored targets; documents with any */
    bool has_exact;
    double position_gap[EVALUATE_POSITIONS],
        position_se[EVALUATE_POSITIONS]; /* by the predicting token's place in its group of 32 */
    size_t position_tokens[EVALUATE_POSITIONS];
};

struct evaluate_request {
    const struct dataset *dataset;
    size_t begin, end;      /* share of the stream */
    size_t sequence_length; /* T */
    size_t rows;            /* sequences at a time */
    size_t max_tokens;      /* scored at most; 0: all */
    bool exact;             /* score with exact attention too */
};

/* Runs the network forward over the share, in order. */
bool evaluate(struct network *network, const struct recipe *recipe, const struct evaluate_request *request,
              struct evaluation *evaluation, struct error *error);

enum evaluation_verdict { VERDICT_NONE, VERDICT_COST, VERDICT_LEAK, VERDICT_FITTED, VERDICT_NO_DIFFERENCE };

/* The verdict, given what the probe says of the recipe on these weights, and one sentence of it with its numbers. */
enum evaluation_verdict evaluation_judge(const struct evaluation *evaluation, enum causality probed);
void evaluation_sentence(const struct evaluation *evaluation, enum causality probed, char *text, size_t bytes);

#endif
