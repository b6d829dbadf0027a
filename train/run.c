/* run.c: see run.h. */
#include "train/run.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/file.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include "train/threads.h"
#include "train/version.h"

/* ---- data and plan ---- */

bool run_plan_open(struct run *run, const struct settings *settings, struct error *error)
{
    *run = (struct run){.settings = settings, .saved_step = -1};
    if (settings->data[0] == '\0') {
        return error_set(error, ERROR_USAGE, "--data: expected a file or a folder to train on, found nothing");
    }
    if (settings->out[0] == '\0' && !settings->dry_run) {
        return error_set(error, ERROR_USAGE, "--out: expected a folder for the run, found nothing");
    }
    run->training = dataset_open(settings->data, settings->documents, error);
    run->validation = run->training;
    if (run->training && settings->val_data[0] != '\0') {
        run->validation = dataset_open(settings->val_data, settings->documents, error);
    }
    return run->training && run->validation &&
           run_plan_make(&run->plan, settings, run->training, run->validation, error);
}

/* ---- the run folder and what it holds ---- */

static bool same_folder(const char *one, const char *other)
{
    struct stat first, second;
    return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Finds the checkpoint to go on from; `folder` is empty if there is none to. */
static bool choose_checkpoint(const struct settings *s, char folder[CHECKPOINT_PATH], struct error *error)
{
    char newest[CHECKPOINT_PATH] = "";
    const bool exists = checkpoint_run_exists(s->out), automatic = strcmp(s->resume, "auto") == 0;
    folder[0] = '\0';
    if (strcmp(s->resume, "never") == 0) {
        return !exists || error_set(error, ERROR_USAGE,
                                    "--out %s: holds a run already: give --resume auto to go on with it, or another "
                                    "folder",
                                    s->out);
    }
    error->code = ERROR_NONE;
    if (exists && !checkpoint_find(s->out, newest, error) && error->code != ERROR_NONE) {
        return false;
    }
    if (automatic) {
        memcpy(folder, newest, CHECKPOINT_PATH);
        return true;
    }
    if (!checkpoint_find(s->resume, folder, error)) {
        return error->code != ERROR_NONE ? false
                                         : error_set(error, ERROR_USAGE, "--resume %s: no checkpoint there", s->resume);
    }
    return !exists || same_folder(folder, newest) ||
           error_set(error, ERROR_USAGE,
                     "--resume %s: is not the newest checkpoint of the run in --out %s, which would be overwritten: "
                     "give another --out",
                     s->resume, s->out);
}

/* The checkpoint's cursor counts samples of one order; another order would repeat some and leave others out. */
static bool order_agrees(const struct settings *saved, const struct settings *now, const char *folder,
                         struct error *error)
{
    if (saved->seed != now->seed) {
        return error_set(error, ERROR_USAGE, "--seed %" PRIu64 ": the run in %s has %" PRIu64 ", which orders its data",
                         now->seed, folder, saved->seed);
    }
    if (saved->sequence_length != now->sequence_length) {
        return error_set(error, ERROR_USAGE, "--seq-len %" PRId64 ": the run in %s has %" PRId64, now->sequence_length,
                         folder, saved->sequence_length);
    }
    if (strcmp(saved->split, now->split) != 0 && now->val_data[0] == '\0') {
        return error_set(error, ERROR_USAGE, "--split %s: the run in %s has %s", now->split, folder, saved->split);
    }
    if ((saved->val_data[0] == '\0') != (now->val_data[0] == '\0')) {
        return error_set(error, ERROR_USAGE, "--val-data: the run in %s has %s: its training share is another", folder,
                         saved->val_data[0] ? "one" : "none");
    }
    return true;
}

static bool read_checkpoint(struct run *run, const char *folder, struct error *error)
{
    struct checkpoint_info *info = malloc(sizeof *info);
    if (!info) {
        return error_set(error, ERROR_FAILED, "out of memory while reading %s", folder);
    }
    const bool done = checkpoint_read_info(folder, info, error) &&
                      checkpoint_agrees(info, run->settings, dataset_identity(run->training), folder, error) &&
                      order_agrees(&info->settings, run->settings, folder, error) &&
                      checkpoint_read(folder, info, &run->state, error);
    free(info);
    run->first_step = run->state.step;
    run->saved_step = run->state.step;
    return done;
}

/* Makes a folder and those above it. */
static bool make_folder(const char *path, struct error *error)
{
    char part[SETTINGS_PATH];
    for (const char *end = path; *end; end += *end == '/') {
        end += strcspn(end, "/");
        snprintf(part, sizeof part, "%.*s", (int)(end - path), path);
        if (part[0] != '\0' && mkdir(part, 0777) != 0 && errno != EEXIST) {
            return error_set(error, ERROR_FAILED, "--out: %s cannot be made: %s", part, strerror(errno));
        }
    }
    return true;
}

static bool write_config(const struct settings *settings, struct error *error)
{
    char path[SETTINGS_PATH + 16];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/config.json", settings->out);
    FILE *memory = open_memstream(&text, &bytes);
    const bool printed = memory && options_print_config(COMMAND_TRAIN, settings, memory);
    const bool closed = memory && fclose(memory) == 0;
    const bool done = printed && closed ? file_write_whole(path, text, bytes, error)
                                        : error_set(error, ERROR_FAILED, "out of memory while writing %s", path);
    free(text);
    return done;
}

/* ---- memory, threads, loader ---- */

static bool make_network(struct run *run, struct error *error)
{
    const struct settings *s = run->settings;
    const struct network_options options = {
        .max_tokens = run->plan.micro_batch * (size_t)s->sequence_length,
        .training = true,
        .recompute = s->recompute,
    };
    run->state.network = network_create(&s->model, &options, error);
    return run->state.network && adamw_create(&run->state.adamw, network_table(run->state.network), error) &&
           step_work_create(&run->work, run->plan.micro_batches, options.max_tokens, error);
}

static bool make_loader(struct run *run, struct error *error)
{
    const struct settings *s = run->settings;
    const struct loader_options options = {
        .begin = run->plan.train_begin,
        .end = run->plan.train_end,
        .sequence_length = (size_t)s->sequence_length,
        .batch = (size_t)s->batch,
        .micro_batch = run->plan.micro_batch,
        .rank = 0,
        .ranks = 1,
        .vocabulary = s->model.vocabulary,
        .seed = s->seed,
        .shuffle = true,
        .wrap = true,
        .first_sample = run->state.sample,
    };
    run->loader = loader_create(run->training, &options, error);
    return run->loader != NULL;
}

/* ---- the log's first record ---- */

static bool log_start(struct run *run, struct error *error)
{
    const struct settings *s = run->settings;
    char identity[32];
    snprintf(identity, sizeof identity, "%016" PRIx64, dataset_identity(run->training));
    json_t *record = json_pack(
        "{s:I, s:s, s:I, s:I, s:o, s:{s:i, s:s, s:s}, s:{s:s, s:s, s:I, s:I, s:I, s:I}}", "step",
        (json_int_t)run->state.step, "version", FLAMIA_VERSION, "parameters", (json_int_t)run->plan.parameters, "steps",
        (json_int_t)run->plan.steps, "settings", options_json(COMMAND_TRAIN, s), "machine", "threads",
        omp_get_max_threads(), "blas", openblas_get_config(), "compiler", __VERSION__, "data", "path", s->data,
        "identity", identity, "train_tokens", (json_int_t)(run->plan.train_end - run->plan.train_begin),
        "validation_tokens", (json_int_t)(run->plan.val_end - run->plan.val_begin), "rows",
        (json_int_t)loader_rows(run->loader), "dropped_tokens", (json_int_t)loader_dropped_tokens(run->loader));
    return record ? log_write(&run->log, "start", record, error)
                  : error_set(error, ERROR_FAILED, "out of memory for the log's first record");
}

bool run_begin(struct run *run, struct error *error)
{
    const struct settings *s = run->settings;
    char folder[CHECKPOINT_PATH];
    threads_use(s->threads);
    if (!run_plan_fits(&run->plan, s, error) || !choose_checkpoint(s, folder, error)) {
        return false;
    }
    const bool goes_on = checkpoint_run_exists(s->out);
    if (!make_network(run, error)) {
        return false;
    }
    if (folder[0] != '\0') {
        if (!read_checkpoint(run, folder, error)) {
            return false;
        }
    } else {
        parameters_initialise(network_table(run->state.network), &s->model, s->seed,
                              network_parameters(run->state.network));
    }
    run->log_is_open = make_loader(run, error) && make_folder(s->out, error) &&
                       log_open(&run->log, s->out, goes_on ? run->state.step : -1, error);
    return run->log_is_open && write_config(s, error) && log_start(run, error);
}

void run_close(struct run *run)
{
    loader_destroy(run->loader);
    if (run->log_is_open) {
        log_close(&run->log);
    }
    step_work_destroy(&run->work);
    adamw_destroy(&run->state.adamw);
    network_destroy(run->state.network);
    if (run->validation != run->training) {
        dataset_close(run->validation);
    }
    dataset_close(run->training);
}
