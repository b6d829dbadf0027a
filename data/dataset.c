/* dataset.c: one stream of tokens over one or several files; see dataset.h. */
#include "data/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/bytes.h"
#include "data/document.h"
#include "data/file.h"
#include "data/shard.h"

#define READ_TOKENS    ((size_t)4096)
#define SAMPLED_BLOCKS 64
#define SAMPLED_BYTES  4096

struct part {
    struct file file;
    bool is_shard;
    struct shard shard; /* of raw bytes: width and count only */
    uint64_t offset;    /* of the first token in the file */
    size_t first;       /* of the first token in the stream */
};

struct dataset {
    char *path;
    struct part *parts;
    size_t count;
    size_t tokens;
    size_t vocabulary;
    const char *tokenizer; /* "bytes", or the first part's */
    struct document_index documents;
    uint64_t identity;
    uint8_t *memory; /* of dataset_from_tokens */
};

static bool open_folder(struct dataset *dataset, const struct bytes_documents *documents, struct error *error);
static bool add_file(struct dataset *dataset, const char *path, const struct bytes_documents *documents,
                     struct error *error);
static bool finish(struct dataset *dataset, const char *documents, struct error *error);

struct dataset *dataset_open(const char *path, const char *documents, struct error *error)
{
    struct bytes_documents rule;
    const char *text = documents ? documents : "none";
    struct stat status;
    if (!bytes_parse(&rule, text, error)) {
        return NULL;
    }
    if (stat(path, &status) != 0) {
        error_set(error, ERROR_FAILED, "%s: no data set can be opened there: %s", path, strerror(errno));
        return NULL;
    }
    struct dataset *dataset = calloc(1, sizeof *dataset);
    char *copy = strdup(path);
    if (!dataset || !copy) {
        free(dataset);
        free(copy);
        error_set(error, ERROR_FAILED, "%s: out of memory", path);
        return NULL;
    }
    dataset->path = copy;
    const bool good =
        (S_ISDIR(status.st_mode) ? open_folder(dataset, &rule, error) : add_file(dataset, path, &rule, error)) &&
        finish(dataset, text, error);
    if (!good) {
        dataset_close(dataset);
        return NULL;
    }
    return dataset;
}

void dataset_close(struct dataset *dataset)
{
    if (!dataset) {
        return;
    }
    for (size_t i = 0; i < dataset->count; i++) {
        file_close(&dataset->parts[i].file);
    }
    free(dataset->parts);
    document_free(&dataset->documents);
    free(dataset->memory);
    free(dataset->path);
    free(dataset);
}

static int is_bin(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".bin") == 0;
}

/* Name order by bytes, not by the user's language: the same set in the same order everywhere. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool open_folder(struct dataset *dataset, const struct bytes_documents *documents, struct error *error)
{
    struct dirent **names = NULL;
    const int count = scandir(dataset->path, &names, is_bin, by_name);
    if (count < 0) {
        return error_set(error, ERROR_FAILED, "%s: cannot be listed: %s", dataset->path, strerror(errno));
    }
    bool good =
        count > 0 || error_set(error, ERROR_FAILED, "%s: the folder has no *.bin; give a file, or a folder of shards",
                               dataset->path);
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (good && asprintf(&path, "%s/%s", dataset->path, names[i]->d_name) < 0) {
            path = NULL; /* asprintf leaves it undefined */
            good = error_set(error, ERROR_FAILED, "%s: out of memory", dataset->path);
        }
        good = good && add_file(dataset, path, documents, error);
        free(path);
        free(names[i]);
    }
    free(names);
    return good;
}

/* All files of a set must mean the same by an id. */
static bool agrees(const struct part *first, const struct part *part, struct error *error)
{
    if (first->is_shard != part->is_shard) {
        return error_set(error, ERROR_FAILED, "%s is %s, but %s is %s; a folder holds one kind", part->file.path,
                         part->is_shard ? "a shard" : "no shard", first->file.path,
                         first->is_shard ? "a shard" : "none");
    }
    if (part->is_shard &&
        (part->shard.vocabulary != first->shard.vocabulary || part->shard.end_of_text != first->shard.end_of_text ||
         strcmp(part->shard.tokenizer, first->shard.tokenizer) != 0)) {
        return error_set(error, ERROR_FAILED,
                         "%s: tokenizer %s, vocabulary %" PRId64 ", end of text %" PRId64
                         "; the set began with %s, %" PRId64 ", %" PRId64 " (%s)",
                         part->file.path, part->shard.tokenizer, part->shard.vocabulary, part->shard.end_of_text,
                         first->shard.tokenizer, first->shard.vocabulary, first->shard.end_of_text, first->file.path);
    }
    return true;
}

