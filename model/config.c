/* config.c: see config.h. */
#include "model/config.h"

#include <stdint.h>

#include "attention/attention.h"

#define LARGEST_SIZE ((size_t)1 << 28) /* of any one field: products of two stay far below 2^63 */

const char *model_family_name(enum model_family family)
{
    return family == MODEL_LLAMA ? "llama" : "gpt2";
}

static bool field_fits(const char *name, size_t value, struct error *error)
{
    if (value == 0 || value > LARGEST_SIZE) {
        return error_set(error, ERROR_USAGE, "model: %s is %zu, expected 1 to %zu", name, value, LARGEST_SIZE);
    }
    return true;
}

static bool fields_fit(const struct model_config *config, struct error *error)
{
    return field_fits("layers", config->layers, error) && field_fits("width", config->width, error) &&
           field_fits("heads", config->heads, error) && field_fits("kv-heads", config->kv_heads, error) &&
           field_fits("head-dim", config->head_dim, error) && field_fits("ffn", config->ffn, error) &&
           field_fits("vocabulary", config->vocabulary, error) &&
           field_fits("padded vocabulary", config->padded_vocabulary, error) &&
           field_fits("context", config->context, error);
}

static bool heads_fit(const struct model_config *config, struct error *error)
{
    if (config->head_dim % 16 != 0 || config->head_dim > HEAD_DIM_MAX) {
        return error_set(error, ERROR_USAGE, "model: head-dim is %zu, expected a multiple of 16 up to %d",
                         config->head_dim, HEAD_DIM_MAX);
    }
    if (config->heads % config->kv_heads != 0) {
        return error_set(error, ERROR_USAGE, "model: kv-heads is %zu, expected a divisor of heads (%zu)",
                         config->kv_heads, config->heads);
    }
    if (config->family == MODEL_GPT2 && config->kv_heads != config->heads) {
        return error_set(error, ERROR_USAGE,
                         "model: kv-heads is %zu with family gpt2, expected heads (%zu): only llama groups heads",
                         config->kv_heads, config->heads);
    }
    if (config->family == MODEL_GPT2 && config->heads * config->head_dim != config->width) {
        return error_set(error, ERROR_USAGE,
                         "model: heads (%zu) x head-dim (%zu) is not width (%zu), as family gpt2 needs", config->heads,
                         config->head_dim, config->width);
    }
    return true;
}

bool model_config_check(const struct model_config *config, struct error *error)
{
    if (!fields_fit(config, error) || !heads_fit(config, error)) {
        return false;
    }
    if (config->padded_vocabulary < config->vocabulary) {
        return error_set(error, ERROR_USAGE, "model: padded vocabulary is %zu, smaller than the vocabulary (%zu)",
                         config->padded_vocabulary, config->vocabulary);
    }
    if (config->family == MODEL_GPT2 && !config->tied_head) {
        return error_set(error, ERROR_USAGE, "model: family gpt2 has a tied head: tied must be true");
    }
    if (!(config->norm_epsilon > 0 && config->norm_epsilon < 1)) {
        return error_set(error, ERROR_USAGE, "model: norm-epsilon is %g, expected a number above 0 and below 1",
                         (double)config->norm_epsilon);
    }
    if (config->family == MODEL_LLAMA && !(config->rope_base > 1 && config->rope_base < 1e12f)) {
        return error_set(error, ERROR_USAGE, "model: rope-base is %g, expected a number above 1 and below 1e12",
                         (double)config->rope_base);
    }
    return true;
}

/* Of one layer's matrices, which is nearly all of it; vectors apart. */
static size_t layer_matrices(const struct model_config *c)
{
    const size_t up = c->family == MODEL_LLAMA ? 2 * c->ffn : c->ffn;
    return (c->heads + 2 * c->kv_heads) * c->head_dim * c->width + c->width * c->heads * c->head_dim + up * c->width +
           c->width * c->ffn;
}

static size_t layer_vectors(const struct model_config *c)
{
    const size_t biases = (c->heads + 2 * c->kv_heads) * c->head_dim + c->width + c->ffn + c->width;
    return c->family == MODEL_LLAMA ? 2 * c->width : 4 * c->width + biases;
}

size_t model_parameter_count(const struct model_config *config)
{
    const struct model_config *c = config;
    const size_t embeddings = c->padded_vocabulary * c->width * (c->tied_head ? 1 : 2) +
                              (c->family == MODEL_GPT2 ? c->context * c->width : 0);
    const size_t final_norm = c->family == MODEL_LLAMA ? c->width : 2 * c->width;
    return embeddings + final_norm + c->layers * (layer_matrices(c) + layer_vectors(c));
}

double model_flops_per_token(const struct model_config *config, size_t sequence_length)
{
    const double multiplied =
        (double)config->layers * (double)layer_matrices(config) +
        (double)config->padded_vocabulary * (double)config->width; /* every product's weights, the head's once */
    const double attention =
        (double)config->layers * (double)(config->heads * config->head_dim) * (double)sequence_length;
    return 6.0 * multiplied + 6.0 * attention; /* 12 halved: causal */
}
