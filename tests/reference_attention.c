/* reference_attention.c: see reference_attention.h. */
#include "tests/reference_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support.h"

/* One row of one head: the tokens it sees and where their vectors are. */
struct row {
    size_t token, head, first, last; /* visible keys are [first, last) */
};

static struct row row_at(const struct attention_shape *shape, const struct documents *documents, size_t document,
                         size_t token, size_t head)
{
    const size_t end = (size_t)documents->offsets[document + 1];
    return (struct row){token, head, (size_t)documents->offsets[document], shape->causal ? token + 1 : end};
}

static const float *query_at(const struct attention_shape *shape, const float *x, size_t token, size_t head)
{
    return x + (token * shape->heads + head) * shape->head_dim;
}

static size_t key_index(const struct attention_shape *shape, size_t token, size_t head)
{
    return (token * shape->kv_heads + head / (shape->heads / shape->kv_heads)) * shape->head_dim;
}

static double dot(const float *x, const float *y, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i] * (double)y[i];
    }
    return sum;
}

/* Probabilities of a row, p[key - first], and its natural log-sum-exp. */
static double softmax_row(const struct attention_shape *shape, const struct row *row, const float *query,
                          const float *key, double *p)
{
    const size_t count = row->last - row->first;
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j < count; j++) {
        p[j] = dot(query_at(shape, query, row->token, row->head), key + key_index(shape, row->first + j, row->head),
                   shape->head_dim) *
               (double)shape->softmax_scale;
        most = fmax(most, p[j]);
    }
    for (size_t j = 0; j < count; j++) {
        p[j] = exp(p[j] - most);
        sum += p[j];
    }
    for (size_t j = 0; j < count; j++) {
        p[j] /= sum;
    }
    return most + log(sum);
}

void reference_forward(const struct attention_shape *shape, const struct documents *documents, const float *query,
                       const float *key, const float *value, float *output, float *lse)
{
    const size_t d = shape->head_dim;
    double *p = test_alloc(shape->total_tokens * sizeof *p);
    for (size_t n = 0; n < documents->count; n++) {
        for (size_t token = (size_t)documents->offsets[n]; token < (size_t)documents->offsets[n + 1]; token++) {
            for (size_t head = 0; head < shape->heads; head++) {
                const struct row row = row_at(shape, documents, n, token, head);
                lse[head * shape->total_tokens + token] = (float)(softmax_row(shape, &row, query, key, p) / log(2.0));
                for (size_t i = 0; i < d; i++) {
                    double sum = 0;
                    for (size_t j = row.first; j < row.last; j++) {
                        sum += p[j - row.first] * (double)value[key_index(shape, j, head) + i];
                    }
                    output[(token * shape->heads + head) * d + i] = (float)sum;
                }
            }
        }
    }
    free(p);
}

/* Adds one row's share to the FP64 gradients. */
static void backward_row(const struct attention_shape *shape, const struct row *row, const float *query,
                         const float *key, const float *value, const float *dout, double *p, double *dq, double *dk,
                         double *dv)
{
    const size_t d = shape->head_dim, count = row->last - row->first;
    const float *q = query_at(shape, query, row->token, row->head);
    const float *g = query_at(shape, dout, row->token, row->head);
    double *dp = p + shape->total_tokens, delta = 0;
    softmax_row(shape, row, query, key, p);
    for (size_t j = 0; j < count; j++) {
        dp[j] = dot(g, value + key_index(shape, row->first + j, row->head), d);
        delta += p[j] * dp[j];
    }
    for (size_t j = 0; j < count; j++) {
        const size_t at = key_index(shape, row->first + j, row->head);
        const double ds = p[j] * (dp[j] - delta) * (double)shape->softmax_scale;
        for (size_t i = 0; i < d; i++) {
            dq[(row->token * shape->heads + row->head) * d + i] += ds * (double)key[at + i];
            dk[at + i] += ds * (double)q[i];
            dv[at + i] += p[j] * (double)g[i];
        }
    }
}

static void round_to(float *to, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = (float)from[i];
    }
}

void reference_backward(const struct attention_shape *shape, const struct documents *documents, const float *query,
                        const float *key, const float *value, const float *output_gradient, float *query_gradient,
                        float *key_gradient, float *value_gradient)
{
    const size_t queries = shape->total_tokens * shape->heads * shape->head_dim;
    const size_t keys = shape->total_tokens * shape->kv_heads * shape->head_dim;
    double *p = test_alloc(2 * shape->total_tokens * sizeof *p);
    double *sums = test_alloc((queries + 2 * keys) * sizeof *sums);
    for (size_t i = 0; i < queries + 2 * keys; i++) {
        sums[i] = 0;
    }
    for (size_t n = 0; n < documents->count; n++) {
        for (size_t token = (size_t)documents->offsets[n]; token < (size_t)documents->offsets[n + 1]; token++) {
            for (size_t head = 0; head < shape->heads; head++) {
                const struct row row = row_at(shape, documents, n, token, head);
                backward_row(shape, &row, query, key, value, output_gradient, p, sums, sums + queries,
                             sums + queries + keys);
            }
        }
    }
    round_to(query_gradient, sums, queries);
    round_to(key_gradient, sums + queries, keys);
    round_to(value_gradient, sums + queries + keys, keys);
    free(sums);
    free(p);
}

double reference_score_range(const struct attention_shape *shape, const struct documents *documents, const float *query,
                             const float *key)
{
    double widest = 0;
    for (size_t n = 0; n < documents->count; n++) {
        for (size_t token = (size_t)documents->offsets[n]; token < (size_t)documents->offsets[n + 1]; token++) {
            for (size_t head = 0; head < shape->heads; head++) {
                const struct row row = row_at(shape, documents, n, token, head);
                double least = INFINITY, most = -INFINITY;
                for (size_t j = row.first; j < row.last; j++) {
                    const double s =
                        dot(query_at(shape, query, token, head), key + key_index(shape, j, head), shape->head_dim) *
                        (double)shape->softmax_scale;
                    least = fmin(least, s);
                    most = fmax(most, s);
                }
                widest = fmax(widest, most - least);
            }
        }
    }
    return widest;
}
