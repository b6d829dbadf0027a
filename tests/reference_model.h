/* reference_model.h: both families of models again, in FP64, from their definitions: loss and gradients of one
 * document. Slow and obvious; of the program it uses the parameter table only. */
#ifndef TESTS_REFERENCE_MODEL_H
#define TESTS_REFERENCE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "data/batch.h"
#include "model/parameters.h"

/* Returns the sum of losses over targets that are not negative. Positions count from 0.
 *   gradients  [table->elements], laid out as `parameters`: scale * d(sum of losses) is added; NULL: the loss alone
 *   logits     [length][vocabulary] or NULL */
double reference_model(const struct parameter_table *table, const struct model_config *config, const double *parameters,
                       const int32_t *tokens, const int32_t *targets, size_t length, double scale, double *gradients,
                       double *logits);

/* Every document of a batch by itself; logits [total_tokens][vocabulary] or NULL. */
double reference_model_batch(const struct parameter_table *table, const struct model_config *config,
                             const double *parameters, const struct batch *batch, double scale, double *gradients,
                             double *logits);

#endif
