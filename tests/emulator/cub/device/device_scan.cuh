/* device_scan.cuh: the emulator's twin of CUB's scan, as far as it is used. */
#ifndef EMULATOR_DEVICE_SCAN_CUH
#define EMULATOR_DEVICE_SCAN_CUH

#include "tests/emulator/stream.h"

namespace cub
{
struct DeviceScan {
    template <class T>
    static cudaError_t ExclusiveSum(void *scratch, size_t &scratch_bytes, const T *in, T *out, int count, cudaStream_t stream = nullptr)
    {
        if (!scratch) {
            scratch_bytes = 1;
            return cudaSuccess;
        }
        return stream_do(stream, [=] {
            T sum = 0;
            for (int i = 0; i < count; i++) {
                const T next = in[i];
                out[i] = sum;
                sum += next;
            }
            return cudaSuccess;
        });
    }
};
} // namespace cub

#endif
