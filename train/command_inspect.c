/* command_inspect.c: `flamia inspect`: what quantization does to each operand of attention.
 *
 * Activations of a checkpoint (all layers, or --layer), or of tokens of --data with a random row for every token id, or
 * random numbers. For each operand: scales, saturated and zeroed shares, error, cosine; then P and dS; then one channel
 * of one block of V and K, before and after its last token grows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/inspect.h"
#include "attention/philox.h"
#include "data/dataset.h"
#include "train/capture.h"
#include "train/commands.h"
#include "train/options.h"
#include "train/threads.h"

#define RANDOM_TOKENS 256
#define RANDOM_HEADS  2
#define BLOCK_TOKEN   40
#define BLOCK_GAIN    1e4f

/* ---- inputs ---- */

static float normal_at(uint64_t seed, uint32_t stream, uint32_t row, uint32_t channel)
{
    const struct philox_block random =
        philox4x32_10((uint32_t)seed, (uint32_t)(seed >> 32), channel, row, stream, 0x696E7370u);
    const double u = ((double)random.word[0] + 0.5) * 0x1p-32, v = (double)random.word[1] * 0x1p-32;
    return bf16_round((float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v)));
}

/* Row numbers: of the token ids of --data, so that equal tokens have equal rows, or all different. */
static bool row_numbers(const struct settings *settings, int32_t *numbers, struct error *error)
{
    for (int32_t i = 0; i < RANDOM_TOKENS; i++) {
        numbers[i] = i;
    }
    if (settings->data[0] == '\0') {
        return true;
    }
    struct dataset *dataset = dataset_open(settings->data, settings->documents, error);
    bool done = dataset && (dataset_tokens(dataset) >= RANDOM_TOKENS ||
                            error_set(error, ERROR_FAILED, "%s: %d tokens are needed, there are %zu", settings->data,
                                      RANDOM_TOKENS, dataset_tokens(dataset)));
    done = done && dataset_read(dataset, 0, RANDOM_TOKENS, numbers, error);
    if (dataset) {
        dataset_close(dataset);
    }
    return done;
}

static bool make_random(struct capture *capture, const struct settings *settings, struct error *error)
{
    const size_t head_dim = settings->model.head_dim, width = RANDOM_HEADS * head_dim;
    int32_t numbers[RANDOM_TOKENS];
    float **const tensors[] = {&capture->query, &capture->key, &capture->value, &capture->doutput};
    if (!row_numbers(settings, numbers, error)) {
        return false;
    }
    *capture = (struct capture){
        .shape = {RANDOM_TOKENS, RANDOM_HEADS, RANDOM_HEADS, head_dim, true, 1.0f / sqrtf((float)head_dim)},
        .documents = 1,
        .offsets = calloc(2, sizeof(int32_t))};
    bool done = capture->offsets != NULL;
    for (uint32_t tensor = 0; tensor < 4; tensor++) {
        float *x = *tensors[tensor] = malloc(RANDOM_TOKENS * width * sizeof *x);
        done = done && x;
        for (size_t i = 0; done && i < RANDOM_TOKENS * width; i++) {
            x[i] = normal_at(settings->seed, tensor, (uint32_t)numbers[i / width], (uint32_t)(i % width));
        }
    }
    if (!done) {
        capture_free(capture);
        return error_set(error, ERROR_FAILED, "inspect: no memory for %d tokens", RANDOM_TOKENS);
    }
    capture->offsets[1] = RANDOM_TOKENS;
    return true;
}

/* ---- tables ---- */

static const float *tensor_of(const struct capture *capture, enum operand_role role, size_t *heads)
{
    const bool query = role == ROLE_QUERY_SCORE || role == ROLE_QUERY_DKEY;
    const bool doutput = role == ROLE_DOUTPUT_DPROBABILITY || role == ROLE_DOUTPUT_DVALUE;
    const bool value =
        role == ROLE_VALUE_OUTPUT || role == ROLE_VALUE_OUTPUT_DIAGONAL || role == ROLE_VALUE_DPROBABILITY;
    *heads = query || doutput ? capture->shape.heads : capture->shape.kv_heads;
    return query ? capture->query : doutput ? capture->doutput : value ? capture->value : capture->key;
}

