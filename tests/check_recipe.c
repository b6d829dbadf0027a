/* check_recipe.c: the presets' table, setting and printing switches, and what is refused. */
#include <stdio.h>
#include <string.h>

#include "tests/attention_case.h"

START_TEST(presets_are_the_published_table)
{
    static const struct {
        const char *name;
        enum operand_format score, value, output_gradient, gradient;
        enum probability_format probability, probability_dvalue;
        enum dscore_format dscore;
        enum exponent_group exponents;
        enum dscore_scale dscore_scale;
        enum scale_rule rule;
        enum value_groups value_groups;
        enum delta_source delta;
        int stochastic, rotates_128, shift;
        float tau;
        enum causality causality;
    } table[] = {
        {"fp32", OPERAND_FP32, OPERAND_FP32, OPERAND_FP32, OPERAND_FP32, PROBABILITY_FP32, PROBABILITY_FP32,
         DSCORE_FP32, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_UP, VALUE_KEYED_DIAGONAL, DELTA_QUANTIZED, 0, 0, 0, 0,
         CAUSALITY_EXACT},
        {"exact", OPERAND_BF16, OPERAND_BF16, OPERAND_BF16, OPERAND_BF16, PROBABILITY_BF16, PROBABILITY_BF16,
         DSCORE_BF16, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_UP, VALUE_KEYED_DIAGONAL, DELTA_QUANTIZED, 0, 0, 0, 0,
         CAUSALITY_EXACT},
        {"mxfp8", OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, PROBABILITY_E4M3_FIXED,
         PROBABILITY_E4M3_FIXED, DSCORE_E4M3, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_UP, VALUE_KEYED_DIAGONAL,
         DELTA_QUANTIZED, 0, 1, 4, 4, CAUSALITY_IN_BLOCK},
        {"nvfp4", OPERAND_NVFP4, OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, PROBABILITY_E4M3_GROUP,
         PROBABILITY_E4M3_FIXED, DSCORE_E4M3, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_UP, VALUE_KEYED_DIAGONAL,
         DELTA_QUANTIZED, 0, 1, 0, 4, CAUSALITY_IN_BLOCK},
        {"fp4", OPERAND_NVFP4, OPERAND_NVFP4, OPERAND_NVFP4, OPERAND_NVFP4, PROBABILITY_E2M1, PROBABILITY_E2M1,
         DSCORE_E2M1, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_UP, VALUE_KEYED_DIAGONAL, DELTA_DIRECT, 1, 0, 0, 4,
         CAUSALITY_IN_BLOCK},
        {"mxfp8-causal", OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, PROBABILITY_E4M3_FIXED,
         PROBABILITY_E4M3_FIXED, DSCORE_E4M3, EXPONENT_TOKEN, DSCORE_ROW, SCALE_UP, VALUE_KEYED_DIAGONAL,
         DELTA_QUANTIZED, 0, 1, 4, 4, CAUSALITY_EXACT},
        {"nvfp4-causal", OPERAND_NVFP4, OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, PROBABILITY_E4M3_GROUP,
         PROBABILITY_E4M3_FIXED, DSCORE_E4M3, EXPONENT_TOKEN, DSCORE_ROW, SCALE_UP, VALUE_KEYED_DIAGONAL,
         DELTA_QUANTIZED, 0, 1, 0, 4, CAUSALITY_EXACT},
        {"fp4-leaky", OPERAND_NVFP4, OPERAND_NVFP4, OPERAND_NVFP4, OPERAND_NVFP4, PROBABILITY_E2M1, PROBABILITY_E2M1,
         DSCORE_E2M1, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_UP, VALUE_GROUPED, DELTA_DIRECT, 1, 0, 0, 4, CAUSALITY_LEAKY},
        {"fp8-tensor", OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, PROBABILITY_E4M3_FIXED,
         PROBABILITY_E4M3_FIXED, DSCORE_E4M3, EXPONENT_TENSOR, DSCORE_TENSOR, SCALE_UP, VALUE_KEYED_DIAGONAL,
         DELTA_QUANTIZED, 0, 0, 4, 4, CAUSALITY_LEAKY},
        {"mxfp8-floor", OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, OPERAND_E4M3, PROBABILITY_E4M3_FIXED,
         PROBABILITY_E4M3_FIXED, DSCORE_E4M3, EXPONENT_BLOCK, DSCORE_BLOCK, SCALE_FLOOR, VALUE_KEYED_DIAGONAL,
         DELTA_QUANTIZED, 0, 1, 4, 4, CAUSALITY_LEAKY},
    };
    ck_assert_uint_eq(recipe_count(), sizeof table / sizeof *table);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct recipe *r = recipe_find(table[i].name);
        ck_assert_ptr_nonnull(r);
        ck_assert_ptr_eq(r, recipe_at(i));
        ck_assert_msg(r->score == table[i].score && r->value == table[i].value &&
                          r->output_gradient == table[i].output_gradient && r->gradient == table[i].gradient,
                      "%s: operands", r->name);
        ck_assert_msg(r->probability == table[i].probability && r->probability_dvalue == table[i].probability_dvalue &&
                          r->dscore == table[i].dscore,
                      "%s: P and dS", r->name);
        ck_assert_msg(r->exponents == table[i].exponents && r->dscore_scale == table[i].dscore_scale &&
                          r->rule == table[i].rule && r->value_groups == table[i].value_groups,
                      "%s: scales", r->name);
        ck_assert_msg(r->delta == table[i].delta && r->dscore_stochastic == table[i].stochastic, "%s: D, rounding",
                      r->name);
        ck_assert_msg(recipe_rotates(r, 128) == table[i].rotates_128 && !recipe_rotates(r, 64), "%s: rotation",
                      r->name);
        ck_assert_msg(r->rescale_threshold == table[i].tau &&
                          (r->probability != PROBABILITY_E4M3_FIXED || r->probability_shift == table[i].shift),
                      "%s: c and tau", r->name);
        ck_assert_msg(r->dquery == DQUERY_FP32 && r->exponential == EXPONENTIAL_EXACT &&
                          r->exponential_backward == EXPONENTIAL_EXACT && r->diagonal_forward == 128 &&
                          r->diagonal_backward == 128 && !r->mismatch && !r->forced && !r->hadamard,
                      "%s: a mismatch or an approximation in a preset", r->name);
        ck_assert_msg(recipe_causality(r) == table[i].causality, "%s is %s", r->name,
                      causality_name(recipe_causality(r)));
    }
    ck_assert_ptr_null(recipe_find("mxfp9"));
    ck_assert_ptr_null(recipe_find(""));
    ck_assert_ptr_null(recipe_at(recipe_count()));
}
END_TEST

