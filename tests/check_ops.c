/* check_ops.c: the operations of a layer but its activation (check_activation.c) against FP64, each bound derived from
 * its roundings; u = 2^-24. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "data/batch.h"
#include "model/ops.h"
#include "tests/support.h"

#define U 0x1p-24

static float *normals(struct random_stream *random, size_t count, float scale)
{
    float *x = test_alloc(count * sizeof *x);
    random_normals(random, x, count, scale);
    return x;
}

static float *copy(const float *x, size_t count)
{
    float *y = test_alloc(count * sizeof *y);
    return memcpy(y, x, count * sizeof *y);
}

/* Sizes that are no multiple of a vector, a chunk or a block of columns, and 1. */
static size_t odd_size(struct random_stream *random, size_t most)
{
    return 1 + random_below(random, most);
}

/* ---- linear ---- */

/* A sum of K products in any order, with or without FMA, is within (K + 2) u of the sum of their sizes; twice that. */
static void expect_product(const float *a, size_t a_row, size_t a_column, const float *b, size_t b_row, size_t b_column,
                           size_t rows, size_t columns, size_t inner, const float *start, const float *y)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            double sum = start ? (double)start[i * columns + j] : 0, size = fabs(sum);
            for (size_t k = 0; k < inner; k++) {
                const double term = (double)a[i * a_row + k * a_column] * (double)b[j * b_row + k * b_column];
                sum += term;
                size += fabs(term);
            }
            expect(fabs((double)y[i * columns + j] - sum) <= 2 * ((double)inner + 2) * U * size,
                   "[%zu][%zu]: %g, not %g", i, j, (double)y[i * columns + j], sum);
        }
    }
}

START_TEST(linears_are_matrix_products)
{
    struct random_stream random = random_stream((uint64_t)_i);
    const size_t rows = odd_size(&random, 70), in = odd_size(&random, 70), out = odd_size(&random, 70);
    float *x = normals(&random, rows * in, 1), *w = normals(&random, out * in, 1),
          *dy = normals(&random, rows * out, 1), *dw = normals(&random, out * in, 1),
          *y = test_alloc(rows * out * sizeof *y), *dx = test_alloc(rows * in * sizeof *dx),
          *start = copy(dw, out * in);
    linear_forward_cpu(x, w, rows, in, out, y); /* y and dx are NaN before: written, not added to */
    linear_backward_input_cpu(dy, w, rows, in, out, dx);
    linear_backward_weight_cpu(dy, x, rows, in, out, dw);
    expect_product(x, in, 1, w, in, 1, rows, out, in, NULL, y);
    expect_product(dy, out, 1, w, 1, in, rows, in, out, NULL, dx);
    expect_product(dy, 1, out, x, 1, in, out, in, rows, start, dw);
    free(x), free(w), free(dy), free(dw), free(y), free(dx), free(start);
}
END_TEST

START_TEST(biases_are_added_and_their_gradient_is_the_sum_of_rows)
{
    struct random_stream random = random_stream((uint64_t)(10 + _i));
    const size_t rows = odd_size(&random, 90), columns = odd_size(&random, 150);
    float *x = normals(&random, rows * columns, 1), *bias = normals(&random, columns, 1),
          *before = copy(x, rows * columns), *gradient = normals(&random, columns, 1), *start = copy(gradient, columns);
    bias_forward_cpu(x, bias, rows, columns);
    bias_backward_cpu(before, rows, columns, gradient);
    for (size_t j = 0; j < columns; j++) {
        double sum = (double)start[j], size = fabs(sum);
        for (size_t i = 0; i < rows; i++) {
            const float y = before[i * columns + j] + bias[j];
            expect(x[i * columns + j] == y, "[%zu][%zu]", i, j);
            sum += (double)before[i * columns + j];
            size += fabs((double)before[i * columns + j]);
        }
        ck_assert_double_le(fabs((double)gradient[j] - sum), ((double)rows + 1) * U * size);
    }
    free(x), free(bias), free(before), free(gradient), free(start);
}
END_TEST

/* ---- norms ---- */

struct norm_case {
    struct norm_shape shape;
    float *residual, *delta, *delta_bias, *weight, *bias, *sum, *y, *statistics, *dy, *dx, *dweight, *dbias;
};

