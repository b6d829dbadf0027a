/* check_cuda_ops.c: a layer's operations on the device against ops.h on the CPU, from the same BF16 inputs.
 *
 * Rounding to BF16 is off by at most 2^-8 of the value; bounds on what was rounded once are 2^-7 of it, plus what FP32
 * arithmetic may lose before, said at each test.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "model/ops_cuda.h"
#include "tests/support_device.h"

#define ROUNDED 0x1p-7
#define UNIT    0x1p-24 /* of FP32 */

/* Numbers on both sides: `host` holds what the device's BF16 codes say. */
struct pair {
    float *host;
    uint16_t *device;
    size_t count;
};

static struct pair normals(struct random_stream *random, size_t count, float scale)
{
    struct pair pair = {test_alloc(count * sizeof(float)), NULL, count};
    random_normals(random, pair.host, count, scale);
    pair.device = upload_bf16(pair.host, count);
    return pair;
}

/* What the device writes: poison until then. */
static struct pair result(size_t count)
{
    return (struct pair){test_alloc(count * sizeof(float)), upload(NULL, count * sizeof(uint16_t)), count};
}

static void fetch(struct pair *pair)
{
    download_bf16(pair->host, pair->device, pair->count);
}

static void drop(struct pair *pair)
{
    free(pair->host);
    release(pair->device);
}

static void must_be_close(const float *found, const float *expected, size_t count, double relative, double absolute)
{
    for (size_t i = 0; i < count; i++) {
        const double bound = relative * fabs((double)expected[i]) + absolute;
        ck_assert_msg(fabs((double)found[i] - (double)expected[i]) <= bound, "element %zu: %.9g, expected %.9g +- %.3g",
                      i, (double)found[i], (double)expected[i], bound);
    }
}

static void must_be_rounded(const float *found, const float *exact, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(found[i] == bf16_round(exact[i]), "element %zu: %.9g, expected %.9g rounded", i, (double)found[i],
                      (double)exact[i]);
    }
}

/* ---- norms ---- */

/* Widths: less than a warp's vectors, a block's, more than a block's, and of real models. */
static const size_t widths[] = {16, 128, 200, 768, 1032, 4104, 8200};
#define WIDTHS (sizeof widths / sizeof *widths)

static struct norm_shape random_shape(struct random_stream *random, size_t width, bool centred)
{
    return (struct norm_shape){1 + random_below(random, width > 1000 ? 9 : 40), width, centred, 1e-5f};
}

static double sum_double(const float *x, size_t count, double shift, bool squared)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const double value = (double)x[i] - shift;
        sum += squared ? value * value : value;
    }
    return sum;
}

START_TEST(norm_forward_is_that_of_the_rounded_sum)
{
    device_for_test();
    struct random_stream random = random_stream(100 + (uint64_t)_i);
    const struct norm_shape shape = random_shape(&random, widths[(size_t)_i / 2], _i % 2 == 0);
    const size_t count = shape.rows * shape.columns, columns = shape.columns;
    struct pair residual = normals(&random, count, 1), delta = normals(&random, count, 1),
                added = normals(&random, columns, 1);
    struct pair weight = normals(&random, columns, 1), bias = normals(&random, columns, 1), sum = result(count),
                y = result(count);
    float *sum_cpu = test_alloc(count * sizeof(float)), *y_cpu = test_alloc(count * sizeof(float));
    float *statistics = test_alloc(2 * shape.rows * sizeof(float)), *ours = test_alloc(2 * shape.rows * sizeof(float));
    float *device_statistics = upload(NULL, 2 * shape.rows * sizeof(float));
    struct error error;
    must(norm_forward_cuda(&shape, residual.device, delta.device, shape.centred ? added.device : NULL, weight.device,
                           shape.centred ? bias.device : NULL, sum.device, y.device, device_statistics, NULL, &error),
         &error);
    fetch(&sum);
    fetch(&y);
    download(ours, device_statistics, 2 * shape.rows * sizeof(float));
    norm_forward_cpu(&shape, residual.host, delta.host, shape.centred ? added.host : NULL, weight.host, NULL, sum_cpu,
                     y_cpu, statistics);
    must_be_rounded(sum.host, sum_cpu, count);
    norm_forward_cpu(&shape, sum.host, NULL, NULL, weight.host, shape.centred ? bias.host : NULL, NULL, y_cpu,
                     statistics);
    /* The mean of n terms is off by n units of their mean magnitude at most, the deviation relatively by n units;
     * numbers here are below 8 normed, weights below 8. */
    const double lost = (double)(columns + 16) * UNIT;
    must_be_close(y.host, y_cpu, count, ROUNDED, 2 * lost * 64);
    for (size_t row = 0; row < shape.rows; row++) {
        const float *x = sum.host + row * columns;
        double magnitude = 0;
        for (size_t i = 0; i < columns; i++) {
            magnitude += fabs((double)x[i]);
        }
        const double mean = shape.centred ? sum_double(x, columns, 0, false) / (double)columns : 0;
        ck_assert_double_le(fabs((double)ours[2 * row] - mean), lost * magnitude / (double)columns);
        const double inverse = 1 / sqrt(sum_double(x, columns, mean, true) / (double)columns + (double)shape.epsilon);
        ck_assert_double_le(fabs((double)ours[2 * row + 1] - inverse), 2 * lost * inverse);
    }
    drop(&residual), drop(&delta), drop(&added), drop(&weight), drop(&bias), drop(&sum), drop(&y);
    release(device_statistics);
    free(sum_cpu), free(y_cpu), free(statistics), free(ours);
}
END_TEST

