/* check_parameters.c: the table of a model's parameters, and what they start from. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "model/parameters.h"
#include "tests/model_case.h"

static struct parameter_table table_of(const struct model_config *config)
{
    struct parameter_table table;
    struct error error;
    ck_assert_msg(parameter_table_make(&table, config, &error), "%s", error.text);
    return table;
}

static float *initial(const struct parameter_table *table, const struct model_config *config, uint64_t seed)
{
    float *values = test_alloc(table->elements * sizeof *values);
    parameters_initialise(table, config, seed, values);
    return values;
}

static size_t size_of(const struct parameter *tensor)
{
    return tensor->rows * tensor->columns;
}

START_TEST(tensors_follow_each_other_in_the_buffer)
{
    const struct model_config config = case_config((enum model_case)_i, 40);
    struct parameter_table table = table_of(&config);
    size_t end = 0, total = 0;
    for (size_t k = 0; k < table.count; k++) {
        const struct parameter *tensor = &table.entries[k];
        ck_assert_uint_ge(tensor->offset, end);
        ck_assert_uint_lt(tensor->offset - end, 64);
        ck_assert_uint_eq(tensor->offset % 64, 0);
        end = tensor->offset + size_of(tensor);
        total += size_of(tensor);
    }
    ck_assert_uint_ge(table.elements, end);
    ck_assert_uint_lt(table.elements - end, 64);
    ck_assert_uint_eq(total, model_parameter_count(&config));
    parameter_table_free(&table);
}
END_TEST

START_TEST(every_tensor_is_found_by_what_it_is_and_has_a_name_of_its_own)
{
    const struct model_config config = case_config((enum model_case)_i, 40);
    struct parameter_table table = table_of(&config);
    for (size_t k = 0; k < table.count; k++) {
        const struct parameter *tensor = &table.entries[k];
        ck_assert_ptr_eq(parameter_find(&table, tensor->kind, tensor->layer), tensor);
        for (size_t other = 0; other < k; other++) {
            ck_assert_str_ne(table.entries[other].name, tensor->name);
        }
    }
    ck_assert_str_eq(parameter_find(&table, PARAMETER_QKV_WEIGHT, 1)->name, "layers.1.qkv.weight");
    ck_assert_ptr_null(parameter_find(&table, PARAMETER_QKV_WEIGHT, 2));
    parameter_table_free(&table);
}
END_TEST

START_TEST(a_family_has_its_own_tensors_only)
{
    const struct model_config config = case_config((enum model_case)_i, 40);
    struct parameter_table table = table_of(&config);
    static const enum parameter_kind of_gpt2[] = {
        PARAMETER_POSITION_EMBEDDING, PARAMETER_NORM1_BIAS, PARAMETER_QKV_BIAS,  PARAMETER_OUTPUT_BIAS,
        PARAMETER_NORM2_BIAS,         PARAMETER_UP_BIAS,    PARAMETER_DOWN_BIAS, PARAMETER_FINAL_NORM_BIAS};
    for (size_t i = 0; i < sizeof of_gpt2 / sizeof *of_gpt2; i++) {
        ck_assert_int_eq(parameter_find(&table, of_gpt2[i], 0) != NULL, _i == CASE_GPT2);
    }
    ck_assert_int_eq(parameter_find(&table, PARAMETER_HEAD_WEIGHT, 0) != NULL, _i == CASE_LLAMA);
    parameter_table_free(&table);
}
END_TEST

START_TEST(matrices_decay_and_vectors_do_not)
{
    const struct model_config config = case_config((enum model_case)_i, 40);
    struct parameter_table table = table_of(&config);
    for (size_t k = 0; k < table.count; k++) {
        const char *name = table.entries[k].name;
        const bool vector = strstr(name, "norm") != NULL || strstr(name, "bias") != NULL;
        ck_assert_msg(table.entries[k].decays == !vector, "%s", name);
    }
    parameter_table_free(&table);
}
END_TEST

/* Mean within 6 standard errors of 0, mean square within 6 of sd^2 (its standard error is sqrt(2 / n) of it), and the
 * share within one sd of its 0.6827: three chances of 2e-9 a tensor. */
