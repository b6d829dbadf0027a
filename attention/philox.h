/* philox.h: Philox4x32-10, the counter-based random generator (Salmon et al., SC 2011), shared by host and device.
 *
 * Random bits are a pure function of a key and a counter: no state to save, the same on any number of threads, ranks
 * and restarts.
 */
#ifndef ATTENTION_PHILOX_H
#define ATTENTION_PHILOX_H

#include "attention/formats.h"

struct philox_block {
    uint32_t word[4];
};

#define PHILOX_KEY0_STEP 0x9E3779B9u
#define PHILOX_KEY1_STEP 0xBB67AE85u

FORMAT_FUNCTION void philox_round(uint32_t *counter0, uint32_t *counter1, uint32_t *counter2, uint32_t *counter3,
                                  uint32_t key0, uint32_t key1)
{
    const uint64_t product0 = (uint64_t)0xD2511F53u * *counter0;
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * *counter2;
    *counter0 = (uint32_t)(product1 >> 32) ^ *counter1 ^ key0;
    *counter1 = (uint32_t)product1;
    *counter2 = (uint32_t)(product0 >> 32) ^ *counter3 ^ key1;
    *counter3 = (uint32_t)product0;
}

FORMAT_FUNCTION struct philox_block philox4x32_10(uint32_t key0, uint32_t key1, uint32_t counter0, uint32_t counter1,
                                                  uint32_t counter2, uint32_t counter3)
{
    for (int round = 0; round < 10; round++) {
        philox_round(&counter0, &counter1, &counter2, &counter3, key0, key1);
        key0 += PHILOX_KEY0_STEP;
        key1 += PHILOX_KEY1_STEP;
    }
    struct philox_block block;
    block.word[0] = counter0;
    block.word[1] = counter1;
    block.word[2] = counter2;
    block.word[3] = counter3;
    return block;
}

/* The top 24 bits of a word as a number in [0, 1). */
FORMAT_FUNCTION float philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

#endif
