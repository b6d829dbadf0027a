/* read.h: how much of the next byte can be read off the row before it.
 *
 * For a place t in real text, each of the 256 byte values is put at t + 1; those whose output at row t is bit-identical
 * to the true one's cannot be told from it. log2(256 / matches) bits are readable: 0 where nothing leaks, 8 where the
 * next byte is there for the taking. That is information present; what a model has learned to use, evaluation says. It
 * shows a leak in seconds, where a short training cannot.
 */
#ifndef ATTENTION_READ_H
#define ATTENTION_READ_H

#include "attention/attention.h"

#define READ_VALUES    256
#define READ_POSITIONS 32 /* of the scale group */

struct reading {
    double bits;   /* mean over places */
    double unique; /* share of places where only the true byte matches */
    size_t places;
    double position_bits[READ_POSITIONS]; /* by the place of t in its group of 32 */
    size_t position_places[READ_POSITIONS];
};

/* Begin with a zeroed reading; add the number of matches (1..256) at each place; then finish, which turns sums into
 * means. */
void reading_add(struct reading *reading, size_t place, size_t matches);
void reading_finish(struct reading *reading);

/* Number of `variants` whose bytes equal those of variant `truth`; variant v begins at rows + v * stride bytes. */
size_t reading_matches(const void *rows, size_t stride, size_t bytes, size_t variants, size_t truth);

/* True if variants cannot share a call because a scale spans the whole call. */
bool reading_needs_own_call(const struct recipe *recipe);

/* Attention alone: each byte value has a fixed random Q, K and V row (N(0, 1), BF16) from `seed`; a document of
 * `length` tokens of text; `places` of t, spread. Output: the row of O. */
enum attention_status reading_of_attention(const struct recipe *recipe, size_t heads, size_t head_dim,
                                           const uint8_t *text, size_t length, size_t places, uint64_t seed,
                                           struct reading *reading);

/* The i-th of `places` places of t in a document of `length` tokens, so that t + 1 exists: spread, each at another
 * place of its group. */
size_t reading_place(size_t length, size_t places, size_t i);

#endif
