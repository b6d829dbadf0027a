/* tile_cpu.c: see tile_cpu.h. One kernel of 4 rows x 32 columns does the work; its edges are narrower versions of the
 * same loop.
 *
 * Vectors are the compiler's own (16 floats, split on narrower machines), so the same source serves x86 and ARM.
 * Multiply and add stay apart
 * (-ffp-contract=off): the reference's bits must not depend on whether a machine fuses them.
 */
#include <string.h>

#include "attention/tile_cpu.h"

typedef float vector __attribute__((vector_size(64), aligned(4), may_alias));

#define LANES      16
#define BLOCK_ROWS 4

static inline const vector *load(const float *x)
{
    return (const vector *)(const void *)x;
}

static inline vector *store(float *x)
{
    return (vector *)(void *)x;
}

/* The left operand: element (row, k) at a[row * row_stride + k * k_stride]. */
struct left {
    const float *a;
    size_t row_stride, k_stride;
};

static inline __attribute__((always_inline)) void block_wide(struct left left, const float *b, size_t b_stride,
                                                             size_t begin, size_t end, float *c, size_t c_stride,
                                                             int fresh)
{
    vector sum[BLOCK_ROWS][2] = {0};
    for (int r = 0; r < BLOCK_ROWS && !fresh; r++) {
        sum[r][0] = *load(c + (size_t)r * c_stride);
        sum[r][1] = *load(c + (size_t)r * c_stride + LANES);
    }
    const float *a0 = left.a, *a1 = a0 + left.row_stride, *a2 = a1 + left.row_stride, *a3 = a2 + left.row_stride;
    for (size_t k = begin; k < end; k++) {
        const vector b0 = *load(b + k * b_stride), b1 = *load(b + k * b_stride + LANES);
        const size_t at = k * left.k_stride;
        sum[0][0] += a0[at] * b0;
        sum[0][1] += a0[at] * b1;
        sum[1][0] += a1[at] * b0;
        sum[1][1] += a1[at] * b1;
        sum[2][0] += a2[at] * b0;
        sum[2][1] += a2[at] * b1;
        sum[3][0] += a3[at] * b0;
        sum[3][1] += a3[at] * b1;
    }
    for (int r = 0; r < BLOCK_ROWS; r++) {
        *store(c + (size_t)r * c_stride) = sum[r][0];
        *store(c + (size_t)r * c_stride + LANES) = sum[r][1];
    }
}

/* One row, 16 columns. */
static inline __attribute__((always_inline)) void block_narrow(struct left left, const float *b, size_t b_stride,
                                                               size_t begin, size_t end, float *c, int fresh)
{
    vector sum = {0};
    if (!fresh) {
        sum = *load(c);
    }
    for (size_t k = begin; k < end; k++) {
        sum += left.a[k * left.k_stride] * *load(b + k * b_stride);
    }
    *store(c) = sum;
}

/* One row, one column. */
static void block_single(struct left left, const float *b, size_t b_stride, size_t begin, size_t end, float *c,
                         int fresh)
{
    float sum = fresh ? 0.0f : *c;
    for (size_t k = begin; k < end; k++) {
        sum += left.a[k * left.k_stride] * b[k * b_stride];
    }
    *c = sum;
}

static void row_product(struct left left, const float *b, size_t b_stride, size_t columns, size_t begin, size_t end,
                        float *c, int fresh)
{
    size_t column = 0;
    if (begin >= end && !fresh) {
        return;
    }
    for (; column + LANES <= columns; column += LANES) {
        block_narrow(left, b + column, b_stride, begin, end, c + column, fresh);
    }
    for (; column < columns; column++) {
        block_single(left, b + column, b_stride, begin, end, c + column, fresh);
    }
}

