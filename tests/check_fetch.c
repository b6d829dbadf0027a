/* check_fetch.c: scripts/fetch_enwik8.sh, on a small file in the place of enwik8 and an archive on disk in the place of
 * the server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/file.h"
#include "tests/files.h"

Suite *suite_fetch(void);

#define TEXT_BYTES 5000

/* Runs a shell command; returns its exit code. */
static int run(const char *format, const char *one, const char *two)
{
    char command[4096];
    ck_assert_int_lt(snprintf(command, sizeof command, format, one, two), (int)sizeof command);
    const int status = system(command);
    ck_assert(status != -1 && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int have(const char *tool)
{
    return run("command -v %s%s >/dev/null 2>&1", tool, "") == 0;
}

static uint32_t crc32_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
    }
    return ~crc;
}

/* The fields that a zip file's local and central headers share, from "version needed" to the length of the extra field.
 */
static size_t put_zip_fields(uint8_t *to, uint32_t crc, uint32_t packed, uint32_t size)
{
    memset(to, 0, 26);
    to[0] = 20; /* version 2.0 */
    to[4] = 8;  /* deflate */
    to[8] = 33; /* 1 January 1980 */
    file_put_u32(to + 10, crc);
    file_put_u32(to + 14, packed);
    file_put_u32(to + 18, size);
    to[22] = 6; /* bytes of "enwik8" */
    return 26;
}

/* A zip file of one member, enwik8, as one stored block of deflate. Returns its size. */
static size_t make_zip(uint8_t *zip, const uint8_t *text)
{
    const uint32_t crc = crc32_of(text, TEXT_BYTES), packed = TEXT_BYTES + 5;
    size_t at = 4;
    memcpy(zip, "PK\3\4", 4);
    at += put_zip_fields(zip + at, crc, packed, TEXT_BYTES);
    memcpy(zip + at, "enwik8", 6);
    at += 6;
    zip[at] = 1; /* last block, stored */
    file_put_u32(zip + at + 1, TEXT_BYTES | (uint32_t)(0xFFFF - TEXT_BYTES) << 16);
    memcpy(zip + at + 5, text, TEXT_BYTES);
    at += packed;
    const size_t central = at;
    memcpy(zip + at, "PK\1\2\24\0", 6);
    at += 6 + put_zip_fields(zip + at + 6, crc, packed, TEXT_BYTES);
    memset(zip + at, 0, 14);
    memcpy(zip + at + 14, "enwik8", 6);
    at += 20;
    memset(zip + at, 0, 22);
    memcpy(zip + at, "PK\5\6", 4);
    zip[at + 8] = zip[at + 10] = 1;
    file_put_u32(zip + at + 12, (uint32_t)(at - central));
    file_put_u32(zip + at + 16, (uint32_t)central);
    return at + 22;
}

/* A folder with f.sh, the script that expects `text`, server.zip, and right, the text. */
static const char *make_place(uint8_t *text, uint8_t *zip, size_t *zip_bytes)
{
    struct random_stream random = random_stream(1);
    const char *folder = scratch_folder();
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        text[i] = (uint8_t)random_bits(&random);
    }
    write_file(path_in(folder, "right"), text, TEXT_BYTES);
    *zip_bytes = make_zip(zip, text);
    write_file(path_in(folder, "server.zip"), zip, *zip_bytes);
    ck_assert_int_eq(
        run("s=$(sha256sum <%s/right | cut -d' ' -f1) && sed -e 's/^size=.*/size=5000/' -e \"s/^sum=.*/sum=$s/\" "
            "scripts/fetch_enwik8.sh >%s/f.sh",
            folder, folder),
        0);
    return folder;
}

static void assert_right(const char *path, const uint8_t *text)
{
    size_t count;
    uint8_t *bytes = read_file(path, &count);
    ck_assert_uint_eq(count, TEXT_BYTES);
    ck_assert_mem_eq(bytes, text, TEXT_BYTES);
    free(bytes);
}