/* The gradients in FP64, from the device's own statistics, and the sums of magnitudes that bound FP32 summation. */
struct norm_reference {
    double *dx, *dweight, *dbias, *dweight_size, *dbias_size;
};

static void norm_reference_row(const struct norm_shape *shape, const float *dy, const float *x, const float *weight,
                               const float *statistics, double *dx, struct norm_reference *to)
{
    double plain = 0, projected = 0;
    for (size_t i = 0; i < shape->columns; i++) {
        const double normed = ((double)x[i] - (double)statistics[0]) * (double)statistics[1];
        plain += (double)dy[i] * (double)weight[i];
        projected += (double)dy[i] * (double)weight[i] * normed;
        to->dweight[i] += (double)dy[i] * normed;
        to->dweight_size[i] += fabs((double)dy[i] * normed);
        to->dbias[i] += (double)dy[i];
        to->dbias_size[i] += fabs((double)dy[i]);
    }
    const double shift = shape->centred ? plain / (double)shape->columns : 0;
    for (size_t i = 0; i < shape->columns; i++) {
        const double normed = ((double)x[i] - (double)statistics[0]) * (double)statistics[1];
        dx[i] += (double)statistics[1] *
                 ((double)dy[i] * (double)weight[i] - shift - normed * projected / (double)shape->columns);
    }
}

static void check_sums(const float *found, const double *expected, const double *size, size_t count, double terms)
{
    for (size_t i = 0; i < count; i++) { /* + 1: each had a 1 there before; +- a few units for each term itself */
        ck_assert_double_le(fabs((double)found[i] - 1 - expected[i]), (terms + 8) * UNIT * (size[i] + 1));
    }
}

