/* check_file.c: reading files that are not what they seem, and writing that leaves a whole file or the old one. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data/file.h"
#include "tests/files.h"

Suite *suite_file(void);

START_TEST(what_is_written_in_pieces_is_read_back)
{
    struct random_stream random = random_stream(1);
    const size_t count = random_below(&random, 300000);
    uint8_t *bytes = test_alloc(count);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)random_bits(&random);
    }
    const char *path = path_in(scratch_folder(), "file");
    struct file_writer writer;
    struct error error = {0};
    ck_assert_msg(file_writer_open(&writer, path, &error), "%s", error.text);
    for (size_t at = 0; at < count;) {
        const size_t most = random_below(&random, 2) ? 100000 : 3000;
        const size_t piece = 1 + random_below(&random, most);
        const size_t take = piece < count - at ? piece : count - at;
        ck_assert(file_write(&writer, bytes + at, take, &error));
        at += take;
    }
    ck_assert_uint_eq(writer.written, count);
    ck_assert_msg(file_commit(&writer, &error), "%s", error.text);
    size_t found;
    uint8_t *read = read_file(path, &found);
    ck_assert_uint_eq(found, count);
    ck_assert_mem_eq(read, bytes, count);
    free(read);
    free(bytes);
}
END_TEST

START_TEST(rewriting_changes_only_its_bytes)
{
    const char *path = path_in(scratch_folder(), "file");
    struct file_writer writer;
    struct error error;
    ck_assert(file_writer_open(&writer, path, &error) && file_write(&writer, "0123456789", 10, &error));
    ck_assert(file_rewrite(&writer, 2, "ab", 2, &error));
    ck_assert(!file_rewrite(&writer, 9, "ab", 2, &error));
    ck_assert(file_write(&writer, "X", 1, &error) && file_commit(&writer, &error));
    size_t count;
    uint8_t *bytes = read_file(path, &count);
    ck_assert_uint_eq(count, 11);
    ck_assert_mem_eq(bytes, "01ab456789X", 11);
    free(bytes);
}
END_TEST

START_TEST(reading_is_by_position)
{
    const char *path = path_in(scratch_folder(), "file");
    struct file file;
    struct error error;
    char four[4];
    write_file(path, "0123456789", 10);
    ck_assert(file_open(&file, path, &error));
    ck_assert_uint_eq(file.size, 10);
    ck_assert(file_read(&file, 6, four, 4, &error));
    ck_assert_mem_eq(four, "6789", 4);
    ck_assert(file_read(&file, 0, four, 4, &error));
    ck_assert_mem_eq(four, "0123", 4);
    file_close(&file);
}
END_TEST

START_TEST(reading_past_the_end_is_refused)
{
    struct file file;
    struct error error;
    char four[4];
    ck_assert(file_open_memory(&file, "0123456789", 10, "ten", &error));
    ck_assert(!file_read(&file, 7, four, 4, &error));
    assert_error_names(&error, "ten");
    ck_assert(!file_read(&file, UINT64_MAX - 1, four, 4, &error));
    file_close(&file);
}
END_TEST

START_TEST(file_cut_after_opening_is_an_error)
{
    const char *path = path_in(scratch_folder(), "file");
    struct file file;
    struct error error;
    uint8_t *bytes = test_alloc(50000);
    write_file(path, bytes, 50000);
    ck_assert(file_open(&file, path, &error));
    ck_assert_int_eq(truncate(path, 20000), 0);
    ck_assert(!file_read(&file, 10000, bytes, 30000, &error));
    assert_error_names(&error, "cut while in use");
    file_close(&file);
    free(bytes);
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_without_waiting)
{
    const char *folder = scratch_folder(), *pipe = path_in(folder, "pipe");
    struct file file;
    struct error error;
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    const char *paths[] = {folder, pipe, "/dev/null"};
    for (size_t i = 0; i < 3; i++) {
        ck_assert(!file_open(&file, paths[i], &error));
        assert_error_names(&error, paths[i]);
        assert_error_names(&error, "regular file");
    }
    ck_assert(!file_open(&file, path_in(folder, "missing"), &error));
    assert_error_names(&error, "missing");
}
END_TEST

START_TEST(commit_replaces_and_leaves_nothing_else)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "file");
    struct error error;
    write_file(path, "old", 3);
    ck_assert(file_write_whole(path, "newer", 5, &error));
    size_t count;
    uint8_t *bytes = read_file(path, &count);
    ck_assert_uint_eq(count, 5);
    ck_assert_mem_eq(bytes, "newer", 5);
    ck_assert_uint_eq(files_in(folder), 1);
    free(bytes);
}
END_TEST

START_TEST(discard_keeps_the_old_file_and_leaves_nothing_else)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "file");
    struct file_writer writer;
    struct error error;
    write_file(path, "old", 3);
    ck_assert(file_writer_open(&writer, path, &error) && file_write(&writer, "newer", 5, &error));
    file_discard(&writer);
    size_t count;
    uint8_t *bytes = read_file(path, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_mem_eq(bytes, "old", 3);
    ck_assert_uint_eq(files_in(folder), 1);
    free(bytes);
}
END_TEST

START_TEST(link_keeps_pointing_at_the_file_that_is_replaced)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "file"), *link_path = path_in(folder, "link");
    struct error error;
    struct stat status;
    write_file(path, "old", 3);
    ck_assert_int_eq(symlink(path, link_path), 0);
    ck_assert(file_write_whole(link_path, "newer", 5, &error));
    ck_assert_int_eq(lstat(link_path, &status), 0);
    ck_assert(S_ISLNK(status.st_mode));
    size_t count;
    uint8_t *bytes = read_file(path, &count);
    ck_assert_uint_eq(count, 5);
    free(bytes);
}
END_TEST

START_TEST(full_disk_is_reported_and_keeps_the_old_file)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "file");
    struct error error = {0};
    struct rlimit before, low;
    uint8_t *bytes = test_alloc(400000);
    write_file(path, "old", 3);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 150000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    const bool written = file_write_whole(path, bytes, 400000, &error);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ck_assert(!written);
    assert_error_names(&error, path);
    free(bytes);
    size_t count;
    bytes = read_file(path, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_mem_eq(bytes, "old", 3);
    ck_assert_uint_eq(files_in(folder), 1);
    free(bytes);
}
END_TEST

START_TEST(pipe_is_written_in_place)
{
    assert_devices_are_safe();
}
END_TEST

START_TEST(full_device_is_reported)
{
    struct error error = {0};
    assert_devices_are_safe();
    ck_assert(!file_write_whole("/dev/full", "bytes", 5, &error));
    assert_error_names(&error, "/dev/full");
    assert_error_names(&error, "No space left");
}
END_TEST

START_TEST(folder_that_is_not_there_is_named)
{
    struct error error;
    const char *folder = scratch_folder();
    ck_assert(!file_write_whole(path_in(folder, "none/file"), "x", 1, &error));
    assert_error_names(&error, "none/file");
    ck_assert(!file_write_whole(folder, "x", 1, &error));
    assert_error_names(&error, "is a folder");
    ck_assert(!file_sync_folder(path_in(folder, "none"), &error));
    ck_assert(file_sync_folder(folder, &error));
}
END_TEST

/* Writes the file over and over, all 'a' or all 'b', until it is killed. */
static void write_forever(const char *path)
{
    static char text[200000];
    struct error error;
    for (unsigned i = 0;; i++) {
        memset(text, 'a' + (int)(i % 2), sizeof text);
        if (!file_write_whole(path, text, sizeof text, &error)) {
            _exit(1);
        }
    }
}

