/* support.c: see support.h. */
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

struct random_stream random_stream(uint64_t test)
{
    const char *seed = getenv("CHECK_SEED"); /* the runner sets it when the caller did not */
    return (struct random_stream){
        mix(strtoull(seed ? seed : "1", NULL, 0) + UINT64_C(0x9E3779B97F4A7C15) * (test + 1))};
}

uint64_t random_bits(struct random_stream *stream)
{
    stream->state += UINT64_C(0x9E3779B97F4A7C15);
    return mix(stream->state);
}

double random_uniform(struct random_stream *stream)
{
    return (double)(random_bits(stream) >> 11) * 0x1p-53;
}

double random_normal(struct random_stream *stream)
{
    const double radius = sqrt(-2.0 * log(1.0 - random_uniform(stream)));
    return radius * cos(6.283185307179586 * random_uniform(stream));
}

size_t random_below(struct random_stream *stream, size_t count)
{
    return (size_t)(random_uniform(stream) * (double)count);
}

void random_normals(struct random_stream *stream, float *x, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = scale * (float)random_normal(stream);
    }
}

size_t test_tokens(size_t tokens)
{
    const char *limit = getenv("CHECK_TOKENS");
    const size_t most = limit ? strtoull(limit, NULL, 10) : tokens;
    return most > 0 && most < tokens ? most : tokens;
}

int test_is_sanitized(void)
{
    return getenv("CHECK_TOKENS") != NULL;
}

double relative_error(const float *x, const float *y, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        const double delta = (double)x[i] - (double)y[i];
        difference += delta * delta;
        norm += (double)y[i] * (double)y[i];
    }
    return norm == 0 ? sqrt(difference) : sqrt(difference / norm);
}

double cosine(const float *x, const float *y, size_t count)
{
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < count; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xy / sqrt(xx * yy);
}

void *test_alloc(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "test_alloc: no %zu bytes\n", bytes);
        abort();
    }
    return memset(memory, 0xFF, bytes);
}

const char *scratch_folder(void)
{
    /* Made on first use in each test process; the runner removes CHECK_SCRATCH as a whole. */
    static char folder[512]; /* one test process: Check forks for each test */
    static unsigned made;
    const char *top = getenv("CHECK_SCRATCH");
    snprintf(folder, sizeof folder, "%s/%d_%u_XXXXXX", top ? top : "/tmp", (int)getpid(), made++);
    if (!mkdtemp(folder)) {
        perror(folder);
        abort();
    }
    return folder;
}
