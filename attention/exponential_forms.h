/* exponential_forms.h: 2^x for one number in each of the forms of exponential.h, shared by host and device. For
 * attention/ only.
 *
 * Every form is branch-free, so that loops over arrays vectorise.
 */
#ifndef ATTENTION_EXPONENTIAL_FORMS_H
#define ATTENTION_EXPONENTIAL_FORMS_H

#include "attention/formats.h"

#define ROUND_MAGIC 12582912.0f /* 1.5 * 2^23: adding it leaves an integer in the low mantissa bits */

FORMAT_FUNCTION float clamp_between(float x, float low, float high)
{
    const float above = x < low ? low : x; /* NaN passes both comparisons */
    return above > high ? high : above;
}

/* 2^x = 2^n * 2^f, n the nearest integer and |f| <= 1/2; 2^f by its Taylor series to the seventh power, whose remainder
 * is below 6e-9. Results below the normal range are 0, from 2^128 on infinite. */
FORMAT_FUNCTION float base2_exact(float x)
{
    const float inside = clamp_between(x, -126.0f, 128.0f);
    const float shifted = inside + ROUND_MAGIC;
    const int32_t n = (int32_t)(float_to_bits(shifted) - float_to_bits(ROUND_MAGIC));
    const float f = inside - (shifted - ROUND_MAGIC);
    float p = 1.5252733646775596e-05f;
    p = p * f + 0.0001540352968731895f;
    p = p * f + 0.0013333557872101665f;
    p = p * f + 0.009618128649890423f;
    p = p * f + 0.05550410971045494f;
    p = p * f + 0.24022650718688965f;
    p = p * f + 0.6931471824645996f;
    p = p * f + 1.0f;
    const float power = float_from_bits((uint32_t)(n + 127) << 23);
    return x < -126.0f ? 0.0f : p * power;
}

/* 2^x = 2^n * 2^f, n = floor(x), 0 <= f < 1; a cubic with p(0) = 1 fitted to the least relative error, 8.6e-5. Clamped
 * at -127, where it gives 0. */
FORMAT_FUNCTION float base2_polynomial(float x)
{
    const float inside = clamp_between(x, -127.0f, 127.99999f);
    const float shifted = (inside - 0.5f) + ROUND_MAGIC;
    const float whole = shifted - ROUND_MAGIC;
    const float f = inside - whole;
    const int32_t n = (int32_t)(float_to_bits(shifted) - float_to_bits(ROUND_MAGIC));
    float p = 0.07706708461046219f;
    p = p * f + 0.22764495015144348f;
    p = p * f + 0.6951168179512024f;
    p = p * f + 1.0f;
    const int32_t field = n + 127 < 0 ? 0 : n + 127;
    return p * float_from_bits((uint32_t)field << 23);
}

/* The paper's C.2: t = 2^7 x + 1.5 * 2^23 + 2^7 (127 - 0.0573); its low 16 bits are a BF16 number. Clamped below at
 * -127 so that the field cannot wrap. */
FORMAT_FUNCTION float base2_schraudolph(float x)
{
    const float inside = clamp_between(x, -127.0f, 127.0f);
    const float t = 128.0f * inside + (ROUND_MAGIC + 128.0f * (127.0f - 0.0573f));
    const int32_t field = (int32_t)(float_to_bits(t) & 0xFFFFu);
    const int32_t positive = inside <= -127.0f ? 0 : field > 0x7F80 ? 0 : field;
    return x != x ? x : float_from_bits((uint32_t)positive << 16);
}

/* The paper's C.1: t = (x - delta) 2^16 + 2^23 + 124 * 2^16 has x - delta + 124 in 16-bit fixed point in its mantissa;
 * shifted left by 7 it is Mitchell's 2^floor(x) (1 + frac x). Below the window (x - delta < -124) the pattern is
 * clamped to the window's least value. */
FORMAT_FUNCTION float base2_mitchell(float x)
{
    const float delta = 0.0719280949f; /* log2 1.25 - 0.25 */
    const float magic = 8388608.0f + 124.0f * 65536.0f;
    const float inside = clamp_between(x, -1000.0f, 3.5f);
    const float t = (inside - delta) * 65536.0f + magic;
    const uint32_t least = float_to_bits(8388608.0f);
    const uint32_t bits = t < 8388608.0f ? least : float_to_bits(t);
    const uint32_t offset = (127u << 23) - (float_to_bits(magic) << 7);
    return x != x ? x : x < -1000.0f ? 0.0f : float_from_bits((bits << 7) + offset);
}

#endif
