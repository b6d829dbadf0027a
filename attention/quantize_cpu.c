/* quantize_cpu.c: the reference quantizers (paper, sections 3.1 and 3.4, appendix A). See quantize.h.
 *
 * Work goes document by document in tiles of 128 tokens counted from the document's start, so nothing is ever shared
 * across documents. Maxima are taken on the bits of magnitudes: as integers they order like the numbers, and NaN and
 * infinity come out largest instead of being swallowed. A block that holds one gets exponent byte 255 (NVFP4: scale
 * 0x7F), codes 0, and decodes to NaN.
 */
#include <math.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/quantize.h"

#define GROUP          16 /* elements that share an NVFP4 scale */
#define MAGNITUDE_MASK 0x7FFFFFFFu
#define INFINITY_BITS  0x7F800000u

/* What one tile's encoder needs to know. */
struct tile_task {
    const float *x; /* [rows][head_dim], already rounded to the input precision and rotated */
    size_t rows, head_dim;
    enum scale_rule rule;
    float tensor_scale;
    struct operand out; /* pointers already at the tile's first element */
};

/* ---- representations ---- */

static enum representation e4m3_representation(const struct recipe *recipe)
{
    static const enum representation by_group[] = {REPRESENTATION_E4M3_BLOCK, REPRESENTATION_E4M3_TOKEN,
                                                   REPRESENTATION_E4M3_TENSOR};
    return by_group[recipe->exponents];
}

/* NVFP4 whose contraction runs along keys: grouped, or one power of two per key where the causal boundary may pass. */
static enum representation along_keys(const struct recipe *recipe, bool diagonal)
{
    const bool keyed =
        recipe->value_groups == VALUE_KEYED || (diagonal && recipe->value_groups == VALUE_KEYED_DIAGONAL);
    return keyed ? REPRESENTATION_E2M1_KEY : REPRESENTATION_NVFP4_TOKEN;
}

static enum representation nvfp4_representation(const struct recipe *recipe, enum operand_role role)
{
    switch (role) {
    case ROLE_VALUE_OUTPUT:
    case ROLE_KEY_DQUERY:
        return along_keys(recipe, false);
    case ROLE_VALUE_OUTPUT_DIAGONAL:
    case ROLE_KEY_DQUERY_DIAGONAL:
        return along_keys(recipe, true);
    case ROLE_VALUE_DPROBABILITY:
        return recipe->value_groups == VALUE_GROUPED ? REPRESENTATION_NVFP4_TOKEN : REPRESENTATION_NVFP4_CHANNEL;
    case ROLE_DOUTPUT_DVALUE:
    case ROLE_QUERY_DKEY:
        return REPRESENTATION_NVFP4_TOKEN;
    default:
        return REPRESENTATION_NVFP4_CHANNEL;
    }
}

static enum operand_format role_format(const struct recipe *recipe, enum operand_role role)
{
    switch (role) {
    case ROLE_QUERY_SCORE:
    case ROLE_KEY_SCORE:
        return recipe->score;
    case ROLE_VALUE_OUTPUT:
    case ROLE_VALUE_OUTPUT_DIAGONAL:
    case ROLE_VALUE_DPROBABILITY:
        return recipe->value;
    case ROLE_DOUTPUT_DPROBABILITY:
    case ROLE_DOUTPUT_DVALUE:
        return recipe->output_gradient;
    default:
        return recipe->gradient;
    }
}

enum representation operand_representation(const struct recipe *recipe, enum operand_role role)
{
    switch (role_format(recipe, role)) {
    case OPERAND_FP32:
        return REPRESENTATION_FP32;
    case OPERAND_BF16:
        return REPRESENTATION_BF16;
    case OPERAND_E4M3:
        return e4m3_representation(recipe);
    case OPERAND_NVFP4:
        break;
    }
    return nvfp4_representation(recipe, role);
}

const char *operand_role_name(enum operand_role role)
{
    static const char *const names[ROLE_COUNT] = {
        "Q in S",   "K in S",  "V in PV", "V in PV, diagonal tile", "V in dP", "dO in dP",
        "dO in dV", "Q in dK", "K in dQ", "K in dQ, diagonal tile",
    };
    return names[role];
}

const char *representation_name(enum representation representation)
{
    static const char *const names[] = {
        "FP32",
        "BF16",
        "E4M3, exponent per 32 tokens",
        "E4M3, exponent per token",
        "E4M3, one scale per tensor",
        "NVFP4, 16 along channels",
        "NVFP4, 16 along tokens",
        "E2M1, exponent per token",
    };
    return names[representation];
}

