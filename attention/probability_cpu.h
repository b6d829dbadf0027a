/* probability_cpu.h: quantizing P and dS, which exist one tile at a time. For attention/ only.
 *
 * A tile is [rows][TILE] floats; what a row may not see is 0 and stays 0. All functions work in place and leave decoded
 * values (paper, sections 3.3 and 3.4, appendix B.1).
 */
#ifndef ATTENTION_PROBABILITY_CPU_H
#define ATTENTION_PROBABILITY_CPU_H

#include "attention/attention.h"

/* P of P V: p = 2^(x - m). `peaks` [rows][TILE / 32]: the largest visible x - m of each 32 keys (E4M3_GROUP only).
 * `fold` [columns], or NULL: E8M0 bytes of the keys' exponents; p * 2^e is what gets quantized. `columns` is a multiple
 * of 16. */
void probability_quantize(const struct recipe *recipe, float *p, size_t rows, size_t columns, const float *peaks,
                          const uint8_t *fold);

/* P of dV: p = 2^(x - lse). */
void probability_quantize_dvalue(const struct recipe *recipe, float *p, size_t rows, size_t columns);

/* Where a tile lies, for the counters of stochastic rounding. */
struct tile_place {
    uint64_t seed, step;
    uint32_t query, key, head, layer; /* numbers of the tile's first query and key, offsets added */
};

/* dS of dQ in `dscore`, dS of dK in `dscore_key`; both hold the same unquantized dS on entry. `fold` as above, for dQ
 * only. `tensor_scale` serves DSCORE_TENSOR. */
void dscore_quantize(const struct recipe *recipe, float *dscore, float *dscore_key, size_t rows, size_t columns,
                     const uint8_t *fold, float tensor_scale, const struct tile_place *place);

/* fl32(amax / 448) of the call's dS, NaN if that is not finite. */
float dscore_tensor_scale(uint32_t amax_bits);

#endif
