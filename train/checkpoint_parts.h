/* checkpoint_parts.h: what checkpoint_state.c, checkpoint_write.c and checkpoint_read.c share. */
#ifndef TRAIN_CHECKPOINT_PARTS_H
#define TRAIN_CHECKPOINT_PARTS_H

#include "data/safetensors.h"
#include "train/checkpoint.h"

extern const char *const checkpoint_file_names[CHECKPOINT_FILES];

/* state.json of `info`, to be freed; NULL without memory. */
char *checkpoint_state_text(const struct checkpoint_info *info);

/* What COMPLETE holds: the checksum of state.json, which has those of the other files; 16 digits and a newline. */
#define CHECKPOINT_MARKER 17
void checkpoint_marker(char marker[CHECKPOINT_MARKER + 1], const char *state, size_t bytes);

/* Fills in threads, BLAS and build of this process. */
void checkpoint_describe_machine(struct checkpoint_info *info);

/* checkpoint_read_info; not `deep`: sizes are checked, checksums are not, which would mean reading everything. */
bool checkpoint_check(const char *folder, bool deep, struct checkpoint_info *info, struct error *error);

/* Size and (unless NULL) FNV-1a 64 of a whole file. */
bool checkpoint_measure(const char *path, uint64_t *bytes, uint64_t *checksum, struct error *error);

/* folder/name into `path` [CHECKPOINT_PATH]; a path that does not fit is refused. */
bool checkpoint_join(char *path, const char *folder, const char *name, struct error *error);

/* The number in step_00001000; -1 if the name is no checkpoint's. */
int64_t checkpoint_step_of(const char *name);

/* Name of a parameter's tensor in either file: prefix "", "mean." or "square.". */
void checkpoint_tensor_name(char *name, size_t size, const char *prefix, const struct parameter *parameter);

#endif
