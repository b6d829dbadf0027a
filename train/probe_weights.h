/* probe_weights.h: whether a recipe leaks with the weights of a model, which its switches alone do not say: a leak
 * needs values that set scales. */
#ifndef TRAIN_PROBE_WEIGHTS_H
#define TRAIN_PROBE_WEIGHTS_H

#include "train/trained.h"

/* The worst that the probe finds of `recipe` on Q, K, V and dO of the model's layers, on the first sequence of its
 * validation data. Stops at the first leak. A recipe that leaks nothing by construction is not probed again. */
bool probe_weights(const struct trained *trained, const struct recipe *recipe, enum causality *verdict,
                   struct error *error);

#endif
