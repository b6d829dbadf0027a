/* file.h: reading files that may change under us, and writing files that are whole or not there.
 *
 * Reading is by position (pread), not by mapping: a mapped file that another process cuts short kills the reader with
 * SIGBUS, a short pread is one line of error. Writing goes to a temporary name in the same folder, is synced, and takes
 * the final name by rename, so that a crash, a kill or a full disk leaves the old file, or none, but never half of one.
 */
#ifndef DATA_FILE_H
#define DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/error.h"

struct file {
    char *path;            /* as it was given: for messages */
    int fd;                /* -1: the bytes are in memory */
    const uint8_t *memory; /* not owned */
    uint64_t size;         /* when it was opened */
};

/* Opens a regular file for reading. Folders, pipes and devices are refused. */
bool file_open(struct file *file, const char *path, struct error *error);

/* The same interface over `size` bytes of the caller's memory, which must outlive `file`. */
bool file_open_memory(struct file *file, const void *bytes, size_t size, const char *name, struct error *error);

/* Exactly `bytes` bytes from `offset`; fewer are an error. Safe to call from several threads. */
bool file_read(const struct file *file, uint64_t offset, void *to, size_t bytes, struct error *error);

void file_close(struct file *file);

/* A file being written. SIGXFSZ must be ignored by the process for a file size limit to arrive here as an error. */
struct file_writer {
    char *path;      /* final name */
    char *temporary; /* NULL when `path` is a device or a pipe, which is written in place */
    int fd;          /* -1: not open */
    uint8_t *buffer;
    size_t buffered;
    uint64_t written; /* bytes accepted so far, buffered ones included */
};

bool file_writer_open(struct file_writer *writer, const char *path, struct error *error);
bool file_write(struct file_writer *writer, const void *bytes, size_t count, struct error *error);

/* Overwrites bytes already written, for a header whose contents are known last. */
bool file_rewrite(struct file_writer *writer, uint64_t offset, const void *bytes, size_t count, struct error *error);

/* Flush, fsync, close, rename, fsync of the folder. On failure the temporary file is removed and `path` is what it was.
 */
bool file_commit(struct file_writer *writer, struct error *error);

/* Forgets an uncommitted file; harmless after file_commit. */
void file_discard(struct file_writer *writer);

/* All four steps for bytes that are there already. */
bool file_write_whole(const char *path, const void *bytes, size_t count, struct error *error);

/* fsync of a folder: makes the names in it durable. */
bool file_sync_folder(const char *path, struct error *error);

/* FNV-1a 64, continued from `state`; begin with FILE_CHECKSUM_START. Each step is a bijection of the state, so a change
 * that is confined to one byte always shows. */
#define FILE_CHECKSUM_START UINT64_C(0xCBF29CE484222325)
uint64_t file_checksum(uint64_t state, const void *bytes, size_t count);

/* Little-endian integers, whatever the machine. */
uint32_t file_get_u16(const uint8_t *bytes);
uint32_t file_get_u32(const uint8_t *bytes);
uint64_t file_get_u64(const uint8_t *bytes);
void file_put_u32(uint8_t *bytes, uint32_t value);
void file_put_u64(uint8_t *bytes, uint64_t value);

#endif
