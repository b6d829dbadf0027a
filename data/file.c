/* file.c: reading by position and writing by rename; see file.h. */
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_BUFFER    ((size_t)1 << 16)
#define LARGEST_REQUEST ((size_t)1 << 30) /* Linux transfers at most 2^31 - 4096 bytes a call */

static bool sync_parent(const char *path, struct error *error);
static bool flush(struct file_writer *writer, struct error *error);
static bool write_at(const struct file_writer *writer, uint64_t offset, const uint8_t *bytes, size_t count,
                     struct error *error);

bool file_open(struct file *file, const char *path, struct error *error)
{
    *file = (struct file){.fd = -1};
    /* O_NONBLOCK: opening a pipe without a writer would wait for ever; it means nothing for regular files. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_set(error, ERROR_FAILED, "%s: cannot be opened for reading: %s%s", path, strerror(errno),
                         errno == EMFILE ? "; raise the limit with `ulimit -n`" : "");
    }
    struct stat status;
    if (fstat(fd, &status) != 0) {
        error_set(error, ERROR_FAILED, "%s: fstat: %s", path, strerror(errno));
        close(fd);
        return false;
    }
    if (!S_ISREG(status.st_mode)) {
        error_set(error, ERROR_FAILED, "%s: is %s; a regular file is needed", path,
                  S_ISDIR(status.st_mode) ? "a folder" : "a device, pipe or socket");
        close(fd);
        return false;
    }
    file->path = strdup(path);
    if (!file->path) {
        close(fd);
        return error_set(error, ERROR_FAILED, "%s: out of memory", path);
    }
    file->fd = fd;
    file->size = (uint64_t)status.st_size;
    return true;
}

bool file_open_memory(struct file *file, const void *bytes, size_t size, const char *name, struct error *error)
{
    *file = (struct file){.path = strdup(name), .fd = -1, .memory = bytes, .size = size};
    return file->path ? true : error_set(error, ERROR_FAILED, "%s: out of memory", name);
}

bool file_read(const struct file *file, uint64_t offset, void *to, size_t bytes, struct error *error)
{
    if (offset > file->size || bytes > file->size - offset) {
        return error_set(error, ERROR_FAILED,
                         "%s: %zu bytes at offset %" PRIu64 " were asked for, the file has %" PRIu64 " in all",
                         file->path, bytes, offset, file->size);
    }
    if (file->fd < 0) {
        if (bytes > 0) {
            memcpy(to, file->memory + offset, bytes);
        }
        return true;
    }
    for (size_t done = 0; done < bytes;) {
        const size_t ask = bytes - done < LARGEST_REQUEST ? bytes - done : LARGEST_REQUEST;
        const ssize_t got = pread(file->fd, (uint8_t *)to + done, ask, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return error_set(error, ERROR_FAILED, "%s: reading %zu bytes at offset %" PRIu64 ": %s", file->path, ask,
                             offset + done, strerror(errno));
        }
        if (got == 0) {
            return error_set(error, ERROR_FAILED,
                             "%s: ends at byte %" PRIu64 ", had %" PRIu64
                             " when it was opened; it was cut while in use",
                             file->path, offset + done, file->size);
        }
        done += (size_t)got;
    }
    return true;
}

void file_close(struct file *file)
{
    if (file->fd >= 0) {
        close(file->fd); /* nothing was written: nothing can be lost here */
    }
    free(file->path);
    *file = (struct file){.fd = -1};
}

/* Creates PATH.partial-PID-N for the first N that is free; the mode follows the umask, as for any new file. */
static bool open_temporary(struct file_writer *writer, struct error *error)
{
    const size_t size = strlen(writer->path) + 48;
    writer->temporary = malloc(size);
    if (!writer->temporary) {
        return error_set(error, ERROR_FAILED, "%s: out of memory", writer->path);
    }
    for (unsigned attempt = 0; attempt < 10000; attempt++) {
        snprintf(writer->temporary, size, "%s.partial-%ld-%u", writer->path, (long)getpid(), attempt);
        writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    if (writer->fd < 0) {
        error_set(error, ERROR_FAILED, "%s: cannot be created: %s", writer->temporary, strerror(errno));
        free(writer->temporary);
        writer->temporary = NULL;
        return false;
    }
    return true;
}

bool file_writer_open(struct file_writer *writer, const char *path, struct error *error)
{
    *writer = (struct file_writer){.fd = -1};
    struct stat status;
    const bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) {
        return error_set(error, ERROR_FAILED, "%s: is a folder; a file is to be written there", path);
    }
    /* A link keeps pointing where it did: the file behind it is what gets replaced. */
    writer->path = exists ? realpath(path, NULL) : strdup(path);
    writer->buffer = malloc(WRITE_BUFFER);
    bool opened = writer->path && writer->buffer;
    if (!opened) {
        error_set(error, ERROR_FAILED, "%s: out of memory", path);
    } else if (exists && !S_ISREG(status.st_mode)) {
        writer->fd = open(path, O_WRONLY | O_CLOEXEC); /* renaming onto a device would replace the device */
        opened = writer->fd >= 0 ||
                 error_set(error, ERROR_FAILED, "%s: cannot be opened for writing: %s", path, strerror(errno));
    } else {
        opened = open_temporary(writer, error);
    }
    if (!opened) {
        file_discard(writer);
    }
    return opened;
}

