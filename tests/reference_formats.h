/* reference_formats.h: the number formats and shared exponents again, written from their definitions and independent of
 * attention/formats.h and scale.h: tables of exact values, searched for the nearest. Slow and obvious. */
#ifndef TESTS_REFERENCE_FORMATS_H
#define TESTS_REFERENCE_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

double reference_e4m3_value(unsigned code); /* 0..255; NaN for 0x7F and 0xFF */
double reference_e2m1_value(unsigned code); /* 0..15 */

/* Nearest code, ties to the even code, saturating; NaN gives 0x7F (E4M3) and +6 (E2M1), as CUDA's host conversions. */
uint8_t reference_e4m3_code(double x);
uint8_t reference_e2m1_code(double x);

double reference_e4m3(double x); /* value of that code; NaN stays NaN */
double reference_e2m1(double x);
float reference_bf16(float x);              /* nearest even; NaN stays NaN */
double reference_fp16(double x);            /* nearest even, infinite beyond 65504 */
double reference_bf16_value(unsigned bits); /* 0..65535 */

/* Smallest e >= -127 with amax <= top * 2^e; -127 for 0. */
int reference_exponent_up(double amax, double top);
/* floor(log2 amax) - emax, at least -127; -127 for 0. */
int reference_exponent_floor(double amax, int emax);

#endif
