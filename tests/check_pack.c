/* check_pack.c: documents, targets and positions of packed rows. */
#include <stdlib.h>
#include <string.h>

#include "data/pack.h"
#include "tests/support.h"

Suite *suite_pack(void);

static struct batch make_batch(size_t rows, size_t sequence_length)
{
    struct batch batch;
    const size_t tokens = rows * sequence_length;
    memset(&batch, 0xFF, sizeof batch);
    batch.tokens = test_alloc(tokens * sizeof(int32_t));
    batch.targets = test_alloc(tokens * sizeof(int32_t));
    batch.positions = test_alloc(tokens * sizeof(int32_t));
    batch.offsets = test_alloc((tokens + 1) * sizeof(int32_t));
    pack_begin(&batch, sequence_length, 7);
    return batch;
}

static void free_batch(struct batch *batch)
{
    free(batch->tokens);
    free(batch->targets);
    free(batch->positions);
    free(batch->offsets);
}

static void assert_integers(const int32_t *found, const int32_t *expected, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(found[i] == expected[i], "%s[%zu] is %d, expected %d", what, i, found[i], expected[i]);
    }
}

START_TEST(label_never_crosses_a_boundary)
{
    /* Documents [10 11 12][20 21], and 22 behind the row. */
    const int32_t ids[] = {10, 11, 12, 20, 21, 22}, targets[] = {11, 12, -1, 21, 22}, positions[] = {0, 1, 2, 0, 1};
    const int64_t starts[] = {3};
    struct batch batch = make_batch(1, 5);
    pack_row(&batch, ids, true, starts, 1);
    assert_integers(batch.tokens, ids, 5, "tokens");
    assert_integers(batch.targets, targets, 5, "targets");
    assert_integers(batch.positions, positions, 5, "positions");
    ck_assert_uint_eq(batch.valid_targets, 4);
    free_batch(&batch);
}
END_TEST

START_TEST(last_target_of_a_row_is_the_next_rows_token_only_in_the_same_document)
{
    const int32_t ids[] = {1, 2, 3, 4};
    const int64_t behind[] = {3};
    struct batch batch = make_batch(3, 3);
    pack_row(&batch, ids, true, NULL, 0);   /* the document goes on */
    pack_row(&batch, ids, true, behind, 1); /* it ends with the row */
    pack_row(&batch, ids, false, NULL, 0);  /* nothing follows that may be seen */
    const int32_t targets[] = {2, 3, 4, 2, 3, -1, 2, 3, -1};
    assert_integers(batch.targets, targets, 9, "targets");
    ck_assert_uint_eq(batch.valid_targets, 7);
    free_batch(&batch);
}
END_TEST

START_TEST(row_that_ends_with_a_document_has_no_empty_one)
{
    /* Rows of 8 over documents of 8 and 5, 7 and 5, 9 and 5: offsets increase strictly and end with the row. */
    static const size_t lengths[] = {8, 7, 9};
    for (size_t i = 0; i < 3; i++) {
        const int32_t ids[9] = {0};
        const int64_t starts[] = {(int64_t)lengths[i]};
        struct batch batch = make_batch(1, 8);
        pack_row(&batch, ids, true, starts, lengths[i] <= 8 ? 1 : 0);
        ck_assert_uint_eq(batch.documents, lengths[i] < 8 ? 2 : 1);
        ck_assert_int_eq(batch.offsets[0], 0);
        ck_assert_int_eq(batch.offsets[1], lengths[i] < 8 ? 7 : 8);
        ck_assert_int_eq(batch.offsets[batch.documents], 8);
        ck_assert_int_eq(batch.targets[7], lengths[i] == 8 ? TARGET_IGNORED : 0);
        free_batch(&batch);
    }
}
END_TEST

START_TEST(documents_of_one_token_have_no_target)
{
    const int32_t ids[] = {1, 2, 3, 4};
    const int64_t starts[] = {1, 2, 3};
    struct batch batch = make_batch(1, 3);
    pack_row(&batch, ids, true, starts, 3);
    ck_assert_uint_eq(batch.documents, 3);
    ck_assert_uint_eq(batch.valid_targets, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(batch.targets[i], TARGET_IGNORED);
        ck_assert_int_eq(batch.positions[i], 0);
    }
    free_batch(&batch);
}
END_TEST

/* What the definition says of each token, computed by looking at every position alone. */
START_TEST(random_rows_follow_the_definition)
{
    struct random_stream random = random_stream(1);
    for (int round = 0; round < 200; round++) {
        const size_t length = 1 + random_below(&random, 40), rows = 1 + random_below(&random, 4);
        struct batch batch = make_batch(rows, length);
        size_t documents = 0, valid = 0;
        for (size_t r = 0; r < rows; r++) {
            int32_t ids[41];
            int64_t starts[41];
            bool begins[41] = {true};
            size_t count = 0;
            const bool has_next = random_below(&random, 2);
            for (size_t i = 0; i <= length; i++) {
                ids[i] = (int32_t)random_below(&random, 1000);
                if (i > 0 && random_below(&random, 4) == 0) {
                    begins[i] = true;
                    starts[count++] = (int64_t)i;
                }
            }
            pack_row(&batch, ids, has_next, starts, count);
            int32_t position = 0;
            for (size_t i = 0; i < length; i++) {
                const size_t at = r * length + i;
                position = begins[i] ? 0 : position + 1;
                documents += begins[i];
                const bool predicts = !begins[i + 1] && (i + 1 < length || has_next);
                valid += predicts;
                ck_assert_int_eq(batch.tokens[at], ids[i]);
                ck_assert_int_eq(batch.positions[at], position);
                ck_assert_int_eq(batch.targets[at], predicts ? ids[i + 1] : TARGET_IGNORED);
            }
        }
        ck_assert_uint_eq(batch.rows, rows);
        ck_assert_uint_eq(batch.total_tokens, rows * length);
        ck_assert_uint_eq(batch.documents, documents);
        ck_assert_uint_eq(batch.valid_targets, valid);
        ck_assert_uint_eq(batch.first_sample, 7);
        ck_assert_int_eq(batch.offsets[documents], (int32_t)(rows * length));
        for (size_t d = 0; d < documents; d++) {
            ck_assert_int_lt(batch.offsets[d], batch.offsets[d + 1]);
            ck_assert_int_eq(batch.positions[batch.offsets[d]], 0);
        }
        free_batch(&batch);
    }
}
END_TEST

Suite *suite_pack(void)
{
    Suite *suite = suite_create("pack");
    TCase *tests = tcase_create("pack");
    tcase_add_test(tests, label_never_crosses_a_boundary);
    tcase_add_test(tests, last_target_of_a_row_is_the_next_rows_token_only_in_the_same_document);
    tcase_add_test(tests, row_that_ends_with_a_document_has_no_empty_one);
    tcase_add_test(tests, documents_of_one_token_have_no_target);
    tcase_add_test(tests, random_rows_follow_the_definition);
    suite_add_tcase(suite, tests);
    return suite;
}