static void expect_normal(const char *name, const float *values, size_t count, double deviation)
{
    double sum = 0, squares = 0, within = 0;
    for (size_t i = 0; i < count; i++) {
        const double z = (double)values[i] / deviation;
        sum += z;
        squares += z * z;
        within += fabs(z) < 1;
    }
    const double n = (double)count, se = 1 / sqrt(n);
    ck_assert_msg(fabs(sum / n) <= 6 * se, "%s: mean %g sd", name, sum / n);
    ck_assert_msg(fabs(squares / n - 1) <= 6 * sqrt(2.0) * se, "%s: variance %g of what it should be", name,
                  squares / n);
    ck_assert_msg(fabs(within / n - 0.682689) <= 6 * 0.466 * se, "%s: share within one sd %g", name, within / n);
}

static void expect_start(const struct parameter *tensor, const struct model_config *config, const float *values)
{
    const bool residual = tensor->kind == PARAMETER_OUTPUT_WEIGHT || tensor->kind == PARAMETER_DOWN_WEIGHT;
    const bool per_token = tensor->kind == PARAMETER_TOKEN_EMBEDDING || tensor->kind == PARAMETER_HEAD_WEIGHT;
    const size_t used = per_token ? config->vocabulary * config->width : size_of(tensor);
    const size_t end = (size_of(tensor) + 63) / 64 * 64;
    if (tensor->columns > 1) {
        expect_normal(tensor->name, values, used, residual ? 0.02 / sqrt(2.0 * (double)config->layers) : 0.02);
    } else {
        for (size_t i = 0; i < used; i++) {
            ck_assert(values[i] == (strstr(tensor->name, "bias") ? 0.0f : 1.0f));
        }
    }
    for (size_t i = used; i < end; i++) {
        expect(values[i] == 0, "%s: padding at %zu is %g", tensor->name, i, (double)values[i]);
    }
}

START_TEST(tensors_start_as_the_table_says)
{
    struct random_stream random = random_stream((uint64_t)_i);
    const struct model_config config = case_config((enum model_case)_i, 41);
    struct parameter_table table = table_of(&config);
    float *values = initial(&table, &config, random_bits(&random));
    for (size_t k = 0; k < table.count; k++) {
        expect_start(&table.entries[k], &config, values + table.entries[k].offset);
    }
    free(values);
    parameter_table_free(&table);
}
END_TEST

/* Sum of products of two tensors' starts, in standard errors if they are independent. */
static double alikeness(const float *x, const float *y, size_t count)
{
    double products = 0, squares_x = 0, squares_y = 0;
    for (size_t i = 0; i < count; i++) {
        products += (double)x[i] * (double)y[i];
        squares_x += (double)x[i] * (double)x[i];
        squares_y += (double)y[i] * (double)y[i];
    }
    return fabs(products) / sqrt(squares_x * squares_y / (double)count);
}

/* Independent: below 7 standard errors, with a chance of 3e-12 a pair; one stream twice gives sqrt(600) = 24. */
START_TEST(no_two_tensors_start_alike)
{
    struct random_stream random = random_stream((uint64_t)(10 + _i));
    struct model_config config = case_config((enum model_case)_i, 41);
    config.layers = 4;
    struct parameter_table table = table_of(&config);
    float *values = initial(&table, &config, random_bits(&random));
    for (size_t k = 0; k < table.count; k++) {
        for (size_t other = 0; other < k && table.entries[k].columns > 1; other++) {
            const struct parameter *a = &table.entries[k], *b = &table.entries[other];
            if (b->columns > 1) {
                const double found = alikeness(values + a->offset, values + b->offset, 600);
                ck_assert_msg(found <= 7, "%s and %s: %g standard errors", a->name, b->name, found);
            }
        }
    }
    free(values);
    parameter_table_free(&table);
}
END_TEST