static bool read_part(struct part *part, const struct bytes_documents *documents, struct document_index *index,
                      struct error *error)
{
    if (part->file.size == 0) {
        return error_set(error, ERROR_FAILED, "%s: the file is empty", part->file.path);
    }
    if (!shard_recognise(&part->file, &part->is_shard, error)) {
        return false;
    }
    if (!part->is_shard) {
        part->shard.width = 1;
        part->shard.tokens = (int64_t)part->file.size;
        return bytes_index(documents, &part->file, (int64_t)part->first, index, error);
    }
    if (documents->rule != BYTES_ONE_DOCUMENT) {
        return error_set(
            error, ERROR_USAGE,
            "%s: is a shard, which knows its documents; documents \"length\" and \"delimiter\" are for raw bytes",
            part->file.path);
    }
    part->offset = SHARD_HEADER;
    return shard_read_header(&part->file, &part->shard, error) &&
           shard_validate(&part->file, &part->shard, (int64_t)part->first, index, error);
}

/* A part whose file is not open yet. */
static struct part *new_part(struct dataset *dataset, struct error *error)
{
    struct part *parts = realloc(dataset->parts, (dataset->count + 1) * sizeof *parts);
    if (!parts) {
        error_set(error, ERROR_FAILED, "%s: out of memory", dataset->path);
        return NULL;
    }
    dataset->parts = parts;
    parts[dataset->count] = (struct part){.file.fd = -1, .first = dataset->tokens};
    return &parts[dataset->count];
}

static bool add_file(struct dataset *dataset, const char *path, const struct bytes_documents *documents,
                     struct error *error)
{
    struct part *part = new_part(dataset, error);
    if (!part || !file_open(&part->file, path, error)) {
        return false;
    }
    dataset->count++; /* closed with the set from here on */
    if (!read_part(part, documents, &dataset->documents, error) || !agrees(&dataset->parts[0], part, error)) {
        return false;
    }
    dataset->tokens += (size_t)part->shard.tokens;
    return true;
}

/* Reads blocks spread evenly over each file; a change of a few bytes between them is the checksum's business. */
static bool sample_contents(struct dataset *dataset, struct error *error)
{
    uint8_t block[SAMPLED_BYTES];
    for (size_t i = 0; i < dataset->count; i++) {
        const struct file *file = &dataset->parts[i].file;
        const uint64_t blocks = file->size / SAMPLED_BYTES + 1;
        const uint64_t step = (blocks + SAMPLED_BLOCKS - 1) / SAMPLED_BLOCKS;
        for (uint64_t b = 0; b < blocks; b += step) {
            const uint64_t offset = b * SAMPLED_BYTES;
            const size_t bytes = file->size - offset < SAMPLED_BYTES ? (size_t)(file->size - offset) : SAMPLED_BYTES;
            if (!file_read(file, offset, block, bytes, error)) {
                return false;
            }
            dataset->identity = file_checksum(dataset->identity, block, bytes);
        }
    }
    return true;
}

static void identify(struct dataset *dataset, const char *text)
{
    uint8_t number[8];
    dataset->identity = file_checksum(FILE_CHECKSUM_START, text, strlen(text) + 1);
    const uint64_t numbers[] = {dataset->tokens, dataset->vocabulary, dataset->documents.count};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        file_put_u64(number, numbers[i]);
        dataset->identity = file_checksum(dataset->identity, number, sizeof number);
    }
    for (size_t i = 0; i < dataset->documents.count; i++) {
        file_put_u64(number, (uint64_t)dataset->documents.starts[i]);
        dataset->identity = file_checksum(dataset->identity, number, sizeof number);
    }
}

