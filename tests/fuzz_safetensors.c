/* fuzz_safetensors.c: the safetensors reader on arbitrary bytes, for libFuzzer.
 *
 * Whatever it takes must cover the data exactly once, and every tensor must be readable.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/safetensors.h"
#include "tests/fuzz.h"

static void require(bool fact, const char *what)
{
    if (!fact) {
        fprintf(stderr, "fuzz_safetensors: a file was taken although %s\n", what);
        abort();
    }
}

static void check_taken(const struct safetensors *tensors, const uint8_t *data, size_t size)
{
    struct error error;
    uint64_t end = 8 + file_get_u64(data);
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        const struct tensor_entry *entry = safetensors_entry(tensors, i);
        require(entry->offset == end, "its tensors have gaps or overlap");
        require(entry->bytes == entry->elements * tensor_type_size(entry->type),
                "a tensor's bytes do not match its elements");
        require(entry->bytes <= size, "a tensor is larger than the file");
        require(safetensors_find(tensors, entry->name) == entry, "a name is not found");
        uint8_t *bytes = malloc(entry->bytes > 0 ? entry->bytes : 1);
        require(bytes && safetensors_read(tensors, entry, bytes, &error), "a tensor cannot be read");
        require(entry->bytes == 0 || memcmp(bytes, data + entry->offset, entry->bytes) == 0,
                "a tensor is read wrongly");
        free(bytes);
        end += entry->bytes;
    }
    require(end == size, "bytes are left over");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file file;
    struct error error = {0};
    if (!file_open_memory(&file, data, size, "input", &error)) {
        return 0;
    }
    struct safetensors *tensors = safetensors_open_file(&file, &error);
    if (tensors) {
        check_taken(tensors, data, size);
        safetensors_close(tensors);
    } else if (error.code == ERROR_NONE || error.text[0] == '\0') {
        abort(); /* refused without a reason */
    }
    return 0;
}

/* Blind changes of the text leave the header's length wrong: half of the changed inputs get one that ends at the last
 * brace. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max_size);
    for (size_t end = size; seed % 2 == 0 && end > 8; end--) {
        if (data[end - 1] == '}') {
            file_put_u64(data, end - 8);
            break;
        }
    }
    return size;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    static const double values[4] = {0};
    const char *folder = getenv("FUZZ_SEEDS");
    const struct tensor_source sources[] = {
        {.name = "a", .type = TENSOR_F32, .dimensions = 2, .shape = {2, 2}, .data = values},
        {.name = "b.weight", .type = TENSOR_BF16, .dimensions = 1, .shape = {3}, .data = values},
        {.name = "c", .type = TENSOR_I64, .dimensions = 0, .data = values},
        {.name = "d", .type = TENSOR_F16, .dimensions = 2, .shape = {0, 5}, .data = values},
    };
    const struct tensor_text metadata[] = {{"format", "pt"}};
    struct error error;
    char path[1024];
    for (size_t count = 0; folder && count <= 4; count++) {
        snprintf(path, sizeof path, "%s/seed_%zu", folder, count);
        if (!safetensors_write(path, sources, count, metadata, count % 2, &error)) {
            fprintf(stderr, "fuzz_safetensors: %s\n", error.text);
            exit(1);
        }
    }
    return 0;
}