static struct norm_case norm_case(struct random_stream *random, bool centred)
{
    const size_t rows = odd_size(random, 40), columns = 2 + random_below(random, 200), all = rows * columns;
    struct norm_case c = {{rows, columns, centred, 1e-5f},
                          normals(random, all, 2),
                          normals(random, all, 1),
                          normals(random, columns, 1),
                          normals(random, columns, 1),
                          centred ? normals(random, columns, 1) : NULL,
                          test_alloc(all * sizeof(float)),
                          test_alloc(all * sizeof(float)),
                          test_alloc(2 * rows * sizeof(float)),
                          normals(random, all, 1),
                          normals(random, all, 1),
                          normals(random, columns, 1),
                          centred ? normals(random, columns, 1) : NULL};
    return c;
}

static void norm_free(struct norm_case *c)
{
    free(c->residual), free(c->delta), free(c->delta_bias), free(c->weight), free(c->bias), free(c->sum), free(c->y);
    free(c->statistics), free(c->dy), free(c->dx), free(c->dweight), free(c->dbias);
}

static void norm_run(struct norm_case *c)
{
    norm_forward_cpu(&c->shape, c->residual, c->delta, c->delta_bias, c->weight, c->bias, c->sum, c->y, c->statistics);
    norm_backward_cpu(&c->shape, c->dy, c->sum, c->weight, c->statistics, c->dx, c->dweight, c->dbias);
}

static void fp64_moments(const struct norm_shape *shape, const float *x, double *mean, double *inverse)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < shape->columns; i++) {
        sum += (double)x[i];
    }
    *mean = shape->centred ? sum / (double)shape->columns : 0;
    for (size_t i = 0; i < shape->columns; i++) {
        squares += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    }
    *inverse = 1 / sqrt(squares / (double)shape->columns + (double)shape->epsilon);
}

/* Sums of up to 200 terms in 16 lanes: the mean is off by at most 29 u of the mean size of x (call it m), squares by as
 * much of themselves; then x - mean is off by 30 u (|x| + m), the inverse deviation by 20 u. So y - bias is off by
 * 64 u of its size and of (|x| + m) times inverse and weight; rows of two columns may cancel in x - mean, which is why
 * the bound is in |x|. */
START_TEST(norms_are_those_of_fp64)
{
    for (int centred = 0; centred < 2; centred++) {
        struct random_stream random = random_stream((uint64_t)(20 + 2 * _i + centred));
        struct norm_case c = norm_case(&random, centred);
        norm_run(&c);
        for (size_t row = 0; row < c.shape.rows; row++) {
            const size_t columns = c.shape.columns;
            const float *x = c.sum + row * columns;
            double mean, inverse, size = 0;
            fp64_moments(&c.shape, x, &mean, &inverse);
            for (size_t i = 0; i < columns; i++) {
                size += fabs((double)x[i]) / (double)columns;
            }
            for (size_t i = 0; i < columns; i++) {
                const size_t at = row * columns + i;
                const float added = c.residual[at] + (c.delta[at] + c.delta_bias[i]);
                expect(x[i] == added, "sum [%zu][%zu]", row, i);
                const double unit = ((double)x[i] - mean) * inverse, w = (double)c.weight[i];
                const double y = unit * w + (c.bias ? (double)c.bias[i] : 0);
                const double slack = 64 * U * fabs(w) * (inverse * (fabs((double)x[i]) + size) * (1 + fabs(unit)));
                expect(fabs((double)c.y[at] - y) <= slack + 2 * U * fabs(y), "y [%zu][%zu]: %.9g, not %.9g", row, i,
                       (double)c.y[at], y);
            }
        }
        norm_free(&c);
    }
}
END_TEST

/* Relative to all of a tensor's gradient: sums of at most 200 rounded terms, 2e-6 of which is 33 u; rows of two
 * columns that nearly agree have a large inverse and are exact to that only against the whole. */
