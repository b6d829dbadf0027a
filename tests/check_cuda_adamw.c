/* check_cuda_adamw.c: the optimizer on the device against adamw_update_cpu, bit by bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/philox.h"
#include "tests/support_device.h"
#include "train/adamw_cuda.h"

/* A table of tensors of odd sizes: whole chunks, tails, one element; every second one decays. */
#define TENSORS 5
static const size_t sizes[TENSORS] = {20000, 1, 8192, 77, 8200};

struct optimizer_case {
    struct parameter entries[TENSORS];
    struct parameter_table table;
    struct adamw cpu;
    struct adamw_cuda gpu;
    float *parameters, *gradients, *device_gradients;
    uint16_t *weights;
    double *norm;
    struct adamw_step *step;
    struct adamw_settings settings;
};

static void lay_out(struct optimizer_case *it)
{
    size_t offset = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        it->entries[i] = (struct parameter){.rows = sizes[i], .columns = 1, .offset = offset, .decays = i % 2 == 0};
        offset = (offset + sizes[i] + 63) / 64 * 64;
    }
    it->table = (struct parameter_table){it->entries, TENSORS, offset};
}

static void begin(struct optimizer_case *it, struct random_stream *random, bool masters, bool stochastic)
{
    struct error error;
    device_for_test();
    lay_out(it);
    const size_t count = it->table.elements;
    it->settings = (struct adamw_settings){1e-2, 0.9, 0.95, 1e-8, 0.1, 1};
    it->parameters = test_alloc(count * sizeof(float));
    it->gradients = test_alloc(count * sizeof(float));
    random_normals(random, it->parameters, count, 1);
    it->weights = upload(NULL, count * sizeof(uint16_t));
    it->device_gradients = upload(NULL, count * sizeof(float));
    it->norm = upload(NULL, sizeof(double));
    it->step = upload(NULL, sizeof(struct adamw_step));
    must(adamw_create(&it->cpu, &it->table, &error), &error);
    must(adamw_cuda_create(&it->gpu, &it->table, masters, stochastic, &error), &error);
    if (masters) {
        must(device_copy_in(it->gpu.masters, it->parameters, count * sizeof(float), NULL, &error), &error);
        must(adamw_weights_cuda(&it->gpu, it->weights, NULL, &error), &error);
    } else {
        release(it->weights);
        it->weights = upload_bf16(it->parameters, count);
    }
}

static void end(struct optimizer_case *it)
{
    struct error error;
    adamw_destroy(&it->cpu);
    must(adamw_cuda_destroy(&it->gpu, &error), &error);
    release(it->weights), release(it->device_gradients), release(it->norm), release(it->step);
    free(it->parameters), free(it->gradients);
}

/* One update of the device with a norm of 2 (or another) and these gradients. */
static void update(struct optimizer_case *it, double norm, double clip, int64_t t)
{
    struct error error;
    const struct adamw_step step = adamw_step_make(&it->settings, clip, t, 77);
    must(device_copy_in(it->device_gradients, it->gradients, it->table.elements * sizeof(float), NULL, &error), &error);
    must(device_copy_in(it->norm, &norm, sizeof norm, NULL, &error) &&
             device_copy_in(it->step, &step, sizeof step, NULL, &error),
         &error);
    must(adamw_update_cuda(&it->gpu, it->step, it->norm, it->weights, it->device_gradients, NULL, &error), &error);
    must(device_stream_wait(NULL, &error), &error);
}

static void must_equal(const struct optimizer_case *it, const float *expected, const float *device, const char *what)
{
    float *found = test_alloc(it->table.elements * sizeof(float));
    download(found, device, it->table.elements * sizeof(float));
    for (size_t i = 0; i < TENSORS; i++) {
        for (size_t j = 0; j < sizes[i]; j++) {
            const size_t at = it->entries[i].offset + j;
            ck_assert_msg(found[at] == expected[at], "%s, tensor %zu, element %zu: %a, expected %a", what, i, j,
                          (double)found[at], (double)expected[at]);
        }
    }
    free(found);
}

START_TEST(updates_have_the_bits_of_the_cpu)
{
    struct random_stream random = random_stream(1 + (uint64_t)_i);
    struct optimizer_case it;
    begin(&it, &random, true, false);
    for (int64_t t = 1; t <= 4; t++) {
        const double norm = 2, clip = _i == 0 ? 0 : 0.7; /* without and with clipping */
        random_normals(&random, it.gradients, it.table.elements, 0.1f);
        update(&it, norm, clip, t);
        it.settings.gradient_scale = clip > 0 ? clip / norm : 1;
        adamw_update_cpu(&it.cpu, &it.table, &it.settings, it.parameters, it.gradients);
        must_equal(&it, it.cpu.mean, it.gpu.mean, "first moment");
        must_equal(&it, it.cpu.square, it.gpu.square, "second moment");
        must_equal(&it, it.parameters, it.gpu.masters, "parameter");
    }
    float *weights = test_alloc(it.table.elements * sizeof(float));
    download_bf16(weights, it.weights, it.table.elements);
    for (size_t i = 0; i < sizes[0]; i++) {
        ck_assert_float_eq(weights[i], bf16_round(it.parameters[i]));
    }
    free(weights);
    end(&it);
}
END_TEST

