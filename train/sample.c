/* sample.c: see sample.h. */
#include "train/sample.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "attention/philox.h"

#define SAMPLE_STREAM 0x73616D70u /* "samp": keeps these random numbers apart from other uses of a seed */

/* [0, 1), 53 bits, a pure function of (seed, index). */
static double uniform(uint64_t seed, uint64_t index)
{
    const struct philox_block block = philox4x32_10((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)index,
                                                    (uint32_t)(index >> 32), SAMPLE_STREAM, 0);
    const uint64_t bits = (uint64_t)block.word[0] << 32 | block.word[1];
    return (double)(bits >> 11) * 0x1p-53;
}

/* Integers in the order of the numbers; both zeros are one. */
static uint32_t ordered(float x)
{
    const float value = x + 0.0f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static size_t count_from(const float *logits, size_t vocabulary, uint32_t threshold)
{
    size_t count = 0;
    for (size_t i = 0; i < vocabulary; i++) {
        count += ordered(logits[i]) >= threshold;
    }
    return count;
}

/* The k-th largest logit, as `ordered` gives it, found bit by bit: 32 passes whatever the logits are. */
static uint32_t kth_largest(const float *logits, size_t vocabulary, size_t k)
{
    uint32_t threshold = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (count_from(logits, vocabulary, threshold | bit) >= k) {
            threshold |= bit;
        }
    }
    return threshold;
}

static size_t likeliest(const float *logits, size_t vocabulary)
{
    size_t best = 0;
    for (size_t i = 1; i < vocabulary; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

/* Unnormalised probabilities of the tokens that may be drawn, 0 of the others; of equal logits at the edge of the top k
 * the lower ids are in. Returns their sum, at least 1: the likeliest token has weight 1. */
static double weigh(const struct sampler *sampler, const float *logits, size_t vocabulary, double *weights)
{
    const double highest = (double)logits[likeliest(logits, vocabulary)];
    const bool all = sampler->top_k == 0 || sampler->top_k >= vocabulary;
    const uint32_t threshold = all ? 0 : kth_largest(logits, vocabulary, sampler->top_k);
    /* threshold + 1 cannot wrap: no finite logit has the largest pattern */
    size_t at_edge = all ? vocabulary : sampler->top_k - count_from(logits, vocabulary, threshold + 1);
    double sum = 0;
    for (size_t i = 0; i < vocabulary; i++) {
        const uint32_t order = ordered(logits[i]);
        bool in = all || order > threshold;
        if (!in && order == threshold && at_edge > 0) {
            in = true;
            at_edge--;
        }
        weights[i] = in ? exp(((double)logits[i] - highest) / sampler->temperature) : 0;
        sum += weights[i];
    }
    return sum;
}

bool sample_token(const struct sampler *sampler, const float *logits, size_t vocabulary, uint64_t index,
                  double *scratch, int32_t *token, struct error *error)
{
    for (size_t i = 0; i < vocabulary; i++) {
        if (!isfinite(logits[i])) {
            return error_set(error, ERROR_NONFINITE,
                             "the logit of token %zu at place %" PRIu64 " is %g: the checkpoint's weights are broken",
                             i, index, (double)logits[i]);
        }
    }
    if (!(sampler->temperature > 0)) {
        *token = (int32_t)likeliest(logits, vocabulary);
        return true;
    }
    const double target = uniform(sampler->seed, index) * weigh(sampler, logits, vocabulary, scratch);
    double sum = 0;
    size_t drawn = 0;
    for (size_t i = 0; i < vocabulary && sum <= target; i++) {
        if (scratch[i] > 0) {
            drawn = i;
            sum += scratch[i];
        }
    }
    *token = (int32_t)drawn;
    return true;
}
