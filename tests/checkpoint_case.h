/* checkpoint_case.h: a run small enough to be saved hundreds of times. */
#ifndef TESTS_CHECKPOINT_CASE_H
#define TESTS_CHECKPOINT_CASE_H

#include <stdbool.h>

#include "tests/files.h"
#include "train/checkpoint.h"

#define CASE_IDENTITY UINT64_C(0xFEDCBA9876543210)

struct checkpoint_case {
    struct settings settings;
    struct training_state state;
    const char *run; /* its folder, in a fresh scratch folder; not made yet */
};

/* One layer of width 16; weights and moments are zero. */
struct checkpoint_case checkpoint_case_make(enum model_family family);
void checkpoint_case_free(struct checkpoint_case *run);

/* Weights, moments and counters that are functions of (seed, step), different in every one. */
void checkpoint_case_fill(struct checkpoint_case *run, uint64_t seed, int64_t step);

/* Aborts the test unless everything in `run` is what checkpoint_case_fill gives. */
void checkpoint_case_expect(const struct checkpoint_case *run, uint64_t seed, int64_t step);

/* Fills and saves. */
void checkpoint_case_save(struct checkpoint_case *run, uint64_t seed, int64_t step);

/* Reads the run's newest checkpoint back over `run` and expects what was saved at its step, which is returned. */
int64_t checkpoint_case_load(struct checkpoint_case *run, uint64_t seed);

/* "RUN/checkpoints/step_0000000N/NAME"; NAME "": the folder. */
const char *checkpoint_case_path(const struct checkpoint_case *run, int64_t step, const char *name);

#endif
