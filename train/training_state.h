/* training_state.h: what changes while a model is trained, and all that a checkpoint has to hold besides the settings:
 * everything else (learning rate, data order, stochastic rounding) is a function of these and the settings. */
#ifndef TRAIN_TRAINING_STATE_H
#define TRAIN_TRAINING_STATE_H

#include "model/network.h"
#include "train/adamw.h"

struct training_state {
    struct network *network; /* its parameters */
    struct adamw adamw;      /* moments, number of updates */
    int64_t step;            /* steps done, skipped ones included */
    uint64_t sample;         /* global number of the next sample, for loader_options.first_sample */
    int64_t skipped;         /* steps that were not finite and made no update */
    int64_t tokens;          /* seen so far */
    double seconds;          /* spent on them, evaluation and saving left out, over all sessions */
};

#endif
