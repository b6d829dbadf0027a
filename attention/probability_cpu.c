/* probability_cpu.c: see probability_cpu.h. */
#include "attention/probability_cpu.h"

#include <math.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/philox.h"

#define GROUP          16
#define KEY_GROUP      32
#define MAGNITUDE_MASK 0x7FFFFFFFu
#define INFINITY_BITS  0x7F800000u

static uint32_t magnitude(float x)
{
    return float_to_bits(x) & MAGNITUDE_MASK;
}

/* ---- element by element ---- */

static void round_bf16(float *x, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            x[r * TILE + j] = bf16_round(x[r * TILE + j]);
        }
    }
}

/* E4M3(2^shift x) / 2^shift */
static void round_e4m3(float *x, size_t rows, size_t columns, int shift)
{
    const float up = exponent_to_float(shift), down = exponent_to_float(-shift);
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            x[r * TILE + j] = e4m3_round(x[r * TILE + j] * up) * down;
        }
    }
}

/* One exponent per row and 32 keys, e = ceil(peak) - 8, so that the largest is in (2^7, 2^8]. */
static void round_e4m3_groups(float *p, size_t rows, size_t columns, const float *peaks)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t first = 0; first < columns; first += KEY_GROUP) {
            const float peak = peaks[r * (TILE / KEY_GROUP) + first / KEY_GROUP];
            const int e = peak < -118.0f ? -126 : (int)ceilf(peak < 100.0f ? peak : 100.0f) - 8;
            const float up = exponent_to_float(-e), down = exponent_to_float(e);
            const size_t last = first + KEY_GROUP < columns ? first + KEY_GROUP : columns;
            for (size_t j = first; j < last; j++) {
                p[r * TILE + j] = e4m3_round(p[r * TILE + j] * up) * down;
            }
        }
    }
}

/* ---- NVFP4 ---- */

static uint32_t largest(const float *x, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t m = magnitude(x[i]);
        most = m > most ? m : most;
    }
    return most;
}

/* A NaN or an infinity among the intermediates becomes a NaN scale and with it a NaN group. */
static float group_scale(uint32_t amax, float down)
{
    return amax >= INFINITY_BITS ? NAN : e4m3_round(float_from_bits(amax) * down / 6.0f);
}

static int tile_exponent(uint32_t amax)
{
    return scale_exponent_nvfp4(float_from_bits(amax < INFINITY_BITS ? amax : INFINITY_BITS - 1));
}

/* Groups of 16 along the row; t over the row's part of the tile. */
static void nvfp4_along_keys(float *x, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++) {
        float *row = x + r * TILE;
        const int t = tile_exponent(largest(row, columns));
        const float down = exponent_to_float(-t), up = exponent_to_float(t);
        for (size_t first = 0; first < columns; first += GROUP) {
            const float scale = group_scale(largest(row + first, GROUP), down);
            const float divisor = scale == 0 ? 1.0f : scale;
            for (size_t j = first; j < first + GROUP; j++) {
                row[j] = e2m1_round(row[j] * down / divisor) * scale * up;
            }
        }
    }
}

/* E2M1 rounded up with the probability of the fraction: the step is 0.5 below 2, 1 below 4, else 2. NaN stays NaN.
 * Compares magnitudes as integers, so that the loop around it vectorises. */
static inline float e2m1_stochastic(float x, float uniform)
{
    const uint32_t bits = magnitude(x), at_most_6 = bits > 0x40C00000u ? 0x40C00000u : bits;
    const uint32_t step = at_most_6 < 0x40000000u ? 0x3F000000u : at_most_6 < 0x40800000u ? 0x3F800000u : 0x40000000u;
    const uint32_t inverse = 0x7F000000u - step; /* of a power of two: exact */
    const float steps = float_from_bits(at_most_6) * float_from_bits(inverse), whole = (float)(int32_t)steps;
    const float up = uniform < steps - whole ? 1.0f : 0.0f;
    const uint32_t rounded = float_to_bits((whole + up) * float_from_bits(step));
    return float_from_bits((float_to_bits(x) & ~MAGNITUDE_MASK) | (bits > INFINITY_BITS ? bits : rounded));
}

#define ROW_BLOCKS (TILE / 4 + 1) /* Philox blocks of four keys that touch a tile's row, whatever its first key */

/* 128 uniform numbers for one query row of a tile: counter (query, key / 4, head, layer), word key % 4, key = (seed,
 * step). The same as philox4x32_10 block by block, with the rounds outside so that the blocks of a row run side by
 * side. */
