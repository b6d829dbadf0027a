/* check_adamw.c: the optimizer against its closed form and an FP64 reference; the gradient's norm. */
#include "tests/support.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "train/adamw.h"

#define MATRIX   20000 /* more than one chunk */
#define ELEMENTS 20160 /* of the flat buffer: the matrix, padding to 64, a vector of 100, padding */
#define VECTOR   100

static struct parameter entries[] = {
    {.name = "matrix", .rows = 200, .columns = 100, .offset = 0, .decays = true},
    {.name = "vector", .rows = VECTOR, .columns = 1, .offset = 20032, .decays = false},
};

static struct parameter_table make_table(void)
{
    return (struct parameter_table){entries, 2, ELEMENTS};
}

static const struct adamw_settings plain = {
    .learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0, .gradient_scale = 1};

struct problem {
    struct parameter_table table;
    struct adamw adamw;
    float *parameters, *gradients;
};

static struct problem problem_make(struct random_stream *random)
{
    struct problem problem = {.table = make_table()};
    struct error error;
    ck_assert(adamw_create(&problem.adamw, &problem.table, &error));
    problem.parameters = test_alloc(ELEMENTS * sizeof(float));
    problem.gradients = test_alloc(ELEMENTS * sizeof(float));
    random_normals(random, problem.parameters, ELEMENTS, 1);
    random_normals(random, problem.gradients, ELEMENTS, 0.1f);
    return problem;
}

static void problem_free(struct problem *problem)
{
    adamw_destroy(&problem->adamw);
    free(problem->parameters);
    free(problem->gradients);
}

/* A constant gradient's corrected moments are g and g^2 at every step, so each update is lr g / (|g| + epsilon). */
START_TEST(a_constant_gradient_moves_by_the_rate_each_step)
{
    struct random_stream random = random_stream(1);
    struct problem p = problem_make(&random);
    float *start = test_alloc(ELEMENTS * sizeof(float));
    memcpy(start, p.parameters, ELEMENTS * sizeof(float));
    const int steps = 3;
    for (int i = 0; i < steps; i++) {
        adamw_update_cpu(&p.adamw, &p.table, &plain, p.parameters, p.gradients);
    }
    for (size_t i = 0; i < MATRIX; i++) {
        const double g = (double)p.gradients[i];
        const double expected = (double)start[i] - steps * plain.learning_rate * g / (fabs(g) + plain.epsilon);
        /* Each step rounds p once or twice, to 2^-24 |p|, and its update, relative, a dozen times. */
        const double bound = steps * 0x1p-23 * (fabs((double)start[i]) + 20 * plain.learning_rate);
        ck_assert_msg(fabs((double)p.parameters[i] - expected) <= bound, "%zu: %g, expected %g", i,
                      (double)p.parameters[i], expected);
    }
    ck_assert_int_eq(p.adamw.updates, steps);
    free(start);
    problem_free(&p);
}
END_TEST

/* The recurrence in FP64, fresh gradients, clipping and decay; the second of four steps is skipped and leaves no trace.
 */
