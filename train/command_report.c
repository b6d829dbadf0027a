/* command_report.c: `flamia report RUN...`: the logs of runs as one page, with what the probe says of
 * their recipes. */
#include <stdio.h>
#include <string.h>

#include "train/commands.h"
#include "train/options.h"
#include "train/report.h"
#include "train/report_picture.h"

static bool write_report(const struct settings *settings, const struct operands *operands, struct error *error)
{
    char path[SETTINGS_PATH];
    if (operands->count == 0) {
        return error_set(error, ERROR_USAGE, "report: name at least one run folder");
    }
    const int length = settings->out[0] != '\0' ? snprintf(path, sizeof path, "%s", settings->out)
                                                : snprintf(path, sizeof path, "%s/report.html", operands->items[0]);
    if (length < 0 || (size_t)length >= sizeof path) {
        return error_set(error, ERROR_USAGE, "report: %.200s...: the path is too long; give --out FILE",
                         operands->items[0]);
    }
    json_t *pictures = report_pictures(operands->items, operands->count, error);
    const bool written = pictures && report_write(path, operands->items, operands->count, pictures, error);
    json_decref(pictures);
    if (!written) {
        return false;
    }
    printf("%s\n", path);
    return fflush(stdout) == 0 || error_set(error, ERROR_FAILED, "report: standard output cannot be written");
}

int command_report(int argc, char **argv)
{
    struct settings settings;
    struct operands operands = {.count = 0};
    struct error error = {ERROR_NONE, ""};
    int exit_code;
    if (!options_start(COMMAND_REPORT, argc, argv, &settings, &operands, &exit_code)) {
        return exit_code;
    }
    if (write_report(&settings, &operands, &error)) {
        return 0;
    }
    fprintf(stderr, "flamia: %s\n", error.text);
    return error.code;
}
