/* files.c: see files.h. */
#include "tests/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/shard.h"

const char *path_in(const char *folder, const char *name)
{
    struct kept_path {
        struct kept_path *before;
        char text[1024];
    };
    static struct kept_path *kept; /* still reachable at the end: no leak for the sanitizer to report */
    struct kept_path *path = test_alloc(sizeof *path);
    path->before = kept;
    kept = path;
    ck_assert_int_lt(snprintf(path->text, sizeof path->text, "%s/%s", folder, name), (int)sizeof path->text);
    return path->text;
}

void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(count > 0 ? fwrite(bytes, 1, count, file) : 0, count);
    ck_assert_int_eq(fclose(file), 0);
}

uint8_t *read_file(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is not there", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    *count = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = test_alloc(*count);
    ck_assert_uint_eq(fread(bytes, 1, *count, file), *count);
    fclose(file);
    return bytes;
}

size_t files_in(const char *folder)
{
    DIR *entries = opendir(folder);
    ck_assert_ptr_nonnull(entries);
    size_t count = 0;
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(entries);
    return count;
}

size_t make_llmc_shard(uint8_t **bytes, uint32_t magic, uint32_t version, int width, const uint32_t *ids, size_t count)
{
    const size_t size = SHARD_HEADER + count * (size_t)width;
    uint8_t *shard = test_alloc(size);
    memset(shard, 0, SHARD_HEADER);
    file_put_u32(shard, magic);
    file_put_u32(shard + 4, version);
    file_put_u32(shard + 8, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        for (int b = 0; b < width; b++) {
            shard[SHARD_HEADER + i * (size_t)width + (size_t)b] = (uint8_t)(ids[i] >> (8 * b));
        }
    }
    *bytes = shard;
    return size;
}

void write_gpt2_shard(const char *path, const uint32_t *ids, size_t count)
{
    uint8_t *bytes;
    const size_t size = make_llmc_shard(&bytes, 20240520, 1, 2, ids, count);
    write_file(path, bytes, size);
    free(bytes);
}

void write_flamia_shard(const char *path, const uint32_t *ids, size_t count, const int64_t *starts, size_t documents,
                        int64_t vocabulary)
{
    struct shard_writer writer;
    struct error error = {0};
    ck_assert_msg(shard_writer_open(&writer, path, 0, vocabulary, -1, "test", &error), "%s", error.text);
    for (size_t d = 0; d < documents; d++) {
        const size_t end = d + 1 < documents ? (size_t)starts[d + 1] : count;
        ck_assert_msg(shard_writer_document(&writer, &error), "%s", error.text);
        ck_assert_msg(shard_writer_tokens(&writer, ids + starts[d], end - (size_t)starts[d], &error), "%s", error.text);
    }
    ck_assert_msg(shard_writer_commit(&writer, &error), "%s", error.text);
}

void assert_devices_are_safe(void)
{
    const char *pipe = path_in(scratch_folder(), "pipe");
    struct error error = {0};
    struct stat status;
    char read_back[5];
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    const int fd =
        open(pipe, O_RDWR); /* a reader, so that opening for writing does not wait; Linux allows both in one */
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(file_write_whole(pipe, "bytes", 5, &error), "%s", error.text);
    ck_assert_int_eq(lstat(pipe, &status), 0);
    ck_assert_msg(S_ISFIFO(status.st_mode), "a file took the pipe's place");
    ck_assert_int_eq(read(fd, read_back, 5), 5);
    ck_assert_mem_eq(read_back, "bytes", 5);
    close(fd);
}

void assert_error_names(const struct error *error, const char *part)
{
    ck_assert_msg(error->code != ERROR_NONE, "no error code, text \"%s\"", error->text);
    ck_assert_msg(strstr(error->text, part) != NULL, "\"%s\" does not say \"%s\"", error->text, part);
}
