/* mma.cuh: the emulator's twin of attention/mma.cuh: the same functions, done by lanes.cpp. */
#ifndef ATTENTION_MMA_CUH
#define ATTENTION_MMA_CUH

#include <cuda_runtime.h>

static inline void mma_bf16_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMULATOR_HERE)
{
    const struct mma_fragments own = {c, a, b};
    emulator_collective(combine_mma_bf16, ~0u, (uintptr_t)&own, 0, 0, {file, line});
}

static inline void ldmatrix_x4(uint32_t (&r)[4], const void *shared, EMULATOR_HERE)
{
    const struct ldmatrix_request own = {r, shared};
    emulator_collective(combine_ldmatrix, ~0u, (uintptr_t)&own, 0, 0, {file, line});
}

static inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *shared, EMULATOR_HERE)
{
    const struct ldmatrix_request own = {r, shared};
    emulator_collective(combine_ldmatrix_trans, ~0u, (uintptr_t)&own, 0, 0, {file, line});
}

static inline void copy_async_16(void *shared, const void *global, bool valid)
{
    emulator_copy_async(shared, global, valid);
}

static inline void copy_async_commit()
{
    emulator_copy_commit();
}

template <int groups> static inline void copy_async_wait()
{
    emulator_copy_wait(groups);
}

static inline unsigned warp_max_u32(unsigned x, EMULATOR_HERE)
{
    return (unsigned)emulator_collective(combine_largest, ~0u, x, 0, 0, {file, line});
}

/* Correctly rounded instead of within 2 ulp; subnormal results are flushed. */
static inline float exp2_fast(float x)
{
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

#endif
