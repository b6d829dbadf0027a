/* error.c: formats the one line that an error is. */
#include "data/error.h"

#undef error_set

#include <stdio.h>
#include <string.h>

bool error_set(struct error *error, enum error_code code, const char *format, ...)
{
    if (!error) {
        return false;
    }
    /* Arguments may lie in error->text itself (a message put before an earlier one), so it is written apart and copied.
     */
    char text[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error->code = code;
    if (length < 0) {
        snprintf(text, sizeof text, "%s", format); /* an encoding error: the bare format still says what went wrong */
    } else if ((size_t)length >= sizeof text) {
        memcpy(text + sizeof text - sizeof "...", "...", sizeof "...");
    }
    memcpy(error->text, text, sizeof text);
    return false;
}
