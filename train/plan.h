/* plan.h: what a training run will do and take, known before anything is allocated or written. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include <stdio.h>

#include "data/dataset.h"
#include "model/network.h"
#include "train/settings.h"

struct run_plan {
    size_t train_begin, train_end; /* shares of the streams, tokens */
    size_t val_begin, val_end;     /* of the validation data set; empty: nothing to evaluate on */
    int64_t steps;
    size_t micro_batch, micro_batches; /* sequences of one; of a step */
    size_t parameters;
    struct network_memory network;
    size_t optimizer, batches, total; /* bytes */
};

/* `validation` may be `training` itself. Refuses, naming the options: a share too small for one sequence, ids outside
 * the vocabulary, a schedule that the derived number of steps is too short for. */
bool run_plan_make(struct run_plan *plan, const struct settings *settings, const struct dataset *training,
                   const struct dataset *validation, struct error *error);

/* Refuses a plan that takes more memory than the machine has, saying what would make it smaller. */
bool run_plan_fits(const struct run_plan *plan, const struct settings *settings, struct error *error);

void run_plan_print(const struct run_plan *plan, const struct settings *settings, FILE *to);

#endif