bool operand_rotated(const struct recipe *recipe, enum operand_role role, size_t head_dim)
{
    const bool query_or_key = role == ROLE_QUERY_SCORE || role == ROLE_KEY_SCORE || role == ROLE_QUERY_DKEY ||
                              role == ROLE_KEY_DQUERY || role == ROLE_KEY_DQUERY_DIAGONAL;
    return query_or_key && recipe_rotates(recipe, head_dim);
}

/* ---- maxima ---- */

static uint32_t magnitude(float x)
{
    return float_to_bits(x) & MAGNITUDE_MASK;
}

/* Bits of the largest magnitude of `count` contiguous values. */
static uint32_t largest(const float *x, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t m = magnitude(x[i]);
        most = m > most ? m : most;
    }
    return most;
}

/* The same over finite values only. */
static uint32_t largest_finite(const float *x, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t m = magnitude(x[i]);
        most = m > most && m < INFINITY_BITS ? m : most;
    }
    return most;
}

/* ---- filling the outputs; any but `values` may be missing ---- */

static void put_codes(uint8_t *codes, size_t first, size_t count, uint8_t (*code_of)(float), const float *rounded)
{
    for (size_t i = 0; codes && i < count; i++) {
        codes[first + i] = code_of(rounded[i]);
    }
}

/* A block that is all NaN or all zero: codes 0, whatever signs its zeros have. */
static void put_constant(const struct tile_task *task, size_t first, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        task->out.values[first + i] = value;
    }
    if (task->out.codes) {
        memset(task->out.codes + first, 0, count);
    }
}

static void put_exponent(const struct tile_task *task, size_t row, size_t rows, uint8_t byte)
{
    if (task->out.exponents) {
        memset(task->out.exponents + row, byte, rows);
    }
}

/* ---- E4M3 ---- */

static void encode_e4m3_span(const struct tile_task *task, size_t first, size_t count, int e)
{
    const float down = exponent_to_float(-e), up = exponent_to_float(e);
    float rounded[TOKEN_BLOCK * HEAD_DIM_MAX];
    for (size_t i = 0; i < count; i++) {
        rounded[i] = e4m3_round(task->x[first + i] * down);
        task->out.values[first + i] = rounded[i] * up;
    }
    put_codes(task->out.codes, first, count, e4m3_code_of, rounded);
}

/* One exponent for `block` tokens at a time: 32, or 1. */
static void encode_e4m3(const struct tile_task *task, size_t block)
{
    for (size_t row = 0; row < task->rows; row += block) {
        const size_t rows = task->rows - row < block ? task->rows - row : block;
        const size_t first = row * task->head_dim, count = rows * task->head_dim;
        const uint32_t amax = largest(task->x + first, count);
        if (amax == 0 || amax >= INFINITY_BITS) {
            put_constant(task, first, count, amax == 0 ? 0.0f : NAN);
            put_exponent(task, row, rows, amax == 0 ? e8m0_encode(EXPONENT_ZERO) : E8M0_NAN);
            continue;
        }
        const int e = scale_exponent_e4m3(float_from_bits(amax), task->rule);
        encode_e4m3_span(task, first, count, e);
        put_exponent(task, row, rows, e8m0_encode(e));
    }
}

static void encode_e4m3_tensor(const struct tile_task *task)
{
    const float scale = task->tensor_scale;
    for (size_t row = 0; row < task->rows; row++) {
        const size_t first = row * task->head_dim;
        if (isnan(scale)) {
            put_constant(task, first, task->head_dim, NAN);
            continue;
        }
        float rounded[HEAD_DIM_MAX];
        for (size_t i = 0; i < task->head_dim; i++) {
            rounded[i] = scale == 0 ? 0.0f : e4m3_round(task->x[first + i] / scale);
            task->out.values[first + i] = rounded[i] * scale;
        }
        put_codes(task->out.codes, first, task->head_dim, e4m3_code_of, rounded);
    }
}

/* ---- 4 bits ---- */