START_TEST(presets_pass_their_own_check_at_every_head_dim)
{
    char message[256];
    for (size_t i = 0; i < recipe_count(); i++) {
        for (size_t d = 16; d <= 256; d += 16) {
            ck_assert_msg(recipe_check(recipe_at(i), d, true, message, sizeof message), "%s at %zu: %s",
                          recipe_at(i)->name, d, message);
        }
    }
}
END_TEST

/* Writes every switch of `from` into a copy of `to`. */
static struct recipe transplant(const struct recipe *from, const struct recipe *to)
{
    struct recipe copy = *to;
    const char *key, *help;
    char value[64], assignment[160], message[256];
    for (size_t i = 0; recipe_switch(from, i, &key, value, sizeof value, &help); i++) {
        snprintf(assignment, sizeof assignment, "%s=%s", key, value);
        ck_assert_msg(recipe_set(&copy, assignment, message, sizeof message), "%s: %s", assignment, message);
        ck_assert(help && *help);
    }
    return copy;
}

static void expect_same_switches(const struct recipe *a, const struct recipe *b)
{
    const char *key, *help;
    char left[64], right[64];
    for (size_t i = 0; recipe_switch(a, i, &key, left, sizeof left, &help); i++) {
        ck_assert(recipe_switch(b, i, &key, right, sizeof right, &help));
        ck_assert_msg(strcmp(left, right) == 0, "%s: %s became %s", key, left, right);
    }
}

START_TEST(every_switch_goes_through_text_and_back)
{
    /* Bytes after the name must match too: a switch that text forgets shows. */
    for (size_t i = 0; i < recipe_count(); i++) {
        for (size_t j = 0; j < recipe_count(); j++) {
            const struct recipe copy = transplant(recipe_at(i), recipe_at(j));
            expect_same_switches(recipe_at(i), &copy);
            ck_assert_int_eq(copy.score, recipe_at(i)->score);
            ck_assert_int_eq(copy.dscore_stochastic, recipe_at(i)->dscore_stochastic);
            ck_assert_int_eq(copy.hadamard_128, recipe_at(i)->hadamard_128);
            ck_assert_int_eq(copy.probability_shift, recipe_at(i)->probability_shift);
            ck_assert_float_eq(copy.rescale_threshold, recipe_at(i)->rescale_threshold);
            ck_assert_int_eq(recipe_causality(&copy), recipe_causality(recipe_at(i)));
        }
    }
}
END_TEST

