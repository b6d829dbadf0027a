/* inspect.c: see inspect.h. */
#include "attention/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"

/* One operand with everything the quantizer can tell of it. */
struct full_operand {
    struct operand operand;
    size_t elements;
};

static bool make_operand(struct full_operand *full, size_t elements)
{
    full->elements = elements;
    full->operand = (struct operand){.values = malloc(elements * sizeof(float)),
                                     .codes = calloc(elements, 1),
                                     .exponents = calloc(elements, 1),
                                     .scales = calloc(elements, 1)};
    return full->operand.values && full->operand.codes && full->operand.exponents && full->operand.scales;
}

static void free_operand(struct full_operand *full)
{
    free(full->operand.values);
    free(full->operand.codes);
    free(full->operand.exponents);
    free(full->operand.scales);
}

/* The quantizer's input: what a recipe that rounds to BF16 only, with the same rotation, would decode to.
 * [heads][total_tokens][head_dim] */
static void input_image(const struct recipe *recipe, enum operand_role role, const struct documents *documents,
                        size_t total_tokens, size_t heads, size_t head_dim, const float *x, float *values)
{
    const bool fp32 = operand_representation(recipe, role) == REPRESENTATION_FP32;
    struct recipe plain = *recipe_find(fp32 ? "fp32" : "exact");
    plain.hadamard = operand_rotated(recipe, role, head_dim);
    struct operand operand = {.values = values};
    quantize_operand_cpu(&plain, role, documents, total_tokens, heads, head_dim, x, heads * head_dim, &operand);
}

/* ---- statistics ---- */

struct sums {
    double xy, xx, yy, difference;
};

static void add_value(struct inspection *inspection, struct sums *sums, float input, float decoded)
{
    const double x = (double)input, y = (double)decoded, magnitude = fabs(x);
    inspection->elements++;
    inspection->zeroed += x != 0 && y == 0;
    inspection->poisoned += isnan(decoded) ? 1 : 0;
    if (magnitude > inspection->largest) {
        inspection->largest = magnitude;
    }
    if (magnitude > 0 && (magnitude < inspection->smallest || inspection->smallest == 0)) {
        inspection->smallest = magnitude;
    }
    if (isfinite(y) && isfinite(x)) {
        sums->xy += x * y;
        sums->xx += x * x;
        sums->yy += y * y;
        sums->difference += (x - y) * (x - y);
    }
}

static void finish(struct inspection *inspection, const struct sums *sums)
{
    inspection->cosine = sums->xx > 0 && sums->yy > 0 ? sums->xy / sqrt(sums->xx * sums->yy) : NAN;
    inspection->relative_error = sums->xx > 0 ? sqrt(sums->difference / sums->xx) : NAN;
}

/* What a code of this element is multiplied by, and the largest code there is. */
static double unit_of(enum representation representation, const struct operand *operand, size_t row, size_t element)
{
    switch (representation) {
    case REPRESENTATION_FP32:
    case REPRESENTATION_BF16:
        return 1;
    case REPRESENTATION_E4M3_TENSOR:
        return (double)operand->tensor_scale;
    case REPRESENTATION_NVFP4_CHANNEL:
        return (double)e4m3_decode(operand->scales[element]) * (double)e8m0_decode(operand->exponents[row]);
    case REPRESENTATION_NVFP4_TOKEN:
        return (double)e4m3_decode(operand->scales[element]) * (double)e8m0_decode(operand->exponents[element]);
    default:
        return (double)e8m0_decode(operand->exponents[row]);
    }
}

static double largest_code(enum representation representation)
{
    switch (representation) {
    case REPRESENTATION_FP32:
    case REPRESENTATION_BF16:
        return INFINITY;
    case REPRESENTATION_E4M3_BLOCK:
    case REPRESENTATION_E4M3_TOKEN:
    case REPRESENTATION_E4M3_TENSOR:
        return 448;
    default:
        return 6;
    }
}

static bool has_group_scales(enum representation representation)
{
    return representation == REPRESENTATION_NVFP4_CHANNEL || representation == REPRESENTATION_NVFP4_TOKEN;
}

static bool has_exponents(enum representation representation)
{
    return representation == REPRESENTATION_E4M3_BLOCK || representation == REPRESENTATION_E4M3_TOKEN ||
           representation == REPRESENTATION_E2M1_KEY;
}

/* Once for each 16 channels (NVFP4) or each token (the others), so a group of 16 or 32 tokens counts that often. */
static void count_scales(struct inspection *inspection, const struct operand *operand, size_t rows, size_t head_dim)
{
    for (size_t row = 0; row < rows; row++) {
        if (has_exponents(inspection->representation)) {
            inspection->scales[operand->exponents[row]]++;
        }
        for (size_t channel = 0; has_group_scales(inspection->representation) && channel < head_dim; channel += 16) {
            inspection->scales[operand->scales[row * head_dim + channel]]++;
        }
    }
}

