/* adamw_cpu.c: update and gradient norm on the CPU. */
#include <math.h>

#include "train/adamw.h"

#define CHUNK  8192 /* elements a thread takes at a time */
#define SLICES 256  /* of the norm: fixed, so that the order of summation is */

struct constants {
    float scale, beta1, beta2, rest1, rest2, rate, root, epsilon, keep;
};

static void update(const struct constants *c, size_t count, float *restrict p, const float *restrict g,
                   float *restrict m, float *restrict v)
{
    for (size_t i = 0; i < count; i++) {
        const float gradient = c->scale * g[i];
        m[i] = c->beta1 * m[i] + c->rest1 * gradient;
        v[i] = c->beta2 * v[i] + c->rest2 * gradient * gradient;
        p[i] = c->keep * p[i] - c->rate * m[i] / (sqrtf(v[i]) * c->root + c->epsilon);
    }
}

void adamw_update_cpu(struct adamw *adamw, const struct parameter_table *table, const struct adamw_settings *settings,
                      float *parameters, const float *gradients)
{
    const double t = (double)++adamw->updates;
    const struct constants plain = {
        .scale = (float)settings->gradient_scale,
        .beta1 = (float)settings->beta1,
        .beta2 = (float)settings->beta2,
        .rest1 = (float)(1 - settings->beta1),
        .rest2 = (float)(1 - settings->beta2),
        .rate = (float)(settings->learning_rate / (1 - pow(settings->beta1, t))),
        .root = (float)(1 / sqrt(1 - pow(settings->beta2, t))),
        .epsilon = (float)settings->epsilon,
        .keep = 1,
    };
    struct constants decaying = plain;
    decaying.keep = (float)(1 - settings->learning_rate * settings->weight_decay);
#pragma omp parallel
    for (size_t i = 0; i < table->count; i++) {
        const struct parameter *const tensor = &table->entries[i];
        const struct constants *const constants = tensor->decays ? &decaying : &plain;
        const size_t size = tensor->rows * tensor->columns, end = tensor->offset + size;
#pragma omp for schedule(static) nowait
        for (size_t first = tensor->offset; first < end; first += CHUNK) {
            const size_t count = end - first < CHUNK ? end - first : CHUNK;
            update(constants, count, parameters + first, gradients + first, adamw->mean + first, adamw->square + first);
        }
    }
}

static double sum_of_squares(const float *x, size_t count)
{
    double lanes[8] = {0}; /* a fixed order that a compiler can still vectorise */
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (size_t lane = 0; lane < 8; lane++) {
            lanes[lane] += (double)x[i + lane] * (double)x[i + lane];
        }
    }
    for (; i < count; i++) {
        lanes[i % 8] += (double)x[i] * (double)x[i];
    }
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double gradient_norm_cpu(const float *gradients, size_t elements)
{
    double partial[SLICES];
    const size_t slice = (elements + SLICES - 1) / SLICES;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < SLICES; i++) {
        const size_t first = i * slice < elements ? i * slice : elements;
        partial[i] = sum_of_squares(gradients + first, elements - first < slice ? elements - first : slice);
    }
    double sum = 0;
    for (size_t i = 0; i < SLICES; i++) {
        sum += partial[i];
    }
    return sqrt(sum);
}
