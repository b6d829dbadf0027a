/* launch.cuh: the emulator's twin of attention/launch.cuh. */
#ifndef ATTENTION_LAUNCH_CUH
#define ATTENTION_LAUNCH_CUH

#include <cuda_runtime.h>

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                         \
    emulator_start(#kernel, kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)

#define SHARED_MEMORY(type, name) type *const name = static_cast<type *>(emulator_shared_memory())

/* The address of a static variable tells the arrays of a kernel apart. */
#define SHARED_ARRAY(type, name, count)                                                                                \
    static const char name##_key = 0;                                                                                  \
    type(&name)[count] = *static_cast<type(*)[count]>(emulator_shared_array(&name##_key, sizeof(type[count]), #name))

#endif
