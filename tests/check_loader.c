/* check_loader.c: every sample once an epoch, in the same order whatever the ranks and wherever a run began, and errors
 * that arrive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/file.h"
#include "data/loader.h"
#include "tests/files.h"

Suite *suite_loader(void);

/* Tokens are their own index, so that a batch tells where it comes from. Documents are random; `starts` may be NULL. */
static struct dataset *counting_set(size_t count, struct random_stream *random)
{
    uint32_t *ids = test_alloc(count * sizeof *ids);
    int64_t *starts = test_alloc((count + 1) * sizeof *starts);
    size_t documents = 0;
    struct error error = {0};
    for (size_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)i;
        if (i == 0 || (random && random_below(random, 6) == 0)) {
            starts[documents++] = (int64_t)i;
        }
    }
    struct dataset *dataset = dataset_from_tokens(ids, count, starts, documents, count, &error);
    ck_assert_msg(dataset != NULL, "%s", error.text);
    free(ids);
    free(starts);
    return dataset;
}

static struct loader_options options_for(const struct dataset *dataset, size_t sequence_length, size_t batch)
{
    return (struct loader_options){.end = dataset_tokens(dataset),
                                   .sequence_length = sequence_length,
                                   .batch = batch,
                                   .micro_batch = batch,
                                   .ranks = 1,
                                   .vocabulary = dataset_vocabulary(dataset),
                                   .seed = 11,
                                   .shuffle = true,
                                   .wrap = true};
}

static struct loader *open_loader(const struct dataset *dataset, const struct loader_options *options)
{
    struct error error = {0};
    struct loader *loader = loader_create(dataset, options, &error);
    ck_assert_msg(loader != NULL, "%s", error.text);
    return loader;
}

static const struct batch *next(struct loader *loader)
{
    struct error error = {0};
    const struct batch *batch = loader_next(loader, &error);
    ck_assert_msg(batch != NULL, "%s", error.text);
    return batch;
}

static void assert_over(struct loader *loader)
{
    struct error error = {.code = ERROR_FAILED};
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_null(loader_next(loader, &error));
        ck_assert_int_eq(error.code, ERROR_NONE);
    }
}

/* Everything a batch says, as one number. */
static uint64_t hash_batch(uint64_t state, const struct batch *batch)
{
    const size_t bytes = batch->total_tokens * sizeof(int32_t);
    state = file_checksum(state, batch->tokens, bytes);
    state = file_checksum(state, batch->targets, bytes);
    state = file_checksum(state, batch->positions, bytes);
    state = file_checksum(state, batch->offsets, (batch->documents + 1) * sizeof(int32_t));
    const uint64_t numbers[] = {batch->rows, batch->documents, batch->valid_targets, batch->first_sample};
    return file_checksum(state, numbers, sizeof numbers);
}

/* The next two batches as one number. */
static uint64_t hash_two(struct loader *loader)
{
    const uint64_t first = hash_batch(0, next(loader));
    return hash_batch(first, next(loader));
}

START_TEST(unshuffled_rows_are_the_stream_in_order)
{
    struct dataset *dataset = counting_set(103, NULL);
    struct loader_options options = options_for(dataset, 10, 3);
    options.shuffle = false, options.wrap = false;
    struct loader *loader = open_loader(dataset, &options);
    ck_assert_uint_eq(loader_rows(loader), 10);
    ck_assert_uint_eq(loader_dropped_tokens(loader), 3);
    int32_t expected = 0;
    for (int step = 0; step < 4; step++) {
        const struct batch *batch = next(loader);
        ck_assert_uint_eq(batch->rows, step < 3 ? 3 : 1);
        ck_assert_uint_eq(batch->first_sample, 3 * (uint64_t)step);
        for (size_t i = 0; i < batch->total_tokens; i++, expected++) {
            ck_assert_int_eq(batch->tokens[i], expected);
            ck_assert_int_eq(batch->targets[i], expected + 1); /* also across rows: the document goes on */
            ck_assert_int_eq(batch->positions[i], (int32_t)(i % 10));
        }
    }
    assert_over(loader);
    loader_destroy(loader);
    dataset_close(dataset);
}
END_TEST

