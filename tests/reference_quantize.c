/* reference_quantize.c: see reference_quantize.h. */
#include "tests/reference_quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference_formats.h"
#include "tests/support.h"

static enum representation keyed_or_grouped(const struct recipe *recipe, bool diagonal)
{
    switch (recipe->value_groups) {
    case VALUE_KEYED:
        return REPRESENTATION_E2M1_KEY;
    case VALUE_GROUPED:
        return REPRESENTATION_NVFP4_TOKEN;
    default:
        return diagonal ? REPRESENTATION_E2M1_KEY : REPRESENTATION_NVFP4_TOKEN;
    }
}

static enum representation four_bit(const struct recipe *recipe, enum operand_role role)
{
    switch (role) {
    case ROLE_QUERY_SCORE:
    case ROLE_KEY_SCORE:
    case ROLE_DOUTPUT_DPROBABILITY:
        return REPRESENTATION_NVFP4_CHANNEL; /* contracted along d */
    case ROLE_VALUE_DPROBABILITY:            /* fp4-leaky feeds the key-grouped V to dP too */
        return recipe->value_groups == VALUE_GROUPED ? REPRESENTATION_NVFP4_TOKEN : REPRESENTATION_NVFP4_CHANNEL;
    case ROLE_VALUE_OUTPUT:
    case ROLE_KEY_DQUERY:
        return keyed_or_grouped(recipe, false);
    case ROLE_VALUE_OUTPUT_DIAGONAL:
    case ROLE_KEY_DQUERY_DIAGONAL:
        return keyed_or_grouped(recipe, true);
    default:
        return REPRESENTATION_NVFP4_TOKEN; /* contracted along queries */
    }
}

enum representation reference_representation(const struct recipe *recipe, enum operand_role role)
{
    const bool score = role == ROLE_QUERY_SCORE || role == ROLE_KEY_SCORE;
    const bool value =
        role == ROLE_VALUE_OUTPUT || role == ROLE_VALUE_OUTPUT_DIAGONAL || role == ROLE_VALUE_DPROBABILITY;
    const bool output = role == ROLE_DOUTPUT_DPROBABILITY || role == ROLE_DOUTPUT_DVALUE;
    const enum operand_format format = score    ? recipe->score
                                       : value  ? recipe->value
                                       : output ? recipe->output_gradient
                                                : recipe->gradient;
    if (format == OPERAND_E4M3) {
        return recipe->exponents == EXPONENT_BLOCK   ? REPRESENTATION_E4M3_BLOCK
               : recipe->exponents == EXPONENT_TOKEN ? REPRESENTATION_E4M3_TOKEN
                                                     : REPRESENTATION_E4M3_TENSOR;
    }
    return format == OPERAND_FP32   ? REPRESENTATION_FP32
           : format == OPERAND_BF16 ? REPRESENTATION_BF16
                                    : four_bit(recipe, role);
}

/* ---- rotation ---- */

/* One butterfly stage written by element: the partner differs in one bit of the index. */
static void rotate(float *row, size_t head_dim)
{
    float next[HEAD_DIM_MAX];
    for (size_t bit = 1; bit < head_dim; bit <<= 1) {
        for (size_t i = 0; i < head_dim; i++) {
            next[i] = i & bit ? row[i ^ bit] - row[i] : row[i] + row[i ^ bit];
        }
        memcpy(row, next, head_dim * sizeof *row);
    }
    const float factor = (float)(1 / sqrt((double)head_dim));
    for (size_t i = 0; i < head_dim; i++) {
        row[i] = row[i] * factor;
    }
}

void reference_load(float *row, size_t head_dim, bool round, bool rotates)
{
    for (size_t i = 0; round && i < head_dim; i++) {
        row[i] = reference_bf16(row[i]);
    }
    if (rotates) {
        rotate(row, head_dim);
        for (size_t i = 0; i < head_dim; i++) {
            row[i] = reference_bf16(row[i]);
        }
    }
}

/* ---- one element of each representation ---- */

struct maxima { /* the last rectangle looked up: neighbours ask for the same one */
    size_t row, rows, channel, channels;
    double all, finite;
};

struct field { /* one head's [tokens][head_dim] and the document's bounds */
    const float *x;
    size_t head_dim, begin, end;
    struct maxima *last_group, *last_vector;
};