START_TEST(norm_backward_is_its_definition)
{
    device_for_test();
    struct random_stream random = random_stream(200 + (uint64_t)_i);
    struct norm_shape shape = random_shape(&random, widths[(size_t)_i / 2], _i % 2 == 0);
    shape.rows += shape.columns == 16 || shape.columns == 1032 ? 700 : 0; /* more rows than slices: one warp, several */
    const size_t count = shape.rows * shape.columns, columns = shape.columns;
    struct pair x = normals(&random, count, 2), dy = normals(&random, count, 1), weight = normals(&random, columns, 1);
    struct pair dx = normals(&random, count, 1), y = result(count);
    float *statistics = test_alloc(2 * shape.rows * sizeof(float)), *ones = test_alloc(columns * sizeof(float));
    float *device_statistics = upload(NULL, 2 * shape.rows * sizeof(float));
    struct norm_reference reference = {calloc(count, sizeof(double)), calloc(columns, sizeof(double)),
                                       calloc(columns, sizeof(double)), calloc(columns, sizeof(double)),
                                       calloc(columns, sizeof(double))};
    for (size_t i = 0; i < columns; i++) {
        ones[i] = 1;
    }
    float *dweight = upload(ones, columns * sizeof(float)), *dbias = upload(ones, columns * sizeof(float));
    void *workspace = upload(NULL, norm_workspace_bytes_cuda(columns));
    struct error error;
    must(norm_forward_cuda(&shape, x.device, NULL, NULL, weight.device, NULL, NULL, y.device, device_statistics, NULL,
                           &error),
         &error);
    download(statistics, device_statistics, 2 * shape.rows * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        reference.dx[i] = (double)dx.host[i];
    }
    must(norm_backward_cuda(&shape, dy.device, x.device, weight.device, device_statistics, dx.device, dweight,
                            shape.centred ? dbias : NULL, workspace, NULL, &error),
         &error);
    for (size_t row = 0; row < shape.rows; row++) {
        norm_reference_row(&shape, dy.host + row * columns, x.host + row * columns, weight.host, statistics + 2 * row,
                           reference.dx + row * columns, &reference);
    }
    fetch(&dx);
    /* Sums over a row are divided by its length: n units of a mean below 2, times a normed number below 8. */
    for (size_t i = 0; i < count; i++) {
        const double bound = ROUNDED * fabs(reference.dx[i]) + (double)(columns + 32) * UNIT * 32;
        ck_assert_msg(fabs((double)dx.host[i] - reference.dx[i]) <= bound, "dx %zu: %.9g, expected %.9g +- %.3g", i,
                      (double)dx.host[i], reference.dx[i], bound);
    }
    download(ones, dweight, columns * sizeof(float));
    check_sums(ones, reference.dweight, reference.dweight_size, columns, (double)shape.rows);
    download(ones, dbias, columns * sizeof(float));
    if (shape.centred) {
        check_sums(ones, reference.dbias, reference.dbias_size, columns, (double)shape.rows);
    }
    drop(&x), drop(&dy), drop(&weight), drop(&dx), drop(&y);
    release(device_statistics), release(dweight), release(dbias), release(workspace);
    free(statistics), free(ones);
    free(reference.dx), free(reference.dweight), free(reference.dbias), free(reference.dweight_size),
        free(reference.dbias_size);
}
END_TEST

START_TEST(norm_gradients_have_the_same_bits_every_time)
{
    device_for_test();
    struct random_stream random = random_stream(3);
    const struct norm_shape shape = {1100, 264, true, 1e-5f};
    const size_t count = shape.rows * shape.columns;
    struct pair x = normals(&random, count, 1), dy = normals(&random, count, 1),
                weight = normals(&random, shape.columns, 1);
    struct pair y = result(count);
    float *statistics = upload(NULL, 2 * shape.rows * sizeof(float)), sums[2][264];
    void *workspace = upload(NULL, norm_workspace_bytes_cuda(shape.columns));
    struct error error;
    must(norm_forward_cuda(&shape, x.device, NULL, NULL, weight.device, NULL, NULL, y.device, statistics, NULL, &error),
         &error);
    for (int run = 0; run < 2; run++) { /* the emulator lets threads take turns in another order each time */
        struct pair dx = normals(&random, count, 1);
        float *dweight = upload(NULL, sizeof sums[0]), *dbias = upload(NULL, sizeof sums[0]);
        must(device_fill(dweight, 0, sizeof sums[0], NULL, &error) &&
                 device_fill(dbias, 0, sizeof sums[0], NULL, &error),
             &error);
        must(norm_backward_cuda(&shape, dy.device, x.device, weight.device, statistics, dx.device, dweight, dbias,
                                workspace, NULL, &error),
             &error);
        download(sums[run], dweight, sizeof sums[0]);
        drop(&dx);
        release(dweight), release(dbias);
    }
    ck_assert_mem_eq(sums[0], sums[1], sizeof sums[0]);
    drop(&x), drop(&dy), drop(&weight), drop(&y);
    release(statistics), release(workspace);
}
END_TEST

/* Integers: the sums are exact, whatever the order. */
static void integers(struct random_stream *random, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)random_below(random, 17) - 8.0f;
    }
}

