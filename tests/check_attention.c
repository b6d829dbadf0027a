/* check_attention.c: attention as a whole: against FP64, on awkward shapes, with bad input, and free of everything it
 * must not depend on. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/attention_case.h"
#include "tests/reference_attention.h"
#include "tests/reference_formats.h"

/* FP64 results for a case's inputs. */
struct exact {
    float *output, *lse, *dquery, *dkey, *dvalue;
};

static struct exact exact_make(const struct attention_case *c)
{
    struct exact exact = {test_alloc(c->query_count * sizeof(float)),
                          test_alloc(c->shape.heads * c->shape.total_tokens * sizeof(float)),
                          test_alloc(c->query_count * sizeof(float)), test_alloc(c->key_count * sizeof(float)),
                          test_alloc(c->key_count * sizeof(float))};
    reference_forward(&c->shape, &c->documents, c->query, c->key, c->value, exact.output, exact.lse);
    reference_backward(&c->shape, &c->documents, c->query, c->key, c->value, c->output_gradient, exact.dquery,
                       exact.dkey, exact.dvalue);
    return exact;
}

static void exact_free(struct exact *exact)
{
    free(exact->output);
    free(exact->lse);
    free(exact->dquery);
    free(exact->dkey);
    free(exact->dvalue);
}

static void expect_near(const struct attention_case *c, const struct exact *exact, double output, double gradient)
{
    const struct {
        const char *name;
        double error, bound;
    } each[] = {
        {"O", relative_error(c->output, exact->output, c->query_count), output},
        {"dQ", relative_error(c->dquery, exact->dquery, c->query_count), gradient},
        {"dK", relative_error(c->dkey, exact->dkey, c->key_count), gradient},
        {"dV", relative_error(c->dvalue, exact->dvalue, c->key_count), output},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        ck_assert_msg(each[i].error <= each[i].bound, "%s: relative error %.3g, bound %.3g", each[i].name,
                      each[i].error, each[i].bound);
    }
}

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
    /* On BF16 inputs: P and O are rounded once each (relative error at most 2^-8, 0.4 of that in the mean: together
     * 2.2e-3 for O and dV); dS also carries D's error, from the rounded O. */
    struct random_stream stream = random_stream(3);
    const size_t lengths[] = {test_tokens(300), 1, 77};
    for (int causal = 0; causal < 2; causal++) {
        struct attention_case c = case_make(&stream, lengths, 3, 4, 2, 64, causal);
        round_inputs(&c);
        struct exact exact = exact_make(&c);
        case_run(&c, recipe_find("exact"));
        expect_near(&c, &exact, 0x1p-8, 0x1p-7);
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
    } classes[] = {{"exact", 0.9999, 0.9999}, {"mxfp8", 0.997, 0.995},        {"nvfp4", 0.98, 0.97},
                   {"fp4", 0.95, 0.91},       {"mxfp8-causal", 0.997, 0.995}, {"nvfp4-causal", 0.98, 0.97},
                   {"fp4-leaky", 0.95, 0.91}, {"fp8-tensor", 0.997, 0.995},   {"mxfp8-floor", 0.997, 0.995}};
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

/* ---- what a call must not depend on ---- */

START_TEST(workspace_content_changes_nothing)
{
    struct random_stream stream = random_stream(20);
    static const size_t lengths[] = {64, 60, 1, 127, 3};
    for (size_t i = 0; i < recipe_count(); i++) {
        struct attention_case poisoned = case_make(&stream, lengths, 5, 2, 1, 16, true), zeroed = case_copy(&poisoned);
        zeroed.workspace_fill = 0;
        case_run(&poisoned, recipe_at(i));
        case_run(&zeroed, recipe_at(i));
        case_expect_same(&poisoned, &zeroed);
        for (size_t j = 0; j < poisoned.key_count; j++) {
            expect(isfinite(poisoned.dkey[j]), "%s: dK element %zu", recipe_at(i)->name, j);
        }
        case_free(&poisoned);
        case_free(&zeroed);
    }
}
END_TEST