static bool finish(struct dataset *dataset, const char *documents, struct error *error)
{
    if (dataset->tokens == 0) {
        return error_set(error, ERROR_FAILED,
                         "%s: no token in %zu file%s (%zu empty documents); there is nothing to read", dataset->path,
                         dataset->count, dataset->count == 1 ? "" : "s", dataset->documents.empty);
    }
    const struct part *first = &dataset->parts[0];
    dataset->tokenizer = first->is_shard ? first->shard.tokenizer : "bytes";
    dataset->vocabulary = first->is_shard ? (size_t)first->shard.vocabulary : BYTES_VOCABULARY;
    identify(dataset, documents);
    return sample_contents(dataset, error);
}

static bool check_starts(const int64_t *starts, size_t documents, size_t count, struct error *error)
{
    for (size_t i = 0; i < documents; i++) {
        if (starts[i] < (i > 0 ? starts[i - 1] : 0) || starts[i] > (int64_t)count || (i == 0 && starts[0] != 0)) {
            return error_set(error, ERROR_FAILED,
                             "tokens in memory: document %zu begins at %" PRId64 " of %zu; starts ascend from 0", i,
                             starts[i], count);
        }
    }
    return true;
}

static bool copy_tokens(struct dataset *dataset, const uint32_t *ids, size_t count, const int64_t *starts,
                        size_t documents, size_t vocabulary, struct error *error)
{
    if (count == 0 || vocabulary == 0 || vocabulary > (size_t)1 << 31) {
        return error_set(error, ERROR_FAILED,
                         "tokens in memory: %zu tokens, vocabulary %zu; neither may be 0, nor the latter above 2^31",
                         count, vocabulary);
    }
    dataset->path = strdup("memory");
    dataset->memory = count <= SIZE_MAX / 4 ? malloc(4 * count) : NULL;
    struct part *part = dataset->path ? new_part(dataset, error) : NULL;
    if (!part || !dataset->memory || !file_open_memory(&part->file, dataset->memory, 4 * count, "memory", error)) {
        return error_set(error, ERROR_FAILED, "tokens in memory: out of memory for %zu", count);
    }
    dataset->count = 1;
    dataset->tokens = count;
    part->is_shard = true;
    part->shard = (struct shard){.kind = SHARD_FLAMIA,
                                 .width = 4,
                                 .tokens = (int64_t)count,
                                 .vocabulary = (int64_t)vocabulary,
                                 .end_of_text = -1};
    snprintf(part->shard.tokenizer, sizeof part->shard.tokenizer, "%s",
             vocabulary <= BYTES_VOCABULARY ? "bytes" : "memory");
    for (size_t i = 0; i < count; i++) {
        file_put_u32(dataset->memory + 4 * i, ids[i]);
        if (ids[i] >= vocabulary) {
            return error_set(error, ERROR_FAILED,
                             "tokens in memory: token %zu is %" PRIu32 ", the vocabulary has %zu ids", i, ids[i],
                             vocabulary);
        }
    }
    bool good = check_starts(starts, documents, count, error) && document_add(&dataset->documents, 0, error);
    for (size_t i = 1; good && i < documents; i++) {
        good = document_add(&dataset->documents, starts[i], error);
    }
    document_end(&dataset->documents, (int64_t)count);
    return good && finish(dataset, "memory", error);
}

struct dataset *dataset_from_tokens(const uint32_t *ids, size_t count, const int64_t *starts, size_t documents,
                                    size_t vocabulary, struct error *error)
{
    struct dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) {
        error_set(error, ERROR_FAILED, "tokens in memory: out of memory");
        return NULL;
    }
    if (!copy_tokens(dataset, ids, count, starts, documents, vocabulary, error)) {
        dataset_close(dataset);
        return NULL;
    }
    return dataset;
}

size_t dataset_tokens(const struct dataset *dataset)
{
    return dataset->tokens;
}

size_t dataset_vocabulary(const struct dataset *dataset)
{
    return dataset->vocabulary;
}

size_t dataset_documents(const struct dataset *dataset)
{
    return dataset->documents.count;
}

size_t dataset_empty_documents(const struct dataset *dataset)
{
    return dataset->documents.empty;
}

const char *dataset_path(const struct dataset *dataset)
{
    return dataset->path;
}

