/* scale_forms.h: the exponents of scale.h as functions shared by host and device. For attention/ only.
 *
 * The exponent is read from the bits of the maximum.
 */
#ifndef ATTENTION_SCALE_FORMS_H
#define ATTENTION_SCALE_FORMS_H

#include "attention/formats.h"
#include "attention/scale.h"

/* floor(log2 amax) of a positive finite number and its 23 mantissa bits. Subnormal numbers come out as -127: too large,
 * and still so small that every format clamps them to the smallest exponent. */
FORMAT_FUNCTION int split_exponent(float amax, uint32_t *mantissa)
{
    const uint32_t bits = float_to_bits(amax);
    *mantissa = bits & 0x7FFFFFu;
    return (int)(bits >> 23) - 127;
}

FORMAT_FUNCTION int exponent_at_least(int e, int least)
{
    return e < least ? least : e;
}

/* Smallest e with amax <= (1 + top / 2^23) * 2^(emax + e). */
FORMAT_FUNCTION int exponent_up(float amax, int emax, uint32_t top)
{
    uint32_t mantissa;
    const int exponent = split_exponent(amax, &mantissa);
    return exponent - emax + (mantissa > top);
}

FORMAT_FUNCTION int exponent_down(float amax, int emax)
{
    uint32_t mantissa;
    return split_exponent(amax, &mantissa) - emax;
}

FORMAT_FUNCTION int exponent_e4m3(float amax, enum scale_rule rule)
{
    if (amax == 0) {
        return EXPONENT_ZERO;
    }
    return exponent_at_least(rule == SCALE_UP ? exponent_up(amax, 8, 0x600000u) : exponent_down(amax, 8),
                             EXPONENT_ZERO); /* 448 = 1.75 * 2^8 */
}

FORMAT_FUNCTION int exponent_e2m1(float amax, enum scale_rule rule)
{
    if (amax == 0) {
        return EXPONENT_ZERO;
    }
    return exponent_at_least(rule == SCALE_UP ? exponent_up(amax, 2, 0x400000u) : exponent_down(amax, 2),
                             EXPONENT_ZERO); /* 6 = 1.5 * 2^2 */
}

FORMAT_FUNCTION int exponent_nvfp4(float amax)
{
    return amax == 0 ? 0
                     : exponent_at_least(exponent_up(amax, 11, 0x280000u), EXPONENT_ZERO); /* 2688 = 1.3125 * 2^11 */
}

#endif
