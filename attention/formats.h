/* formats.h: the number formats, as small functions shared by host and device.
 *
 * BF16, E4M3 (the FN variant: largest 448, no infinity, NaN 0x7F), E2M1 (0 .5 1 1.5 2 3 4 6), E8M0 (2^(byte - 127), 255
 * = NaN) and UE4M3 (E4M3 without a sign). `x_round` gives the nearest representable value, ties to even, saturating;
 * `x_encode` its code; `x_decode` the code's value. Rounding happens in the bits of an FP32 number, without branches,
 * so that loops over arrays vectorise. The codes equal those of CUDA's host conversions on every FP32 input, NaN
 * included.
 */
#ifndef ATTENTION_FORMATS_H
#define ATTENTION_FORMATS_H

#include <stdint.h>

#ifdef __CUDACC__
#define FORMAT_FUNCTION static __host__ __device__ __forceinline__
#else
#define FORMAT_FUNCTION static inline
#endif

#define E4M3_MAX 448.0f
#define E2M1_MAX 6.0f
#define E4M3_NAN 0x7F

union float_bits {
    float value;
    uint32_t bits;
};

FORMAT_FUNCTION uint32_t float_to_bits(float x)
{
    union float_bits u;
    u.value = x;
    return u.bits;
}

FORMAT_FUNCTION float float_from_bits(uint32_t bits)
{
    union float_bits u;
    u.bits = bits;
    return u.value;
}

/* 2^e for -149 <= e <= 127, exactly; e >= -126 is a plain exponent field. */
FORMAT_FUNCTION float exponent_to_float(int e)
{
    return float_from_bits(e >= -126 ? (uint32_t)(e + 127) << 23 : (uint32_t)1 << (e + 149));
}

/* ---- BF16 ---- */

FORMAT_FUNCTION uint16_t bf16_encode(float x)
{
    const uint32_t u = float_to_bits(x);
    const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : rounded);
}

FORMAT_FUNCTION float bf16_decode(uint16_t code)
{
    return float_from_bits((uint32_t)code << 16);
}

FORMAT_FUNCTION float bf16_round(float x)
{
    const uint32_t u = float_to_bits(x);
    const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u;
    return float_from_bits((u & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFF0000u : rounded);
}

/* ---- FP16 ---- */

/* Nearest half-precision value; beyond 65504 (after rounding) infinite, as the hardware's reductions are. */
FORMAT_FUNCTION float f16_round(float x)
{
    const uint32_t u = float_to_bits(x);
    const uint32_t magnitude = u & 0x7FFFFFFFu;
    const uint32_t normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) & 0xFFFFE000u;
    const float a = float_from_bits(magnitude);
    const float small = (a + 0.75f) - 0.75f; /* last bit 2^-24 */
    const uint32_t chosen = a < 0x1p-14f ? float_to_bits(small) : normal;
    const uint32_t clamped = chosen > 0x477FE000u ? 0x7F800000u : chosen; /* 65504 */
    return float_from_bits((u & 0x80000000u) | (magnitude > 0x7F800000u ? 0x7FC00000u : clamped));
}

/* ---- E4M3 ---- */

/* Nearest E4M3 value. Below 2^-6 the step is 2^-9: adding and subtracting 1.5 * 2^14, whose last bit is worth 2^-9,
 * rounds to it. Above, three bits of mantissa stay. NaN stays NaN. */
FORMAT_FUNCTION float e4m3_round(float x)
{
    const uint32_t u = float_to_bits(x);
    const uint32_t magnitude = u & 0x7FFFFFFFu;
    const uint32_t normal = (magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u)) & 0xFFF00000u;
    const float a = float_from_bits(magnitude);
    const float small = (a + 24576.0f) - 24576.0f;
    const uint32_t chosen = a < 0x1p-6f ? float_to_bits(small) : normal;
    const uint32_t clamped = chosen > 0x43E00000u ? 0x43E00000u : chosen; /* 448 */
    return float_from_bits((u & 0x80000000u) | (magnitude > 0x7F800000u ? 0x7FC00000u : clamped));
}

