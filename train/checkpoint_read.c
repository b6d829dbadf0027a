/* checkpoint_read.c: finding and reading checkpoints. See checkpoint.h. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint_parts.h"

#define CHUNK ((size_t)1 << 20)

bool checkpoint_measure(const char *path, uint64_t *bytes, uint64_t *checksum, struct error *error)
{
    struct file file;
    if (!file_open(&file, path, error)) {
        return false;
    }
    uint8_t *buffer = malloc(CHUNK);
    bool done = buffer || error_set(error, ERROR_FAILED, "%s: no memory to read it", path);
    uint64_t sum = FILE_CHECKSUM_START;
    for (uint64_t offset = 0; checksum && done && offset < file.size; offset += CHUNK) {
        const size_t count = file.size - offset < CHUNK ? (size_t)(file.size - offset) : CHUNK;
        done = file_read(&file, offset, buffer, count, error);
        sum = done ? file_checksum(sum, buffer, count) : 0;
    }
    *bytes = file.size;
    if (checksum) {
        *checksum = sum;
    }
    free(buffer);
    file_close(&file);
    return done;
}

int64_t checkpoint_step_of(const char *name)
{
    static const char prefix[] = "step_";
    char same[40];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
        return -1;
    }
    const int64_t step = strtoll(name + sizeof prefix - 1, NULL, 10); /* what else there is makes it differ below */
    if (step < 0) {
        return -1;
    }
    snprintf(same, sizeof same, "step_%08" PRId64, step);
    return strcmp(name, same) == 0 ? step : -1;
}

static bool exists(const char *folder, const char *name)
{
    char path[CHECKPOINT_PATH];
    return checkpoint_join(path, folder, name, NULL) && access(path, F_OK) == 0;
}

/* ---- state.json and what it promises ---- */

/* A small file whole, to be freed; a 0 follows its bytes. */
static char *read_small(const char *folder, const char *name, size_t *bytes, struct error *error)
{
    char path[CHECKPOINT_PATH];
    struct file file;
    if (!checkpoint_join(path, folder, name, error) || !file_open(&file, path, error)) {
        return NULL;
    }
    char *text = file.size <= CHUNK ? calloc((size_t)file.size + 1, 1) : NULL;
    *bytes = (size_t)file.size;
    if (!text) {
        error_set(error, ERROR_FAILED, "%s: %" PRIu64 " bytes, expected at most %zu", path, file.size, CHUNK);
    } else if (!file_read(&file, 0, text, *bytes, error)) {
        free(text);
        text = NULL;
    }
    file_close(&file);
    return text;
}

/* Reads state.json, which must be the one that COMPLETE was written for. */
static bool read_state(const char *folder, struct checkpoint_info *info, struct error *error)
{
    char path[CHECKPOINT_PATH], expected[CHECKPOINT_MARKER + 1];
    size_t bytes = 0, marker_bytes = 0;
    char *text = read_small(folder, "state.json", &bytes, error);
    char *marker = text ? read_small(folder, "COMPLETE", &marker_bytes, error) : NULL;
    bool done = marker && checkpoint_join(path, folder, "state.json", error);
    if (done) {
        checkpoint_marker(expected, text, bytes);
        done = (marker_bytes == CHECKPOINT_MARKER && memcmp(marker, expected, CHECKPOINT_MARKER) == 0) ||
               error_set(error, ERROR_FAILED,
                         "%s: checksum %.16s, COMPLETE says %.16s: one of them is damaged; use another checkpoint",
                         path, expected, marker);
    }
    done = done && checkpoint_parse_state(text, bytes, path, info, error);
    free(text);
    free(marker);
    return done;
}

