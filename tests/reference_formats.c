/* reference_formats.c: see reference_formats.h. */
#include "tests/reference_formats.h"

#include <math.h>
#include <string.h>

/* Value of a code with `exponent_bits` and `mantissa_bits`, without sign. */
static double small_float(unsigned code, int mantissa_bits, int bias)
{
    const unsigned mantissa = code & ((1u << mantissa_bits) - 1), exponent = code >> mantissa_bits;
    return exponent == 0 ? ldexp(mantissa, 1 - bias - mantissa_bits)
                         : ldexp(mantissa + (1u << mantissa_bits), (int)exponent - bias - mantissa_bits);
}

double reference_e4m3_value(unsigned code)
{
    const double magnitude = (code & 0x7F) == 0x7F ? NAN : small_float(code & 0x7F, 3, 7);
    return code & 0x80 ? -magnitude : magnitude;
}

double reference_e2m1_value(unsigned code)
{
    const double magnitude = small_float(code & 7, 1, 1);
    return code & 8 ? -magnitude : magnitude;
}

/* Code of the nearest of `codes` increasing values: ties go to the even code, the top is kept. */
static unsigned nearest(double magnitude, unsigned codes, double (*value)(unsigned))
{
    unsigned low = 0, high = codes - 1; /* value(low) <= magnitude; the answer is low or low + 1 */
    while (low < high) {
        const unsigned middle = (low + high + 1) / 2;
        if (value(middle) <= magnitude) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    if (low == codes - 1) {
        return low;
    }
    const double half = (value(low) + value(low + 1)) / 2; /* exact: few bits */
    if (magnitude == half) {
        return low + (low & 1);
    }
    return magnitude > half ? low + 1 : low;
}

uint8_t reference_e4m3_code(double x)
{
    if (isnan(x)) {
        return 0x7F;
    }
    return (uint8_t)((signbit(x) ? 0x80u : 0u) | nearest(fabs(x), 0x7F, reference_e4m3_value));
}

uint8_t reference_e2m1_code(double x)
{
    if (isnan(x)) {
        return 7;
    }
    return (uint8_t)((signbit(x) ? 8u : 0u) | nearest(fabs(x), 8, reference_e2m1_value));
}

double reference_e4m3(double x)
{
    return reference_e4m3_value(reference_e4m3_code(x));
}

double reference_e2m1(double x)
{
    return reference_e2m1_value(reference_e2m1_code(x));
}

double reference_bf16_value(unsigned bits)
{
    const unsigned mantissa = bits & 0x7F, exponent = bits >> 7 & 0xFF;
    const double magnitude = exponent == 255 ? (mantissa ? NAN : INFINITY) : small_float(bits & 0x7FFF, 7, 127);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* x to `bits` significant bits with exponents down to `least`, to nearest even: rint() at the right scale is exact. */
static double round_significand(double x, int bits, int least)
{
    if (x == 0 || !isfinite(x)) {
        return x;
    }
    const int exponent = ilogb(x) < least ? least : ilogb(x);
    return ldexp(rint(ldexp(x, bits - 1 - exponent)), exponent - bits + 1);
}

float reference_bf16(float x)
{
    return (float)round_significand(x, 8, -126);
}

double reference_fp16(double x)
{
    const double rounded = round_significand(x, 11, -14);
    return fabs(rounded) > 65504 ? copysign(INFINITY, rounded) : rounded;
}

int reference_exponent_up(double amax, double top)
{
    const int start = amax == 0 ? -127 : ilogb(amax) - 13; /* below the answer for any top up to 2^12 */
    int e = start < -127 ? -127 : start;
    while (amax > ldexp(top, e)) {
        e++;
    }
    return e;
}

int reference_exponent_floor(double amax, int emax)
{
    const int e = amax == 0 ? -127 : ilogb(amax) - emax;
    return e < -127 ? -127 : e;
}
