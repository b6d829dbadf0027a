/* check_data.c: data sets as one stream: files, folders, splits, identity; and the command that shows and writes them.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/shard.h"
#include "tests/files.h"

Suite *suite_data(void);

static struct dataset *open_set(const char *path, const char *documents)
{
    struct error error = {0};
    struct dataset *dataset = dataset_open(path, documents, &error);
    ck_assert_msg(dataset != NULL, "%s", error.text);
    return dataset;
}

static void assert_no_set(const char *path, const char *documents, const char *reason)
{
    struct error error = {0};
    ck_assert_ptr_null(dataset_open(path, documents, &error));
    assert_error_names(&error, path);
    assert_error_names(&error, reason);
}

START_TEST(raw_bytes_are_tokens)
{
    struct random_stream random = random_stream(1);
    const char *path = path_in(scratch_folder(), "text");
    const size_t count = 1 + random_below(&random, 20000);
    uint8_t *bytes = test_alloc(count);
    int32_t *ids = test_alloc(count * sizeof *ids);
    struct error error;
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)random_bits(&random);
    }
    write_file(path, bytes, count);
    struct dataset *dataset = open_set(path, "none");
    ck_assert_uint_eq(dataset_tokens(dataset), count);
    ck_assert_uint_eq(dataset_vocabulary(dataset), 256);
    ck_assert_uint_eq(dataset_documents(dataset), 1);
    ck_assert_str_eq(dataset_tokenizer(dataset), "bytes");
    ck_assert_str_eq(dataset_path(dataset), path);
    for (int round = 0; round < 50; round++) {
        const size_t first = random_below(&random, count), length = random_below(&random, count - first + 1);
        ck_assert(dataset_read(dataset, first, length, ids, &error));
        for (size_t i = 0; i < length; i++) {
            ck_assert_int_eq(ids[i], bytes[first + i]);
        }
    }
    ck_assert(!dataset_read(dataset, count - 1, 2, ids, &error));
    ck_assert(!dataset_read(dataset, count + 1, 0, ids, &error));
    ck_assert(!dataset_read(dataset, 1, SIZE_MAX, ids, &error));
    dataset_close(dataset);
    free(bytes);
    free(ids);
}
END_TEST

START_TEST(folder_is_its_shards_in_name_order)
{
    const char *folder = scratch_folder();
    const uint32_t first[] = {10, 50256, 11}, second[] = {20, 21}, third[] = {50256, 30};
    write_gpt2_shard(path_in(folder, "b.bin"), second, 2);
    write_gpt2_shard(path_in(folder, "a.bin"), first, 3);
    write_gpt2_shard(path_in(folder, "c.bin"), third, 2);
    write_file(path_in(folder, "README"), "no shard", 8);
    write_file(path_in(folder, "d.bin.partial-1-0"), "left over", 9);
    write_file(path_in(folder, ".hidden.bin"), "x", 1);
    struct dataset *dataset = open_set(folder, "none");
    static const int32_t expected[] = {10, 50256, 11, 20, 21, 50256, 30};
    int32_t ids[7];
    int64_t starts[7];
    struct error error;
    ck_assert_uint_eq(dataset_tokens(dataset), 7);
    ck_assert(dataset_read(dataset, 0, 7, ids, &error));
    ck_assert_mem_eq(ids, expected, sizeof ids);
    /* A document ends where its file ends: [10] [50256 11] | [20 21] | [50256 30]. */
    ck_assert_uint_eq(dataset_documents(dataset), 4);
    ck_assert_uint_eq(dataset_starts(dataset, 0, 7, starts, 7), 3);
    ck_assert(starts[0] == 1 && starts[1] == 3 && starts[2] == 5);
    ck_assert_str_eq(dataset_tokenizer(dataset), "gpt2");
    ck_assert_uint_eq(dataset_vocabulary(dataset), 50257);
    ck_assert_uint_eq(dataset_files(dataset), 3);
    dataset_close(dataset);
}
END_TEST

