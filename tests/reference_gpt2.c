/* reference_gpt2.c: see reference_gpt2.h. n: tokens of the document; matrices are [rows][columns], row after row. */
#include "tests/reference_gpt2.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/support.h"

struct reference {
    const struct parameter_table *table;
    const struct model_config *config;
    const double *parameters;
    double *gradients;
    size_t n;
};

/* What the backward of one layer needs of its forward. */
struct saved {
    double *input, *norm1, *qkv, *probability, *attention, *middle, *norm2, *up, *active;
};

static double *zeros(size_t count)
{
    double *x = calloc(count, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

static size_t offset(const struct reference *r, enum parameter_kind kind, size_t layer)
{
    return parameter_find(r->table, kind, layer)->offset;
}

/* y [n][rows] = x [n][columns] w^T + b */
static void linear(const struct reference *r, size_t w, size_t b, const double *x, double *y, size_t rows,
                   size_t columns)
{
    for (size_t t = 0; t < r->n; t++) {
        for (size_t i = 0; i < rows; i++) {
            double sum = r->parameters[b + i];
            for (size_t j = 0; j < columns; j++) {
                sum += r->parameters[w + i * columns + j] * x[t * columns + j];
            }
            y[t * rows + i] = sum;
        }
    }
}

static void linear_back(const struct reference *r, size_t w, size_t b, const double *x, const double *dy, double *dx,
                        size_t rows, size_t columns)
{
    for (size_t t = 0; t < r->n; t++) {
        for (size_t i = 0; i < rows; i++) {
            const double d = dy[t * rows + i];
            r->gradients[b + i] += d;
            for (size_t j = 0; j < columns; j++) {
                r->gradients[w + i * columns + j] += d * x[t * columns + j];
                dx[t * columns + j] += d * r->parameters[w + i * columns + j];
            }
        }
    }
}

static void moments(const struct reference *r, const double *x, double *mean, double *inverse)
{
    const size_t width = r->config->width;
    double sum = 0, squares = 0;
    for (size_t c = 0; c < width; c++) {
        sum += x[c];
    }
    *mean = sum / (double)width;
    for (size_t c = 0; c < width; c++) {
        squares += (x[c] - *mean) * (x[c] - *mean);
    }
    *inverse = 1 / sqrt(squares / (double)width + (double)r->config->norm_epsilon);
}

static void norm(const struct reference *r, size_t w, size_t b, const double *x, double *y)
{
    const size_t width = r->config->width;
    for (size_t t = 0; t < r->n; t++) {
        double mean, inverse;
        moments(r, x + t * width, &mean, &inverse);
        for (size_t c = 0; c < width; c++) {
            y[t * width + c] = (x[t * width + c] - mean) * inverse * r->parameters[w + c] + r->parameters[b + c];
        }
    }
}

/* Adds to dx. */
static void norm_back(const struct reference *r, size_t w, size_t b, const double *x, const double *dy, double *dx)
{
    const size_t width = r->config->width;
    for (size_t t = 0; t < r->n; t++) {
        const double *row = x + t * width, *d = dy + t * width;
        double mean, inverse, sum = 0, dot = 0;
        moments(r, row, &mean, &inverse);
        for (size_t c = 0; c < width; c++) {
            const double unit = (row[c] - mean) * inverse, weighted = d[c] * r->parameters[w + c];
            r->gradients[w + c] += d[c] * unit;
            r->gradients[b + c] += d[c];
            sum += weighted;
            dot += weighted * unit;
        }
        for (size_t c = 0; c < width; c++) {
            const double unit = (row[c] - mean) * inverse;
            dx[t * width + c] += inverse * (d[c] * r->parameters[w + c] - (sum + unit * dot) / (double)width);
        }
    }
}

/* probability [H][n][n], output [n][C]; qkv rows hold Q, K, V of all heads. */
static void attend(const struct reference *r, const double *qkv, double *probability, double *output)
{
    const size_t width = r->config->width, dim = r->config->head_dim, n = r->n;
    for (size_t h = 0; h < r->config->heads; h++) {
        for (size_t i = 0; i < n; i++) {
            double *p = probability + (h * n + i) * n, total = 0;
            const double *q = qkv + i * 3 * width + h * dim;
            for (size_t j = 0; j <= i; j++) {
                double score = 0;
                for (size_t d = 0; d < dim; d++) {
                    score += q[d] * qkv[j * 3 * width + width + h * dim + d];
                }
                p[j] = exp(score / sqrt((double)dim)); /* scores of these models are far below exp's limit */
                total += p[j];
            }
            for (size_t j = 0; j <= i; j++) {
                p[j] /= total;
                for (size_t d = 0; d < dim; d++) {
                    output[i * width + h * dim + d] += p[j] * qkv[j * 3 * width + 2 * width + h * dim + d];
                }
            }
        }
    }
}

static void attend_back(const struct reference *r, const double *qkv, const double *probability, const double *dout,
                        double *dqkv)
{
    const size_t width = r->config->width, dim = r->config->head_dim, n = r->n, row = 3 * width;
    double *dp = zeros(n);
    for (size_t h = 0; h < r->config->heads; h++) {
        for (size_t i = 0; i < n; i++) {
            const double *p = probability + (h * n + i) * n, *d = dout + i * width + h * dim;
            double delta = 0;
            for (size_t j = 0; j <= i; j++) {
                dp[j] = 0;
                for (size_t c = 0; c < dim; c++) {
                    dp[j] += d[c] * qkv[j * row + 2 * width + h * dim + c];
                    dqkv[j * row + 2 * width + h * dim + c] += p[j] * d[c];
                }
                delta += p[j] * dp[j];
            }
            for (size_t j = 0; j <= i; j++) {
                const double ds = p[j] * (dp[j] - delta) / sqrt((double)dim);
                for (size_t c = 0; c < dim; c++) {
                    dqkv[i * row + h * dim + c] += ds * qkv[j * row + width + h * dim + c];
                    dqkv[j * row + width + h * dim + c] += ds * qkv[i * row + h * dim + c];
                }
            }
        }
    }
    free(dp);
}

/* GELU in its tanh form, and its slope. */
static double gelu(double x, double *slope)
{
    const double a = 0.7978845608028654, t = tanh(a * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static void add(double *x, const double *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] += y[i];
    }
}

/* x [n][C], in place. */
static struct saved layer_forward(const struct reference *r, size_t layer, double *x)
{
    const size_t n = r->n, width = r->config->width, ffn = r->config->ffn;
    struct saved s = {zeros(n * width), zeros(n * width), zeros(3 * n * width), zeros(r->config->heads * n * n),
                      zeros(n * width), zeros(n * width), zeros(n * width),     zeros(n * ffn),
                      zeros(n * ffn)};
    double *delta = zeros(n * width), slope;
    add(s.input, x, n * width);
    norm(r, offset(r, PARAMETER_NORM1_WEIGHT, layer), offset(r, PARAMETER_NORM1_BIAS, layer), x, s.norm1);
    linear(r, offset(r, PARAMETER_QKV_WEIGHT, layer), offset(r, PARAMETER_QKV_BIAS, layer), s.norm1, s.qkv, 3 * width,
           width);
    attend(r, s.qkv, s.probability, s.attention);
    linear(r, offset(r, PARAMETER_OUTPUT_WEIGHT, layer), offset(r, PARAMETER_OUTPUT_BIAS, layer), s.attention, delta,
           width, width);
    add(x, delta, n * width);
    add(s.middle, x, n * width);
    norm(r, offset(r, PARAMETER_NORM2_WEIGHT, layer), offset(r, PARAMETER_NORM2_BIAS, layer), x, s.norm2);
    linear(r, offset(r, PARAMETER_UP_WEIGHT, layer), offset(r, PARAMETER_UP_BIAS, layer), s.norm2, s.up, ffn, width);
    for (size_t i = 0; i < n * ffn; i++) {
        s.active[i] = gelu(s.up[i], &slope);
    }
    linear(r, offset(r, PARAMETER_DOWN_WEIGHT, layer), offset(r, PARAMETER_DOWN_BIAS, layer), s.active, delta, width,
           ffn);
    add(x, delta, n * width);
    free(delta);
    return s;
}

/* dx [n][C], in place; frees what was saved. */
static void layer_backward(const struct reference *r, size_t layer, struct saved *s, double *dx)
{
    const size_t n = r->n, width = r->config->width, ffn = r->config->ffn;
    double *dactive = zeros(n * ffn), *dnorm = zeros(n * width), *dattention = zeros(n * width),
           *dqkv = zeros(3 * n * width), slope;
    linear_back(r, offset(r, PARAMETER_DOWN_WEIGHT, layer), offset(r, PARAMETER_DOWN_BIAS, layer), s->active, dx,
                dactive, width, ffn);
    for (size_t i = 0; i < n * ffn; i++) {
        (void)gelu(s->up[i], &slope);
        dactive[i] *= slope;
    }
    linear_back(r, offset(r, PARAMETER_UP_WEIGHT, layer), offset(r, PARAMETER_UP_BIAS, layer), s->norm2, dactive, dnorm,
                ffn, width);
    norm_back(r, offset(r, PARAMETER_NORM2_WEIGHT, layer), offset(r, PARAMETER_NORM2_BIAS, layer), s->middle, dnorm,
              dx);
    linear_back(r, offset(r, PARAMETER_OUTPUT_WEIGHT, layer), offset(r, PARAMETER_OUTPUT_BIAS, layer), s->attention, dx,
                dattention, width, width);
    attend_back(r, s->qkv, s->probability, dattention, dqkv);
    for (size_t i = 0; i < n * width; i++) {
        dnorm[i] = 0;
    }
    linear_back(r, offset(r, PARAMETER_QKV_WEIGHT, layer), offset(r, PARAMETER_QKV_BIAS, layer), s->norm1, dqkv, dnorm,
                3 * width, width);
    norm_back(r, offset(r, PARAMETER_NORM1_WEIGHT, layer), offset(r, PARAMETER_NORM1_BIAS, layer), s->input, dnorm, dx);
    free(dactive), free(dnorm), free(dattention), free(dqkv);
    free(s->input), free(s->norm1), free(s->qkv), free(s->probability), free(s->attention), free(s->middle);
    free(s->norm2), free(s->up), free(s->active);
}

/* Loss of final states y [n][C]; dy of it. */
static double head(const struct reference *r, const double *y, const int32_t *targets, double scale, double *dy)
{
    const size_t width = r->config->width, vocabulary = r->config->vocabulary;
    const size_t w = offset(r, PARAMETER_TOKEN_EMBEDDING, 0);
    double loss = 0, *p = zeros(vocabulary);
    for (size_t t = 0; t < r->n; t++) {
        double total = 0;
        for (size_t v = 0; v < vocabulary && targets[t] >= 0; v++) {
            double logit = 0;
            for (size_t c = 0; c < width; c++) {
                logit += r->parameters[w + v * width + c] * y[t * width + c];
            }
            p[v] = exp(logit);
            total += p[v];
        }
        for (size_t v = 0; v < vocabulary && targets[t] >= 0; v++) {
            const bool hit = v == (size_t)targets[t];
            const double d = scale * (p[v] / total - hit);
            loss -= hit ? log(p[v] / total) : 0;
            for (size_t c = 0; c < width; c++) {
                r->gradients[w + v * width + c] += d * y[t * width + c];
                dy[t * width + c] += d * r->parameters[w + v * width + c];
            }
        }
    }
    free(p);
    return loss;
}

double reference_gpt2(const struct parameter_table *table, const struct model_config *config, const double *parameters,
                      const int32_t *tokens, const int32_t *targets, size_t length, double scale, double *gradients)
{
    const struct reference r = {table, config, parameters, gradients, length};
    const size_t width = config->width, layers = config->layers;
    const size_t wte = offset(&r, PARAMETER_TOKEN_EMBEDDING, 0), wpe = offset(&r, PARAMETER_POSITION_EMBEDDING, 0);
    const size_t w = offset(&r, PARAMETER_FINAL_NORM_WEIGHT, 0), b = offset(&r, PARAMETER_FINAL_NORM_BIAS, 0);
    double *x = zeros(length * width), *y = zeros(length * width), *dx = zeros(length * width),
           *dy = zeros(length * width);
    struct saved *saved = test_alloc(layers * sizeof *saved);
    for (size_t i = 0; i < length * width; i++) {
        x[i] = parameters[wte + (size_t)tokens[i / width] * width + i % width] + parameters[wpe + i];
    }
    for (size_t layer = 0; layer < layers; layer++) {
        saved[layer] = layer_forward(&r, layer, x);
    }
    norm(&r, w, b, x, y);
    const double loss = head(&r, y, targets, scale, dy);
    norm_back(&r, w, b, x, dy, dx);
    for (size_t layer = layers; layer-- > 0;) {
        layer_backward(&r, layer, &saved[layer], dx);
    }
    for (size_t i = 0; i < length * width; i++) {
        gradients[wte + (size_t)tokens[i / width] * width + i % width] += dx[i];
        gradients[wpe + i] += dx[i];
    }
    free(x), free(y), free(dx), free(dy), free(saved);
    return loss;
}
