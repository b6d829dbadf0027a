/* command_data.c: `flamia data`: describes, checks and writes data sets.
 *
 *     flamia data info PATH...      what a file or folder holds
 *     flamia data check PATH...     reads all of it, says "ok" or what is wrong, goes on with the next
 *     flamia data write --out FILE --vocabulary N [--tokenizer NAME] [--width 1|2|4] [--end-of-text ID]
 *
 * `write` reads token ids on standard input, uint32 little-endian, each document ended by 0xFFFFFFFF (which the last
 * one may lack), and is the one writer of shards: scripts pipe into it. Input that ends within an id, or has no id at
 * all, leaves no file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/shard.h"
#include "train/commands.h"
#include "train/options.h"

#define SEPARATOR   UINT32_C(0xFFFFFFFF)
#define INPUT_WORDS ((size_t)16384)

static int refuse(const struct error *error)
{
    fprintf(stderr, "flamia: %s\n", error->text);
    return error->code;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Lengths of all documents, ascending; NULL without memory. */
static int64_t *document_lengths(const struct dataset *dataset)
{
    const size_t documents = dataset_documents(dataset);
    int64_t *lengths = malloc((documents + 1) * sizeof *lengths);
    if (lengths) {
        lengths[0] = 0; /* the first start is not in (0, tokens) */
        dataset_starts(dataset, 0, dataset_tokens(dataset), lengths + 1, documents - 1);
        lengths[documents] = (int64_t)dataset_tokens(dataset);
        for (size_t d = 0; d < documents; d++) {
            lengths[d] = lengths[d + 1] - lengths[d];
        }
        qsort(lengths, documents, sizeof *lengths, by_size);
    }
    return lengths;
}

static void print_files(const struct dataset *dataset)
{
    for (size_t i = 0; i < dataset_files(dataset); i++) {
        const struct dataset_file file = dataset_file(dataset, i);
        printf("  %-11s %s, %s, %zu tokens of %d byte%s\n", i == 0 ? "files" : "", file.path,
               file.shard ? shard_kind_name(file.shard->kind) : "raw bytes", file.tokens,
               file.shard ? file.shard->width : 1, file.shard && file.shard->width > 1 ? "s" : "");
    }
}

static bool print_info(const struct dataset *dataset, struct error *error)
{
    int64_t *lengths = document_lengths(dataset);
    if (!lengths) {
        return error_set(error, ERROR_FAILED, "%s: out of memory for the lengths of %zu documents",
                         dataset_path(dataset), dataset_documents(dataset));
    }
    const size_t documents = dataset_documents(dataset);
    const struct dataset_file first = dataset_file(dataset, 0);
    printf("%s\n", dataset_path(dataset));
    print_files(dataset);
    printf("  %-11s %zu\n", "tokens", dataset_tokens(dataset));
    printf("  %-11s %s, vocabulary %zu, end of text ", "tokenizer", dataset_tokenizer(dataset),
           dataset_vocabulary(dataset));
    if (first.shard && first.shard->end_of_text >= 0) {
        printf("%" PRId64 "\n", first.shard->end_of_text);
    } else {
        printf("none\n");
    }
    printf("  %-11s %zu (and %zu empty); shortest %" PRId64 ", median %" PRId64 ", longest %" PRId64 " tokens\n",
           "documents", documents, dataset_empty_documents(dataset), lengths[0], lengths[documents / 2],
           lengths[documents - 1]);
    printf("  %-11s %016" PRIx64 "\n", "identity", dataset_identity(dataset));
    free(lengths);
    return true;
}

static bool describe(const char *path, const struct settings *settings, bool check, struct error *error)
{
    struct dataset *dataset = dataset_open(path, settings->documents, error);
    if (!dataset) {
        return false;
    }
    bool good = true;
    if (!check) {
        good = print_info(dataset, error);
    } else {
        const size_t vocabulary = settings->model.vocabulary;
        good = vocabulary == 0 || dataset_check_ids(dataset, 0, dataset_tokens(dataset), vocabulary, error);
        if (good) {
            printf("%s: ok, %zu tokens, %zu documents\n", path, dataset_tokens(dataset), dataset_documents(dataset));
        }
    }
    dataset_close(dataset);
    return good;
}

static int describe_all(const struct operands *operands, const struct settings *settings)
{
    const bool check = strcmp(operands->items[0], "check") == 0;
    int exit_code = 0;
    struct error error = {0};
    if (operands->count < 2) {
        error_set(&error, ERROR_USAGE, "data %s: name at least one file or folder", operands->items[0]);
        return refuse(&error);
    }
    if (settings->out[0] || settings->tokenizer[0] || settings->token_width != 0 ||
        strcmp(settings->end_of_text, "none") != 0 || (!check && settings->model.vocabulary != 0)) {
        error_set(&error, ERROR_USAGE,
                  "data %s: --out, --tokenizer, --width and --end-of-text are for `flamia data write`%s",
                  operands->items[0], check ? "" : ", --vocabulary for write and check");
        return refuse(&error);
    }
    for (size_t i = 1; i < operands->count; i++) {
        if (!describe(operands->items[i], settings, check, &error)) {
            exit_code = refuse(&error);
        }
    }
    if (fflush(stdout) != 0) {
        error_set(&error, ERROR_FAILED, "data %s: standard output cannot be written", operands->items[0]);
        return refuse(&error);
    }
    return exit_code;
}