START_TEST(every_shard_is_checked_before_anything_is_used)
{
    const char *folder = scratch_folder();
    const uint32_t ids[] = {1, 2, 50257};
    write_gpt2_shard(path_in(folder, "a.bin"), ids, 2);
    write_gpt2_shard(path_in(folder, "b.bin"), ids, 2);
    write_gpt2_shard(path_in(folder, "c.bin"), ids, 3);
    struct error error = {0};
    ck_assert_ptr_null(dataset_open(folder, "none", &error));
    assert_error_names(&error, path_in(folder, "c.bin"));
    assert_error_names(&error, "token 2 (offset 1028) is 50257");
    ck_assert_int_eq(truncate(path_in(folder, "c.bin"), 1027), 0);
    ck_assert_ptr_null(dataset_open(folder, "none", &error));
    assert_error_names(&error, "header says 3 tokens");
}
END_TEST

START_TEST(folder_of_different_things_is_refused)
{
    const char *folder = scratch_folder();
    const uint32_t ids[] = {1, 2};
    const int64_t starts[] = {0};
    write_gpt2_shard(path_in(folder, "a.bin"), ids, 2);
    write_file(path_in(folder, "b.bin"), "text", 4);
    assert_no_set(folder, "none", "no shard");
    write_flamia_shard(path_in(folder, "b.bin"), ids, 2, starts, 1, 300);
    assert_no_set(folder, "none", "tokenizer test, vocabulary 300");
}
END_TEST

START_TEST(nothing_to_read_is_refused)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "x.bin");
    const int64_t starts[] = {0, 0, 0};
    assert_no_set(folder, "none", "no *.bin");
    assert_no_set(path, "none", "No such file");
    write_file(path, "", 0);
    assert_no_set(path, "none", "empty");
    write_flamia_shard(path, NULL, 0, starts, 3, 300); /* nothing but empty documents */
    assert_no_set(path, "none", "3 empty documents");
    assert_no_set("/dev/null", "none", "regular file");
}
END_TEST

START_TEST(empty_documents_are_counted_and_left_out)
{
    const char *folder = scratch_folder();
    const uint32_t ids[] = {1, 2, 3};
    const int64_t starts[] = {0, 0, 1, 1, 1, 3, 3}, none[] = {0, 0};
    write_flamia_shard(path_in(folder, "a.bin"), ids, 3, starts, 7, 300);
    write_flamia_shard(path_in(folder, "b.bin"), ids, 0, none, 2, 300);
    write_flamia_shard(path_in(folder, "c.bin"), ids, 1, none, 1, 300);
    struct dataset *dataset = open_set(folder, "none");
    ck_assert_uint_eq(dataset_tokens(dataset), 4);
    ck_assert_uint_eq(dataset_documents(dataset), 3);
    ck_assert_uint_eq(dataset_empty_documents(dataset), 7);
    int64_t found[4];
    ck_assert_uint_eq(dataset_starts(dataset, 0, 4, found, 4), 2);
    ck_assert(found[0] == 1 && found[1] == 3);
    int32_t read[4];
    struct error error;
    ck_assert(dataset_read(dataset, 0, 4, read, &error));
    ck_assert(read[2] == 3 && read[3] == 1);
    dataset_close(dataset);
}
END_TEST

START_TEST(starts_are_those_strictly_inside)
{
    const uint32_t ids[10] = {0};
    const int64_t starts[] = {0, 3, 4, 8};
    struct error error;
    struct dataset *dataset = dataset_from_tokens(ids, 10, starts, 4, 256, &error);
    int64_t found[4] = {-1, -1, -1, -1};
    ck_assert_uint_eq(dataset_starts(dataset, 3, 5, found, 4), 1); /* 3 is where it begins, 8 = 3 + 5 is outside */
    ck_assert_int_eq(found[0], 4);
    ck_assert_uint_eq(dataset_starts(dataset, 0, 10, found, 2), 3); /* more than there is room for */
    ck_assert(found[0] == 3 && found[1] == 4 && found[2] == -1);
    ck_assert_uint_eq(dataset_starts(dataset, 8, 2, found, 4), 0);
    dataset_close(dataset);
}
END_TEST

