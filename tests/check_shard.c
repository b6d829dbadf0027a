/* check_shard.c: all three shard formats are read, and whatever is not quite one of them is refused by name. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "data/shard.h"
#include "tests/files.h"

Suite *suite_shard(void);

#define GPT2   20240520
#define LLAMA3 20240801

/* All of a reader's checks on bytes in memory. True: it is a sound shard. `recognised` tells a refusal from raw bytes.
 */
static bool accept(const uint8_t *bytes, size_t size, struct shard *shard, struct document_index *index,
                   bool *recognised, struct error *error)
{
    struct file file;
    bool is_shard = false;
    *error = (struct error){0};
    *index = (struct document_index){0};
    ck_assert(file_open_memory(&file, bytes, size, "x.bin", error));
    const bool readable = shard_recognise(&file, &is_shard, error);
    *recognised = !readable || is_shard;
    const bool good =
        readable && is_shard && shard_read_header(&file, shard, error) && shard_validate(&file, shard, 0, index, error);
    file_close(&file);
    return good;
}

static void assert_refused(const uint8_t *bytes, size_t size, const char *reason)
{
    struct shard shard;
    struct document_index index;
    struct error error;
    bool recognised;
    ck_assert(!accept(bytes, size, &shard, &index, &recognised, &error));
    ck_assert_msg(recognised, "taken for raw bytes");
    assert_error_names(&error, "x.bin");
    assert_error_names(&error, reason);
    document_free(&index);
}

/* A flamia shard in memory of random documents (some empty), for tests that damage it. */
static uint8_t *make_flamia(struct random_stream *random, size_t *size)
{
    const char *path = path_in(scratch_folder(), "x.bin");
    uint32_t ids[64];
    int64_t starts[5] = {0, 3, 3, 0, 0};
    const size_t count = 10 + random_below(random, 50);
    for (size_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)random_below(random, 300);
    }
    starts[3] = 3 + (int64_t)random_below(random, count - 3);
    starts[4] = (int64_t)count;
    write_flamia_shard(path, ids, count, starts, 5, 300);
    return read_file(path, size);
}

/* Makes the header's checksum right again after a change. */
static void reseal(uint8_t *bytes)
{
    file_put_u64(bytes + 136, file_checksum(FILE_CHECKSUM_START, bytes, 136));
}

START_TEST(llmc_documents_begin_at_the_end_of_text_token)
{
    static const struct {
        uint32_t magic, version;
        int width;
        uint32_t end, vocabulary;
    } kinds[] = {{GPT2, 1, 2, 50256, 50257}, {LLAMA3, 7, 4, 128000, 128256}};
    for (size_t k = 0; k < 2; k++) {
        const uint32_t e = kinds[k].end, ids[] = {5, 6, e, 7, e, e, 8, 9, kinds[k].vocabulary - 1, e};
        const int64_t expected[] = {0, 2, 4, 5, 9};
        const size_t documents = k == 0 ? 6 : 5; /* GPT-2's last id is the end-of-text token */
        const int64_t expected_gpt2[] = {0, 2, 4, 5, 8, 9};
        uint8_t *bytes;
        const size_t size = make_llmc_shard(&bytes, kinds[k].magic, kinds[k].version, kinds[k].width, ids, 10);
        struct shard shard;
        struct document_index index;
        struct error error;
        bool recognised;
        ck_assert_msg(accept(bytes, size, &shard, &index, &recognised, &error), "%s", error.text);
        ck_assert_int_eq(shard.tokens, 10);
        ck_assert_int_eq(shard.width, kinds[k].width);
        ck_assert_int_eq(shard.vocabulary, kinds[k].vocabulary);
        ck_assert_int_eq(shard.end_of_text, e);
        ck_assert_uint_eq(index.count, documents);
        ck_assert_mem_eq(index.starts, k == 0 ? expected_gpt2 : expected, documents * sizeof(int64_t));
        document_free(&index);
        free(bytes);
    }
}
END_TEST

