/* split.c: shares of a data set, written as "90/5/5" per cent. */
#include <string.h>

#include "data/dataset.h"

#define PARTS  3
#define WHOLE  100000 /* 100 per cent, in thousandths */
#define DIGITS 3

/* Reads one share, digits with at most three decimals, in thousandths of a per cent; -1 if it is none, or above 100. */
static long read_share(const char **text)
{
    const char *c = *text;
    long value = 0;
    int digits = 0, decimals = -1;
    for (; (*c >= '0' && *c <= '9') || (*c == '.' && decimals < 0); c++) {
        if (*c == '.') {
            decimals = 0;
            continue;
        }
        value = 10 * value + (*c - '0');
        digits++;
        decimals += decimals >= 0;
        if (decimals > DIGITS || value > WHOLE) {
            return -1;
        }
    }
    for (int i = decimals < 0 ? 0 : decimals; i < DIGITS; i++) {
        value *= 10;
    }
    *text = c;
    return digits > 0 && decimals != 0 && value <= WHOLE ? value : -1;
}

/* total * share / WHOLE, rounded down, without overflow. */
static size_t boundary(size_t total, long share)
{
    return total / WHOLE * (size_t)share + total % WHOLE * (size_t)share / WHOLE;
}

bool dataset_split(const struct dataset *dataset, const char *split, int part, size_t *begin, size_t *end,
                   struct error *error)
{
    long shares[PARTS] = {0};
    const char *c = split;
    int count = 0;
    bool valid = true;
    while (valid && count < PARTS) {
        shares[count] = read_share(&c);
        valid = shares[count++] >= 0;
        if (*c != '/') {
            break;
        }
        c++;
        valid = valid && count < PARTS;
    }
    if (!valid || *c != '\0' || shares[0] + shares[1] + shares[2] != WHOLE) {
        return error_set(error, ERROR_USAGE,
                         "split \"%.60s\": expected up to three shares in per cent that sum to 100, for training, "
                         "validation and test, as 90/5/5",
                         split);
    }
    if (part < 0 || part >= PARTS) {
        return error_set(error, ERROR_USAGE, "split \"%.60s\" has no part %d: 0 is training, 1 validation, 2 test",
                         split, part);
    }
    long before = 0;
    for (int i = 0; i < part; i++) {
        before += shares[i];
    }
    *begin = boundary(dataset_tokens(dataset), before);
    *end = boundary(dataset_tokens(dataset), before + shares[part]);
    return true;
}