START_TEST(repeated_calls_and_thread_counts_give_the_same_bits)
{
    struct random_stream stream = random_stream(21);
    const size_t lengths[] = {test_tokens(500), 129};
    const int threads = omp_get_max_threads();
    for (size_t i = 0; i < recipe_count(); i++) {
        struct attention_case first = case_make(&stream, lengths, 2, 4, 2, 16, true), again = case_copy(&first);
        case_run(&first, recipe_at(i));
        for (int repeat = 0; repeat < 4; repeat++) {
            omp_set_num_threads(1 + repeat % 2);
            case_run(&again, recipe_at(i));
            case_expect_same(&first, &again);
        }
        omp_set_num_threads(threads);
        case_free(&first);
        case_free(&again);
    }
}
END_TEST

START_TEST(tracing_changes_no_bit)
{
    struct random_stream stream = random_stream(22);
    static const size_t lengths[] = {40, 150};
    for (size_t i = 0; i < recipe_count(); i++) {
        struct attention_case plain = case_make(&stream, lengths, 2, 2, 1, 16, true), traced = case_copy(&plain);
        case_trace(&traced);
        case_run(&plain, recipe_at(i));
        case_run(&traced, recipe_at(i));
        case_expect_same(&plain, &traced);
        case_free(&plain);
        case_free(&traced);
    }
}
END_TEST

START_TEST(strides_change_no_bit_and_gaps_are_not_touched)
{
    /* Q, K and V side by side in one buffer, O and dO strided; gradients likewise. */
    struct random_stream stream = random_stream(23);
    static const size_t lengths[] = {33, 20};
    enum { H = 4, HK = 2, D = 16, WIDE = (H + 2 * HK) * D + 5 };
    struct attention_case c = case_make(&stream, lengths, 2, H, HK, D, true);
    const size_t tokens = c.shape.total_tokens;
    float *in = test_alloc(tokens * WIDE * sizeof *in), *out = test_alloc(tokens * WIDE * sizeof *out);
    float *gradient = test_alloc(tokens * WIDE * sizeof *gradient), *grads = test_alloc(tokens * WIDE * sizeof *grads);
    for (size_t t = 0; t < tokens; t++) {
        memcpy(in + t * WIDE, c.query + t * H * D, H * D * sizeof *in);
        memcpy(in + t * WIDE + H * D, c.key + t * HK * D, HK * D * sizeof *in);
        memcpy(in + t * WIDE + (H + HK) * D, c.value + t * HK * D, HK * D * sizeof *in);
        memcpy(gradient + t * WIDE, c.output_gradient + t * H * D, H * D * sizeof *gradient);
    }
    for (size_t i = 0; i < recipe_count(); i++) {
        const struct recipe *recipe = recipe_at(i);
        case_run(&c, recipe);
        const size_t bytes = attention_workspace_bytes(recipe, &c.shape);
        void *workspace = test_alloc(bytes);
        const struct attention_inputs inputs = {in, in + H * D, in + (H + HK) * D, WIDE, WIDE, WIDE};
        const struct attention_gradients gradients = {grads, grads + H * D, grads + (H + HK) * D, WIDE, WIDE, WIDE};
        float *lse = test_alloc(H * tokens * sizeof *lse);
        ck_assert_int_eq(
            attention_forward_cpu(recipe, &c.shape, &c.documents, &inputs, out, WIDE, lse, workspace, bytes, NULL),
            ATTENTION_OK);
        ck_assert_int_eq(attention_backward_cpu(recipe, &c.shape, &c.documents, &inputs, out, WIDE, lse, gradient, WIDE,
                                                &c.random, &gradients, workspace, bytes, NULL),
                         ATTENTION_OK);
        for (size_t t = 0; t < tokens; t++) {
            ck_assert_mem_eq(out + t * WIDE, c.output + t * H * D, H * D * sizeof *out);
            ck_assert_mem_eq(grads + t * WIDE, c.dquery + t * H * D, H * D * sizeof *out);
            ck_assert_mem_eq(grads + t * WIDE + H * D, c.dkey + t * HK * D, HK * D * sizeof *out);
            ck_assert_mem_eq(grads + t * WIDE + (H + HK) * D, c.dvalue + t * HK * D, HK * D * sizeof *out);
            for (size_t gap = (H + 2 * HK) * D; gap < WIDE; gap++) {
                expect(isnan(out[t * WIDE + gap]) && isnan(grads[t * WIDE + gap]), "the gap after token %zu", t);
            }
        }
        free(lse);
        free(workspace);
    }
    free(in);
    free(out);
    free(gradient);
    free(grads);
    case_free(&c);
}
END_TEST

