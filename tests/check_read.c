/* check_read.c: reading the next byte off the row before it. */
#include <math.h>
#include <string.h>

#include "attention/read.h"
#include "model/network.h"
#include "tests/support.h"
#include "train/read_model.h"

static const uint8_t text[] = "what a row must not know is the byte that comes after it, whatever shares its scale";
#define LENGTH 64
#define PLACES 6

static struct reading read_attention(const char *recipe)
{
    struct random_stream random = random_stream(1);
    struct reading reading;
    ck_assert_int_eq(
        reading_of_attention(recipe_find(recipe), 1, 64, text, LENGTH, PLACES, random_bits(&random), &reading),
        ATTENTION_OK);
    ck_assert_uint_eq(reading.places, PLACES);
    return reading;
}

START_TEST(exact_attention_tells_nothing)
{
    static const char *const recipes[] = {"fp32", "exact", "mxfp8-causal", "nvfp4-causal"};
    const struct reading reading = read_attention(recipes[_i]);
    ck_assert_double_eq(reading.bits, 0);
    ck_assert_double_eq(reading.unique, 0);
}
END_TEST

/* Ordinary rows hardly ever move each other's E4M3 codes, so little can be read: at most the paper's residue. */
START_TEST(blocks_of_bytes_tell_little)
{
    ck_assert_double_lt(read_attention("mxfp8").bits, 1);
    ck_assert_double_lt(read_attention("nvfp4").bits, 1);
    ck_assert_double_eq(read_attention("fp4").bits, 0);
}
END_TEST

START_TEST(four_bit_groups_tell_much)
{
    ck_assert_double_gt(read_attention("fp4-leaky").bits, 1.5);
    ck_assert_double_gt(read_attention("fp8-tensor").bits, 0);
}
END_TEST

START_TEST(nothing_can_be_read_at_the_end_of_a_group)
{
    /* The token after the last of a tile is in another tile: no scale is shared with it. */
    struct reading reading;
    ck_assert_int_eq(reading_of_attention(recipe_find("fp4-leaky"), 1, 64, text, LENGTH, 24, 5, &reading),
                     ATTENTION_OK);
    for (size_t i = 0; i < READ_POSITIONS; i++) {
        ck_assert(reading.position_bits[i] >= 0 && reading.position_bits[i] <= 8);
    }
}
END_TEST

START_TEST(places_have_a_next_byte)
{
    for (size_t length = 2; length < 200; length++) {
        for (size_t places = 1; places < 40; places += 3) {
            for (size_t i = 0; i < places; i++) {
                ck_assert_uint_lt(reading_place(length, places, i) + 1, length);
            }
        }
    }
}
END_TEST

START_TEST(bits_follow_from_matches)
{
    struct reading reading;
    memset(&reading, 0, sizeof reading);
    reading_add(&reading, 3, 256);
    reading_add(&reading, 35, 1);
    reading_add(&reading, 4, 16);
    reading_finish(&reading);
    ck_assert_double_eq(reading.bits, 4);
    ck_assert_double_eq_tol(reading.unique, 1.0 / 3, 1e-12);
    ck_assert_double_eq(reading.position_bits[3], 4);
    ck_assert_double_eq(reading.position_bits[4], 4);
    const char rows[] = "aabbaacc";
    ck_assert_uint_eq(reading_matches(rows, 2, 2, 4, 0), 2);
    ck_assert_uint_eq(reading_matches(rows, 2, 2, 4, 1), 1);
}
END_TEST

/* A random model's logits: exact attention gives nothing away, grouped 4-bit V nearly everything. */
START_TEST(logits_of_a_model)
{
    const struct model_config config = {.family = MODEL_GPT2,
                                        .layers = 2,
                                        .width = 64,
                                        .heads = 1,
                                        .kv_heads = 1,
                                        .head_dim = 64,
                                        .ffn = 128,
                                        .vocabulary = 256,
                                        .padded_vocabulary = 256,
                                        .context = 24,
                                        .tied_head = true,
                                        .norm_epsilon = 1e-5f};
    const struct network_options options = {.max_tokens = 24};
    struct error error = {ERROR_NONE, ""};
    struct random_stream random = random_stream(2);
    struct network *network = network_create(&config, &options, &error);
    ck_assert_ptr_nonnull(network);
    float *parameters = network_parameters(network);
    parameters_initialise(network_table(network), &config, random_bits(&random), parameters);
    for (size_t i = 0; i < network_table(network)->elements; i++) {
        parameters[i] *= 4; /* larger activations than at the start of a training */
    }
    struct reading reading;
    ck_assert_msg(read_model(network, recipe_find("exact"), text, 24, 2, &reading, &error), "%s", error.text);
    ck_assert_double_eq(reading.bits, 0);
    ck_assert_msg(read_model(network, recipe_find("fp4-leaky"), text, 24, 2, &reading, &error), "%s", error.text);
    ck_assert_double_gt(reading.bits, 1);
    ck_assert(!read_model(network, recipe_find("exact"), text, 25, 2, &reading, &error)); /* longer than the context */
    ck_assert_int_eq(error.code, ERROR_USAGE);
    network_destroy(network);
}
END_TEST

Suite *suite_read(void);
Suite *suite_read(void)
{
    Suite *suite = suite_create("read");
    TCase *tests = tcase_create("read");
    tcase_set_timeout(tests, 20);
    tcase_add_loop_test(tests, exact_attention_tells_nothing, 0, 4);
    tcase_add_test(tests, blocks_of_bytes_tell_little);
    tcase_add_test(tests, four_bit_groups_tell_much);
    tcase_add_test(tests, nothing_can_be_read_at_the_end_of_a_group);
    tcase_add_test(tests, places_have_a_next_byte);
    tcase_add_test(tests, bits_follow_from_matches);
    tcase_add_test(tests, logits_of_a_model);
    suite_add_tcase(suite, tests);
    return suite;
}
