/* sort_cuda.cu: see sort_cuda.h. */
#include "attention/sort_cuda.h"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

size_t sort_scratch_bytes(size_t count)
{
    size_t scan = 0, sort = 0;
    const int32_t *in = nullptr;
    int32_t *out = nullptr;
    cub::DeviceScan::ExclusiveSum(nullptr, scan, in, out, (int)count);
    cub::DeviceRadixSort::SortPairsDescending(nullptr, sort, in, out, in, out, (int)count);
    return scan > sort ? scan : sort;
}

cudaError_t sort_exclusive_sum(void *scratch, size_t scratch_bytes, const int32_t *in, int32_t *out, size_t count, cudaStream_t stream)
{
    return cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, in, out, (int)count, stream);
}

cudaError_t sort_descending(void *scratch, size_t scratch_bytes, const int32_t *keys, int32_t *sorted_keys, const int32_t *values,
                            int32_t *sorted_values, size_t count, cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairsDescending(scratch, scratch_bytes, keys, sorted_keys, values, sorted_values, (int)count, 0, 32,
                                                     stream);
}
