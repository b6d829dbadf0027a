/* tile_cpu.h: the small matrix products attention is made of, on the CPU.
 *
 * All three add in a fixed order, one term after the other, whatever the shape around them: the bits of an element
 * depend on its own row and column only. That is what makes packed documents equal separate ones and earlier rows
 * independent of later ones.
 */
#ifndef ATTENTION_TILE_CPU_H
#define ATTENTION_TILE_CPU_H

#include <stddef.h>

/* Which inner indices k contribute to row r of a product over a tile. Terms outside are not multiplied at all, so a NaN
 * among them touches nothing. */
enum tile_mask {
    TILE_FULL,
    TILE_LOWER, /* k <= r: P V, dS K on the diagonal tile (row = query, k = key) */
    TILE_UPPER, /* k >= r: P^T dO, dS^T Q (row = key, k = query) */
};

/* c [rows][columns] = a [rows][count] b [count][columns]: scores, from row-major queries and channel-major keys. */
void tile_product(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t rows, size_t columns,
                  size_t count, float *c, size_t c_stride);

/* c [rows][columns] += a [rows][count] b [count][columns]. */
void tile_accumulate(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t rows, size_t columns,
                     size_t count, enum tile_mask mask, float *c, size_t c_stride);

/* c [rows][columns] += a^T b, a [count][rows], b [count][columns]. */
void tile_accumulate_transposed(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t rows,
                                size_t columns, size_t count, enum tile_mask mask, float *c, size_t c_stride);

/* to [columns][to_stride] = from [rows][columns] transposed. */
void tile_transpose(const float *from, size_t from_stride, size_t rows, size_t columns, float *to, size_t to_stride);

#endif