/* ---- shapes ---- */

START_TEST(every_length_up_to_130_is_right)
{
    struct random_stream stream = random_stream(30);
    for (size_t tokens = 1; tokens <= 130; tokens++) {
        for (int causal = 0; causal < 2; causal++) {
            struct attention_case c = case_make(&stream, &tokens, 1, 1, 1, 64, causal);
            struct exact exact = exact_make(&c);
            case_run(&c, recipe_find("fp32"));
            for (size_t j = 0; j < c.query_count; j++) {
                /* dQ of a row that sees one key is 0 but for rounding: compare absolutely. */
                expect(fabs((double)c.output[j] - (double)exact.output[j]) < 1e-5 &&
                           fabs((double)c.dquery[j] - (double)exact.dquery[j]) < 1e-4 &&
                           fabs((double)c.dkey[j] - (double)exact.dkey[j]) < 1e-4 &&
                           fabs((double)c.dvalue[j] - (double)exact.dvalue[j]) < 1e-4,
                       "%zu tokens, element %zu", tokens, j);
            }
            exact_free(&exact);
            case_free(&c);
        }
    }
}
END_TEST

START_TEST(every_recipe_takes_every_length_up_to_130)
{
    struct random_stream stream = random_stream(31 + (uint64_t)_i);
    for (size_t tokens = 1; tokens <= 130; tokens++) {
        struct attention_case c = case_make(&stream, &tokens, 1, 1, 1, 64, true);
        case_run(&c, recipe_at((size_t)_i));
        for (size_t j = 0; j < c.query_count; j++) {
            expect(isfinite(c.output[j]) && isfinite(c.dquery[j]) && isfinite(c.dkey[j]) && isfinite(c.dvalue[j]),
                   "%s, %zu tokens, element %zu", recipe_at((size_t)_i)->name, tokens, j);
        }
        case_free(&c);
    }
}
END_TEST

START_TEST(every_head_dim_is_right_or_refused)
{
    struct random_stream stream = random_stream(50);
    static const size_t lengths[] = {20, 40};
    for (size_t d = 8; d <= 272; d += 8) {
        struct attention_case c = case_make(&stream, lengths, 2, 2, 1, d, true);
        const struct attention_inputs inputs = {c.query, c.key, c.value, 2 * d, d, d};
        if (d % 16 != 0 || d > 256) {
            unsigned char workspace[64];
            ck_assert_int_eq(attention_forward_cpu(recipe_find("exact"), &c.shape, &c.documents, &inputs, c.output,
                                                   2 * d, c.lse, workspace, sizeof workspace, NULL),
                             ATTENTION_BAD_SHAPE);
        } else {
            struct exact exact = exact_make(&c);
            case_run(&c, recipe_find("fp32"));
            expect_near(&c, &exact, 2e-6, 2e-6);
            case_run(&c, recipe_find("fp4"));
            ck_assert_double_gt(cosine(c.output, exact.output, c.query_count), 0.9);
            exact_free(&exact);
        }
        case_free(&c);
    }
}
END_TEST

