/* probe.c: see probe.h. */
#include "attention/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/philox.h"
#include "attention/quantize.h"

/* Roles whose values an earlier row reads at tokens up to its own, on the tile the causal boundary runs through; and
 * the others. */
static const enum operand_role read_early[] = {ROLE_QUERY_SCORE,           ROLE_KEY_SCORE,
                                               ROLE_VALUE_OUTPUT_DIAGONAL, ROLE_VALUE_DPROBABILITY,
                                               ROLE_DOUTPUT_DPROBABILITY,  ROLE_KEY_DQUERY_DIAGONAL};
static const enum operand_role read_late[] = {ROLE_VALUE_OUTPUT, ROLE_KEY_DQUERY};
#define EARLY_ROLES (sizeof read_early / sizeof *read_early)
#define LATE_ROLES  (sizeof read_late / sizeof *read_late)

enum { QUERY, KEY, VALUE, DOUTPUT, INPUTS };

/* One run's results. */
struct run {
    float *output, *dquery, *lse; /* [T][H d], [T][H d], [H][T] */
};

/* One operand, decoded, with its scales. */
struct image {
    float *values;               /* [heads][T][d] */
    uint8_t *exponents, *scales; /* [heads][T][d] at most, as quantize.h says */
    float tensor_scale;
};

struct probe {
    struct probe_setup setup;
    float *inputs[INPUTS], *changed[INPUTS]; /* dense */
    struct run before, after;
    struct image image_before, image_after;
    float *dkey, *dvalue; /* not looked at */
    void *workspace;
    size_t workspace_bytes;
};

const char *probe_tensor_name(enum probe_tensor tensor)
{
    static const char *const names[] = {"K", "V", "K and V", "Q", "dO"};
    return names[tensor];
}

const char *probe_change_name(enum probe_change change)
{
    static const char *const names[] = {"new draw", "x 4", "x 100", "x 1e4", "x 1e6", "zero", "swap", "NaN", "Inf"};
    return names[change];
}

/* ---- inputs ---- */

static size_t input_heads(const struct attention_shape *shape, int input)
{
    return input == KEY || input == VALUE ? shape->kv_heads : shape->heads;
}

static size_t row_width(const struct attention_shape *shape, int input)
{
    return input_heads(shape, input) * shape->head_dim;
}

static float normal_at(uint64_t seed, uint32_t stream, uint64_t index)
{
    const struct philox_block random = philox4x32_10((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)index,
                                                     (uint32_t)(index >> 32), stream, 0x70726F62u);
    const double u = ((double)random.word[0] + 0.5) * 0x1p-32, v = (double)random.word[1] * 0x1p-32;
    return bf16_round((float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v)));
}

static void fill_inputs(struct probe *probe)
{
    const struct attention_shape *shape = &probe->setup.shape;
    const float *const given[INPUTS] = {probe->setup.query, probe->setup.key, probe->setup.value, probe->setup.doutput};
    for (int input = 0; input < INPUTS; input++) {
        const size_t count = shape->total_tokens * row_width(shape, input);
        for (size_t i = 0; i < count; i++) {
            probe->inputs[input][i] =
                given[input] ? bf16_round(given[input][i]) : normal_at(probe->setup.seed, (uint32_t)input, i);
        }
        memcpy(probe->changed[input], probe->inputs[input], count * sizeof(float));
    }
}

static float changed_value(const struct probe *probe, int input, size_t index, size_t next, enum probe_change change)
{
    static const float gains[] = {1.0f, 4.0f, 100.0f, 1e4f, 1e6f, 0.0f};
    const float x = probe->inputs[input][index];
    switch (change) {
    case PROBE_REDRAW:
        return probe->setup.query ? -x : normal_at(probe->setup.seed + 1, (uint32_t)input, index);
    case PROBE_SWAP:
        return probe->inputs[input][next];
    case PROBE_NAN:
        return NAN;
    case PROBE_INFINITY:
        return x < 0 ? -INFINITY : INFINITY;
    default:
        return bf16_round(x * gains[change]);
    }
}

