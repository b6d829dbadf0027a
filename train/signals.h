/* signals.h: SIGTERM and SIGINT ask the training loop to save and leave; a second one ends the process at once. SIGXFSZ
 * and SIGPIPE are ignored, so that a full disk or a closed pipe is an error that someone reports. */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

#include <stdbool.h>

#include "data/error.h"

bool signals_install(struct error *error);

/* The signal that asked, or 0. */
int signals_requested(void);

#endif
