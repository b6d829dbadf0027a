/* version.h: the one place that names this version. */
#ifndef TRAIN_VERSION_H
#define TRAIN_VERSION_H

#define FLAMIA_VERSION "0.1.0"

#endif