START_TEST(random_gradients_follow_the_recurrence)
{
    struct random_stream random = random_stream(2);
    struct problem p = problem_make(&random);
    struct adamw_settings settings = plain;
    settings.weight_decay = 0.3;
    settings.gradient_scale = 0.5;
    double *x = test_alloc(ELEMENTS * sizeof(double)), *m = calloc(ELEMENTS, sizeof(double)),
           *v = calloc(ELEMENTS, sizeof(double));
    for (size_t i = 0; i < ELEMENTS; i++) {
        x[i] = (double)p.parameters[i];
    }
    int updates = 0;
    for (int step = 0; step < 4; step++) {
        random_normals(&random, p.gradients, ELEMENTS, 0.1f);
        if (step == 1) {
            continue;
        }
        adamw_update_cpu(&p.adamw, &p.table, &settings, p.parameters, p.gradients);
        updates++;
        for (size_t i = 0; i < ELEMENTS; i++) {
            const double g = 0.5 * (double)p.gradients[i], decay = i < MATRIX ? settings.weight_decay : 0;
            m[i] = 0.9 * m[i] + (1 - 0.9) * g;
            v[i] = 0.95 * v[i] + (1 - 0.95) * g * g;
            const double root = sqrt(v[i] / (1 - pow(0.95, updates))) + settings.epsilon;
            x[i] -= settings.learning_rate * (m[i] / (1 - pow(0.9, updates)) / root + decay * x[i]);
        }
    }
    for (int tensor = 0; tensor < 2; tensor++) {
        const size_t from = entries[tensor].offset, count = entries[tensor].rows * entries[tensor].columns;
        for (size_t i = from; i < from + count; i++) {
            /* |update| <= rate * 4 for three steps of beta2 = 0.95; m may cancel, so its error is relative to the
             * largest gradient: at most 1 / sqrt(0.05) of the root. Each operation rounds to 2^-24; 100 of them are
             * allowed. */
            const double bound = 100 * 0x1p-24 * (fabs(x[i]) + 20 * settings.learning_rate);
            ck_assert_msg(fabs((double)p.parameters[i] - x[i]) <= bound, "%zu: %.9g, expected %.9g", i,
                          (double)p.parameters[i], x[i]);
        }
    }
    free(x), free(m), free(v);
    problem_free(&p);
}
END_TEST

START_TEST(only_matrices_decay)
{
    struct random_stream random = random_stream(3);
    struct problem p = problem_make(&random);
    float *start = test_alloc(ELEMENTS * sizeof(float));
    memcpy(start, p.parameters, ELEMENTS * sizeof(float));
    memset(p.gradients, 0, ELEMENTS * sizeof(float));
    struct adamw_settings settings = plain;
    settings.weight_decay = 0.5;
    adamw_update_cpu(&p.adamw, &p.table, &settings, p.parameters, p.gradients);
    for (size_t i = 0; i < MATRIX; i++) {
        ck_assert(p.parameters[i] == 0.995f * start[i]);
    }
    ck_assert_mem_eq(p.parameters + entries[1].offset, start + entries[1].offset, VECTOR * sizeof(float));
    free(start);
    problem_free(&p);
}
END_TEST

START_TEST(what_lies_between_tensors_is_left_alone)
{
    struct random_stream random = random_stream(4);
    struct problem p = problem_make(&random);
    float before[32];
    memcpy(before, p.parameters + MATRIX, sizeof before);
    adamw_update_cpu(&p.adamw, &p.table, &plain, p.parameters, p.gradients);
    ck_assert_mem_eq(p.parameters + MATRIX, before, sizeof before);
    problem_free(&p);
}
END_TEST

START_TEST(a_zero_gradient_from_the_start_moves_nothing)
{
    struct random_stream random = random_stream(5);
    struct problem p = problem_make(&random);
    float *start = test_alloc(ELEMENTS * sizeof(float));
    memcpy(start, p.parameters, ELEMENTS * sizeof(float));
    memset(p.gradients, 0, ELEMENTS * sizeof(float));
    adamw_update_cpu(&p.adamw, &p.table, &plain, p.parameters, p.gradients);
    ck_assert_mem_eq(p.parameters, start, MATRIX * sizeof(float));
    free(start);
    problem_free(&p);
}
END_TEST

START_TEST(moments_carried_over_go_on_bit_for_bit)
{
    struct random_stream random = random_stream(6);
    struct problem p = problem_make(&random), q = problem_make(&random);
    for (int step = 0; step < 2; step++) {
        adamw_update_cpu(&p.adamw, &p.table, &plain, p.parameters, p.gradients);
    }
    ck_assert_ptr_nonnull(q.adamw.mean);
    memcpy(q.adamw.mean, p.adamw.mean, ELEMENTS * sizeof(float));
    memcpy(q.adamw.square, p.adamw.square, ELEMENTS * sizeof(float));
    q.adamw.updates = p.adamw.updates;
    memcpy(q.parameters, p.parameters, ELEMENTS * sizeof(float));
    adamw_update_cpu(&p.adamw, &p.table, &plain, p.parameters, p.gradients);
    adamw_update_cpu(&q.adamw, &q.table, &plain, q.parameters, p.gradients);
    ck_assert_mem_eq(p.parameters, q.parameters, MATRIX * sizeof(float));
    problem_free(&p);
    problem_free(&q);
}
END_TEST