bool checkpoint_check(const char *folder, bool deep, struct checkpoint_info *info, struct error *error)
{
    if (!exists(folder, "COMPLETE")) {
        return error_set(error, ERROR_FAILED,
                         "%s: no file COMPLETE in it: the checkpoint was not finished; use another", folder);
    }
    if (!read_state(folder, info, error)) {
        return false;
    }
    for (size_t i = 0; i < CHECKPOINT_FILES; i++) {
        char path[CHECKPOINT_PATH];
        uint64_t bytes, checksum = info->files[i].checksum;
        if (!checkpoint_join(path, folder, checkpoint_file_names[i], error) ||
            !checkpoint_measure(path, &bytes, deep ? &checksum : NULL, error)) {
            return false;
        }
        if (bytes != info->files[i].bytes) {
            return error_set(error, ERROR_FAILED,
                             "%s: %" PRIu64 " bytes, state.json says %" PRIu64
                             ": the file was cut; use another checkpoint",
                             path, bytes, info->files[i].bytes);
        }
        if (checksum != info->files[i].checksum) {
            return error_set(error, ERROR_FAILED,
                             "%s: checksum %016" PRIx64 ", state.json says %016" PRIx64
                             ": the file is damaged; use another checkpoint",
                             path, checksum, info->files[i].checksum);
        }
    }
    return true;
}

bool checkpoint_read_info(const char *folder, struct checkpoint_info *info, struct error *error)
{
    return checkpoint_check(folder, true, info, error);
}

/* ---- finding ---- */

/* The newest step below `below` in a folder of checkpoints; -1: none. */
static int64_t newest_below(const char *checkpoints, int64_t below)
{
    DIR *directory = opendir(checkpoints);
    int64_t newest = -1;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const int64_t step = checkpoint_step_of(entry->d_name);
        newest = step > newest && step < below ? step : newest;
    }
    if (directory) {
        closedir(directory);
    }
    return newest;
}

/* The newest whole one of a run; those that are not are named on stderr and passed over. */
static bool find_newest(const char *checkpoints, char folder[CHECKPOINT_PATH], struct error *error)
{
    struct error damage = {ERROR_NONE, ""};
    for (int64_t step = newest_below(checkpoints, INT64_MAX); step >= 0; step = newest_below(checkpoints, step)) {
        char name[32], path[CHECKPOINT_PATH];
        struct checkpoint_info info;
        snprintf(name, sizeof name, "step_%08" PRId64, step);
        if (!checkpoint_join(path, checkpoints, name, error)) {
            return false;
        }
        if (checkpoint_read_info(path, &info, &damage)) {
            snprintf(folder, CHECKPOINT_PATH, "%s", path);
            return true;
        }
        fprintf(stderr, "flamia: passing over a checkpoint: %s\n", damage.text);
    }
    if (damage.code != ERROR_NONE) {
        return error_set(error, ERROR_FAILED, "%s: none of its checkpoints is whole; the last reason: %.200s",
                         checkpoints, damage.text);
    }
    *error = (struct error){ERROR_NONE, ""};
    return false;
}

bool checkpoint_find(const char *where, char folder[CHECKPOINT_PATH], struct error *error)
{
    char checkpoints[CHECKPOINT_PATH];
    struct checkpoint_info info;
    if (strlen(where) >= SETTINGS_PATH - 64) {
        return error_set(error, ERROR_FAILED, "%.200s...: the path is too long", where);
    }
    if (exists(where, "state.json") || exists(where, "COMPLETE")) {
        snprintf(folder, CHECKPOINT_PATH, "%s", where);
        return checkpoint_read_info(where, &info, error);
    }
    return checkpoint_join(checkpoints, where, "checkpoints", error) && find_newest(checkpoints, folder, error);
}

bool checkpoint_run_exists(const char *run_folder)
{
    char checkpoints[CHECKPOINT_PATH];
    return exists(run_folder, "log.jsonl") || exists(run_folder, "config.json") ||
           (checkpoint_join(checkpoints, run_folder, "checkpoints", NULL) && newest_below(checkpoints, INT64_MAX) >= 0);
}

/* ---- tensors ---- */

static bool read_tensors(const struct safetensors *file, const struct parameter_table *table, const char *prefix,
                         float *values, struct error *error)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct parameter *parameter = &table->entries[i];
        const int64_t shape[] = {(int64_t)parameter->rows, (int64_t)parameter->columns};
        char name[96];
        checkpoint_tensor_name(name, sizeof name, prefix, parameter);
        const struct tensor_entry *entry =
            safetensors_expect(file, name, TENSOR_F32, parameter->columns > 1 ? 2 : 1, shape, error);
        if (!entry || !safetensors_read(file, entry, values + parameter->offset, error)) {
            return false;
        }
    }
    return true;
}

