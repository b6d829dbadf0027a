/* exponential.h: the base-2 exponentials attention can use (paper, sections 3.4 and 4.4).
 *
 * `exact` is the correctly shaped reference every recipe trains with; the polynomial may replace it in both passes;
 * Schraudolph and Mitchell-P are bit tricks for inference only.
 */
#ifndef ATTENTION_EXPONENTIAL_H
#define ATTENTION_EXPONENTIAL_H

enum exponential_kind {
    EXPONENTIAL_EXACT,
    EXPONENTIAL_POLYNOMIAL,  /* degree-3 on the fraction, clamped at -127 */
    EXPONENTIAL_SCHRAUDOLPH, /* inference only */
    EXPONENTIAL_MITCHELL,    /* inference only: Mitchell-P, straight to E2M1 probabilities */
};

/* 2^x for one x <= about 128; 2^-inf = 0. */
float exponential_base2(enum exponential_kind kind, float x);

/* In place over `count` values: the same bits as exponential_base2 on each. */
void exponential_base2_array(enum exponential_kind kind, float *x, unsigned long count);

#endif