START_TEST(empty_documents_are_legal_anywhere)
{
    struct random_stream stream = random_stream(51);
    static const size_t with[] = {0, 0, 17, 0, 0, 1, 33, 0}, without[] = {17, 1, 33}, nothing[] = {0};
    for (size_t i = 0; i < recipe_count(); i++) {
        struct random_stream same = stream;
        struct attention_case a = case_make(&stream, with, 8, 4, 2, 16, true);
        struct attention_case b = case_make(&same, without, 3, 4, 2, 16, true);
        struct attention_case none = case_make(&same, nothing, 1, 4, 2, 16, true);
        case_run(&a, recipe_at(i));
        case_run(&b, recipe_at(i));
        case_run(&none, recipe_at(i));
        case_expect_same(&a, &b);
        case_free(&a);
        case_free(&b);
        case_free(&none);
    }
}
END_TEST

START_TEST(three_hundred_documents_are_three_hundred_calls)
{
    struct random_stream stream = random_stream(52);
    size_t lengths[300];
    for (size_t i = 0; i < 300; i++) {
        lengths[i] = random_below(&stream, 4);
    }
    struct attention_case c = case_make(&stream, lengths, 300, 1, 1, 48, true);
    case_run(&c, recipe_find("nvfp4"));
    for (size_t i = 0; i < 300; i++) {
        struct attention_case alone = case_document(&c, i);
        case_run(&alone, recipe_find("nvfp4"));
        case_expect_same_document(&c, i, &alone);
        case_free(&alone);
    }
    case_free(&c);
}
END_TEST

START_TEST(offsets_beyond_32_bits_are_addressed_right)
{
    /* Nine tokens in a sparse mapping of 16 GiB, of which nine pages are touched. */
    struct random_stream stream = random_stream(53);
    static const size_t lengths[] = {4, 5};
    struct attention_case c = case_make(&stream, lengths, 2, 1, 1, 16, true);
    case_run(&c, recipe_find("mxfp8"));
    const size_t stride = (size_t)1 << 29; /* token 4 at 2^31, token 8 at 2^32 elements */
    const size_t mapped = 8 * stride * sizeof(float) + 4096;
    float *wide = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) {
        return; /* a machine that reserves what is only mapped */
    }
    for (size_t t = 0; t < 9; t++) {
        memcpy(wide + t * stride, c.query + t * 16, 64);
        memcpy(wide + t * stride + 16, c.key + t * 16, 64);
        memcpy(wide + t * stride + 32, c.value + t * 16, 64);
    }
    const struct attention_inputs inputs = {wide, wide + 16, wide + 32, stride, stride, stride};
    const size_t bytes = attention_workspace_bytes(recipe_find("mxfp8"), &c.shape);
    void *workspace = test_alloc(bytes);
    float lse[9];
    ck_assert_int_eq(attention_forward_cpu(recipe_find("mxfp8"), &c.shape, &c.documents, &inputs, wide + 48, stride,
                                           lse, workspace, bytes, NULL),
                     ATTENTION_OK);
    for (size_t t = 0; t < 9; t++) {
        ck_assert_mem_eq(wide + t * stride + 48, c.output + t * 16, 64);
    }
    free(workspace);
    ck_assert_int_eq(munmap(wide, mapped), 0);
    case_free(&c);
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
        ck_assert_double_gt(cosine(c.output, exact.output, c.query_count), 0.98);
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

/* ---- NaN: never swallowed, never outside its document or before its time ---- */

static size_t count_nan(const float *x, size_t count)
{
    size_t nans = 0;
    for (size_t i = 0; i < count; i++) {
        nans += isnan(x[i]) != 0;
    }
    return nans;
}

