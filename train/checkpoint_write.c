/* checkpoint_write.c: saving. See checkpoint.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint_parts.h"

#define TENSOR_NAME 96

void checkpoint_tensor_name(char *name, size_t size, const char *prefix, const struct parameter *parameter)
{
    snprintf(name, size, "%s%s", prefix, parameter->name);
}

bool checkpoint_join(char *path, const char *folder, const char *name, struct error *error)
{
    const int length = snprintf(path, CHECKPOINT_PATH, "%s/%s", folder, name);
    return (length >= 0 && length < CHECKPOINT_PATH) ||
           error_set(error, ERROR_FAILED, "%.200s/%s: the path is longer than %d bytes", folder, name,
                     CHECKPOINT_PATH - 1);
}

static bool make_folder(const char *path, struct error *error)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ||
           error_set(error, ERROR_FAILED, "%s: the folder cannot be made: %s", path, strerror(errno));
}

/* ---- removing ---- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static bool remove_tree(const char *path, struct error *error)
{
    struct stat status;
    if (lstat(path, &status) != 0 && errno == ENOENT) {
        return true;
    }
    return nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0 ||
           error_set(error, ERROR_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
}

/* ---- tensors ---- */

struct tensor_list {
    struct tensor_source *tensors;
    char (*names)[TENSOR_NAME];
    size_t count;
};

static void add_tensors(struct tensor_list *list, const struct parameter_table *table, const char *prefix,
                        const float *values)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct parameter *parameter = &table->entries[i];
        struct tensor_source *tensor = &list->tensors[list->count];
        checkpoint_tensor_name(list->names[list->count], TENSOR_NAME, prefix, parameter);
        *tensor = (struct tensor_source){.name = list->names[list->count],
                                         .type = TENSOR_F32,
                                         .dimensions = parameter->columns > 1 ? 2 : 1,
                                         .shape = {(int64_t)parameter->rows, (int64_t)parameter->columns},
                                         .data = values + parameter->offset};
        list->count++;
    }
}

/* One file: the tensors of one or two flat buffers. */
static bool write_tensors(const char *path, const struct parameter_table *table, const char *const *prefixes,
                          const float *const *buffers, size_t buffer_count, struct error *error)
{
    const struct tensor_text metadata = {"format", "flamia"};
    struct tensor_list list = {calloc(buffer_count * table->count, sizeof *list.tensors),
                               calloc(buffer_count * table->count, sizeof *list.names), 0};
    bool done = false;
    if (!list.tensors || !list.names) {
        error_set(error, ERROR_FAILED, "%s: no memory for a list of tensors", path);
    } else {
        for (size_t i = 0; i < buffer_count; i++) {
            add_tensors(&list, table, prefixes[i], buffers[i]);
        }
        done = safetensors_write(path, list.tensors, list.count, &metadata, 1, error);
    }
    free(list.tensors);
    free(list.names);
    return done;
}

static bool write_files(const char *folder, const struct training_state *state, struct checkpoint_info *info,
                        struct error *error)
{
    const struct parameter_table *table = network_table(state->network);
    const char *const weight_prefix[] = {""}, *const moment_prefixes[] = {"mean.", "square."};
    const float *const weights[] = {network_parameters(state->network)};
    const float *const moments[] = {state->adamw.mean, state->adamw.square};
    char paths[CHECKPOINT_FILES][CHECKPOINT_PATH];
    for (size_t i = 0; i < CHECKPOINT_FILES; i++) {
        if (!checkpoint_join(paths[i], folder, checkpoint_file_names[i], error)) {
            return false;
        }
    }
    if (!write_tensors(paths[0], table, weight_prefix, weights, 1, error) ||
        !write_tensors(paths[1], table, moment_prefixes, moments, 2, error)) {
        return false;
    }
    for (size_t i = 0; i < CHECKPOINT_FILES; i++) {
        if (!checkpoint_measure(paths[i], &info->files[i].bytes, &info->files[i].checksum, error)) {
            return false;
        }
    }
    return true;
}

static bool write_text(const char *folder, const char *name, const char *text, struct error *error)
{
    char path[CHECKPOINT_PATH];
    return checkpoint_join(path, folder, name, error) && file_write_whole(path, text, strlen(text), error);
}

