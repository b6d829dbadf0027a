/* recipe.c: the presets, and one table of switches that sets, prints and explains them. */
#include "attention/recipe.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all presets share. Everything else that is not written is the first value of its enum: block exponents rounded
 * up, FP32 dQ, D from dP's dO, exact exponentials, no rotation. */
#define COMMON .diagonal_forward = 128, .diagonal_backward = 128

#define ALL_OPERANDS(format) .score = (format), .value = (format), .output_gradient = (format), .gradient = (format)

#define E4M3_PROBABILITY                                                                                               \
    .probability = PROBABILITY_E4M3_FIXED, .probability_dvalue = PROBABILITY_E4M3_FIXED, .dscore = DSCORE_E4M3,        \
    .probability_shift = 4, .rescale_threshold = 4

#define ALL_4BIT                                                                                                       \
    ALL_OPERANDS(OPERAND_NVFP4), .probability = PROBABILITY_E2M1, .probability_dvalue = PROBABILITY_E2M1,              \
                                 .dscore = DSCORE_E2M1, .dscore_stochastic = true, .rescale_threshold = 4

#define MIXED                                                                                                          \
    .score = OPERAND_NVFP4, .value = OPERAND_E4M3, .output_gradient = OPERAND_E4M3, .gradient = OPERAND_E4M3,          \
    .probability = PROBABILITY_E4M3_GROUP, .probability_dvalue = PROBABILITY_E4M3_FIXED, .dscore = DSCORE_E4M3,        \
    .rescale_threshold = 4, .hadamard_128 = true

static const struct recipe presets[] = {
    {.name = "fp32",
     COMMON,
     ALL_OPERANDS(OPERAND_FP32),
     .probability = PROBABILITY_FP32,
     .probability_dvalue = PROBABILITY_FP32,
     .dscore = DSCORE_FP32},
    {.name = "exact",
     COMMON,
     ALL_OPERANDS(OPERAND_BF16),
     .probability = PROBABILITY_BF16,
     .probability_dvalue = PROBABILITY_BF16,
     .dscore = DSCORE_BF16},
    {.name = "mxfp8", COMMON, ALL_OPERANDS(OPERAND_E4M3), E4M3_PROBABILITY, .hadamard_128 = true},
    {.name = "nvfp4", COMMON, MIXED},
    {.name = "fp4", COMMON, ALL_4BIT, .delta = DELTA_DIRECT},
    {.name = "mxfp8-causal",
     COMMON,
     ALL_OPERANDS(OPERAND_E4M3),
     E4M3_PROBABILITY,
     .hadamard_128 = true,
     .exponents = EXPONENT_TOKEN,
     .dscore_scale = DSCORE_ROW},
    {.name = "nvfp4-causal", COMMON, MIXED, .exponents = EXPONENT_TOKEN, .dscore_scale = DSCORE_ROW},
    {.name = "fp4-leaky", COMMON, ALL_4BIT, .delta = DELTA_DIRECT, .value_groups = VALUE_GROUPED},
    {.name = "fp8-tensor",
     COMMON,
     ALL_OPERANDS(OPERAND_E4M3),
     E4M3_PROBABILITY,
     .exponents = EXPONENT_TENSOR,
     .dscore_scale = DSCORE_TENSOR},
    {.name = "mxfp8-floor",
     COMMON,
     ALL_OPERANDS(OPERAND_E4M3),
     E4M3_PROBABILITY,
     .hadamard_128 = true,
     .rule = SCALE_FLOOR},
};

enum switch_kind { SWITCH_NAME, SWITCH_BOOL, SWITCH_INTEGER, SWITCH_REAL };

struct switch_entry {
    const char *key;
    enum switch_kind kind;
    size_t offset;
    const char *names[6]; /* SWITCH_NAME: the enum's values in order */
    double low, high;     /* numbers */
    const char *help;
};