START_TEST(gradients_of_norms_are_those_of_fp64)
{
    for (int centred = 0; centred < 2; centred++) {
        struct random_stream random = random_stream((uint64_t)(40 + 2 * _i + centred));
        struct norm_case c = norm_case(&random, centred);
        const size_t rows = c.shape.rows, columns = c.shape.columns;
        float *dx = copy(c.dx, rows * columns), *dweight = copy(c.dweight, columns),
              *dbias = centred ? copy(c.dbias, columns) : NULL;
        norm_run(&c);
        double *weights = test_alloc(columns * sizeof *weights), *biases = test_alloc(columns * sizeof *biases);
        for (size_t i = 0; i < columns; i++) {
            weights[i] = (double)dweight[i];
            biases[i] = centred ? (double)dbias[i] : 0;
        }
        double wrong = 0, size = 0, wrong_weights = 0, size_weights = 0, wrong_biases = 0, size_biases = 0;
        for (size_t row = 0; row < rows; row++) {
            const float *x = c.sum + row * columns, *dy = c.dy + row * columns;
            double mean, inverse, plain = 0, projected = 0;
            fp64_moments(&c.shape, x, &mean, &inverse);
            for (size_t i = 0; i < columns; i++) {
                const double g = (double)dy[i] * (double)c.weight[i], unit = ((double)x[i] - mean) * inverse;
                plain += centred ? g / (double)columns : 0;
                projected += g * unit / (double)columns;
                weights[i] += (double)dy[i] * unit;
                biases[i] += (double)dy[i];
            }
            for (size_t i = 0; i < columns; i++) {
                const double g = (double)dy[i] * (double)c.weight[i], unit = ((double)x[i] - mean) * inverse;
                const double expected = (double)dx[row * columns + i] + inverse * (g - plain - unit * projected);
                const double off = (double)c.dx[row * columns + i] - expected;
                wrong += off * off;
                size += expected * expected + inverse * inverse * g * g;
            }
        }
        for (size_t i = 0; i < columns; i++) {
            wrong_weights += pow((double)c.dweight[i] - weights[i], 2);
            size_weights += weights[i] * weights[i];
            wrong_biases += centred ? pow((double)c.dbias[i] - biases[i], 2) : 0;
            size_biases += biases[i] * biases[i];
        }
        ck_assert_double_le(sqrt(wrong / size), 2e-6);
        ck_assert_double_le(sqrt(wrong_weights / size_weights), 2e-6);
        ck_assert_double_le(sqrt(wrong_biases / (size_biases + 1e-300)), 2e-6);
        free(dx), free(dweight), free(dbias), free(weights), free(biases);
        norm_free(&c);
    }
}
END_TEST

/* Nothing divides by the weight or by the row's size. */
START_TEST(norms_of_zeros_with_weights_of_zero_are_finite)
{
    for (int centred = 0; centred < 2; centred++) {
        struct random_stream random = random_stream((uint64_t)(60 + centred));
        struct norm_case c = norm_case(&random, centred);
        const size_t columns = c.shape.columns, all = c.shape.rows * columns;
        memset(c.weight, 0, columns * sizeof(float));
        memset(c.residual, 0, all * sizeof(float));
        norm_forward_cpu(&c.shape, c.residual, NULL, NULL, c.weight, c.bias, NULL, c.y, c.statistics);
        norm_backward_cpu(&c.shape, c.dy, c.residual, c.weight, c.statistics, c.dx, c.dweight, c.dbias);
        for (size_t i = 0; i < all; i++) {
            expect(c.y[i] == (c.bias ? c.bias[i % columns] : 0), "y %zu is %g", i, (double)c.y[i]);
            expect(isfinite(c.dx[i]), "dx %zu", i);
        }
        for (size_t i = 0; i < columns; i++) {
            ck_assert(isfinite(c.dweight[i]));
        }
        norm_free(&c);
    }
}
END_TEST

/* ---- rotary positions ---- */

/* Angles in FP64 (a table in BF16 or an angle in FP32 is off by 0.2 at position 15962), tables rounded to FP32: u each
 * of cosine and sine, two products and a sum: 3 u of the pair's size. */