START_TEST(end_of_text_first_makes_no_empty_document)
{
    const uint32_t ids[] = {50256, 1, 2};
    uint8_t *bytes;
    const size_t size = make_llmc_shard(&bytes, GPT2, 1, 2, ids, 3);
    struct shard shard;
    struct document_index index;
    struct error error;
    bool recognised;
    ck_assert(accept(bytes, size, &shard, &index, &recognised, &error));
    ck_assert_uint_eq(index.count, 1);
    ck_assert_uint_eq(index.empty, 0);
    document_free(&index);
    free(bytes);
}
END_TEST

START_TEST(header_and_payload_must_agree)
{
    struct random_stream random = random_stream(1);
    static const int64_t wrong[] = {1, -1, 1000};
    const size_t count = 20 + random_below(&random, 100);
    uint32_t *ids = test_alloc(count * sizeof *ids);
    for (int k = 0; k < 2; k++) {
        const int width = k == 0 ? 2 : 4;
        memset(ids, 0, count * sizeof *ids);
        uint8_t *bytes;
        const size_t size = make_llmc_shard(&bytes, k == 0 ? GPT2 : LLAMA3, k == 0 ? 1 : 7, width, ids, count);
        for (size_t i = 0; i < 3; i++) {
            file_put_u32(bytes + 8, (uint32_t)((int64_t)count + wrong[i]));
            assert_refused(bytes, size, "header says");
        }
        file_put_u32(bytes + 8, UINT32_C(0x80000000));
        assert_refused(bytes, size, "header says -2147483648 tokens");
        file_put_u32(bytes + 8, (uint32_t)count);
        assert_refused(bytes, size - 1, "a part of one");
        file_put_u32(bytes + 8, (uint32_t)count - 1);
        assert_refused(bytes, size - 1, "a part of one"); /* the whole tokens are as many as the header says */
        file_put_u32(bytes + 8, (uint32_t)count);
        assert_refused(bytes, SHARD_HEADER, "file holds 0");
        assert_refused(bytes, 600, "the file was cut");
        free(bytes);
    }
    free(ids);
}
END_TEST

START_TEST(payload_of_the_other_width_is_refused)
{
    const uint32_t ids[] = {1, 2, 3, 4};
    uint8_t *bytes;
    size_t size = make_llmc_shard(&bytes, GPT2, 1, 4, ids, 4);
    assert_refused(bytes, size, "header says 4 tokens of 2 bytes, file holds 8");
    free(bytes);
    size = make_llmc_shard(&bytes, LLAMA3, 7, 2, ids, 4);
    assert_refused(bytes, size, "header says 4 tokens of 4 bytes, file holds 2");
    free(bytes);
}
END_TEST

START_TEST(wrong_version_magic_and_byte_order_are_refused)
{
    const uint32_t ids[] = {1, 2, 3, 4};
    uint8_t *bytes;
    const size_t size = make_llmc_shard(&bytes, GPT2, 2, 2, ids, 4);
    assert_refused(bytes, size, "version 2, expected 1");
    file_put_u32(bytes + 4, 1);
    file_put_u32(bytes, GPT2 + 1);
    assert_refused(bytes, size, "magic 20240521");
    file_put_u32(bytes, GPT2);
    memmove(bytes + 1, bytes, 3);
    bytes[0] = 0x01, bytes[1] = 0x34, bytes[2] = 0xD8, bytes[3] = 0x88; /* 20240520 = 0x0134D888 */
    assert_refused(bytes, size, "reversed byte order");
    free(bytes);
}
END_TEST

START_TEST(files_of_other_kinds_are_named)
{
    const uint32_t ids[] = {1, 2, 3, 4};
    uint8_t *bytes;
    const size_t size = make_llmc_shard(&bytes, 20240326, 3, 2, ids, 4);
    assert_refused(bytes, size, "llm.c model file");
    file_put_u32(bytes, 20240522);
    assert_refused(bytes, size, "multiple-choice");
    memcpy(bytes, "BIN.TOK\n", 8);
    assert_refused(bytes, size, "llmq");
    free(bytes);
}
END_TEST

