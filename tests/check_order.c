/* check_order.c: the order of samples is a bijection, looks random, and never changes from version to version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"
#include "tests/support.h"

Suite *suite_order(void);

static void assert_bijection(uint64_t seed, uint64_t epoch, size_t count)
{
    uint8_t *seen = calloc(count, 1);
    ck_assert_ptr_nonnull(seen);
    for (size_t i = 0; i < count; i++) {
        const uint64_t image = order_permute(seed, epoch, i, count);
        ck_assert_uint_lt(image, count);
        ck_assert_msg(!seen[image], "count %zu: %lu twice", count, (unsigned long)image);
        seen[image] = 1;
    }
    free(seen);
}

START_TEST(every_small_count_is_permuted)
{
    struct random_stream random = random_stream(1);
    for (size_t count = 1; count <= 300; count++) {
        assert_bijection(random_bits(&random), random_bits(&random), count);
    }
}
END_TEST

START_TEST(counts_around_powers_of_four_are_permuted)
{
    struct random_stream random = random_stream(2);
    for (size_t power = 1024; power <= 65536; power *= 4) {
        for (size_t count = power - 1; count <= power + 1; count++) {
            assert_bijection(random_bits(&random), random_below(&random, 5), count);
        }
    }
}
END_TEST

START_TEST(huge_counts_stay_in_range)
{
    struct random_stream random = random_stream(3);
    static const uint64_t counts[] = {(UINT64_C(1) << 62) + 1, UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 32) + 1};
    for (size_t c = 0; c < 4; c++) {
        const uint64_t seed = random_bits(&random);
        uint64_t images[64];
        for (size_t i = 0; i < 64; i++) {
            images[i] = order_permute(seed, 0, counts[c] - 1 - i, counts[c]);
            ck_assert(images[i] < counts[c]);
            for (size_t j = 0; j < i; j++) {
                ck_assert(images[i] != images[j]);
            }
        }
    }
}
END_TEST

START_TEST(seed_and_epoch_both_change_the_order)
{
    struct random_stream random = random_stream(4);
    const uint64_t seed = random_bits(&random), epoch = random_below(&random, 1000);
    size_t same_seed = 0, same_epoch = 0, fixed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t image = order_permute(seed, epoch, i, 1000);
        same_seed += image == order_permute(seed + 1, epoch, i, 1000);
        same_epoch += image == order_permute(seed, epoch + 1, i, 1000);
        fixed += image == i;
    }
    /* Two random orders agree in Poisson(1) places; 30 has a chance below 1e-32. */
    ck_assert_uint_lt(same_seed, 30);
    ck_assert_uint_lt(same_epoch, 30);
    ck_assert_uint_lt(fixed, 30);
}
END_TEST

START_TEST(every_index_goes_everywhere)
{
    /* 13 indices, 13 * 2000 fixed seeds: 2000 expected in each cell, standard deviation 43. The inputs are fixed, so is
     * the result. */
    for (uint64_t index = 0; index < 13; index++) {
        int hits[13] = {0};
        for (uint64_t seed = 0; seed < 13 * 2000; seed++) {
            hits[order_permute(seed, seed % 7, index, 13)]++;
        }
        for (int i = 0; i < 13; i++) {
            ck_assert_int_gt(hits[i], 1800);
            ck_assert_int_lt(hits[i], 2200);
        }
    }
}
END_TEST

START_TEST(order_is_the_one_that_checkpoints_rely_on)
{
    /* A run resumed with a later version must go on with the samples it has not seen: these never change. */
    static const uint64_t expected[2][8] = {
        {150, 392, 101, 809, 508, 74, 198, 350},
        {UINT64_C(857619583654), UINT64_C(48170731420), UINT64_C(684168675594), UINT64_C(930392942643),
         UINT64_C(182241382686), UINT64_C(334292456290), UINT64_C(429972225673), UINT64_C(518304657659)},
    };
    for (uint64_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(order_permute(1, 0, i, 1000), expected[0][i]);
        ck_assert_uint_eq(order_permute(UINT64_C(0x123456789ABCDEF), 5, i, UINT64_C(1) << 40), expected[1][i]);
    }
}
END_TEST

Suite *suite_order(void)
{
    Suite *suite = suite_create("order");
    TCase *tests = tcase_create("order");
    tcase_add_test(tests, every_small_count_is_permuted);
    tcase_add_test(tests, counts_around_powers_of_four_are_permuted);
    tcase_add_test(tests, huge_counts_stay_in_range);
    tcase_add_test(tests, seed_and_epoch_both_change_the_order);
    tcase_add_test(tests, every_index_goes_everywhere);
    tcase_add_test(tests, order_is_the_one_that_checkpoints_rely_on);
    suite_add_tcase(suite, tests);
    return suite;
}
