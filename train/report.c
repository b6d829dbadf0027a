/* report.c: see report.h. */
#include "train/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/file.h"
#include "train/log.h"
#include "train/report_template.h"
#include "train/version.h"

#define MARKER "@REPORT_DATA@"
#define POINTS 1000 /* of a curve, at most: more cannot be told apart on a screen */

enum curve { CURVE_LOSS, CURVE_NORM, CURVE_RATE, CURVE_SPEED, CURVE_COUNT };
static const char *const curve_names[CURVE_COUNT] = {"loss", "grad_norm", "lr", "tokens_per_s"};

/* The steps of a log, as numbers; NAN where a record has none. */
struct steps {
    double *values; /* [count][1 + CURVE_COUNT]: the step, then its curves */
    size_t count, capacity;
};

static double real_of(const json_t *record, const char *key)
{
    const json_t *item = json_object_get(record, key);
    return json_is_number(item) ? json_number_value(item) : (double)NAN;
}

static bool add_step(struct steps *steps, const json_t *record)
{
    if (steps->count == steps->capacity) {
        const size_t capacity = 2 * steps->capacity + 256;
        double *more = realloc(steps->values, capacity * (1 + CURVE_COUNT) * sizeof *more);
        if (!more) {
            return false;
        }
        steps->values = more;
        steps->capacity = capacity;
    }
    double *row = steps->values + steps->count * (1 + CURVE_COUNT);
    row[0] = real_of(record, "step");
    for (size_t c = 0; c < CURVE_COUNT; c++) {
        row[1 + c] = real_of(record, curve_names[c]);
    }
    steps->count += isfinite(row[0]);
    return true;
}

/* ---- curves ---- */

/* The mean of a column over rows [first, last), its gaps left out. The step's column gives the last step. */
static double mean_of(const struct steps *steps, size_t first, size_t last, size_t column)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = first; i < last; i++) {
        const double value = steps->values[i * (1 + CURVE_COUNT) + column];
        if (isfinite(value)) {
            sum = column == 0 ? value : sum + value;
            count = column == 0 ? 1 : count + 1;
        }
    }
    return count > 0 ? sum / (double)count : (double)NAN;
}

static bool add_curve(json_t *run, const char *name, const struct steps *steps, size_t stride, size_t column)
{
    json_t *array = json_array();
    bool done = array != NULL;
    for (size_t first = 0; done && first < steps->count; first += stride) {
        const size_t last = first + stride < steps->count ? first + stride : steps->count;
        done = json_array_append_new(array, log_real(mean_of(steps, first, last, column))) == 0;
    }
    if (!done) {
        json_decref(array);
        return false;
    }
    return json_object_set_new(run, name, array) == 0;
}

static bool add_curves(json_t *run, const struct steps *steps)
{
    const size_t stride = steps->count > POINTS ? (steps->count + POINTS - 1) / POINTS : 1;
    bool done = json_object_set_new(run, "stride", json_integer((json_int_t)stride)) == 0 &&
                add_curve(run, "steps", steps, stride, 0);
    for (size_t c = 0; done && c < CURVE_COUNT; c++) {
        done = add_curve(run, curve_names[c], steps, stride, 1 + c);
    }
    return done;
}

/* ---- evaluations ---- */

static const char *const evaluation_reals[] = {"step", "own", "exact", "gap", "gap_se", "bits_per_byte"};
static const char *const evaluation_texts[] = {"recipe", "causality", "verdict"};

/* An array of numbers and nulls, whatever the log's had; NULL if it had none. */
static json_t *reals_of(const json_t *record, const char *key)
{
    const json_t *from = json_object_get(record, key);
    json_t *array = json_is_array(from) ? json_array() : NULL;
    for (size_t i = 0; array && i < json_array_size(from); i++) {
        const json_t *item = json_array_get(from, i);
        json_array_append_new(array, log_real(json_is_number(item) ? json_number_value(item) : (double)NAN));
    }
    return array;
}

static bool add_evaluation(json_t *run, const json_t *record)
{
    json_t *evaluation = json_object();
    bool done = evaluation != NULL;
    for (size_t i = 0; done && i < sizeof evaluation_reals / sizeof *evaluation_reals; i++) {
        const char *name = evaluation_reals[i];
        done = json_object_set_new(evaluation, name, log_real(real_of(record, name))) == 0;
    }
    for (size_t i = 0; done && i < sizeof evaluation_texts / sizeof *evaluation_texts; i++) {
        const json_t *text = json_object_get(record, evaluation_texts[i]);
        done = !json_is_string(text) ||
               json_object_set_new(evaluation, evaluation_texts[i], json_string(json_string_value(text))) == 0;
    }
    json_t *gap = reals_of(record, "position_gap"), *error = reals_of(record, "position_se");
    if (gap && error) {
        done = done && json_object_set_new(run, "position", json_pack("{s:O, s:O}", "gap", gap, "se", error)) == 0;
    }
    json_decref(gap);
    json_decref(error);
    if (!done) {
        json_decref(evaluation);
        return false;
    }
    return json_array_append_new(json_object_get(run, "evals"), evaluation) == 0;
}

/* ---- a run ---- */

