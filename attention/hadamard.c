/* hadamard.c: the normalised Walsh-Hadamard transform of one head's channels (paper, appendix A.2). Declared in
 * quantize.h.
 *
 * The order of additions is part of the contract: devices must give the same bits.
 */
#include <math.h>

#include "attention/quantize.h"

float hadamard_normal(size_t head_dim)
{
    return (float)(1.0 / sqrt((double)head_dim));
}

void hadamard_rotate(float *x, size_t head_dim)
{
    for (size_t stride = 1; stride < head_dim; stride *= 2) {
        for (size_t first = 0; first < head_dim; first += 2 * stride) {
            for (size_t i = first; i < first + stride; i++) {
                const float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
        }
    }
    const float normal = hadamard_normal(head_dim);
    for (size_t i = 0; i < head_dim; i++) {
        x[i] *= normal;
    }
}
