/* preset.h: named models with the settings that train them. A preset is a list of option values, which --config and the
 * command line override. */
#ifndef TRAIN_PRESET_H
#define TRAIN_PRESET_H

#include <stddef.h>

struct preset {
    const char *name;
    const char *summary;
    const char *values; /* "layers=6 width=1024": options of train, one blank between */
};

size_t preset_count(void);
const struct preset *preset_at(size_t index);
const struct preset *preset_find(const char *name); /* NULL if there is none of that name */

#endif