START_TEST(target_beyond_the_share_is_ignored)
{
    struct dataset *dataset = counting_set(100, NULL);
    struct loader_options options = options_for(dataset, 10, 1);
    options.shuffle = false, options.begin = 20, options.end = 40;
    struct loader *loader = open_loader(dataset, &options);
    ck_assert_int_eq(next(loader)->targets[9], 30);
    ck_assert_int_eq(next(loader)->targets[9], TARGET_IGNORED);
    ck_assert_int_eq(next(loader)->tokens[0], 20); /* the share again, not what lies behind it */
    loader_destroy(loader);
    dataset_close(dataset);
}
END_TEST

START_TEST(each_row_comes_once_an_epoch_on_any_number_of_ranks)
{
    struct random_stream random = random_stream(1);
    for (size_t ranks = 1; ranks <= 4; ranks++) {
        const size_t rows = 30 + random_below(&random, 60), length = 1 + random_below(&random, 9);
        struct dataset *dataset = counting_set(rows * length, &random);
        int *seen = calloc(rows, sizeof *seen);
        size_t calls[4] = {0};
        for (size_t rank = 0; rank < ranks; rank++) {
            struct loader_options options = options_for(dataset, length, 4 * ranks);
            options.micro_batch = 2, options.rank = rank, options.ranks = ranks, options.wrap = false;
            options.seed = 99;
            struct loader *loader = open_loader(dataset, &options);
            struct error error = {0};
            for (const struct batch *batch; (batch = loader_next(loader, &error)); calls[rank]++) {
                for (size_t r = 0; r < batch->rows; r++) {
                    seen[(size_t)batch->tokens[r * length] / length]++;
                    ck_assert_uint_eq((size_t)batch->tokens[r * length] % length, 0);
                }
            }
            ck_assert_msg(error.code == ERROR_NONE, "%s", error.text);
            ck_assert_uint_eq(calls[rank], calls[0]); /* no rank waits for another that is through */
            loader_destroy(loader);
        }
        for (size_t r = 0; r < rows; r++) {
            ck_assert_msg(seen[r] == 1, "row %zu of %zu on %zu ranks: %d times", r, rows, ranks, seen[r]);
        }
        free(seen);
        dataset_close(dataset);
    }
}
END_TEST

START_TEST(resuming_at_any_step_goes_on_as_if_nothing_happened)
{
    /* 40 steps of 2 rows, epochs of 13 rows: steps cross the ends of epochs. */
    struct random_stream random = random_stream(2);
    struct dataset *dataset = counting_set(13 * 7 + 3, &random);
    struct loader_options options = options_for(dataset, 7, 2);
    options.micro_batch = 1;
    uint64_t hashes[40] = {0};
    struct loader *loader = open_loader(dataset, &options);
    for (int step = 0; step < 40; step++) {
        hashes[step] = hash_two(loader);
    }
    loader_destroy(loader);
    for (int from = 1; from < 40; from++) {
        options.first_sample = 2 * (uint64_t)from;
        loader = open_loader(dataset, &options);
        for (int step = from; step < 40; step++) {
            ck_assert_uint_eq(hash_two(loader), hashes[step]);
        }
        loader_destroy(loader);
    }
    dataset_close(dataset);
}
END_TEST

/* First tokens of the rows of `steps` steps in global order, read on `ranks` ranks from sample `first`. */
static void global_order(const struct dataset *dataset, size_t ranks, size_t micro_batch, uint64_t first, size_t steps,
                         int32_t *order)
{
    for (size_t rank = 0; rank < ranks; rank++) {
        struct loader_options options = options_for(dataset, 5, 8);
        options.rank = rank, options.ranks = ranks, options.micro_batch = micro_batch, options.first_sample = first;
        struct loader *loader = open_loader(dataset, &options);
        for (size_t i = 0; i < steps * 8 / ranks / micro_batch; i++) {
            const struct batch *batch = next(loader);
            for (size_t r = 0; r < batch->rows; r++) {
                order[batch->first_sample - first + r] = batch->tokens[r * 5];
            }
        }
        loader_destroy(loader);
    }
}

START_TEST(order_does_not_depend_on_ranks_or_micro_batches)
{
    struct random_stream random = random_stream(3);
    struct dataset *dataset = counting_set(5 * 21, &random);
    int32_t whole[48], part[48];
    global_order(dataset, 1, 8, 0, 6, whole);
    static const size_t ranks[] = {1, 2, 4, 8}, micro[] = {2, 1, 2, 1};
    for (size_t i = 0; i < 4; i++) {
        memset(part, 0xFF, sizeof part);
        global_order(dataset, ranks[i], micro[i], 0, 6, part);
        ck_assert_mem_eq(part, whole, sizeof whole);
        /* Saved on one number of ranks after two steps, resumed on another. */
        global_order(dataset, ranks[i], micro[i], 16, 4, part);
        ck_assert_mem_eq(part, whole + 16, 32 * sizeof *whole);
    }
    dataset_close(dataset);
}
END_TEST

