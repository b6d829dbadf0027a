/* check_attention.c: attention as a whole: against FP64, and where others have gone wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/attention_exact.h"
#include "tests/reference_attention.h"
#include "tests/reference_formats.h"

/* ---- against FP64 ---- */

START_TEST(fp32_is_within_2e_6_of_fp64)
{
    struct random_stream stream = random_stream(1);
    const size_t lengths[] = {test_tokens(300), 1, 77};
    static const size_t shapes[][3] = {{2, 2, 64}, {4, 2, 128}, {3, 1, 16}};
    for (size_t i = 0; i < 6; i++) {
        const size_t *shape = shapes[i / 2];
        struct attention_case c = case_make(&stream, lengths, 3, shape[0], shape[1], shape[2], i & 1);
        struct exact exact = exact_make(&c);
        case_run(&c, recipe_find("fp32"));
        expect_near(&c, &exact, 2e-6, 2e-6);
        ck_assert_double_lt(relative_error(c.lse, exact.lse, c.shape.heads * c.shape.total_tokens), 2e-6);
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

START_TEST(fp32_keeps_its_bound_on_sharp_scores)
{
    /* The error of a score grows with its size: 2e-6 times range / 15. */
    struct random_stream stream = random_stream(2);
    const size_t lengths[] = {test_tokens(200)};
    for (float sharpness = 1; sharpness <= 16; sharpness *= 4) {
        struct attention_case c = case_make(&stream, lengths, 1, 2, 2, 64, true);
        c.shape.softmax_scale *= sharpness;
        struct exact exact = exact_make(&c);
        const double range = reference_score_range(&c.shape, &c.documents, c.query, c.key);
        case_run(&c, recipe_find("fp32"));
        expect_near(&c, &exact, 2e-6 * fmax(1, range / 15), 2e-6 * fmax(1, range / 15));
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

static void round_inputs(struct attention_case *c)
{
    for (size_t i = 0; i < c->query_count; i++) {
        c->query[i] = reference_bf16(c->query[i]);
        c->output_gradient[i] = reference_bf16(c->output_gradient[i]);
    }
    for (size_t i = 0; i < c->key_count; i++) {
        c->key[i] = reference_bf16(c->key[i]);
        c->value[i] = reference_bf16(c->value[i]);
    }
}

START_TEST(exact_is_as_tight_as_bf16_operands_allow)
{
    /* On BF16 inputs: P and O are rounded once each, by at most 2^-9 of themselves and 2.3e-3 in the mean square for O
     * and dV (seen: 2.3e-3); dS also carries D's error, from the rounded O (seen: 2.8e-3). Bounds: twice, and more. */
    struct random_stream stream = random_stream(3);
    const size_t lengths[] = {test_tokens(300), 1, 77};
    for (int causal = 0; causal < 2; causal++) {
        struct attention_case c = case_make(&stream, lengths, 3, 4, 2, 64, causal);
        round_inputs(&c);
        struct exact exact = exact_make(&c);
        case_run(&c, recipe_find("exact"));
        expect_near(&c, &exact, 5e-3, 1e-2);
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

START_TEST(inputs_are_rounded_to_bf16_first)
{
    struct random_stream stream = random_stream(4);
    static const size_t lengths[] = {50};
    struct attention_case c = case_make(&stream, lengths, 1, 2, 2, 32, true), rounded = case_copy(&c);
    round_inputs(&rounded);
    for (size_t i = 1; i < recipe_count(); i++) {
        case_run(&c, recipe_at(i));
        case_run(&rounded, recipe_at(i));
        case_expect_same(&c, &rounded);
    }
    case_free(&c);
    case_free(&rounded);
}
END_TEST

START_TEST(results_but_fp32s_are_bf16_numbers)
{
    struct random_stream stream = random_stream(5);
    static const size_t lengths[] = {50};
    struct attention_case c = case_make(&stream, lengths, 1, 2, 2, 128, true);
    for (size_t i = 1; i < recipe_count(); i++) {
        case_run(&c, recipe_at(i));
        for (size_t j = 0; j < c.query_count; j++) {
            expect(reference_bf16(c.output[j]) == c.output[j] && reference_bf16(c.dquery[j]) == c.dquery[j],
                   "%s: element %zu", recipe_at(i)->name, j);
            expect(reference_bf16(c.dkey[j]) == c.dkey[j] && reference_bf16(c.dvalue[j]) == c.dvalue[j],
                   "%s: element %zu", recipe_at(i)->name, j);
        }
    }
    case_free(&c);
}
END_TEST

/* Every recipe in its class of error on N(0, 1) inputs; bounds are twice the worst of 50 seeds. */
START_TEST(every_preset_stays_near_exact_attention)
{
    static const struct {
        const char *name;
        double output, gradient; /* least cosine */
    } classes[] = {{"exact", 0.9999, 0.9999}, {"mxfp8", 0.9965, 0.995},        {"nvfp4", 0.98, 0.97},
                   {"fp4", 0.95, 0.91},       {"mxfp8-causal", 0.9965, 0.995}, {"nvfp4-causal", 0.98, 0.97},
                   {"fp4-leaky", 0.95, 0.91}, {"fp8-tensor", 0.9965, 0.995},   {"mxfp8-floor", 0.9965, 0.995}};
    struct random_stream stream = random_stream(6 + (uint64_t)_i);
    const size_t lengths[] = {test_tokens(256), 31};
    for (int causal = 0; causal < 2; causal++) {
        struct attention_case c = case_make(&stream, lengths, 2, 2, 2, 128, causal);
        struct exact exact = exact_make(&c);
        case_run(&c, recipe_find(classes[_i].name));
        const double found[] = {cosine(c.output, exact.output, c.query_count),
                                cosine(c.dvalue, exact.dvalue, c.key_count),
                                cosine(c.dquery, exact.dquery, c.query_count), cosine(c.dkey, exact.dkey, c.key_count)};
        for (size_t i = 0; i < 4; i++) {
            ck_assert_msg(found[i] >= (i < 2 ? classes[_i].output : classes[_i].gradient), "%s: cosine %zu is %.5f",
                          classes[_i].name, i, found[i]);
        }
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

/* ---- numerics that have gone wrong elsewhere ---- */

START_TEST(a_lagging_maximum_never_saturates_p)
{
    /* One query over 120..260 keys, the second tile's best score a little above the first's: with c + tau too large, P
     * would clamp at the tile edge. The error must be as small on both sides of it. */
    struct random_stream stream = random_stream(60);
    for (size_t tokens = 120; tokens <= 260; tokens += 4) {
        struct attention_case c = case_make(&stream, &tokens, 1, 1, 1, 16, false);
        for (size_t t = 0; t < tokens; t++) {
            for (size_t i = 0; i < 16; i++) {
                c.query[t * 16 + i] = 1;
                c.key[t * 16 + i] = t == 130 ? 0.6f : 0.01f * (float)(t % 7);
                c.value[t * 16 + i] = i & 1 || t == 130 ? 1 : 0; /* O is 1, and the probability of that key */
            }
        }
        struct exact exact = exact_make(&c);
        case_forward(&c, recipe_find("mxfp8"));
        const double mxfp8 = relative_error(c.output, exact.output, c.query_count);
        ck_assert_msg(mxfp8 < 0.07, "mxfp8 at %zu tokens: error %.3g", tokens, mxfp8); /* 2^-4 of P, 2^-8 of O */
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

START_TEST(too_large_a_shift_saturates_silently_when_forced)
{
    /* Scores rise by 2 (log2) from tile to tile: within tau = 2, so m lags and 2^(8 + 2) clamps at 448. */
    static const char *const loose[] = {"c=8", "tau=2", "forced=1", NULL}, *const tight[] = {"c=8", "tau=0", NULL};
    struct random_stream stream = random_stream(61);
    const size_t tokens = 256;
    struct attention_case c = case_make(&stream, &tokens, 1, 1, 1, 16, false);
    for (size_t t = 0; t < tokens; t++) {
        for (size_t i = 0; i < 16; i++) {
            c.query[t * 16 + i] = 1;
            c.key[t * 16 + i] = t < 128 ? 0 : 0.34f; /* 16 * 0.34 * log2(e) / 4 = 1.96 */
            c.value[t * 16 + i] = t < 128 ? 0 : 1;
        }
    }
    struct exact exact = exact_make(&c);
    const struct recipe forced = recipe_with("mxfp8", loose), safe = recipe_with("mxfp8", tight);
    case_forward(&c, &forced);
    const double wrong = relative_error(c.output, exact.output, c.query_count);
    case_forward(&c, &safe);
    const double right = relative_error(c.output, exact.output, c.query_count);
    ck_assert_double_gt(wrong, 0.4); /* 448 of 997 */
    ck_assert_double_lt(right, 0.07);
    for (size_t i = 0; i < c.query_count; i++) {
        expect(isfinite(c.output[i]), "O element %zu", i);
    }
    exact_free(&exact);
    case_free(&c);
}
END_TEST

START_TEST(keys_that_grow_towards_the_start_are_right)
{
    /* The last tile visited has the lowest maximum: nothing may be rescaled by it. */
    struct random_stream stream = random_stream(62);
    const size_t tokens = 300;
    for (int rising = 0; rising < 2; rising++) {
        struct attention_case c = case_make(&stream, &tokens, 1, 1, 1, 32, true);
        for (size_t t = 0; t < tokens; t++) {
            for (size_t i = 0; i < 32; i++) {
                c.query[t * 32 + i] = 1;
                c.key[t * 32 + i] += (rising ? 0.01f : -0.01f) * (float)t;
            }
        }
        struct exact exact = exact_make(&c);
        case_run(&c, recipe_find("fp32"));
        const double range = reference_score_range(&c.shape, &c.documents, c.query, c.key);
        expect_near(&c, &exact, 2e-6 * fmax(1, range / 15), 4e-6 * fmax(1, range / 15));
        case_run(&c, recipe_find("mxfp8"));
        ck_assert_double_gt(cosine(c.output, exact.output, c.query_count), 0.95);
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

START_TEST(zero_inputs_give_means_and_finite_gradients)
{
    struct random_stream stream = random_stream(63);
    static const size_t lengths[] = {40, 129};
    for (size_t i = 0; i < recipe_count(); i++) {
        for (int which = 0; which < 4; which++) { /* Q and K, V, dO, everything */
            struct attention_case c = case_make(&stream, lengths, 2, 2, 1, 32, true);
            memset(c.query, 0, which == 0 || which == 3 ? c.query_count * sizeof(float) : 0);
            memset(c.key, 0, which == 0 || which == 3 ? c.key_count * sizeof(float) : 0);
            memset(c.value, 0, which == 1 || which == 3 ? c.key_count * sizeof(float) : 0);
            memset(c.output_gradient, 0, which >= 2 ? c.query_count * sizeof(float) : 0);
            case_run(&c, recipe_at(i));
            for (size_t j = 0; j < c.query_count; j++) {
                expect(isfinite(c.output[j]) && isfinite(c.dquery[j]) && (which != 1 || c.output[j] == 0) &&
                           (which < 2 || c.dquery[j] == 0),
                       "%s, case %d, element %zu", recipe_at(i)->name, which, j);
            }
            for (size_t j = 0; j < c.key_count; j++) {
                expect(isfinite(c.dkey[j]) && isfinite(c.dvalue[j]) && (which < 2 || c.dvalue[j] == 0),
                       "%s, case %d, element %zu", recipe_at(i)->name, which, j);
            }
            case_free(&c);
        }
    }
}
END_TEST

START_TEST(tiny_and_huge_inputs_stay_finite)
{
    struct random_stream stream = random_stream(64);
    static const size_t lengths[] = {140};
    static const float scales[] = {1e-38f, 1e-30f, 1e-20f, 1e-10f, 1e6f};
    for (size_t i = 0; i < recipe_count(); i++) {
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            struct attention_case c = case_make(&stream, lengths, 1, 1, 1, 32, true);
            for (size_t j = 0; j < c.query_count; j++) {
                c.query[j] *= scales[s];
                c.key[j] *= scales[s];
                c.value[j] *= scales[s];
                c.output_gradient[j] *= scales[s];
            }
            case_run(&c, recipe_at(i));
            for (size_t j = 0; j < c.query_count; j++) {
                expect(isfinite(c.output[j]) && isfinite(c.dquery[j]) && isfinite(c.dkey[j]) && isfinite(c.dvalue[j]),
                       "%s at %g, element %zu", recipe_at(i)->name, (double)scales[s], j);
            }
            case_free(&c);
        }
    }
}
END_TEST

/* ---- stochastic rounding, bit tricks ---- */

START_TEST(stochastic_rounding_depends_on_seed_step_layer_and_place_only)
{
    struct random_stream stream = random_stream(72);
    static const size_t lengths[] = {100};
    struct attention_case c = case_make(&stream, lengths, 1, 1, 1, 32, true);
    case_run(&c, recipe_find("fp4"));
    for (int what = 0; what < 4; what++) {
        struct attention_case other = case_copy(&c);
        other.random.seed += what == 0;
        other.random.step += what == 1;
        other.random.layer += what == 2;
        other.random.query_offset += what == 3;
        case_run(&other, recipe_find("fp4"));
        ck_assert_mem_eq(other.dquery, c.dquery,
                         c.query_count * sizeof(float)); /* dQ's operand is rounded to nearest */
        ck_assert_mem_eq(other.dvalue, c.dvalue, c.key_count * sizeof(float));
        ck_assert_msg(memcmp(other.dkey, c.dkey, c.key_count * sizeof(float)) != 0, "change %d has no effect", what);
        case_free(&other);
    }
    case_free(&c);
}
END_TEST

START_TEST(stochastic_rounding_of_ds_has_no_bias)
{
    /* The mean of dK over 200 steps approaches the dK of unrounded dS: its distance must shrink like a mean's, 1 / sqrt
     * of the count, where nearest rounding's would stay. */
    struct random_stream stream = random_stream(73);
    static const size_t lengths[] = {96};
    static const char *const unrounded[] = {"dscore=fp32", "dscore-stochastic=0", NULL};
    const struct recipe fine = recipe_with("fp4", unrounded);
    struct attention_case c = case_make(&stream, lengths, 1, 1, 1, 16, true);
    case_run(&c, &fine);
    float *target = memcpy(test_alloc(c.key_count * sizeof(float)), c.dkey, c.key_count * sizeof(float));
    float *mean = test_alloc(c.key_count * sizeof(float));
    memset(mean, 0, c.key_count * sizeof(float));
    double single = 0;
    const int steps = 200;
    for (int step = 0; step < steps; step++) {
        c.random.step = (uint64_t)step;
        case_backward(&c, recipe_find("fp4"));
        single += relative_error(c.dkey, target, c.key_count) / steps;
        for (size_t i = 0; i < c.key_count; i++) {
            mean[i] += c.dkey[i] / (float)steps;
        }
    }
    const double averaged = relative_error(mean, target, c.key_count);
    ck_assert_msg(averaged < single / 4, "one step errs by %.4f, the mean of %d by %.4f", single, steps, averaged);
    free(target);
    free(mean);
    case_free(&c);
}
END_TEST

START_TEST(bit_trick_exponentials_are_for_inference_only)
{
    static const char *const schraudolph[] = {"exponential=schraudolph", NULL};
    static const char *const mitchell[] = {"exponential=mitchell", "tau=2", NULL};
    const struct recipe recipes[] = {recipe_with("mxfp8", schraudolph), recipe_with("fp4", mitchell)};
    struct random_stream stream = random_stream(81);
    const size_t lengths[] = {test_tokens(200)};
    for (size_t i = 0; i < 2; i++) {
        struct attention_case c = case_make(&stream, lengths, 1, 1, 1, 64, true);
        struct exact exact = exact_make(&c);
        case_forward(&c, &recipes[i]);
        ck_assert_double_gt(cosine(c.output, exact.output, c.query_count), i ? 0.95 : 0.99);
        const size_t bytes = attention_workspace_bytes(&recipes[i], &c.shape);
        void *workspace = test_alloc(bytes);
        const struct attention_inputs inputs = {c.query, c.key, c.value, 64, 64, 64};
        const struct attention_gradients gradients = {c.dquery, c.dkey, c.dvalue, 64, 64, 64};
        ck_assert_int_eq(attention_backward_cpu(&recipes[i], &c.shape, &c.documents, &inputs, c.output, 64, c.lse,
                                                c.output_gradient, 64, &c.random, &gradients, workspace, bytes, NULL),
                         ATTENTION_INFERENCE_ONLY);
        free(workspace);
        exact_free(&exact);
        case_free(&c);
    }
}
END_TEST

Suite *suite_attention(void);

Suite *suite_attention(void)
{
    Suite *suite = suite_create("attention");
    TCase *tcase = tcase_create("attention");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, fp32_is_within_2e_6_of_fp64);
    tcase_add_test(tcase, fp32_keeps_its_bound_on_sharp_scores);
    tcase_add_test(tcase, exact_is_as_tight_as_bf16_operands_allow);
    tcase_add_test(tcase, inputs_are_rounded_to_bf16_first);
    tcase_add_test(tcase, results_but_fp32s_are_bf16_numbers);
    tcase_add_loop_test(tcase, every_preset_stays_near_exact_attention, 0, 9);
    tcase_add_test(tcase, a_lagging_maximum_never_saturates_p);
    tcase_add_test(tcase, too_large_a_shift_saturates_silently_when_forced);
    tcase_add_test(tcase, keys_that_grow_towards_the_start_are_right);
    tcase_add_test(tcase, zero_inputs_give_means_and_finite_gradients);
    tcase_add_test(tcase, tiny_and_huge_inputs_stay_finite);
    tcase_add_test(tcase, stochastic_rounding_depends_on_seed_step_layer_and_place_only);
    tcase_add_test(tcase, stochastic_rounding_of_ds_has_no_bias);
    tcase_add_test(tcase, bit_trick_exponentials_are_for_inference_only);
    suite_add_tcase(suite, tcase);
    return suite;
}
