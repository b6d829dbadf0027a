/* check_attention_shapes.c: attention on awkward shapes and layouts, and free of everything it must not depend on. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/attention_exact.h"

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
    for (size_t tokens = 1; tokens <= 130; tokens += test_is_sanitized() ? 8 : 1) {
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
    for (size_t tokens = 1; tokens <= 130; tokens += test_is_sanitized() ? 8 : 1) { /* 1, 9, .., 129 */
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

Suite *suite_attention_shapes(void);

Suite *suite_attention_shapes(void)
{
    Suite *suite = suite_create("attention_shapes");
    TCase *tcase = tcase_create("attention_shapes");
    tcase_set_timeout(tcase, 60);
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
    tcase_add_test(tcase, statistics_are_head_major);
    suite_add_tcase(suite, tcase);
    return suite;
}