START_TEST(padding_between_tensors_is_not_touched)
{
    struct random_stream random = random_stream(11);
    struct optimizer_case it;
    begin(&it, &random, true, false);
    random_normals(&random, it.gradients, it.table.elements, 1);
    update(&it, 1, 0, 1);
    float *masters = test_alloc(it.table.elements * sizeof(float));
    download(masters, it.gpu.masters, it.table.elements * sizeof(float));
    for (size_t i = it.entries[3].offset + sizes[3]; i < it.entries[4].offset; i++) {
        ck_assert_float_eq(masters[i], it.parameters[i]);
    }
    free(masters);
    end(&it);
}
END_TEST

START_TEST(a_norm_that_is_not_finite_stops_the_update)
{
    const double norms[] = {NAN, INFINITY};
    struct random_stream random = random_stream(20);
    struct optimizer_case it;
    begin(&it, &random, true, false);
    random_normals(&random, it.gradients, it.table.elements, 1);
    update(&it, norms[_i], 1, 1);
    must_equal(&it, it.parameters, it.gpu.masters, "parameter");
    must_equal(&it, it.cpu.mean, it.gpu.mean, "first moment"); /* zeros */
    end(&it);
}
END_TEST

/* The update computed on the CPU, then rounded by the rule: up by the dropped bits' share. */
START_TEST(weights_without_masters_are_rounded_by_the_rule)
{
    struct random_stream random = random_stream(30);
    struct optimizer_case it;
    begin(&it, &random, _i, true);
    random_normals(&random, it.gradients, it.table.elements, 0.1f);
    update(&it, 1, 0, 1);
    adamw_update_cpu(&it.cpu, &it.table, &it.settings, it.parameters, it.gradients);
    float *weights = test_alloc(it.table.elements * sizeof(float));
    download_bf16(weights, it.weights, it.table.elements);
    for (size_t i = 0; i < TENSORS; i++) {
        for (size_t j = 0; j < sizes[i]; j++) {
            const size_t at = it.entries[i].offset + j;
            const struct philox_block block = philox4x32_10(77, 0, (uint32_t)(at / 4), 0, 1, 0);
            const uint32_t bits = float_to_bits(it.parameters[at]) + (block.word[at % 4] & 0xFFFFu);
            ck_assert_float_eq(weights[at], float_from_bits(bits & 0xFFFF0000u));
        }
    }
    free(weights);
    end(&it);
}
END_TEST

START_TEST(small_updates_are_kept_on_average)
{
    /* 1 + 2^-10 lies an eighth of the way between two BF16 numbers. A share of 20000 is within 8 standard deviations,
     * 8 sqrt(1/8 7/8 / 20000) = 0.019, of 1/8: missed once in 10^15. */
    struct random_stream random = random_stream(40);
    struct optimizer_case it;
    begin(&it, &random, true, true);
    it.settings.learning_rate = 0;
    for (size_t i = 0; i < it.table.elements; i++) {
        it.parameters[i] = 1 + 0x1p-10f;
        it.gradients[i] = 0;
    }
    struct error error;
    must(device_copy_in(it.gpu.masters, it.parameters, it.table.elements * sizeof(float), NULL, &error), &error);
    update(&it, 1, 0, 1 + (int64_t)random_below(&random, 1000000));
    float *weights = test_alloc(it.table.elements * sizeof(float));
    download_bf16(weights, it.weights, it.table.elements);
    size_t up = 0;
    for (size_t i = 0; i < sizes[0]; i++) {
        ck_assert(weights[i] == 1 || weights[i] == 1 + 0x1p-7f);
        up += weights[i] > 1;
    }
    ck_assert_double_eq_tol((double)up / (double)sizes[0], 0.125, 0.019);
    free(weights);
    end(&it);
}
END_TEST

START_TEST(weights_without_masters_must_round_stochastically)
{
    struct optimizer_case it;
    struct error error;
    lay_out(&it);
    ck_assert(!adamw_cuda_create(&it.gpu, &it.table, false, false, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
}
END_TEST

Suite *suite_cuda_adamw(void);

Suite *suite_cuda_adamw(void)
{
    Suite *suite = suite_create("cuda_adamw");
    TCase *tcase = tcase_create("cuda_adamw");
    tcase_add_loop_test(tcase, updates_have_the_bits_of_the_cpu, 0, 2);
    tcase_add_test(tcase, padding_between_tensors_is_not_touched);
    tcase_add_loop_test(tcase, a_norm_that_is_not_finite_stops_the_update, 0, 2);
    tcase_add_loop_test(tcase, weights_without_masters_are_rounded_by_the_rule, 0, 2);
    tcase_add_test(tcase, small_updates_are_kept_on_average);
    tcase_add_test(tcase, weights_without_masters_must_round_stochastically);
    suite_add_tcase(suite, tcase);
    return suite;
}