/* Code of a value that is an E4M3 value already; 0x7F for NaN of either sign. */
FORMAT_FUNCTION uint8_t e4m3_code_of(float value)
{
    const uint32_t u = float_to_bits(value);
    const uint32_t magnitude = u & 0x7FFFFFFFu;
    const uint32_t sign = (u >> 24) & 0x80u;
    const uint32_t normal = (magnitude >> 20) - (120u << 3);
    const float scaled = float_from_bits(magnitude) * 512.0f;
    const uint32_t small = magnitude < 0x3C800000u ? (uint32_t)scaled : 0u;
    return (uint8_t)(magnitude > 0x7F800000u ? 0x7Fu : sign | (magnitude < 0x3C800000u ? small : normal));
}

FORMAT_FUNCTION uint8_t e4m3_encode(float x)
{
    return e4m3_code_of(e4m3_round(x));
}

FORMAT_FUNCTION float e4m3_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t magnitude = code & 0x7Fu;
    const uint32_t normal = (magnitude << 20) + (120u << 23);
    const uint32_t small = float_to_bits((float)magnitude * 0x1p-9f);
    return float_from_bits(sign | (magnitude == 0x7Fu ? 0x7FC00000u : magnitude < 8u ? small : normal));
}

/* ---- E2M1 ---- */

/* Nearest E2M1 value. Below 1 the step is 0.5; above, one bit of mantissa stays. NaN becomes +6, as in CUDA. */
FORMAT_FUNCTION float e2m1_round(float x)
{
    const uint32_t u = float_to_bits(x);
    const uint32_t magnitude = u & 0x7FFFFFFFu;
    const uint32_t normal = (magnitude + 0x1FFFFFu + ((magnitude >> 22) & 1u)) & 0xFFC00000u;
    const float a = float_from_bits(magnitude);
    const float small = (a + 6291456.0f) - 6291456.0f; /* 1.5 * 2^22: last bit 0.5 */
    const uint32_t chosen = a < 1.0f ? float_to_bits(small) : normal;
    const uint32_t clamped = chosen > 0x40C00000u ? 0x40C00000u : chosen; /* 6 */
    return float_from_bits(magnitude > 0x7F800000u ? 0x40C00000u : (u & 0x80000000u) | clamped);
}

/* Code (0..15) of a value that is an E2M1 value already. */
FORMAT_FUNCTION uint8_t e2m1_code_of(float value)
{
    const uint32_t u = float_to_bits(value);
    const uint32_t magnitude = u & 0x7FFFFFFFu;
    const uint32_t normal = (magnitude >> 22) - (126u << 1);
    const uint32_t small = magnitude == 0x3F000000u ? 1u : 0u;
    return (uint8_t)(((u >> 28) & 8u) | (magnitude < 0x3F800000u ? small : normal));
}

FORMAT_FUNCTION uint8_t e2m1_encode(float x)
{
    return e2m1_code_of(e2m1_round(x));
}

FORMAT_FUNCTION float e2m1_decode(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 8u) << 28;
    const uint32_t magnitude = code & 7u;
    const uint32_t normal = (magnitude << 22) + (126u << 23);
    return float_from_bits(sign | (magnitude == 0u ? 0u : magnitude == 1u ? 0x3F000000u : normal));
}

/* ---- E8M0 ---- */

/* Byte of an exponent in [-127, 127]. */
FORMAT_FUNCTION uint8_t e8m0_encode(int exponent)
{
    return (uint8_t)(exponent + 127);
}

/* 2^(byte - 127); byte 0 is 2^-127, a subnormal FP32 number; 255 is NaN. */
FORMAT_FUNCTION float e8m0_decode(uint8_t byte)
{
    return float_from_bits(byte == 255u ? 0x7FC00000u : byte == 0u ? 0x00400000u : (uint32_t)byte << 23);
}

#endif