START_TEST(every_value_of_every_named_switch_round_trips)
{
    static const char *const assignments[] = {
        "score=fp32",
        "score=bf16",
        "score=e4m3",
        "score=nvfp4",
        "value=nvfp4",
        "output-gradient=e4m3",
        "gradient=bf16",
        "probability=fp32",
        "probability=bf16",
        "probability=e4m3",
        "probability=e4m3-group",
        "probability=e2m1",
        "probability-dvalue=e2m1",
        "dscore=e4m3",
        "dscore=e2m1",
        "exponents=token",
        "exponents=tensor",
        "rule=floor",
        "dscore-scale=row",
        "dscore-scale=tile",
        "dscore-scale=tensor",
        "dscore-scale=fixed",
        "dscore-exponent=-126",
        "dscore-exponent=126",
        "dscore-stochastic=1",
        "value-groups=keyed",
        "value-groups=grouped",
        "dquery=fp16-sequence",
        "dquery=fp16-causal",
        "delta=direct",
        "delta=original",
        "hadamard-128=1",
        "hadamard=1",
        "c=8",
        "tau=0.25",
        "exponential=polynomial",
        "exponential=schraudolph",
        "exponential=mitchell",
        "exponential-backward=polynomial",
        "diagonal-forward=256",
        "diagonal-backward=256",
        "mismatch=1",
        "forced=1",
    };
    for (size_t i = 0; i < sizeof assignments / sizeof *assignments; i++) {
        struct recipe recipe = *recipe_find("exact");
        char message[256], value[64], printed[128];
        const char *key, *help;
        ck_assert_msg(recipe_set(&recipe, assignments[i], message, sizeof message), "%s", message);
        ck_assert_str_eq(recipe.name, "exact+");
        int found = 0;
        for (size_t j = 0; recipe_switch(&recipe, j, &key, value, sizeof value, &help); j++) {
            snprintf(printed, sizeof printed, "%s=%s", key, value);
            found += strcmp(printed, assignments[i]) == 0;
        }
        ck_assert_msg(found == 1, "%s is not printed back", assignments[i]);
    }
}
END_TEST

START_TEST(malformed_assignments_are_refused_and_change_nothing)
{
    static const char *const bad[] = {"",
                                      "score",
                                      "score=",
                                      "score=e4m4",
                                      "=e4m3",
                                      "Score=e4m3",
                                      "sco=e4m3",
                                      "score =e4m3",
                                      "score=e4m3 ",
                                      "c=4.5",
                                      "c=-1",
                                      "c=99",
                                      "c=",
                                      "c=4x",
                                      "tau=nan",
                                      "tau=inf",
                                      "tau=-1",
                                      "tau=1e9",
                                      "dscore-exponent=127",
                                      "c=0x4 ",
                                      "mismatch=2",
                                      "mismatch=yes!",
                                      "nothing=1",
                                      "score=e4m3,value=bf16"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct recipe recipe = *recipe_find("mxfp8");
        char message[256] = "";
        ck_assert_msg(!recipe_set(&recipe, bad[i], message, sizeof message), "'%s' was taken", bad[i]);
        ck_assert_msg(message[0] && !strchr(message, '\n'), "'%s': no one-line message", bad[i]);
        ck_assert_str_eq(recipe.name, "mxfp8");
        expect_same_switches(&recipe, recipe_find("mxfp8"));
    }
}
END_TEST

START_TEST(short_message_buffers_are_not_overrun)
{
    struct recipe recipe = *recipe_find("mxfp8");
    char message[8];
    memset(message, 'x', sizeof message);
    ck_assert(!recipe_set(&recipe, "score=something", message, 5));
    ck_assert_uint_lt(strlen(message), 5);
    ck_assert_int_eq(message[5], 'x');
}
END_TEST

static const struct {
    const char *preset;
    const char *assignments[4];
    const char *named; /* what the message must name */
    size_t head_dim;
} contradictions[] = {
    {"mxfp8", {"c=8", "tau=2"}, "c + tau", 64},
    {"mxfp8", {"c=5"}, "c + tau", 64},
    {"mxfp8", {"tau=4.9"}, "c + tau", 64},
    {"exact", {"score=fp32"}, "fp32", 64},
    {"exact", {"exponents=token"}, "exponents", 64},
    {"exact", {"rule=floor"}, "rule", 64},
    {"exact", {"dscore-scale=row"}, "dscore-scale", 64},
    {"exact", {"value-groups=grouped"}, "value-groups", 64},
    {"exact", {"c=4"}, "c needs", 64},
    {"mxfp8", {"dscore-exponent=3"}, "dscore-exponent", 64},
    {"mxfp8", {"dscore-stochastic=1"}, "dscore-stochastic", 64},
    {"mxfp8", {"exponents=tensor", "rule=floor"}, "rule", 64},
    {"mxfp8", {"hadamard=1"}, "hadamard", 96},
    {"fp32", {"hadamard=1"}, "hadamard", 64},
    {"mxfp8", {"exponential=schraudolph"}, "inference", 64},
    {"mxfp8", {"exponential=schraudolph", "exponential-backward=schraudolph"}, "inference", 64},
    {"fp4", {"exponential=mitchell", "tau=2"}, "inference", 64},
    {"mxfp8", {"exponential=polynomial"}, "exponential", 64},
    {"mxfp8", {"delta=original"}, "delta", 64},
    {"fp4", {"diagonal-forward=256"}, "diagonal", 64},
    {"fp4", {"diagonal-forward=200", "diagonal-backward=200"}, "diagonal", 64},
    {"fp4", {"probability-dvalue=e4m3"}, "probability", 64},
    {"nvfp4", {"probability-dvalue=e4m3-group"}, "probability-dvalue", 64},
};