static void rows_product(struct left left, const float *b, size_t b_stride, size_t columns, size_t begin, size_t end,
                         float *c, size_t c_stride, int fresh)
{
    size_t column = 0;
    for (; column + 2 * LANES <= columns; column += 2 * LANES) {
        block_wide(left, b + column, b_stride, begin, end, c + column, c_stride, fresh);
    }
    for (size_t r = 0; column < columns && r < BLOCK_ROWS; r++) {
        const struct left row = {left.a + r * left.row_stride, left.row_stride, left.k_stride};
        row_product(row, b + column, b_stride, columns - column, begin, end, c + r * c_stride + column, fresh);
    }
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Four rows under a mask: the terms all four share go through the wide kernel; each row's own, before or after them,
 * singly. The order of every row's terms stays ascending in k. */
static void masked_rows(struct left left, const float *b, size_t b_stride, size_t columns, size_t row, size_t count,
                        enum tile_mask mask, float *c, size_t c_stride)
{
    const size_t shared_begin = mask == TILE_UPPER ? smaller(row + BLOCK_ROWS - 1, count) : 0;
    const size_t shared_end = mask == TILE_LOWER ? smaller(row + 1, count) : count;
    for (size_t r = 0; mask == TILE_UPPER && r < BLOCK_ROWS; r++) {
        const struct left one = {left.a + r * left.row_stride, left.row_stride, left.k_stride};
        row_product(one, b, b_stride, columns, smaller(row + r, count), shared_begin, c + r * c_stride, 0);
    }
    rows_product(left, b, b_stride, columns, shared_begin, shared_end, c, c_stride, 0);
    for (size_t r = 0; mask == TILE_LOWER && r < BLOCK_ROWS; r++) {
        const struct left one = {left.a + r * left.row_stride, left.row_stride, left.k_stride};
        row_product(one, b, b_stride, columns, shared_end, smaller(row + r + 1, count), c + r * c_stride, 0);
    }
}

static void product(struct left left, const float *b, size_t b_stride, size_t rows, size_t columns, size_t count,
                    enum tile_mask mask, float *c, size_t c_stride, int fresh)
{
    size_t row = 0;
    for (; row + BLOCK_ROWS <= rows; row += BLOCK_ROWS) {
        const struct left block = {left.a + row * left.row_stride, left.row_stride, left.k_stride};
        if (mask == TILE_FULL) {
            rows_product(block, b, b_stride, columns, 0, count, c + row * c_stride, c_stride, fresh);
        } else {
            masked_rows(block, b, b_stride, columns, row, count, mask, c + row * c_stride, c_stride);
        }
    }
    for (; row < rows; row++) {
        const struct left one = {left.a + row * left.row_stride, left.row_stride, left.k_stride};
        const size_t begin = mask == TILE_UPPER ? smaller(row, count) : 0;
        const size_t end = mask == TILE_LOWER ? smaller(row + 1, count) : count;
        row_product(one, b, b_stride, columns, begin, end, c + row * c_stride, fresh);
    }
}

void tile_product(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t rows, size_t columns,
                  size_t count, float *c, size_t c_stride)
{
    product((struct left){a, a_stride, 1}, b, b_stride, rows, columns, count, TILE_FULL, c, c_stride, 1);
}

void tile_accumulate(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t rows, size_t columns,
                     size_t count, enum tile_mask mask, float *c, size_t c_stride)
{
    product((struct left){a, a_stride, 1}, b, b_stride, rows, columns, count, mask, c, c_stride, 0);
}

void tile_accumulate_transposed(const float *a, size_t a_stride, const float *b, size_t b_stride, size_t rows,
                                size_t columns, size_t count, enum tile_mask mask, float *c, size_t c_stride)
{
    product((struct left){a, 1, a_stride}, b, b_stride, rows, columns, count, mask, c, c_stride, 0);
}

void tile_transpose(const float *from, size_t from_stride, size_t rows, size_t columns, float *to, size_t to_stride)
{
    for (size_t row = 0; row < rows; row += LANES) {
        const size_t last = smaller(row + LANES, rows);
        for (size_t column = 0; column < columns; column++) {
            for (size_t r = row; r < last; r++) {
                to[column * to_stride + r] = from[r * from_stride + column];
            }
        }
    }
}
