/* cuda_runtime.h: the part of CUDA that this project uses, on the CPU. Found before the real one when .cu files are
 * compiled by g++ for tests: see emulator.h.
 *
 * Streams run what they are given at once, unless they are being captured. There is one device; its memory is poisoned
 * with 0xFF and fenced: a kernel that leaves an allocation fails its launch, as on a GPU. Floating-point atomics are
 * not here: sums must not depend on the order of threads.
 */
#ifndef EMULATOR_CUDA_RUNTIME_H
#define EMULATOR_CUDA_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>

#include "tests/emulator/cuda_runtime_api.h"
#include "tests/emulator/emulator.h"

#define CUDART_VERSION 13000

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __align__(bytes) alignas(bytes)
#define __launch_bounds__(...)

/* ---- vectors ---- */

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth)
    {
    }
};

#define EMULATOR_VECTORS(type, name, bytes)                                                                            \
    struct alignas(2 * bytes) name##2                                                                                  \
    {                                                                                                                  \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    struct alignas(4 * bytes) name##4                                                                                  \
    {                                                                                                                  \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    static inline name##2 make_##name##2(type x, type y)                                                               \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }                                                                                                                  \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                                               \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }

EMULATOR_VECTORS(float, float, 4)
EMULATOR_VECTORS(int, int, 4)
EMULATOR_VECTORS(unsigned, uint, 4)
#undef EMULATOR_VECTORS

/* ---- where a thread is ---- */

#define threadIdx (emulator_self->index)
#define blockIdx  (emulator_team->index)
#define blockDim  (emulator_team->launch->block)
#define gridDim   (emulator_team->launch->grid)
#define warpSize  WARP_LANES

/* ---- launches: arguments are copied when the launch is made ---- */

template <class... Parameters, class... Arguments>
void emulator_start(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                    struct CUstream_st *stream, Arguments &&...arguments)
{
    const std::tuple<std::remove_const_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
    struct emulator_launch launch = {};
    launch.kernel = name;
    launch.grid = {grid.x, grid.y, grid.z};
    launch.block = {block.x, block.y, block.z};
    launch.shared_bytes = shared_bytes;
    launch.body = [kernel, copies] { std::apply(kernel, copies); };
    emulator_submit(std::move(launch), reinterpret_cast<const void *>(kernel), stream);
}

template <class Function>
cudaError_t cudaFuncSetAttribute(Function *kernel, enum cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

/* ---- barriers and warps ---- */

static inline void __syncthreads(EMULATOR_HERE)
{
    emulator_barrier({file, line});
}

static inline void __syncwarp(unsigned mask = ~0u, EMULATOR_HERE)
{
    emulator_collective(combine_nothing, mask, 0, 0, 0, {file, line});
}

template <class T>
T emulator_shuffle(emulator_combine combine, unsigned mask, T value, int parameter, int width,
                   struct emulator_site site)
{
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_arithmetic<T>::value, "shuffles move numbers");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = emulator_collective(combine, mask, bits, parameter, width, site);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

#define EMULATOR_SHUFFLE(name, combine)                                                                                \
    template <class T> T name(unsigned mask, T value, int parameter, int width = WARP_LANES, EMULATOR_HERE)            \
    {                                                                                                                  \
        return emulator_shuffle(combine, mask, value, parameter, width, {file, line});                                 \
    }
EMULATOR_SHUFFLE(__shfl_sync, combine_shuffle_index)
EMULATOR_SHUFFLE(__shfl_up_sync, combine_shuffle_up)
EMULATOR_SHUFFLE(__shfl_down_sync, combine_shuffle_down)
EMULATOR_SHUFFLE(__shfl_xor_sync, combine_shuffle_xor)
#undef EMULATOR_SHUFFLE

static inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_HERE)
{
    return (unsigned)emulator_collective(combine_ballot, mask, predicate != 0, 0, 0, {file, line});
}

static inline int __any_sync(unsigned mask, int predicate, EMULATOR_HERE)
{
    return emulator_collective(combine_ballot, mask, predicate != 0, 0, 0, {file, line}) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, EMULATOR_HERE)
{
    return emulator_collective(combine_ballot, mask, predicate == 0, 0, 0, {file, line}) == 0;
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned value, EMULATOR_HERE)
{
    return (unsigned)emulator_collective(combine_largest, mask, value, 0, 0, {file, line});
}

static inline unsigned __reduce_min_sync(unsigned mask, unsigned value, EMULATOR_HERE)
{
    return (unsigned)emulator_collective(combine_least, mask, value, 0, 0, {file, line});
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned value, EMULATOR_HERE)
{
    return (unsigned)emulator_collective(combine_sum, mask, value, 0, 0, {file, line});
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- atomics: blocks may run on several CPUs ---- */

template <class T> T atomicAdd(T *address, T value)
{
    static_assert(std::is_integral<T>::value, "no floating-point atomics: their sums depend on the order of threads");
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

template <class T> T atomicExch(T *address, T value)
{
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
}

template <class T> T atomicCAS(T *address, T expected, T value)
{
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

template <class T> T atomicMax(T *address, T value)
{
    T old = __atomic_load_n(address, __ATOMIC_SEQ_CST);
    while (old < value &&
           !__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

/* ---- arithmetic: compiled without contraction, so that one operation is one rounding ---- */

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float rsqrtf(float a)
{
    return 1.0f / sqrtf(a);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
template <class T> T __ldg(const T *address)
{
    return *address;
}

#endif
