/* probe_picture.h: the probe as a picture, rows x perturbed token: for the report's page, and as an SVG file. */
#ifndef TRAIN_PROBE_PICTURE_H
#define TRAIN_PROBE_PICTURE_H

#include <jansson.h>

#include "attention/probe.h"
#include "data/error.h"

/* {recipe, verdict, changes: [row][token]} of one document of `tokens` tokens of random data, K and V of each token in
 * turn made 10^4 times as large; the caller decrefs it. NULL: error says why. */
json_t *probe_picture_json(const struct recipe *recipe, size_t tokens, size_t head_dim, uint64_t seed,
                           struct error *error);

/* The same as an SVG file, written whole or not at all. */
bool probe_picture_svg(const json_t *picture, const char *path, struct error *error);

#endif