START_TEST(rotations_are_those_of_fp64_and_turn_back)
{
    struct random_stream random = random_stream((uint64_t)(70 + _i));
    const size_t dim = 16 * odd_size(&random, 8), half = dim / 2, heads = odd_size(&random, 3), rows = 9;
    const size_t positions = 16000, stride = (heads + 1) * dim;
    const float base = random_below(&random, 2) ? 10000 : 500000;
    float *cosines = test_alloc(positions * half * sizeof *cosines),
          *sines = test_alloc(positions * half * sizeof *sines);
    float *x = normals(&random, rows * stride, 1), *start = copy(x, rows * stride);
    int32_t at[9] = {0, 1, 257, 15962, 15999};
    for (size_t row = 5; row < rows; row++) {
        at[row] = (int32_t)random_below(&random, positions);
    }
    rope_tables(positions, dim, base, cosines, sines);
    rope_cpu(x, stride, at, rows, heads, dim, cosines, sines, false);
    for (size_t i = 0; i < rows * stride; i++) {
        const size_t row = i / stride, channel = i % stride % dim, pair = channel % half;
        if (i % stride / dim == heads) {
            expect(x[i] == start[i], "a head that is not rotated moved");
            continue;
        }
        const double angle = (double)at[row] * pow((double)base, -(double)pair / (double)half);
        const double a = (double)start[i - channel + pair], b = (double)start[i - channel + pair + half];
        const double y = channel < half ? a * cos(angle) - b * sin(angle) : a * sin(angle) + b * cos(angle);
        expect(fabs((double)x[i] - y) <= 6 * U * (fabs(a) + fabs(b)), "position %d, channel %zu: %g, not %g", at[row],
               channel, (double)x[i], y);
    }
    rope_cpu(x, stride, at, rows, heads, dim, cosines, sines, true);
    for (size_t i = 0; i < rows * stride; i++) {
        const size_t channel = i % stride % dim, pair = i - channel + channel % half;
        const double size =
            fabs((double)start[pair]) + (i % stride / dim < heads ? fabs((double)start[pair + half]) : 0);
        expect(fabs((double)x[i] - (double)start[i]) <= 12 * U * size, "channel %zu does not turn back", channel);
    }
    free(cosines), free(sines), free(x), free(start);
}
END_TEST

/* ---- embeddings ---- */

START_TEST(embeddings_are_rows_and_their_gradients_sums_in_order)
{
    struct random_stream random = random_stream((uint64_t)(110 + _i));
    const size_t rows = odd_size(&random, 60), columns = odd_size(&random, 100), ids = 7, places = 11;
    int32_t tokens[60], positions[60];
    float *token_table = normals(&random, ids * columns, 1), *position_table = normals(&random, places * columns, 1),
          *dy = normals(&random, rows * columns, 1), *y = test_alloc(rows * columns * sizeof *y);
    float *token_gradient = normals(&random, ids * columns, 1),
          *position_gradient = normals(&random, places * columns, 1);
    float *token_sum = copy(token_gradient, ids * columns), *position_sum = copy(position_gradient, places * columns);
    for (size_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)random_below(&random, ids);
        positions[i] = (int32_t)random_below(&random, places);
    }
    const bool learned = _i % 2 == 0; /* a position table */
    embedding_forward_cpu(tokens, positions, token_table, learned ? position_table : NULL, rows, columns, y);
    embedding_backward_cpu(tokens, positions, dy, rows, columns, token_gradient, learned ? position_gradient : NULL);
    for (size_t i = 0; i < rows * columns; i++) {
        const size_t token = (size_t)tokens[i / columns] * columns + i % columns,
                     position = (size_t)positions[i / columns] * columns + i % columns;
        const float expected = learned ? token_table[token] + position_table[position] : token_table[token];
        expect(y[i] == expected, "row %zu", i / columns);
        token_sum[token] += dy[i];
        position_sum[position] += learned ? dy[i] : 0;
    }
    ck_assert_int_eq(memcmp(token_gradient, token_sum, ids * columns * sizeof(float)), 0);
    ck_assert_int_eq(memcmp(position_gradient, position_sum, places * columns * sizeof(float)), 0);
    free(token_table), free(position_table), free(dy), free(y), free(token_gradient), free(position_gradient);
    free(token_sum), free(position_sum);
}
END_TEST

/* ---- loss ---- */

struct loss_case {
    size_t rows, vocabulary, stride;
    float *logits, *start, *losses, *statistics;
    int32_t *targets;
};

