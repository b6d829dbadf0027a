/* signals.c: see signals.h. */
#include "train/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* The one variable of the program that is no one's: a handler has nothing else to write to. */
static volatile sig_atomic_t requested;

static void request(int number)
{
    if (requested) {
        signal(number, SIG_DFL);
        raise(number);
    }
    requested = number;
}

static bool handle(int number, void (*handler)(int), struct error *error)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    return sigaction(number, &action, NULL) == 0 ||
           error_set(error, ERROR_FAILED, "signal %d cannot be handled: %s", number, strerror(errno));
}

bool signals_install(struct error *error)
{
    requested = 0;
    return handle(SIGTERM, request, error) && handle(SIGINT, request, error) && handle(SIGXFSZ, SIG_IGN, error) &&
           handle(SIGPIPE, SIG_IGN, error);
}

int signals_requested(void)
{
    return requested;
}
