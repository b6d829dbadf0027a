/* report_picture.h: what the leak probe says of the recipes of runs, as pictures for the report. */
#ifndef TRAIN_REPORT_PICTURE_H
#define TRAIN_REPORT_PICTURE_H

#include <jansson.h>
#include <stddef.h>

#include "attention/recipe.h"
#include "data/error.h"

#define PICTURE_TOKENS 128

/* {recipe, verdict, changes: [row][changed token]}: one head of PICTURE_TOKENS random tokens, each of which in turn has
 * its K and V multiplied by 100. The caller decrefs it. */
json_t *report_picture(const struct recipe *recipe, size_t head_dim, struct error *error);

/* One picture for each recipe that the runs have, as their config.json tells; a run without one has none. */
json_t *report_pictures(const char *const *runs, size_t count, struct error *error);

#endif
