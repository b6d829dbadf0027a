/* device_kernels.h: small kernels that try out what the project's kernels are built from. Pointers are the device's. */
#ifndef TESTS_DEVICE_KERNELS_H
#define TESTS_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRIAL_THREADS 256

/* c [16][8] += a [16][16] b [16][8], BF16 in row-major order, fragments filled by hand as PTX describes them. */
bool trial_product(const uint16_t *a, const uint16_t *b, float *c, device_stream stream);

/* The same with fragments from ldmatrix, copied to shared memory by cp.async. */
bool trial_tile_product(const uint16_t *a, const uint16_t *b, float *c, device_stream stream);

/* out [4][32]: __shfl_sync from lane `parameter`, up and down by it, xor with it, in segments of `width`. */
bool trial_shuffles(const int32_t *in, int32_t *out, int parameter, int width, device_stream stream);

/* out [4]: ballot, any, all of in != 0, largest of in. */
bool trial_votes(const uint32_t *in, uint32_t *out, device_stream stream);

/* out [blocks]: sums of TRIAL_THREADS numbers by a tree in shared memory; all: their sum, by atomics. */
bool trial_sums(const int32_t *in, int32_t *out, int32_t *all, unsigned blocks, device_stream stream);

/* out [TRIAL_THREADS]: each thread's neighbour's number, through shared memory. */
bool trial_neighbours(int32_t *out, bool barrier, device_stream stream);

/* out [4]: what is in shared memory while cp.async is under way, and after waiting for it. */
bool trial_copy(const uint32_t *in, uint32_t *out, device_stream stream);

/* x [count] += 1 */
bool trial_increment(int32_t *x, size_t count, device_stream stream);

/* Kernels with a mistake in them. */
enum trial_mistake {
    MISTAKE_NONE,
    MISTAKE_BARRIER_SKIPPED,   /* half the block does not come to __syncthreads */
    MISTAKE_BARRIER_DIVERGENT, /* the halves wait at different ones */
    MISTAKE_LANE_LEFT,         /* a lane of the mask has returned */
    MISTAKE_MASK,              /* the calling lane is not in its mask */
    MISTAKE_LANES_DIVERGENT,
    MISTAKE_READ_BEHIND,  /* one element behind the memory */
    MISTAKE_WRITE_BEFORE, /* one element before it */
    MISTAKE_SHARED_BEHIND,
    MISTAKE_SHARED_ARRAY_BEHIND,
    MISTAKE_NULL,
};
bool trial_mistake(enum trial_mistake mistake, int32_t *memory, size_t count, device_stream stream);

#ifdef __cplusplus
}
#endif

#endif
