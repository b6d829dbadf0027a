/* check_oracle.c: every recipe's forward and backward, stage by stage, against its definition (attention_oracle.h). */
#include <math.h>
#include <string.h>

#include "tests/attention_oracle.h"

static void check_recipe(struct random_stream *stream, const struct recipe *recipe, size_t head_dim, bool causal,
                         float sharpness)
{
    /* Two tiles with a short end, an odd start, an empty document, one token; two heads share a key head. */
    static const size_t lengths[] = {1, 0, 37, 161};
    struct attention_case c = case_make(stream, lengths, 4, 2, 1, head_dim, causal);
    c.shape.softmax_scale *= sharpness;
    case_trace(&c);
    case_run(&c, recipe);
    oracle_check(&c, recipe);
    case_free(&c);
}

START_TEST(every_preset_follows_its_definition)
{
    struct random_stream stream = random_stream(100 + (uint64_t)_i);
    check_recipe(&stream, recipe_at((size_t)_i), 64, true, 1);
    check_recipe(&stream, recipe_at((size_t)_i), 32, false, 1);
}
END_TEST

START_TEST(rotated_presets_follow_their_definition_at_128_channels)
{
    struct random_stream stream = random_stream(200 + (uint64_t)_i);
    static const char *const names[] = {"mxfp8", "nvfp4", "mxfp8-causal", "fp4"};
    check_recipe(&stream, recipe_find(names[_i]), 128, true, 1);
}
END_TEST

START_TEST(sharp_scores_follow_the_definition)
{
    /* Eight times the scale: rows dominated by one key, running maxima that move by more and less than tau. */
    struct random_stream stream = random_stream(300 + (uint64_t)_i);
    check_recipe(&stream, recipe_at((size_t)_i), 32, false, 8);
}
END_TEST

static const char *const switched[][4] = {
    {"mxfp8", "dscore-scale=row"},
    {"mxfp8", "dscore-scale=tile"},
    {"mxfp8", "dscore-scale=tensor"},
    {"mxfp8", "dscore-scale=fixed", "dscore-exponent=-6"},
    {"mxfp8", "rule=floor", "exponents=token"},
    {"mxfp8", "hadamard=1"},
    {"mxfp8", "c=8", "tau=0"},
    {"mxfp8", "dquery=fp16-causal"},
    {"mxfp8", "dquery=fp16-sequence"},
    {"nvfp4", "dquery=fp16-causal"},
    {"nvfp4", "exponents=token"},
    {"fp4", "value-groups=keyed"},
    {"fp4", "dscore-stochastic=0"},
    {"fp4", "delta=quantized"},
    {"fp4", "tau=0"},
    {"exact", "score=e4m3"},
    {"exact", "value=nvfp4"},
    {"exact", "exponential=polynomial", "exponential-backward=polynomial"},
    {"mxfp8", "delta=direct"},
    {"mxfp8", "delta=original", "mismatch=1"},
    {"fp4", "diagonal-forward=256", "mismatch=1"},
    {"fp4", "diagonal-backward=256", "mismatch=1"},
    {"fp4", "diagonal-forward=256", "diagonal-backward=256"},
    {"fp4", "probability-dvalue=e4m3", "mismatch=1"},
    {"mxfp8", "probability=e4m3-group", "c=0"},
};
#define SWITCHED (sizeof switched / sizeof *switched)

START_TEST(every_switch_follows_its_definition)
{
    struct random_stream stream = random_stream(400 + (uint64_t)_i);
    const struct recipe recipe = recipe_with(switched[_i][0], &switched[_i][1]);
    check_recipe(&stream, &recipe, 32, true, 1);
}
END_TEST

START_TEST(grouped_heads_of_every_width_follow_the_definition)
{
    struct random_stream stream = random_stream(500 + (uint64_t)_i);
    static const size_t lengths[] = {19, 30};
    static const char *const names[] = {"mxfp8", "nvfp4-causal", "fp4"};
    for (size_t i = 0; i < 3; i++) {
        struct attention_case c = case_make(&stream, lengths, 2, 6, 3, 16 * (size_t)(_i + 1), true);
        c.random.query_offset = 1001; /* not a multiple of 4 */
        case_trace(&c);
        case_run(&c, recipe_find(names[i]));
        oracle_check(&c, recipe_find(names[i]));
        case_free(&c);
    }
}
END_TEST

Suite *suite_oracle(void);

Suite *suite_oracle(void)
{
    Suite *suite = suite_create("oracle");
    TCase *tcase = tcase_create("oracle");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_preset_follows_its_definition, 0, (int)recipe_count());
    tcase_add_loop_test(tcase, rotated_presets_follow_their_definition_at_128_channels, 0, 4);
    tcase_add_loop_test(tcase, sharp_scores_follow_the_definition, 0, (int)recipe_count());
    tcase_add_loop_test(tcase, every_switch_follows_its_definition, 0, (int)SWITCHED);
    tcase_add_loop_test(tcase, grouped_heads_of_every_width_follow_the_definition, 0, 16);
    suite_add_tcase(suite, tcase);
    return suite;
}
