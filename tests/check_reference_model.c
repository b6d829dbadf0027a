/* check_reference_model.c: the FP64 model's gradients are its own loss's, by finite differences. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model_case.h"
#include "tests/reference_model.h"
#include "tests/training_case.h"

#define LENGTH 9

/* Along a random direction in one tensor, by the central difference of fourth order. With h = 1e-3 its error is about
 * h^4 = 1e-12 times the fifth derivative, and the loss's rounding adds 1e-14 / h. 1e-7 of the gradient's size (the
 * root of its expected square along such a direction) leaves room for both and none for a missing term. */
START_TEST(gradients_are_those_of_finite_differences)
{
    struct random_stream random = random_stream((uint64_t)_i);
    const struct model_config config = case_config((enum model_case)_i, LENGTH);
    const struct network_options options = {.max_tokens = LENGTH};
    struct network *network = case_network(&config, &options);
    const struct parameter_table *table = network_table(network);
    struct batch *batch = random_batch(&random, 1, LENGTH, CASE_VOCABULARY, false);
    loud_parameters(network, &random, network_parameters(network));
    double *start = widened(network_parameters(network), table->elements);
    double *moved = test_alloc(table->elements * sizeof *moved),
           *gradients = calloc(table->elements, sizeof *gradients);
    ck_assert_ptr_nonnull(gradients);
    batch->targets[3] = TARGET_IGNORED;
    reference_model_batch(table, &config, start, batch, 1, gradients, NULL);
    for (size_t k = 0; k < table->count; k++) {
        const struct parameter *tensor = &table->entries[k];
        const size_t count = tensor->rows * tensor->columns;
        double *direction = test_alloc(count * sizeof *direction), along = 0, size = 0, difference = 0;
        static const double steps[4] = {-2e-3, -1e-3, 1e-3, 2e-3}, weights[4] = {1, -8, 8, -1};
        for (size_t i = 0; i < count; i++) {
            direction[i] = random_normal(&random) / sqrt((double)count);
            along += direction[i] * gradients[tensor->offset + i];
            size += gradients[tensor->offset + i] * gradients[tensor->offset + i] / (double)count;
        }
        for (int s = 0; s < 4; s++) {
            memcpy(moved, start, table->elements * sizeof *moved);
            for (size_t i = 0; i < count; i++) {
                moved[tensor->offset + i] += steps[s] * direction[i];
            }
            difference += weights[s] * reference_model_batch(table, &config, moved, batch, 1, NULL, NULL) / 12e-3;
        }
        ck_assert_msg(size > 0, "%s: no gradient", tensor->name);
        ck_assert_msg(fabs(difference - along) <= 1e-7 * sqrt(size), "%s: %.12g, by differences %.12g", tensor->name,
                      along, difference);
        free(direction);
    }
    free(start), free(moved), free(gradients);
    batch_free(batch);
    network_destroy(network);
}
END_TEST

Suite *suite_reference_model(void);
Suite *suite_reference_model(void)
{
    Suite *suite = suite_create("reference_model");
    TCase *tests = tcase_create("reference_model");
    tcase_add_loop_test(tests, gradients_are_those_of_finite_differences, 0, MODEL_CASES);
    suite_add_tcase(suite, tests);
    return suite;
}
