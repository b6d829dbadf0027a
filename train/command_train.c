/* command_train.c: `flamia train`: parse, plan, begin, train. */
#include <stdio.h>

#include "train/commands.h"
#include "train/loop.h"
#include "train/options.h"
#include "train/report.h"
#include "train/signals.h"

static void print_start(const struct run *run)
{
    if (run->settings->quiet) {
        return;
    }
    if (run->state.step > 0) {
        printf("going on from step %lld\n", (long long)run->state.step);
    }
    if (run->plan.val_begin == run->plan.val_end) {
        printf("no evaluation: the validation share is shorter than one sequence\n");
    }
    printf("\n");
    fflush(stdout);
}

/* RUN/report.html, for this run alone; `flamia report` puts several on a page. */
static bool write_report(const struct settings *settings, struct error *error)
{
    char path[SETTINGS_PATH + 16];
    const char *const run_folder = settings->out;
    snprintf(path, sizeof path, "%s/report.html", run_folder);
    return report_write(path, &run_folder, 1, NULL, error);
}

static bool train(struct run *run, const struct settings *settings, struct error *error)
{
    if (!signals_install(error) || !run_plan_open(run, settings, error)) {
        return false;
    }
    if (!settings->quiet || settings->dry_run) {
        run_plan_print(&run->plan, settings, stdout);
        fflush(stdout);
    }
    if (settings->dry_run) {
        return run_plan_fits(&run->plan, settings, error);
    }
    if (!run_begin(run, error)) {
        return false;
    }
    print_start(run);
    return run_loop(run, error) && write_report(settings, error);
}

int command_train(int argc, char **argv)
{
    struct settings settings;
    struct error error;
    int exit_code;
    if (!options_start(COMMAND_TRAIN, argc, argv, &settings, NULL, &exit_code)) {
        return exit_code;
    }
    struct run run = {.settings = &settings};
    const bool done = train(&run, &settings, &error);
    run_close(&run);
    if (!done) {
        fprintf(stderr, "flamia: %s\n", error.text);
    }
    return done ? 0 : error.code;
}
