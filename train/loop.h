/* loop.h: the steps of a run. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train/run.h"

/* Trains until the planned number of steps, the time limit or a signal; saves, evaluates, logs. A step that is not
 * finite ends it with ERROR_NONFINITE, or is counted and skipped, as --on-nonfinite says. */
bool run_loop(struct run *run, struct error *error);

#endif