static void look_up(const struct field *field, size_t row, size_t rows, size_t channel, size_t channels,
                    struct maxima *last)
{
    if (last->row == row && last->rows == rows && last->channel == channel && last->channels == channels) {
        return;
    }
    *last = (struct maxima){row, rows, channel, channels, 0, 0};
    for (size_t t = row; t < row + rows && t < field->end; t++) {
        for (size_t i = channel; i < channel + channels; i++) {
            const double magnitude = fabs((double)field->x[t * field->head_dim + i]);
            last->all = !isfinite(magnitude) || isnan(last->all) ? NAN : fmax(last->all, magnitude);
            last->finite = isfinite(magnitude) ? fmax(last->finite, magnitude) : last->finite;
        }
    }
}

/* Largest magnitude of a rectangle of tokens and channels; NaN if anything in it is not finite. */
static double rectangle_amax(const struct field *field, size_t row, size_t rows, size_t channel, size_t channels)
{
    look_up(field, row, rows, channel, channels, field->last_group);
    return field->last_group->all;
}

/* The same over finite values alone: an NVFP4 vector's t is not taken from what is not a number. */
static double finite_amax(const struct field *field, size_t row, size_t rows, size_t channel, size_t channels)
{
    look_up(field, row, rows, channel, channels, field->last_vector);
    return field->last_vector->finite;
}

struct element {
    double value;
    uint8_t code, exponent, scale;
};

static const struct element nan_element = {NAN, 0, 255, 0x7F};

static struct element block_element(const struct field *field, size_t token, size_t channel, size_t block,
                                    enum scale_rule rule)
{
    const size_t first = token - (token - field->begin) % block;
    const double amax = rectangle_amax(field, first, block, 0, field->head_dim);
    if (isnan(amax)) {
        return nan_element;
    }
    if (amax == 0) {
        return (struct element){0, 0, 0, 0};
    }
    const int e = rule == SCALE_UP ? reference_exponent_up(amax, 448) : reference_exponent_floor(amax, 8);
    const uint8_t code = reference_e4m3_code(ldexp(field->x[token * field->head_dim + channel], -e));
    return (struct element){ldexp(reference_e4m3_value(code), e), code, (uint8_t)(e + 127), 0};
}

static struct element key_element(const struct field *field, size_t token, size_t channel)
{
    const double amax = rectangle_amax(field, token, 1, 0, field->head_dim);
    if (isnan(amax)) {
        return nan_element;
    }
    if (amax == 0) {
        return (struct element){0, 0, 0, 0};
    }
    const int e = reference_exponent_up(amax, 6);
    const uint8_t code = reference_e2m1_code(ldexp(field->x[token * field->head_dim + channel], -e));
    return (struct element){ldexp(reference_e2m1_value(code), e), code, (uint8_t)(e + 127), 0};
}

static struct element nvfp4_element(double x, double vector_amax, double group_amax)
{
    const int t = vector_amax == 0 ? 0 : reference_exponent_up(vector_amax, 2688);
    struct element element = nan_element;
    element.exponent = (uint8_t)(t + 127);
    if (isnan(group_amax)) {
        return element;
    }
    element.scale = reference_e4m3_code((float)ldexp(group_amax, -t) / 6.0f);
    const double s = reference_e4m3_value(element.scale);
    element.code = s == 0 ? 0 : reference_e2m1_code((float)ldexp(x, -t) / (float)s);
    element.value = ldexp(reference_e2m1_value(element.code) * s, t);
    return element;
}

static struct element channel_element(const struct field *field, size_t token, size_t channel)
{
    return nvfp4_element(field->x[token * field->head_dim + channel], finite_amax(field, token, 1, 0, field->head_dim),
                         rectangle_amax(field, token, 1, channel - channel % 16, 16));
}

static struct element token_element(const struct field *field, size_t token, size_t channel)
{
    const size_t inside = token - field->begin;
    return nvfp4_element(field->x[token * field->head_dim + channel],
                         finite_amax(field, token - inside % 128, 128, channel, 1),
                         rectangle_amax(field, token - inside % 16, 16, channel, 1));
}

static struct element tensor_element(const struct field *field, size_t token, size_t channel, float scale)
{
    if (isnan(scale)) {
        return nan_element;
    }
    const float x = field->x[token * field->head_dim + channel];
    const uint8_t code = scale == 0 ? 0 : reference_e4m3_code(x / scale);
    return (struct element){(float)reference_e4m3_value(code) * scale, code, 0, 0};
}

