/* step.h: one step of training: the loss and gradients of all its micro-batches, then one update.
 *
 * The loss is the sum over the step's valid targets divided by their number, however the step is cut into
 * micro-batches. Attention's backward quantizes gradients, so they must have their final scale from the start: the
 * micro-batches are gathered first, which tells the number.
 */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "data/batch.h"
#include "model/network.h"
#include "train/adamw.h"
#include "train/settings.h"

/* Copies of a step's micro-batches. */
struct step_work {
    struct batch *batches;
    int32_t *memory;
    float *losses;                 /* of one micro-batch */
    size_t capacity, micro_tokens; /* micro-batches, tokens of one, at most */
    size_t count;                  /* micro-batches gathered */
    size_t tokens, valid_targets;  /* of them all */
};

bool step_work_create(struct step_work *work, size_t micro_batches, size_t micro_tokens, struct error *error);
void step_work_destroy(struct step_work *work);
size_t step_work_bytes(size_t micro_batches, size_t micro_tokens); /* what step_work_create takes */

void step_clear(struct step_work *work);
bool step_add(struct step_work *work, const struct batch *batch, struct error *error);

struct step_outcome {
    double loss; /* nats a valid target */
    double gradient_norm;
    bool finite;         /* both are */
    char culprit[96];    /* not finite: what was found so, a tensor if one can be named */
    bool weights_broken; /* a weight itself is: no later step can be better */
};

/* Zeroes the gradients and adds those of all micro-batches. `seed` and `step` key stochastic rounding. Stops early,
 * with `finite` false, at a loss that is not finite. False: an error, such as a step without a target. */
bool step_gradients(struct network *network, const struct recipe *recipe, const struct step_work *work, uint64_t seed,
                    uint64_t step, struct step_outcome *outcome, struct error *error);

/* Clips and updates; only after a finite step_gradients. */
void step_update(struct network *network, struct adamw *adamw, const struct settings *settings, double learning_rate,
                 const struct step_outcome *outcome);

#endif
