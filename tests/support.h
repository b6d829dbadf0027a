/* support.h: what every suite needs: fresh random inputs whose seed is printed, a scratch folder, a size limit. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

/* Random numbers: a generator per test, seeded from CHECK_SEED (fresh if unset; printed by the runner) and the test's
 * own number. */
struct random_stream {
    uint64_t state;
};
struct random_stream random_stream(uint64_t test);
uint64_t random_bits(struct random_stream *stream);
double random_uniform(struct random_stream *stream); /* [0, 1) */
double random_normal(struct random_stream *stream);
size_t random_below(struct random_stream *stream, size_t count);
void random_normals(struct random_stream *stream, float *x, size_t count, float scale);

/* `tokens` cut to CHECK_TOKENS if that is set (the sanitizer run sets 160). */
size_t test_tokens(size_t tokens);

/* True under make check-sanitize: long repetitions may be shortened, never skipped. */
int test_is_sanitized(void);

/* A fresh folder under the build folder, removed at exit of the runner. The text lives until then. */
const char *scratch_folder(void);

/* ||x - y|| / ||y||, FP64; NaN if anything is. */
double relative_error(const float *x, const float *y, size_t count);
double cosine(const float *x, const float *y, size_t count);

/* ck_assert_msg for inner loops: Check's own writes to a file each time it is passed, a microsecond that adds up. */
#define expect(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            ck_abort_msg(__VA_ARGS__);                                                                                 \
        }                                                                                                              \
    } while (0)

void *test_alloc(size_t bytes); /* malloc that aborts the test on failure, filled with 0xFF: poison */

#endif
