/* probe_picture.h: the probe's picture (report_picture.h) as an SVG file: rows x perturbed token. */
#ifndef TRAIN_PROBE_PICTURE_H
#define TRAIN_PROBE_PICTURE_H

#include <jansson.h>
#include <stdbool.h>

#include "data/error.h"

/* Writes the file whole or not at all. */
bool probe_picture_svg(const json_t *picture, const char *path, struct error *error);

#endif
