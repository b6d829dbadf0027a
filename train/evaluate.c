/* evaluate.c: see evaluate.h. */
#include "train/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"

#define LN_2 0.693147180559945309

/* Sums over clusters (documents) for a ratio r = sum s / sum n and its standard error. */
struct ratio {
    double s, n, ss, sn, nn;
    size_t clusters;
};

static void ratio_add(struct ratio *ratio, double s, double n)
{
    ratio->s += s;
    ratio->n += n;
    ratio->ss += s * s;
    ratio->sn += s * n;
    ratio->nn += n * n;
    ratio->clusters++;
}

static double ratio_value(const struct ratio *ratio)
{
    return ratio->n > 0 ? ratio->s / ratio->n : NAN;
}

/* sqrt(sum (s_d - r n_d)^2 D / (D - 1)) / sum n: the linearised variance of a ratio of sums over D independent
 * clusters. */
static double ratio_error(const struct ratio *ratio)
{
    if (ratio->clusters < 2 || ratio->n <= 0) {
        return NAN;
    }
    const double r = ratio_value(ratio), d = (double)ratio->clusters;
    const double squares = ratio->ss - 2 * r * ratio->sn + r * r * ratio->nn;
    return sqrt(fmax(squares, 0) * d / (d - 1)) / ratio->n;
}

struct scores {
    double own, exact;
    size_t tokens;
    struct ratio gap, position[EVALUATE_POSITIONS];
};

/* Scores one document of a batch, whose targets from `left` on are beyond the limit. Returns how many were scored. */
static size_t score_document(const struct batch *batch, size_t document, const float *own, const float *exact,
                             size_t left, struct scores *scores)
{
    double gap = 0, by_position[EVALUATE_POSITIONS] = {0};
    size_t count = 0, counts[EVALUATE_POSITIONS] = {0};
    for (int32_t i = batch->offsets[document]; i < batch->offsets[document + 1] && count < left; i++) {
        if (batch->targets[i] == TARGET_IGNORED) {
            continue;
        }
        const size_t position = (size_t)batch->positions[i] % EVALUATE_POSITIONS;
        const double difference = exact ? (double)own[i] - (double)exact[i] : 0;
        scores->own += (double)own[i];
        scores->exact += exact ? (double)exact[i] : 0;
        gap += difference;
        by_position[position] += difference;
        counts[position]++;
        count++;
    }
    if (count > 0) {
        ratio_add(&scores->gap, gap, (double)count);
    }
    for (size_t i = 0; i < EVALUATE_POSITIONS; i++) {
        if (counts[i] > 0) {
            ratio_add(&scores->position[i], by_position[i], (double)counts[i]);
        }
    }
    scores->tokens += count;
    return count;
}

static void finish(const struct scores *scores, bool exact, bool bytes, struct evaluation *evaluation)
{
    memset(evaluation, 0, sizeof *evaluation);
    evaluation->own = scores->own / (double)scores->tokens;
    evaluation->exact = exact ? scores->exact / (double)scores->tokens : NAN;
    evaluation->gap = exact ? ratio_value(&scores->gap) : NAN;
    evaluation->gap_se = exact ? ratio_error(&scores->gap) : NAN;
    evaluation->bits_per_byte = bytes ? evaluation->own / LN_2 : NAN;
    evaluation->tokens = scores->tokens;
    evaluation->documents = scores->gap.clusters;
    evaluation->has_exact = exact;
    for (size_t i = 0; i < EVALUATE_POSITIONS; i++) {
        evaluation->position_gap[i] = exact ? ratio_value(&scores->position[i]) : NAN;
        evaluation->position_se[i] = exact ? ratio_error(&scores->position[i]) : NAN;
        evaluation->position_tokens[i] = (size_t)scores->position[i].n;
    }
}

static bool score_batch(struct network *network, const struct recipe *recipe, const struct batch *batch, bool exact,
                        size_t limit, float *losses, struct scores *scores, struct error *error)
{
    float *exact_losses = losses + batch->total_tokens;
    double sum;
    if (!network_forward(network, recipe, batch, losses, &sum, error) ||
        (exact && !network_forward(network, recipe_find("exact"), batch, exact_losses, &sum, error))) {
        return false;
    }
    for (size_t document = 0; document < batch->documents && scores->tokens < limit; document++) {
        score_document(batch, document, losses, exact ? exact_losses : NULL, limit - scores->tokens, scores);
    }
    return true;
}