START_TEST(micro_batches_are_the_batch_in_pieces)
{
    struct random_stream random = random_stream(4);
    struct dataset *dataset = counting_set(9 * 16, &random);
    struct loader_options options = options_for(dataset, 9, 6);
    struct loader *whole = open_loader(dataset, &options);
    options.micro_batch = 2;
    struct loader *pieces = open_loader(dataset, &options);
    for (int step = 0; step < 10; step++) {
        const struct batch *batch = next(whole);
        size_t valid = 0, documents = 0;
        for (size_t m = 0; m < 3; m++) {
            const struct batch *piece = next(pieces);
            ck_assert_uint_eq(piece->first_sample, batch->first_sample + 2 * m);
            ck_assert_mem_eq(piece->tokens, batch->tokens + 18 * m, 18 * sizeof(int32_t));
            ck_assert_mem_eq(piece->targets, batch->targets + 18 * m, 18 * sizeof(int32_t));
            valid += piece->valid_targets, documents += piece->documents;
        }
        ck_assert_uint_eq(valid, batch->valid_targets);
        ck_assert_uint_eq(documents, batch->documents);
    }
    loader_destroy(whole);
    loader_destroy(pieces);
    dataset_close(dataset);
}
END_TEST

START_TEST(set_smaller_than_a_batch_wraps)
{
    struct dataset *dataset = counting_set(3 * 4 + 1, NULL);
    struct loader_options options = options_for(dataset, 4, 8);
    struct loader *loader = open_loader(dataset, &options);
    int seen[3] = {0};
    for (int step = 0; step < 3; step++) { /* 24 rows are eight epochs of three */
        const struct batch *batch = next(loader);
        ck_assert_uint_eq(batch->rows, 8);
        for (size_t r = 0; r < 8; r++) {
            seen[batch->tokens[4 * r] / 4]++;
        }
    }
    ck_assert(seen[0] == 8 && seen[1] == 8 && seen[2] == 8);
    loader_destroy(loader);
    options.wrap = false;
    loader = open_loader(dataset, &options);
    ck_assert_uint_eq(next(loader)->rows, 3);
    assert_over(loader);
    loader_destroy(loader);
    options.first_sample = 3;
    loader = open_loader(dataset, &options);
    assert_over(loader);
    loader_destroy(loader);
    dataset_close(dataset);
}
END_TEST

START_TEST(epochs_differ_and_seeds_differ)
{
    struct dataset *dataset = counting_set(200, NULL);
    struct loader_options options = options_for(dataset, 1, 200);
    struct loader *loader = open_loader(dataset, &options);
    options.seed++;
    struct loader *other = open_loader(dataset, &options);
    int32_t first[200];
    memcpy(first, next(loader)->tokens, sizeof first);
    /* 200! orders: two equal ones do not happen. */
    ck_assert_mem_ne(next(loader)->tokens, first, sizeof first);
    ck_assert_mem_ne(next(other)->tokens, first, sizeof first);
    loader_destroy(loader);
    loader_destroy(other);
    dataset_close(dataset);
}
END_TEST

START_TEST(tokens_out_are_tokens_in_but_for_the_tail)
{
    /* Documents far longer than a row, and equal ones. Row 4: [1 2 3 4 5][6 7][8 9 10][11], then random sets. */
    struct random_stream random = random_stream(5);
    for (int round = 0; round < 30; round++) {
        const size_t count = round == 0 ? 11 : 20 + random_below(&random, 200),
                     length = round == 0 ? 4 : 1 + random_below(&random, 12);
        struct dataset *dataset = counting_set(count, &random);
        struct loader_options options = options_for(dataset, length, 3);
        options.wrap = false;
        struct loader *loader = open_loader(dataset, &options);
        struct error error = {0};
        uint8_t *seen = calloc(count, 1);
        size_t emitted = 0;
        for (const struct batch *batch; (batch = loader_next(loader, &error));) {
            for (size_t i = 0; i < batch->total_tokens; i++, emitted++) {
                ck_assert(!seen[batch->tokens[i]]);
                seen[batch->tokens[i]] = 1;
            }
        }
        ck_assert_uint_eq(emitted + loader_dropped_tokens(loader), count);
        free(seen);
        loader_destroy(loader);
        dataset_close(dataset);
    }
}
END_TEST