START_TEST(bias_gradient_sums_columns)
{
    device_for_test();
    struct random_stream random = random_stream(400 + (uint64_t)_i);
    const size_t rows = 1 + random_below(&random, 1200), columns = 8 * (1 + random_below(&random, 80));
    float *dy = test_alloc(rows * columns * sizeof *dy), *expected = calloc(columns, sizeof(float)),
          *found = test_alloc(columns * sizeof *found);
    integers(&random, dy, rows * columns);
    integers(&random, expected, columns);
    uint16_t *device = upload_bf16(dy, rows * columns);
    float *db = upload(expected, columns * sizeof(float));
    void *workspace = upload(NULL, norm_workspace_bytes_cuda(columns));
    struct error error;
    must(bias_backward_cuda(device, rows, columns, db, workspace, NULL, &error), &error);
    bias_backward_cpu(dy, rows, columns, expected);
    download(found, db, columns * sizeof(float));
    ck_assert_mem_eq(found, expected, columns * sizeof(float));
    release(device), release(db), release(workspace);
    free(dy), free(expected), free(found);
}
END_TEST

/* ---- rotary positions ---- */

START_TEST(rope_rotates_as_on_the_cpu)
{
    device_for_test();
    enum { POSITIONS = 50 };
    static const size_t head_dims[] = {16, 64, 80, 128};
    struct random_stream random = random_stream(500 + (uint64_t)_i);
    const size_t head_dim = head_dims[(size_t)_i / 2], heads = 1 + random_below(&random, 5),
                 rows = 1 + random_below(&random, 70);
    const size_t stride = (heads + 2) * head_dim, tables = POSITIONS * head_dim / 2;
    float *cosines = test_alloc(tables * sizeof(float)), *sines = test_alloc(tables * sizeof(float));
    int32_t *positions = test_alloc(rows * sizeof *positions);
    for (size_t i = 0; i < rows; i++) {
        positions[i] = (int32_t)random_below(&random, POSITIONS);
    }
    rope_tables(POSITIONS, head_dim, 10000, cosines, sines);
    struct pair x = normals(&random, rows * stride, 1),
                found = {test_alloc(rows * stride * sizeof(float)), x.device, rows * stride};
    float *device_cosines = upload(cosines, tables * sizeof(float)),
          *device_sines = upload(sines, tables * sizeof(float));
    int32_t *device_positions = upload(positions, rows * sizeof *positions);
    struct error error;
    must(rope_cuda(x.device, stride, device_positions, rows, heads, head_dim, device_cosines, device_sines, _i % 2,
                   NULL, &error),
         &error);
    fetch(&found);
    rope_cpu(x.host, stride, positions, rows, heads, head_dim, cosines, sines, _i % 2);
    must_be_rounded(found.host, x.host, rows * stride); /* the heads behind stay */
    drop(&x);
    release(device_cosines), release(device_sines), release(device_positions);
    free(cosines), free(sines), free(positions), free(found.host);
}
END_TEST

/* ---- activations: FP32 loses a few units of each factor, and 2^z is off by |z| units ---- */

#define LOST 1e-5

START_TEST(gelu_is_that_of_the_cpu)
{
    device_for_test();
    struct random_stream random = random_stream(6);
    const size_t rows = 1 + random_below(&random, 30), columns = 8 * (1 + random_below(&random, 100)),
                 count = rows * columns;
    struct pair x = normals(&random, count, 3), bias = normals(&random, columns, 1), dy = normals(&random, count, 1);
    struct pair y = result(count), dx = result(count), kept = {test_alloc(count * sizeof(float)), x.device, count};
    float *expected = test_alloc(count * sizeof(float));
    const float far[8] = {-1e30f, 1e30f, -50, 50, -13, 0, 1e-30f, -1e-38f};
    struct error error;
    for (size_t i = 0; i < 8; i++) {
        x.host[i] = far[i];
    }
    release(x.device);
    kept.device = x.device = upload_bf16(x.host, count);
    must(gelu_forward_cuda(x.device, bias.device, rows, columns, y.device, NULL, &error), &error);
    fetch(&kept);
    fetch(&y);
    bias_forward_cpu(x.host, bias.host, rows, columns);
    must_be_rounded(kept.host, x.host, count);
    must(gelu_backward_cuda(x.device, dy.device, count, dx.device, NULL, &error), &error);
    fetch(&dx);
    gelu_backward_cpu(kept.host, dy.host, count, expected);
    for (size_t i = 0; i < count; i++) {
        must_be_close(dx.host + i, expected + i, 1, ROUNDED, LOST * fabs((double)dy.host[i]));
    }
    memset(bias.host, 0, columns * sizeof(float));
    gelu_forward_cpu(kept.host, bias.host, rows, columns, expected);
    must_be_close(y.host, expected, count, ROUNDED, 1e-30);
    drop(&x), drop(&bias), drop(&dy), drop(&y), drop(&dx);
    free(kept.host), free(expected);
}
END_TEST