/* Everything into `folder`, the marker last. */
static bool write_all(const char *folder, const struct training_state *state, const struct settings *settings,
                      uint64_t data_identity, struct error *error)
{
    struct checkpoint_info info = {.settings = *settings,
                                   .step = state->step,
                                   .updates = state->adamw.updates,
                                   .skipped = state->skipped,
                                   .tokens = state->tokens,
                                   .sample = state->sample,
                                   .seconds = state->seconds,
                                   .data_identity = data_identity};
    checkpoint_describe_machine(&info);
    if (!write_files(folder, state, &info, error)) {
        return false;
    }
    char *text = checkpoint_state_text(&info), marker[CHECKPOINT_MARKER + 1];
    if (!text) {
        return error_set(error, ERROR_FAILED, "%s: no memory for state.json", folder);
    }
    checkpoint_marker(marker, text, strlen(text));
    const bool done = write_text(folder, "state.json", text, error) && write_text(folder, "COMPLETE", marker, error);
    free(text);
    return done;
}

/* ---- the final name, and pruning ---- */

/* Puts `made` in place of `final`, which may exist: swapped in one step where the file system can, so that there is a
 * checkpoint of that name at every moment. */
static bool take_name(const char *made, const char *final, struct error *error)
{
    if (renameat2(AT_FDCWD, made, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        return remove_tree(made, error);
    }
    if (rename(made, final) == 0) { /* there was none, or an empty one */
        return true;
    }
    if ((errno == EEXIST || errno == ENOTEMPTY) && remove_tree(final, error) && rename(made, final) == 0) {
        return true;
    }
    return error_set(error, ERROR_FAILED, "%s: cannot take the name %s: %s", made, final, strerror(errno));
}

static int descending(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* Steps of the checkpoints in a folder that are whole by their files' sizes, newest first; the caller frees them. */
static int64_t *whole_steps(const char *checkpoints, size_t *count, struct error *error)
{
    DIR *directory = opendir(checkpoints);
    int64_t *steps = NULL;
    size_t capacity = 0;
    *count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char folder[CHECKPOINT_PATH];
        const int64_t step = checkpoint_step_of(entry->d_name);
        struct checkpoint_info info;
        struct error damaged;
        if (step < 0 || !checkpoint_join(folder, checkpoints, entry->d_name, error) ||
            !checkpoint_check(folder, false, &info, &damaged)) {
            continue;
        }
        if (*count == capacity) {
            capacity = 2 * capacity + 8;
            int64_t *more = realloc(steps, capacity * sizeof *steps);
            if (!more) {
                break; /* fewer are pruned, none too many */
            }
            steps = more;
        }
        steps[(*count)++] = step;
    }
    if (directory) {
        closedir(directory);
    }
    if (steps) {
        qsort(steps, *count, sizeof *steps, descending);
    }
    return steps;
}

/* Deletes whole checkpoints after step `newest`, which a run that went on from an earlier step has left behind, as the
 * log drops their records; and of the others all but the newest `keep` (0: none). */
static bool prune(const char *checkpoints, int64_t newest, int64_t keep, struct error *error)
{
    size_t count;
    int64_t kept = 0;
    bool done = true;
    int64_t *steps = whole_steps(checkpoints, &count, error);
    for (size_t i = 0; done && i < count; i++) {
        if (steps[i] <= newest && (keep == 0 || kept < keep)) {
            kept++;
            continue;
        }
        char name[32], path[CHECKPOINT_PATH];
        snprintf(name, sizeof name, "step_%08" PRId64, steps[i]);
        done = checkpoint_join(path, checkpoints, name, error) && remove_tree(path, error);
    }
    free(steps);
    return done;
}

bool checkpoint_save(const char *run_folder, const struct training_state *state, const struct settings *settings,
                     uint64_t data_identity, char *saved, struct error *error)
{
    char checkpoints[CHECKPOINT_PATH], made[CHECKPOINT_PATH], final[CHECKPOINT_PATH], name[40];
    snprintf(name, sizeof name, "step_%08" PRId64, state->step);
    if (!checkpoint_join(checkpoints, run_folder, "checkpoints", error) || !make_folder(run_folder, error) ||
        !make_folder(checkpoints, error) || !checkpoint_join(made, checkpoints, ".saving", error) ||
        !checkpoint_join(final, checkpoints, name, error)) {
        return false;
    }
    if (!remove_tree(made, error) || !make_folder(made, error)) { /* what a killed save left */
        return false;
    }
    if (!write_all(made, state, settings, data_identity, error) || !file_sync_folder(made, error) ||
        !take_name(made, final, error)) {
        remove_tree(made, NULL);
        return false;
    }
    if (saved) {
        snprintf(saved, CHECKPOINT_PATH, "%s", final);
    }
    return file_sync_folder(checkpoints, error) && file_sync_folder(run_folder, error) &&
           prune(checkpoints, state->step, settings->keep, error);
}
