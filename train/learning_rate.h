/* learning_rate.h: the learning rate of each step, a pure function of the settings, so that a resumed run needs no
 * state.
 */
#ifndef TRAIN_LEARNING_RATE_H
#define TRAIN_LEARNING_RATE_H

#include "data/error.h"
#include "train/settings.h"

/* Rate of step `step` of `steps`, from 0. It rises linearly in settings->warmup steps, is the highest at the first step
 * after them and learning_rate * minimum_learning_rate at the last one (but in a constant schedule). WSD holds the
 * highest until the last decay_share of the steps, then falls linearly. */
double learning_rate_at(const struct settings *settings, int64_t step, int64_t steps);

/* Refuses a warm-up that the run is too short for, naming the options. */
bool learning_rate_check(const struct settings *settings, int64_t steps, struct error *error);

#endif
