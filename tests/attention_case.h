/* attention_case.h: one call of attention with everything it needs: random inputs, buffers filled with poison, results
 * and, if asked for, the trace. */
#ifndef TESTS_ATTENTION_CASE_H
#define TESTS_ATTENTION_CASE_H

#include "attention/attention.h"
#include "tests/support.h"

struct attention_case {
    struct attention_shape shape;
    struct documents documents;
    int32_t *offsets;
    struct attention_random random;
    size_t query_count, key_count; /* elements of Q-like and K-like tensors */
    float *query, *key, *value, *output_gradient;
    float *output, *lse, *dquery, *dkey, *dvalue;
    unsigned char workspace_fill; /* 0xFF unless a test changes it */
    struct attention_trace trace;
    bool traced;
};

/* Documents of `lengths[count]` tokens; N(0, 1) inputs; softmax_scale 1/sqrt(head_dim). */
struct attention_case case_make(struct random_stream *stream, const size_t *lengths, size_t count, size_t heads,
                                size_t kv_heads, size_t head_dim, bool causal);
void case_trace(struct attention_case *c); /* from now on calls are traced */
void case_forward(struct attention_case *c, const struct recipe *recipe);
void case_backward(struct attention_case *c, const struct recipe *recipe);
void case_run(struct attention_case *c, const struct recipe *recipe); /* both */
/* A case that holds document `n` of `c` alone, with the random numbers of its place. */
struct attention_case case_document(const struct attention_case *c, size_t n);
/* Fails the test unless document `n` of `c` has the bits of `alone`: O, lse, dQ, dK, dV. */
void case_expect_same_document(const struct attention_case *c, size_t n, const struct attention_case *alone);
void case_expect_same(const struct attention_case *a, const struct attention_case *b);
struct attention_case case_copy(const struct attention_case *c); /* the same inputs, fresh buffers */
void case_free(struct attention_case *c);

/* A copy of a preset with switches set from text, NULL-terminated; fails the test if one is refused. */
struct recipe recipe_with(const char *preset, const char *const *assignments);

#endif