START_TEST(stray_header_word_is_refused)
{
    struct random_stream random = random_stream(2);
    const uint32_t ids[] = {1, 2, 3, 4};
    uint8_t *bytes;
    const size_t size = make_llmc_shard(&bytes, GPT2, 1, 2, ids, 4);
    bytes[12 + random_below(&random, SHARD_HEADER - 12)] = 1;
    assert_refused(bytes, size, "zeros");
    free(bytes);
}
END_TEST

START_TEST(id_outside_the_vocabulary_is_refused_with_its_place)
{
    static const uint32_t bad[] = {50257, 50303, 50304, 0xFFFF};
    for (size_t i = 0; i < 4; i++) {
        const uint32_t ids[] = {50255, 50256, bad[i]};
        char expected[80];
        uint8_t *bytes;
        const size_t size = make_llmc_shard(&bytes, GPT2, 1, 2, ids, 3);
        snprintf(expected, sizeof expected, "token 2 (offset 1028) is %u", bad[i]);
        assert_refused(bytes, size, expected);
        free(bytes);
    }
    const uint32_t ids[] = {128255, 128256};
    uint8_t *bytes;
    const size_t size = make_llmc_shard(&bytes, LLAMA3, 7, 4, ids, 2);
    assert_refused(bytes, size, "token 1 (offset 1028) is 128256");
    free(bytes);
}
END_TEST

START_TEST(text_is_raw_bytes)
{
    struct random_stream random = random_stream(3);
    uint8_t text[3000];
    for (size_t size = 1; size < sizeof text; size += 1 + random_below(&random, 100)) {
        for (size_t i = 0; i < size; i++) {
            text[i] = (uint8_t)(32 + random_below(&random, 90));
        }
        struct file file;
        struct error error;
        bool is_shard = true;
        ck_assert(file_open_memory(&file, text, size, "text", &error));
        ck_assert(shard_recognise(&file, &is_shard, &error));
        ck_assert(!is_shard);
        file_close(&file);
    }
}
END_TEST

START_TEST(flamia_shard_comes_back_as_it_was_written)
{
    struct random_stream random = random_stream(4);
    static const int64_t vocabularies[] = {1, 256, 257, 65536, 65537, (int64_t)1 << 31};
    for (size_t v = 0; v < 6; v++) {
        const char *path = path_in(scratch_folder(), "x.bin");
        const size_t documents = 1 + random_below(&random, 200);
        struct shard_writer writer;
        struct error error = {0};
        uint32_t *ids = test_alloc(20000 * sizeof *ids);
        int64_t *starts = test_alloc(documents * sizeof *starts);
        size_t count = 0, kept = 0, empty = 0;
        ck_assert(shard_writer_open(&writer, path, 0, vocabularies[v], vocabularies[v] - 1, "mine", &error));
        for (size_t d = 0; d < documents; d++) {
            const size_t length =
                d + 1 == documents && count == 0 ? 1 : random_below(&random, 3) * random_below(&random, 50);
            ck_assert(shard_writer_document(&writer, &error));
            for (size_t i = 0; i < length; i++) {
                ids[count + i] = (uint32_t)random_below(&random, (size_t)vocabularies[v]);
            }
            ck_assert_msg(shard_writer_tokens(&writer, ids + count, length, &error), "%s", error.text);
            if (length > 0) {
                starts[kept++] = (int64_t)count;
            } else {
                empty++;
            }
            count += length;
        }
        ck_assert_msg(shard_writer_commit(&writer, &error), "%s", error.text);
        size_t size;
        uint8_t *bytes = read_file(path, &size);
        struct shard shard;
        struct document_index index;
        bool recognised;
        ck_assert_msg(accept(bytes, size, &shard, &index, &recognised, &error), "%s", error.text);
        ck_assert_int_eq(shard.tokens, count);
        ck_assert_int_eq(shard.width, vocabularies[v] <= 256 ? 1 : vocabularies[v] <= 65536 ? 2 : 4);
        ck_assert_int_eq(shard.end_of_text, vocabularies[v] - 1);
        ck_assert_str_eq(shard.tokenizer, "mine");
        ck_assert_uint_eq(index.count, kept);
        ck_assert_uint_eq(index.empty, empty);
        ck_assert_mem_eq(index.starts, starts, kept * sizeof *starts);
        uint32_t *read = test_alloc(count * sizeof *read);
        shard_decode(bytes + SHARD_HEADER, shard.width, count, read);
        ck_assert_mem_eq(read, ids, count * sizeof *ids);
        document_free(&index);
        free(read);
        free(bytes);
        free(ids);
        free(starts);
    }
}
END_TEST

