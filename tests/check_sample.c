/* check_sample.c: tokens are drawn with the probabilities that the logits, the temperature and the top k say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/sample.h"
#include "tests/support.h"

#define VOCABULARY 11

static int32_t draw(const struct sampler *sampler, const float *logits, size_t vocabulary, uint64_t index)
{
    struct error error = {0};
    int32_t token = -1;
    double *scratch = test_alloc(vocabulary * sizeof *scratch);
    ck_assert_msg(sample_token(sampler, logits, vocabulary, index, scratch, &token, &error), "%s", error.text);
    free(scratch);
    expect(token >= 0 && (size_t)token < vocabulary, "token %d of %zu", token, vocabulary);
    return token;
}

/* Draws many tokens; compares the counts with the probabilities by Pearson's sum. With at most 10 degrees of freedom
 * the chance that it exceeds 90 is below 1e-14. */
static void expect_frequencies(const struct sampler *sampler, const float *logits, const double *probabilities)
{
    const size_t draws = 20000;
    size_t counts[VOCABULARY] = {0};
    double pearson = 0;
    for (size_t i = 0; i < draws; i++) {
        counts[draw(sampler, logits, VOCABULARY, i)]++;
    }
    for (size_t i = 0; i < VOCABULARY; i++) {
        const double expected = probabilities[i] * (double)draws;
        if (probabilities[i] == 0) {
            ck_assert_uint_eq(counts[i], 0);
        } else {
            const double off = (double)counts[i] - expected;
            pearson += off * off / expected;
        }
    }
    ck_assert_msg(pearson < 90, "Pearson's sum is %g", pearson);
}

/* Probabilities between 1/60 and 1/6, so that every expected count is large enough for Pearson's sum. */
static void gentle_logits(uint64_t test, float logits[VOCABULARY])
{
    struct random_stream random = random_stream(test);
    for (size_t i = 0; i < VOCABULARY; i++) {
        logits[i] = (float)(2 * random_uniform(&random) - 40);
    }
}

static void softmax(const float *logits, double temperature, double lowest, double probabilities[VOCABULARY])
{
    double sum = 0;
    for (size_t i = 0; i < VOCABULARY; i++) {
        probabilities[i] = (double)logits[i] >= lowest ? exp((double)logits[i] / temperature) : 0;
        sum += probabilities[i];
    }
    for (size_t i = 0; i < VOCABULARY; i++) {
        probabilities[i] /= sum;
    }
}

START_TEST(tokens_have_the_softmax_as_frequencies)
{
    float logits[VOCABULARY];
    double probabilities[VOCABULARY];
    gentle_logits(1, logits);
    softmax(logits, 1, -INFINITY, probabilities);
    expect_frequencies(&(struct sampler){.temperature = 1, .seed = 7}, logits, probabilities);
}
END_TEST

START_TEST(temperature_divides_the_logits)
{
    float logits[VOCABULARY];
    double probabilities[VOCABULARY];
    gentle_logits(2, logits);
    softmax(logits, 2.5, -INFINITY, probabilities);
    expect_frequencies(&(struct sampler){.temperature = 2.5, .seed = 7}, logits, probabilities);
}
END_TEST

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

START_TEST(top_k_leaves_the_k_likeliest)
{
    float logits[VOCABULARY], sorted[VOCABULARY];
    double probabilities[VOCABULARY];
    const size_t k = 4;
    gentle_logits(3, logits);
    for (size_t i = 0; i < VOCABULARY; i++) {
        sorted[i] = logits[i];
    }
    qsort(sorted, VOCABULARY, sizeof *sorted, descending);
    softmax(logits, 1, (double)sorted[k - 1], probabilities);
    expect_frequencies(&(struct sampler){.temperature = 1, .top_k = k, .seed = 9}, logits, probabilities);
}
END_TEST

