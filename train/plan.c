/* plan.c: see plan.h. */
#include "train/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "train/adamw.h"
#include "train/learning_rate.h"
#include "train/step.h"

#define MEBIBYTE 1048576.0

static bool check_vocabulary(const struct dataset *dataset, const struct settings *settings, struct error *error)
{
    if (dataset_vocabulary(dataset) <= settings->model.vocabulary) {
        return true;
    }
    return error_set(error, ERROR_USAGE, "%s: its vocabulary is %zu, the model's %zu: give --vocabulary %zu or more",
                     dataset_path(dataset), dataset_vocabulary(dataset), settings->model.vocabulary,
                     dataset_vocabulary(dataset));
}

/* The training share is part 0 of the split; validation is part 1 of the same data, or all of --val-data. */
static bool share_out(struct run_plan *plan, const struct settings *settings, const struct dataset *training,
                      const struct dataset *validation, struct error *error)
{
    const size_t length = (size_t)settings->sequence_length;
    if (settings->val_data[0] != '\0') {
        plan->train_end = dataset_tokens(training);
        plan->val_end = dataset_tokens(validation);
    } else if (!dataset_split(training, settings->split, 0, &plan->train_begin, &plan->train_end, error) ||
               !dataset_split(training, settings->split, 1, &plan->val_begin, &plan->val_end, error)) {
        return false;
    }
    if (plan->train_end - plan->train_begin < length) {
        return error_set(error, ERROR_USAGE,
                         "%s: the training share has %zu tokens, less than one sequence (--seq-len %zu): change "
                         "--split or --seq-len",
                         dataset_path(training), plan->train_end - plan->train_begin, length);
    }
    if (plan->val_end - plan->val_begin < length) { /* evaluation needs a whole sequence */
        plan->val_end = plan->val_begin;
    }
    return true;
}

static bool count_steps(struct run_plan *plan, const struct settings *settings, struct error *error)
{
    const size_t rows = (plan->train_end - plan->train_begin) / (size_t)settings->sequence_length;
    const double step_tokens = (double)settings->sequence_length * (double)settings->batch;
    double steps = (double)settings->steps;
    if (settings->tokens > 0) {
        steps = ceil((double)settings->tokens / step_tokens);
    } else if (settings->epochs > 0) {
        steps = ceil(settings->epochs * (double)rows / (double)settings->batch);
    }
    if (!(steps * (double)settings->batch < 0x1p62)) {
        return error_set(error, ERROR_USAGE, "the run's %g steps of %" PRId64 " sequences are more than can be counted",
                         steps, settings->batch);
    }
    plan->steps = (int64_t)steps;
    return learning_rate_check(settings, plan->steps, error);
}

bool run_plan_make(struct run_plan *plan, const struct settings *settings, const struct dataset *training,
                   const struct dataset *validation, struct error *error)
{
    memset(plan, 0, sizeof *plan);
    if (!check_vocabulary(training, settings, error) || !check_vocabulary(validation, settings, error) ||
        !share_out(plan, settings, training, validation, error) || !count_steps(plan, settings, error)) {
        return false;
    }
    plan->micro_batch = (size_t)(settings->micro_batch > 0 ? settings->micro_batch : settings->batch);
    plan->micro_batches = (size_t)settings->batch / plan->micro_batch;
    plan->parameters = model_parameter_count(&settings->model);
    const struct network_options options = {
        .max_tokens = plan->micro_batch * (size_t)settings->sequence_length,
        .training = true,
        .recompute = settings->recompute,
    };
    network_memory_plan(&settings->model, &options, &plan->network);
    plan->optimizer = adamw_bytes(plan->network.parameters / sizeof(float));
    plan->batches = step_work_bytes(plan->micro_batches, options.max_tokens);
    plan->total = plan->network.total + plan->optimizer + plan->batches;
    return true;
}

bool run_plan_fits(const struct run_plan *plan, const struct settings *settings, struct error *error)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const double memory = pages > 0 && page > 0 ? (double)pages * (double)page : (double)INFINITY;
    if ((double)plan->total <= memory) {
        return true;
    }
    return error_set(error, ERROR_FAILED,
                     "the run needs %.0f MiB, the machine has %.0f MiB: give a smaller --micro-batch (now %zu)%s, or a "
                     "smaller model",
                     (double)plan->total / MEBIBYTE, memory / MEBIBYTE, plan->micro_batch,
                     settings->recompute ? "" : ", --recompute");
}

static void print_bytes(FILE *to, const char *name, size_t bytes)
{
    fprintf(to, "  %-14s %10.1f MiB\n", name, (double)bytes / MEBIBYTE);
}

void run_plan_print(const struct run_plan *plan, const struct settings *settings, FILE *to)
{
    const struct model_config *model = &settings->model;
    const size_t rows = (plan->train_end - plan->train_begin) / (size_t)settings->sequence_length;
    fprintf(to, "model    %s, %zu layers, width %zu, %zu heads of %zu (%zu for keys), vocabulary %zu: %zu parameters\n",
            model_family_name(model->family), model->layers, model->width, model->heads, model->head_dim,
            model->kv_heads, model->vocabulary, plan->parameters);
    fprintf(to, "recipe   %s (%s)\n", settings->recipe.name, causality_name(recipe_causality(&settings->recipe)));
    fprintf(to, "data     %s: tokens %zu to %zu for training, %zu for validation\n", settings->data, plan->train_begin,
            plan->train_end, plan->val_end - plan->val_begin);
    fprintf(to,
            "run      %" PRId64 " steps of %" PRId64 " sequences of %" PRId64 " tokens, %zu micro-batch%s of %zu: %.4g "
            "tokens, %.3g epochs\n",
            plan->steps, settings->batch, settings->sequence_length, plan->micro_batches,
            plan->micro_batches == 1 ? "" : "es", plan->micro_batch,
            (double)plan->steps * (double)settings->batch * (double)settings->sequence_length,
            (double)plan->steps * (double)settings->batch / (double)rows);
    fprintf(to, "memory\n");
    print_bytes(to, "parameters", plan->network.parameters);
    print_bytes(to, "gradients", plan->network.gradients);
    print_bytes(to, "moments", plan->optimizer);
    print_bytes(to, "activations", plan->network.activations);
    print_bytes(to, "workspace", plan->network.workspace);
    print_bytes(to, "batches", plan->batches);
    print_bytes(to, "total", plan->total);
}