START_TEST(contradictions_are_refused_by_name)
{
    const struct recipe recipe = recipe_with(contradictions[_i].preset, contradictions[_i].assignments);
    char message[256] = "";
    ck_assert_msg(!recipe_check(&recipe, contradictions[_i].head_dim, true, message, sizeof message),
                  "%s with %s is taken", contradictions[_i].preset, contradictions[_i].assignments[0]);
    ck_assert_msg(strstr(message, contradictions[_i].named) && !strchr(message, '\n'), "message '%s' names no %s",
                  message, contradictions[_i].named);
}
END_TEST

START_TEST(what_is_allowed_on_purpose_is_allowed)
{
    static const struct {
        const char *preset;
        const char *assignments[4];
        bool training;
    } allowed[] = {
        {"mxfp8", {"c=8", "tau=2", "forced=1"}, true},
        {"mxfp8", {"c=8", "tau=0"}, true},
        {"mxfp8", {"tau=4.8"}, true}, /* 2^8.8 = 445.7 */
        {"fp4", {"diagonal-forward=256", "mismatch=1"}, true},
        {"mxfp8", {"delta=original", "mismatch=1"}, true},
        {"fp4", {"probability-dvalue=e4m3", "mismatch=1"}, true},
        {"mxfp8", {"exponential=polynomial", "mismatch=1"}, true},
        {"mxfp8", {"exponential=polynomial", "exponential-backward=polynomial"}, true},
        {"mxfp8", {"exponential=schraudolph"}, false},
        {"fp4", {"exponential=mitchell", "tau=2"}, false},
        {"nvfp4", {"dquery=fp16-causal"}, true},
    };
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        const struct recipe recipe = recipe_with(allowed[i].preset, allowed[i].assignments);
        char message[256] = "";
        ck_assert_msg(recipe_check(&recipe, 64, allowed[i].training, message, sizeof message), "%s", message);
    }
}
END_TEST

START_TEST(causality_follows_the_switches)
{
    static const struct {
        const char *preset;
        const char *assignments[4];
        enum causality causality;
    } table[] = {
        {"mxfp8", {"exponents=token"}, CAUSALITY_IN_BLOCK}, /* dS blocks are left */
        {"mxfp8", {"exponents=token", "dscore-scale=row"}, CAUSALITY_EXACT},
        {"mxfp8", {"dscore-scale=tile"}, CAUSALITY_LEAKY},
        {"mxfp8", {"dscore-scale=tensor"}, CAUSALITY_LEAKY},
        {"mxfp8-causal", {"dquery=fp16-sequence"}, CAUSALITY_LEAKY},
        {"mxfp8-causal", {"dquery=fp16-causal"}, CAUSALITY_EXACT},
        {"mxfp8", {"rule=floor"}, CAUSALITY_LEAKY},
        {"fp4", {"value-groups=grouped"}, CAUSALITY_LEAKY},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct recipe recipe = recipe_with(table[i].preset, table[i].assignments);
        ck_assert_msg(recipe_causality(&recipe) == table[i].causality, "%s with %s is %s", table[i].preset,
                      table[i].assignments[0], causality_name(recipe_causality(&recipe)));
    }
}
END_TEST

Suite *suite_recipe(void);

Suite *suite_recipe(void)
{
    Suite *suite = suite_create("recipe");
    TCase *tcase = tcase_create("recipe");
    tcase_add_test(tcase, presets_are_the_published_table);
    tcase_add_test(tcase, presets_pass_their_own_check_at_every_head_dim);
    tcase_add_test(tcase, every_switch_goes_through_text_and_back);
    tcase_add_test(tcase, every_value_of_every_named_switch_round_trips);
    tcase_add_test(tcase, malformed_assignments_are_refused_and_change_nothing);
    tcase_add_test(tcase, short_message_buffers_are_not_overrun);
    tcase_add_loop_test(tcase, contradictions_are_refused_by_name, 0,
                        (int)(sizeof contradictions / sizeof *contradictions));
    tcase_add_test(tcase, what_is_allowed_on_purpose_is_allowed);
    tcase_add_test(tcase, causality_follows_the_switches);
    suite_add_tcase(suite, tcase);
    return suite;
}
