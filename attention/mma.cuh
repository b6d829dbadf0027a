/* mma.cuh: the machine instructions of the portable kernels, as thin functions and nothing else, so that an emulator can replace them.
 *
 * BF16 matrix products on sm_80 and newer. Fragment layouts are PTX's (mma.m16n8k16): with g = lane / 4 and t = lane % 4,
 *   A [16][16]  a0 = (g, 2t..), a1 = (g + 8, 2t..), a2 = (g, 2t + 8..), a3 = (g + 8, 2t + 8..)
 *   B [16][8]   b0 = (2t.., g), b1 = (2t + 8.., g)
 *   C [16][8]   c0, c1 = (g, 2t), (g, 2t + 1); c2, c3 = (g + 8, 2t), (g + 8, 2t + 1)
 */
#ifndef ATTENTION_MMA_CUH
#define ATTENTION_MMA_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* c += a b */
static __device__ __forceinline__ void mma_bf16_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of 16-bit elements; lane i of each group of eight gives the address of row i of that group's matrix. */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *shared)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed on the way. */
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *shared)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* 16 bytes from global to shared memory behind the thread's back; zeros if not valid. */
static __device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `groups` of this thread's committed copies are under way. */
template <int groups> static __device__ __forceinline__ void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

/* Largest of the warp's 32 values. */
static __device__ __forceinline__ unsigned warp_max_u32(unsigned x)
{
    return __reduce_max_sync(0xFFFFFFFFu, x);
}

/* 2^x by the special function unit: within 2 ulp, subnormal results flushed, 2^-inf = 0. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
