/* progress.c: see progress.h. */
#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

double progress_mfu(const struct progress *progress)
{
    const double rate = progress->flops_per_token * progress->tokens_per_second;
    return progress->peak_flops > 0 ? rate / progress->peak_flops : (double)NAN;
}

void progress_duration(double seconds, char *text, size_t bytes)
{
    if (!(seconds >= 0 && seconds < 1e10)) {
        snprintf(text, bytes, "n/a");
        return;
    }
    const int64_t whole = (int64_t)(seconds + 0.5);
    snprintf(text, bytes, "%" PRId64 ":%02d:%02d", whole / 3600, (int)(whole / 60 % 60), (int)(whole % 60));
}

void progress_line(const struct progress *progress, char *text, size_t bytes)
{
    char mfu[32] = "n/a", left[32], steps[32];
    const double share = progress_mfu(progress);
    if (!isnan(share)) {
        snprintf(mfu, sizeof mfu, "%.1f%%", 100 * share);
    }
    progress_duration(progress->seconds_left, left, sizeof left);
    const int width = snprintf(steps, sizeof steps, "%" PRId64, progress->steps);
    snprintf(text, bytes, "step %*" PRId64 "/%s  loss %.6f  norm %.4f  lr %.2e  %.0f tok/s  mfu %s  eta %s", width,
             progress->step, steps, progress->loss, progress->gradient_norm, progress->learning_rate,
             progress->tokens_per_second, mfu, left);
}
