/* report_picture.c: see report_picture.h. */
#include "train/report_picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/probe.h"
#include "data/file.h"
#include "train/log.h"
#include "train/options.h"

#define PICTURE_SEED      1
#define PICTURE_POSITIONS 8 /* that the verdict perturbs in every way */
#define CONFIG_MOST       ((uint64_t)1 << 20)

static json_t *changes_json(const float *changes)
{
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < PICTURE_TOKENS; i++) {
        json_t *row = json_array();
        for (size_t j = 0; row && j < PICTURE_TOKENS; j++) {
            const double change = (double)changes[i * PICTURE_TOKENS + j];
            json_array_append_new(row, change == 0 ? json_integer(0) : log_real(change));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *describe(const struct recipe *recipe, struct probe *probe, float *changes, struct error *error)
{
    size_t positions[PICTURE_TOKENS];
    struct probe_outcome total;
    memset(&total, 0, sizeof total);
    for (size_t i = 0; i < PICTURE_TOKENS; i++) {
        positions[i] = i;
    }
    enum attention_status status = probe_run(probe, PICTURE_POSITIONS, &total, NULL);
    if (status == ATTENTION_OK) {
        status = probe_picture(probe, PROBE_GAIN_100, positions, PICTURE_TOKENS, changes);
    }
    json_t *picture = status == ATTENTION_OK
                          ? json_pack("{s:s, s:s, s:o}", "recipe", recipe->name, "verdict",
                                      causality_name(total.verdict), "changes", changes_json(changes))
                          : NULL;
    if (!picture) {
        error_set(error, ERROR_FAILED, "report: recipe %s cannot be probed: %s", recipe->name,
                  status == ATTENTION_OK ? "no memory" : attention_status_text(status));
    }
    return picture;
}

json_t *report_picture(const struct recipe *recipe, size_t head_dim, struct error *error)
{
    const int32_t offsets[] = {0, PICTURE_TOKENS};
    const struct probe_setup setup = {.recipe = recipe,
                                      .shape = {.total_tokens = PICTURE_TOKENS,
                                                .heads = 1,
                                                .kv_heads = 1,
                                                .head_dim = head_dim,
                                                .causal = true,
                                                .softmax_scale = 1 / sqrtf((float)head_dim)},
                                      .documents = {offsets, 1},
                                      .seed = PICTURE_SEED};
    enum attention_status status;
    struct probe *probe = probe_create(&setup, &status);
    float *changes = malloc(sizeof *changes * PICTURE_TOKENS * PICTURE_TOKENS);
    json_t *picture = NULL;
    if (!probe || !changes) {
        error_set(error, ERROR_FAILED, "report: recipe %s cannot be probed: %s", recipe->name,
                  probe ? "no memory" : attention_status_text(status));
    } else {
        picture = describe(recipe, probe, changes, error);
    }
    free(changes);
    probe_destroy(probe);
    return picture;
}

/* The settings in RUN/config.json. False with error->code ERROR_NONE: there is no such file. */
static bool read_config(const char *run, struct settings *settings, struct error *error)
{
    char path[SETTINGS_PATH + 16];
    struct file file;
    error->code = ERROR_NONE;
    snprintf(path, sizeof path, "%s/config.json", run);
    if (!file_open(&file, path, NULL)) {
        return false;
    }
    char *text = file.size <= CONFIG_MOST ? malloc((size_t)file.size + 1) : NULL;
    options_defaults(COMMAND_TRAIN, settings);
    const bool done = text ? file_read(&file, 0, text, (size_t)file.size, error) &&
                                 options_read_config(COMMAND_TRAIN, text, (size_t)file.size, path, settings, error)
                           : error_set(error, ERROR_FAILED, "%s: it is too large for a run's configuration", path);
    free(text);
    file_close(&file);
    return done;
}

static bool has_recipe(const json_t *pictures, const char *name)
{
    for (size_t i = 0; i < json_array_size(pictures); i++) {
        if (strcmp(json_string_value(json_object_get(json_array_get(pictures, i), "recipe")), name) == 0) {
            return true;
        }
    }
    return false;
}

json_t *report_pictures(const char *const *runs, size_t count, struct error *error)
{
    json_t *pictures = json_array();
    struct settings settings;
    for (size_t i = 0; pictures && i < count; i++) {
        const bool read = read_config(runs[i], &settings, error);
        if (!read && error->code == ERROR_NONE) {
            continue;
        }
        if (read && has_recipe(pictures, settings.recipe.name)) {
            continue;
        }
        json_t *picture = read ? report_picture(&settings.recipe, settings.model.head_dim, error) : NULL;
        if (!picture || json_array_append_new(pictures, picture) != 0) {
            json_decref(pictures);
            return NULL;
        }
    }
    return pictures;
}