static void row_uniforms(const struct tile_place *place, uint32_t row, float *uniform)
{
    uint32_t counter[4][ROW_BLOCKS + 15];
    float words[4 * ROW_BLOCKS];
    for (uint32_t block = 0; block < ROW_BLOCKS; block++) {
        counter[0][block] = place->query + row;
        counter[1][block] = place->key / 4 + block;
        counter[2][block] = place->head;
        counter[3][block] = place->layer;
    }
    uint32_t key0 = (uint32_t)place->seed, key1 = (uint32_t)place->step;
    for (int round = 0; round < 10; round++) {
        for (uint32_t block = 0; block < ROW_BLOCKS; block++) {
            philox_round(&counter[0][block], &counter[1][block], &counter[2][block], &counter[3][block], key0, key1);
        }
        key0 += PHILOX_KEY0_STEP;
        key1 += PHILOX_KEY1_STEP;
    }
    for (uint32_t block = 0; block < ROW_BLOCKS; block++) {
        for (uint32_t word = 0; word < 4; word++) {
            words[block * 4 + word] = philox_uniform(counter[word][block]);
        }
    }
    memcpy(uniform, words + place->key % 4, TILE * sizeof *uniform);
}

/* One group of up to 16 queries, all keys. */
static void nvfp4_query_group(float *x, size_t rows, size_t columns, const float *down, const float *up,
                              const struct tile_place *place, uint32_t first_row)
{
    uint32_t amax[TILE] = {0};
    float scale[TILE], divisor[TILE], uniform[TILE];
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            const uint32_t m = magnitude(x[r * TILE + j]);
            amax[j] = m > amax[j] ? m : amax[j];
        }
    }
    for (size_t j = 0; j < columns; j++) {
        scale[j] = group_scale(amax[j], down[j]);
        divisor[j] = scale[j] == 0 ? 1.0f : scale[j];
    }
    for (size_t r = 0; r < rows; r++) {
        float *row = x + r * TILE;
        if (place) {
            row_uniforms(place, first_row + (uint32_t)r, uniform);
            for (size_t j = 0; j < columns; j++) {
                row[j] = e2m1_stochastic(row[j] * down[j] / divisor[j], uniform[j]) * scale[j] * up[j];
            }
            continue;
        }
        for (size_t j = 0; j < columns; j++) {
            row[j] = e2m1_round(row[j] * down[j] / divisor[j]) * scale[j] * up[j];
        }
    }
}

/* Groups of 16 along the queries of one key; t over the key's part of the tile. `place`: round stochastically. */
static void nvfp4_along_queries(float *x, size_t rows, size_t columns, const struct tile_place *place)
{
    uint32_t amax[TILE] = {0};
    float down[TILE], up[TILE];
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            const uint32_t m = magnitude(x[r * TILE + j]);
            amax[j] = m > amax[j] ? m : amax[j];
        }
    }
    for (size_t j = 0; j < columns; j++) {
        const int t = tile_exponent(amax[j]);
        down[j] = exponent_to_float(-t);
        up[j] = exponent_to_float(t);
    }
    for (size_t first = 0; first < rows; first += GROUP) {
        const size_t count = rows - first < GROUP ? rows - first : GROUP;
        nvfp4_query_group(x + first * TILE, count, columns, down, up, place, (uint32_t)first);
    }
}

/* ---- P ---- */

static void scale_columns(float *x, size_t rows, size_t columns, const uint8_t *fold, int sign)
{
    float factor[TILE];
    for (size_t j = 0; j < columns; j++) {
        factor[j] = fold[j] == E8M0_NAN ? NAN : exponent_to_float(sign * (fold[j] - 127));
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            const float value = x[r * TILE + j];
            x[r * TILE + j] = value == 0 ? value : value * factor[j];
        }
    }
}

/* Quantizes x * 2^e along keys and takes the exponents out again: exact, so that multiplying by decoded keys equals
 * multiplying by codes. */
static void nvfp4_along_keys_folded(float *x, size_t rows, size_t columns, const uint8_t *fold)
{
    if (fold) {
        scale_columns(x, rows, columns, fold, 1);
    }
    nvfp4_along_keys(x, rows, columns);
    if (fold) {
        scale_columns(x, rows, columns, fold, -1);
    }
}