START_TEST(no_two_seeds_start_alike)
{
    struct random_stream random = random_stream((uint64_t)(20 + _i));
    const struct model_config config = case_config((enum model_case)_i, 41);
    struct parameter_table table = table_of(&config);
    const uint64_t seed = random_bits(&random), others[] = {seed + 1, seed ^ (UINT64_C(1) << 63)};
    const size_t offset = parameter_find(&table, PARAMETER_UP_WEIGHT, 1)->offset;
    float *values = initial(&table, &config, seed);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        float *start = initial(&table, &config, others[i]);
        ck_assert_double_le(alikeness(values + offset, start + offset, 600), 7);
        free(start);
    }
    free(values);
    parameter_table_free(&table);
}
END_TEST

START_TEST(a_seed_gives_the_same_start_on_any_number_of_threads)
{
    const struct model_config config = case_config((enum model_case)_i, 41);
    struct parameter_table table = table_of(&config);
    omp_set_num_threads(1);
    float *one = initial(&table, &config, 42);
    omp_set_num_threads(3);
    float *three = initial(&table, &config, 42);
    ck_assert_int_eq(memcmp(one, three, table.elements * sizeof *one), 0);
    free(one), free(three);
    parameter_table_free(&table);
}
END_TEST

/* But for what the number of layers scales. */
START_TEST(another_layer_changes_no_other_tensor)
{
    struct model_config config = case_config((enum model_case)_i, 41);
    struct parameter_table table = table_of(&config);
    float *values = initial(&table, &config, 42);
    config.layers++;
    struct parameter_table deeper = table_of(&config);
    float *more = initial(&deeper, &config, 42);
    for (size_t k = 0; k < table.count; k++) {
        const struct parameter *tensor = &table.entries[k],
                               *same = parameter_find(&deeper, tensor->kind, tensor->layer);
        if (tensor->init != INIT_NORMAL_RESIDUAL) {
            ck_assert_int_eq(memcmp(values + tensor->offset, more + same->offset, size_of(tensor) * sizeof *values), 0);
        }
    }
    free(values), free(more);
    parameter_table_free(&table);
    parameter_table_free(&deeper);
}
END_TEST

START_TEST(no_table_is_made_of_a_shape_that_is_no_model)
{
    struct model_config config = case_config(CASE_GPT2, 41);
    struct parameter_table table;
    struct error error = {0};
    config.heads = 0;
    ck_assert(!parameter_table_make(&table, &config, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    parameter_table_free(&table); /* harmless */
}
END_TEST

Suite *suite_parameters(void);
Suite *suite_parameters(void)
{
    Suite *suite = suite_create("parameters");
    TCase *tests = tcase_create("parameters");
    tcase_add_loop_test(tests, tensors_follow_each_other_in_the_buffer, 0, MODEL_CASES);
    tcase_add_loop_test(tests, every_tensor_is_found_by_what_it_is_and_has_a_name_of_its_own, 0, MODEL_CASES);
    tcase_add_loop_test(tests, a_family_has_its_own_tensors_only, 0, MODEL_CASES);
    tcase_add_loop_test(tests, matrices_decay_and_vectors_do_not, 0, MODEL_CASES);
    tcase_add_loop_test(tests, tensors_start_as_the_table_says, 0, MODEL_CASES);
    tcase_add_loop_test(tests, no_two_tensors_start_alike, 0, MODEL_CASES);
    tcase_add_loop_test(tests, no_two_seeds_start_alike, 0, MODEL_CASES);
    tcase_add_loop_test(tests, a_seed_gives_the_same_start_on_any_number_of_threads, 0, MODEL_CASES);
    tcase_add_loop_test(tests, another_layer_changes_no_other_tensor, 0, MODEL_CASES);
    tcase_add_test(tests, no_table_is_made_of_a_shape_that_is_no_model);
    suite_add_tcase(suite, tests);
    return suite;
}
