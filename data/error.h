/* error.h: how every part but attention/ says what went wrong.
 *
 * A function that can fail returns bool (true: done) or a pointer (NULL: failed) and fills its caller's `struct error`
 * with one message that says what, where (file, offset, option), what was expected, what was found and what to do next.
 * The message is printed once, by main, behind "flamia: ". `code` is the process's exit status.
 */
#ifndef DATA_ERROR_H
#define DATA_ERROR_H

#include <stdarg.h>
#include <stdbool.h>

enum error_code {
    ERROR_NONE = 0,
    ERROR_FAILED = 1,    /* everything but the two below */
    ERROR_USAGE = 2,     /* the command line or a configuration file is wrong; nothing was done */
    ERROR_NONFINITE = 3, /* training met a NaN or an infinity and stopped */
};

struct error {
    int code;
    char text[512];
};

/* Formats a message into `error` (which may be NULL) and returns false, so that `return error_set(...)` reads well. A
 * message that does not fit is cut and ends in "...". */
bool error_set(struct error *error, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Static analysis does not see across files that the answer is always false. */
#ifdef __clang_analyzer__
#define error_set(...) (error_set(__VA_ARGS__), false)
#endif

#endif
