/* check_model_config.c: which shapes are models, and how many parameters they have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "tests/support.h"

static struct model_config gpt2(size_t layers, size_t width, size_t heads)
{
    return (struct model_config){.family = MODEL_GPT2,
                                 .layers = layers,
                                 .width = width,
                                 .heads = heads,
                                 .kv_heads = heads,
                                 .head_dim = 64,
                                 .ffn = 4 * width,
                                 .vocabulary = 50257,
                                 .padded_vocabulary = 50304,
                                 .context = 1024,
                                 .tied_head = true,
                                 .norm_epsilon = 1e-5f};
}

static struct model_config llama(size_t layers, size_t width, size_t heads, size_t kv_heads, size_t head_dim,
                                 size_t ffn)
{
    return (struct model_config){.family = MODEL_LLAMA,
                                 .layers = layers,
                                 .width = width,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .ffn = ffn,
                                 .vocabulary = 32000,
                                 .padded_vocabulary = 32000,
                                 .context = 2048,
                                 .norm_epsilon = 1e-5f,
                                 .rope_base = 10000};
}

/* Published counts: GPT-2's two smaller models (and 47 rows that pad their vocabulary), TinyLlama 1.1B, Llama 2 7B. */
START_TEST(published_models_have_their_published_sizes)
{
    const struct model_config small = gpt2(12, 768, 12), medium = gpt2(24, 1024, 16),
                              tiny_llama = llama(22, 2048, 32, 4, 64, 5632),
                              seven = llama(32, 4096, 32, 32, 128, 11008);
    struct error error;
    ck_assert_uint_eq(model_parameter_count(&small), 124439808 + 47 * 768);
    ck_assert_uint_eq(model_parameter_count(&medium), 354823168 + 47 * 1024);
    ck_assert_uint_eq(model_parameter_count(&tiny_llama), 1100048384);
    ck_assert_uint_eq(model_parameter_count(&seven), 6738415616);
    ck_assert(model_config_check(&small, &error) && model_config_check(&seven, &error));
}
END_TEST

/* By hand, GPT-2 small at 1024 tokens: 85 M weights of the layers' matrices and 38.6 M of the head, 6 a weight; causal
 * attention 6 * 12 layers * 768 * 1024. */
START_TEST(flops_count_matrices_and_causal_attention)
{
    const struct model_config small = gpt2(12, 768, 12);
    const double expected = 6.0 * (12 * 12 * 768.0 * 768 + 50304 * 768.0) + 6.0 * 12 * 768 * 1024;
    ck_assert_double_eq(model_flops_per_token(&small, 1024), expected);
    ck_assert_double_gt(model_flops_per_token(&small, 2048), expected);
}
END_TEST

struct wrong {
    const char *named; /* in the message */
    void (*make)(struct model_config *c);
};

#define WRONG(name, change)                                                                                            \
    static void name(struct model_config *c)                                                                           \
    {                                                                                                                  \
        change;                                                                                                        \
    }

WRONG(no_layers, c->layers = 0)
WRONG(no_width, c->width = 0)
WRONG(no_heads, c->heads = 0)
WRONG(no_kv_heads, c->kv_heads = 0)
WRONG(no_head_dim, c->head_dim = 0)
WRONG(no_ffn, c->ffn = 0)
WRONG(no_vocabulary, c->vocabulary = 0)
WRONG(no_padded, c->padded_vocabulary = 0)
WRONG(no_context, c->context = 0)
WRONG(huge_width, c->width = SIZE_MAX)
WRONG(huge_ffn, c->ffn = ((size_t)1 << 28) + 1)
WRONG(odd_head_dim, c->head_dim = 24)
WRONG(large_head_dim, c->head_dim = 272)
WRONG(heads_do_not_divide, c->kv_heads = 3)
WRONG(more_kv_heads, c->kv_heads = 2 * c->heads)
WRONG(small_padding, c->padded_vocabulary = c->vocabulary - 1)
WRONG(no_epsilon, c->norm_epsilon = 0)
WRONG(nan_epsilon, c->norm_epsilon = NAN)
WRONG(infinite_epsilon, c->norm_epsilon = INFINITY)
WRONG(no_base, c->rope_base = 0)
WRONG(base_one, c->rope_base = 1)
WRONG(nan_base, c->rope_base = NAN)
WRONG(untied_gpt2, *c = gpt2(2, 128, 2); c->tied_head = false)
WRONG(grouped_gpt2, *c = gpt2(2, 128, 2); c->kv_heads = 1)
WRONG(narrow_gpt2, *c = gpt2(2, 128, 2); c->width = 192)

static const struct wrong wrongs[] = {
    {"layers", no_layers},
    {"width", no_width},
    {"heads", no_heads},
    {"kv-heads", no_kv_heads},
    {"head-dim", no_head_dim},
    {"ffn", no_ffn},
    {"vocabulary", no_vocabulary},
    {"padded vocabulary", no_padded},
    {"context", no_context},
    {"width", huge_width},
    {"ffn", huge_ffn},
    {"head-dim is 24", odd_head_dim},
    {"head-dim is 272", large_head_dim},
    {"kv-heads is 3", heads_do_not_divide},
    {"kv-heads", more_kv_heads},
    {"padded vocabulary is 31999", small_padding},
    {"norm-epsilon", no_epsilon},
    {"norm-epsilon", nan_epsilon},
    {"norm-epsilon", infinite_epsilon},
    {"rope-base", no_base},
    {"rope-base", base_one},
    {"rope-base", nan_base},
    {"tied", untied_gpt2},
    {"kv-heads", grouped_gpt2},
    {"width", narrow_gpt2},
};

START_TEST(a_field_that_makes_no_model_is_named)
{
    struct model_config config = llama(2, 128, 4, 2, 32, 256);
    struct error error = {0};
    ck_assert(model_config_check(&config, &error));
    wrongs[_i].make(&config);
    ck_assert(!model_config_check(&config, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, wrongs[_i].named) != NULL, "%s does not name %s", error.text, wrongs[_i].named);
    ck_assert_ptr_null(strchr(error.text, '\n'));
}
END_TEST

START_TEST(every_head_dim_of_attention_is_taken)
{
    for (size_t head_dim = 16; head_dim <= 256; head_dim += 16) {
        const struct model_config config = llama(1, 48, 3, 1, head_dim, 16);
        struct error error = {0};
        ck_assert_msg(model_config_check(&config, &error), "%s", error.text);
    }
}
END_TEST

START_TEST(families_have_names)
{
    ck_assert_str_eq(model_family_name(MODEL_GPT2), "gpt2");
    ck_assert_str_eq(model_family_name(MODEL_LLAMA), "llama");
}
END_TEST

Suite *suite_model_config(void);
Suite *suite_model_config(void)
{
    Suite *suite = suite_create("model_config");
    TCase *tests = tcase_create("model_config");
    tcase_add_test(tests, published_models_have_their_published_sizes);
    tcase_add_test(tests, flops_count_matrices_and_causal_attention);
    tcase_add_loop_test(tests, a_field_that_makes_no_model_is_named, 0, (int)(sizeof wrongs / sizeof *wrongs));
    tcase_add_test(tests, every_head_dim_of_attention_is_taken);
    tcase_add_test(tests, families_have_names);
    suite_add_tcase(suite, tests);
    return suite;
}