START_TEST(rules_for_bytes_are_not_for_shards)
{
    const char *path = path_in(scratch_folder(), "x.bin");
    const uint32_t ids[] = {1, 2};
    write_gpt2_shard(path, ids, 2);
    assert_no_set(path, "length:1", "raw bytes");
    struct error error = {0};
    ck_assert_ptr_null(dataset_open(path, "lenght:1", &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
}
END_TEST

START_TEST(tokens_in_memory_are_checked)
{
    const uint32_t ids[] = {1, 2, 300};
    const int64_t good[] = {0, 2}, late[] = {1}, back[] = {0, 2, 1}, far[] = {0, 4};
    struct error error = {0};
    ck_assert_ptr_null(dataset_from_tokens(ids, 3, good, 2, 300, &error));
    assert_error_names(&error, "token 2 is 300");
    ck_assert_ptr_null(dataset_from_tokens(ids, 3, late, 1, 301, &error));
    ck_assert_ptr_null(dataset_from_tokens(ids, 3, back, 3, 301, &error));
    ck_assert_ptr_null(dataset_from_tokens(ids, 3, far, 2, 301, &error));
    ck_assert_ptr_null(dataset_from_tokens(ids, 0, good, 0, 301, &error));
    ck_assert_ptr_null(dataset_from_tokens(ids, 3, good, 2, 0, &error));
    struct dataset *dataset = dataset_from_tokens(ids, 3, NULL, 0, 301, &error);
    ck_assert_uint_eq(dataset_documents(dataset), 1);
    dataset_close(dataset);
}
END_TEST

static uint64_t identity_of(const char *path, const char *documents)
{
    struct dataset *dataset = open_set(path, documents);
    const uint64_t identity = dataset_identity(dataset);
    dataset_close(dataset);
    return identity;
}

START_TEST(identity_is_of_the_contents_not_of_the_place)
{
    struct random_stream random = random_stream(2);
    const char *one = path_in(scratch_folder(), "one"), *two = path_in(scratch_folder(), "two");
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)random_bits(&random);
    }
    write_file(one, bytes, sizeof bytes);
    write_file(two, bytes, sizeof bytes);
    const uint64_t identity = identity_of(one, "none");
    ck_assert_uint_eq(identity_of(two, "none"), identity);
    ck_assert_uint_ne(identity_of(one, "length:10"), identity);
    bytes[random_below(&random, sizeof bytes)] ^= 1; /* all of so short a file is sampled */
    write_file(two, bytes, sizeof bytes);
    ck_assert_uint_ne(identity_of(two, "none"), identity);
    write_file(two, bytes, sizeof bytes - 1);
    ck_assert_uint_ne(identity_of(two, "none"), identity);
}
END_TEST

START_TEST(ids_are_checked_against_a_smaller_vocabulary)
{
    const char *path = path_in(scratch_folder(), "text");
    struct error error = {0};
    write_file(path, "abcdz", 5);
    struct dataset *dataset = open_set(path, "none");
    ck_assert(dataset_check_ids(dataset, 0, 5, 256, &error));
    ck_assert(dataset_check_ids(dataset, 0, 5, 'z' + 1, &error));
    ck_assert(dataset_check_ids(dataset, 0, 4, 'z', &error));
    ck_assert(!dataset_check_ids(dataset, 0, 5, 'z', &error));
    assert_error_names(&error, "token 4 (offset 4) is 122");
    dataset_close(dataset);
}
END_TEST

