/* check_philox.c: Philox4x32-10 against the known answers published with Random123, and as a source of roundings. */
#include <math.h>

#include "attention/philox.h"
#include "tests/support.h"

START_TEST(known_answers)
{
    static const uint32_t counter[3][4] = {{0, 0, 0, 0},
                                           {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                                           {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
    static const uint32_t key[3][2] = {{0, 0}, {0xffffffff, 0xffffffff}, {0xa4093822, 0x299f31d0}};
    static const uint32_t answer[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                          {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                          {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        const struct philox_block block =
            philox4x32_10(key[i][0], key[i][1], counter[i][0], counter[i][1], counter[i][2], counter[i][3]);
        for (int word = 0; word < 4; word++) {
            ck_assert_uint_eq(block.word[word], answer[i][word]);
        }
    }
}
END_TEST

START_TEST(uniform_is_the_top_24_bits)
{
    ck_assert_float_eq(philox_uniform(0), 0);
    ck_assert_float_eq(philox_uniform(0xFF), 0);
    ck_assert_float_eq(philox_uniform(0x80000000u), 0.5f);
    ck_assert_float_eq(philox_uniform(0xFFFFFFFFu), 1 - 0x1p-24f);
}
END_TEST

START_TEST(consecutive_counters_are_not_correlated)
{
    /* 10^5 numbers: mean 1/2 +- 9e-4 and lag-1 correlation 0 +- 3.2e-3 (one sigma); the stream is fixed, so the outcome
     * is too. */
    double sum = 0, product = 0, last = 0.5;
    const int count = 100000;
    for (int i = 0; i < count; i++) {
        const double u = (double)philox_uniform(philox4x32_10(7, 9, (uint32_t)i, 0, 0, 0).word[0]);
        sum += u;
        product += (u - 0.5) * (last - 0.5) * 12;
        last = u;
    }
    ck_assert_double_eq_tol(sum / count, 0.5, 4e-3);
    ck_assert_double_eq_tol(product / count, 0, 1.5e-2);
}
END_TEST

Suite *suite_philox(void);

Suite *suite_philox(void)
{
    Suite *suite = suite_create("philox");
    TCase *tcase = tcase_create("philox");
    tcase_add_test(tcase, known_answers);
    tcase_add_test(tcase, uniform_is_the_top_24_bits);
    tcase_add_test(tcase, consecutive_counters_are_not_correlated);
    suite_add_tcase(suite, tcase);
    return suite;
}
