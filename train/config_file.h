/* config_file.h: reads a JSON object of options into a level. */
#ifndef TRAIN_CONFIG_FILE_H
#define TRAIN_CONFIG_FILE_H

#include "train/option_value.h"

#define CONFIG_FILE_MOST 1048576 /* bytes: far above any configuration */

/* Keys are options of `command`; unknown and doubled keys, and values of another type, are refused with file and line.
 * `recipe-set` is an array of texts. `level->file` names the file in messages and is set by the caller. */
bool config_read(struct level *level, enum command_id command, const char *text, size_t bytes, struct error *error);

/* The same from the file `level->file`. */
bool config_read_file(struct level *level, enum command_id command, struct error *error);

#endif