static struct loader *open_loader(const struct network *network, const struct evaluate_request *request,
                                  struct error *error)
{
    const struct loader_options options = {.begin = request->begin,
                                           .end = request->end,
                                           .sequence_length = request->sequence_length,
                                           .batch = request->rows,
                                           .micro_batch = request->rows,
                                           .ranks = 1,
                                           .vocabulary = network_config(network)->vocabulary};
    return loader_create(request->dataset, &options, error);
}

bool evaluate(struct network *network, const struct recipe *recipe, const struct evaluate_request *request,
              struct evaluation *evaluation, struct error *error)
{
    const size_t limit = request->max_tokens > 0 ? request->max_tokens : SIZE_MAX,
                 tokens = request->rows * request->sequence_length;
    struct loader *loader = open_loader(network, request, error);
    if (!loader) {
        return false;
    }
    struct scores scores;
    memset(&scores, 0, sizeof scores);
    float *losses = malloc(2 * tokens * sizeof *losses);
    bool done = losses != NULL;
    if (!losses) {
        error_set(error, ERROR_FAILED, "eval: no memory for the losses of %zu tokens", tokens);
    }
    while (done && scores.tokens < limit) {
        struct error end = {ERROR_NONE, ""};
        const struct batch *batch = loader_next(loader, &end);
        if (!batch) {
            done = end.code == ERROR_NONE || error_set(error, (enum error_code)end.code, "%s", end.text);
            break;
        }
        done = score_batch(network, recipe, batch, request->exact, limit, losses, &scores, error);
    }
    free(losses);
    loader_destroy(loader);
    if (done && scores.tokens == 0) {
        done = error_set(error, ERROR_FAILED,
                         "eval: %s: no target to score in tokens %zu to %zu: a sequence has %zu tokens",
                         dataset_path(request->dataset), request->begin, request->end, request->sequence_length);
    }
    if (done) {
        finish(&scores, request->exact, strcmp(dataset_tokenizer(request->dataset), "bytes") == 0, evaluation);
    }
    return done;
}

/* ---- what it means ---- */

enum evaluation_verdict evaluation_judge(const struct evaluation *evaluation, enum causality probed)
{
    const double gap = evaluation->gap, error = evaluation->gap_se;
    const size_t last = EVALUATE_POSITIONS - 1;
    if (!evaluation->has_exact || !isfinite(gap) || !isfinite(error)) {
        return VERDICT_NONE;
    }
    if (gap > 3 * error && gap > 0) {
        return VERDICT_COST;
    }
    if (gap < -3 * error && gap < 0) {
        const bool vanishes = isfinite(evaluation->position_se[last]) &&
                              fabs(evaluation->position_gap[last]) <= 2 * evaluation->position_se[last];
        return probed == CAUSALITY_LEAKY && vanishes ? VERDICT_LEAK : VERDICT_FITTED;
    }
    return VERDICT_NO_DIFFERENCE;
}

void evaluation_sentence(const struct evaluation *evaluation, enum causality probed, char *text, size_t bytes)
{
    const double gap = evaluation->gap, error = evaluation->gap_se;
    switch (evaluation_judge(evaluation, probed)) {
    case VERDICT_NONE:
        snprintf(text, bytes,
                 evaluation->has_exact ? "too few documents for a standard error"
                                       : "not compared with exact attention");
        return;
    case VERDICT_COST:
        snprintf(text, bytes, "quantization costs %.5f +- %.5f nats a token", gap, error);
        return;
    case VERDICT_LEAK:
        snprintf(text, bytes, "leak: %.5f +- %.5f nats a token were won by reading future tokens through shared scales",
                 -gap, error);
        return;
    case VERDICT_FITTED:
        snprintf(text, bytes,
                 "weights fitted to the recipe's rounding: %.5f +- %.5f nats a token better than with exact attention",
                 -gap, error);
        return;
    case VERDICT_NO_DIFFERENCE:
        snprintf(text, bytes, "no difference seen (%+.5f +- %.5f nats a token)", gap, error);
        return;
    }
}