/* Splits words into runs of ids. `between`: no document is open; carried from call to call. */
static bool write_words(struct shard_writer *writer, const uint32_t *words, size_t count, bool *between,
                        struct error *error)
{
    for (size_t at = 0; at < count;) {
        size_t end = at;
        while (end < count && words[end] != SEPARATOR) {
            end++;
        }
        const bool separated = end < count;
        /* A document begins with its first id; one that is ended before it has any is empty. */
        if (*between && (end > at || separated) && !shard_writer_document(writer, error)) {
            return false;
        }
        if (!shard_writer_tokens(writer, words + at, end - at, error)) {
            return false;
        }
        *between = separated;
        at = end + separated;
    }
    return true;
}

static bool copy_input(struct shard_writer *writer, struct error *error)
{
    uint8_t bytes[4 * INPUT_WORDS];
    uint32_t words[INPUT_WORDS];
    bool between = true;
    size_t got;
    do {
        got = fread(bytes, 1, sizeof bytes, stdin);
        if (got % 4 != 0 && !ferror(stdin)) {
            return error_set(
                error, ERROR_FAILED,
                "standard input: ends with %zu bytes of an id (4 are one); was the writer of the pipe stopped?",
                got % 4);
        }
        shard_decode(bytes, 4, got / 4, words);
        if (!write_words(writer, words, got / 4, &between, error)) {
            return false;
        }
    } while (got == sizeof bytes);
    if (ferror(stdin)) {
        return error_set(error, ERROR_FAILED, "standard input: cannot be read");
    }
    return writer->shard.tokens > 0 ||
           error_set(error, ERROR_FAILED, "standard input: holds no token; nothing is written");
}

static bool parse_end_of_text(const char *text, int64_t *id, struct error *error)
{
    char *end;
    if (strcmp(text, "none") == 0) {
        *id = -1;
        return true;
    }
    *id = strtoll(text, &end, 10); /* at most 15 digits: no overflow */
    return (text[0] >= '0' && text[0] <= '9' && *end == '\0') ||
           error_set(error, ERROR_USAGE, "--end-of-text '%s': expected an id or none", text);
}

static bool write_shard(const struct operands *operands, const struct settings *settings, struct error *error)
{
    int64_t end_of_text;
    struct shard_writer writer;
    if (operands->count > 1) {
        return error_set(error, ERROR_USAGE,
                         "data write: '%.200s' is not wanted: ids come on standard input, the shard goes to --out",
                         operands->items[1]);
    }
    if (!settings->out[0] || settings->model.vocabulary == 0) {
        return error_set(error, ERROR_USAGE, "data write: --out FILE and --vocabulary N are needed");
    }
    if (strcmp(settings->documents, "none") != 0) {
        return error_set(error, ERROR_USAGE,
                         "data write: --documents is for raw bytes; on standard input 0xFFFFFFFF ends a document");
    }
    if (!parse_end_of_text(settings->end_of_text, &end_of_text, error)) {
        return false;
    }
    if (isatty(STDIN_FILENO)) {
        return error_set(
            error, ERROR_USAGE,
            "data write: standard input is a terminal; pipe uint32 ids into it, as scripts/tokenize.py does");
    }
    if (!shard_writer_open(&writer, settings->out, (int)settings->token_width, (int64_t)settings->model.vocabulary,
                           end_of_text, settings->tokenizer[0] ? settings->tokenizer : "unnamed", error)) {
        return false;
    }
    const int64_t width = writer.shard.width;
    if (!copy_input(&writer, error)) {
        shard_writer_discard(&writer);
        return false;
    }
    const int64_t tokens = writer.shard.tokens, documents = writer.shard.documents;
    if (!shard_writer_commit(&writer, error)) {
        return false;
    }
    printf("%s: %" PRId64 " tokens of %" PRId64 " byte%s, %" PRId64 " documents\n", settings->out, tokens, width,
           width > 1 ? "s" : "", documents);
    return fflush(stdout) == 0 || error_set(error, ERROR_FAILED, "data write: standard output cannot be written");
}

int command_data(int argc, char **argv)
{
    struct settings settings;
    struct operands operands = {0};
    struct error error = {0};
    int exit_code;
    if (!options_start(COMMAND_DATA, argc, argv, &settings, &operands, &exit_code)) {
        return exit_code;
    }
    if (operands.count > 0 && (strcmp(operands.items[0], "info") == 0 || strcmp(operands.items[0], "check") == 0)) {
        return describe_all(&operands, &settings);
    }
    if (operands.count > 0 && strcmp(operands.items[0], "write") == 0) {
        return write_shard(&operands, &settings, &error) ? 0 : refuse(&error);
    }
    error_set(&error, ERROR_USAGE,
              "data: say what to do: info PATH..., check PATH..., or write --out FILE --vocabulary N");
    return refuse(&error);
}
