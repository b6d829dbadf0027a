/* threads.h: how many threads compute. */
#ifndef TRAIN_THREADS_H
#define TRAIN_THREADS_H

#include <stdint.h>

/* For OpenMP and OpenBLAS alike; 0 leaves what OMP_NUM_THREADS or the machine says. To be called before any work. */
void threads_use(int64_t threads);

#endif
