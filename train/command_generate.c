/* command_generate.c: `flamia generate`: continues a text, with exact attention.
 *
 * A model of 256 tokens speaks bytes: the prompt is text. For any other the prompt is ids ("464 3290"), and the output
 * is text if --tokenizer names a tokenizer.bin, else ids. When the text outgrows the model's context, the second half
 * of the context is read again from position 0 and generation goes on from there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/vocabulary.h"
#include "model/decode.h"
#include "train/commands.h"
#include "train/options.h"
#include "train/sample.h"
#include "train/threads.h"
#include "train/trained.h"

#define BYTES 256

struct text {
    int32_t *ids; /* those the decoder may need again: the last `capacity` at most */
    size_t count, capacity;
};

struct generator {
    const struct settings *settings;
    struct vocabulary *vocabulary; /* NULL: ids are printed */
    struct decoder *decoder;
    size_t model_vocabulary;
    struct text text;
    double *scratch; /* [model_vocabulary] */
};

/* ---- words in, words out ---- */

static bool open_vocabulary(struct generator *generator, struct error *error)
{
    const char *path = generator->settings->vocabulary_file;
    if (path[0] == '\0' && generator->model_vocabulary != BYTES) {
        return true;
    }
    generator->vocabulary = path[0] != '\0' ? vocabulary_open(path, error) : vocabulary_bytes(error);
    return generator->vocabulary != NULL;
}

/* "464 3290" or "464,3290"; `ids` has room for an id every second character. */
static bool parse_ids(const char *text, size_t vocabulary, int32_t *ids, size_t *count, struct error *error)
{
    *count = 0;
    for (const char *at = text + strspn(text, " ,"); *at; at += strspn(at, " ,")) {
        const size_t digits = strspn(at, "0123456789");
        const unsigned long long id = digits > 0 && digits < 12 ? strtoull(at, NULL, 10) : UINT64_MAX;
        if (id >= vocabulary) {
            return error_set(error, ERROR_USAGE,
                             "--prompt: '%.20s': expected ids below %zu, as the model's tokens are not bytes", at,
                             vocabulary);
        }
        ids[(*count)++] = (int32_t)id;
        at += digits;
    }
    return true;
}

/* An empty prompt begins as a document does: after a line's end, or the end of text. */
static bool first_id(const struct generator *generator, int32_t *id, struct error *error)
{
    const int64_t end_of_text = generator->vocabulary ? vocabulary_end_of_text(generator->vocabulary) : -1;
    if (generator->model_vocabulary == BYTES) {
        *id = '\n';
        return true;
    }
    if (end_of_text < 0 || (size_t)end_of_text >= generator->model_vocabulary) {
        return error_set(error, ERROR_USAGE, "--prompt: give at least one id: nothing says what a text begins with");
    }
    *id = (int32_t)end_of_text;
    return true;
}

/* The prompt's ids, to be freed. */
static int32_t *prompt_ids(const struct generator *generator, size_t *count, struct error *error)
{
    const char *prompt = generator->settings->prompt;
    const size_t length = strlen(prompt);
    int32_t *ids = malloc((length + 1) * sizeof *ids);
    if (!ids) {
        error_set(error, ERROR_FAILED, "generate: no memory for the prompt");
        return NULL;
    }
    const bool read = generator->model_vocabulary == BYTES && generator->settings->vocabulary_file[0] == '\0'
                          ? vocabulary_encode(generator->vocabulary, (const uint8_t *)prompt, length, ids, count, error)
                          : parse_ids(prompt, generator->model_vocabulary, ids, count, error);
    if (!read || (*count == 0 && !first_id(generator, ids, error))) {
        free(ids);
        return NULL;
    }
    *count += *count == 0;
    return ids;
}

static bool print_id(const struct generator *generator, int32_t id, struct error *error)
{
    size_t length = 0;
    const uint8_t *bytes = generator->vocabulary ? vocabulary_decode(generator->vocabulary, id, &length) : NULL;
    if (bytes) {
        fwrite(bytes, 1, length, stdout);
    } else {
        printf(generator->vocabulary ? "<%" PRId32 ">" : "%" PRId32 " ", id);
    }
    return fflush(stdout) == 0 || error_set(error, ERROR_FAILED, "generate: standard output cannot be written");
}

/* ---- generation ---- */

/* Reads all of the text again from position 0. */
static bool feed_text(struct generator *generator, const float **logits, struct error *error)
{
    decoder_reset(generator->decoder);
    for (size_t i = 0; i < generator->text.count; i++) {
        if (!decoder_step(generator->decoder, generator->text.ids[i], logits, error)) {
            return false;
        }
    }
    return true;
}

