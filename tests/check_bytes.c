/* check_bytes.c: cutting raw bytes into documents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/bytes.h"
#include "tests/files.h"

Suite *suite_bytes(void);

static struct document_index index_of(const char *rule, const uint8_t *bytes, size_t size, int64_t first)
{
    struct bytes_documents documents;
    struct document_index index = {0};
    struct error error = {0};
    struct file file;
    ck_assert_msg(bytes_parse(&documents, rule, &error), "%s", error.text);
    ck_assert(file_open_memory(&file, bytes, size, "text", &error));
    ck_assert_msg(bytes_index(&documents, &file, first, &index, &error), "%s", error.text);
    file_close(&file);
    return index;
}

static void assert_starts(const char *rule, const char *text, const char *expected)
{
    struct document_index index = index_of(rule, (const uint8_t *)text, strlen(text), 0);
    char found[256] = "";
    for (size_t i = 0; i < index.count; i++) {
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%ld", i > 0 ? " " : "", (long)index.starts[i]);
    }
    ck_assert_str_eq(found, expected);
    ck_assert_uint_eq(index.empty, 0);
    document_free(&index);
}

START_TEST(rules_cut_where_they_say)
{
    assert_starts("none", "abcdef", "0");
    assert_starts("length:2", "abcde", "0 2 4");
    assert_starts("length:2", "abcd", "0 2");
    assert_starts("length:1", "abc", "0 1 2");
    assert_starts("length:9223372036854775807", "abc", "0");
    assert_starts("delimiter:2C", "a,b,c", "0 2 4");
    assert_starts("delimiter:2c", "a,b,", "0 2");  /* nothing follows the last delimiter */
    assert_starts("delimiter:2C", ",,a", "0 1 2"); /* a delimiter alone is a document of one byte, not an empty one */
    assert_starts("delimiter:6161", "aaaaab", "0 2 4"); /* left to right, not overlapping */
    assert_starts("delimiter:616162", "aaabx", "0 4");  /* a match that begins inside a failed one */
    assert_starts("delimiter:616162616161", "aabaabaaax", "0 9");
    assert_starts("delimiter:7878", "abc", "0"); /* a delimiter that is not there */
}
END_TEST

START_TEST(delimiters_are_found_as_a_plain_search_finds_them)
{
    struct random_stream random = random_stream(1);
    for (int round = 0; round < 200; round++) {
        uint8_t text[200];
        const size_t size = 1 + random_below(&random, sizeof text), length = 1 + random_below(&random, 8);
        char rule[64] = "delimiter:";
        uint8_t delimiter[8];
        for (size_t i = 0; i < length; i++) {
            delimiter[i] = (uint8_t)('a' + random_below(&random, 2));
            snprintf(rule + strlen(rule), 3, "%02X", delimiter[i]);
        }
        for (size_t i = 0; i < size; i++) {
            text[i] = (uint8_t)('a' + random_below(&random, 2));
        }
        struct document_index index = index_of(rule, text, size, 1000);
        ck_assert_int_eq(index.starts[0], 1000);
        size_t found = 1;
        for (size_t i = 0; i + length <= size;) {
            if (memcmp(text + i, delimiter, length) != 0) {
                i++;
                continue;
            }
            i += length;
            if (i < size) {
                ck_assert_uint_lt(found, index.count);
                ck_assert_int_eq(index.starts[found], 1000 + (int64_t)i);
                found++;
            }
        }
        ck_assert_uint_eq(index.count, found);
        document_free(&index);
    }
}
END_TEST

START_TEST(delimiter_across_two_pieces_of_the_file_is_found)
{
    const size_t size = ((size_t)1 << 20) + 100, at = ((size_t)1 << 20) - 2; /* files are read a MiB at a time */
    uint8_t *text = test_alloc(size);
    memset(text, 'x', size);
    memcpy(text + at, "</p>", 4);
    struct document_index index = index_of("delimiter:3C2F703E", text, size, 0);
    ck_assert_uint_eq(index.count, 2);
    ck_assert_int_eq(index.starts[1], (int64_t)at + 4);
    document_free(&index);
    free(text);
}
END_TEST

START_TEST(malformed_rules_are_refused)
{
    static const char *const rules[] = {
        "",           "None",        "length",       "length:",        "length:0",
        "length:-1",  "length:1x",   "length: 1",    "length:1e3",     "length:99999999999999999999",
        "delimiter:", "delimiter:0", "delimiter:0G", "delimiter:0x0A", "delimiter:0A ",
        "none:",
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct bytes_documents documents;
        struct error error = {0};
        ck_assert_msg(!bytes_parse(&documents, rules[i], &error), "\"%s\"", rules[i]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
        assert_error_names(&error, rules[i]);
    }
}
END_TEST

START_TEST(longest_delimiter_is_taken_and_a_longer_one_refused)
{
    char rule[16 + 2 * BYTES_MAX_DELIMITER + 2] = "delimiter:";
    struct bytes_documents documents;
    struct error error;
    memset(rule + 10, 'F', 2 * BYTES_MAX_DELIMITER);
    ck_assert(bytes_parse(&documents, rule, &error));
    ck_assert_uint_eq(documents.delimiter_length, BYTES_MAX_DELIMITER);
    memset(rule + 10, 'F', 2 * BYTES_MAX_DELIMITER + 2);
    ck_assert(!bytes_parse(&documents, rule, &error));
}
END_TEST

Suite *suite_bytes(void)
{
    Suite *suite = suite_create("bytes");
    TCase *tests = tcase_create("bytes");
    tcase_add_test(tests, rules_cut_where_they_say);
    tcase_add_test(tests, delimiters_are_found_as_a_plain_search_finds_them);
    tcase_add_test(tests, delimiter_across_two_pieces_of_the_file_is_found);
    tcase_add_test(tests, malformed_rules_are_refused);
    tcase_add_test(tests, longest_delimiter_is_taken_and_a_longer_one_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
