/* progress.h: the human line of a step. The machine's is in log.h. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

struct progress {
    int64_t step, steps; /* steps done */
    double loss, gradient_norm, learning_rate;
    double tokens_per_second;
    double flops_per_token, peak_flops; /* a peak of 0: MFU is n/a */
    double seconds_left;
};

/* Model FLOPs utilisation, or NAN if the peak is unknown. */
double progress_mfu(const struct progress *progress);

/* "step   120/1000  loss 2.345678  norm 0.8123  lr 1.00e-03  41234 tok/s  mfu 31.2%  eta 0:03:20" */
void progress_line(const struct progress *progress, char *text, size_t bytes);

/* "h:mm:ss" of a duration. */
void progress_duration(double seconds, char *text, size_t bytes);

#endif
