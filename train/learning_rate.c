/* learning_rate.c: see learning_rate.h. */
#include "train/learning_rate.h"

#include <inttypes.h>
#include <math.h>

#define PI 3.14159265358979323846

static int64_t wsd_decay_steps(const struct settings *settings, int64_t steps)
{
    return (int64_t)ceil(settings->decay_share * (double)steps);
}

/* Share of the way from the highest rate, 0, to the lowest, 1. */
static double descent(const struct settings *settings, int64_t step, int64_t steps)
{
    const int64_t after = step - settings->warmup, last = steps - 1 - settings->warmup;
    const double progress = last > 0 ? (double)after / (double)last : 0;
    const int64_t decay = wsd_decay_steps(settings, steps), decaying = step - (steps - decay) + 1;
    switch (settings->schedule) {
    case SCHEDULE_COSINE:
        return 0.5 - 0.5 * cos(PI * progress);
    case SCHEDULE_LINEAR:
        return progress;
    case SCHEDULE_WSD:
        return decaying > 0 ? (double)decaying / (double)decay : 0;
    case SCHEDULE_CONSTANT:
        break;
    }
    return 0;
}

double learning_rate_at(const struct settings *settings, int64_t step, int64_t steps)
{
    const double highest = settings->learning_rate;
    if (step < settings->warmup) {
        return highest * (double)(step + 1) / (double)settings->warmup;
    }
    return highest * (1 - (1 - settings->minimum_learning_rate) * descent(settings, step, steps));
}

bool learning_rate_check(const struct settings *settings, int64_t steps, struct error *error)
{
    if (settings->warmup > steps) {
        return error_set(error, ERROR_USAGE,
                         "--warmup %" PRId64 " is longer than the run's %" PRId64
                         " steps: the rate would never reach --lr",
                         settings->warmup, steps);
    }
    if (settings->schedule == SCHEDULE_WSD && wsd_decay_steps(settings, steps) > steps - settings->warmup) {
        return error_set(error, ERROR_USAGE,
                         "--warmup %" PRId64 " and --decay-share %g overlap in the run's %" PRId64
                         " steps: shorten one of them",
                         settings->warmup, settings->decay_share, steps);
    }
    return true;
}
