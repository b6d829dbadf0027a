/* option_check.h: what options say together. */
#ifndef TRAIN_OPTION_CHECK_H
#define TRAIN_OPTION_CHECK_H

#include "train/options.h"

/* Fills what is derived (sizes given as 0, the padded vocabulary) and refuses settings that contradict each other,
 * naming the options. */
bool options_complete(enum command_id command, struct settings *settings, struct error *error);

#endif
