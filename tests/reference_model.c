/* reference_model.c: see reference_model.h. n: tokens of the document; matrices are [rows][columns], row after row. */
#include "tests/reference_model.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/support.h"

#define NONE SIZE_MAX /* offset of a tensor that this family lacks */

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
    const struct parameter *entry = parameter_find(r->table, kind, layer);
    return entry ? entry->offset : NONE;
}

static bool is_llama(const struct reference *r)
{
    return r->config->family == MODEL_LLAMA;
}

/* ---- linear ---- */

/* y [n][rows] = x [n][columns] w^T + b */
static void linear(const struct reference *r, size_t w, size_t b, const double *x, double *y, size_t rows,
                   size_t columns)
{
    for (size_t t = 0; t < r->n; t++) {
        for (size_t i = 0; i < rows; i++) {
            double sum = b == NONE ? 0 : r->parameters[b + i];
            for (size_t j = 0; j < columns; j++) {
                sum += r->parameters[w + i * columns + j] * x[t * columns + j];
            }
            y[t * rows + i] = sum;
        }
    }
}

/* Adds to dx. */
static void linear_back(const struct reference *r, size_t w, size_t b, const double *x, const double *dy, double *dx,
                        size_t rows, size_t columns)
{
    for (size_t t = 0; t < r->n; t++) {
        for (size_t i = 0; i < rows; i++) {
            const double d = dy[t * rows + i];
            if (b != NONE) {
                r->gradients[b + i] += d;
            }
            for (size_t j = 0; j < columns; j++) {
                r->gradients[w + i * columns + j] += d * x[t * columns + j];
                dx[t * columns + j] += d * r->parameters[w + i * columns + j];
            }
        }
    }
}

/* ---- LayerNorm, RMSNorm ---- */

static void moments(const struct reference *r, const double *x, double *mean, double *inverse)
{
    const size_t width = r->config->width;
    double sum = 0, squares = 0;
    for (size_t c = 0; c < width; c++) {
        sum += x[c];
    }
    *mean = is_llama(r) ? 0 : sum / (double)width;
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
            y[t * width + c] = (x[t * width + c] - mean) * inverse * r->parameters[w + c];
            y[t * width + c] += b == NONE ? 0 : r->parameters[b + c];
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
            if (b != NONE) {
                r->gradients[b + c] += d[c];
            }
            sum += is_llama(r) ? 0 : weighted; /* through the mean */
            dot += weighted * unit;
        }
        for (size_t c = 0; c < width; c++) {
            const double unit = (row[c] - mean) * inverse;
            dx[t * width + c] += inverse * (d[c] * r->parameters[w + c] - (sum + unit * dot) / (double)width);
        }
    }
}

/* ---- attention ---- */

static size_t qkv_width(const struct model_config *c)
{
    return (c->heads + 2 * c->kv_heads) * c->head_dim;
}

/* The rotation of channel pair (i, i + dim / 2) by position * base^(-2 i / dim), for Q and K heads; sign -1: back. */
static void rotate(const struct reference *r, double *qkv, double sign)
{
    const struct model_config *c = r->config;
    const size_t dim = c->head_dim, row = qkv_width(c);
    for (size_t t = 0; t < r->n && is_llama(r); t++) {
        for (size_t h = 0; h < c->heads + c->kv_heads; h++) {
            for (size_t i = 0; i < dim / 2; i++) {
                double *first = qkv + t * row + h * dim + i, *second = first + dim / 2;
                const double angle = sign * (double)t * pow((double)c->rope_base, -2.0 * (double)i / (double)dim);
                const double x = *first, y = *second;
                *first = x * cos(angle) - y * sin(angle);
                *second = x * sin(angle) + y * cos(angle);
            }
        }
    }
}

/* Where a query head's keys and values begin in a row of qkv. */
static size_t key_of(const struct model_config *c, size_t head)
{
    return (c->heads + head / (c->heads / c->kv_heads)) * c->head_dim;
}

static size_t value_of(const struct model_config *c, size_t head)
{
    return key_of(c, head) + c->kv_heads * c->head_dim;
}

static double dot_product(const double *x, const double *y, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

static void add_scaled(double *x, const double *y, double scale, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] += scale * y[i];
    }
}