/* Writes the changed token (with a swap, two) into probe->changed[input], or puts the original back. */
static void change_input(struct probe *probe, int input, size_t position, enum probe_change change, bool undo)
{
    const size_t width = row_width(&probe->setup.shape, input), total = probe->setup.shape.total_tokens;
    const size_t other = position + 1 < total ? position + 1 : position;
    for (size_t i = 0; i < width; i++) {
        const size_t here = position * width + i, there = other * width + i;
        probe->changed[input][here] =
            undo ? probe->inputs[input][here] : changed_value(probe, input, here, there, change);
        if (change == PROBE_SWAP) {
            probe->changed[input][there] =
                undo || other == position ? probe->inputs[input][there] : probe->inputs[input][here];
        }
    }
}

static bool touches(enum probe_tensor tensor, int input)
{
    switch (tensor) {
    case PROBE_KEY:
        return input == KEY;
    case PROBE_VALUE:
        return input == VALUE;
    case PROBE_KEY_VALUE:
        return input == KEY || input == VALUE;
    case PROBE_QUERY:
        return input == QUERY;
    default:
        return input == DOUTPUT;
    }
}

static void change_tensor(struct probe *probe, size_t position, enum probe_tensor tensor, enum probe_change change,
                          bool undo)
{
    for (int input = 0; input < INPUTS; input++) {
        if (touches(tensor, input)) {
            change_input(probe, input, position, change, undo);
        }
    }
}

/* ---- running ---- */

static enum attention_status run(struct probe *probe, float *const *inputs, struct run *to)
{
    const struct attention_shape *shape = &probe->setup.shape;
    const size_t query = row_width(shape, QUERY), key = row_width(shape, KEY);
    const struct attention_inputs in = {inputs[QUERY], inputs[KEY], inputs[VALUE], query, key, key};
    const struct attention_gradients gradients = {to->dquery, probe->dkey, probe->dvalue, query, key, key};
    const struct attention_random random = {probe->setup.seed, 0, 0, 0};
    const enum attention_status status =
        attention_forward_cpu(probe->setup.recipe, shape, &probe->setup.documents, &in, to->output, query, to->lse,
                              probe->workspace, probe->workspace_bytes, NULL);
    if (status != ATTENTION_OK) {
        return status;
    }
    return attention_backward_cpu(probe->setup.recipe, shape, &probe->setup.documents, &in, to->output, query, to->lse,
                                  inputs[DOUTPUT], query, &random, &gradients, probe->workspace, probe->workspace_bytes,
                                  NULL);
}

static bool allocate(float **to, size_t count)
{
    *to = calloc(count > 0 ? count : 1, sizeof **to);
    return *to != NULL;
}

static bool allocate_image(struct image *image, size_t count)
{
    image->exponents = calloc(count > 0 ? count : 1, 1);
    image->scales = calloc(count > 0 ? count : 1, 1);
    return allocate(&image->values, count) && image->exponents && image->scales;
}

static bool allocate_all(struct probe *probe)
{
    const struct attention_shape *shape = &probe->setup.shape;
    const size_t rows = shape->total_tokens * row_width(shape, QUERY),
                 keys = shape->total_tokens * row_width(shape, KEY);
    bool done = true;
    for (int input = 0; done && input < INPUTS; input++) {
        const size_t count = shape->total_tokens * row_width(shape, input);
        done = allocate(&probe->inputs[input], count) && allocate(&probe->changed[input], count);
    }
    struct run *const runs[] = {&probe->before, &probe->after};
    for (int i = 0; done && i < 2; i++) {
        done = allocate(&runs[i]->output, rows) && allocate(&runs[i]->dquery, rows) &&
               allocate(&runs[i]->lse, shape->heads * shape->total_tokens);
    }
    done = done && allocate(&probe->dkey, keys) && allocate(&probe->dvalue, keys) &&
           allocate_image(&probe->image_before, rows) && allocate_image(&probe->image_after, rows);
    probe->workspace_bytes = attention_workspace_bytes(probe->setup.recipe, shape);
    probe->workspace = malloc(probe->workspace_bytes);
    return done && probe->workspace;
}

struct probe *probe_create(const struct probe_setup *setup, enum attention_status *status)
{
    struct probe *probe = calloc(1, sizeof *probe);
    *status = ATTENTION_WORKSPACE;
    if (!probe) {
        return NULL;
    }
    probe->setup = *setup;
    const struct attention_shape *shape = &setup->shape;
    if (shape->heads == 0 || shape->kv_heads == 0 || shape->heads % shape->kv_heads != 0 ||
        shape->head_dim > HEAD_DIM_MAX) {
        *status = ATTENTION_BAD_SHAPE;
    } else if (allocate_all(probe)) {
        fill_inputs(probe);
        *status = run(probe, probe->inputs, &probe->before);
    }
    if (*status != ATTENTION_OK) {
        probe_destroy(probe);
        return NULL;
    }
    return probe;
}

