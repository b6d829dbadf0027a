/* command_probe.c: `flamia probe`: which later tokens an earlier row of attention can see.
 *
 * Without --recipe, one line for each preset; with it, each tensor and change. Inputs are random, or the activations of
 * a checkpoint. With --read, the bits of the next byte that can be read at the row before it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/probe.h"
#include "train/capture.h"
#include "train/commands.h"
#include "train/options.h"
#include "train/probe_picture.h"
#include "train/read_model.h"
#include "train/report_picture.h"
#include "train/threads.h"

#define RANDOM_TOKENS   256
#define RANDOM_HEADS    4
#define RANDOM_KV_HEADS 2
#define READ_LENGTH     64

/* Text to read where there is no checkpoint: any would do, but it should be text. */
static const char sample_text[] =
    "A scale that several tokens share is set by the largest of them, and that one may not have been read yet.";

/* Documents of the random inputs: one token, an empty one, one that ends inside a block. */
static const int32_t random_offsets[] = {0, 70, 71, 71, 200, RANDOM_TOKENS};

struct inputs {
    struct probe_setup setup;
    struct capture capture;
    bool captured;
};

static bool make_inputs(struct inputs *inputs, const struct settings *settings, struct error *error)
{
    const size_t head_dim = settings->model.head_dim;
    *inputs = (struct inputs){.captured = settings->checkpoint[0] != '\0'};
    if (!inputs->captured) {
        inputs->setup = (struct probe_setup){
            .shape = {RANDOM_TOKENS, RANDOM_HEADS, RANDOM_KV_HEADS, head_dim, true, 1.0f / sqrtf((float)head_dim)},
            .documents = {random_offsets, sizeof random_offsets / sizeof *random_offsets - 1},
            .seed = settings->seed};
        return true;
    }
    struct trained trained;
    if (!trained_find(&trained, "probe", settings->checkpoint, error) ||
        !capture_take(&inputs->capture, &trained, settings->data, settings->documents, (size_t)settings->layer,
                      error)) {
        return false;
    }
    const struct capture *capture = &inputs->capture;
    inputs->setup = (struct probe_setup){.shape = capture->shape,
                                         .documents = {capture->offsets, capture->documents},
                                         .query = capture->query,
                                         .key = capture->key,
                                         .value = capture->value,
                                         .doutput = capture->doutput,
                                         .seed = settings->seed};
    return true;
}

static bool recipe_fits(const struct recipe *recipe, const struct attention_shape *shape, struct error *error)
{
    char message[256];
    return recipe_check(recipe, shape->head_dim, true, message, sizeof message) ||
           error_set(error, ERROR_USAGE, "--recipe %s: %s", recipe->name, message);
}

static bool probe_recipe(const struct inputs *inputs, const struct recipe *recipe, const struct settings *settings,
                         struct probe_outcome *total, struct probe_outcome *table, struct error *error)
{
    struct probe_setup setup = inputs->setup;
    enum attention_status status;
    setup.recipe = recipe;
    struct probe *probe = probe_create(&setup, &status);
    if (probe) {
        status = probe_run(probe, (size_t)settings->places, total, table);
    }
    probe_destroy(probe);
    return status == ATTENTION_OK ||
           error_set(error, ERROR_FAILED, "probe: recipe %s: %s", recipe->name, attention_status_text(status));
}

/* ---- tables ---- */

static const char *rows_text(const struct probe_outcome *outcome)
{
    return outcome->row_outside ? "outside" : outcome->row_in_block ? "in block" : "none";
}

static void print_header(const char *first)
{
    printf("%-22s %-9s %-9s %-6s %10s %10s %10s  %s\n", first, "verdict", "rows", "docs", "O", "dQ", "other doc",
           "scales changed");
}

static void print_outcome(const char *name, const struct probe_outcome *outcome)
{
    printf("%-22s %-9s %-9s %-6s %10.2g %10.2g %10.2g  %zu of %zu\n", name, causality_name(outcome->verdict),
           rows_text(outcome), outcome->other_document ? "moved" : "none", outcome->output_change,
           outcome->dquery_change, outcome->document_change, outcome->groups_rescaled, outcome->groups);
}

static void print_table(const struct probe_outcome *table)
{
    print_header("perturbed");
    for (int tensor = 0; tensor < PROBE_TENSOR_COUNT; tensor++) {
        for (int change = 0; change < PROBE_FINITE_CHANGES; change++) {
            char name[32];
            snprintf(name, sizeof name, "%s %s", probe_tensor_name((enum probe_tensor)tensor),
                     probe_change_name((enum probe_change)change));
            print_outcome(name, &table[tensor * PROBE_FINITE_CHANGES + change]);
        }
    }
}

static void print_inputs(const struct inputs *inputs, const struct settings *settings)
{
    const struct attention_shape *shape = &inputs->setup.shape;
    printf("%s: %zu tokens, %zu documents, %zu heads on %zu, head_dim %zu; one of %lld tokens is perturbed, earlier "
           "rows are compared bit for bit\n\n",
           inputs->captured ? settings->checkpoint : "random inputs", shape->total_tokens,
           inputs->setup.documents.count, shape->heads, shape->kv_heads, shape->head_dim, (long long)settings->places);
}

