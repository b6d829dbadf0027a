/* read_model.h: how much of the next byte the logits of a model can be read for (attention/read.h), given its weights
 * and a recipe. */
#ifndef TRAIN_READ_MODEL_H
#define TRAIN_READ_MODEL_H

#include "attention/read.h"
#include "data/error.h"
#include "model/network.h"

/* `text` [length] is one document, ids below 256; the model's vocabulary is at least 256. The network must take
 * `length` tokens. */
bool read_model(struct network *network, const struct recipe *recipe, const uint8_t *text, size_t length, size_t places,
                struct reading *reading, struct error *error);

#endif
