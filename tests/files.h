/* files.h: small files for the tests of readers: written, damaged, compared. Failures abort the test. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "data/error.h"
#include "tests/support.h"

/* "FOLDER/NAME" in memory that the test's process keeps. */
const char *path_in(const char *folder, const char *name);

void write_file(const char *path, const void *bytes, size_t count);
uint8_t *read_file(const char *path, size_t *count); /* release with free */
size_t files_in(const char *folder);                 /* entries, . and .. not counted */

/* A shard as llm.c writes it; returns its size. `bytes` is released with free. */
size_t make_llmc_shard(uint8_t **bytes, uint32_t magic, uint32_t version, int width, const uint32_t *ids, size_t count);
void write_gpt2_shard(const char *path, const uint32_t *ids, size_t count);

/* A flamia shard of documents [starts[d], starts[d + 1]) (the last up to `count`). */
void write_flamia_shard(const char *path, const uint32_t *ids, size_t count, const int64_t *starts, size_t documents,
                        int64_t vocabulary);

/* Asserts, on a pipe of the test's own, that what is no regular file is written in place. To be called before anything
 * is written to a device of the machine: a writer that were broken here, run by root, would rename a file over the
 * device. */
void assert_devices_are_safe(void);

/* Asserts that `error` holds `part` and has a code. */
void assert_error_names(const struct error *error, const char *part);

#endif