static const struct switch_entry switches[] = {
    {"score",
     SWITCH_NAME,
     offsetof(struct recipe, score),
     {"fp32", "bf16", "e4m3", "nvfp4"},
     0,
     0,
     "Q and K in S = Q K^T"},
    {"value", SWITCH_NAME, offsetof(struct recipe, value), {"fp32", "bf16", "e4m3", "nvfp4"}, 0, 0, "V in P V and dP"},
    {"output-gradient",
     SWITCH_NAME,
     offsetof(struct recipe, output_gradient),
     {"fp32", "bf16", "e4m3", "nvfp4"},
     0,
     0,
     "dO in dP and dV"},
    {"gradient",
     SWITCH_NAME,
     offsetof(struct recipe, gradient),
     {"fp32", "bf16", "e4m3", "nvfp4"},
     0,
     0,
     "Q in dK, K in dQ"},
    {"probability",
     SWITCH_NAME,
     offsetof(struct recipe, probability),
     {"fp32", "bf16", "e4m3", "e4m3-group", "e2m1"},
     0,
     0,
     "P in P V: e4m3 is 2^c P, e4m3-group one exponent per row and 32 keys, e2m1 NVFP4 along keys"},
    {"probability-dvalue",
     SWITCH_NAME,
     offsetof(struct recipe, probability_dvalue),
     {"fp32", "bf16", "e4m3", "e4m3-group", "e2m1"},
     0,
     0,
     "P in dV: e4m3 is 2^8 P, e2m1 NVFP4 along queries"},
    {"dscore", SWITCH_NAME, offsetof(struct recipe, dscore), {"fp32", "bf16", "e4m3", "e2m1"}, 0, 0, "dS in dQ and dK"},
    {"exponents",
     SWITCH_NAME,
     offsetof(struct recipe, exponents),
     {"block", "token", "tensor"},
     0,
     0,
     "what shares an E4M3 operand's scale"},
    {"rule",
     SWITCH_NAME,
     offsetof(struct recipe, rule),
     {"up", "floor"},
     0,
     0,
     "how an E4M3 exponent is rounded; floor saturates"},
    {"dscore-scale",
     SWITCH_NAME,
     offsetof(struct recipe, dscore_scale),
     {"block", "row", "tile", "tensor", "fixed"},
     0,
     0,
     "what shares an E4M3 dS's exponent: 32 x 32, a row's 32 keys, 128 x 128, the call, a constant"},
    {"dscore-exponent",
     SWITCH_INTEGER,
     offsetof(struct recipe, dscore_exponent),
     {NULL},
     -126,
     126,
     "the constant of dscore-scale=fixed"},
    {"dscore-stochastic",
     SWITCH_BOOL,
     offsetof(struct recipe, dscore_stochastic),
     {NULL},
     0,
     1,
     "round an E2M1 dS stochastically for dK"},
    {"value-groups",
     SWITCH_NAME,
     offsetof(struct recipe, value_groups),
     {"keyed-diagonal", "grouped", "keyed"},
     0,
     0,
     "4-bit V and K along keys: one power of two per key on diagonal tiles, nowhere (leaks), everywhere"},
    {"dquery",
     SWITCH_NAME,
     offsetof(struct recipe, dquery),
     {"fp32", "fp16-sequence", "fp16-causal"},
     0,
     0,
     "accumulator of dQ"},
    {"delta",
     SWITCH_NAME,
     offsetof(struct recipe, delta),
     {"quantized", "direct", "original"},
     0,
     0,
     "D from dP's dO and O, from sum P dP, or (mismatch) from the unquantized dO"},
    {"hadamard-128",
     SWITCH_BOOL,
     offsetof(struct recipe, hadamard_128),
     {NULL},
     0,
     1,
     "rotate Q and K where head_dim is 128"},
    {"hadamard",
     SWITCH_BOOL,
     offsetof(struct recipe, hadamard),
     {NULL},
     0,
     1,
     "rotate Q and K at any power-of-two head_dim"},
    {"c", SWITCH_INTEGER, offsetof(struct recipe, probability_shift), {NULL}, 0, 16, "E4M3 P is multiplied by 2^c"},
    {"tau",
     SWITCH_REAL,
     offsetof(struct recipe, rescale_threshold),
     {NULL},
     0,
     16,
     "the running maximum is kept until it is exceeded by tau"},
    {"exponential",
     SWITCH_NAME,
     offsetof(struct recipe, exponential),
     {"exact", "polynomial", "schraudolph", "mitchell"},
     0,
     0,
     "2^x in the forward; the last two are for inference"},
    {"exponential-backward",
     SWITCH_NAME,
     offsetof(struct recipe, exponential_backward),
     {"exact", "polynomial", "schraudolph", "mitchell"},
     0,
     0,
     "2^x in the backward"},
    {"diagonal-forward",
     SWITCH_INTEGER,
     offsetof(struct recipe, diagonal_forward),
     {NULL},
     128,
     256,
     "queries that share a diagonal decision, forward: 128 or 256"},
    {"diagonal-backward",
     SWITCH_INTEGER,
     offsetof(struct recipe, diagonal_backward),
     {NULL},
     128,
     256,
     "the same, backward"},
    {"mismatch",
     SWITCH_BOOL,
     offsetof(struct recipe, mismatch),
     {NULL},
     0,
     1,
     "allow a backward that does not match its forward"},
    {"forced",
     SWITCH_BOOL,
     offsetof(struct recipe, forced),
     {NULL},
     0,
     1,
     "allow c + tau beyond log2 448, where P saturates"},
};