static bool read_file(const char *folder, size_t index, const struct parameter_table *table,
                      const char *const *prefixes, float *const *buffers, size_t buffer_count, struct error *error)
{
    char path[CHECKPOINT_PATH];
    if (!checkpoint_join(path, folder, checkpoint_file_names[index], error)) {
        return false;
    }
    struct safetensors *file = safetensors_open(path, error);
    bool done = file != NULL;
    if (done && safetensors_count(file) != buffer_count * table->count) {
        done = error_set(error, ERROR_FAILED, "%s: %zu tensors, the model has %zu: it is another model's checkpoint",
                         path, safetensors_count(file), buffer_count * table->count);
    }
    for (size_t i = 0; done && i < buffer_count; i++) {
        done = read_tensors(file, table, prefixes[i], buffers[i], error);
    }
    if (file) {
        safetensors_close(file);
    }
    return done;
}

bool checkpoint_read_weights(const char *folder, struct network *network, struct error *error)
{
    const char *const prefix[] = {""};
    float *const weights[] = {network_parameters(network)};
    return read_file(folder, 0, network_table(network), prefix, weights, 1, error);
}

bool checkpoint_read(const char *folder, const struct checkpoint_info *info, struct training_state *state,
                     struct error *error)
{
    const char *const prefixes[] = {"mean.", "square."};
    float *const moments[] = {state->adamw.mean, state->adamw.square};
    if (!checkpoint_read_weights(folder, state->network, error) ||
        !read_file(folder, 1, network_table(state->network), prefixes, moments, 2, error)) {
        return false;
    }
    state->adamw.updates = info->updates;
    state->step = info->step;
    state->sample = info->sample;
    state->skipped = info->skipped;
    state->tokens = info->tokens;
    state->seconds = info->seconds;
    return true;
}

/* ---- may this run go on from that checkpoint? ---- */

struct field {
    const char *name;
    double saved, now;
};

static bool same_model(const struct model_config *saved, const struct model_config *now, const char *folder,
                       struct error *error)
{
    const struct field fields[] = {{"family (0 gpt2, 1 llama)", saved->family, now->family},
                                   {"layers", (double)saved->layers, (double)now->layers},
                                   {"width", (double)saved->width, (double)now->width},
                                   {"heads", (double)saved->heads, (double)now->heads},
                                   {"kv-heads", (double)saved->kv_heads, (double)now->kv_heads},
                                   {"head-dim", (double)saved->head_dim, (double)now->head_dim},
                                   {"ffn", (double)saved->ffn, (double)now->ffn},
                                   {"vocabulary", (double)saved->vocabulary, (double)now->vocabulary},
                                   {"context", (double)saved->context, (double)now->context},
                                   {"tied", saved->tied_head, now->tied_head},
                                   {"norm-epsilon", (double)saved->norm_epsilon, (double)now->norm_epsilon},
                                   {"rope-base", (double)saved->rope_base, (double)now->rope_base}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].saved != fields[i].now) {
            return error_set(
                error, ERROR_USAGE,
                "%s: its model has %s %.15g, this run has %.15g: give the options of the run that saved it", folder,
                fields[i].name, fields[i].saved, fields[i].now);
        }
    }
    return true;
}

bool checkpoint_agrees(const struct checkpoint_info *info, const struct settings *settings, uint64_t data_identity,
                       const char *folder, struct error *error)
{
    if (!same_model(&info->settings.model, &settings->model, folder, error)) {
        return false;
    }
    if (info->data_identity != data_identity) {
        return error_set(error, ERROR_USAGE,
                         "%s: it was trained on data %016" PRIx64 " (%.150s), --data is %016" PRIx64
                         ": the order of samples would not go on",
                         folder, info->data_identity, info->settings.data, data_identity);
    }
    struct checkpoint_info here;
    checkpoint_describe_machine(&here);
    if (here.threads != info->threads || strcmp(here.blas, info->blas) != 0 || strcmp(here.build, info->build) != 0) {
        fprintf(stderr,
                "flamia: %s was saved by version %s with %" PRId64
                " threads and OpenBLAS for %s; this is version %s with %" PRId64
                " and %s: the run goes on, its last bits may differ\n",
                folder, info->build, info->threads, info->blas, here.build, here.threads, here.blas);
    }
    return true;
}
