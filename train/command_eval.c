/* command_eval.c: `flamia eval`: scores a checkpoint with a recipe's attention and with exact attention on the same
 * tokens.
 *
 * Without --data and --val-data it is the run's own validation share. Without --recipe it is the recipe the run trained
 * with.
 */
#include <stdio.h>
#include <string.h>

#include "train/commands.h"
#include "train/evaluation_record.h"
#include "train/options.h"
#include "train/probe_weights.h"
#include "train/threads.h"
#include "train/trained.h"

/* Data options that were not given come from the run. */
static void complete_data(struct settings *settings, const struct settings *run)
{
    struct settings defaults;
    options_defaults(COMMAND_EVAL, &defaults);
    if (settings->data[0] != '\0' || settings->val_data[0] != '\0') {
        return;
    }
    memcpy(settings->data, run->data, sizeof settings->data);
    memcpy(settings->val_data, run->val_data, sizeof settings->val_data);
    if (strcmp(settings->split, defaults.split) == 0) {
        memcpy(settings->split, run->split, sizeof settings->split);
    }
    if (strcmp(settings->documents, defaults.documents) == 0) {
        memcpy(settings->documents, run->documents, sizeof settings->documents);
    }
}

/* The validation share: all of --val-data, else the second part of the split. */
static bool find_share(struct evaluate_request *request, const struct settings *settings, struct error *error)
{
    if (settings->val_data[0] != '\0') {
        request->begin = 0;
        request->end = dataset_tokens(request->dataset);
        return true;
    }
    if (!dataset_split(request->dataset, settings->split, 1, &request->begin, &request->end, error)) {
        return false;
    }
    return request->end - request->begin >= request->sequence_length ||
           error_set(error, ERROR_USAGE,
                     "%s: the validation share has %zu tokens, less than one sequence of %zu: change --split, or give "
                     "--val-data",
                     dataset_path(request->dataset), request->end - request->begin, request->sequence_length);
}

/* Sequences at a time: what is asked for, else about 4096 tokens, which keep every thread at work. */
static size_t rows_of(const struct settings *settings, const struct evaluate_request *request)
{
    const size_t length = request->sequence_length, most = (request->end - request->begin) / length;
    const size_t rows = settings->micro_batch > 0 ? (size_t)settings->micro_batch : length < 4096 ? 4096 / length : 1;
    return rows < most ? rows : most;
}

static bool score(struct trained *trained, const struct settings *settings, struct evaluate_request *request,
                  struct error *error)
{
    struct evaluation evaluation;
    const struct recipe *recipe = &settings->recipe;
    enum causality probed = recipe_causality(recipe);
    if (!find_share(request, settings, error)) {
        return false;
    }
    request->rows = rows_of(settings, request);
    if (!trained_load(trained, request->rows, request->sequence_length, error) ||
        !evaluate(trained->network, recipe, request, &evaluation, error)) {
        return false;
    }
    /* What the probe says matters only where something was won. */
    if (evaluation.gap < 0 && !probe_weights(trained, recipe, &probed, error)) {
        return false;
    }
    printf("model    %s\ndata     %s: tokens %zu to %zu\n", trained->folder, dataset_path(request->dataset),
           request->begin, request->end);
    evaluation_print(&evaluation, recipe->name, probed, stdout);
    return fflush(stdout) == 0 || error_set(error, ERROR_FAILED, "eval: standard output cannot be written");
}

/* What the checkpoint decides of the settings. */
static bool complete(struct settings *settings, const struct settings *run, struct error *error)
{
    char message[256];
    complete_data(settings, run);
    if (settings->recipe.name[0] == '\0') {
        settings->recipe = run->recipe;
    }
    return recipe_check(&settings->recipe, run->model.head_dim, false, message, sizeof message) ||
           error_set(error, ERROR_USAGE, "--recipe %s: %s", settings->recipe.name, message);
}

static bool run_eval(struct settings *settings, struct error *error)
{
    struct trained trained;
    if (!trained_find(&trained, "eval", settings->checkpoint, error) ||
        !complete(settings, &trained.info.settings, error)) {
        return false;
    }
    struct dataset *dataset =
        dataset_open(settings->val_data[0] != '\0' ? settings->val_data : settings->data, settings->documents, error);
    if (!dataset) {
        return false;
    }
    struct evaluate_request request = {.dataset = dataset,
                                       .sequence_length = (size_t)trained.info.settings.sequence_length,
                                       .max_tokens = (size_t)settings->eval_tokens,
                                       .exact = settings->eval_exact};
    const bool done = score(&trained, settings, &request, error);
    trained_close(&trained);
    dataset_close(dataset);
    return done;
}

int command_eval(int argc, char **argv)
{
    struct settings settings;
    struct error error = {ERROR_NONE, ""};
    int exit_code;
    if (!options_start(COMMAND_EVAL, argc, argv, &settings, NULL, &exit_code)) {
        return exit_code;
    }
    threads_use(settings.threads);
    if (run_eval(&settings, &error)) {
        return 0;
    }
    fprintf(stderr, "flamia: %s\n", error.text);
    return error.code;
}
