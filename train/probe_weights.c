/* probe_weights.c: see probe_weights.h. */
#include "train/probe_weights.h"

#include "attention/probe.h"
#include "train/capture.h"

#define POSITIONS 4

static const enum probe_tensor tensors[] = {PROBE_VALUE, PROBE_KEY};
static const enum probe_change changes[] = {PROBE_GAIN_4, PROBE_GAIN_1E4};

/* Adds a layer's outcomes to `total` until one of them is a leak. */
static enum attention_status perturb(struct probe *probe, const struct documents *documents,
                                     struct probe_outcome *total)
{
    size_t positions[POSITIONS];
    const size_t count = probe_positions(documents, POSITIONS, positions);
    enum attention_status status = ATTENTION_OK;
    for (size_t i = 0; i < count * 4 && status == ATTENTION_OK && total->verdict != CAUSALITY_LEAKY; i++) {
        struct probe_outcome outcome;
        status = probe_perturb(probe, positions[i / 4], tensors[i / 2 % 2], changes[i % 2], &outcome);
        if (status == ATTENTION_OK) {
            probe_add(total, &outcome);
        }
    }
    return status;
}

static bool probe_layer(const struct trained *trained, const struct recipe *recipe, size_t layer,
                        struct probe_outcome *total, struct error *error)
{
    struct capture capture;
    if (!capture_take(&capture, trained, "", "", layer, error)) {
        return false;
    }
    const struct probe_setup setup = {.recipe = recipe,
                                      .shape = capture.shape,
                                      .documents = {capture.offsets, capture.documents},
                                      .query = capture.query,
                                      .key = capture.key,
                                      .value = capture.value,
                                      .doutput = capture.doutput};
    enum attention_status status;
    struct probe *probe = probe_create(&setup, &status);
    if (probe) {
        status = perturb(probe, &setup.documents, total);
    }
    probe_destroy(probe);
    capture_free(&capture);
    return status == ATTENTION_OK || error_set(error, ERROR_FAILED, "recipe %s cannot be probed on layer %zu: %s",
                                               recipe->name, layer, attention_status_text(status));
}

bool probe_weights(const struct trained *trained, const struct recipe *recipe, enum causality *verdict,
                   struct error *error)
{
    struct probe_outcome total = {.verdict = CAUSALITY_EXACT};
    *verdict = recipe_causality(recipe);
    if (*verdict != CAUSALITY_LEAKY) {
        return true;
    }
    for (size_t layer = 0; layer < trained->info.settings.model.layers && total.verdict != CAUSALITY_LEAKY; layer++) {
        if (!probe_layer(trained, recipe, layer, &total, error)) {
            return false;
        }
    }
    *verdict = total.verdict;
    return true;
}
