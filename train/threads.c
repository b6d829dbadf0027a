/* threads.c: see threads.h. */
#include "train/threads.h"

#include <cblas.h>
#include <omp.h>

void threads_use(int64_t threads)
{
    if (threads > 0) {
        omp_set_num_threads((int)threads); /* the option table allows 4096 at most */
        openblas_set_num_threads((int)threads);
    }
}