START_TEST(swiglu_is_that_of_the_cpu)
{
    device_for_test();
    struct random_stream random = random_stream(7);
    const size_t rows = 1 + random_below(&random, 30), columns = 8 * (1 + random_below(&random, 100)),
                 count = rows * columns;
    struct pair x = normals(&random, 2 * count, 3), dy = normals(&random, count, 1), y = result(count),
                dx = result(2 * count);
    float *expected = test_alloc(2 * count * sizeof(float));
    struct error error;
    must(swiglu_forward_cuda(x.device, rows, columns, y.device, NULL, &error), &error);
    must(swiglu_backward_cuda(x.device, dy.device, rows, columns, dx.device, NULL, &error), &error);
    fetch(&y);
    fetch(&dx);
    swiglu_forward_cpu(x.host, rows, columns, expected);
    must_be_close(y.host, expected, count, ROUNDED, 1e-30);
    swiglu_backward_cpu(x.host, dy.host, rows, columns, expected);
    for (size_t i = 0; i < 2 * count; i++) { /* dy times up: cancellation where silu's slope is 0 */
        const size_t row = i / (2 * columns), column = i % columns;
        const double size =
            fabs((double)dy.host[row * columns + column] * (double)x.host[row * 2 * columns + columns + column]);
        must_be_close(dx.host + i, expected + i, 1, ROUNDED, LOST * size);
    }
    drop(&x), drop(&dy), drop(&y), drop(&dx);
    free(expected);
}
END_TEST

/* ---- embedding ---- */

struct embedding_case {
    size_t rows, columns, vocabulary, context;
    int32_t *tokens, *positions;
};

static struct embedding_case embedding_case(struct random_stream *random, size_t vocabulary)
{
    struct embedding_case it = {
        1 + random_below(random, 900), 8 * (1 + random_below(random, 70)), vocabulary, 40, NULL, NULL};
    it.tokens = test_alloc(it.rows * sizeof(int32_t));
    it.positions = test_alloc(it.rows * sizeof(int32_t));
    for (size_t i = 0; i < it.rows; i++) { /* half of them one token: a long run */
        it.tokens[i] = (int32_t)(random_below(random, 2) ? it.vocabulary / 2 : random_below(random, it.vocabulary));
        it.positions[i] = (int32_t)random_below(random, it.context);
    }
    return it;
}

START_TEST(embedding_adds_the_tables_rows)
{
    device_for_test();
    struct random_stream random = random_stream(800 + (uint64_t)_i);
    struct embedding_case it = embedding_case(&random, 100);
    const size_t count = it.rows * it.columns;
    struct pair table = normals(&random, it.vocabulary * it.columns, 1),
                places = normals(&random, it.context * it.columns, 1);
    struct pair y = result(count);
    float *expected = test_alloc(count * sizeof(float));
    int32_t *tokens = upload(it.tokens, it.rows * sizeof(int32_t)),
            *positions = upload(it.positions, it.rows * sizeof(int32_t));
    struct error error;
    must(embedding_forward_cuda(tokens, positions, table.device, _i ? places.device : NULL, it.rows, it.columns,
                                y.device, NULL, &error),
         &error);
    fetch(&y);
    embedding_forward_cpu(it.tokens, it.positions, table.host, _i ? places.host : NULL, it.rows, it.columns, expected);
    must_be_rounded(y.host, expected, count);
    drop(&table), drop(&places), drop(&y);
    release(tokens), release(positions);
    free(expected), free(it.tokens), free(it.positions);
}
END_TEST