/* probability [H][n][n], output [n][H dim] */
static void attend(const struct reference *r, const double *qkv, double *probability, double *output)
{
    const struct model_config *c = r->config;
    const size_t dim = c->head_dim, n = r->n, row = qkv_width(c);
    for (size_t h = 0; h < c->heads; h++) {
        for (size_t i = 0; i < n; i++) {
            double *p = probability + (h * n + i) * n, total = 0;
            for (size_t j = 0; j <= i; j++) {
                const double score = dot_product(qkv + i * row + h * dim, qkv + j * row + key_of(c, h), dim);
                p[j] = exp(score / sqrt((double)dim)); /* scores of these models are far below exp's limit */
                total += p[j];
            }
            for (size_t j = 0; j <= i; j++) {
                p[j] /= total;
                add_scaled(output + (i * c->heads + h) * dim, qkv + j * row + value_of(c, h), p[j], dim);
            }
        }
    }
}

static void attend_back(const struct reference *r, const double *qkv, const double *probability, const double *dout,
                        double *dqkv)
{
    const struct model_config *c = r->config;
    const size_t dim = c->head_dim, n = r->n, row = qkv_width(c);
    double *dp = zeros(n);
    for (size_t h = 0; h < c->heads; h++) {
        for (size_t i = 0; i < n; i++) {
            const double *p = probability + (h * n + i) * n, *d = dout + (i * c->heads + h) * dim;
            double delta = 0;
            for (size_t j = 0; j <= i; j++) {
                dp[j] = dot_product(d, qkv + j * row + value_of(c, h), dim);
                add_scaled(dqkv + j * row + value_of(c, h), d, p[j], dim);
                delta += p[j] * dp[j];
            }
            for (size_t j = 0; j <= i; j++) {
                const double ds = p[j] * (dp[j] - delta) / sqrt((double)dim);
                add_scaled(dqkv + i * row + h * dim, qkv + j * row + key_of(c, h), ds, dim);
                add_scaled(dqkv + j * row + key_of(c, h), qkv + i * row + h * dim, ds, dim);
            }
        }
    }
    free(dp);
}

/* ---- MLP ---- */

static size_t up_width(const struct model_config *c)
{
    return c->family == MODEL_LLAMA ? 2 * c->ffn : c->ffn;
}

