/* device_radix_sort.cuh: the emulator's twin of CUB's stable sort, as far as it is used. */
#ifndef EMULATOR_DEVICE_RADIX_SORT_CUH
#define EMULATOR_DEVICE_RADIX_SORT_CUH

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/emulator/stream.h"

namespace cub
{
struct DeviceRadixSort {
    template <class Key, class Value>
    static cudaError_t SortPairsDescending(void *scratch, size_t &scratch_bytes, const Key *keys, Key *sorted_keys, const Value *values,
                                           Value *sorted_values, int count, int = 0, int = 8 * sizeof(Key), cudaStream_t stream = nullptr)
    {
        if (!scratch) {
            scratch_bytes = 1;
            return cudaSuccess;
        }
        return stream_do(stream, [=] {
            std::vector<int> order((size_t)count);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [=](int a, int b) { return keys[a] > keys[b]; });
            for (int i = 0; i < count; i++) {
                sorted_keys[i] = keys[order[(size_t)i]];
                sorted_values[i] = values[order[(size_t)i]];
            }
            return cudaSuccess;
        });
    }
};
} // namespace cub

#endif
