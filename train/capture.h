/* capture.h: one layer's Q, K, V and dO of a trained model on real text, for the commands that look at quantization. */
#ifndef TRAIN_CAPTURE_H
#define TRAIN_CAPTURE_H

#include "train/trained.h"

/* Dense copies, [tokens][heads or kv_heads][head_dim]; `offsets` [documents + 1]. */
struct capture {
    struct attention_shape shape;
    float *query, *key, *value, *doutput;
    int32_t *offsets;
    size_t documents;
};

/* Runs the checkpoint forward and backward, with its own recipe, over the first sequence of the validation share of
 * `data` (empty: the run's) and keeps layer `layer`. */
bool capture_take(struct capture *capture, const struct trained *trained, const char *data, const char *documents,
                  size_t layer, struct error *error);
void capture_free(struct capture *capture);

/* The first `length` tokens of the validation share as bytes: text for reading. Refuses ids above 255. */
bool capture_text(const struct trained *trained, const char *data, const char *documents, uint8_t *text, size_t length,
                  struct error *error);

#endif
