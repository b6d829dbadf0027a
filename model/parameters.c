/* parameters.c: see parameters.h. */
#include "model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/philox.h"

#define ALIGNMENT     64 /* elements */
#define LAYER_KINDS   12
#define MODEL_ENTRIES 5

/* ---- building the table ---- */

struct builder {
    struct parameter_table *table;
    const struct model_config *config;
};

static void add(struct builder *builder, enum parameter_kind kind, size_t layer, const char *name, size_t rows,
                size_t columns, enum parameter_init init)
{
    struct parameter_table *table = builder->table;
    struct parameter *entry = &table->entries[table->count++];
    const bool in_layer = kind >= PARAMETER_NORM1_WEIGHT && kind <= PARAMETER_DOWN_BIAS;
    *entry = (struct parameter){.kind = kind,
                                .layer = layer,
                                .rows = rows,
                                .columns = columns,
                                .offset = table->elements,
                                .init = init,
                                .decays = columns > 1};
    if (in_layer) {
        snprintf(entry->name, sizeof entry->name, "layers.%zu.%s", layer, name);
    } else {
        snprintf(entry->name, sizeof entry->name, "%s", name);
    }
    table->elements += (rows * columns + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* A vector that only GPT-2 has. */
static void add_bias(struct builder *builder, enum parameter_kind kind, size_t layer, const char *name, size_t rows)
{
    if (builder->config->family == MODEL_GPT2) {
        add(builder, kind, layer, name, rows, 1, INIT_ZERO);
    }
}

static void add_layer(struct builder *builder, size_t layer)
{
    const struct model_config *c = builder->config;
    const size_t qkv = (c->heads + 2 * c->kv_heads) * c->head_dim, up = c->family == MODEL_LLAMA ? 2 * c->ffn : c->ffn;
    add(builder, PARAMETER_NORM1_WEIGHT, layer, "norm1.weight", c->width, 1, INIT_ONE);
    add_bias(builder, PARAMETER_NORM1_BIAS, layer, "norm1.bias", c->width);
    add(builder, PARAMETER_QKV_WEIGHT, layer, "qkv.weight", qkv, c->width, INIT_NORMAL);
    add_bias(builder, PARAMETER_QKV_BIAS, layer, "qkv.bias", qkv);
    add(builder, PARAMETER_OUTPUT_WEIGHT, layer, "output.weight", c->width, c->heads * c->head_dim,
        INIT_NORMAL_RESIDUAL);
    add_bias(builder, PARAMETER_OUTPUT_BIAS, layer, "output.bias", c->width);
    add(builder, PARAMETER_NORM2_WEIGHT, layer, "norm2.weight", c->width, 1, INIT_ONE);
    add_bias(builder, PARAMETER_NORM2_BIAS, layer, "norm2.bias", c->width);
    add(builder, PARAMETER_UP_WEIGHT, layer, "up.weight", up, c->width, INIT_NORMAL);
    add_bias(builder, PARAMETER_UP_BIAS, layer, "up.bias", c->ffn);
    add(builder, PARAMETER_DOWN_WEIGHT, layer, "down.weight", c->width, c->ffn, INIT_NORMAL_RESIDUAL);
    add_bias(builder, PARAMETER_DOWN_BIAS, layer, "down.bias", c->width);
}

bool parameter_table_make(struct parameter_table *table, const struct model_config *config, struct error *error)
{
    *table = (struct parameter_table){0};
    if (!model_config_check(config, error)) {
        return false;
    }
    table->entries = calloc(MODEL_ENTRIES + LAYER_KINDS * config->layers, sizeof *table->entries);
    if (!table->entries) {
        return error_set(error, ERROR_FAILED, "model: no memory for the table of %zu layers' parameters",
                         config->layers);
    }
    struct builder builder = {table, config};
    add(&builder, PARAMETER_TOKEN_EMBEDDING, 0, "token_embedding.weight", config->padded_vocabulary, config->width,
        INIT_NORMAL);
    if (config->family == MODEL_GPT2) {
        add(&builder, PARAMETER_POSITION_EMBEDDING, 0, "position_embedding.weight", config->context, config->width,
            INIT_NORMAL);
    }
    for (size_t layer = 0; layer < config->layers; layer++) {
        add_layer(&builder, layer);
    }
    add(&builder, PARAMETER_FINAL_NORM_WEIGHT, 0, "final_norm.weight", config->width, 1, INIT_ONE);
    add_bias(&builder, PARAMETER_FINAL_NORM_BIAS, 0, "final_norm.bias", config->width);
    if (!config->tied_head) {
        add(&builder, PARAMETER_HEAD_WEIGHT, 0, "head.weight", config->padded_vocabulary, config->width, INIT_NORMAL);
    }
    return true;
}

void parameter_table_free(struct parameter_table *table)
{
    free(table->entries);
    *table = (struct parameter_table){0};
}

const struct parameter *parameter_find(const struct parameter_table *table, enum parameter_kind kind, size_t layer)
{
    for (size_t i = 0; i < table->count; i++) {
        if (table->entries[i].kind == kind && table->entries[i].layer == layer) {
            return &table->entries[i];
        }
    }
    return NULL;
}

/* ---- initial values ---- */

/* Four normal numbers from one Philox block, by Box and Muller. */
static void four_normals(uint64_t seed, uint32_t stream, uint64_t block, float *normals)
{
    const struct philox_block random = philox4x32_10((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)block,
                                                     (uint32_t)(block >> 32), stream, 0x696E6974u);
    for (int pair = 0; pair < 4; pair += 2) {
        const double u = ((double)random.word[pair] + 0.5) * 0x1p-32, v = (double)random.word[pair + 1] * 0x1p-32;
        const double radius = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
        normals[pair] = (float)(radius * cos(angle));
        normals[pair + 1] = (float)(radius * sin(angle));
    }
}

static void fill_normal(float *values, size_t count, float deviation, uint64_t seed, uint32_t stream)
{
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < (count + 3) / 4; block++) {
        float normals[4];
        four_normals(seed, stream, block, normals);
        for (size_t i = 4 * block; i < 4 * block + 4 && i < count; i++) {
            values[i] = deviation * normals[i - 4 * block];
        }
    }
}

/* Each tensor's stream is its kind and layer, so that adding a layer changes nothing in the others. */
static void initialise(const struct parameter *entry, const struct model_config *config, uint64_t seed, float *values)
{
    const bool per_token = entry->kind == PARAMETER_TOKEN_EMBEDDING || entry->kind == PARAMETER_HEAD_WEIGHT;
    const size_t rows = per_token ? config->vocabulary : entry->rows; /* padded rows stay zero */
    const size_t count = rows * entry->columns;
    const uint32_t stream = (uint32_t)(entry->layer * PARAMETER_KIND_COUNT + entry->kind);
    switch (entry->init) {
    case INIT_ZERO:
        return;
    case INIT_ONE:
        for (size_t i = 0; i < count; i++) {
            values[i] = 1.0f;
        }
        return;
    case INIT_NORMAL:
        fill_normal(values, count, 0.02f, seed, stream);
        return;
    case INIT_NORMAL_RESIDUAL:
        fill_normal(values, count, (float)(0.02 / sqrt(2.0 * (double)config->layers)), seed, stream);
        return;
    }
}

void parameters_initialise(const struct parameter_table *table, const struct model_config *config, uint64_t seed,
                           float *values)
{
    memset(values, 0, table->elements * sizeof *values);
    for (size_t i = 0; i < table->count; i++) {
        initialise(&table->entries[i], config, seed, values + table->entries[i].offset);
    }
}
