/* fuzz_shard.c: the shard reader on arbitrary bytes, for libFuzzer.
 *
 * Whatever it takes for a shard must hold what it says: as many documents as tokens at most, starts in order, ids below
 * the vocabulary.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard.h"
#include "tests/fuzz.h"

static void require(bool fact, const char *what)
{
    if (!fact) {
        fprintf(stderr, "fuzz_shard: a shard was taken although %s\n", what);
        abort();
    }
}

static void check_taken(const struct shard *shard, const struct document_index *index, const uint8_t *data, size_t size)
{
    require(shard->tokens >= 0 && (uint64_t)shard->tokens * (uint64_t)shard->width <= size - SHARD_HEADER,
            "its tokens are not in the file");
    require(index->count <= (uint64_t)shard->tokens, "it has empty documents that were not left out");
    for (size_t i = 0; i < index->count; i++) {
        require(index->starts[i] < shard->tokens &&
                    (i == 0 ? index->starts[0] == 0 : index->starts[i - 1] < index->starts[i]),
                "its documents are not in order");
    }
    for (int64_t i = 0; i < shard->tokens; i++) {
        uint32_t id;
        shard_decode(data + SHARD_HEADER + i * shard->width, shard->width, 1, &id);
        require(id < shard->vocabulary, "an id is not in its vocabulary");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file file;
    struct shard shard;
    struct document_index index = {0};
    struct error error = {0};
    bool is_shard;
    if (!file_open_memory(&file, data, size, "input", &error)) {
        return 0;
    }
    if (shard_recognise(&file, &is_shard, &error) && is_shard && shard_read_header(&file, &shard, &error) &&
        shard_validate(&file, &shard, 0, &index, &error)) {
        check_taken(&shard, &index, data, size);
    }
    document_free(&index);
    file_close(&file);
    return 0;
}

/* Checksums stop blind changes at the door: half of the changed inputs get theirs made right again. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size >= SHARD_HEADER && seed % 2 == 0) {
        file_put_u64(data + 56, file_checksum(FILE_CHECKSUM_START, data + SHARD_HEADER, size - SHARD_HEADER));
        memcpy(data + 128, "flamia\0", 8);
        file_put_u64(data + 136, file_checksum(FILE_CHECKSUM_START, data, 136));
    }
    return size;
}

static bool write_seed_flamia(const char *path, int width, struct error *error)
{
    static const uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7};
    struct shard_writer writer;
    if (!shard_writer_open(&writer, path, width, 200, 7, "seed", error)) {
        return false;
    }
    const bool good = shard_writer_document(&writer, error) && shard_writer_tokens(&writer, ids, 3, error) &&
                      shard_writer_document(&writer, error) && shard_writer_document(&writer, error) &&
                      shard_writer_tokens(&writer, ids + 3, 4, error);
    if (!good) {
        shard_writer_discard(&writer);
    }
    return good && shard_writer_commit(&writer, error);
}

static bool write_seed_llmc(const char *path, bool llama, struct error *error)
{
    uint8_t bytes[SHARD_HEADER + 16] = {0};
    const size_t width = llama ? 4 : 2;
    file_put_u32(bytes, llama ? 20240801 : 20240520);
    file_put_u32(bytes + 4, llama ? 7 : 1);
    file_put_u32(bytes + 8, 4);
    for (size_t i = 0; i < 4; i++) {
        const uint32_t id = i % 2 == 1 ? 5 : llama ? 128000 : 50256;
        for (size_t b = 0; b < width; b++) {
            bytes[SHARD_HEADER + i * width + b] = (uint8_t)(id >> 8 * b);
        }
    }
    return file_write_whole(path, bytes, SHARD_HEADER + 4 * width, error);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *folder = getenv("FUZZ_SEEDS");
    struct error error;
    char path[1024];
    for (int seed = 0; folder && seed < 5; seed++) {
        snprintf(path, sizeof path, "%s/seed_%d", folder, seed);
        if (!(seed < 3 ? write_seed_flamia(path, 1 << seed, &error) : write_seed_llmc(path, seed == 4, &error))) {
            fprintf(stderr, "fuzz_shard: %s\n", error.text);
            exit(1);
        }
    }
    return 0;
}
