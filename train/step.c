/* step.c: see step.h. */
#include "train/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* int32 words that a copy of a micro-batch takes: tokens, targets, positions, offsets. */
static size_t words_of(size_t tokens)
{
    return 4 * tokens + 1;
}

size_t step_work_bytes(size_t micro_batches, size_t micro_tokens)
{
    return micro_batches * (sizeof(struct batch) + words_of(micro_tokens) * sizeof(int32_t)) +
           micro_tokens * sizeof(float);
}

bool step_work_create(struct step_work *work, size_t micro_batches, size_t micro_tokens, struct error *error)
{
    *work = (struct step_work){.capacity = micro_batches, .micro_tokens = micro_tokens};
    work->batches = calloc(micro_batches, sizeof *work->batches);
    work->memory = calloc(micro_batches * words_of(micro_tokens), sizeof *work->memory);
    work->losses = calloc(micro_tokens, sizeof *work->losses);
    if (!work->batches || !work->memory || !work->losses) {
        step_work_destroy(work);
        return error_set(error, ERROR_FAILED, "out of memory: a step's batches need %zu bytes",
                         step_work_bytes(micro_batches, micro_tokens));
    }
    for (size_t i = 0; i < micro_batches; i++) {
        int32_t *const words = work->memory + i * words_of(micro_tokens);
        work->batches[i].tokens = words;
        work->batches[i].targets = words + micro_tokens;
        work->batches[i].positions = words + 2 * micro_tokens;
        work->batches[i].offsets = words + 3 * micro_tokens;
    }
    return true;
}

void step_work_destroy(struct step_work *work)
{
    free(work->batches);
    free(work->memory);
    free(work->losses);
    *work = (struct step_work){.batches = NULL};
}

void step_clear(struct step_work *work)
{
    work->count = 0;
    work->tokens = 0;
    work->valid_targets = 0;
}

bool step_add(struct step_work *work, const struct batch *batch, struct error *error)
{
    if (work->count == work->capacity || batch->total_tokens > work->micro_tokens) {
        return error_set(error, ERROR_FAILED, "micro-batch %zu of %zu tokens: a step has room for %zu of %zu",
                         work->count + 1, batch->total_tokens, work->capacity, work->micro_tokens);
    }
    struct batch *const copy = &work->batches[work->count];
    struct batch filled = *batch;
    filled.tokens = copy->tokens;
    filled.targets = copy->targets;
    filled.positions = copy->positions;
    filled.offsets = copy->offsets;
    memcpy(filled.tokens, batch->tokens, batch->total_tokens * sizeof *batch->tokens);
    memcpy(filled.targets, batch->targets, batch->total_tokens * sizeof *batch->targets);
    memcpy(filled.positions, batch->positions, batch->total_tokens * sizeof *batch->positions);
    memcpy(filled.offsets, batch->offsets, (batch->documents + 1) * sizeof *batch->offsets);
    *copy = filled;
    work->count++;
    work->tokens += batch->total_tokens;
    work->valid_targets += batch->valid_targets;
    return true;
}

/* Says what is not finite: a weight if one is, else `what`, else a gradient's tensor. */
static void blame(struct network *network, const float *gradients, const char *what, struct step_outcome *outcome)
{
    const struct parameter_table *table = network_table(network);
    const struct parameter *weight = parameter_nonfinite(table, network_parameters(network));
    const struct parameter *gradient = gradients ? parameter_nonfinite(table, gradients) : NULL;
    outcome->finite = false;
    outcome->weights_broken = weight != NULL;
    if (weight) {
        snprintf(outcome->culprit, sizeof outcome->culprit, "weight %s", weight->name);
    } else if (gradient) {
        snprintf(outcome->culprit, sizeof outcome->culprit, "gradient of %s", gradient->name);
    } else {
        snprintf(outcome->culprit, sizeof outcome->culprit, "%s", what);
    }
}

bool step_gradients(struct network *network, const struct recipe *recipe, const struct step_work *work, uint64_t seed,
                    uint64_t step, struct step_outcome *outcome, struct error *error)
{
    *outcome = (struct step_outcome){.finite = true, .gradient_norm = NAN};
    if (work->valid_targets == 0) {
        return error_set(error, ERROR_FAILED,
                         "a step's %zu tokens have no target: every document is one token long; see --documents",
                         work->tokens);
    }
    const float scale = (float)(1.0 / (double)work->valid_targets);
    struct attention_random random = {.seed = seed, .step = step};
    double sum = 0;
    network_zero_gradients(network);
    for (size_t i = 0; i < work->count; i++) {
        double loss_sum;
        if (!network_forward(network, recipe, &work->batches[i], work->losses, &loss_sum, error)) {
            return false;
        }
        sum += loss_sum;
        outcome->loss = sum / (double)work->valid_targets;
        if (!isfinite(sum)) {
            blame(network, NULL, "loss", outcome);
            return true;
        }
        if (!network_backward(network, recipe, &work->batches[i], scale, &random, error)) {
            return false;
        }
        random.query_offset += (uint32_t)work->batches[i].total_tokens;
    }
    const float *const gradients = network_gradients(network);
    outcome->gradient_norm = gradient_norm_cpu(gradients, network_table(network)->elements);
    if (!isfinite(outcome->gradient_norm)) {
        blame(network, gradients, "gradient norm", outcome);
    }
    return true;
}

void step_update(struct network *network, struct adamw *adamw, const struct settings *settings, double learning_rate,
                 const struct step_outcome *outcome)
{
    const bool clip = settings->clip > 0 && outcome->gradient_norm > settings->clip;
    const struct adamw_settings update = {
        .learning_rate = learning_rate,
        .beta1 = settings->beta1,
        .beta2 = settings->beta2,
        .epsilon = settings->epsilon,
        .weight_decay = settings->weight_decay,
        .gradient_scale = clip ? settings->clip / outcome->gradient_norm : 1,
    };
    adamw_update_cpu(adamw, network_table(network), &update, network_parameters(network), network_gradients(network));
}
