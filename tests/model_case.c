/* model_case.c: see model_case.h. */
#include "tests/model_case.h"

#include <math.h>
#include <stdlib.h>

struct model_config case_config(enum model_case which, size_t context)
{
    const bool llama = which != CASE_GPT2;
    return (struct model_config){
        .family = llama ? MODEL_LLAMA : MODEL_GPT2,
        .layers = 2,
        .width = 48,
        .heads = llama ? 4 : 3,
        .kv_heads = llama ? 2 : 3,
        .head_dim = 16,
        .ffn = llama ? 80 : 192,
        .vocabulary = CASE_VOCABULARY,
        .padded_vocabulary = 128,
        .context = context,
        .tied_head = which != CASE_LLAMA,
        .norm_epsilon = 1e-5f,
        .rope_base = 10000,
    };
}

static bool is_norm_weight(enum parameter_kind kind)
{
    return kind == PARAMETER_NORM1_WEIGHT || kind == PARAMETER_NORM2_WEIGHT || kind == PARAMETER_FINAL_NORM_WEIGHT;
}

static bool is_table(enum parameter_kind kind)
{
    return kind == PARAMETER_TOKEN_EMBEDDING || kind == PARAMETER_POSITION_EMBEDDING || kind == PARAMETER_HEAD_WEIGHT;
}

void loud_parameters(const struct network *network, struct random_stream *random, float *values)
{
    const struct parameter_table *table = network_table(network);
    for (size_t k = 0; k < table->count; k++) {
        const struct parameter *tensor = &table->entries[k];
        const float matrix = is_table(tensor->kind) ? 0.3f : 1 / sqrtf((float)tensor->columns);
        const float scale = tensor->columns > 1 ? matrix : 0.2f;
        float *to = values + tensor->offset;
        random_normals(random, to, tensor->rows * tensor->columns, scale);
        for (size_t i = 0; i < tensor->rows && is_norm_weight(tensor->kind); i++) {
            to[i] += 1;
        }
    }
}

struct network *case_network(const struct model_config *config, const struct network_options *options)
{
    struct error error;
    struct network *network = network_create(config, options, &error);
    ck_assert_msg(network != NULL, "%s", error.text);
    return network;
}

double *widened(const float *values, size_t count)
{
    double *wide = test_alloc(count * sizeof *wide);
    for (size_t i = 0; i < count; i++) {
        wide[i] = (double)values[i];
    }
    return wide;
}

double error_to_fp64(const float *x, size_t stride, const double *y, size_t rows, size_t columns)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < rows * columns; i++) {
        const double delta = (double)x[i / columns * stride + i % columns] - y[i];
        difference += delta * delta;
        norm += y[i] * y[i];
    }
    return norm == 0 ? sqrt(difference) : sqrt(difference / norm);
}

double gradient_error(const struct parameter_table *table, const float *x, const double *y, const char **worst)
{
    double most = 0;
    *worst = "none";
    for (size_t k = 0; k < table->count; k++) {
        const struct parameter *tensor = &table->entries[k];
        const double error =
            error_to_fp64(x + tensor->offset, tensor->columns, y + tensor->offset, tensor->rows, tensor->columns);
        if (!(error <= most)) {
            most = error;
            *worst = tensor->name;
        }
    }
    return most;
}