const char *dataset_tokenizer(const struct dataset *dataset)
{
    return dataset->tokenizer;
}

uint64_t dataset_identity(const struct dataset *dataset)
{
    return dataset->identity;
}

size_t dataset_files(const struct dataset *dataset)
{
    return dataset->count;
}

struct dataset_file dataset_file(const struct dataset *dataset, size_t index)
{
    const struct part *part = &dataset->parts[index];
    return (struct dataset_file){part->file.path, part->is_shard ? &part->shard : NULL, part->first,
                                 (size_t)part->shard.tokens};
}

/* The part that holds token `position` of the stream, which is not past its end. */
static const struct part *part_at(const struct dataset *dataset, size_t position)
{
    size_t low = 0, high = dataset->count; /* parts[low].first <= position < parts[high].first */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (dataset->parts[middle].first <= position) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &dataset->parts[low];
}

/* Reads at most READ_TOKENS ids from `position`, not past the end of its part; returns how many, 0 on an error. */
static size_t read_piece(const struct dataset *dataset, size_t position, size_t count, uint32_t *ids,
                         struct error *error)
{
    uint8_t bytes[4 * READ_TOKENS];
    const struct part *part = part_at(dataset, position);
    const size_t within = position - part->first;
    const size_t left = (size_t)part->shard.tokens - within;
    const size_t width = (size_t)part->shard.width;
    count = count < left ? count : left;
    count = count < READ_TOKENS ? count : READ_TOKENS;
    if (!file_read(&part->file, part->offset + (uint64_t)within * width, bytes, count * width, error)) {
        return 0;
    }
    shard_decode(bytes, part->shard.width, count, ids);
    return count;
}

static bool check_range(const struct dataset *dataset, size_t first, size_t count, struct error *error)
{
    return (first <= dataset->tokens && count <= dataset->tokens - first) ||
           error_set(error, ERROR_FAILED, "%s: tokens %zu to %zu were asked for, the data set has %zu", dataset->path,
                     first, first + count, dataset->tokens);
}

/* A file that has changed since it was checked may hold any id; the model trusts what it gets, so ids are compared once
 * more. */
static bool check_piece(const struct dataset *dataset, size_t position, size_t count, const uint32_t *ids,
                        size_t vocabulary, const char *hint, struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= vocabulary) {
            const struct part *part = part_at(dataset, position);
            const size_t within = position + i - part->first;
            return error_set(error, ERROR_FAILED,
                             "%s: token %zu (offset %" PRIu64 ") is %" PRIu32 ", expected an id below %zu; %s",
                             part->file.path, within, part->offset + (uint64_t)within * (uint64_t)part->shard.width,
                             ids[i], vocabulary, hint);
        }
    }
    return true;
}

bool dataset_read(const struct dataset *dataset, size_t first, size_t count, int32_t *ids, struct error *error)
{
    if (!check_range(dataset, first, count, error)) {
        return false;
    }
    uint32_t piece[READ_TOKENS];
    for (size_t done = 0; done < count;) {
        const size_t got = read_piece(dataset, first + done, count - done, piece, error);
        if (got == 0 || !check_piece(dataset, first + done, got, piece, dataset->vocabulary,
                                     "the file was changed while in use", error)) {
            return false;
        }
        for (size_t i = 0; i < got; i++) {
            ids[done + i] = (int32_t)piece[i];
        }
        done += got;
    }
    return true;
}

bool dataset_check_ids(const struct dataset *dataset, size_t first, size_t count, size_t vocabulary,
                       struct error *error)
{
    if (!check_range(dataset, first, count, error)) {
        return false;
    }
    uint32_t piece[READ_TOKENS];
    for (size_t done = 0; vocabulary < dataset->vocabulary && done < count;) {
        const size_t got = read_piece(dataset, first + done, count - done, piece, error);
        if (got == 0 || !check_piece(dataset, first + done, got, piece, vocabulary,
                                     "the model's vocabulary is smaller than the data's: choose a larger one", error)) {
            return false;
        }
        done += got;
    }
    return true;
}

size_t dataset_starts(const struct dataset *dataset, size_t first, size_t count, int64_t *starts, size_t capacity)
{
    return document_starts(&dataset->documents, (int64_t)first, (int64_t)count, starts, capacity);
}
