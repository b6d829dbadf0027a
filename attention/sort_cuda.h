/* sort_cuda.h: the two library algorithms the schedule needs, from CUB. */
#ifndef ATTENTION_SORT_CUDA_H
#define ATTENTION_SORT_CUDA_H

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

/* Scratch bytes either call needs for `count` numbers. */
size_t sort_scratch_bytes(size_t count);

/* out [count]: sums of all before. */
cudaError_t sort_exclusive_sum(void *scratch, size_t scratch_bytes, const int32_t *in, int32_t *out, size_t count,
                               cudaStream_t stream);

/* Stable, largest key first. */
cudaError_t sort_descending(void *scratch, size_t scratch_bytes, const int32_t *keys, int32_t *sorted_keys,
                            const int32_t *values, int32_t *sorted_values, size_t count, cudaStream_t stream);

#endif