static void take_statistics(struct inspection *inspection, const struct operand *operand, const float *input,
                            size_t rows, size_t head_dim)
{
    struct sums sums = {0, 0, 0, 0};
    const double most = largest_code(inspection->representation);
    for (size_t row = 0; row < rows; row++) {
        for (size_t element = row * head_dim; element < (row + 1) * head_dim; element++) {
            add_value(inspection, &sums, input[element], operand->values[element]);
            inspection->saturated +=
                fabs((double)input[element]) > most * unit_of(inspection->representation, operand, row, element);
        }
    }
    finish(inspection, &sums);
    count_scales(inspection, operand, rows, head_dim);
}

enum attention_status inspect_operand(const struct recipe *recipe, enum operand_role role,
                                      const struct documents *documents, size_t total_tokens, size_t heads,
                                      size_t head_dim, const float *x, struct inspection *inspection)
{
    const size_t rows = heads * total_tokens, elements = rows * head_dim;
    struct full_operand full;
    float *input = malloc(elements * sizeof *input);
    memset(inspection, 0, sizeof *inspection);
    inspection->representation = operand_representation(recipe, role);
    const bool done = make_operand(&full, elements) && input;
    if (done) {
        input_image(recipe, role, documents, total_tokens, heads, head_dim, x, input);
        quantize_operand_cpu(recipe, role, documents, total_tokens, heads, head_dim, x, heads * head_dim,
                             &full.operand);
        take_statistics(inspection, &full.operand, input, rows, head_dim);
    }
    free(input);
    free_operand(&full);
    return done ? ATTENTION_OK : ATTENTION_WORKSPACE;
}

/* ---- P and dS ---- */

const char *inspect_intermediate_name(enum inspect_intermediate intermediate)
{
    static const char *const names[] = {"P in PV", "dS in dQ", "dS in dK"};
    return names[intermediate];
}

enum { P_ROUNDED, P_EXACT, DS_EXACT, DS_QUERY, DS_KEY, TRACES };

struct traced {
    float *trace[TRACES]; /* [H][total][total] */
    float *output, *lse, *dquery, *dkey, *dvalue;
    void *workspace;
    size_t workspace_bytes;
};

static bool make_traced(struct traced *traced, const struct inspect_call *call)
{
    const struct attention_shape *shape = &call->shape;
    const size_t pairs = shape->heads * shape->total_tokens * shape->total_tokens,
                 rows = shape->total_tokens * shape->head_dim;
    bool done = true;
    for (int i = 0; i < TRACES; i++) {
        traced->trace[i] = malloc(pairs * sizeof(float));
        done = done && traced->trace[i];
    }
    traced->output = malloc(rows * shape->heads * sizeof(float));
    traced->dquery = malloc(rows * shape->heads * sizeof(float));
    traced->dkey = malloc(rows * shape->kv_heads * sizeof(float));
    traced->dvalue = malloc(rows * shape->kv_heads * sizeof(float));
    traced->lse = malloc(shape->heads * shape->total_tokens * sizeof(float));
    traced->workspace_bytes = attention_workspace_bytes(call->recipe, shape);
    traced->workspace = malloc(traced->workspace_bytes);
    return done && traced->output && traced->dquery && traced->dkey && traced->dvalue && traced->lse &&
           traced->workspace;
}

static void free_traced(struct traced *traced)
{
    for (int i = 0; i < TRACES; i++) {
        free(traced->trace[i]);
    }
    free(traced->output);
    free(traced->dquery);
    free(traced->dkey);
    free(traced->dvalue);
    free(traced->lse);
    free(traced->workspace);
}

static enum attention_status run_traced(struct traced *traced, const struct inspect_call *call)
{
    const struct attention_shape *shape = &call->shape;
    const size_t query = shape->heads * shape->head_dim, key = shape->kv_heads * shape->head_dim;
    const struct attention_inputs inputs = {call->query, call->key, call->value, query, key, key};
    const struct attention_gradients gradients = {traced->dquery, traced->dkey, traced->dvalue, query, key, key};
    const struct attention_random random = {call->seed, 0, 0, 0};
    const struct attention_trace trace = {.probability_value = traced->trace[P_ROUNDED],
                                          .probability = traced->trace[P_EXACT],
                                          .dscore = traced->trace[DS_EXACT],
                                          .dscore_query = traced->trace[DS_QUERY],
                                          .dscore_key = traced->trace[DS_KEY]};
    const enum attention_status status =
        attention_forward_cpu(call->recipe, shape, &call->documents, &inputs, traced->output, query, traced->lse,
                              traced->workspace, traced->workspace_bytes, &trace);
    if (status != ATTENTION_OK) {
        return status;
    }
    return attention_backward_cpu(call->recipe, shape, &call->documents, &inputs, traced->output, query, traced->lse,
                                  call->doutput, query, &random, &gradients, traced->workspace, traced->workspace_bytes,
                                  &trace);
}

