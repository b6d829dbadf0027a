/* check_packing.c: documents packed into one call have the bits of documents in calls of their own. */
#include <string.h>

#include "tests/attention_case.h"

static const size_t lengths[] = {1, 2, 15, 16, 0, 17, 31, 32, 33, 0, 0, 127, 128, 129, 300};
#define COUNT (sizeof lengths / sizeof *lengths)

static const struct {
    size_t heads, kv_heads, head_dim;
    bool causal;
} shapes[] = {{8, 2, 16, true}, {9, 3, 48, true}, {8, 2, 64, false}, {3, 1, 128, true}, {4, 1, 256, true}};
#define SHAPES (sizeof shapes / sizeof *shapes)

static size_t document_count(void)
{
    return test_is_sanitized() ? COUNT - 5 : COUNT; /* without the long ones */
}

START_TEST(packed_documents_equal_separate_ones)
{
    const struct recipe *recipe = recipe_at((size_t)_i / SHAPES);
    const size_t shape = (size_t)_i % SHAPES;
    if (strcmp(recipe->name, "fp8-tensor") == 0) {
        return; /* its scales span the documents: see below */
    }
    struct random_stream stream = random_stream((uint64_t)_i);
    struct attention_case packed = case_make(&stream, lengths, document_count(), shapes[shape].heads,
                                             shapes[shape].kv_heads, shapes[shape].head_dim, shapes[shape].causal);
    case_run(&packed, recipe);
    for (size_t n = 0; n < document_count(); n++) {
        struct attention_case alone = case_document(&packed, n);
        case_run(&alone, recipe);
        case_expect_same_document(&packed, n, &alone);
        case_free(&alone);
    }
    case_free(&packed);
}
END_TEST

START_TEST(switches_keep_documents_apart)
{
    static const char *const switched[][4] = {
        {"mxfp8", "dquery=fp16-sequence"}, {"mxfp8", "dquery=fp16-causal"},
        {"mxfp8", "dscore-scale=tile"},    {"mxfp8", "hadamard=1"},
        {"fp4", "value-groups=keyed"},     {"fp4", "diagonal-forward=256", "mismatch=1"},
        {"exact", "score=nvfp4"},          {"mxfp8", "rule=floor"},
    };
    struct random_stream stream = random_stream(1000 + (uint64_t)_i);
    const struct recipe recipe = recipe_with(switched[_i][0], &switched[_i][1]);
    struct attention_case packed = case_make(&stream, lengths, document_count(), 4, 2, 32, true);
    case_run(&packed, &recipe);
    for (size_t n = 0; n < document_count(); n++) {
        struct attention_case alone = case_document(&packed, n);
        case_run(&alone, &recipe);
        case_expect_same_document(&packed, n, &alone);
        case_free(&alone);
    }
    case_free(&packed);
}
END_TEST

START_TEST(another_document_changes_no_bit)
{
    /* Two documents of 20 and 44 tokens; the second times 1000, then replaced by NaN-free noise 10^30 times larger. */
    static const size_t two[] = {20, 44};
    struct random_stream stream = random_stream(2000 + (uint64_t)_i);
    const struct recipe *recipe = recipe_at((size_t)_i);
    struct attention_case before = case_make(&stream, two, 2, 2, 1, 32, true);
    case_run(&before, recipe);
    static const float factors[] = {1000, 1e15f};
    for (size_t f = 0; f < 2; f++) {
        struct attention_case after = case_copy(&before);
        for (size_t i = 20 * 32; i < after.key_count; i++) {
            after.key[i] *= factors[f];
            after.value[i] *= factors[f];
        }
        for (size_t i = 20 * 64; i < after.query_count; i++) {
            after.query[i] *= factors[f];
            after.output_gradient[i] *= factors[f];
        }
        case_run(&after, recipe);
        const int moved = memcmp(before.output, after.output, 20 * 64 * sizeof(float)) != 0;
        ck_assert_msg(moved == (strcmp(recipe->name, "fp8-tensor") == 0), "%s: O of the first document %s",
                      recipe->name, moved ? "moved" : "did not move");
        if (!moved) {
            ck_assert_mem_eq(before.dquery, after.dquery, 20 * 64 * sizeof(float));
            ck_assert_mem_eq(before.dkey, after.dkey, 20 * 32 * sizeof(float));
            ck_assert_mem_eq(before.dvalue, after.dvalue, 20 * 32 * sizeof(float));
        }
        case_free(&after);
    }
    case_free(&before);
}
END_TEST

Suite *suite_packing(void);

Suite *suite_packing(void)
{
    Suite *suite = suite_create("packing");
    TCase *tcase = tcase_create("packing");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, packed_documents_equal_separate_ones, 0, (int)(recipe_count() * SHAPES));
    tcase_add_loop_test(tcase, switches_keep_documents_apart, 0, 8);
    tcase_add_loop_test(tcase, another_document_changes_no_bit, 0, (int)recipe_count());
    suite_add_tcase(suite, tcase);
    return suite;
}