START_TEST(top_k_cuts_equal_logits_at_the_lower_ids)
{
    const float logits[VOCABULARY] = {0, -0.0f, 1, 0, 1, 0, -3, 0, 0, 0, 0};
    double probabilities[VOCABULARY] = {0};
    const double sum = 2 * exp(1) + 3;
    probabilities[2] = probabilities[4] = exp(1) / sum;
    probabilities[0] = probabilities[1] = probabilities[3] = 1 / sum;
    expect_frequencies(&(struct sampler){.temperature = 1, .top_k = 5, .seed = 3}, logits, probabilities);
}
END_TEST

START_TEST(top_1_and_temperature_0_take_the_likeliest)
{
    struct random_stream random = random_stream(5);
    for (uint64_t round = 0; round < 50; round++) {
        const size_t vocabulary = 1 + random_below(&random, 300);
        float *logits = test_alloc(vocabulary * sizeof *logits);
        size_t best = 0;
        random_normals(&random, logits, vocabulary, 4);
        for (size_t i = 1; i < vocabulary; i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        const struct sampler first = {.temperature = 3, .top_k = 1, .seed = round}, cold = {.temperature = 0};
        ck_assert_int_eq(draw(&first, logits, vocabulary, round), (int32_t)best);
        ck_assert_int_eq(draw(&cold, logits, vocabulary, round), (int32_t)best);
        free(logits);
    }
}
END_TEST

START_TEST(extreme_temperatures_and_logits_draw_a_token_that_may_be_drawn)
{
    const float logits[4] = {-3e38f, 3e38f, -1e-45f, 3e38f};
    const double temperatures[] = {5e-324, 1e-300, 1e-3, 100};
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        for (uint64_t index = 0; index < 100; index++) {
            const int32_t token = draw(&(struct sampler){.temperature = temperatures[t]}, logits, 4, index);
            ck_assert_msg(token == 1 || token == 3, "token %d", token);
        }
    }
}
END_TEST

START_TEST(a_draw_is_a_function_of_seed_and_index)
{
    float logits[VOCABULARY];
    gentle_logits(6, logits);
    const struct sampler one = {.temperature = 1, .seed = UINT64_C(1) << 40}, other = {.temperature = 1, .seed = 0};
    size_t same_seed = 0, same_index = 0;
    for (uint64_t index = 0; index < 200; index++) {
        const int32_t token = draw(&one, logits, VOCABULARY, index);
        ck_assert_int_eq(token, draw(&one, logits, VOCABULARY, index));
        same_seed += token == draw(&one, logits, VOCABULARY, index + (UINT64_C(1) << 32));
        same_index += token == draw(&other, logits, VOCABULARY, index);
    }
    /* Two independent draws agree with a probability of at most 1/6; 120 of 200 then has a chance below 1e-40. */
    ck_assert_uint_lt(same_seed, 120);
    ck_assert_uint_lt(same_index, 120);
}
END_TEST

START_TEST(logits_that_are_not_finite_are_refused_by_id)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        float logits[VOCABULARY] = {0};
        double scratch[VOCABULARY];
        struct error error = {0};
        int32_t token;
        logits[4] = bad[i];
        ck_assert(!sample_token(&(struct sampler){.temperature = 0}, logits, VOCABULARY, 0, scratch, &token, &error));
        ck_assert_int_eq(error.code, ERROR_NONFINITE);
        ck_assert_ptr_nonnull(strstr(error.text, "token 4"));
    }
}
END_TEST

Suite *suite_sample(void);
Suite *suite_sample(void)
{
    Suite *suite = suite_create("sample");
    TCase *tests = tcase_create("sample");
    tcase_add_test(tests, tokens_have_the_softmax_as_frequencies);
    tcase_add_test(tests, temperature_divides_the_logits);
    tcase_add_test(tests, top_k_leaves_the_k_likeliest);
    tcase_add_test(tests, top_k_cuts_equal_logits_at_the_lower_ids);
    tcase_add_test(tests, top_1_and_temperature_0_take_the_likeliest);
    tcase_add_test(tests, extreme_temperatures_and_logits_draw_a_token_that_may_be_drawn);
    tcase_add_test(tests, a_draw_is_a_function_of_seed_and_index);
    tcase_add_test(tests, logits_that_are_not_finite_are_refused_by_id);
    suite_add_tcase(suite, tests);
    return suite;
}
