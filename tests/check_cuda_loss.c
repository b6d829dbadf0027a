/* check_cuda_loss.c: the fused loss on the device against FP64. */
#include <math.h>
#include <stdlib.h>

#include "attention/formats.h"
#include "data/batch.h"
#include "model/ops_cuda.h"
#include "tests/support_device.h"

#define ROUNDED 0x1p-7 /* twice what rounding to BF16 may lose */

/* FP32 sums of up to 200 exponentials a thread, then 32 and 8: below 256 units; an exponent is off by |z| <= 100 units,
 * one more for the product. 5e-5 is over twice that. */
#define LOST 5e-5

struct loss_case {
    size_t rows, vocabulary, stride;
    float *logits, scale;
    int32_t *targets;
    uint16_t *device_logits;
    int32_t *device_targets;
    float *device_losses, *device_scale, *losses;
};

static struct loss_case loss_case(struct random_stream *random, size_t rows, size_t vocabulary, float spread)
{
    struct loss_case it = {
        .rows = rows, .vocabulary = vocabulary, .stride = (vocabulary + 127) / 128 * 128, .scale = 1.0f / 700};
    it.logits = test_alloc(rows * it.stride * sizeof(float)); /* poison past the vocabulary */
    it.targets = test_alloc(rows * sizeof(int32_t));
    it.losses = test_alloc(rows * sizeof(float));
    for (size_t row = 0; row < rows; row++) {
        random_normals(random, it.logits + row * it.stride, vocabulary, spread);
        it.targets[row] = random_below(random, 5) ? (int32_t)random_below(random, vocabulary) : TARGET_IGNORED;
    }
    it.targets[0] = (int32_t)vocabulary - 1;
    it.device_logits = upload_bf16(it.logits, rows * it.stride);
    it.device_targets = upload(it.targets, rows * sizeof(int32_t));
    it.device_losses = upload(NULL, rows * sizeof(float));
    it.device_scale = upload(&it.scale, sizeof it.scale);
    return it;
}

static void run(struct loss_case *it, bool gradient)
{
    struct error error;
    must(loss_cuda(it->device_logits, it->device_targets, it->rows, it->vocabulary, it->stride, it->device_losses,
                   gradient ? it->device_scale : NULL, NULL, &error),
         &error);
    download(it->losses, it->device_losses, it->rows * sizeof(float));
}

static void drop(struct loss_case *it)
{
    release(it->device_logits), release(it->device_targets), release(it->device_losses), release(it->device_scale);
    free(it->logits), free(it->targets), free(it->losses);
}

static double log_sum(const float *x, size_t count)
{
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, (double)x[i]);
    }
    for (size_t i = 0; i < count; i++) {
        sum += exp((double)x[i] - most);
    }
    return most + log(sum);
}

static void check_row(const struct loss_case *it, size_t row, const float *gradient)
{
    const float *x = it->logits + row * it->stride;
    const size_t target = (size_t)it->targets[row];
    const double all = log_sum(x, it->vocabulary), loss = all - (double)x[target];
    ck_assert_msg(fabs((double)it->losses[row] - loss) <= LOST * (1 + loss), "row %zu: loss %.9g, expected %.9g", row,
                  (double)it->losses[row], loss);
    for (size_t i = 0; i < it->stride; i++) {
        const double p = i < it->vocabulary ? exp((double)x[i] - all) : 0, scale = (double)it->scale;
        const double expected = scale * (p - (i == target)),
                     bound = ROUNDED * fabs(expected) + LOST * scale * p + 1e-37;
        ck_assert_msg(fabs((double)gradient[i] - expected) <= bound, "row %zu, logit %zu: %.9g, expected %.9g +- %.3g",
                      row, i, (double)gradient[i], expected, bound);
    }
}

static const size_t vocabularies[] = {2, 65, 256, 2041, 50257};
static const size_t case_rows[] = {9, 60, 40, 12, 3};