START_TEST(every_flipped_bit_of_a_flamia_shard_is_noticed)
{
    struct random_stream random = random_stream(5);
    size_t size;
    uint8_t *bytes = make_flamia(&random, &size);
    struct shard shard;
    struct document_index index;
    struct error error;
    bool recognised;
    ck_assert_msg(accept(bytes, size, &shard, &index, &recognised, &error), "%s", error.text);
    document_free(&index);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_msg(!accept(bytes, size, &shard, &index, &recognised, &error), "bit %zu", bit);
        ck_assert_msg(recognised, "bit %zu makes raw bytes of it", bit);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        document_free(&index);
    }
    free(bytes);
}
END_TEST

START_TEST(every_cut_of_a_flamia_shard_is_noticed)
{
    struct random_stream random = random_stream(6);
    size_t size;
    uint8_t *bytes = make_flamia(&random, &size);
    for (size_t cut = 4; cut < size; cut++) { /* three bytes are three bytes of text */
        assert_refused(bytes, cut, "");
    }
    uint8_t *longer = test_alloc(size + 1);
    memcpy(longer, bytes, size);
    assert_refused(longer, size + 1, "bytes");
    free(longer);
    free(bytes);
}
END_TEST

START_TEST(sealed_headers_that_make_no_sense_are_refused)
{
    struct random_stream random = random_stream(7);
    static const struct {
        size_t at;
        int64_t value;
        const char *reason;
    } faults[] = {
        {16, -1, "tokens"},
        {16, INT64_MAX, "tokens"},
        {16, (int64_t)1 << 62, "tokens"},
        {24, 0, "vocabulary"},
        {24, 65537, "vocabulary"},
        {24, INT64_MAX, "vocabulary"},
        {32, -2, "end-of-text"},
        {32, 300, "end-of-text"},
        {40, 0, "documents"},
        {40, -1, "documents"},
        {40, INT64_MAX, "documents"},
        {40, 4, "documents"},
        {48, 1024, "index"},
        {48, -8, "index"},
        {64, 0, "tokenizer"},
        {8, 3, "bytes per token"},
        {8, (int64_t)1 << 32 | 2, "reserved"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        size_t size;
        uint8_t *bytes = make_flamia(&random, &size);
        file_put_u64(bytes + faults[i].at, (uint64_t)faults[i].value);
        reseal(bytes);
        assert_refused(bytes, size, faults[i].reason);
        free(bytes);
    }
}
END_TEST

START_TEST(document_index_that_goes_back_or_out_is_refused)
{
    struct random_stream random = random_stream(8);
    static const struct {
        size_t document;
        int64_t start;
    } faults[] = {{0, 1}, {0, -1}, {1, -1}, {1, 1000}, {2, 2}, {4, INT64_MAX}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        size_t size;
        uint8_t *bytes = make_flamia(&random, &size);
        const size_t at = (size_t)file_get_u64(bytes + 48);
        file_put_u64(bytes + at + 8 * faults[i].document, (uint64_t)faults[i].start);
        file_put_u64(bytes + 56, file_checksum(FILE_CHECKSUM_START, bytes + SHARD_HEADER, size - SHARD_HEADER));
        reseal(bytes);
        assert_refused(bytes, size, "begins at token");
        free(bytes);
    }
}
END_TEST

START_TEST(writer_refuses_an_id_outside_the_vocabulary)
{
    const char *folder = scratch_folder();
    const uint32_t ids[] = {299, 300};
    struct shard_writer writer;
    struct error error = {0};
    ck_assert(shard_writer_open(&writer, path_in(folder, "x.bin"), 0, 300, -1, "mine", &error));
    ck_assert(shard_writer_tokens(&writer, ids, 1, &error));
    ck_assert(!shard_writer_tokens(&writer, ids, 2, &error));
    assert_error_names(&error, "token 2 is 300");
    shard_writer_discard(&writer);
    ck_assert_uint_eq(files_in(folder), 0);
}
END_TEST

START_TEST(writer_refuses_impossible_options)
{
    static const struct {
        int width;
        int64_t vocabulary, end_of_text;
        const char *tokenizer, *reason;
    } faults[] = {
        {3, 256, -1, "t", "3 bytes"},
        {1, 257, -1, "t", "vocabulary of 257"},
        {2, 65537, -1, "t", "vocabulary of 65537"},
        {0, 0, -1, "t", "vocabulary of 0"},
        {0, ((int64_t)1 << 31) + 1, -1, "t", "vocabulary of 2147483649"},
        {0, 256, 256, "t", "end-of-text id 256"},
        {0, 256, -2, "t", "end-of-text id -2"},
        {0, 256, -1, "", "name"},
        {0, 256, -1, "0123456789012345678901234567890123456789012345678901234567890123", "name"},
    };
    const char *folder = scratch_folder();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct shard_writer writer;
        struct error error = {0};
        ck_assert(!shard_writer_open(&writer, path_in(folder, "x.bin"), faults[i].width, faults[i].vocabulary,
                                     faults[i].end_of_text, faults[i].tokenizer, &error));
        ck_assert_int_eq(error.code, ERROR_USAGE);
        assert_error_names(&error, faults[i].reason);
    }
    ck_assert_uint_eq(files_in(folder), 0);
}
END_TEST

