/* scale.c: see scale.h. */
#include "attention/scale.h"

#include "attention/scale_forms.h"

int scale_exponent_e4m3(float amax, enum scale_rule rule)
{
    return exponent_e4m3(amax, rule);
}

int scale_exponent_e2m1(float amax, enum scale_rule rule)
{
    return exponent_e2m1(amax, rule);
}

int scale_exponent_nvfp4(float amax)
{
    return exponent_nvfp4(amax);
}