void probability_quantize(const struct recipe *recipe, float *p, size_t rows, size_t columns, const float *peaks,
                          const uint8_t *fold)
{
    switch (recipe->probability) {
    case PROBABILITY_FP32:
        return;
    case PROBABILITY_BF16:
        round_bf16(p, rows, columns);
        return;
    case PROBABILITY_E4M3_FIXED:
        round_e4m3(p, rows, columns, recipe->probability_shift);
        return;
    case PROBABILITY_E4M3_GROUP:
        round_e4m3_groups(p, rows, columns, peaks);
        return;
    case PROBABILITY_E2M1:
        nvfp4_along_keys_folded(p, rows, columns, fold);
        return;
    }
}

void probability_quantize_dvalue(const struct recipe *recipe, float *p, size_t rows, size_t columns)
{
    switch (recipe->probability_dvalue) {
    case PROBABILITY_FP32:
        return;
    case PROBABILITY_BF16:
        round_bf16(p, rows, columns);
        return;
    case PROBABILITY_E4M3_FIXED:
    case PROBABILITY_E4M3_GROUP:
        round_e4m3(p, rows, columns, 8);
        return;
    case PROBABILITY_E2M1:
        nvfp4_along_queries(p, rows, columns, NULL);
        return;
    }
}

/* ---- dS ---- */

float dscore_tensor_scale(uint32_t amax_bits)
{
    return amax_bits >= INFINITY_BITS ? NAN : float_from_bits(amax_bits) / E4M3_MAX;
}

/* One FP32 scale for the whole call; if anything in it was not finite, all of it is NaN. */
static void round_tensor(float *x, size_t rows, size_t columns, float scale)
{
    const float divisor = scale == 0 ? 1.0f : scale;
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            x[r * TILE + j] = e4m3_round(x[r * TILE + j] / divisor) * scale;
        }
    }
}

static void fill_block(float *x, size_t rows, size_t columns, float value)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            x[r * TILE + j] = value;
        }
    }
}

static void round_block(float *x, size_t rows, size_t columns, int e)
{
    const float down = exponent_to_float(-e), up = exponent_to_float(e);
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < columns; j++) {
            x[r * TILE + j] = e4m3_round(x[r * TILE + j] * down) * up;
        }
    }
}

/* E4M3 with one exponent per `height` queries and `width` keys. */
static void round_blocks(const struct recipe *recipe, float *x, size_t rows, size_t columns, size_t height,
                         size_t width)
{
    for (size_t row = 0; row < rows; row += height) {
        const size_t block_rows = rows - row < height ? rows - row : height;
        for (size_t column = 0; column < columns; column += width) {
            const size_t block_columns = columns - column < width ? columns - column : width;
            float *block = x + row * TILE + column;
            uint32_t amax = 0;
            for (size_t r = 0; r < block_rows; r++) {
                const uint32_t m = largest(block + r * TILE, block_columns);
                amax = m > amax ? m : amax;
            }
            if (amax >= INFINITY_BITS) { /* as an operand's block: exponent byte 255 */
                fill_block(block, block_rows, block_columns, NAN);
                continue;
            }
            round_block(block, block_rows, block_columns, scale_exponent_e4m3(float_from_bits(amax), recipe->rule));
        }
    }
}

static void dscore_quantize_e4m3(const struct recipe *recipe, float *x, size_t rows, size_t columns, float tensor_scale)
{
    switch (recipe->dscore_scale) {
    case DSCORE_BLOCK:
        round_blocks(recipe, x, rows, columns, TOKEN_BLOCK, TOKEN_BLOCK);
        return;
    case DSCORE_ROW:
        round_blocks(recipe, x, rows, columns, 1, TOKEN_BLOCK);
        return;
    case DSCORE_TILE:
        round_blocks(recipe, x, rows, columns, TILE, TILE);
        return;
    case DSCORE_TENSOR:
        round_tensor(x, rows, columns, tensor_scale);
        return;
    case DSCORE_FIXED:
        round_block(x, rows, columns, recipe->dscore_exponent);
        return;
    }
}

void dscore_quantize(const struct recipe *recipe, float *dscore, float *dscore_key, size_t rows, size_t columns,
                     const uint8_t *fold, float tensor_scale, const struct tile_place *place)
{
    switch (recipe->dscore) {
    case DSCORE_FP32:
        return;
    case DSCORE_BF16:
        round_bf16(dscore, rows, columns);
        break;
    case DSCORE_E4M3:
        dscore_quantize_e4m3(recipe, dscore, rows, columns, tensor_scale);
        break;
    case DSCORE_E2M1:
        nvfp4_along_keys_folded(dscore, rows, columns, fold);
        nvfp4_along_queries(dscore_key, rows, columns, recipe->dscore_stochastic ? place : NULL);
        return;
    }
    memcpy(dscore_key, dscore, rows * TILE * sizeof *dscore); /* one payload serves both products */
}
