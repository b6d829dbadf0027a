/* log.h: the run's record, one JSON object a line, in RUN/log.jsonl.
 *
 * Events: start step eval save skip end. Real numbers have 9 significant digits; a NaN or an infinity becomes null,
 * which JSON has. When a run goes on from step N, records of later steps are dropped first, so the file reads as if
 * nothing had happened in between.
 */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include <jansson.h>
#include <stdint.h>

#include "data/error.h"

struct log {
    char *path;
    int fd;
};

/* Opens RUN/log.jsonl for appending. `resumed_step` -1: a new run, the file must not exist; else drops what comes after
 * that step, and a torn last line. */
bool log_open(struct log *log, const char *run_folder, int64_t resumed_step, struct error *error);

/* Appends {"event": event, ...record, "time": seconds since 1970}; takes `record` over, also on failure. One write: a
 * line is whole or torn at its end, never mixed. */
bool log_write(struct log *log, const char *event, json_t *record, struct error *error);
void log_close(struct log *log);

/* A real number for a record: null if it is not finite. */
json_t *log_real(double value);

#endif
