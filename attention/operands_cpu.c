/* operands_cpu.c: see operands_cpu.h. */
#include "attention/operands_cpu.h"

#include <string.h>

#include "attention/tile_cpu.h"

void *arena_take(struct arena *arena, size_t bytes)
{
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + 63) / 64 * 64;
    return piece;
}

struct arena arena_begin(void *workspace)
{
    unsigned char *bytes = workspace;
    const size_t past = (size_t)((uintptr_t)bytes % ARENA_SLACK);
    return (struct arena){bytes ? bytes + (past ? ARENA_SLACK - past : 0) : NULL, 0};
}

enum operand_tensor operand_tensor(enum operand_role role)
{
    switch (role) {
    case ROLE_QUERY_SCORE:
    case ROLE_QUERY_DKEY:
        return TENSOR_QUERY;
    case ROLE_KEY_SCORE:
    case ROLE_KEY_DQUERY:
    case ROLE_KEY_DQUERY_DIAGONAL:
        return TENSOR_KEY;
    case ROLE_DOUTPUT_DPROBABILITY:
    case ROLE_DOUTPUT_DVALUE:
        return TENSOR_DOUTPUT;
    default:
        return TENSOR_VALUE;
    }
}

static size_t role_heads(enum operand_role role, const struct attention_shape *shape)
{
    const enum operand_tensor tensor = operand_tensor(role);
    return tensor == TENSOR_QUERY || tensor == TENSOR_DOUTPUT ? shape->heads : shape->kv_heads;
}

enum operand_role operand_image_role(enum operand_role role, unsigned roles, const struct recipe *recipe)
{
    for (enum operand_role other = 0; other < role; other++) {
        if ((roles >> other & 1) && operand_tensor(other) == operand_tensor(role) &&
            operand_representation(recipe, other) == operand_representation(recipe, role)) {
            return other;
        }
    }
    return role;
}

void operand_set_carve(struct operand_set *set, unsigned roles, const struct recipe *recipe,
                       const struct attention_shape *shape, struct arena *arena)
{
    memset(set, 0, sizeof *set);
    set->roles = roles;
    for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
        if (!(roles >> role & 1)) {
            continue;
        }
        const enum operand_role image = operand_image_role(role, roles, recipe);
        const size_t rows = role_heads(role, shape) * shape->total_tokens;
        set->owner[role] = image == role;
        if (image != role) {
            set->values[role] = set->values[image];
            set->exponents[role] = set->exponents[image];
            continue;
        }
        set->values[role] = arena_take(arena, rows * shape->head_dim * sizeof(float));
        if (operand_representation(recipe, role) == REPRESENTATION_E2M1_KEY) {
            set->exponents[role] = arena_take(arena, rows);
        }
    }
}

void operand_set_fill(const struct operand_set *set, const struct recipe *recipe, const struct attention_shape *shape,
                      const struct documents *documents, const struct attention_inputs *inputs, const float *doutput,
                      size_t doutput_stride)
{
    const float *const tensors[] = {inputs->query, inputs->key, inputs->value, doutput};
    const size_t strides[] = {inputs->query_stride, inputs->key_stride, inputs->value_stride, doutput_stride};
    for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
        if (set->owner[role]) {
            struct operand operand = {.values = set->values[role], .exponents = set->exponents[role]};
            const enum operand_tensor tensor = operand_tensor(role);
            quantize_operand_cpu(recipe, role, documents, shape->total_tokens, role_heads(role, shape), shape->head_dim,
                                 tensors[tensor], strides[tensor], &operand);
        }
    }
}

size_t operand_key_stride(size_t total_tokens)
{
    return (total_tokens + 15) / 16 * 16 + TILE;
}

void operand_transpose(const float *from, size_t heads, size_t total_tokens, size_t head_dim, float *to)
{
    const size_t stride = operand_key_stride(total_tokens);
#pragma omp parallel for collapse(2) schedule(static)
    for (size_t head = 0; head < heads; head++) {
        for (size_t first = 0; first < stride; first += 4 * TILE) {
            float *out = to + head * head_dim * stride;
            const size_t last = first + 4 * TILE < stride ? first + 4 * TILE : stride;
            const size_t filled = last < total_tokens ? last : total_tokens > first ? total_tokens : first;
            if (filled > first) {
                tile_transpose(from + (head * total_tokens + first) * head_dim, head_dim, filled - first, head_dim,
                               out + first, stride);
            }
            for (size_t channel = 0; channel < head_dim && filled < last; channel++) {
                memset(out + channel * stride + filled, 0, (last - filled) * sizeof(float));
            }
        }
    }
}

static bool shape_fits(const struct recipe *recipe, const struct attention_shape *shape)
{
    const size_t d = shape->head_dim;
    return shape->heads > 0 && shape->kv_heads > 0 && shape->heads % shape->kv_heads == 0 && d >= 16 &&
           d <= HEAD_DIM_MAX && d % 16 == 0 && !(recipe_rotates(recipe, d) && (d & (d - 1)) != 0) &&
           shape->total_tokens <= INT32_MAX - TILE;
}

enum attention_status attention_check(const struct recipe *recipe, const struct attention_shape *shape,
                                      const struct documents *documents, const struct attention_inputs *inputs,
                                      bool training, const void *workspace, size_t workspace_bytes)
{
    char message[256];
    if (!shape_fits(recipe, shape)) {
        return ATTENTION_BAD_SHAPE;
    }
    if (documents_check(documents, shape->total_tokens) != ATTENTION_OK) {
        return ATTENTION_BAD_OFFSETS;
    }
    if (training && recipe->exponential >= EXPONENTIAL_SCHRAUDOLPH) {
        return ATTENTION_INFERENCE_ONLY;
    }
    if (!recipe_check(recipe, shape->head_dim, training, message, sizeof message)) {
        return ATTENTION_BAD_RECIPE;
    }
    const size_t query_row = shape->heads * shape->head_dim, key_row = shape->kv_heads * shape->head_dim;
    if (shape->total_tokens > 0 &&
        (!inputs->query || !inputs->key || !inputs->value || inputs->query_stride < query_row ||
         inputs->key_stride < key_row || inputs->value_stride < key_row)) {
        return ATTENTION_BAD_STRIDE;
    }
    return workspace && workspace_bytes >= attention_workspace_bytes(recipe, shape) ? ATTENTION_OK
                                                                                    : ATTENTION_WORKSPACE;
}

bool operand_on_diagonal(bool causal, size_t query, size_t key, int span)
{
    return causal && query / (size_t)span == key / (size_t)span;
}
