/* scale.h: shared exponents of quantized blocks.
 *
 * A block of values shares one power-of-two scale, stored as E8M0 (bias 127, 255 = NaN). The rule that picks the
 * exponent decides whether a later token can change an earlier one (paper, section 3.2): rounded up, no element is ever
 * clamped and a growing maximum only moves exponents; rounded down (the OCP reference), the maximum itself may clamp,
 * and un-clamps when the scale grows.
 */
#ifndef ATTENTION_SCALE_H
#define ATTENTION_SCALE_H

#include <stdint.h>

#define EXPONENT_ZERO (-127) /* of an all-zero block, and the smallest */
#define E8M0_NAN      255

enum scale_rule {
    SCALE_UP,    /* smallest e with amax <= max_code * 2^e */
    SCALE_FLOOR, /* floor(log2 amax) - emax: OCP MX v1.0, section 6.3; saturates */
};

/* Exponent of a block whose largest magnitude is `amax` (finite, >= 0), for codes up to 448 (E4M3) or 6 (E2M1), or for
 * the top of the NVFP4 range, 448 * 6 = 2688 (zero gives 0 there). Returns a value in [-127, 127]. Exact for every FP32
 * input: no logarithm, no division. */
int scale_exponent_e4m3(float amax, enum scale_rule rule);
int scale_exponent_e2m1(float amax, enum scale_rule rule);
int scale_exponent_nvfp4(float amax);

#endif
