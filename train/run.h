/* run.h: a training run made ready: data opened and shared out, memory planned and taken, weights new or from a
 * checkpoint. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "data/loader.h"
#include "train/log.h"
#include "train/plan.h"
#include "train/step.h"
#include "train/training_state.h"

struct run {
    const struct settings *settings;
    struct dataset *training;
    struct dataset *validation; /* the same as `training` without --val-data */
    struct run_plan plan;
    struct training_state state;
    struct step_work work;
    struct loader *loader;
    struct log log;
    bool log_is_open;
    int64_t first_step, saved_step; /* of this session; of the newest checkpoint, -1: none */
};

/* Opens the data and plans; nothing is allocated for the model or written. run_close in any case. */
bool run_plan_open(struct run *run, const struct settings *settings, struct error *error);

/* Takes the memory and the run folder, reads the checkpoint that --resume names, starts the loader and the log. */
bool run_begin(struct run *run, struct error *error);

void run_close(struct run *run);

#endif
