/* check_documents.c: offsets of documents, and the list of work made from them. */
#include <stdlib.h>

#include "attention/attention.h"
#include "attention/worklist_cpu.h"
#include "tests/support.h"

START_TEST(offsets_must_begin_at_zero_never_fall_and_end_at_the_count)
{
    static const struct {
        int32_t offsets[5];
        size_t count, tokens;
        enum attention_status status;
    } table[] = {
        {{0, 3, 3, 7}, 3, 7, ATTENTION_OK},
        {{0}, 0, 0, ATTENTION_OK},
        {{0, 0, 0}, 2, 0, ATTENTION_OK},
        {{0}, 0, 1, ATTENTION_BAD_OFFSETS},
        {{1, 3}, 1, 3, ATTENTION_BAD_OFFSETS},
        {{-1, 3}, 1, 3, ATTENTION_BAD_OFFSETS},
        {{0, 4, 3, 7}, 3, 7, ATTENTION_BAD_OFFSETS},
        {{0, 3, 8}, 2, 7, ATTENTION_BAD_OFFSETS},
        {{0, 3, 6}, 2, 7, ATTENTION_BAD_OFFSETS},
        {{0, INT32_MIN, 7}, 2, 7, ATTENTION_BAD_OFFSETS},
        {{0, INT32_MAX}, 1, INT32_MAX, ATTENTION_OK},
        {{0, 7}, 1, (size_t)1 << 32 | 7, ATTENTION_BAD_OFFSETS}, /* equal in 32 bits */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct documents documents = {table[i].offsets, table[i].count};
        ck_assert_msg(documents_check(&documents, table[i].tokens) == table[i].status, "row %zu", i);
    }
    const struct documents missing = {NULL, 1};
    ck_assert_int_eq(documents_check(&missing, 1), ATTENTION_BAD_OFFSETS);
    ck_assert_int_eq(documents_check(NULL, 1), ATTENTION_BAD_OFFSETS);
}
END_TEST

START_TEST(the_longest_document_is_found)
{
    static const int32_t offsets[] = {0, 3, 3, 10, 12};
    ck_assert_uint_eq(documents_longest(&(struct documents){offsets, 4}), 7);
    ck_assert_uint_eq(documents_longest(&(struct documents){offsets, 0}), 0);
}
END_TEST

START_TEST(work_covers_every_query_once_and_starts_with_the_dearest)
{
    struct random_stream stream = random_stream(1);
    for (int repeat = 0; repeat < 200; repeat++) {
        int32_t offsets[21] = {0};
        const size_t count = random_below(&stream, 21);
        for (size_t i = 0; i < count; i++) {
            offsets[i + 1] = offsets[i] + (int32_t)(random_below(&stream, 3) ? random_below(&stream, 500) : 0);
        }
        const size_t tokens = (size_t)offsets[count];
        const struct documents documents = {offsets, count};
        struct work_item *items = test_alloc((tokens + 1) * sizeof *items);
        unsigned char *seen = calloc(tokens + 1, 1);
        ck_assert_ptr_nonnull(seen);
        const bool causal = repeat & 1;
        const size_t made = worklist_build(&documents, causal, items);
        for (size_t i = 0; i < made; i++) {
            const int32_t rows = items[i].end - items[i].first < TILE ? items[i].end - items[i].first : TILE;
            const int32_t length = items[i].end - items[i].begin;
            ck_assert_int_eq((items[i].first - items[i].begin) % TILE, 0);
            ck_assert_int_eq(items[i].cost,
                             causal ? (items[i].first - items[i].begin) / TILE + 1 : (length + TILE - 1) / TILE);
            ck_assert(i == 0 || items[i].cost <= items[i - 1].cost);
            for (int32_t row = 0; row < rows; row++) {
                expect(seen[items[i].first + row]++ == 0, "query %d twice", items[i].first + row);
            }
        }
        for (size_t token = 0; token < tokens; token++) {
            expect(seen[token] == 1, "query %zu is missing", token);
        }
        free(seen);
        free(items);
    }
}
END_TEST

Suite *suite_documents(void);

Suite *suite_documents(void)
{
    Suite *suite = suite_create("documents");
    TCase *tcase = tcase_create("documents");
    tcase_add_test(tcase, offsets_must_begin_at_zero_never_fall_and_end_at_the_count);
    tcase_add_test(tcase, the_longest_document_is_found);
    tcase_add_test(tcase, work_covers_every_query_once_and_starts_with_the_dearest);
    suite_add_tcase(suite, tcase);
    return suite;
}
