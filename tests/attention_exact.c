/* attention_exact.c: see attention_exact.h. */
#include "tests/attention_exact.h"

#include <stdlib.h>

#include "tests/reference_attention.h"

struct exact exact_make(const struct attention_case *c)
{
    struct exact exact = {test_alloc(c->query_count * sizeof(float)),
                          test_alloc(c->shape.heads * c->shape.total_tokens * sizeof(float)),
                          test_alloc(c->query_count * sizeof(float)), test_alloc(c->key_count * sizeof(float)),
                          test_alloc(c->key_count * sizeof(float))};
    reference_forward(&c->shape, &c->documents, c->query, c->key, c->value, exact.output, exact.lse);
    reference_backward(&c->shape, &c->documents, c->query, c->key, c->value, c->output_gradient, exact.dquery,
                       exact.dkey, exact.dvalue);
    return exact;
}

void exact_free(struct exact *exact)
{
    free(exact->output);
    free(exact->lse);
    free(exact->dquery);
    free(exact->dkey);
    free(exact->dvalue);
}

void expect_near(const struct attention_case *c, const struct exact *exact, double output, double gradient)
{
    const struct {
        const char *name;
        double error, bound;
    } each[] = {
        {"O", relative_error(c->output, exact->output, c->query_count), output},
        {"dQ", relative_error(c->dquery, exact->dquery, c->query_count), gradient},
        {"dK", relative_error(c->dkey, exact->dkey, c->key_count), gradient},
        {"dV", relative_error(c->dvalue, exact->dvalue, c->key_count), output},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        ck_assert_msg(each[i].error <= each[i].bound, "%s: relative error %.3g, bound %.3g", each[i].name,
                      each[i].error, each[i].bound);
    }
}
