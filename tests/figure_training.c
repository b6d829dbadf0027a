/* figure_training.c: `make figures`: the same byte-tiny model trained with exact and with mxfp8 attention, same weights
 * and batches, on the first 4 MB of enwik8, and where the two end.
 *
 *     build/figure_training [DATA [STEPS]]      DATA is data/cache/enwik8 if it is not named
 *
 * Both are scored on all of the validation share (5 %). Two seeds differ by about 0.005 nats; the two recipes should by
 * less than 0.004.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support.h"
#include "train/commands.h"

#define PREFIX    4000000
#define PATH_MOST 700

static bool copy_prefix(const char *from, const char *to)
{
    static char block[65536];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    bool done = out != NULL;
    for (size_t left = PREFIX, got; done && left > 0; left -= got) {
        got = fread(block, 1, left < sizeof block ? left : sizeof block, in);
        done = got > 0 && fwrite(block, 1, got, out) == got;
    }
    done = (!out || fclose(out) == 0) && done;
    return (!in || fclose(in) == 0) && done;
}

/* The last evaluation in a run's log. */
static bool read_end(const char *log, double *own, double *exact)
{
    FILE *file = fopen(log, "rb");
    char line[65536];
    bool found = false;
    while (file && fgets(line, sizeof line, file)) {
        json_t *record = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(record, "event"));
        if (event && strcmp(event, "eval") == 0) {
            *own = json_number_value(json_object_get(record, "own"));
            *exact = json_number_value(json_object_get(record, "exact"));
            found = true;
        }
        json_decref(record);
    }
    return file && fclose(file) == 0 && found;
}

static bool train(const char *data, const char *folder, const char *recipe, const char *steps, double *own)
{
    char out[PATH_MOST], log[PATH_MOST + 16];
    double exact;
    snprintf(out, sizeof out, "%s/%s", folder, recipe);
    snprintf(log, sizeof log, "%s/log.jsonl", out);
    const char *const words[] = {
        "train", "--data",        data, "--out",        out, "--recipe",    recipe, "--steps",
        steps,   "--eval-tokens", "0",  "--eval-every", "0", "--log-every", "100",
    };
    char *argv[sizeof words / sizeof *words];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        argv[i] = (char *)words[i];
    }
    return command_train((int)(sizeof words / sizeof *words), argv) == 0 && read_end(log, own, &exact);
}

int main(int argc, char **argv)
{
    const char *source = argc > 1 ? argv[1] : "data/cache/enwik8", *steps = argc > 2 ? argv[2] : "1000";
    char data[PATH_MOST];
    double exact, mxfp8;
    const char *folder = scratch_folder();
    snprintf(data, sizeof data, "%s/enwik8_prefix", folder);
    if (access(source, R_OK) != 0) {
        printf("figure_training: left out: there is no %s; scripts/fetch_enwik8.sh brings it\n", source);
        return 0;
    }
    if (!copy_prefix(source, data)) {
        fprintf(stderr, "figure_training: %s: expected at least %d bytes to copy to %s\n", source, PREFIX, data);
        return 1;
    }
    if (!train(data, folder, "exact", steps, &exact) || !train(data, folder, "mxfp8", steps, &mxfp8)) {
        return 1;
    }
    printf("validation loss after %s steps, each with its own attention: exact %.6f, mxfp8 %.6f, difference %+.6f\n",
           steps, exact, mxfp8, mxfp8 - exact);
    return 0;
}
