/* attention_oracle.h: follows a traced call of attention stage by stage, in FP64 and from the recipe's definition.
 *
 * Sums in FP32 may differ from FP64 in the last bits, and a last bit may move a code. So each stage starts from what
 * the call itself had at the stage before (its trace): products are compared within the error of their own FP32 sum,
 * and a quantizer whose input is known exactly must agree bit for bit. P of the forward, whose input is not traced,
 * must lie between the codes of the ends of its input's error interval.
 */
#ifndef TESTS_ATTENTION_ORACLE_H
#define TESTS_ATTENTION_ORACLE_H

#include "tests/attention_case.h"
#include "tests/reference_quantize.h"

struct oracle {
    const struct attention_case *c;
    const struct recipe *recipe;
    struct reference_operand operands[ROLE_COUNT];
    double factor;        /* softmax_scale * log2 e */
    size_t skipped, rows; /* forward rows whose running maximum stood within rounding of its threshold */
};

/* `c` has been run with a trace. Both fail the test at the first difference. */
void oracle_check_forward(const struct attention_case *c, const struct recipe *recipe);
void oracle_check_backward(const struct attention_case *c, const struct recipe *recipe);
void oracle_check(const struct attention_case *c, const struct recipe *recipe); /* both */

/* What the two passes share. */
struct oracle oracle_make(const struct attention_case *c, const struct recipe *recipe, const enum operand_role *roles,
                          size_t count);
void oracle_free(struct oracle *oracle);
const float *oracle_row(const struct oracle *oracle, enum operand_role role, size_t token, size_t head);
double oracle_dot(const float *a, const float *b, size_t count, double *magnitude); /* and the sum of |a b| */
bool oracle_keyed(const struct oracle *oracle, size_t query, size_t key, int span); /* from the document's start */

/* m_ij of the running maximum, from the FP64 scores x[visible]: fills reference[visible] (m of each key's tile). False
 * if a decision was closer than `margin`. */
bool oracle_maximum(const struct recipe *recipe, const double *x, size_t visible, double margin, double *reference);

/* Bound on the error of an FP32 score, in units of x = log2 of P. */
double oracle_score_error(const struct oracle *oracle, size_t query, size_t head, size_t key, double *x);

#endif