/* Visible pairs only: the rest was never written. */
static void take_pairs(const struct inspect_call *call, const float *exact, const float *rounded,
                       struct inspection *inspection)
{
    const struct attention_shape *shape = &call->shape;
    struct sums sums = {0, 0, 0, 0};
    for (size_t head = 0; head < shape->heads; head++) {
        for (size_t document = 0; document < call->documents.count; document++) {
            const size_t begin = (size_t)call->documents.offsets[document],
                         end = (size_t)call->documents.offsets[document + 1];
            for (size_t row = begin; row < end; row++) {
                const size_t at = (head * shape->total_tokens + row) * shape->total_tokens;
                for (size_t key = begin; key < (shape->causal ? row + 1 : end); key++) {
                    add_value(inspection, &sums, exact[at + key], rounded[at + key]);
                }
            }
        }
    }
    finish(inspection, &sums);
}

enum attention_status inspect_call(const struct inspect_call *call,
                                   struct inspection inspections[INSPECT_INTERMEDIATES])
{
    static const int pairs[INSPECT_INTERMEDIATES][2] = {{P_EXACT, P_ROUNDED}, {DS_EXACT, DS_QUERY}, {DS_EXACT, DS_KEY}};
    struct traced traced;
    memset(inspections, 0, INSPECT_INTERMEDIATES * sizeof *inspections);
    memset(&traced, 0, sizeof traced);
    const enum attention_status status = make_traced(&traced, call) ? run_traced(&traced, call) : ATTENTION_WORKSPACE;
    for (int i = 0; status == ATTENTION_OK && i < INSPECT_INTERMEDIATES; i++) {
        take_pairs(call, traced.trace[pairs[i][0]], traced.trace[pairs[i][1]], &inspections[i]);
    }
    free_traced(&traced);
    return status;
}

/* ---- one block ---- */

static void find_block(const struct documents *documents, size_t token, struct inspect_block *block)
{
    for (size_t i = 0; i < documents->count; i++) {
        const size_t begin = (size_t)documents->offsets[i], end = (size_t)documents->offsets[i + 1];
        if (token >= begin && token < end) {
            block->first = begin + (token - begin) / TOKEN_BLOCK * TOKEN_BLOCK;
            block->rows = end - block->first < TOKEN_BLOCK ? end - block->first : TOKEN_BLOCK;
        }
    }
}

static void copy_channel(enum representation representation, const struct operand *operand, size_t first_row,
                         size_t head_dim, size_t channel, bool after, struct inspect_block *block)
{
    for (size_t i = 0; i < block->rows; i++) {
        const size_t row = first_row + i, element = row * head_dim + channel;
        struct inspect_row *to = &block->row[i];
        *(after ? &to->decoded_after : &to->decoded) = operand->values[element];
        *(after ? &to->code_after : &to->code) = operand->codes[element];
        *(after ? &to->scale_after : &to->scale) = unit_of(representation, operand, row, element);
    }
}

enum attention_status inspect_block(const struct recipe *recipe, enum operand_role role,
                                    const struct documents *documents, size_t total_tokens, size_t heads,
                                    size_t head_dim, const float *x, size_t head, size_t channel, size_t token,
                                    float gain, struct inspect_block *block)
{
    const size_t width = heads * head_dim, elements = total_tokens * width;
    struct full_operand full;
    memset(block, 0, sizeof *block);
    if (token >= total_tokens || head >= heads || channel >= head_dim) {
        return ATTENTION_BAD_SHAPE;
    }
    float *changed = malloc(elements * sizeof *changed), *input = malloc(elements * sizeof *input);
    const bool done = make_operand(&full, elements) && changed && input;
    find_block(documents, token, block);
    if (done && block->rows > 0) {
        const enum representation representation = operand_representation(recipe, role);
        const size_t first_row = head * total_tokens + block->first;
        input_image(recipe, role, documents, total_tokens, heads, head_dim, x, input);
        for (size_t i = 0; i < block->rows; i++) {
            block->row[i].input = input[(first_row + i) * head_dim + channel];
        }
        quantize_operand_cpu(recipe, role, documents, total_tokens, heads, head_dim, x, width, &full.operand);
        copy_channel(representation, &full.operand, first_row, head_dim, channel, false, block);
        memcpy(changed, x, elements * sizeof *changed);
        for (size_t i = 0; i < width; i++) {
            changed[(block->first + block->rows - 1) * width + i] *= gain;
        }
        quantize_operand_cpu(recipe, role, documents, total_tokens, heads, head_dim, changed, width, &full.operand);
        copy_channel(representation, &full.operand, first_row, head_dim, channel, true, block);
    }
    free(changed);
    free(input);
    free_operand(&full);
    return done ? ATTENTION_OK : ATTENTION_WORKSPACE;
}