static struct loss_case loss_case(struct random_stream *random)
{
    struct loss_case c = {.rows = odd_size(random, 20), .vocabulary = odd_size(random, 1300)};
    c.stride = c.vocabulary + random_below(random, 130);
    const float scale = (float)(1 + random_below(random, 30));
    c.logits = normals(random, c.rows * c.stride, scale);
    c.losses = test_alloc(c.rows * sizeof *c.losses);
    c.statistics = test_alloc(2 * c.rows * sizeof *c.statistics);
    c.targets = test_alloc(c.rows * sizeof *c.targets);
    for (size_t row = 0; row < c.rows; row++) {
        c.targets[row] = random_below(random, 4) ? (int32_t)random_below(random, c.vocabulary) : TARGET_IGNORED;
        for (size_t i = 0; i < c.stride; i++) {
            c.logits[row * c.stride + i] =
                i < c.vocabulary ? c.logits[row * c.stride + i] + 100 * (float)random_below(random, 2) * (row % 3 == 0)
                                 : NAN; /* padding is never read */
        }
    }
    c.start = copy(c.logits, c.rows * c.stride);
    return c;
}

static void loss_free(struct loss_case *c)
{
    free(c->logits), free(c->start), free(c->losses), free(c->statistics), free(c->targets);
}

/* Largest of a row, and the sum of exponentials below it, in FP64. */
static double fp64_sum(const struct loss_case *c, size_t row, double *most)
{
    const float *x = c->start + row * c->stride;
    double sum = 0;
    *most = -INFINITY;
    for (size_t i = 0; i < c->vocabulary; i++) {
        *most = fmax(*most, (double)x[i]);
    }
    for (size_t i = 0; i < c->vocabulary; i++) {
        sum += exp((double)x[i] - *most);
    }
    return sum;
}

/* e^(x - most): the difference and the product with log2 e are rounded, and that constant, so 3 u (most - x), and 4 u
 * for the exponential; size * e^-size < 0.37 for each of the sum's terms relative to the largest. Lanes of 32 terms
 * add 32 u. The sum is thus within 40 u + 3 u ln(terms) of itself, its logarithm by as much of 1, and the result is
 * rounded once. */
START_TEST(losses_are_those_of_fp64)
{
    struct random_stream random = random_stream((uint64_t)(120 + _i));
    struct loss_case c = loss_case(&random);
    const double total = loss_forward_cpu(c.logits, c.targets, c.rows, c.vocabulary, c.stride, c.losses, c.statistics);
    double added = 0;
    for (size_t row = 0; row < c.rows; row++) {
        double most;
        const double sum = fp64_sum(&c, row, &most);
        const double expected =
            c.targets[row] < 0 ? 0 : log(sum) + most - (double)c.start[row * c.stride + (size_t)c.targets[row]];
        added += (double)c.losses[row];
        ck_assert_double_le(fabs((double)c.losses[row] - expected),
                            c.targets[row] < 0 ? 0 : 100 * U + 2 * U * expected);
    }
    ck_assert_double_le(fabs(total - added), 1e-13 * added);
    loss_free(&c);
}
END_TEST

/* p = e^(x - most) / sum: 3 u (most - x) + 4 u of the exponential, up to 70 u of the sum as above, 3 roundings; twice
 * that leaves room. The target's has 1 taken off. FP32 holds nothing below 2^-126 exactly. */
START_TEST(the_gradient_of_the_loss_is_softmax_less_the_target)
{
    struct random_stream random = random_stream((uint64_t)(140 + _i));
    struct loss_case c = loss_case(&random);
    const float scale = 1.0f / (float)(1 + random_below(&random, 1000));
    loss_forward_cpu(c.logits, c.targets, c.rows, c.vocabulary, c.stride, c.losses, c.statistics);
    loss_backward_cpu(c.logits, c.targets, c.rows, c.vocabulary, c.stride, c.statistics, scale);
    for (size_t row = 0; row < c.rows; row++) {
        double most;
        const double sum = fp64_sum(&c, row, &most);
        for (size_t i = 0; i < c.stride; i++) {
            const double found = (double)c.logits[row * c.stride + i];
            if (c.targets[row] < 0 || i >= c.vocabulary) {
                expect(found == 0, "row %zu, column %zu: %g where nothing is learned", row, i, found);
                continue;
            }
            const double below = most - (double)c.start[row * c.stride + i], p = exp(-below) / sum;
            const double hit = i == (size_t)c.targets[row];
            const double slack = U * (p * (160 + 8 * below) + 4 * hit) + 0x1p-120;
            expect(fabs(found - (double)scale * (p - hit)) <= (double)scale * slack,
                   "row %zu, column %zu: %.9g, not %.9g", row, i, found, (double)scale * (p - hit));
        }
    }
    loss_free(&c);
}
END_TEST