/* GELU in its tanh form, and its slope. */
static double gelu(double x, double *slope)
{
    const double a = 0.7978845608028654, t = tanh(a * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

static double silu(double x, double *slope)
{
    const double s = 1 / (1 + exp(-x));
    *slope = s + x * s * (1 - s);
    return x * s;
}

static void activate(const struct reference *r, const double *up, double *active)
{
    const size_t ffn = r->config->ffn;
    double slope;
    for (size_t i = 0; i < r->n * ffn; i++) {
        const double *gate = up + i / ffn * up_width(r->config) + i % ffn;
        active[i] = is_llama(r) ? silu(*gate, &slope) * gate[ffn] : gelu(*gate, &slope);
    }
}

static void activate_back(const struct reference *r, const double *up, const double *dactive, double *dup)
{
    const size_t ffn = r->config->ffn;
    for (size_t i = 0; i < r->n * ffn; i++) {
        const size_t at = i / ffn * up_width(r->config) + i % ffn;
        double slope;
        if (is_llama(r)) {
            dup[at + ffn] = dactive[i] * silu(up[at], &slope);
            dup[at] = dactive[i] * slope * up[at + ffn];
        } else {
            (void)gelu(up[at], &slope);
            dup[at] = dactive[i] * slope;
        }
    }
}

/* ---- a layer ---- */

/* x [n][C], in place. */
static struct saved layer_forward(const struct reference *r, size_t layer, double *x)
{
    const struct model_config *c = r->config;
    const size_t n = r->n, width = c->width, ffn = c->ffn, inner = c->heads * c->head_dim;
    struct saved s = {zeros(n * width),        zeros(n * width),       zeros(n * qkv_width(c)),
                      zeros(c->heads * n * n), zeros(n * inner),       zeros(n * width),
                      zeros(n * width),        zeros(n * up_width(c)), zeros(n * ffn)};
    double *delta = zeros(n * width);
    add_scaled(s.input, x, 1, n * width);
    norm(r, offset(r, PARAMETER_NORM1_WEIGHT, layer), offset(r, PARAMETER_NORM1_BIAS, layer), x, s.norm1);
    linear(r, offset(r, PARAMETER_QKV_WEIGHT, layer), offset(r, PARAMETER_QKV_BIAS, layer), s.norm1, s.qkv,
           qkv_width(c), width);
    rotate(r, s.qkv, 1);
    attend(r, s.qkv, s.probability, s.attention);
    linear(r, offset(r, PARAMETER_OUTPUT_WEIGHT, layer), offset(r, PARAMETER_OUTPUT_BIAS, layer), s.attention, delta,
           width, inner);
    add_scaled(x, delta, 1, n * width);
    add_scaled(s.middle, x, 1, n * width);
    norm(r, offset(r, PARAMETER_NORM2_WEIGHT, layer), offset(r, PARAMETER_NORM2_BIAS, layer), x, s.norm2);
    linear(r, offset(r, PARAMETER_UP_WEIGHT, layer), offset(r, PARAMETER_UP_BIAS, layer), s.norm2, s.up, up_width(c),
           width);
    activate(r, s.up, s.active);
    linear(r, offset(r, PARAMETER_DOWN_WEIGHT, layer), offset(r, PARAMETER_DOWN_BIAS, layer), s.active, delta, width,
           ffn);
    add_scaled(x, delta, 1, n * width);
    free(delta);
    return s;
}

/* dx [n][C], in place. */
static void layer_backward(const struct reference *r, size_t layer, const struct saved *s, double *dx)
{
    const struct model_config *c = r->config;
    const size_t n = r->n, width = c->width, ffn = c->ffn, inner = c->heads * c->head_dim;
    double *dactive = zeros(n * ffn), *dup = zeros(n * up_width(c)), *dnorm = zeros(n * width),
           *dattention = zeros(n * inner), *dqkv = zeros(n * qkv_width(c));
    linear_back(r, offset(r, PARAMETER_DOWN_WEIGHT, layer), offset(r, PARAMETER_DOWN_BIAS, layer), s->active, dx,
                dactive, width, ffn);
    activate_back(r, s->up, dactive, dup);
    linear_back(r, offset(r, PARAMETER_UP_WEIGHT, layer), offset(r, PARAMETER_UP_BIAS, layer), s->norm2, dup, dnorm,
                up_width(c), width);
    norm_back(r, offset(r, PARAMETER_NORM2_WEIGHT, layer), offset(r, PARAMETER_NORM2_BIAS, layer), s->middle, dnorm,
              dx);
    linear_back(r, offset(r, PARAMETER_OUTPUT_WEIGHT, layer), offset(r, PARAMETER_OUTPUT_BIAS, layer), s->attention, dx,
                dattention, width, inner);
    attend_back(r, s->qkv, s->probability, dattention, dqkv);
    rotate(r, dqkv, -1);
    for (size_t i = 0; i < n * width; i++) {
        dnorm[i] = 0;
    }
    linear_back(r, offset(r, PARAMETER_QKV_WEIGHT, layer), offset(r, PARAMETER_QKV_BIAS, layer), s->norm1, dqkv, dnorm,
                qkv_width(c), width);
    norm_back(r, offset(r, PARAMETER_NORM1_WEIGHT, layer), offset(r, PARAMETER_NORM1_BIAS, layer), s->input, dnorm, dx);
    free(dactive), free(dup), free(dnorm), free(dattention), free(dqkv);
}

static void free_saved(const struct saved *s)
{
    free(s->input), free(s->norm1), free(s->qkv), free(s->probability), free(s->attention), free(s->middle);
    free(s->norm2), free(s->up), free(s->active);
}

/* ---- the ends ---- */

static double row_loss(const double *logits, size_t vocabulary, int32_t target, double *total)
{
    *total = 0;
    for (size_t v = 0; v < vocabulary; v++) {
        *total += exp(logits[v]);
    }
    return log(*total) - logits[target];
}

/* Loss of final states y [n][C]; dy of it. */
static double head(const struct reference *r, const double *y, const int32_t *targets, double scale, double *dy,
                   double *logits)
{
    const size_t width = r->config->width, vocabulary = r->config->vocabulary;
    const size_t own = offset(r, PARAMETER_HEAD_WEIGHT, 0),
                 w = own == NONE ? offset(r, PARAMETER_TOKEN_EMBEDDING, 0) : own;
    double loss = 0, total, *row = zeros(vocabulary);
    for (size_t t = 0; t < r->n; t++) {
        for (size_t v = 0; v < vocabulary; v++) {
            row[v] = dot_product(r->parameters + w + v * width, y + t * width, width);
            if (logits) {
                logits[t * vocabulary + v] = row[v];
            }
        }
        if (targets[t] < 0) {
            continue;
        }
        loss += row_loss(row, vocabulary, targets[t], &total);
        for (size_t v = 0; v < vocabulary && r->gradients; v++) {
            const double d = scale * (exp(row[v]) / total - (v == (size_t)targets[t]));
            add_scaled(r->gradients + w + v * width, y + t * width, d, width);
            add_scaled(dy + t * width, r->parameters + w + v * width, d, width);
        }
    }
    free(row);
    return loss;
}

static void embed(const struct reference *r, const int32_t *tokens, double *x)
{
    const size_t width = r->config->width, table = offset(r, PARAMETER_TOKEN_EMBEDDING, 0),
                 positions = offset(r, PARAMETER_POSITION_EMBEDDING, 0);
    for (size_t i = 0; i < r->n * width; i++) {
        x[i] = r->parameters[table + (size_t)tokens[i / width] * width + i % width];
        x[i] += positions == NONE ? 0 : r->parameters[positions + i];
    }
}

static void embed_back(const struct reference *r, const int32_t *tokens, const double *dx)
{
    const size_t width = r->config->width, table = offset(r, PARAMETER_TOKEN_EMBEDDING, 0),
                 positions = offset(r, PARAMETER_POSITION_EMBEDDING, 0);
    for (size_t i = 0; i < r->n * width; i++) {
        r->gradients[table + (size_t)tokens[i / width] * width + i % width] += dx[i];
        if (positions != NONE) {
            r->gradients[positions + i] += dx[i];
        }
    }
}

double reference_model(const struct parameter_table *table, const struct model_config *config, const double *parameters,
                       const int32_t *tokens, const int32_t *targets, size_t length, double scale, double *gradients,
                       double *logits)
{
    const struct reference r = {table, config, parameters, gradients, length};
    const size_t count = length * config->width, layers = config->layers;
    const size_t w = offset(&r, PARAMETER_FINAL_NORM_WEIGHT, 0), b = offset(&r, PARAMETER_FINAL_NORM_BIAS, 0);
    double *x = zeros(count), *y = zeros(count), *dx = zeros(count), *dy = zeros(count);
    struct saved *saved = test_alloc(layers * sizeof *saved);
    embed(&r, tokens, x);
    for (size_t layer = 0; layer < layers; layer++) {
        saved[layer] = layer_forward(&r, layer, x);
    }
    norm(&r, w, b, x, y);
    const double loss = head(&r, y, targets, scale, dy, logits);
    if (gradients) {
        norm_back(&r, w, b, x, dy, dx);
        for (size_t layer = layers; layer-- > 0;) {
            layer_backward(&r, layer, &saved[layer], dx);
        }
        embed_back(&r, tokens, dx);
    }
    for (size_t layer = 0; layer < layers; layer++) {
        free_saved(&saved[layer]);
    }
    free(x), free(y), free(dx), free(dy), free(saved);
    return loss;
}

double reference_model_batch(const struct parameter_table *table, const struct model_config *config,
                             const double *parameters, const struct batch *batch, double scale, double *gradients,
                             double *logits)
{
    double loss = 0;
    for (size_t d = 0; d < batch->documents; d++) {
        const size_t first = (size_t)batch->offsets[d], length = (size_t)batch->offsets[d + 1] - first;
        loss += reference_model(table, config, parameters, batch->tokens + first, batch->targets + first, length, scale,
                                gradients, logits ? logits + first * config->vocabulary : NULL);
    }
    return loss;
}