bool file_write(struct file_writer *writer, const void *bytes, size_t count, struct error *error)
{
    const uint8_t *from = bytes;
    if (writer->buffered + count > WRITE_BUFFER || count >= WRITE_BUFFER) {
        if (!flush(writer, error)) {
            return false;
        }
    }
    if (count >= WRITE_BUFFER) {
        if (!write_at(writer, writer->written, from, count, error)) {
            return false;
        }
    } else if (count > 0) {
        memcpy(writer->buffer + writer->buffered, from, count);
        writer->buffered += count;
    }
    writer->written += count;
    return true;
}

bool file_rewrite(struct file_writer *writer, uint64_t offset, const void *bytes, size_t count, struct error *error)
{
    if (offset > writer->written || count > writer->written - offset || !writer->temporary) {
        return error_set(error, ERROR_FAILED,
                         "%s: %zu bytes at %" PRIu64 " cannot be rewritten (%" PRIu64 " written%s)", writer->path,
                         count, offset, writer->written, writer->temporary ? "" : ", not a regular file");
    }
    return flush(writer, error) && write_at(writer, offset, bytes, count, error);
}

bool file_commit(struct file_writer *writer, struct error *error)
{
    if (!flush(writer, error)) {
        file_discard(writer);
        return false;
    }
    /* Devices and pipes refuse fsync with EINVAL; what they took is gone from our hands. */
    if (fsync(writer->fd) != 0 && (writer->temporary || errno != EINVAL)) {
        error_set(error, ERROR_FAILED, "%s: fsync: %s; the file is not written", writer->path, strerror(errno));
        file_discard(writer);
        return false;
    }
    const int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0) {
        error_set(error, ERROR_FAILED, "%s: close: %s; the file is not written", writer->path, strerror(errno));
        file_discard(writer);
        return false;
    }
    bool done = true;
    if (writer->temporary) {
        if (rename(writer->temporary, writer->path) != 0) {
            done = error_set(error, ERROR_FAILED, "%s: cannot be renamed to %s: %s", writer->temporary, writer->path,
                             strerror(errno));
        } else {
            free(writer->temporary);
            writer->temporary = NULL;
            done = sync_parent(writer->path, error);
        }
    }
    file_discard(writer);
    return done;
}

void file_discard(struct file_writer *writer)
{
    if (writer->fd >= 0) {
        close(writer->fd); /* an error does not matter: the contents are thrown away */
    }
    if (writer->temporary) {
        unlink(writer->temporary); /* if this fails a .partial file stays, which no reader looks at */
    }
    free(writer->temporary);
    free(writer->path);
    free(writer->buffer);
    *writer = (struct file_writer){.fd = -1};
}

bool file_write_whole(const char *path, const void *bytes, size_t count, struct error *error)
{
    struct file_writer writer;
    if (!file_writer_open(&writer, path, error)) {
        return false;
    }
    if (!file_write(&writer, bytes, count, error)) {
        file_discard(&writer);
        return false;
    }
    return file_commit(&writer, error);
}

bool file_sync_folder(const char *path, struct error *error)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return error_set(error, ERROR_FAILED, "%s: cannot be opened as a folder: %s", path, strerror(errno));
    }
    /* Some network file systems cannot sync a folder and say EINVAL. */
    const bool done =
        fsync(fd) == 0 || errno == EINVAL || error_set(error, ERROR_FAILED, "%s: fsync: %s", path, strerror(errno));
    close(fd);
    return done;
}

uint64_t file_checksum(uint64_t state, const void *bytes, size_t count)
{
    const uint8_t *from = bytes;
    for (size_t i = 0; i < count; i++) {
        state = (state ^ from[i]) * UINT64_C(0x100000001B3);
    }
    return state;
}

uint32_t file_get_u16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

uint32_t file_get_u32(const uint8_t *bytes)
{
    return file_get_u16(bytes) | file_get_u16(bytes + 2) << 16;
}

uint64_t file_get_u64(const uint8_t *bytes)
{
    return (uint64_t)file_get_u32(bytes) | (uint64_t)file_get_u32(bytes + 4) << 32;
}

void file_put_u32(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

void file_put_u64(uint8_t *bytes, uint64_t value)
{
    file_put_u32(bytes, (uint32_t)value);
    file_put_u32(bytes + 4, (uint32_t)(value >> 32));
}

static bool sync_parent(const char *path, struct error *error)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        return file_sync_folder(".", error);
    }
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!folder) {
        return error_set(error, ERROR_FAILED, "%s: out of memory", path);
    }
    const bool done = file_sync_folder(folder, error);
    free(folder);
    return done;
}

static bool flush(struct file_writer *writer, struct error *error)
{
    const size_t count = writer->buffered;
    writer->buffered = 0;
    return write_at(writer, writer->written - count, writer->buffer, count, error);
}

/* Devices and pipes have no positions: there everything goes out in order. */
static bool write_at(const struct file_writer *writer, uint64_t offset, const uint8_t *bytes, size_t count,
                     struct error *error)
{
    for (size_t done = 0; done < count;) {
        const size_t ask = count - done < LARGEST_REQUEST ? count - done : LARGEST_REQUEST;
        const ssize_t put = writer->temporary ? pwrite(writer->fd, bytes + done, ask, (off_t)(offset + done))
                                              : write(writer->fd, bytes + done, ask);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return error_set(error, ERROR_FAILED,
                             "%s: writing %zu bytes at offset %" PRIu64 ": %s; the file is not written", writer->path,
                             ask, offset + done, put < 0 ? strerror(errno) : "nothing was accepted");
        }
        done += (size_t)put;
    }
    return true;
}