START_TEST(shard_that_changes_while_in_use_cannot_hand_out_a_wild_id)
{
    const char *path = path_in(scratch_folder(), "x.bin");
    uint32_t ids[] = {1, 2, 3};
    int32_t read[3];
    struct error error = {0};
    write_gpt2_shard(path, ids, 3);
    struct dataset *dataset = open_set(path, "none");
    ids[1] = 60000;
    write_gpt2_shard(path, ids, 3);
    ck_assert(!dataset_read(dataset, 0, 3, read, &error));
    assert_error_names(&error, "token 1 (offset 1026) is 60000");
    assert_error_names(&error, "changed while in use");
    dataset_close(dataset);
}
END_TEST

START_TEST(split_is_exact_and_covers_everything)
{
    struct random_stream random = random_stream(3);
    static const char *const splits[] = {"90/5/5",   "100",     "0/50/50", "33.333/33.333/33.334",
                                         "99.5/0.5", "100/0/0", "098/01/1"};
    for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
        const size_t count = 1 + random_below(&random, 3000);
        uint32_t *ids = test_alloc(count * sizeof *ids);
        memset(ids, 0, count * sizeof *ids);
        struct error error = {0};
        struct dataset *dataset = dataset_from_tokens(ids, count, NULL, 0, 256, &error);
        size_t expected = 0;
        for (int part = 0; part < 3; part++) {
            size_t begin, end;
            ck_assert_msg(dataset_split(dataset, splits[s], part, &begin, &end, &error), "%s", error.text);
            ck_assert_uint_eq(begin, expected);
            ck_assert_uint_le(begin, end);
            expected = end;
        }
        ck_assert_uint_eq(expected, count);
        if (s == 0) {
            size_t begin, end;
            ck_assert(dataset_split(dataset, splits[s], 1, &begin, &end, &error));
            ck_assert_uint_eq(begin, count * 90 / 100);
            ck_assert_uint_eq(end, count * 95 / 100);
        }
        dataset_close(dataset);
        free(ids);
    }
}
END_TEST

START_TEST(malformed_splits_are_refused)
{
    static const char *const splits[] = {"",        "90/5",
                                         "90/5/6",  "90/5/5/0",
                                         "90/5/5/", "/90/10",
                                         "-10/110", "90,5,5",
                                         "1e2",     "90.0001/9.9999",
                                         "100.001", "90/5/5 ",
                                         ".",       "50./50",
                                         "50//50",  "100000000000000000000",
                                         "90/+5/5", "nan"};
    const uint32_t ids[] = {0};
    struct error error = {0};
    struct dataset *dataset = dataset_from_tokens(ids, 1, NULL, 0, 256, &error);
    for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
        size_t begin, end;
        error = (struct error){0};
        ck_assert_msg(!dataset_split(dataset, splits[s], 0, &begin, &end, &error), "\"%s\"", splits[s]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
    }
    size_t begin, end;
    ck_assert(!dataset_split(dataset, "90/5/5", 3, &begin, &end, &error));
    dataset_close(dataset);
}
END_TEST

Suite *suite_data(void)
{
    Suite *suite = suite_create("data");
    TCase *tests = tcase_create("data");
    tcase_add_test(tests, raw_bytes_are_tokens);
    tcase_add_test(tests, folder_is_its_shards_in_name_order);
    tcase_add_test(tests, every_shard_is_checked_before_anything_is_used);
    tcase_add_test(tests, folder_of_different_things_is_refused);
    tcase_add_test(tests, nothing_to_read_is_refused);
    tcase_add_test(tests, empty_documents_are_counted_and_left_out);
    tcase_add_test(tests, starts_are_those_strictly_inside);
    tcase_add_test(tests, rules_for_bytes_are_not_for_shards);
    tcase_add_test(tests, tokens_in_memory_are_checked);
    tcase_add_test(tests, identity_is_of_the_contents_not_of_the_place);
    tcase_add_test(tests, ids_are_checked_against_a_smaller_vocabulary);
    tcase_add_test(tests, shard_that_changes_while_in_use_cannot_hand_out_a_wild_id);
    tcase_add_test(tests, split_is_exact_and_covers_everything);
    tcase_add_test(tests, malformed_splits_are_refused);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
