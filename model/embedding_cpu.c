/* embedding_cpu.c: token and position tables. See ops.h. */
#include "model/ops.h"

#define COLUMN_BLOCK 32

void embedding_forward_cpu(const int32_t *tokens, const int32_t *positions, const float *token_table,
                           const float *position_table, size_t rows, size_t columns, float *y)
{
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < rows; row++) {
        const float *token = token_table + (size_t)tokens[row] * columns;
        const float *position = position_table ? position_table + (size_t)positions[row] * columns : NULL;
        for (size_t i = 0; i < columns; i++) {
            y[row * columns + i] = position ? token[i] + position[i] : token[i];
        }
    }
}

static void add_rows(const int32_t *ids, const float *dy, size_t rows, size_t columns, size_t first, float *gradient)
{
    const size_t width = columns - first < COLUMN_BLOCK ? columns - first : COLUMN_BLOCK;
    for (size_t row = 0; row < rows; row++) {
        float *to = gradient + (size_t)ids[row] * columns + first;
        for (size_t i = 0; i < width; i++) {
            to[i] += dy[row * columns + first + i];
        }
    }
}

/* Threads share out the channels, not the tokens: each table row's sum is taken in token order by one thread. */
void embedding_backward_cpu(const int32_t *tokens, const int32_t *positions, const float *dy, size_t rows,
                            size_t columns, float *token_gradient, float *position_gradient)
{
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < columns; first += COLUMN_BLOCK) {
        add_rows(tokens, dy, rows, columns, first, token_gradient);
        if (position_gradient) {
            add_rows(positions, dy, rows, columns, first, position_gradient);
        }
    }
}
