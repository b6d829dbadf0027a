/* attention_exact.h: FP64 results for a case's inputs, and how near a call came to them. */
#ifndef TESTS_ATTENTION_EXACT_H
#define TESTS_ATTENTION_EXACT_H

#include "tests/attention_case.h"

struct exact {
    float *output, *lse, *dquery, *dkey, *dvalue;
};

struct exact exact_make(const struct attention_case *c);
void exact_free(struct exact *exact);

/* Fails the test if O or dV are farther than `output`, dQ or dK than `gradient`: relative Frobenius norms. */
void expect_near(const struct attention_case *c, const struct exact *exact, double output, double gradient);

#endif
