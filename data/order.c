/* order.c: the order of samples, a bijection of [0, count) that needs no memory and no state.
 *
 * A Feistel network permutes the numbers of an even number of bits, the fewest that hold `count`; an image outside [0,
 * count) is sent through again until it falls inside (cycle walking). That is a bijection of [0, count), and takes at
 * most four passes on average, as the network's domain is at most four times `count`.
 */
#include <stddef.h>

#include "data/loader.h"

#define ROUNDS 8

/* Finalizer of SplitMix64: a bijection of 64 bits in which each bit of the input moves about half of the output's. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t count)
{
    int half = 1; /* bits of a half */
    while (half < 32 && (uint64_t)1 << 2 * half < count) {
        half++;
    }
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    const uint64_t key = mix(mix(seed + UINT64_C(0x9E3779B97F4A7C15)) + epoch);
    uint64_t x = index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t next = left ^ (mix(key + mix(round << 32 | right)) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= count);
    return x;
}
