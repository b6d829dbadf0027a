/* dataset.h: a set of tokens to train on: raw bytes, one shard, or a folder of shards, validated whole before the first
 * step.
 *
 * To the rest of the program a data set is one stream of tokens with the starts of its documents. Raw bytes are a data
 * set too (vocabulary 256). A split takes a contiguous share of the stream.
 */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "data/error.h"

struct dataset;
struct shard;

/* `documents` (raw bytes only): "none" (one document), "length:N" or "delimiter:HEX" (the delimiter's bytes, as hex,
 * end a document). A file whose header is a shard's is a shard; a folder means its *.bin in name order; anything else
 * is raw bytes. */
struct dataset *dataset_open(const char *path, const char *documents, struct error *error);

/* In-memory data set, for tests and generated data: copies `count` ids; starts [documents] ascending, first 0. */
struct dataset *dataset_from_tokens(const uint32_t *ids, size_t count, const int64_t *starts, size_t documents,
                                    size_t vocabulary, struct error *error);
void dataset_close(struct dataset *dataset);

size_t dataset_tokens(const struct dataset *dataset);
size_t dataset_vocabulary(const struct dataset *dataset); /* ids are below it */
size_t dataset_documents(const struct dataset *dataset);  /* empty ones not counted */
const char *dataset_path(const struct dataset *dataset);
const char *
dataset_tokenizer(const struct dataset *dataset); /* "bytes", "gpt2", "llama3" or what the shard names; never NULL */

/* FNV-1a 64 of sizes, document settings and sampled contents: names the data in logs and checkpoints. */
uint64_t dataset_identity(const struct dataset *dataset);

/* Copies ids [first, first + count) to `ids`. */
bool dataset_read(const struct dataset *dataset, size_t first, size_t count, int32_t *ids, struct error *error);

/* Starts of the documents that begin in (first, first + count): writes at most `capacity`, returns how many there are.
 */
size_t dataset_starts(const struct dataset *dataset, size_t first, size_t count, int64_t *starts, size_t capacity);

/* True if all ids of [first, first + count) are below `vocabulary`; else the error names file, token and offset. Reads
 * nothing if the data set's own vocabulary is not larger. */
bool dataset_check_ids(const struct dataset *dataset, size_t first, size_t count, size_t vocabulary,
                       struct error *error);

/* Documents without a token: counted here, left out everywhere else. */
size_t dataset_empty_documents(const struct dataset *dataset);

/* Files the set is made of, in order, and what each holds; for `flamia data`. NULL `shard`: raw bytes. */
struct dataset_file {
    const char *path;
    const struct shard *shard;
    size_t first, tokens; /* its share of the stream */
};
size_t dataset_files(const struct dataset *dataset);
struct dataset_file dataset_file(const struct dataset *dataset, size_t index);

/* The share [begin, end) of the stream that part `part` of "90/5/5" names (0 train, 1 validation, 2 test). Shares
 * are per cent with at most three decimals and sum to 100; missing ones are empty. */
bool dataset_split(const struct dataset *dataset, const char *split, int part, size_t *begin, size_t *end,
                   struct error *error);

#endif