START_TEST(kill_leaves_a_whole_file)
{
    struct random_stream random = random_stream(2);
    const char *path = path_in(scratch_folder(), "file");
    struct error error;
    ck_assert(file_write_whole(path, "", 0, &error)); /* before the first write is through, the file is this */
    for (int round = 0; round < 12; round++) {
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            write_forever(path);
        }
        const struct timespec pause = {.tv_nsec = (long)random_below(&random, 20000000)};
        nanosleep(&pause, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        size_t count;
        uint8_t *bytes = read_file(path, &count);
        ck_assert(count == 0 || count == 200000);
        for (size_t i = 1; i < count; i++) {
            ck_assert_uint_eq(bytes[i], bytes[0]);
        }
        free(bytes);
    }
}
END_TEST

START_TEST(checksum_is_fnv1a)
{
    /* Published test vectors of FNV-1a, 64 bits. */
    ck_assert_uint_eq(file_checksum(FILE_CHECKSUM_START, "", 0), UINT64_C(0xCBF29CE484222325));
    ck_assert_uint_eq(file_checksum(FILE_CHECKSUM_START, "a", 1), UINT64_C(0xAF63DC4C8601EC8C));
    ck_assert_uint_eq(file_checksum(file_checksum(FILE_CHECKSUM_START, "foo", 3), "bar", 3),
                      UINT64_C(0x85944171F73967E8));
}
END_TEST

START_TEST(integers_are_little_endian)
{
    uint8_t bytes[8];
    file_put_u64(bytes, UINT64_C(0x8877665544332211));
    ck_assert_mem_eq(bytes, "\x11\x22\x33\x44\x55\x66\x77\x88", 8);
    ck_assert_uint_eq(file_get_u16(bytes), 0x2211);
    ck_assert_uint_eq(file_get_u32(bytes), 0x44332211);
    ck_assert_uint_eq(file_get_u64(bytes), UINT64_C(0x8877665544332211));
}
END_TEST

Suite *suite_file(void)
{
    Suite *suite = suite_create("file");
    TCase *tests = tcase_create("file");
    tcase_add_test(tests, what_is_written_in_pieces_is_read_back);
    tcase_add_test(tests, rewriting_changes_only_its_bytes);
    tcase_add_test(tests, reading_is_by_position);
    tcase_add_test(tests, reading_past_the_end_is_refused);
    tcase_add_test(tests, file_cut_after_opening_is_an_error);
    tcase_add_test(tests, what_is_no_regular_file_is_refused_without_waiting);
    tcase_add_test(tests, commit_replaces_and_leaves_nothing_else);
    tcase_add_test(tests, discard_keeps_the_old_file_and_leaves_nothing_else);
    tcase_add_test(tests, link_keeps_pointing_at_the_file_that_is_replaced);
    tcase_add_test(tests, full_disk_is_reported_and_keeps_the_old_file);
    tcase_add_test(tests, pipe_is_written_in_place);
    tcase_add_test(tests, full_device_is_reported);
    tcase_add_test(tests, folder_that_is_not_there_is_named);
    tcase_add_test(tests, kill_leaves_a_whole_file);
    tcase_add_test(tests, checksum_is_fnv1a);
    tcase_add_test(tests, integers_are_little_endian);
    tcase_set_timeout(tests, 20); /* fsync may be slow on a busy disk */
    suite_add_tcase(suite, tests);
    return suite;
}
