/* evaluation_record.h: an evaluation as an object for the log and the report, and as lines for a reader. */
#ifndef TRAIN_EVALUATION_RECORD_H
#define TRAIN_EVALUATION_RECORD_H

#include <jansson.h>
#include <stdio.h>

#include "train/evaluate.h"

/* {recipe, causality, own, exact, gap, gap_se, bits_per_byte, tokens, documents, position_gap, position_se, verdict};
 * the caller adds the step and decrefs it. NULL without memory. */
json_t *evaluation_record(const struct evaluation *evaluation, const char *recipe, enum causality probed);

/* What `flamia eval` prints: losses, gap, verdict, and the gap by position in the scale group. */
void evaluation_print(const struct evaluation *evaluation, const char *recipe, enum causality probed, FILE *to);

#endif