START_TEST(embedding_gradient_sums_each_tokens_rows)
{
    device_for_test();
    struct random_stream random = random_stream(900 + (uint64_t)_i);
    struct embedding_case it = embedding_case(&random, _i % 2 ? 7 : 3000); /* fewer and more tokens than rows */
    const size_t count = it.rows * it.columns, size = it.vocabulary * it.columns;
    float *dy = test_alloc(count * sizeof(float)), *expected = test_alloc(size * sizeof(float)),
          *found = test_alloc(size * sizeof(float));
    integers(&random, dy, count);
    integers(&random, expected, size);
    uint16_t *device = upload_bf16(dy, count);
    float *gradient = upload(expected, size * sizeof(float));
    int32_t *tokens = upload(it.tokens, it.rows * sizeof(int32_t));
    void *workspace = upload(NULL, embedding_workspace_bytes_cuda(it.rows));
    struct error error;
    must(embedding_backward_cuda(tokens, it.rows, it.vocabulary, device, it.columns, gradient, workspace, NULL, &error),
         &error);
    embedding_backward_cpu(it.tokens, NULL, dy, it.rows, it.columns, expected, NULL);
    download(found, gradient, size * sizeof(float));
    ck_assert_mem_eq(found, expected, size * sizeof(float));
    release(device), release(gradient), release(tokens), release(workspace);
    free(dy), free(expected), free(found), free(it.tokens), free(it.positions);
}
END_TEST

/* ---- shapes ---- */

START_TEST(shapes_without_kernels_are_refused_by_name)
{
    struct error error;
    ck_assert(ops_fit_cuda(768, 3072, 64, 50304, &error));
    ck_assert(!ops_fit_cuda(770, 3072, 64, 50304, &error));
    ck_assert_msg(strstr(error.text, "width 770") != NULL, "%s", error.text);
    ck_assert(!ops_fit_cuda(768, 3073, 64, 50304, &error));
    ck_assert(!ops_fit_cuda(768, 3072, 24, 50304, &error));
    ck_assert_msg(strstr(error.text, "head dim 24") != NULL, "%s", error.text);
    ck_assert(!ops_fit_cuda(1 << 20, 3072, 64, 50304, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
}
END_TEST

START_TEST(no_rows_are_no_error)
{
    device_for_test();
    const struct norm_shape shape = {0, 128, true, 1e-5f};
    struct error error;
    must(norm_forward_cuda(&shape, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &error), &error);
    must(norm_backward_cuda(&shape, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &error), &error);
    must(rope_cuda(NULL, 128, NULL, 0, 2, 64, NULL, NULL, false, NULL, &error), &error);
    must(gelu_forward_cuda(NULL, NULL, 0, 128, NULL, NULL, &error), &error);
    must(swiglu_forward_cuda(NULL, 0, 128, NULL, NULL, &error), &error);
    must(embedding_backward_cuda(NULL, 0, 10, NULL, 128, NULL, NULL, NULL, &error), &error);
}
END_TEST

Suite *suite_cuda_ops(void);

Suite *suite_cuda_ops(void)
{
    Suite *suite = suite_create("cuda_ops");
    TCase *tcase = tcase_create("cuda_ops");
    tcase_add_loop_test(tcase, norm_forward_is_that_of_the_rounded_sum, 0, 2 * WIDTHS);
    tcase_add_loop_test(tcase, norm_backward_is_its_definition, 0, 2 * WIDTHS);
    tcase_add_test(tcase, norm_gradients_have_the_same_bits_every_time);
    tcase_add_loop_test(tcase, bias_gradient_sums_columns, 0, 3);
    tcase_add_loop_test(tcase, rope_rotates_as_on_the_cpu, 0, 8);
    tcase_add_test(tcase, gelu_is_that_of_the_cpu);
    tcase_add_test(tcase, swiglu_is_that_of_the_cpu);
    tcase_add_loop_test(tcase, embedding_adds_the_tables_rows, 0, 2);
    tcase_add_loop_test(tcase, embedding_gradient_sums_each_tokens_rows, 0, 4);
    tcase_add_test(tcase, shapes_without_kernels_are_refused_by_name);
    tcase_add_test(tcase, no_rows_are_no_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