static bool run_probe(const struct settings *settings, struct error *error)
{
    struct inputs inputs;
    struct probe_outcome total, table[PROBE_TENSOR_COUNT * PROBE_FINITE_CHANGES];
    memset(&total, 0, sizeof total);
    memset(table, 0, sizeof table);
    const bool all = settings->recipe.name[0] == '\0';
    bool done =
        make_inputs(&inputs, settings, error) && (all || recipe_fits(&settings->recipe, &inputs.setup.shape, error));
    if (done) {
        print_inputs(&inputs, settings);
    }
    if (done && all) {
        print_header("recipe");
    }
    for (size_t i = 0; done && all && i < recipe_count(); i++) {
        done = probe_recipe(&inputs, recipe_at(i), settings, &total, NULL, error);
        if (done) {
            print_outcome(recipe_at(i)->name, &total);
            fflush(stdout);
        }
    }
    if (done && !all && probe_recipe(&inputs, &settings->recipe, settings, &total, table, error)) {
        print_table(table);
        printf("\n%s: %s\n", settings->recipe.name, causality_name(total.verdict));
    } else if (!all) {
        done = false;
    }
    capture_free(&inputs.capture);
    return done;
}

/* ---- reading the next byte ---- */

static void print_reading(const char *name, const struct reading *reading)
{
    printf("%-22s %10.2f of 8 %15.0f %%\n", name, reading->bits, 100 * reading->unique);
    fflush(stdout);
}

struct reader {
    const struct settings *settings;
    struct trained trained;
    bool from_model;
    uint8_t text[READ_LENGTH];
};

static bool make_reader(struct reader *reader, const struct settings *settings, struct error *error)
{
    *reader = (struct reader){.settings = settings, .from_model = settings->checkpoint[0] != '\0'};
    memcpy(reader->text, sample_text, sizeof reader->text);
    return !reader->from_model ||
           (trained_find(&reader->trained, "probe", settings->checkpoint, error) &&
            capture_text(&reader->trained, settings->data, settings->documents, reader->text, READ_LENGTH, error) &&
            trained_load(&reader->trained, 1, READ_LENGTH, error));
}

static bool read_recipe(struct reader *reader, const struct recipe *recipe, struct error *error)
{
    struct reading reading;
    const size_t places = (size_t)reader->settings->places;
    if (reader->from_model) {
        if (!read_model(reader->trained.network, recipe, reader->text, READ_LENGTH, places, &reading, error)) {
            return false;
        }
    } else {
        const enum attention_status status =
            reading_of_attention(recipe, 2, reader->settings->model.head_dim, reader->text, READ_LENGTH, places,
                                 reader->settings->seed, &reading);
        if (status != ATTENTION_OK) {
            return error_set(error, ERROR_FAILED, "probe --read: recipe %s: %s", recipe->name,
                             attention_status_text(status));
        }
    }
    print_reading(recipe->name, &reading);
    return true;
}

static bool run_read(const struct settings *settings, struct error *error)
{
    struct reader reader;
    bool done = make_reader(&reader, settings, error);
    if (done) {
        printf("bits of the next byte that can be read at the row before it, %s, %lld places of %d tokens\n\n%-22s "
               "%15s %17s\n",
               reader.from_model ? "from the model's logits" : "from attention's output", (long long)settings->places,
               READ_LENGTH, "recipe", "readable", "only one matches");
    }
    if (done && settings->recipe.name[0] != '\0') {
        done = read_recipe(&reader, &settings->recipe, error);
    } else {
        for (size_t i = 0; done && i < recipe_count(); i++) {
            done = read_recipe(&reader, recipe_at(i), error);
        }
    }
    if (reader.from_model) {
        trained_close(&reader.trained);
    }
    return done;
}

static bool run_picture(const struct settings *settings, struct error *error)
{
    if (settings->recipe.name[0] == '\0') {
        return error_set(error, ERROR_USAGE, "--picture: --recipe is needed: a picture is of one recipe");
    }
    json_t *picture = report_picture(&settings->recipe, settings->model.head_dim, error);
    const bool done = picture && probe_picture_svg(picture, settings->picture, error);
    json_decref(picture);
    if (done) {
        printf("%s\n", settings->picture);
    }
    return done;
}

int command_probe(int argc, char **argv)
{
    struct settings settings;
    struct error error = {ERROR_NONE, ""};
    int exit_code;
    if (!options_start(COMMAND_PROBE, argc, argv, &settings, NULL, &exit_code)) {
        return exit_code;
    }
    threads_use(settings.threads > 0 ? settings.threads
                                     : 1); /* calls so small that a second thread costs more than it brings */
    const bool done = settings.picture[0] != '\0' ? run_picture(&settings, &error)
                      : settings.read             ? run_read(&settings, &error)
                                                  : run_probe(&settings, &error);
    if (done && fflush(stdout) == 0) {
        return 0;
    }
    fprintf(stderr, "flamia: %s\n", done ? "probe: standard output cannot be written" : error.text);
    return done ? ERROR_FAILED : error.code;
}