START_TEST(a_nan_shows_in_every_row_that_sees_it_and_in_no_other_document)
{
    static const float bad[] = {NAN, INFINITY};
    struct random_stream stream = random_stream(70 + (uint64_t)_i);
    static const size_t lengths[] = {40, 70, 33};
    const struct recipe *recipe = recipe_at((size_t)_i);
    enum { D = 16, FIRST = 40, END = 110, AT = 75 };
    for (int which = 0; which < 8; which++) { /* Q, K, V, dO; NaN, infinity */
        struct attention_case c = case_make(&stream, lengths, 3, 1, 1, D, true);
        float *const tensors[] = {c.query, c.key, c.value, c.output_gradient};
        tensors[which % 4][AT * D + 5] = bad[which / 4];
        case_run(&c, recipe);
        const bool tensor_wide = recipe->exponents == EXPONENT_TENSOR;
        const bool plain_infinity = which >= 4 && recipe->value == OPERAND_BF16; /* -inf is a score like another */
        if (which % 4 == 0) {
            ck_assert_msg(count_nan(c.output + AT * D, D) == D, "%s: Q at the row itself", recipe->name);
        } else if (which % 4 < 3 && !plain_infinity && recipe->value != OPERAND_FP32) {
            for (size_t row = AT; row < END; row++) {
                expect(count_nan(c.output + row * D, D) > 0, "%s: tensor %d, row %zu has no NaN", recipe->name,
                       which % 4, row);
            }
        }
        ck_assert_msg(
            count_nan(c.dquery, c.query_count) + count_nan(c.dvalue, c.key_count) + count_nan(c.dkey, c.key_count) > 0,
            "%s: tensor %d left no NaN in any gradient", recipe->name, which);
        ck_assert_msg(tensor_wide || count_nan(c.output, FIRST * D) + count_nan(c.output + END * D, 33 * D) +
                                             count_nan(c.dquery, FIRST * D) + count_nan(c.dquery + END * D, 33 * D) +
                                             count_nan(c.dkey, FIRST * D) + count_nan(c.dvalue + END * D, 33 * D) ==
                                         0,
                      "%s: tensor %d reached another document", recipe->name, which);
        if (recipe_causality(recipe) == CAUSALITY_EXACT && which % 4 != 3) {
            ck_assert_msg(count_nan(c.output, AT * D) + count_nan(c.dquery, AT * D) == 0,
                          "%s: tensor %d reached an earlier row", recipe->name, which);
        }
        case_free(&c);
    }
}
END_TEST

START_TEST(hidden_rows_have_an_infinite_lse_and_zero_output)
{
    /* The public form of the statistics. */
    const float lse[] = {1, INFINITY, -3, NAN};
    float natural[4];
    attention_public_lse(lse, natural, 4);
    ck_assert_float_eq_tol(natural[0], 0.6931472f, 1e-6f);
    ck_assert_float_eq(natural[1], -INFINITY);
    ck_assert_float_eq_tol(natural[2], -3 * 0.6931472f, 1e-6f);
    ck_assert(isnan(natural[3]));
}
END_TEST

START_TEST(statistics_are_head_major)
{
    /* H != T and three documents: lse[h][t] must be that head's and token's. */
    struct random_stream stream = random_stream(71);
    static const size_t lengths[] = {3, 8, 20};
    struct attention_case c = case_make(&stream, lengths, 3, 6, 2, 16, true);
    struct exact exact = exact_make(&c);
    case_run(&c, recipe_find("fp32"));
    for (size_t i = 0; i < 6 * 31; i++) {
        ck_assert_double_eq_tol(c.lse[i], exact.lse[i], 1e-5);
    }
    expect_near(&c, &exact, 2e-6, 2e-6);
    exact_free(&exact);
    case_free(&c);
}
END_TEST

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

/* ---- refusals ---- */

