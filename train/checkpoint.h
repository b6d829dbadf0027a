/* checkpoint.h: saving a run so that nothing can lose it, and reading it back so that nothing wrong gets in.
 *
 *     RUN/checkpoints/step_00001000/model.safetensors       weights, by the parameter table's names
 *                                   optimizer.safetensors   mean.NAME, square.NAME
 *                                   state.json              step, cursor, settings, data identity, checksums of the two
 *                                   COMPLETE                written last: the checksum of state.json
 *
 * A checkpoint is written under a temporary name, synced, and renamed; the folder of checkpoints is synced; only then
 * are older ones pruned. A kill or a full disk at any moment leaves every earlier checkpoint as it was. Reading checks
 * names, shapes, sizes and checksums.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/settings.h"
#include "train/training_state.h"

#define CHECKPOINT_FILES 2
#define CHECKPOINT_PATH  (SETTINGS_PATH + 64) /* bytes that hold any checkpoint's path */

/* What state.json says. */
struct checkpoint_info {
    struct settings settings; /* the run's, from which the model's shape follows */
    int64_t step, updates, skipped, tokens;
    uint64_t sample;
    double seconds;
    uint64_t data_identity;
    int64_t threads;
    char blas[64];  /* OpenBLAS's core */
    char build[64]; /* version of the program that wrote it */
    struct {
        uint64_t bytes, checksum;
    } files[CHECKPOINT_FILES]; /* model, optimizer */
};

/* Saves to RUN/checkpoints and then deletes whole checkpoints of later steps, and all but the newest `settings->keep`
 * (0: keeps all). `saved` (CHECKPOINT_PATH bytes or NULL) gets the folder. */
bool checkpoint_save(const char *run_folder, const struct training_state *state, const struct settings *settings,
                     uint64_t data_identity, char *saved, struct error *error);

/* Finds what --resume or --checkpoint means: a checkpoint's folder itself, or a run folder, whose newest whole
 * checkpoint it is. Damaged ones are passed over with a line on stderr. False with error->code ERROR_NONE: a run folder
 * (or nothing) without any checkpoint. */
bool checkpoint_find(const char *where, char folder[CHECKPOINT_PATH], struct error *error);

/* True if `run_folder` holds a run: a log or a checkpoint. */
bool checkpoint_run_exists(const char *run_folder);

/* Reads state.json, and checks that the files it names are there with these sizes and checksums. */
bool checkpoint_read_info(const char *folder, struct checkpoint_info *info, struct error *error);

/* The same from memory, files not looked at; for the reader's tests. */
bool checkpoint_parse_state(const char *text, size_t bytes, const char *name, struct checkpoint_info *info,
                            struct error *error);

/* Weights into a network of the same shape. */
bool checkpoint_read_weights(const char *folder, struct network *network, struct error *error);

/* Everything into `state`, whose network and optimizer exist with the checkpoint's shape. */
bool checkpoint_read(const char *folder, const struct checkpoint_info *info, struct training_state *state,
                     struct error *error);

/* Refuses to go on with another model or other data than the checkpoint's, naming both. Warns on stderr where bits may
 * differ: threads, OpenBLAS core. */
bool checkpoint_agrees(const struct checkpoint_info *info, const struct settings *settings, uint64_t data_identity,
                       const char *folder, struct error *error);

#endif