static void free_image(struct image *image)
{
    free(image->values);
    free(image->exponents);
    free(image->scales);
}

void probe_destroy(struct probe *probe)
{
    if (!probe) {
        return;
    }
    for (int input = 0; input < INPUTS; input++) {
        free(probe->inputs[input]);
        free(probe->changed[input]);
    }
    struct run *const runs[] = {&probe->before, &probe->after};
    for (int i = 0; i < 2; i++) {
        free(runs[i]->output);
        free(runs[i]->dquery);
        free(runs[i]->lse);
    }
    free_image(&probe->image_before);
    free_image(&probe->image_after);
    free(probe->dkey);
    free(probe->dvalue);
    free(probe->workspace);
    free(probe);
}

/* ---- what moved in O and dQ ---- */

struct span {
    size_t begin, end; /* tokens of the perturbed token's document */
    size_t block;      /* first token of its 32-block */
};

static struct span span_of(const struct documents *documents, size_t position)
{
    struct span span = {0, 0, 0};
    for (size_t i = 0; i < documents->count; i++) {
        const size_t begin = (size_t)documents->offsets[i], end = (size_t)documents->offsets[i + 1];
        if (position >= begin && position < end) {
            span = (struct span){begin, end, begin + (position - begin) / TOKEN_BLOCK * TOKEN_BLOCK};
        }
    }
    return span;
}

/* |new - old| / largest |old| of one row; infinite if a number became none or the row was zero. */
static double row_change(const float *before, const float *after, size_t count)
{
    double most = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        const double change = fabs((double)after[i] - (double)before[i]);
        most = change > most || isnan(change) ? change : most;
        size = fmax(size, fabs((double)before[i]));
        if (isnan(most)) {
            return INFINITY;
        }
    }
    return most == 0 ? 0 : size == 0 ? INFINITY : most / size;
}

static void compare_rows(const struct probe *probe, const struct span *span, size_t position,
                         struct probe_outcome *outcome)
{
    const size_t width = row_width(&probe->setup.shape, QUERY);
    for (size_t row = 0; row < probe->setup.shape.total_tokens; row++) {
        const bool same_document = row >= span->begin && row < span->end;
        if (same_document && row >= position) {
            continue;
        }
        const size_t at = row * width, bytes = width * sizeof(float);
        const bool moved = memcmp(probe->before.output + at, probe->after.output + at, bytes) != 0 ||
                           memcmp(probe->before.dquery + at, probe->after.dquery + at, bytes) != 0;
        if (!moved) {
            continue;
        }
        const double output = row_change(probe->before.output + at, probe->after.output + at, width);
        const double dquery = row_change(probe->before.dquery + at, probe->after.dquery + at, width);
        if (!same_document) {
            outcome->other_document = true;
            outcome->document_change = fmax(outcome->document_change, fmax(output, dquery));
            continue;
        }
        outcome->row_in_block |= row >= span->block;
        outcome->row_outside |= row < span->block;
        outcome->output_change = fmax(outcome->output_change, output);
        outcome->dquery_change = fmax(outcome->dquery_change, dquery);
    }
}

/* ---- what moved in the operands ---- */

static int role_input(enum operand_role role)
{
    switch (role) {
    case ROLE_QUERY_SCORE:
        return QUERY;
    case ROLE_KEY_SCORE:
    case ROLE_KEY_DQUERY:
    case ROLE_KEY_DQUERY_DIAGONAL:
        return KEY;
    case ROLE_DOUTPUT_DPROBABILITY:
        return DOUTPUT;
    default:
        return VALUE;
    }
}

static void quantize_image(const struct probe *probe, enum operand_role role, const float *x, struct image *image)
{
    const struct attention_shape *shape = &probe->setup.shape;
    const int input = role_input(role);
    struct operand operand = {.values = image->values, .exponents = image->exponents, .scales = image->scales};
    quantize_operand_cpu(probe->setup.recipe, role, &probe->setup.documents, shape->total_tokens,
                         input_heads(shape, input), shape->head_dim, x, row_width(shape, input), &operand);
    image->tensor_scale = operand.tensor_scale;
}

