/* reference_gpt2.h: a GPT-2 again, in FP64, from its definition: loss and gradients of one document. Slow and obvious;
 * of the program it uses the parameter table only. */
#ifndef TESTS_REFERENCE_GPT2_H
#define TESTS_REFERENCE_GPT2_H

#include <stddef.h>
#include <stdint.h>

#include "model/parameters.h"

/* Adds scale * d(sum of losses) to `gradients` [table->elements], laid out as `parameters`; returns the sum of losses
 * over targets that are not negative. Positions count from 0. */
double reference_gpt2(const struct parameter_table *table, const struct model_config *config, const double *parameters,
                      const int32_t *tokens, const int32_t *targets, size_t length, double scale, double *gradients);

#endif
