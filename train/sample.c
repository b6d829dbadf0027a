/* sample.c: see sample.h. */
#include "train/sample.h"

#include <math.h>
#include <stdlib.h>

#include "attention/philox.h"

#define STREAM 0x73616D70u /* keeps these numbers apart from initialisation's and dropout-free training's */

/* Uniform in [0, 1) with 53 bits. */
static double uniform_at(uint64_t seed, uint64_t index)
{
    const struct philox_block random =
        philox4x32_10((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)index, (uint32_t)(index >> 32), STREAM, 0);
    return (double)(((uint64_t)random.word[0] << 21) ^ (random.word[1] >> 11)) * 0x1p-53;
}

static int32_t most_likely(const float *logits, size_t vocabulary)
{
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (int32_t)best;
}

static int descending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The smallest logit among the k largest. */
static double threshold_of(const float *logits, size_t vocabulary, size_t top_k, double *scratch)
{
    if (top_k == 0 || top_k >= vocabulary) {
        return -INFINITY;
    }
    for (size_t i = 0; i < vocabulary; i++) {
        scratch[i] = (double)logits[i];
    }
    qsort(scratch, vocabulary, sizeof *scratch, descending);
    return scratch[top_k - 1];
}

bool sample_token(const struct sampler *sampler, const float *logits, size_t vocabulary, uint64_t index,
                  double *scratch, int32_t *token, struct error *error)
{
    for (size_t i = 0; i < vocabulary; i++) {
        if (!isfinite(logits[i])) {
            return error_set(error, ERROR_NONFINITE,
                             "generate: the logit of token %zu at place %llu is not finite: the weights are broken", i,
                             (unsigned long long)index);
        }
    }
    *token = most_likely(logits, vocabulary);
    if (sampler->temperature == 0) {
        return true;
    }
    const double least = threshold_of(logits, vocabulary, sampler->top_k, scratch), most = (double)logits[*token];
    double total = 0;
    for (size_t i = 0; i < vocabulary; i++) {
        const double logit = (double)logits[i];
        scratch[i] = logit >= least ? exp((logit - most) / sampler->temperature) : 0;
        total += scratch[i];
    }
    double left = uniform_at(sampler->seed, index) * total;
    for (size_t i = 0; i < vocabulary; i++) {
        left -= scratch[i];
        if (left < 0 && scratch[i] > 0) {
            *token = (int32_t)i;
            return true;
        }
    }
    return true; /* rounding left a crumb: the most likely token stands */
}