static void keep_last(struct text *text, size_t count)
{
    memmove(text->ids, text->ids + (text->count - count), count * sizeof *text->ids);
    text->count = count;
}

/* Adds a token and says what follows it. */
static bool advance(struct generator *generator, int32_t id, const float **logits, struct error *error)
{
    struct text *text = &generator->text;
    if (text->count < text->capacity) {
        text->ids[text->count++] = id;
        return decoder_step(generator->decoder, id, logits, error);
    }
    keep_last(text, text->capacity / 2);
    text->ids[text->count++] = id;
    return feed_text(generator, logits, error);
}

static bool generate(struct generator *generator, struct error *error)
{
    const struct settings *settings = generator->settings;
    const struct sampler sampler = {
        .temperature = settings->temperature, .top_k = (size_t)settings->top_k, .seed = settings->seed};
    const int64_t end_of_text = generator->vocabulary ? vocabulary_end_of_text(generator->vocabulary) : -1;
    const float *logits = NULL;
    if (!feed_text(generator, &logits, error)) {
        return false;
    }
    for (int64_t i = 0; i < settings->max_new_tokens; i++) {
        int32_t id;
        if (!sample_token(&sampler, logits, generator->model_vocabulary, (uint64_t)i, generator->scratch, &id, error)) {
            return false;
        }
        if (id == end_of_text) {
            break;
        }
        if (!print_id(generator, id, error) ||
            (i + 1 < settings->max_new_tokens && !advance(generator, id, &logits, error))) {
            return false;
        }
    }
    putchar('\n');
    return fflush(stdout) == 0 || error_set(error, ERROR_FAILED, "generate: standard output cannot be written");
}

/* The prompt's end that the model can take in, and a decoder that holds it and what follows, up to the context. */
static bool prepare(struct generator *generator, const int32_t *ids, size_t count, struct trained *trained,
                    struct error *error)
{
    struct text *text = &generator->text;
    const size_t context = trained->info.settings.model.context, more = (size_t)generator->settings->max_new_tokens;
    text->capacity = more < context && count < context - more ? count + more : context;
    text->count = count < text->capacity ? count : text->capacity;
    text->ids = malloc(text->capacity * sizeof *text->ids);
    generator->scratch = malloc(generator->model_vocabulary * sizeof *generator->scratch);
    if (!text->ids || !generator->scratch) {
        return error_set(error, ERROR_FAILED, "generate: no memory for a text of %zu tokens", text->capacity);
    }
    memcpy(text->ids, ids + (count - text->count), text->count * sizeof *text->ids);
    if (text->count < count) {
        fprintf(stderr, "flamia: the prompt has %zu tokens, the model's context %zu: only its end is read\n", count,
                context);
    }
    generator->decoder = decoder_create(trained->network, text->capacity, error);
    return generator->decoder != NULL;
}

static bool speak(struct generator *generator, struct trained *trained, struct error *error)
{
    size_t count = 0;
    int32_t *ids = open_vocabulary(generator, error) ? prompt_ids(generator, &count, error) : NULL;
    bool done = ids && trained_load(trained, 1, 1, error) && prepare(generator, ids, count, trained, error);
    for (size_t i = 0; done && generator->settings->prompt[0] != '\0' && i < count; i++) {
        done = print_id(generator, ids[i], error);
    }
    done = done && generate(generator, error);
    free(ids);
    free(generator->text.ids);
    free(generator->scratch);
    if (generator->decoder) {
        decoder_destroy(generator->decoder);
    }
    if (generator->vocabulary) {
        vocabulary_free(generator->vocabulary);
    }
    return done;
}

static bool run_generate(const struct settings *settings, struct error *error)
{
    struct trained trained;
    if (settings->recipe.name[0] != '\0' && strcmp(settings->recipe.name, "exact") != 0) {
        return error_set(error, ERROR_USAGE,
                         "--recipe %s: generation is always exact: a quantized block would need tokens that do not "
                         "exist yet",
                         settings->recipe.name);
    }
    if (!trained_find(&trained, "generate", settings->checkpoint, error)) {
        return false;
    }
    struct generator generator = {.settings = settings, .model_vocabulary = trained.info.settings.model.vocabulary};
    const bool done = speak(&generator, &trained, error);
    trained_close(&trained);
    return done;
}

int command_generate(int argc, char **argv)
{
    struct settings settings;
    struct error error = {ERROR_NONE, ""};
    int exit_code;
    if (!options_start(COMMAND_GENERATE, argc, argv, &settings, NULL, &exit_code)) {
        return exit_code;
    }
    threads_use(settings.threads);
    if (run_generate(&settings, &error)) {
        return 0;
    }
    fprintf(stderr, "flamia: %s\n", error.text);
    return error.code;
}