static void print_row(const char *name, const char *format, const struct inspection *inspection)
{
    const double count = (double)(inspection->elements ? inspection->elements : 1);
    printf("  %-24s %-30s %8.3f %% %8.3f %% %10.5f %10.6f  %.2g .. %.2g", name, format,
           100 * (double)inspection->zeroed / count, 100 * (double)inspection->saturated / count,
           inspection->relative_error, inspection->cosine, inspection->smallest, inspection->largest);
    if (inspection->poisoned) {
        printf("  %zu NaN", inspection->poisoned);
    }
    printf("\n");
}

/* "2^-9:12 2^-8:240": the scales that occur, at most eight of them, the most frequent span. */
static void print_scales(const struct inspection *inspection)
{
    const bool group = inspection->representation == REPRESENTATION_NVFP4_CHANNEL ||
                       inspection->representation == REPRESENTATION_NVFP4_TOKEN;
    size_t total = 0, shown = 0;
    for (size_t byte = 0; byte < INSPECT_SCALES; byte++) {
        total += inspection->scales[byte];
    }
    if (total == 0) {
        return;
    }
    printf("    scales ");
    for (size_t byte = 0; byte < INSPECT_SCALES; byte++) {
        const double share = (double)inspection->scales[byte] / (double)total;
        if (share < 0.02) {
            continue;
        }
        if (group) {
            printf(" %g: %.0f%%", (double)e4m3_decode((uint8_t)byte), 100 * share);
        } else if (byte == E8M0_NAN) {
            printf(" NaN: %.0f%%", 100 * share);
        } else {
            printf(" 2^%d: %.0f%%", (int)byte - 127, 100 * share);
        }
        shown += inspection->scales[byte];
    }
    if (shown < total) {
        printf("  (others %.0f%%)", 100 * (double)(total - shown) / (double)total);
    }
    printf("\n");
}

static bool print_operands(const struct recipe *recipe, const struct capture *capture, struct error *error)
{
    const struct documents documents = {capture->offsets, capture->documents};
    printf("  %-24s %-30s %10s %10s %10s %10s  %s\n", "operand", "format", "zeroed", "saturated", "error", "cosine",
           "magnitudes");
    for (int role = 0; role < ROLE_COUNT; role++) {
        struct inspection inspection;
        size_t heads;
        const float *x = tensor_of(capture, (enum operand_role)role, &heads);
        const enum attention_status status =
            inspect_operand(recipe, (enum operand_role)role, &documents, capture->shape.total_tokens, heads,
                            capture->shape.head_dim, x, &inspection);
        if (status != ATTENTION_OK) {
            return error_set(error, ERROR_FAILED, "inspect: %s", attention_status_text(status));
        }
        print_row(operand_role_name((enum operand_role)role), representation_name(inspection.representation),
                  &inspection);
        print_scales(&inspection);
    }
    return true;
}

static bool print_intermediates(const struct recipe *recipe, const struct capture *capture, uint64_t seed,
                                struct error *error)
{
    const struct inspect_call call = {recipe,
                                      capture->shape,
                                      {capture->offsets, capture->documents},
                                      capture->query,
                                      capture->key,
                                      capture->value,
                                      capture->doutput,
                                      seed};
    struct inspection inspections[INSPECT_INTERMEDIATES];
    const enum attention_status status = inspect_call(&call, inspections);
    if (status != ATTENTION_OK) {
        return error_set(error, ERROR_FAILED, "inspect: %s", attention_status_text(status));
    }
    for (int i = 0; i < INSPECT_INTERMEDIATES; i++) {
        print_row(inspect_intermediate_name((enum inspect_intermediate)i), "against its unrounded value",
                  &inspections[i]);
    }
    return true;
}

static void print_block(const struct inspect_block *block)
{
    size_t changed = 0;
    printf("    %5s %14s %4s %12s %14s | %4s %12s %14s\n", "token", "value", "code", "scale", "decoded", "code",
           "scale", "decoded");
    for (size_t i = 0; i < block->rows; i++) {
        const struct inspect_row *row = &block->row[i];
        const bool moved = i + 1 < block->rows && float_to_bits(row->decoded) != float_to_bits(row->decoded_after);
        changed += moved;
        printf("    %5zu %14.7g %4x %12.6g %14.7g | %4x %12.6g %14.7g%s\n", block->first + i, (double)row->input,
               row->code, row->scale, (double)row->decoded, row->code_after, row->scale_after,
               (double)row->decoded_after, moved ? "  <- moved" : "");
    }
    printf("    %zu of %zu earlier values moved\n", changed, block->rows ? block->rows - 1 : 0);
}

