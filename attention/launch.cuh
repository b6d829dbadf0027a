/* launch.cuh: launching kernels and naming shared memory, so that the same source also runs in the emulator of tests/emulator. */
#ifndef ATTENTION_LAUNCH_CUH
#define ATTENTION_LAUNCH_CUH

#include <cuda_runtime.h>

/* A comma in the kernel's name needs parentheses around it: LAUNCH((kernel<64, true>), ...). */
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

/* Dynamic shared memory as `type *name`; a static array of shared memory. */
#define SHARED_MEMORY(type, name)                                                                                      \
    extern __shared__ __align__(128) unsigned char shared_bytes_of_block[];                                            \
    type *const name = reinterpret_cast<type *>(shared_bytes_of_block)
#define SHARED_ARRAY(type, name, count) __shared__ __align__(16) type name[count]

#endif