static void encode_e2m1_key(const struct tile_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const size_t first = row * task->head_dim;
        const uint32_t amax = largest(task->x + first, task->head_dim);
        if (amax == 0 || amax >= INFINITY_BITS) {
            put_constant(task, first, task->head_dim, amax == 0 ? 0.0f : NAN);
            put_exponent(task, row, 1, amax == 0 ? e8m0_encode(EXPONENT_ZERO) : E8M0_NAN);
            continue;
        }
        const int e = scale_exponent_e2m1(float_from_bits(amax), SCALE_UP);
        const float down = exponent_to_float(-e), up = exponent_to_float(e);
        float rounded[HEAD_DIM_MAX];
        for (size_t i = 0; i < task->head_dim; i++) {
            rounded[i] = e2m1_round(task->x[first + i] * down);
            task->out.values[first + i] = rounded[i] * up;
        }
        put_codes(task->out.codes, first, task->head_dim, e2m1_code_of, rounded);
        put_exponent(task, row, 1, e8m0_encode(e));
    }
}

/* Scale of an NVFP4 group from the bits of its largest magnitude: a UE4M3 value, or NaN. */
static float nvfp4_scale(uint32_t amax, float down)
{
    return amax >= INFINITY_BITS ? NAN : e4m3_round(float_from_bits(amax) * down / 6.0f);
}

static float nvfp4_round(float x, float down, float scale)
{
    return scale == 0 ? 0.0f : e2m1_round(x * down / scale);
}

static void encode_nvfp4_channel(const struct tile_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->head_dim;
        const int t = scale_exponent_nvfp4(float_from_bits(largest_finite(x, task->head_dim)));
        const float down = exponent_to_float(-t), up = exponent_to_float(t);
        put_exponent(task, row, 1, e8m0_encode(t));
        for (size_t channel = 0; channel < task->head_dim; channel += GROUP) {
            const size_t first = row * task->head_dim + channel;
            const float scale = nvfp4_scale(largest(x + channel, GROUP), down);
            if (task->out.scales) {
                memset(task->out.scales + first, e4m3_code_of(scale), GROUP);
            }
            if (isnan(scale)) {
                put_constant(task, first, GROUP, NAN);
                continue;
            }
            float rounded[GROUP];
            for (size_t i = 0; i < GROUP; i++) {
                rounded[i] = nvfp4_round(x[channel + i], down, scale);
                task->out.values[first + i] = rounded[i] * scale * up;
            }
            put_codes(task->out.codes, first, GROUP, e2m1_code_of, rounded);
        }
    }
}

/* One group of up to 16 tokens, all channels; down and up are 2^-t and 2^t of each channel. */
static void encode_nvfp4_rows(const struct tile_task *task, size_t row, size_t rows, const float *down, const float *up)
{
    uint32_t amax[HEAD_DIM_MAX] = {0};
    float scale[HEAD_DIM_MAX], rounded[HEAD_DIM_MAX];
    const size_t head_dim = task->head_dim;
    for (size_t r = row; r < row + rows; r++) {
        for (size_t i = 0; i < head_dim; i++) {
            const uint32_t m = magnitude(task->x[r * head_dim + i]);
            amax[i] = m > amax[i] ? m : amax[i];
        }
    }
    for (size_t i = 0; i < head_dim; i++) {
        scale[i] = nvfp4_scale(amax[i], down[i]);
    }
    for (size_t r = row; r < row + rows; r++) {
        const size_t first = r * head_dim;
        for (size_t i = 0; i < head_dim; i++) {
            rounded[i] = isnan(scale[i]) ? 0.0f : nvfp4_round(task->x[first + i], down[i], scale[i]);
            task->out.values[first + i] = rounded[i] * scale[i] * up[i];
        }
        put_codes(task->out.codes, first, head_dim, e2m1_code_of, rounded);
        put_codes(task->out.scales, first, head_dim, e4m3_code_of, scale);
    }
}

static void encode_nvfp4_token(const struct tile_task *task)
{
    uint32_t amax[HEAD_DIM_MAX] = {0};
    float down[HEAD_DIM_MAX], up[HEAD_DIM_MAX];
    uint8_t byte[HEAD_DIM_MAX] = {0};
    for (size_t r = 0; r < task->rows; r++) {
        for (size_t i = 0; i < task->head_dim; i++) {
            const uint32_t m = magnitude(task->x[r * task->head_dim + i]);
            amax[i] = m > amax[i] && m < INFINITY_BITS ? m : amax[i];
        }
    }
    for (size_t i = 0; i < task->head_dim; i++) {
        const int t = scale_exponent_nvfp4(float_from_bits(amax[i]));
        down[i] = exponent_to_float(-t);
        up[i] = exponent_to_float(t);
        byte[i] = e8m0_encode(t);
    }
    for (size_t row = 0; row < task->rows; row += GROUP) {
        encode_nvfp4_rows(task, row, task->rows - row < GROUP ? task->rows - row : GROUP, down, up);
    }
    for (size_t r = 0; task->out.exponents && r < task->rows; r++) {
        memcpy(task->out.exponents + r * task->head_dim, byte, task->head_dim);
    }
}