START_TEST(the_number_of_threads_changes_no_bit)
{
    struct random_stream random = random_stream(7);
    struct problem p = problem_make(&random), q = problem_make(&random);
    memcpy(q.parameters, p.parameters, ELEMENTS * sizeof(float));
    omp_set_num_threads(1);
    const double norm = gradient_norm_cpu(p.gradients, ELEMENTS);
    adamw_update_cpu(&p.adamw, &p.table, &plain, p.parameters, p.gradients);
    omp_set_num_threads(3);
    ck_assert(gradient_norm_cpu(p.gradients, ELEMENTS) == norm);
    adamw_update_cpu(&q.adamw, &q.table, &plain, q.parameters, p.gradients);
    ck_assert_mem_eq(p.parameters, q.parameters, MATRIX * sizeof(float));
    problem_free(&p);
    problem_free(&q);
}
END_TEST

START_TEST(the_norm_is_the_root_of_the_sum_of_squares)
{
    struct random_stream random = random_stream(8);
    static const size_t counts[] = {0, 1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 20001};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *x = test_alloc(counts[i] * sizeof(float));
        random_normals(&random, x, counts[i], 3);
        double sum = 0;
        for (size_t j = 0; j < counts[i]; j++) {
            sum += (double)x[j] * (double)x[j];
        }
        /* All terms are positive: either order is within count * 2^-53 of the truth. */
        ck_assert_double_le(fabs(gradient_norm_cpu(x, counts[i]) - sqrt(sum)), 0x1p-52 * (double)counts[i] * sqrt(sum));
        free(x);
    }
}
END_TEST

START_TEST(the_norm_of_large_gradients_does_not_overflow)
{
    float x[100];
    for (size_t i = 0; i < 100; i++) {
        x[i] = 3e38f;
    }
    ck_assert_double_le(fabs(gradient_norm_cpu(x, 100) / (10.0 * (double)3e38f) - 1), 1e-14);
}
END_TEST

START_TEST(one_nonfinite_gradient_shows_in_the_norm_and_its_tensor_is_named)
{
    struct random_stream random = random_stream(9);
    struct problem p = problem_make(&random);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        const size_t at = i % 2 ? random_below(&random, MATRIX) : entries[1].offset + random_below(&random, VECTOR);
        const float kept = p.gradients[at];
        ck_assert_ptr_null(parameter_nonfinite(&p.table, p.gradients));
        p.gradients[at] = bad[i / 2];
        ck_assert(!isfinite(gradient_norm_cpu(p.gradients, ELEMENTS)));
        ck_assert_str_eq(parameter_nonfinite(&p.table, p.gradients)->name, i % 2 ? "matrix" : "vector");
        p.gradients[at] = kept;
    }
    problem_free(&p);
}
END_TEST

Suite *suite_adamw(void);
Suite *suite_adamw(void)
{
    Suite *suite = suite_create("adamw");
    TCase *tests = tcase_create("adamw");
    tcase_add_test(tests, a_constant_gradient_moves_by_the_rate_each_step);
    tcase_add_test(tests, random_gradients_follow_the_recurrence);
    tcase_add_test(tests, only_matrices_decay);
    tcase_add_test(tests, what_lies_between_tensors_is_left_alone);
    tcase_add_test(tests, a_zero_gradient_from_the_start_moves_nothing);
    tcase_add_test(tests, moments_carried_over_go_on_bit_for_bit);
    tcase_add_test(tests, the_number_of_threads_changes_no_bit);
    tcase_add_test(tests, the_norm_is_the_root_of_the_sum_of_squares);
    tcase_add_test(tests, the_norm_of_large_gradients_does_not_overflow);
    tcase_add_test(tests, one_nonfinite_gradient_shows_in_the_norm_and_its_tensor_is_named);
    suite_add_tcase(suite, tests);
    return suite;
}