/* True if a value that changed was in the normal range of its block: not the residue the paper allows. Of the two
 * exponents the larger one's grid is the coarser; what it re-rounds must be below 2^-6 of it, as the finer grid shows.
 */
static bool above_residue(const struct probe *probe, enum representation representation, size_t row, size_t element)
{
    const uint8_t before = probe->image_before.exponents[row], after = probe->image_after.exponents[row];
    if (representation != REPRESENTATION_E4M3_BLOCK || before == E8M0_NAN || after == E8M0_NAN) {
        return true;
    }
    const float finer = after > before ? probe->image_before.values[element] : probe->image_after.values[element];
    return !(fabsf(finer) < 0x1p-6f * e8m0_decode(after > before ? after : before));
}

/* One scale of the group an element is in, as one number. */
static uint32_t scale_of(enum representation representation, const struct image *image, size_t row, size_t element)
{
    switch (representation) {
    case REPRESENTATION_FP32:
    case REPRESENTATION_BF16:
        return 0;
    case REPRESENTATION_E4M3_TENSOR:
        return float_to_bits(image->tensor_scale);
    case REPRESENTATION_NVFP4_CHANNEL:
        return (uint32_t)image->scales[element] << 8 | image->exponents[row];
    case REPRESENTATION_NVFP4_TOKEN:
        return (uint32_t)image->scales[element] << 8 | image->exponents[element];
    default:
        return image->exponents[row];
    }
}

/* Groups of the perturbed token in this operand, and how many changed their scale: per head and 16 channels. */
static void count_groups(const struct probe *probe, enum operand_role role, size_t position,
                         struct probe_outcome *outcome)
{
    const struct attention_shape *shape = &probe->setup.shape;
    const enum representation representation = operand_representation(probe->setup.recipe, role);
    if (representation == REPRESENTATION_FP32 || representation == REPRESENTATION_BF16) {
        return;
    }
    for (size_t head = 0; head < input_heads(shape, role_input(role)); head++) {
        const size_t row = head * shape->total_tokens + position;
        for (size_t channel = 0; channel < shape->head_dim; channel += 16) {
            const size_t element = row * shape->head_dim + channel;
            outcome->groups++;
            outcome->groups_rescaled += scale_of(representation, &probe->image_before, row, element) !=
                                        scale_of(representation, &probe->image_after, row, element);
        }
    }
}

static void compare_role(struct probe *probe, enum operand_role role, const struct span *span, size_t position,
                         bool early, struct probe_outcome *outcome)
{
    const struct attention_shape *shape = &probe->setup.shape;
    const enum representation representation = operand_representation(probe->setup.recipe, role);
    const int input = role_input(role);
    quantize_image(probe, role, probe->inputs[input], &probe->image_before);
    quantize_image(probe, role, probe->changed[input], &probe->image_after);
    for (size_t head = 0; head < input_heads(shape, input); head++) {
        for (size_t token = span->begin; token < position; token++) {
            const size_t row = head * shape->total_tokens + token;
            for (size_t element = row * shape->head_dim; element < (row + 1) * shape->head_dim; element++) {
                const float before = probe->image_before.values[element];
                if (float_to_bits(before) != float_to_bits(probe->image_after.values[element])) {
                    outcome->operand_moved = true;
                    outcome->operand_above |= early && above_residue(probe, representation, row, element);
                }
            }
        }
    }
    count_groups(probe, role, position, outcome);
}

static enum causality judge(const struct probe_outcome *outcome)
{
    if (outcome->row_outside || outcome->operand_above || outcome->other_document) {
        return CAUSALITY_LEAKY;
    }
    return outcome->row_in_block || outcome->operand_moved ? CAUSALITY_IN_BLOCK : CAUSALITY_EXACT;
}

enum attention_status probe_perturb(struct probe *probe, size_t position, enum probe_tensor tensor,
                                    enum probe_change change, struct probe_outcome *outcome)
{
    memset(outcome, 0, sizeof *outcome);
    if (position >= probe->setup.shape.total_tokens) {
        return ATTENTION_BAD_SHAPE;
    }
    struct span span = span_of(&probe->setup.documents, position);
    if (change == PROBE_SWAP && position + 1 >= span.end) {
        return ATTENTION_OK; /* the last token of a document has none after it to swap with */
    }
    change_tensor(probe, position, tensor, change, false);
    const enum attention_status status = run(probe, probe->changed, &probe->after);
    if (status == ATTENTION_OK) {
        compare_rows(probe, &span, position, outcome);
        for (size_t i = 0; i < EARLY_ROLES; i++) {
            if (touches(tensor, role_input(read_early[i]))) {
                compare_role(probe, read_early[i], &span, position, true, outcome);
            }
        }
        for (size_t i = 0; i < LATE_ROLES; i++) {
            if (touches(tensor, role_input(read_late[i]))) {
                compare_role(probe, read_late[i], &span, position, false, outcome);
            }
        }
        outcome->verdict = judge(outcome);
    }
    change_tensor(probe, position, tensor, change, true);
    return status;
}