START_TEST(bad_calls_are_refused_with_a_status)
{
    struct random_stream stream = random_stream(80);
    static const size_t lengths[] = {10, 6};
    struct attention_case c = case_make(&stream, lengths, 2, 4, 2, 16, true);
    const struct recipe *recipe = recipe_find("exact");
    const size_t bytes = attention_workspace_bytes(recipe, &c.shape);
    void *workspace = test_alloc(bytes);
    const struct attention_inputs good = {c.query, c.key, c.value, 64, 32, 32};
    struct attention_inputs inputs = good;
    struct attention_shape shape = c.shape;
    static const char *const loose[] = {"c=8", "tau=2", NULL};
    struct recipe refused = recipe_with("mxfp8", loose);
    const int32_t offsets[][3] = {{1, 10, 16}, {0, 12, 10}, {0, 10, 15}, {0, -1, 16}};
#define FORWARD(recipe_, shape_, documents_, inputs_, stride_, bytes_)                                                 \
    attention_forward_cpu((recipe_), (shape_), (documents_), (inputs_), c.output, (stride_), c.lse, workspace,         \
                          (bytes_), NULL)
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_OK);
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes - 1), ATTENTION_WORKSPACE);
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 63, bytes), ATTENTION_BAD_STRIDE);
    ck_assert_int_eq(FORWARD(&refused, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_RECIPE);
    inputs.key_stride = 31;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &inputs, 64, bytes), ATTENTION_BAD_STRIDE);
    inputs = good;
    inputs.value = NULL;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &inputs, 64, bytes), ATTENTION_BAD_STRIDE);
    shape.kv_heads = 3;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_SHAPE);
    shape.kv_heads = 0;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_SHAPE);
    shape = c.shape;
    shape.head_dim = 24;
    ck_assert_int_eq(FORWARD(recipe, &shape, &c.documents, &good, 64, bytes), ATTENTION_BAD_SHAPE);
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        const struct documents bad = {offsets[i], 2};
        ck_assert_int_eq(FORWARD(recipe, &c.shape, &bad, &good, 64, bytes), ATTENTION_BAD_OFFSETS);
    }
#undef FORWARD
    free(workspace);
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

START_TEST(every_status_has_its_own_text)
{
    for (int i = 0; i <= ATTENTION_STATUS_COUNT; i++) {
        const char *text = attention_status_text((enum attention_status)i);
        ck_assert_ptr_nonnull(text);
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(text, attention_status_text((enum attention_status)j));
        }
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
    tcase_add_test(tcase, workspace_content_changes_nothing);
    tcase_add_test(tcase, repeated_calls_and_thread_counts_give_the_same_bits);
    tcase_add_test(tcase, tracing_changes_no_bit);
    tcase_add_test(tcase, strides_change_no_bit_and_gaps_are_not_touched);
    tcase_add_test(tcase, every_length_up_to_130_is_right);
    tcase_add_loop_test(tcase, every_recipe_takes_every_length_up_to_130, 0, (int)recipe_count());
    tcase_add_test(tcase, every_head_dim_is_right_or_refused);
    tcase_add_test(tcase, empty_documents_are_legal_anywhere);
    tcase_add_test(tcase, three_hundred_documents_are_three_hundred_calls);
    tcase_add_test(tcase, offsets_beyond_32_bits_are_addressed_right);
    tcase_add_test(tcase, a_lagging_maximum_never_saturates_p);
    tcase_add_test(tcase, too_large_a_shift_saturates_silently_when_forced);
    tcase_add_test(tcase, keys_that_grow_towards_the_start_are_right);
    tcase_add_test(tcase, zero_inputs_give_means_and_finite_gradients);
    tcase_add_test(tcase, tiny_and_huge_inputs_stay_finite);
    tcase_add_loop_test(tcase, a_nan_shows_in_every_row_that_sees_it_and_in_no_other_document, 0, (int)recipe_count());
    tcase_add_test(tcase, hidden_rows_have_an_infinite_lse_and_zero_output);
    tcase_add_test(tcase, statistics_are_head_major);
    tcase_add_test(tcase, stochastic_rounding_depends_on_seed_step_layer_and_place_only);
    tcase_add_test(tcase, stochastic_rounding_of_ds_has_no_bias);
    tcase_add_test(tcase, bad_calls_are_refused_with_a_status);
    tcase_add_test(tcase, bit_trick_exponentials_are_for_inference_only);
    tcase_add_test(tcase, every_status_has_its_own_text);
    suite_add_tcase(suite, tcase);
    return suite;
}
