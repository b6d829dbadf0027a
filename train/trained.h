/* trained.h: a model out of a checkpoint, for the commands that use one. */
#ifndef TRAIN_TRAINED_H
#define TRAIN_TRAINED_H

#include "train/checkpoint.h"

struct trained {
    struct network *network;
    struct checkpoint_info info; /* the settings it was trained with among them */
    char folder[CHECKPOINT_PATH];
};

/* Finds what --checkpoint names, a checkpoint's folder or a run folder, whose newest whole checkpoint is taken; checks
 * all of it and reads its settings. `command` is for the message when there is no --checkpoint. */
bool trained_find(struct trained *trained, const char *command, const char *checkpoint, struct error *error);

/* Makes the network, for forward passes over `rows` sequences of `sequence_length` tokens, and reads its weights. */
bool trained_load(struct trained *trained, size_t rows, size_t sequence_length, struct error *error);
void trained_close(struct trained *trained);

#endif