static bool print_blocks(const struct recipe *recipe, const struct capture *capture, struct error *error)
{
    static const enum operand_role roles[] = {ROLE_VALUE_OUTPUT, ROLE_VALUE_OUTPUT_DIAGONAL};
    const struct documents documents = {capture->offsets, capture->documents};
    const size_t token = capture->shape.total_tokens > BLOCK_TOKEN ? BLOCK_TOKEN : 0;
    for (size_t i = 0; i < 2; i++) {
        struct inspect_block block;
        if (i == 1 && operand_representation(recipe, roles[0]) == operand_representation(recipe, roles[1])) {
            break;
        }
        const enum attention_status status =
            inspect_block(recipe, roles[i], &documents, capture->shape.total_tokens, capture->shape.kv_heads,
                          capture->shape.head_dim, capture->value, 0, 0, token, BLOCK_GAIN, &block);
        if (status != ATTENTION_OK) {
            return error_set(error, ERROR_FAILED, "inspect: %s", attention_status_text(status));
        }
        printf("\n  one block: %s, head 0, channel 0; right of the bar the block's last token is %g times as large\n",
               operand_role_name(roles[i]), (double)BLOCK_GAIN);
        print_block(&block);
    }
    return true;
}

static bool print_capture(const struct recipe *recipe, const struct capture *capture, uint64_t seed, bool block,
                          struct error *error)
{
    char message[256];
    if (!recipe_check(recipe, capture->shape.head_dim, true, message, sizeof message)) {
        return error_set(error, ERROR_USAGE, "--recipe %s: %s", recipe->name, message);
    }
    return print_operands(recipe, capture, error) && print_intermediates(recipe, capture, seed, error) &&
           (!block || print_blocks(recipe, capture, error));
}

static bool inspect_checkpoint(struct settings *settings, struct error *error)
{
    struct trained trained;
    if (!trained_find(&trained, "inspect", settings->checkpoint, error)) {
        return false;
    }
    const size_t layers = trained.info.settings.model.layers;
    const struct recipe *recipe = settings->recipe.name[0] != '\0' ? &settings->recipe : &trained.info.settings.recipe;
    bool done = true;
    for (size_t layer = (size_t)settings->layer; done && (layer < layers || layer == (size_t)settings->layer);
         layer++) {
        struct capture capture = {.documents = 0};
        done = capture_take(&capture, &trained, settings->data, settings->documents, layer, error);
        if (done) {
            printf("%s, layer %zu of %zu, %zu tokens, recipe %s\n", trained.folder, layer, layers,
                   capture.shape.total_tokens, recipe->name);
            done = print_capture(recipe, &capture, settings->seed, layer + 1 == layers, error);
            printf("\n");
        }
        capture_free(&capture);
    }
    return done;
}

static bool inspect_random(const struct settings *settings, struct error *error)
{
    struct capture capture = {.documents = 0};
    const struct recipe *recipe = settings->recipe.name[0] != '\0' ? &settings->recipe : recipe_find("mxfp8");
    if (!make_random(&capture, settings, error)) {
        return false;
    }
    printf("%s, %d tokens, %d heads of %zu, recipe %s\n",
           settings->data[0] != '\0' ? "a random row for every token id of --data" : "random numbers, N(0, 1)",
           RANDOM_TOKENS, RANDOM_HEADS, capture.shape.head_dim, recipe->name);
    const bool done = print_capture(recipe, &capture, settings->seed, true, error);
    capture_free(&capture);
    return done;
}

int command_inspect(int argc, char **argv)
{
    struct settings settings;
    struct error error = {ERROR_NONE, ""};
    int exit_code;
    if (!options_start(COMMAND_INSPECT, argc, argv, &settings, NULL, &exit_code)) {
        return exit_code;
    }
    threads_use(settings.threads);
    const bool done =
        settings.checkpoint[0] != '\0' ? inspect_checkpoint(&settings, &error) : inspect_random(&settings, &error);
    if (done && fflush(stdout) == 0) {
        return 0;
    }
    fprintf(stderr, "flamia: %s\n", done ? "inspect: standard output cannot be written" : error.text);
    return done ? ERROR_FAILED : error.code;
}