/* ---- threads ---- */

/* All of it once; what came out, one after the other, in `out`. */
static size_t everything(uint64_t seed, float *out)
{
    struct random_stream random = random_stream(seed);
    struct norm_case n = norm_case(&random, true);
    struct loss_case l = loss_case(&random);
    const size_t rows = n.shape.rows, columns = n.shape.columns, all = rows * columns;
    const struct {
        const float *values;
        size_t count;
    } results[] = {{n.y, all},
                   {n.dx, all},
                   {n.dweight, columns},
                   {n.dbias, columns},
                   {n.residual, all},
                   {n.delta, all},
                   {n.delta_bias, columns},
                   {n.weight, columns},
                   {l.losses, l.rows},
                   {l.logits, l.rows * l.stride}};
    int32_t tokens[40];
    for (size_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)(i * i % rows);
    }
    norm_run(&n);
    gelu_backward_cpu(n.sum, n.dy, all, n.residual);
    swiglu_forward_cpu(n.sum, rows / 2, columns, n.delta);
    bias_backward_cpu(n.dy, rows, columns, n.delta_bias);
    embedding_backward_cpu(tokens, tokens, n.dy, rows, columns, n.residual, n.delta);
    const double total = loss_forward_cpu(l.logits, l.targets, l.rows, l.vocabulary, l.stride, l.losses, l.statistics);
    loss_backward_cpu(l.logits, l.targets, l.rows, l.vocabulary, l.stride, l.statistics, 0.1f);
    size_t used = 0;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        memcpy(out + used, results[i].values, results[i].count * sizeof *out);
        used += results[i].count;
    }
    memcpy(out + used, &total, sizeof total);
    norm_free(&n);
    loss_free(&l);
    return used + 2;
}

START_TEST(no_bit_depends_on_the_number_of_threads)
{
    const size_t room = 4 * 40 * 202 + 4 * 202 + 20 * 1431 + 40 + 8 * 1024;
    float *one = test_alloc(room * sizeof *one), *other = test_alloc(room * sizeof *other);
    omp_set_num_threads(1);
    const size_t count = everything((uint64_t)(160 + _i), one);
    for (int threads = 2; threads <= 5; threads += 3) {
        omp_set_num_threads(threads);
        ck_assert_uint_eq(everything((uint64_t)(160 + _i), other), count);
        ck_assert_int_eq(memcmp(one, other, count * sizeof *one), 0);
    }
    free(one), free(other);
}
END_TEST

static void one_thread(void)
{
    omp_set_num_threads(1); /* of such small inputs a second one would mostly wait, and on a busy machine for long */
}

Suite *suite_ops(void);
Suite *suite_ops(void)
{
    Suite *suite = suite_create("ops");
    TCase *tests = tcase_create("ops");
    tcase_add_checked_fixture(tests, one_thread, NULL);
    tcase_add_loop_test(tests, linears_are_matrix_products, 0, 10);
    tcase_add_loop_test(tests, biases_are_added_and_their_gradient_is_the_sum_of_rows, 0, 10);
    tcase_add_loop_test(tests, norms_are_those_of_fp64, 0, 10);
    tcase_add_loop_test(tests, gradients_of_norms_are_those_of_fp64, 0, 10);
    tcase_add_test(tests, norms_of_zeros_with_weights_of_zero_are_finite);
    tcase_add_loop_test(tests, rotations_are_those_of_fp64_and_turn_back, 0, 5);
    tcase_add_loop_test(tests, embeddings_are_rows_and_their_gradients_sums_in_order, 0, 10);
    tcase_add_loop_test(tests, losses_are_those_of_fp64, 0, 20);
    tcase_add_loop_test(tests, the_gradient_of_the_loss_is_softmax_less_the_target, 0, 20);
    tcase_add_loop_test(tests, no_bit_depends_on_the_number_of_threads, 0, 5);
    suite_add_tcase(suite, tests);
    return suite;
}
