/* loop.c: see loop.h. */
#include "train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/evaluation_record.h"
#include "train/learning_rate.h"
#include "train/progress.h"
#include "train/signals.h"

/* What one step was, for its line and its record. */
struct step_report {
    struct step_outcome outcome;
    double learning_rate, seconds;
    bool skipped;
};

/* Since the last line that was printed, and since the session began. */
struct pace {
    double line_seconds, session_seconds;
    int64_t line_tokens, session_steps;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- one step ---- */

static bool gather(struct run *run, struct error *error)
{
    step_clear(&run->work);
    for (size_t i = 0; i < run->plan.micro_batches; i++) {
        const struct batch *batch = loader_next(run->loader, error);
        if (!batch || !step_add(&run->work, batch, error)) {
            return false;
        }
    }
    return true;
}

static bool refuse_nonfinite(const struct run *run, const struct step_outcome *outcome, struct error *error)
{
    char saved[64] = "nothing was saved";
    if (run->saved_step >= 0) {
        snprintf(saved, sizeof saved, "the newest checkpoint is of step %" PRId64, run->saved_step);
    }
    return error_set(error, ERROR_NONFINITE, "step %" PRId64 ": %s is not finite (loss %g); no update was made, %s%s",
                     run->state.step + 1, outcome->culprit, outcome->loss, saved,
                     outcome->weights_broken ? "" : "; --on-nonfinite skip would leave such steps out");
}

/* Applied or skipped. False: an error, or a step that must end the run. */
static bool take_step(struct run *run, struct step_report *report, struct error *error)
{
    const struct settings *s = run->settings;
    struct training_state *state = &run->state;
    const double start = now();
    if (!gather(run, error) || !step_gradients(state->network, &s->recipe, &run->work, s->seed, (uint64_t)state->step,
                                               &report->outcome, error)) {
        return false;
    }
    report->skipped = !report->outcome.finite;
    report->learning_rate = learning_rate_at(s, state->step, run->plan.steps);
    if (report->skipped && (s->nonfinite == NONFINITE_STOP || report->outcome.weights_broken)) {
        return refuse_nonfinite(run, &report->outcome, error);
    }
    if (report->skipped) {
        state->skipped++;
    } else {
        step_update(state->network, &state->adamw, s, report->learning_rate, &report->outcome);
    }
    state->step++;
    state->sample += (uint64_t)s->batch;
    state->tokens += (int64_t)run->work.tokens;
    report->seconds = now() - start;
    state->seconds += report->seconds;
    return true;
}

/* ---- what is said of it ---- */

static bool log_step(struct run *run, const struct step_report *report, struct error *error)
{
    const struct progress progress = {
        .tokens_per_second = (double)run->work.tokens / report->seconds,
        .flops_per_token = model_flops_per_token(&run->settings->model, (size_t)run->settings->sequence_length),
        .peak_flops = run->settings->peak_flops,
    };
    json_t *record =
        json_pack("{s:I, s:o, s:o, s:o, s:I, s:o, s:o}", "step", (json_int_t)run->state.step, "loss",
                  log_real(report->outcome.loss), "grad_norm", log_real(report->outcome.gradient_norm), "lr",
                  log_real(report->learning_rate), "tokens", (json_int_t)run->state.tokens, "tokens_per_s",
                  log_real(progress.tokens_per_second), "mfu", log_real(progress_mfu(&progress)));
    if (record && report->skipped) {
        json_object_set_new(record, "culprit", json_string(report->outcome.culprit));
    }
    return record ? log_write(&run->log, report->skipped ? "skip" : "step", record, error)
                  : error_set(error, ERROR_FAILED, "out of memory for a log record");
}

static void print_step(const struct run *run, const struct step_report *report, struct pace *pace)
{
    const struct settings *s = run->settings;
    pace->line_seconds += report->seconds;
    pace->session_seconds += report->seconds;
    pace->line_tokens += (int64_t)run->work.tokens;
    pace->session_steps++;
    if (report->skipped) {
        fprintf(stderr, "flamia: step %" PRId64 ": %s is not finite: skipped, %" PRId64 " so far\n", run->state.step,
                report->outcome.culprit, run->state.skipped);
    }
    const int64_t left = run->plan.steps - run->state.step;
    if (s->quiet || (run->state.step % s->log_every != 0 && left != 0 && pace->session_steps != 1)) {
        return;
    }
    const struct progress progress = {
        .step = run->state.step,
        .steps = run->plan.steps,
        .loss = report->outcome.loss,
        .gradient_norm = report->outcome.gradient_norm,
        .learning_rate = report->learning_rate,
        .tokens_per_second = (double)pace->line_tokens / pace->line_seconds,
        .flops_per_token = model_flops_per_token(&s->model, (size_t)s->sequence_length),
        .peak_flops = s->peak_flops,
        .seconds_left = pace->session_seconds / (double)pace->session_steps * (double)left,
    };
    char line[256];
    progress_line(&progress, line, sizeof line);
    printf("%s\n", line);
    fflush(stdout);
    pace->line_seconds = 0;
    pace->line_tokens = 0;
}

/* ---- saving and evaluating ---- */

static bool save(struct run *run, struct error *error)
{
    char folder[CHECKPOINT_PATH];
    if (run->state.step == run->saved_step) {
        return true;
    }
    const double start = now();
    if (!checkpoint_save(run->settings->out, &run->state, run->settings, dataset_identity(run->training), folder,
                         error)) {
        return false;
    }
    run->saved_step = run->state.step;
    json_t *record = json_pack("{s:I, s:s, s:o}", "step", (json_int_t)run->state.step, "checkpoint", folder, "seconds",
                               log_real(now() - start));
    return record ? log_write(&run->log, "save", record, error)
                  : error_set(error, ERROR_FAILED, "out of memory for a log record");
}

/* What the recipe's switches promise: the probe, which measures it on weights, has its own command. */
static enum causality promised(const struct run *run)
{
    return recipe_causality(&run->settings->recipe);
}

static bool log_evaluation(struct run *run, const struct evaluation *evaluation, struct error *error)
{
    json_t *record = evaluation_record(evaluation, run->settings->recipe.name, promised(run));
    if (!record || json_object_set_new(record, "step", json_integer(run->state.step)) != 0) {
        json_decref(record);
        return error_set(error, ERROR_FAILED, "out of memory for a log record");
    }
    return log_write(&run->log, "eval", record, error);
}

static void print_evaluation(const struct run *run, const struct evaluation *e)
{
    char bits[48] = "", gap[96] = "";
    if (!isnan(e->bits_per_byte)) {
        snprintf(bits, sizeof bits, "  %.5f bits a byte", e->bits_per_byte);
    }
    if (e->has_exact) {
        snprintf(gap, sizeof gap, "  exact %.6f  gap %+.6f +- %.6f", e->exact, e->gap, e->gap_se);
    }
    printf("eval %" PRId64 "  %s %.6f%s%s  (%zu tokens)\n", run->state.step, run->settings->recipe.name, e->own, gap,
           bits, e->tokens);
    if (e->has_exact && run->state.step == run->plan.steps) {
        char sentence[512];
        evaluation_sentence(e, promised(run), sentence, sizeof sentence);
        printf("%s\n", sentence);
    }
    fflush(stdout);
}

static bool evaluate_now(struct run *run, struct error *error)
{
    const struct settings *s = run->settings;
    const struct evaluate_request request = {
        .dataset = run->validation,
        .begin = run->plan.val_begin,
        .end = run->plan.val_end,
        .sequence_length = (size_t)s->sequence_length,
        .rows = run->plan.micro_batch,
        .max_tokens = (size_t)s->eval_tokens,
        .exact = s->eval_exact,
    };
    struct evaluation evaluation;
    if (run->plan.val_begin == run->plan.val_end) {
        return true; /* said when the run began */
    }
    if (!evaluate(run->state.network, &s->recipe, &request, &evaluation, error)) {
        return false;
    }
    if (!s->quiet) {
        print_evaluation(run, &evaluation);
    }
    return log_evaluation(run, &evaluation, error);
}

/* ---- the run ---- */

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static bool end(struct run *run, const char *reason, struct error *error)
{
    json_t *record = json_pack("{s:I, s:s, s:I, s:I, s:o}", "step", (json_int_t)run->state.step, "reason", reason,
                               "tokens", (json_int_t)run->state.tokens, "skipped", (json_int_t)run->state.skipped,
                               "seconds", log_real(run->state.seconds));
    return record ? log_write(&run->log, "end", record, error)
                  : error_set(error, ERROR_FAILED, "out of memory for a log record");
}

/* A run that ends before its time: with what has been done saved. */
static bool leave(struct run *run, const char *reason, struct error *error)
{
    if (!save(run, error) || !end(run, reason, error)) {
        return false;
    }
    printf("%s: saved at step %" PRId64 " of %" PRId64 "; the same command with --resume auto goes on\n", reason,
           run->state.step, run->plan.steps);
    return true;
}

static bool all_steps(struct run *run, const char **reason, struct error *error)
{
    const struct settings *s = run->settings;
    const double start = now();
    struct pace pace = {.line_seconds = 0};
    *reason = NULL;
    while (run->state.step < run->plan.steps && !*reason) {
        struct step_report report;
        if (!take_step(run, &report, error) || !log_step(run, &report, error)) {
            return false;
        }
        print_step(run, &report, &pace);
        const int64_t step = run->state.step;
        const bool last = step == run->plan.steps;
        const int signal_number = signals_requested();
        if (signal_number != 0 && !last) {
            *reason = signal_number == SIGTERM ? "SIGTERM" : "SIGINT";
        } else if (s->time_limit > 0 && !last && now() - start >= (double)s->time_limit) {
            *reason = "time limit";
        } else if ((due(step, s->save_every) && !save(run, error)) ||
                   (due(step, s->eval_every) && !last && !evaluate_now(run, error))) {
            return false;
        }
    }
    return true;
}

bool run_loop(struct run *run, struct error *error)
{
    const char *reason;
    if (!all_steps(run, &reason, error)) {
        if (error->code == ERROR_NONFINITE) {
            struct error second; /* the first is the one to tell */
            (void)end(run, "not finite", &second);
        }
        return false;
    }
    if (reason) {
        return leave(run, reason, error);
    }
    return save(run, error) && evaluate_now(run, error) && end(run, "done", error);
}
