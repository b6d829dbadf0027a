/* check_vocabulary.c: from ids to bytes. */
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "data/vocabulary.h"
#include "tests/files.h"

Suite *suite_vocabulary(void);

/* A tokenizer.bin of five tokens: "!", "", " the", 255 times 'x', "\0\n". */
static size_t make_tokenizer(uint8_t *bytes, uint32_t version, uint32_t end_of_text)
{
    memset(bytes, 0, 1024);
    file_put_u32(bytes, 20240328);
    file_put_u32(bytes + 4, version);
    file_put_u32(bytes + 8, 5);
    file_put_u32(bytes + 12, end_of_text);
    memcpy(bytes + 1024, "\1!\0\4 the\xff", 9);
    memset(bytes + 1033, 'x', 255);
    memcpy(bytes + 1288, "\2\0\n", 3);
    return 1291;
}

START_TEST(bytes_are_their_own_tokens)
{
    struct error error;
    struct vocabulary *vocabulary = vocabulary_bytes(&error);
    ck_assert_uint_eq(vocabulary_size(vocabulary), 256);
    ck_assert_int_eq(vocabulary_end_of_text(vocabulary), -1);
    size_t length;
    for (int64_t id = 0; id < 256; id++) {
        const uint8_t *bytes = vocabulary_decode(vocabulary, id, &length);
        ck_assert_uint_eq(length, 1);
        ck_assert_uint_eq(bytes[0], (uint8_t)id);
    }
    ck_assert_ptr_null(vocabulary_decode(vocabulary, 256, &length));
    ck_assert_ptr_null(vocabulary_decode(vocabulary, -1, &length));
    ck_assert_uint_eq(length, 0);
    int32_t ids[4];
    size_t count;
    ck_assert(vocabulary_encode(vocabulary, (const uint8_t *)"a\xff\0b", 4, ids, &count, &error));
    ck_assert_uint_eq(count, 4);
    ck_assert(ids[0] == 'a' && ids[1] == 255 && ids[2] == 0 && ids[3] == 'b');
    vocabulary_free(vocabulary);
}
END_TEST

START_TEST(tokenizer_file_is_decoded)
{
    const char *path = path_in(scratch_folder(), "tokenizer.bin");
    uint8_t bytes[1300];
    write_file(path, bytes, make_tokenizer(bytes, 2, 4));
    struct error error = {0};
    struct vocabulary *vocabulary = vocabulary_open(path, &error);
    ck_assert_msg(vocabulary != NULL, "%s", error.text);
    ck_assert_uint_eq(vocabulary_size(vocabulary), 5);
    ck_assert_int_eq(vocabulary_end_of_text(vocabulary), 4);
    size_t length;
    ck_assert_mem_eq(vocabulary_decode(vocabulary, 0, &length), "!", 1);
    ck_assert_uint_eq(length, 1);
    ck_assert_ptr_nonnull(vocabulary_decode(vocabulary, 1, &length));
    ck_assert_uint_eq(length, 0);
    ck_assert_mem_eq(vocabulary_decode(vocabulary, 2, &length), " the", 4);
    vocabulary_decode(vocabulary, 3, &length);
    ck_assert_uint_eq(length, 255);
    ck_assert_mem_eq(vocabulary_decode(vocabulary, 4, &length), "\0\n", 2);
    ck_assert_uint_eq(length, 2);
    int32_t ids[1];
    size_t count;
    ck_assert(!vocabulary_encode(vocabulary, (const uint8_t *)"!", 1, ids, &count, &error));
    assert_error_names(&error, "merges");
    vocabulary_free(vocabulary);
}
END_TEST

START_TEST(first_version_does_not_say_its_end_of_text)
{
    const char *path = path_in(scratch_folder(), "tokenizer.bin");
    uint8_t bytes[1300];
    struct error error;
    write_file(path, bytes, make_tokenizer(bytes, 1, 0));
    struct vocabulary *vocabulary = vocabulary_open(path, &error);
    ck_assert_int_eq(vocabulary_end_of_text(vocabulary), -1); /* five tokens: 50256 is not one of them */
    vocabulary_free(vocabulary);
    const size_t size = 1024 + 50257; /* GPT-2's size, every token empty */
    uint8_t *large = test_alloc(size);
    memset(large, 0, size);
    memcpy(large, bytes, 16);
    file_put_u32(large + 8, 50257);
    write_file(path, large, size);
    free(large);
    vocabulary = vocabulary_open(path, &error);
    ck_assert_msg(vocabulary != NULL, "%s", error.text);
    ck_assert_int_eq(vocabulary_end_of_text(vocabulary), 50256);
    vocabulary_free(vocabulary);
}
END_TEST

START_TEST(damaged_tokenizers_are_refused)
{
    const char *path = path_in(scratch_folder(), "tokenizer.bin");
    uint8_t bytes[1300], changed[1300];
    struct error error;
    const size_t size = make_tokenizer(bytes, 2, 4);
    for (size_t cut = 1000; cut < size; cut++) {
        write_file(path, bytes, cut);
        ck_assert_ptr_null(vocabulary_open(path, &error));
        assert_error_names(&error, path);
    }
    static const struct {
        size_t at;
        uint32_t value;
        const char *reason;
    } faults[] = {{0, 20240520, "magic"}, {4, 0, "version"}, {4, 3, "version"},         {8, 0, "tokens"},
                  {8, 4, "behind"},       {8, 6, "ends in"}, {8, UINT32_MAX, "tokens"}, {12, 5, "end-of-text"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        memcpy(changed, bytes, size);
        file_put_u32(changed + faults[i].at, faults[i].value);
        file_put_u32(changed + 12, faults[i].at == 12 ? faults[i].value : 0);
        write_file(path, changed, size);
        ck_assert_ptr_null(vocabulary_open(path, &error));
        assert_error_names(&error, faults[i].reason);
    }
}
END_TEST

Suite *suite_vocabulary(void)
{
    Suite *suite = suite_create("vocabulary");
    TCase *tests = tcase_create("vocabulary");
    tcase_add_test(tests, bytes_are_their_own_tokens);
    tcase_add_test(tests, tokenizer_file_is_decoded);
    tcase_add_test(tests, first_version_does_not_say_its_end_of_text);
    tcase_add_test(tests, damaged_tokenizers_are_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