#define SWITCH_COUNT (sizeof switches / sizeof *switches)

size_t recipe_count(void)
{
    return sizeof presets / sizeof *presets;
}

const struct recipe *recipe_at(size_t index)
{
    return index < recipe_count() ? &presets[index] : NULL;
}

const struct recipe *recipe_find(const char *name)
{
    for (size_t i = 0; i < recipe_count(); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

/* ---- setting and printing one switch ---- */

static bool set_name(const struct switch_entry *entry, void *field, const char *text, char *message, size_t bytes)
{
    char list[128] = "";
    for (int i = 0; i < 6 && entry->names[i]; i++) {
        if (strcmp(entry->names[i], text) == 0) {
            memcpy(field, &i, sizeof i); /* an enum of this project is an unsigned int */
            return true;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", entry->names[i]);
    }
    snprintf(message, bytes, "recipe switch %s: expected one of %s, found '%s'", entry->key, list, text);
    return false;
}

static bool set_number(const struct switch_entry *entry, void *field, const char *text, char *message, size_t bytes)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    const bool whole = entry->kind == SWITCH_REAL || number == floor(number);
    if (end == text || *end || errno || !(number >= entry->low && number <= entry->high) || !whole) {
        snprintf(message, bytes, "recipe switch %s: expected %s from %g to %g, found '%s'", entry->key,
                 entry->kind == SWITCH_REAL ? "a number" : "an integer", entry->low, entry->high, text);
        return false;
    }
    if (entry->kind == SWITCH_BOOL) {
        *(bool *)field = number != 0;
    } else if (entry->kind == SWITCH_INTEGER) {
        *(int *)field = (int)number;
    } else {
        *(float *)field = (float)number;
    }
    return true;
}

bool recipe_set(struct recipe *recipe, const char *assignment, char *message, size_t message_bytes)
{
    const char *equals = strchr(assignment, '=');
    const size_t length = equals ? (size_t)(equals - assignment) : strlen(assignment);
    for (size_t i = 0; equals && i < SWITCH_COUNT; i++) {
        const struct switch_entry *entry = &switches[i];
        if (strlen(entry->key) != length || strncmp(entry->key, assignment, length) != 0) {
            continue;
        }
        void *field = (char *)recipe + entry->offset;
        const bool done = entry->kind == SWITCH_NAME ? set_name(entry, field, equals + 1, message, message_bytes)
                                                     : set_number(entry, field, equals + 1, message, message_bytes);
        const size_t used = strlen(recipe->name);
        if (done && used > 0 && recipe->name[used - 1] != '+' && used + 1 < sizeof recipe->name) {
            memcpy(recipe->name + used, "+", 2);
        }
        return done;
    }
    snprintf(message, message_bytes,
             equals ? "there is no recipe switch '%.*s'; `flamia recipes exact` lists them"
                    : "recipe switch '%.*s': expected KEY=VALUE",
             (int)length, assignment);
    return false;
}

bool recipe_switch(const struct recipe *recipe, size_t index, const char **key, char *value, size_t value_bytes,
                   const char **help)
{
    if (index >= SWITCH_COUNT) {
        return false;
    }
    const struct switch_entry *entry = &switches[index];
    const void *field = (const char *)recipe + entry->offset;
    int number = 0;
    *key = entry->key;
    *help = entry->help;
    if (entry->kind == SWITCH_REAL) {
        snprintf(value, value_bytes, "%.9g", (double)*(const float *)field);
    } else if (entry->kind == SWITCH_BOOL) {
        snprintf(value, value_bytes, "%d", *(const bool *)field ? 1 : 0);
    } else {
        memcpy(&number, field, sizeof number);
        if (entry->kind == SWITCH_NAME) {
            snprintf(value, value_bytes, "%s", entry->names[number]);
        } else {
            snprintf(value, value_bytes, "%d", number);
        }
    }
    return true;
}

/* ---- which switches go together ---- */

bool recipe_rotates(const struct recipe *recipe, size_t head_dim)
{
    return recipe->hadamard || (recipe->hadamard_128 && head_dim == 128);
}

static const char *operands_disagree(const struct recipe *r)
{
    const int unrounded = (r->score == OPERAND_FP32) + (r->value == OPERAND_FP32) +
                          (r->output_gradient == OPERAND_FP32) + (r->gradient == OPERAND_FP32);
    if (unrounded != 0 && unrounded != 4) {
        return "score, value, output-gradient and gradient are fp32 all together or not at all";
    }
    const bool e4m3 = r->score == OPERAND_E4M3 || r->value == OPERAND_E4M3 || r->output_gradient == OPERAND_E4M3 ||
                      r->gradient == OPERAND_E4M3;
    if (r->exponents != EXPONENT_BLOCK && !e4m3) {
        return "exponents=token and exponents=tensor need an e4m3 operand";
    }
    if (r->rule == SCALE_FLOOR && (r->exponents == EXPONENT_TENSOR || (!e4m3 && r->dscore != DSCORE_E4M3))) {
        return "rule=floor needs e4m3 operands with block or token exponents, or an e4m3 dscore";
    }
    if (r->value_groups != VALUE_KEYED_DIAGONAL && r->value != OPERAND_NVFP4 && r->gradient != OPERAND_NVFP4) {
        return "value-groups needs value=nvfp4 or gradient=nvfp4";
    }
    if (r->hadamard && r->score == OPERAND_FP32) {
        return "hadamard rounds its result to BF16, which score=fp32 excludes";
    }
    return NULL;
}

static const char *dscore_disagrees(const struct recipe *r)
{
    if (r->dscore_scale != DSCORE_BLOCK && r->dscore != DSCORE_E4M3) {
        return "dscore-scale needs dscore=e4m3";
    }
    if (r->dscore_exponent != 0 && r->dscore_scale != DSCORE_FIXED) {
        return "dscore-exponent needs dscore-scale=fixed";
    }
    if (r->dscore_stochastic && r->dscore != DSCORE_E2M1) {
        return "dscore-stochastic needs dscore=e2m1";
    }
    if (r->gradient == OPERAND_NVFP4 && r->dscore == DSCORE_E4M3) {
        return "gradient=nvfp4 needs a dscore that can take the keys' exponents: e2m1, bf16 or fp32, not e4m3";
    }
    return NULL;
}

static const char *probability_disagrees(const struct recipe *r)
{
    if (r->probability == PROBABILITY_E4M3_FIXED && !r->forced &&
        ldexpf(1, r->probability_shift) * exp2f(r->rescale_threshold) > 448) {
        return "c + tau must not exceed log2 448: 2^(c + tau) would saturate E4M3 (forced=1 shows it)";
    }
    if (r->probability_shift != 0 && r->probability != PROBABILITY_E4M3_FIXED) {
        return "c needs probability=e4m3";
    }
    if (r->probability_dvalue == PROBABILITY_E4M3_GROUP) {
        return "probability-dvalue=e4m3-group: groups of 32 keys are not along dV's contraction; use e4m3";
    }
    return NULL;
}

/* A forward and a backward that do not belong together (paper, section 4.5). */
static const char *passes_disagree(const struct recipe *r)
{
    const bool narrow = r->probability == PROBABILITY_E2M1, narrow_dvalue = r->probability_dvalue == PROBABILITY_E2M1;
    if (narrow != narrow_dvalue) {
        return "probability is 4-bit in one pass and wider in the other (mismatch=1 allows it)";
    }
    if (r->diagonal_forward != r->diagonal_backward) {
        return "diagonal-forward and diagonal-backward differ (mismatch=1 allows it)";
    }
    if (r->exponential != r->exponential_backward) {
        return "exponential and exponential-backward differ (mismatch=1 allows it)";
    }
    if (r->delta == DELTA_ORIGINAL) {
        return "delta=original takes D from another dO than dP's (mismatch=1 allows it)";
    }
    return NULL;
}

static bool bit_trick(enum exponential_kind kind)
{
    return kind == EXPONENTIAL_SCHRAUDOLPH || kind == EXPONENTIAL_MITCHELL;
}

static const char *first_conflict(const struct recipe *r, size_t head_dim, bool training)
{
    const char *conflict = operands_disagree(r);
    conflict = conflict ? conflict : dscore_disagrees(r);
    conflict = conflict ? conflict : probability_disagrees(r);
    if (conflict) {
        return conflict;
    }
    if ((r->diagonal_forward != 128 && r->diagonal_forward != 256) ||
        (r->diagonal_backward != 128 && r->diagonal_backward != 256)) {
        return "diagonal-forward and diagonal-backward are 128 or 256";
    }
    if (bit_trick(r->exponential_backward) || (training && bit_trick(r->exponential))) {
        return "exponential=schraudolph and mitchell are for inference only: training needs exact or polynomial";
    }
    if (r->exponential == EXPONENTIAL_MITCHELL && (r->probability != PROBABILITY_E2M1 || r->rescale_threshold > 2)) {
        return "exponential=mitchell gives E2M1 probabilities: it needs probability=e2m1 and tau at most 2";
    }
    if (r->hadamard && (head_dim & (head_dim - 1)) != 0) {
        return "hadamard needs a head_dim that is a power of two";
    }
    return training && !r->mismatch ? passes_disagree(r) : NULL;
}

bool recipe_check(const struct recipe *recipe, size_t head_dim, bool training, char *message, size_t message_bytes)
{
    const char *conflict = first_conflict(recipe, head_dim, training);
    if (conflict) {
        snprintf(message, message_bytes, "recipe %s: %s", recipe->name, conflict);
    }
    return !conflict;
}

/* ---- what the switches promise ---- */

static bool leaks(const struct recipe *r)
{
    const bool e4m3 = r->score == OPERAND_E4M3 || r->value == OPERAND_E4M3 || r->output_gradient == OPERAND_E4M3 ||
                      r->gradient == OPERAND_E4M3;
    const bool along_keys = r->value == OPERAND_NVFP4 || r->gradient == OPERAND_NVFP4;
    return (e4m3 && (r->exponents == EXPONENT_TENSOR || r->rule == SCALE_FLOOR)) ||
           (along_keys && r->value_groups == VALUE_GROUPED) || r->dquery == DQUERY_FP16_SEQUENCE ||
           (r->dscore == DSCORE_E4M3 && (r->dscore_scale == DSCORE_TENSOR || r->dscore_scale == DSCORE_TILE));
}

enum causality recipe_causality(const struct recipe *recipe)
{
    const struct recipe *r = recipe;
    if (leaks(r)) {
        return CAUSALITY_LEAKY;
    }
    const bool e4m3 = r->score == OPERAND_E4M3 || r->value == OPERAND_E4M3 || r->output_gradient == OPERAND_E4M3 ||
                      r->gradient == OPERAND_E4M3;
    const bool blocks =
        (e4m3 && r->exponents == EXPONENT_BLOCK) || (r->dscore == DSCORE_E4M3 && r->dscore_scale == DSCORE_BLOCK);
    const bool four_bit = r->value == OPERAND_NVFP4 ||
                          r->gradient == OPERAND_NVFP4; /* groups along keys, inside tiles a row sees whole */
    return blocks || four_bit ? CAUSALITY_IN_BLOCK : CAUSALITY_EXACT;
}

const char *causality_name(enum causality causality)
{
    static const char *const names[] = {"exact", "in block", "leaky"};
    return names[causality];
}
