/* stream.h: what the emulator's parts know of streams. */
#ifndef EMULATOR_STREAM_H
#define EMULATOR_STREAM_H

#include <functional>

#include "tests/emulator/cuda_runtime_api.h"

/* Does the work now, or records it if the stream is being captured. A failed launch before makes it do nothing. */
cudaError_t stream_do(cudaStream_t stream, std::function<cudaError_t()> work);

/* Notes an error as CUDA does and returns it: the last one, until asked for; after a failed launch, for ever. */
cudaError_t error_note(cudaError_t error);

/* The error of a call that waits for the device or allocates while a stream is being captured; cudaSuccess otherwise.
 */
cudaError_t error_if_capturing();

#endif
