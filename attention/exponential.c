/* exponential.c: see exponential.h. */
#include "attention/exponential.h"

#include "attention/exponential_forms.h"

float exponential_base2(enum exponential_kind kind, float x)
{
    exponential_base2_array(kind, &x, 1);
    return x;
}

void exponential_base2_array(enum exponential_kind kind, float *x, unsigned long count)
{
    switch (kind) {
    case EXPONENTIAL_EXACT:
        for (unsigned long i = 0; i < count; i++) {
            x[i] = base2_exact(x[i]);
        }
        return;
    case EXPONENTIAL_POLYNOMIAL:
        for (unsigned long i = 0; i < count; i++) {
            x[i] = base2_polynomial(x[i]);
        }
        return;
    case EXPONENTIAL_SCHRAUDOLPH:
        for (unsigned long i = 0; i < count; i++) {
            x[i] = base2_schraudolph(x[i]);
        }
        return;
    case EXPONENTIAL_MITCHELL:
        for (unsigned long i = 0; i < count; i++) {
            x[i] = base2_mitchell(x[i]);
        }
        return;
    }
}