/* ---- many perturbations ---- */

void probe_add(struct probe_outcome *total, const struct probe_outcome *outcome)
{
    total->row_in_block |= outcome->row_in_block;
    total->row_outside |= outcome->row_outside;
    total->other_document |= outcome->other_document;
    total->operand_moved |= outcome->operand_moved;
    total->operand_above |= outcome->operand_above;
    total->output_change = fmax(total->output_change, outcome->output_change);
    total->dquery_change = fmax(total->dquery_change, outcome->dquery_change);
    total->document_change = fmax(total->document_change, outcome->document_change);
    total->groups += outcome->groups;
    total->groups_rescaled += outcome->groups_rescaled;
    total->verdict = outcome->verdict > total->verdict ? outcome->verdict : total->verdict;
}

/* Places worth perturbing, counted within a stride of the tokens: inside, at both edges of a 32-block, of a group
 * of 16. */
size_t probe_positions(const struct documents *documents, size_t count, size_t *positions)
{
    static const size_t places[] = {21, 31, 32, 15, 16, 1, 30, 17};
    const size_t total = documents->count ? (size_t)documents->offsets[documents->count] : 0;
    size_t found = 0, last = 0;
    for (size_t i = 0; i < count && total > 0; i++) {
        const size_t stride = total * (i + 1) / count - 1;
        const size_t place = stride / TOKEN_BLOCK * TOKEN_BLOCK + places[i % (sizeof places / sizeof *places)];
        const size_t position = place < total ? place : stride;
        if (found == 0 || position > last) {
            positions[found++] = last = position;
        }
    }
    return found;
}

enum attention_status probe_run(struct probe *probe, size_t count, struct probe_outcome *total,
                                struct probe_outcome *table)
{
    size_t *positions = malloc((count > 0 ? count : 1) * sizeof *positions);
    enum attention_status status = positions ? ATTENTION_OK : ATTENTION_WORKSPACE;
    const size_t found = positions ? probe_positions(&probe->setup.documents, count, positions) : 0;
    memset(total, 0, sizeof *total);
    if (table) {
        memset(table, 0, (size_t)PROBE_TENSOR_COUNT * PROBE_FINITE_CHANGES * sizeof *table);
    }
    for (size_t i = 0; i < found; i++) {
        for (int cell = 0; status == ATTENTION_OK && cell < PROBE_TENSOR_COUNT * PROBE_FINITE_CHANGES; cell++) {
            struct probe_outcome outcome;
            status = probe_perturb(probe, positions[i], (enum probe_tensor)(cell / PROBE_FINITE_CHANGES),
                                   (enum probe_change)(cell % PROBE_FINITE_CHANGES), &outcome);
            probe_add(total, &outcome);
            if (table) {
                probe_add(&table[cell], &outcome);
            }
        }
    }
    free(positions);
    return status;
}

enum attention_status probe_picture(struct probe *probe, enum probe_change change, const size_t *positions,
                                    size_t columns, float *changes)
{
    const size_t width = row_width(&probe->setup.shape, QUERY), rows = probe->setup.shape.total_tokens;
    for (size_t column = 0; column < columns; column++) {
        change_tensor(probe, positions[column], PROBE_KEY_VALUE, change, false);
        const enum attention_status status = run(probe, probe->changed, &probe->after);
        change_tensor(probe, positions[column], PROBE_KEY_VALUE, change, true);
        if (status != ATTENTION_OK) {
            return status;
        }
        for (size_t row = 0; row < rows; row++) {
            const double output =
                row_change(probe->before.output + row * width, probe->after.output + row * width, width);
            const double dquery =
                row_change(probe->before.dquery + row * width, probe->after.dquery + row * width, width);
            changes[row * columns + column] = (float)fmax(output, dquery);
        }
    }
    return ATTENTION_OK;
}