static struct element element_of(const struct reference_operand *operand, const struct field *field, size_t token,
                                 size_t channel, enum scale_rule rule)
{
    switch (operand->representation) {
    case REPRESENTATION_E4M3_BLOCK:
        return block_element(field, token, channel, 32, rule);
    case REPRESENTATION_E4M3_TOKEN:
        return block_element(field, token, channel, 1, rule);
    case REPRESENTATION_E4M3_TENSOR:
        return tensor_element(field, token, channel, (float)operand->tensor_scale);
    case REPRESENTATION_NVFP4_CHANNEL:
        return channel_element(field, token, channel);
    case REPRESENTATION_NVFP4_TOKEN:
        return token_element(field, token, channel);
    case REPRESENTATION_E2M1_KEY:
        return key_element(field, token, channel);
    default:
        return (struct element){field->x[token * field->head_dim + channel], 0, 0, 0};
    }
}

/* ---- a whole tensor ---- */

static void fill_head(struct reference_operand *operand, const struct documents *documents, size_t head,
                      const float *loaded, enum scale_rule rule)
{
    const size_t d = operand->head_dim, base = head * operand->tokens;
    for (size_t n = 0; n < documents->count; n++) {
        struct maxima group = {.rows = 0}, vector = {.rows = 0};
        const struct field field = {loaded, d,      (size_t)documents->offsets[n], (size_t)documents->offsets[n + 1],
                                    &group, &vector};
        for (size_t token = field.begin; token < field.end; token++) {
            for (size_t channel = 0; channel < d; channel++) {
                const struct element element = element_of(operand, &field, token, channel, rule);
                const size_t at = (base + token) * d + channel;
                operand->values[at] = (float)element.value;
                operand->codes[at] = element.code;
                operand->scales[at] = element.scale;
                if (operand->representation == REPRESENTATION_NVFP4_TOKEN) {
                    operand->exponents[at] = element.exponent;
                } else {
                    operand->exponents[base + token] = element.exponent;
                }
            }
        }
    }
}

struct reference_operand reference_quantize(const struct recipe *recipe, enum operand_role role,
                                            const struct documents *documents, size_t tokens, size_t heads,
                                            size_t head_dim, const float *x, size_t stride)
{
    const size_t elements = tokens * heads * head_dim;
    struct reference_operand operand = {.representation = reference_representation(recipe, role),
                                        .tokens = tokens,
                                        .heads = heads,
                                        .head_dim = head_dim,
                                        .values = test_alloc(elements * sizeof(float)),
                                        .codes = test_alloc(elements),
                                        .exponents = test_alloc(elements),
                                        .scales = test_alloc(elements)};
    const bool rotates = (role == ROLE_QUERY_SCORE || role == ROLE_KEY_SCORE || role == ROLE_QUERY_DKEY ||
                          role == ROLE_KEY_DQUERY || role == ROLE_KEY_DQUERY_DIAGONAL) &&
                         (recipe->hadamard || (recipe->hadamard_128 && head_dim == 128));
    float *loaded = test_alloc(elements * sizeof *loaded); /* [heads][tokens][head_dim] */
    double amax = 0;
    for (size_t head = 0; head < heads; head++) {
        for (size_t token = 0; token < tokens; token++) {
            float *row = loaded + (head * tokens + token) * head_dim;
            memcpy(row, x + token * stride + head * head_dim, head_dim * sizeof *row);
            reference_load(row, head_dim, operand.representation != REPRESENTATION_FP32, rotates);
            for (size_t i = 0; i < head_dim; i++) {
                amax = !isfinite(row[i]) || isnan(amax) ? NAN : fmax(amax, fabs((double)row[i]));
            }
        }
    }
    operand.tensor_scale = (float)amax / 448.0f;
    for (size_t head = 0; head < heads; head++) {
        fill_head(&operand, documents, head, loaded + head * tokens * head_dim, recipe->rule);
    }
    free(loaded);
    return operand;
}

void reference_operand_free(struct reference_operand *operand)
{
    free(operand->values);
    free(operand->codes);
    free(operand->exponents);
    free(operand->scales);
}

void reference_nvfp4_vector(float *x, size_t count, size_t step)
{
    double vector = 0, group[8] = {0}; /* up to 128 elements */
    for (size_t i = 0; i < count; i++) {
        const double magnitude = fabs((double)x[i * step]);
        vector = isfinite(magnitude) ? fmax(vector, magnitude) : vector;
        group[i / 16] = !isfinite(magnitude) || isnan(group[i / 16]) ? NAN : fmax(group[i / 16], magnitude);
    }
    for (size_t i = 0; i < count; i++) {
        x[i * step] = (float)nvfp4_element(x[i * step], vector, group[i / 16]).value;
    }
}