START_TEST(check_tells_a_whole_file_from_a_damaged_one)
{
    uint8_t text[TEXT_BYTES], zip[TEXT_BYTES + 200];
    size_t zip_bytes;
    const char *folder = make_place(text, zip, &zip_bytes), *file = path_in(folder, "file");
    static const char command[] = "sh %s/f.sh --check %s 2>/dev/null";
    ck_assert_int_eq(run(command, folder, file), 1); /* not there */
    write_file(file, text, TEXT_BYTES);
    ck_assert_int_eq(run(command, folder, file), 0);
    text[1234] ^= 1;
    write_file(file, text, TEXT_BYTES);
    ck_assert_int_eq(run(command, folder, file), 1);
    text[1234] ^= 1;
    write_file(file, text, TEXT_BYTES - 1);
    ck_assert_int_eq(run(command, folder, file), 1);
}
END_TEST

START_TEST(misuse_is_exit_code_two)
{
    static const char *const cases[] = {"--frob", "--time-limit", "--time-limit x", "--time-limit -1", "--url", "a b"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(run("sh scripts/fetch_enwik8.sh --check %s%s 2>/dev/null", cases[i], "") == 2, "%s", cases[i]);
    }
}
END_TEST

START_TEST(download_goes_on_where_it_was_cut)
{
    if (!have("curl")) {
        return; /* nothing else here reads file:// */
    }
    struct random_stream random = random_stream(2);
    uint8_t text[TEXT_BYTES], zip[TEXT_BYTES + 200];
    size_t zip_bytes;
    const char *folder = make_place(text, zip, &zip_bytes);
    const size_t cuts[] = {0, 1 + random_below(&random, zip_bytes - 1),
                           zip_bytes}; /* zip_bytes: it was whole already */
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu/file", i);
        const char *file = path_in(folder, name);
        ck_assert_int_eq(run("mkdir %s/%s", folder, (const char[]){(char)('0' + i), 0}), 0);
        if (cuts[i] > 0) {
            snprintf(name, sizeof name, "%zu/file.zip.partial", i);
            write_file(path_in(folder, name), zip, cuts[i]);
        }
        ck_assert_int_eq(
            run("sh %1$s/f.sh --time-limit 20 --url file://%1$s/server.zip %2$s 2>/dev/null", folder, file), 0);
        assert_right(file, text);
        snprintf(name, sizeof name, "%zu", i);
        ck_assert_uint_eq(files_in(path_in(folder, name)), 1);
    }
}
END_TEST

START_TEST(what_is_not_enwik8_never_gets_its_name)
{
    if (!have("curl")) {
        return;
    }
    uint8_t text[TEXT_BYTES], zip[TEXT_BYTES + 200];
    size_t zip_bytes;
    const char *folder = make_place(text, zip, &zip_bytes), *file = path_in(folder, "out/file");
    static const char command[] = "sh %1$s/f.sh --url file://%1$s/server.zip %2$s 2>/dev/null";
    zip[2000] ^= 1;
    write_file(path_in(folder, "server.zip"), zip, zip_bytes);
    ck_assert_int_eq(run(command, folder, file), 1);
    ck_assert_uint_eq(files_in(path_in(folder, "out")), 0);
    ck_assert_int_eq(unlink(path_in(folder, "server.zip")), 0);
    ck_assert_int_eq(run(command, folder, file), 1);
    ck_assert_uint_eq(files_in(path_in(folder, "out")), 0);
    /* After the failures the same command brings the file, also in place of a damaged one. */
    zip[2000] ^= 1;
    write_file(path_in(folder, "server.zip"), zip, zip_bytes);
    write_file(file, "damaged", 7);
    ck_assert_int_eq(run(command, folder, file), 0);
    assert_right(file, text);
}
END_TEST

Suite *suite_fetch(void)
{
    Suite *suite = suite_create("fetch");
    TCase *tests = tcase_create("fetch");
    tcase_add_test(tests, check_tells_a_whole_file_from_a_damaged_one);
    tcase_add_test(tests, misuse_is_exit_code_two);
    tcase_add_test(tests, download_goes_on_where_it_was_cut);
    tcase_add_test(tests, what_is_not_enwik8_never_gets_its_name);
    tcase_set_timeout(tests, 60); /* processes of a shell script on a busy machine */
    suite_add_tcase(suite, tests);
    return suite;
}