START_TEST(full_disk_leaves_no_shard)
{
    const char *folder = scratch_folder();
    uint32_t *ids = test_alloc(100000 * sizeof *ids);
    memset(ids, 0, 100000 * sizeof *ids);
    struct shard_writer writer;
    struct error error = {0};
    struct rlimit before, low;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    ck_assert(shard_writer_open(&writer, path_in(folder, "x.bin"), 2, 256, -1, "t", &error));
    const bool written = shard_writer_tokens(&writer, ids, 100000, &error) && shard_writer_commit(&writer, &error);
    shard_writer_discard(&writer);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ck_assert(!written);
    assert_error_names(&error, "x.bin");
    ck_assert_uint_eq(files_in(folder), 0);
    free(ids);
}
END_TEST

Suite *suite_shard(void)
{
    Suite *suite = suite_create("shard");
    TCase *tests = tcase_create("shard");
    tcase_add_test(tests, llmc_documents_begin_at_the_end_of_text_token);
    tcase_add_test(tests, end_of_text_first_makes_no_empty_document);
    tcase_add_test(tests, header_and_payload_must_agree);
    tcase_add_test(tests, payload_of_the_other_width_is_refused);
    tcase_add_test(tests, wrong_version_magic_and_byte_order_are_refused);
    tcase_add_test(tests, files_of_other_kinds_are_named);
    tcase_add_test(tests, stray_header_word_is_refused);
    tcase_add_test(tests, id_outside_the_vocabulary_is_refused_with_its_place);
    tcase_add_test(tests, text_is_raw_bytes);
    tcase_add_test(tests, flamia_shard_comes_back_as_it_was_written);
    tcase_add_test(tests, every_flipped_bit_of_a_flamia_shard_is_noticed);
    tcase_add_test(tests, every_cut_of_a_flamia_shard_is_noticed);
    tcase_add_test(tests, sealed_headers_that_make_no_sense_are_refused);
    tcase_add_test(tests, document_index_that_goes_back_or_out_is_refused);
    tcase_add_test(tests, writer_refuses_an_id_outside_the_vocabulary);
    tcase_add_test(tests, writer_refuses_impossible_options);
    tcase_add_test(tests, full_disk_leaves_no_shard);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
