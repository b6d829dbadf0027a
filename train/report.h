/* report.h: the logs of runs as one page that needs nothing but a browser. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <jansson.h>
#include <stddef.h>

#include "data/error.h"

/* Writes the page of `count` run folders to `path`, whole or not at all. `probes`: an array of pictures {recipe,
 * verdict, changes: [row][changed token]}, or NULL; stays the caller's. A torn last line of a log, as a running or
 * killed program leaves it, is passed over. */
bool report_write(const char *path, const char *const *runs, size_t count, json_t *probes, struct error *error);

/* A run as the page reads it: {name, recipe, stride, steps, loss, grad_norm, lr, tokens_per_s, evals, position}; the
 * caller decrefs it. */
json_t *report_run(const char *run_folder, struct error *error);

#endif
