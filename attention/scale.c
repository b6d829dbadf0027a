/* scale.c: see scale.h. The exponent is read from the bits of the maximum. */
#include "attention/scale.h"

#include "attention/formats.h"

/* floor(log2 amax) of a positive finite number and its 23 mantissa bits. Subnormal numbers come out as -127: too large,
 * and still so small that every format clamps them to the smallest exponent. */
static int split(float amax, uint32_t *mantissa)
{
    const uint32_t bits = float_to_bits(amax);
    *mantissa = bits & 0x7FFFFFu;
    return (int)(bits >> 23) - 127;
}

static int at_least(int e, int least)
{
    return e < least ? least : e;
}

/* Smallest e with amax <= (1 + top / 2^23) * 2^(emax + e). */
static int round_up(float amax, int emax, uint32_t top)
{
    uint32_t mantissa;
    const int exponent = split(amax, &mantissa);
    return exponent - emax + (mantissa > top);
}

static int round_down(float amax, int emax)
{
    uint32_t mantissa;
    return split(amax, &mantissa) - emax;
}

int scale_exponent_e4m3(float amax, enum scale_rule rule)
{
    if (amax == 0) {
        return EXPONENT_ZERO;
    }
    return at_least(rule == SCALE_UP ? round_up(amax, 8, 0x600000u) : round_down(amax, 8),
                    EXPONENT_ZERO); /* 448 = 1.75 * 2^8 */
}

int scale_exponent_e2m1(float amax, enum scale_rule rule)
{
    if (amax == 0) {
        return EXPONENT_ZERO;
    }
    return at_least(rule == SCALE_UP ? round_up(amax, 2, 0x400000u) : round_down(amax, 2),
                    EXPONENT_ZERO); /* 6 = 1.5 * 2^2 */
}

int scale_exponent_nvfp4(float amax)
{
    return amax == 0 ? 0 : at_least(round_up(amax, 11, 0x280000u), EXPONENT_ZERO); /* 2688 = 1.3125 * 2^11 */
}