START_TEST(loss_and_gradient_are_those_of_fp64)
{
    device_for_test();
    struct random_stream random = random_stream(10 + (uint64_t)_i);
    struct loss_case it = loss_case(&random, case_rows[_i], vocabularies[_i], _i % 2 ? 8 : 1);
    float *gradient = test_alloc(it.rows * it.stride * sizeof(float));
    run(&it, true);
    download_bf16(gradient, it.device_logits, it.rows * it.stride);
    for (size_t row = 0; row < it.rows; row++) {
        if (it.targets[row] != TARGET_IGNORED) {
            check_row(&it, row, gradient + row * it.stride);
            continue;
        }
        ck_assert_float_eq(it.losses[row], 0);
        for (size_t i = 0; i < it.stride; i++) {
            ck_assert_float_eq(gradient[row * it.stride + i], 0);
        }
    }
    drop(&it);
    free(gradient);
}
END_TEST

START_TEST(evaluation_leaves_the_logits)
{
    device_for_test();
    struct random_stream random = random_stream(2);
    struct loss_case it = loss_case(&random, 20, 300, 2);
    float *left = test_alloc(it.rows * it.stride * sizeof(float));
    run(&it, false);
    float *first = test_alloc(it.rows * sizeof(float));
    for (size_t row = 0; row < it.rows; row++) {
        first[row] = it.losses[row];
    }
    download_bf16(left, it.device_logits, it.rows * it.stride);
    ck_assert_mem_eq(left, it.logits, it.rows * it.stride * sizeof(float));
    run(&it, true);
    ck_assert_mem_eq(it.losses, first, it.rows * sizeof(float));
    drop(&it);
    free(left), free(first);
}
END_TEST

/* Row 0 of three: one logit is something special. */
static float loss_with(float special, size_t at, size_t target)
{
    struct random_stream random = random_stream(3);
    struct loss_case it = loss_case(&random, 3, 100, 1);
    it.logits[at] = special;
    it.targets[0] = (int32_t)target;
    release(it.device_logits), release(it.device_targets);
    it.device_logits = upload_bf16(it.logits, it.rows * it.stride);
    it.device_targets = upload(it.targets, it.rows * sizeof(int32_t));
    run(&it, true);
    const float loss = it.losses[0];
    drop(&it);
    return loss;
}

START_TEST(what_is_not_finite_reaches_the_loss)
{
    device_for_test();
    ck_assert(isnan(loss_with(NAN, 17, 5)));
    ck_assert(isnan(loss_with(NAN, 17, 17)));
    ck_assert(!isfinite(loss_with(INFINITY, 99, 5)));
    ck_assert(isfinite(loss_with(-INFINITY, 17, 5))); /* a probability of 0 is none of the loss's trouble */
    ck_assert(isinf(loss_with(-INFINITY, 17, 17)));
    ck_assert(isfinite(loss_with(3e38f, 17, 17)));
}
END_TEST

START_TEST(nan_is_seen_where_a_thread_sees_nothing_else)
{
    device_for_test();
    struct random_stream random = random_stream(4);
    struct loss_case it = loss_case(&random, 2, 100, 1);
    for (size_t i = 0; i < 8; i++) { /* the first thread's share of the row */
        it.logits[i] = NAN;
    }
    it.targets[0] = 50;
    release(it.device_logits), release(it.device_targets);
    it.device_logits = upload_bf16(it.logits, it.rows * it.stride);
    it.device_targets = upload(it.targets, it.rows * sizeof(int32_t));
    run(&it, true);
    ck_assert(isnan(it.losses[0]));
    drop(&it);
}
END_TEST

Suite *suite_cuda_loss(void);

Suite *suite_cuda_loss(void)
{
    Suite *suite = suite_create("cuda_loss");
    TCase *tcase = tcase_create("cuda_loss");
    tcase_add_loop_test(tcase, loss_and_gradient_are_those_of_fp64, 0, 5);
    tcase_add_test(tcase, evaluation_leaves_the_logits);
    tcase_add_test(tcase, what_is_not_finite_reaches_the_loss);
    tcase_add_test(tcase, nan_is_seen_where_a_thread_sees_nothing_else);
    suite_add_tcase(suite, tcase);
    return suite;
}