/* ---- tiles, documents, tensors ---- */

static void encode_tile(enum representation representation, const struct tile_task *task)
{
    switch (representation) {
    case REPRESENTATION_FP32:
    case REPRESENTATION_BF16:
        memcpy(task->out.values, task->x, task->rows * task->head_dim * sizeof *task->x);
        return;
    case REPRESENTATION_E4M3_BLOCK:
        encode_e4m3(task, TOKEN_BLOCK);
        return;
    case REPRESENTATION_E4M3_TOKEN:
        encode_e4m3(task, 1);
        return;
    case REPRESENTATION_E4M3_TENSOR:
        encode_e4m3_tensor(task);
        return;
    case REPRESENTATION_NVFP4_CHANNEL:
        encode_nvfp4_channel(task);
        return;
    case REPRESENTATION_NVFP4_TOKEN:
        encode_nvfp4_token(task);
        return;
    case REPRESENTATION_E2M1_KEY:
        encode_e2m1_key(task);
        return;
    }
}

struct source {
    const float *x; /* [tokens][heads][head_dim], token stride `stride` */
    size_t stride, head_dim;
    bool round, rotate;
};

/* One token of one head, as every quantizer reads it: rounded to BF16, rotated, rounded again. */
static void load_token(const struct source *source, size_t token, size_t head, float *x)
{
    memcpy(x, source->x + token * source->stride + head * source->head_dim, source->head_dim * sizeof *x);
    for (size_t i = 0; source->round && i < source->head_dim; i++) {
        x[i] = bf16_round(x[i]);
    }
    if (source->rotate) {
        hadamard_rotate(x, source->head_dim);
        for (size_t i = 0; i < source->head_dim; i++) {
            x[i] = bf16_round(x[i]);
        }
    }
}

/* fl32(amax / 448) over all tokens and heads: NaN if anything is not finite. */
static float tensor_scale(const struct source *source, size_t total_tokens, size_t heads)
{
    uint32_t most = 0;
#pragma omp parallel for reduction(max : most) schedule(static)
    for (size_t token = 0; token < total_tokens; token++) {
        float x[HEAD_DIM_MAX];
        for (size_t head = 0; head < heads; head++) {
            load_token(source, token, head, x);
            const uint32_t m = largest(x, source->head_dim);
            most = m > most ? m : most;
        }
    }
    return most >= INFINITY_BITS ? NAN : float_from_bits(most) / 448.0f;
}

static struct operand operand_at(const struct operand *operand, enum representation representation, size_t row,
                                 size_t head_dim)
{
    struct operand at = *operand;
    const size_t element = row * head_dim;
    at.values += element;
    at.codes = at.codes ? at.codes + element : NULL;
    at.scales = at.scales ? at.scales + element : NULL;
    at.exponents = at.exponents ? at.exponents + (representation == REPRESENTATION_NVFP4_TOKEN ? element : row) : NULL;
    return at;
}

void quantize_operand_cpu(const struct recipe *recipe, enum operand_role role, const struct documents *documents,
                          size_t total_tokens, size_t heads, size_t head_dim, const float *x, size_t stride,
                          struct operand *operand)
{
    const enum representation representation = operand_representation(recipe, role);
    const struct source source = {x, stride, head_dim, representation != REPRESENTATION_FP32,
                                  operand_rotated(recipe, role, head_dim)};
    operand->tensor_scale =
        representation == REPRESENTATION_E4M3_TENSOR ? tensor_scale(&source, total_tokens, heads) : 0.0f;
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t head = 0; head < heads; head++) {
        for (size_t document = 0; document < documents->count; document++) {
            float tile[TILE * HEAD_DIM_MAX];
            const size_t end = (size_t)documents->offsets[document + 1];
            for (size_t first = (size_t)documents->offsets[document]; first < end; first += TILE) {
                const size_t rows = end - first < TILE ? end - first : TILE;
                for (size_t row = 0; row < rows; row++) {
                    load_token(&source, first + row, head, tile + row * head_dim);
                }
                const struct tile_task task = {
                    tile,
                    rows,
                    head_dim,
                    recipe->rule,
                    operand->tensor_scale,
                    operand_at(operand, representation, head * total_tokens + first, head_dim)};
                encode_tile(representation, &task);
            }
        }
    }
}