START_TEST(documents_come_from_the_data_set)
{
    struct random_stream random = random_stream(6);
    struct dataset *dataset = counting_set(400, &random);
    struct loader_options options = options_for(dataset, 13, 4);
    struct loader *loader = open_loader(dataset, &options);
    int64_t starts[400];
    uint8_t begins[401] = {1};
    const size_t documents = dataset_starts(dataset, 0, 400, starts, 400);
    for (size_t d = 0; d < documents; d++) {
        begins[starts[d]] = 1;
    }
    for (int step = 0; step < 20; step++) {
        const struct batch *batch = next(loader);
        for (size_t i = 0; i < batch->total_tokens; i++) {
            const int32_t token = batch->tokens[i];
            const bool last = begins[token + 1] || token == 399;
            ck_assert_int_eq(batch->targets[i], last ? TARGET_IGNORED : token + 1);
            ck_assert((batch->positions[i] == 0) == (begins[token] || i % 13 == 0));
        }
    }
    loader_destroy(loader);
    dataset_close(dataset);
}
END_TEST

START_TEST(id_outside_the_models_vocabulary_is_refused_before_the_first_batch)
{
    const char *path = path_in(scratch_folder(), "x.bin");
    uint32_t ids[100] = {0};
    const int64_t starts[] = {0};
    struct error error = {0};
    ids[40] = 149, ids[77] = 150;
    write_flamia_shard(path, ids, 100, starts, 1, 300);
    struct dataset *dataset = dataset_open(path, "none", &error);
    ck_assert_msg(dataset != NULL, "%s", error.text);
    struct loader_options options = options_for(dataset, 10, 2);
    options.vocabulary = 150;
    ck_assert_ptr_null(loader_create(dataset, &options, &error));
    assert_error_names(&error, path);
    assert_error_names(&error, "token 77 (offset 1178) is 150"); /* 1024 + 2 * 77 */
    options.end = 70;                                            /* the offending token lies outside the share */
    loader_destroy(open_loader(dataset, &options));
    dataset_close(dataset);
}
END_TEST

START_TEST(file_cut_while_training_is_an_error_not_a_crash)
{
    const char *path = path_in(scratch_folder(), "text");
    uint8_t *bytes = test_alloc(100000);
    struct error error = {0};
    write_file(path, bytes, 100000);
    free(bytes);
    struct dataset *dataset = dataset_open(path, "none", &error);
    ck_assert_msg(dataset != NULL, "%s", error.text);
    struct loader_options options = options_for(dataset, 1000, 1);
    options.shuffle = false;
    struct loader *loader = open_loader(dataset, &options);
    ck_assert_uint_eq(next(loader)->rows, 1);
    ck_assert_int_eq(truncate(path, 50000), 0);
    size_t batches = 1;
    while (loader_next(loader, &error)) {
        batches++;
    }
    ck_assert_uint_le(batches, 50); /* rows 0 to 49 are whole, less the target behind the last */
    for (int i = 0; i < 2; i++) {
        error.code = ERROR_NONE;
        ck_assert_ptr_null(loader_next(loader, &error)); /* the error stays */
        assert_error_names(&error, "cut while in use");
        assert_error_names(&error, path);
    }
    loader_destroy(loader);
    dataset_close(dataset);
}
END_TEST

START_TEST(loader_can_be_left_at_any_moment)
{
    struct random_stream random = random_stream(7);
    struct dataset *dataset = counting_set(1000, &random);
    struct loader_options options = options_for(dataset, 10, 4);
    for (int round = 0; round < 200; round++) {
        options.wrap = round % 2;
        struct loader *loader = open_loader(dataset, &options);
        for (size_t i = random_below(&random, 6); i > 0; i--) {
            next(loader);
        }
        loader_destroy(loader);
    }
    loader_destroy(NULL);
    dataset_close(dataset);
}
END_TEST