static bool add_record(json_t *run, struct steps *steps, const char *line, size_t length)
{
    json_t *record = json_loadb(line, length, 0, NULL);
    const char *event = json_string_value(json_object_get(record, "event"));
    bool done = true;
    if (event && strcmp(event, "step") == 0) {
        done = add_step(steps, record);
    } else if (event && strcmp(event, "eval") == 0) {
        done = add_evaluation(run, record);
    }
    json_decref(record);
    return done;
}

static bool read_log(json_t *run, struct steps *steps, const char *path, struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        return error_set(error, ERROR_FAILED, "%s: cannot be read: %s: expected the folder of a run", path,
                         strerror(errno));
    }
    char *line = NULL;
    size_t capacity = 0, lines = 0;
    bool done = true;
    for (ssize_t length; done && (length = getline(&line, &capacity, file)) > 0; lines++) {
        done = add_record(run, steps, line, (size_t)length) ||
               error_set(error, ERROR_FAILED, "%s: no memory for record %zu", path, lines + 1);
    }
    if (done && ferror(file)) {
        done = error_set(error, ERROR_FAILED, "%s: record %zu cannot be read: %s", path, lines + 1, strerror(errno));
    }
    free(line);
    fclose(file);
    if (done && steps->count == 0 && json_array_size(json_object_get(run, "evals")) == 0) {
        done = error_set(error, ERROR_FAILED, "%s: no step and no evaluation in its %zu lines: nothing to draw", path,
                         lines);
    }
    return done;
}

/* "path/to/run/" is the run "run". */
static json_t *name_of(const char *folder)
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/') {
        begin--;
    }
    json_t *name = json_stringn(folder + begin, end - begin);
    return name ? name : json_string("run"); /* a name that is no UTF-8 */
}

/* The recipe of the last evaluation, else that of config.json. */
static void add_recipe(json_t *run, const char *folder)
{
    const json_t *evals = json_object_get(run, "evals");
    const json_t *last = json_array_get(evals, json_array_size(evals) - 1);
    const char *recipe = json_string_value(json_object_get(last, "recipe"));
    char path[4096];
    json_t *config = NULL;
    if (!recipe && snprintf(path, sizeof path, "%s/config.json", folder) < (int)sizeof path) {
        config = json_load_file(path, 0, NULL);
        recipe = json_string_value(json_object_get(config, "recipe"));
    }
    json_object_set_new(run, "recipe", recipe ? json_string(recipe) : json_null());
    json_decref(config);
}

json_t *report_run(const char *run_folder, struct error *error)
{
    const size_t bytes = strlen(run_folder) + sizeof "/log.jsonl";
    char *path = malloc(bytes);
    json_t *run = json_pack("{s:o, s:[]}", "name", name_of(run_folder), "evals");
    struct steps steps = {NULL, 0, 0};
    bool done = path && run;
    if (!done) {
        error_set(error, ERROR_FAILED, "%s: no memory to read its log", run_folder);
    } else {
        snprintf(path, bytes, "%s/log.jsonl", run_folder);
        done = read_log(run, &steps, path, error) &&
               (add_curves(run, &steps) || error_set(error, ERROR_FAILED, "%s: no memory for its curves", path));
    }
    if (done) {
        add_recipe(run, run_folder);
    } else {
        json_decref(run);
    }
    free(path);
    free(steps.values);
    return done ? run : NULL;
}

/* ---- the page ---- */

/* JSON that may stand inside a script element: '<' only occurs in strings, where it has another spelling. */
static bool write_json(struct file_writer *writer, const char *text, struct error *error)
{
    for (const char *at = text; *at;) {
        const size_t plain = strcspn(at, "<");
        if (!file_write(writer, at, plain, error) || (at[plain] == '<' && !file_write(writer, "\\u003c", 6, error))) {
            return false;
        }
        at += plain + (at[plain] == '<');
    }
    return true;
}

static bool write_page(const char *path, const char *text, struct error *error)
{
    const char *page = (const char *)report_template;
    const char *marker = strstr(page, MARKER);
    struct file_writer writer;
    if (!marker) {
        return error_set(error, ERROR_FAILED, "scripts/report.html had no %s when this program was built", MARKER);
    }
    if (!file_writer_open(&writer, path, error)) {
        return false;
    }
    const char *rest = marker + strlen(MARKER);
    if (file_write(&writer, page, (size_t)(marker - page), error) && write_json(&writer, text, error) &&
        file_write(&writer, rest, report_template_bytes - (size_t)(rest - page), error)) {
        return file_commit(&writer, error);
    }
    file_discard(&writer);
    return false;
}

bool report_write(const char *path, const char *const *runs, size_t count, json_t *probes, struct error *error)
{
    json_t *list = json_array();
    bool done = list || error_set(error, ERROR_FAILED, "%s: no memory for the report", path);
    for (size_t i = 0; done && i < count; i++) {
        json_t *run = report_run(runs[i], error);
        done = run && (json_array_append_new(list, run) == 0 ||
                       error_set(error, ERROR_FAILED, "%s: no memory for the report", path));
    }
    json_t *root = done ? json_pack("{s:s, s:O, s:o}", "version", FLAMIA_VERSION, "runs", list, "probes",
                                    probes ? json_incref(probes) : json_array())
                        : NULL;
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    json_decref(list);
    if (done && !text) {
        done = error_set(error, ERROR_FAILED, "%s: no memory for the report", path);
    }
    done = done && write_page(path, text, error);
    free(text);
    return done;
}
