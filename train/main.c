/* main.c: finds the subcommand and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "train/commands.h"
#include "train/version.h"
#include "train/options.h"

struct entry {
    enum command_id command;
    int (*run)(int argc, char **argv);
};

/* clang-format off: one a line, so that each can come by itself */
static const struct entry entries[] = {
    {COMMAND_TRAIN, command_train},       {COMMAND_EVAL, command_eval},
    {COMMAND_GENERATE, command_generate}, {COMMAND_PROBE, command_probe},
    {COMMAND_INSPECT, command_inspect},   {COMMAND_RECIPES, command_recipes},
    {COMMAND_SELFTEST, command_selftest}, {COMMAND_DATA, command_data},
    {COMMAND_REPORT, command_report},     {COMMAND_COUNT, NULL}, /* the end */
};
/* clang-format on */

static void print_help(FILE *to)
{
    fprintf(to, "usage: flamia COMMAND [OPTION...]\n\n"
                "Trains small GPTs with low-precision attention, and shows how much of a loss leaked through its "
                "scales.\n\n");
    for (const struct entry *entry = entries; entry->run; entry++) {
        const struct command_info *info = command_info(entry->command);
        fprintf(to, "  %-10s %s\n", info->name, info->summary);
    }
    fprintf(to, "\n  flamia COMMAND --help   the command's options\n"
                "  flamia --version        what was built\n");
}

static int refuse_command(const char *name)
{
    fprintf(stderr, "flamia: there is no command '%.100s'; there are", name);
    for (const struct entry *entry = entries; entry->run; entry++) {
        fprintf(stderr, " %s", command_info(entry->command)->name);
    }
    fprintf(stderr, "; `flamia --help` says what they do\n");
    return ERROR_USAGE;
}

static int finish(const char *option)
{
    if (fflush(stdout) == 0) {
        return 0;
    }
    fprintf(stderr, "flamia: %s: stdout cannot be written: %s\n", option, strerror(errno));
    return ERROR_FAILED;
}

int main(int argc, char **argv)
{
    /* A file size limit and a closed pipe then arrive as errors of write, which are reported, not as a death. */
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return ERROR_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return finish(argv[1]);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("flamia %s (CPU, built with %s)\n", FLAMIA_VERSION, __VERSION__);
        return finish(argv[1]);
    }
    for (const struct entry *entry = entries; entry->run; entry++) {
        if (strcmp(argv[1], command_info(entry->command)->name) == 0) {
            return entry->run(argc - 1, argv + 1);
        }
    }
    return refuse_command(argv[1]);
}
