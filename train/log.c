/* log.c: see log.h. */
#include "train/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data/file.h"

json_t *log_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* True if a line is a whole record that a run resumed at `step` still stands by. */
static bool still_stands(const char *line, size_t length, int64_t step)
{
    json_t *record = json_loadb(line, length, 0, NULL);
    const json_t *number = json_object_get(record, "step");
    const char *event = json_string_value(json_object_get(record, "event"));
    const bool stands = json_is_object(record) && event && strcmp(event, "end") != 0 &&
                        (!json_is_integer(number) || json_integer_value(number) <= step);
    json_decref(record);
    return stands;
}

/* Copies the lines that stand to the front; returns their bytes. A last line without its newline is torn. */
static size_t keep_lines(char *text, size_t bytes, int64_t step)
{
    size_t kept = 0;
    for (char *line = text, *end; (end = memchr(line, '\n', bytes - (size_t)(line - text))); line = end + 1) {
        const size_t length = (size_t)(end - line) + 1;
        if (still_stands(line, length, step)) {
            memmove(text + kept, line, length);
            kept += length;
        }
    }
    return kept;
}

static bool drop_later(const char *path, int64_t step, struct error *error)
{
    struct file file;
    if (access(path, F_OK) != 0) {
        return true;
    }
    if (!file_open(&file, path, error)) {
        return false;
    }
    const size_t bytes = (size_t)file.size;
    char *text = malloc(bytes + 1);
    bool done = false;
    if (!text) {
        error_set(error, ERROR_FAILED, "%s: no memory for its %zu bytes", path, bytes);
    } else if (file_read(&file, 0, text, bytes, error)) {
        text[bytes] = 0;
        const size_t kept = keep_lines(text, bytes, step);
        done = kept == bytes || file_write_whole(path, text, kept, error);
    }
    free(text);
    file_close(&file);
    return done;
}

bool log_open(struct log *log, const char *run_folder, int64_t resumed_step, struct error *error)
{
    const size_t bytes = strlen(run_folder) + sizeof "/log.jsonl";
    *log = (struct log){malloc(bytes), -1};
    if (!log->path) {
        return error_set(error, ERROR_FAILED, "%s: no memory for the log's path", run_folder);
    }
    snprintf(log->path, bytes, "%s/log.jsonl", run_folder);
    if (resumed_step >= 0 && !drop_later(log->path, resumed_step, error)) {
        log_close(log);
        return false;
    }
    log->fd = open(log->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | (resumed_step < 0 ? O_EXCL : 0), 0666);
    if (log->fd < 0) {
        error_set(error, ERROR_FAILED, "%s: the log cannot be opened for appending: %s", log->path, strerror(errno));
        log_close(log);
        return false;
    }
    return true;
}

static bool write_line(const struct log *log, const char *line, size_t bytes, struct error *error)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t count = write(log->fd, line + done, bytes - done);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return error_set(error, ERROR_FAILED, "%s: a record cannot be written: %s; is the disk full?", log->path,
                             strerror(count < 0 ? errno : ENOSPC));
        }
        done += (size_t)count;
    }
    return true;
}

bool log_write(struct log *log, const char *event, json_t *record, struct error *error)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *line = json_pack("{s:s}", "event", event);
    const bool built =
        line && record && json_object_update(line, record) == 0 &&
        json_object_set_new(line, "time", json_real((double)now.tv_sec + 1e-9 * (double)now.tv_nsec)) == 0;
    char *text = built ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(line);
    json_decref(record);
    if (!text) {
        return error_set(error, ERROR_FAILED, "%s: no memory for a record", log->path);
    }
    const size_t length = strlen(text);
    text[length] = '\n'; /* in place of the terminator: json_dumps gives exactly that much more */
    const bool done = write_line(log, text, length + 1, error);
    free(text);
    return done;
}

void log_close(struct log *log)
{
    if (log->fd >= 0) {
        close(log->fd);
    }
    free(log->path);
    *log = (struct log){NULL, -1};
}