START_TEST(batch_stays_until_the_next_call)
{
    struct random_stream random = random_stream(8);
    struct dataset *dataset = counting_set(1000, &random);
    struct loader_options options = options_for(dataset, 10, 4);
    struct loader *loader = open_loader(dataset, &options);
    for (int step = 0; step < 50; step++) {
        const struct batch *batch = next(loader);
        const uint64_t hash = hash_batch(0, batch);
        usleep(200); /* time for the thread to fill what it may */
        ck_assert_uint_eq(hash_batch(0, batch), hash);
    }
    loader_destroy(loader);
    dataset_close(dataset);
}
END_TEST

struct counted_memory {
    size_t allocations, releases, fail_at;
};

static void *count_allocate(size_t bytes, void *context)
{
    struct counted_memory *memory = context;
    return ++memory->allocations == memory->fail_at ? NULL : test_alloc(bytes);
}

static void count_release(void *memory, void *context)
{
    ((struct counted_memory *)context)->releases++;
    free(memory);
}

START_TEST(callers_memory_is_used_and_given_back)
{
    struct dataset *dataset = counting_set(100, NULL);
    struct loader_options options = options_for(dataset, 10, 2);
    struct counted_memory memory = {0};
    options.allocate = count_allocate, options.release = count_release, options.context = &memory;
    struct loader *loader = open_loader(dataset, &options);
    next(loader);
    loader_destroy(loader);
    ck_assert_uint_gt(memory.allocations, 1);
    ck_assert_uint_eq(memory.releases, memory.allocations);
    const size_t all = memory.allocations;
    for (size_t fail = 1; fail <= all; fail++) { /* without memory: an error, and what was taken is given back */
        struct error error = {0};
        memory = (struct counted_memory){.fail_at = fail};
        ck_assert_ptr_null(loader_create(dataset, &options, &error));
        assert_error_names(&error, "memory");
        ck_assert_uint_eq(memory.releases, fail - 1);
    }
    dataset_close(dataset);
}
END_TEST

START_TEST(impossible_options_are_refused)
{
    struct dataset *dataset = counting_set(100, NULL);
    const struct loader_options good = options_for(dataset, 10, 4);
    struct loader_options bad[14];
    for (size_t i = 0; i < 14; i++) {
        bad[i] = good;
    }
    bad[0].sequence_length = 0, bad[1].batch = 0, bad[2].micro_batch = 0, bad[3].ranks = 0, bad[4].vocabulary = 0;
    bad[5].sequence_length = 101, bad[6].micro_batch = 3, bad[7].ranks = 3, bad[8].rank = 1, bad[9].end = 101;
    bad[10].begin = 95, bad[11].begin = 100;
    bad[12].batch = bad[12].micro_batch = (size_t)1 << 40;
    bad[13].allocate = count_allocate;
    for (size_t i = 0; i < 14; i++) {
        struct error error = {0};
        ck_assert_msg(loader_create(dataset, &bad[i], &error) == NULL, "case %zu", i);
        ck_assert_int_ne(error.code, ERROR_NONE);
    }
    dataset_close(dataset);
}
END_TEST

Suite *suite_loader(void)
{
    Suite *suite = suite_create("loader");
    TCase *tests = tcase_create("loader");
    tcase_add_test(tests, unshuffled_rows_are_the_stream_in_order);
    tcase_add_test(tests, target_beyond_the_share_is_ignored);
    tcase_add_test(tests, each_row_comes_once_an_epoch_on_any_number_of_ranks);
    tcase_add_test(tests, resuming_at_any_step_goes_on_as_if_nothing_happened);
    tcase_add_test(tests, order_does_not_depend_on_ranks_or_micro_batches);
    tcase_add_test(tests, micro_batches_are_the_batch_in_pieces);
    tcase_add_test(tests, set_smaller_than_a_batch_wraps);
    tcase_add_test(tests, epochs_differ_and_seeds_differ);
    tcase_add_test(tests, tokens_out_are_tokens_in_but_for_the_tail);
    tcase_add_test(tests, documents_come_from_the_data_set);
    tcase_add_test(tests, id_outside_the_models_vocabulary_is_refused_before_the_first_batch);
    tcase_add_test(tests, file_cut_while_training_is_an_error_not_a_crash);
    tcase_add_test(tests, loader_can_be_left_at_any_moment);
    tcase_add_test(tests, batch_stays_until_the_next_call);
    tcase_add_test(tests, callers_memory_is_used_and_given_back);
    tcase_add_test(tests, impossible_options_are_refused);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
