/* oracle_backward.c: the backward's half of attention_oracle.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/philox.h"
#include "tests/attention_oracle.h"
#include "tests/reference_formats.h"

/* One head of one document: dense [tokens][tokens] copies of what was traced, 0 where nothing is visible, and what the
 * definition makes of it. */
struct matrices {
    size_t head, begin, tokens;
    bool causal;
    float *probability, *dprobability, *dscore; /* traced */
    float *dscore_query, *dscore_key;           /* from dscore, by definition */
    float *probability_dvalue;                  /* from probability, by definition */
};

static bool visible(const struct matrices *m, size_t query, size_t key)
{
    return !m->causal || key <= query;
}

static float *copy_visible(const struct oracle *oracle, const struct matrices *m, const float *traced)
{
    const size_t total = oracle->c->shape.total_tokens, n = m->tokens;
    float *copy = test_alloc(n * n * sizeof *copy);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            copy[i * n + j] = visible(m, i, j) ? traced[(m->head * total + m->begin + i) * total + m->begin + j] : 0.0f;
        }
    }
    return copy;
}

static float *copy_of(const float *x, size_t n)
{
    return memcpy(test_alloc(n * n * sizeof *x), x, n * n * sizeof *x);
}

/* ---- P, dP, D, dS before quantization ---- */

static void check_products(const struct oracle *oracle, const struct matrices *m)
{
    const struct attention_case *c = oracle->c;
    const size_t n = m->tokens, d = c->shape.head_dim, total = c->shape.total_tokens;
    const double fit = oracle->recipe->exponential_backward == EXPONENTIAL_EXACT ? 0x1p-21 : 2e-4;
    for (size_t i = 0; i < n; i++) {
        const double lse = (double)c->lse[m->head * total + m->begin + i];
        for (size_t j = 0; j < n && visible(m, i, j); j++) {
            double x, magnitude;
            const double error = 2 * oracle_score_error(oracle, m->begin + i, m->head, m->begin + j, &x) +
                                 0x1p-22 * (fabs(x) + fabs(lse)) + fit;
            const double p = exp2(x - lse), found = (double)m->probability[i * n + j];
            expect(fabs(found - p) <= error * p + 0x1p-125, "%s: P of query %zu, key %zu is %.9g, expected %.9g",
                   oracle->recipe->name, i, j, found, p);
            const double dp =
                oracle_dot(oracle_row(oracle, ROLE_DOUTPUT_DPROBABILITY, m->begin + i, m->head),
                           oracle_row(oracle, ROLE_VALUE_DPROBABILITY, m->begin + j, m->head), d, &magnitude);
            expect(fabs((double)m->dprobability[i * n + j] - dp) <= (double)(d + 1) * 0x1p-24 * magnitude + 1e-37,
                   "%s: dP of query %zu, key %zu is %.9g, expected %.9g", oracle->recipe->name, i, j,
                   (double)m->dprobability[i * n + j], dp);
        }
    }
}

static double delta_of(const struct oracle *oracle, const struct matrices *m, size_t query, double *magnitude)
{
    const struct attention_case *c = oracle->c;
    const size_t d = c->shape.head_dim, at = ((m->begin + query) * c->shape.heads + m->head) * d;
    if (oracle->recipe->delta == DELTA_DIRECT) {
        const size_t count = m->causal ? query + 1 : m->tokens;
        return oracle_dot(m->probability + query * m->tokens, m->dprobability + query * m->tokens, count, magnitude);
    }
    float original[HEAD_DIM_MAX];
    for (size_t i = 0; i < d; i++) {
        original[i] = reference_bf16(c->output_gradient[at + i]);
    }
    const float *gradient = oracle->recipe->delta == DELTA_ORIGINAL
                                ? original
                                : oracle_row(oracle, ROLE_DOUTPUT_DPROBABILITY, m->begin + query, m->head);
    return oracle_dot(gradient, c->output + at, d, magnitude);
}

static void check_dscore(const struct oracle *oracle, const struct matrices *m)
{
    const struct attention_case *c = oracle->c;
    for (size_t i = 0; i < m->tokens; i++) {
        double magnitude;
        const float found = c->trace.delta[m->head * c->shape.total_tokens + m->begin + i];
        const double delta = delta_of(oracle, m, i, &magnitude);
        const double terms = (double)(m->tokens + c->shape.head_dim);
        expect(fabs((double)found - delta) <= terms * 0x1p-24 * magnitude + 1e-37,
               "%s: D of query %zu is %.9g, expected %.9g", oracle->recipe->name, i, (double)found, delta);
        for (size_t j = 0; j < m->tokens && visible(m, i, j); j++) {
            const size_t at = i * m->tokens + j;
            const float difference = m->dprobability[at] - found;
            expect(m->dscore[at] == m->probability[at] * difference, "%s: dS of query %zu, key %zu is %a, expected %a",
                   oracle->recipe->name, i, j, (double)m->dscore[at], (double)(m->probability[at] * difference));
        }
    }
}

/* ---- quantizing dS and P again ---- */

static void quantize_blocks(const struct recipe *recipe, const struct matrices *m, float *x, size_t height,
                            size_t width)
{
    const size_t n = m->tokens;
    for (size_t block = 0; block < (n + height - 1) / height * ((n + width - 1) / width); block++) {
        const size_t row = block / ((n + width - 1) / width) * height,
                     column = block % ((n + width - 1) / width) * width;
        double amax = 0;
        for (size_t i = row; i < row + height && i < n; i++) {
            for (size_t j = column; j < column + width && j < n; j++) {
                amax = fmax(amax, fabs((double)x[i * n + j]));
            }
        }
        const int e = recipe->dscore_scale == DSCORE_FIXED ? recipe->dscore_exponent
                      : recipe->rule == SCALE_UP           ? reference_exponent_up(amax, 448)
                                                           : reference_exponent_floor(amax, 8);
        for (size_t i = row; i < row + height && i < n; i++) {
            for (size_t j = column; j < column + width && j < n; j++) {
                x[i * n + j] = (float)ldexp(reference_e4m3(ldexp(x[i * n + j], -e)), e);
            }
        }
    }
}

/* fp8-tensor: one FP32 scale for every head and document of the call. */
static void quantize_tensor(const struct oracle *oracle, const struct matrices *m, float *x)
{
    const struct attention_case *c = oracle->c;
    const size_t total = c->shape.total_tokens;
    float amax = 0;
    for (size_t document = 0; document < c->documents.count; document++) {
        for (size_t i = (size_t)c->offsets[document]; i < (size_t)c->offsets[document + 1]; i++) {
            const size_t end = c->shape.causal ? i + 1 : (size_t)c->offsets[document + 1];
            for (size_t j = (size_t)c->offsets[document]; j < end; j++) {
                for (size_t head = 0; head < c->shape.heads; head++) {
                    amax = fmaxf(amax, fabsf(c->trace.dscore[(head * total + i) * total + j]));
                }
            }
        }
    }
    const float scale = amax / 448.0f;
    for (size_t i = 0; i < m->tokens * m->tokens; i++) {
        x[i] = scale == 0 ? 0.0f : (float)reference_e4m3(x[i] / scale) * scale;
    }
}

/* NVFP4 along keys, within tiles of 128, of dS times the power of two of a per-key K. */
static void nvfp4_rows(const struct oracle *oracle, const struct matrices *m, float *x)
{
    const size_t n = m->tokens;
    for (size_t i = 0; i < n; i++) {
        for (size_t tile = 0; tile < n; tile += TILE) {
            const size_t count = n - tile < TILE ? n - tile : TILE;
            const enum operand_role role = oracle_keyed(oracle, i, tile, oracle->recipe->diagonal_backward)
                                               ? ROLE_KEY_DQUERY_DIAGONAL
                                               : ROLE_KEY_DQUERY;
            const struct reference_operand *key = &oracle->operands[role];
            const size_t own = m->head / (oracle->c->shape.heads / key->heads);
            const uint8_t *fold = key->exponents + own * key->tokens + m->begin + tile;
            const bool folds = key->representation == REPRESENTATION_E2M1_KEY;
            for (size_t j = 0; folds && j < count; j++) {
                x[i * n + tile + j] = ldexpf(x[i * n + tile + j], fold[j] - 127);
            }
            reference_nvfp4_vector(x + i * n + tile, count, 1);
            for (size_t j = 0; folds && j < count; j++) {
                x[i * n + tile + j] = ldexpf(x[i * n + tile + j], 127 - fold[j]);
            }
        }
    }
}

/* The uniform number that rounds dS of this query and key. */
static double uniform_of(const struct oracle *oracle, const struct matrices *m, size_t query, size_t key)
{
    const struct attention_random *random = &oracle->c->random;
    const uint32_t i = (uint32_t)(m->begin + query) + random->query_offset;
    const uint32_t j = (uint32_t)(m->begin + key) + random->query_offset;
    const struct philox_block block =
        philox4x32_10((uint32_t)random->seed, (uint32_t)random->step, i, j / 4, (uint32_t)m->head, random->layer);
    return ldexp(block.word[j % 4] >> 8, -24);
}

/* Stochastic rounding of one 16-query group's element: between its two E2M1 neighbours. */
static double stochastic(double x, double uniform)
{
    const double magnitude = fmin(fabs(x), 6);
    unsigned low = 0;
    while (low < 7 && reference_e2m1_value(low + 1) <= magnitude) {
        low++;
    }
    if (low == 7) {
        return copysign(6, x);
    }
    const double below = reference_e2m1_value(low), above = reference_e2m1_value(low + 1);
    const float fraction = (float)(magnitude - below) / (float)(above - below); /* exact: few bits, powers of two */
    return copysign(uniform < (double)fraction ? above : below, x);
}

/* One key's column of one tile of queries: t over the tile, s per 16 queries. */
static void stochastic_column(const struct oracle *oracle, const struct matrices *m, float *x, size_t tile, size_t key)
{
    const size_t n = m->tokens, count = n - tile < TILE ? n - tile : TILE;
    double vector = 0, group[TILE / 16] = {0};
    for (size_t i = 0; i < count; i++) {
        const double magnitude = fabs((double)x[(tile + i) * n + key]);
        vector = fmax(vector, magnitude);
        group[i / 16] = fmax(group[i / 16], magnitude);
    }
    const int t = vector == 0 ? 0 : reference_exponent_up(vector, 2688);
    for (size_t i = 0; i < count; i++) {
        float *at = &x[(tile + i) * n + key];
        const double s = reference_e4m3((float)ldexp(group[i / 16], -t) / 6.0f);
        const float scaled = s == 0 ? 0.0f : (float)ldexp(*at, -t) / (float)s;
        *at = s == 0 ? 0.0f : (float)ldexp(stochastic(scaled, uniform_of(oracle, m, tile + i, key)) * s, t);
    }
}

static void nvfp4_columns(const struct oracle *oracle, const struct matrices *m, float *x, bool random)
{
    const size_t n = m->tokens;
    for (size_t tile = 0; tile < n; tile += TILE) {
        for (size_t j = 0; j < n; j++) {
            if (random) {
                stochastic_column(oracle, m, x, tile, j);
            } else {
                reference_nvfp4_vector(x + tile * n + j, n - tile < TILE ? n - tile : TILE, n);
            }
        }
    }
}

static void quantize_dscore(const struct oracle *oracle, struct matrices *m)
{
    const struct recipe *recipe = oracle->recipe;
    const size_t n = m->tokens;
    m->dscore_query = copy_of(m->dscore, n);
    if (recipe->dscore == DSCORE_BF16) {
        for (size_t i = 0; i < n * n; i++) {
            m->dscore_query[i] = reference_bf16(m->dscore[i]);
        }
    } else if (recipe->dscore == DSCORE_E4M3 && recipe->dscore_scale == DSCORE_TENSOR) {
        quantize_tensor(oracle, m, m->dscore_query);
    } else if (recipe->dscore == DSCORE_E4M3) {
        const size_t width = recipe->dscore_scale == DSCORE_BLOCK || recipe->dscore_scale == DSCORE_ROW ? 32 : TILE;
        quantize_blocks(recipe, m, m->dscore_query, recipe->dscore_scale == DSCORE_ROW ? 1 : width, width);
    } else if (recipe->dscore == DSCORE_E2M1) {
        nvfp4_rows(oracle, m, m->dscore_query);
    }
    m->dscore_key = copy_of(recipe->dscore == DSCORE_E2M1 ? m->dscore : m->dscore_query, n);
    if (recipe->dscore == DSCORE_E2M1) {
        nvfp4_columns(oracle, m, m->dscore_key, recipe->dscore_stochastic);
    }
}

static void quantize_probability(const struct oracle *oracle, struct matrices *m)
{
    m->probability_dvalue = copy_of(m->probability, m->tokens);
    if (oracle->recipe->probability_dvalue == PROBABILITY_E2M1) {
        nvfp4_columns(oracle, m, m->probability_dvalue, false);
        return;
    }
    for (size_t i = 0; i < m->tokens * m->tokens; i++) {
        const float p = m->probability[i];
        m->probability_dvalue[i] = oracle->recipe->probability_dvalue == PROBABILITY_FP32 ? p
                                   : oracle->recipe->probability_dvalue == PROBABILITY_BF16
                                       ? reference_bf16(p)
                                       : (float)ldexp(reference_e4m3(ldexp(p, 8)), -8);
    }
}

static void check_codes(const struct oracle *oracle, const struct matrices *m, const float *expected,
                        const float *traced, const char *what)
{
    const size_t total = oracle->c->shape.total_tokens;
    for (size_t i = 0; i < m->tokens; i++) {
        for (size_t j = 0; j < m->tokens && visible(m, i, j); j++) {
            const float found = traced[(m->head * total + m->begin + i) * total + m->begin + j];
            expect(found == expected[i * m->tokens + j], "%s: %s of query %zu, key %zu is %a, expected %a from dS = %a",
                   oracle->recipe->name, what, i, j, (double)found, (double)expected[i * m->tokens + j],
                   (double)m->dscore[i * m->tokens + j]);
        }
    }
}

/* ---- gradients ---- */

/* A row of a gradient: FP64 sums, the sums of magnitudes, and how many terms. */
struct sums {
    double value[HEAD_DIM_MAX], magnitude[HEAD_DIM_MAX], extra;
    size_t terms;
};

static void add_term(struct sums *sums, double weight, const float *x, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        sums->value[i] += weight * (double)x[i];
        sums->magnitude[i] += fabs(weight * (double)x[i]);
    }
    sums->terms++;
}

/* Rotated back, scaled, and compared: half a unit of BF16, the error of the FP32 sum, and `extra`. */
static void check_gradient(const struct oracle *oracle, const struct sums *sums, bool rotated, double scale,
                           const float *found, const char *what, size_t token)
{
    const size_t d = oracle->c->shape.head_dim;
    const double half = oracle->recipe->score == OPERAND_FP32 ? 0 : 0x1p-8;
    double widest = 0;
    for (size_t i = 0; i < d; i++) {
        widest = fmax(widest, sums->magnitude[i]);
    }
    for (size_t i = 0; i < d; i++) {
        double value = rotated ? 0 : sums->value[i];
        for (size_t k = 0; rotated && k < d; k++) {
            value += (__builtin_parityll(i & k) ? -1 : 1) * sums->value[k] / sqrt((double)d);
        }
        const double spread = rotated ? widest * sqrt((double)d) : sums->magnitude[i];
        const double bound =
            half * fabs(value * scale) +
            scale * ((double)(sums->terms + 16) * 0x1p-23 * spread + sums->extra * (rotated ? sqrt((double)d) : 1)) +
            1e-37;
        expect(fabs((double)found[i] - value * scale) <= bound,
               "%s: %s of token %zu, channel %zu is %.9g, expected %.9g +- %.2g", oracle->recipe->name, what, token, i,
               (double)found[i], value * scale, bound);
    }
}

/* 16-bit accumulation: each key tile's part and each sum are rounded to FP16 at the row's scale, 2^s with
 * 2 ||dO|| max ||V|| max |K| < 2^(14 - s): twice 2^-11 of the largest sum, or twice half the smallest FP16 number. */
static double fp16_error(const struct oracle *oracle, const struct matrices *m, size_t query, const struct sums *sums)
{
    const size_t d = oracle->c->shape.head_dim;
    const bool causal = oracle->recipe->dquery == DQUERY_FP16_CAUSAL;
    double value = 0, key = 0, gradient = 0, magnitude, widest = 0;
    for (size_t j = 0; j < m->tokens; j++) {
        const float *g = oracle_row(oracle, ROLE_DOUTPUT_DPROBABILITY, m->begin + j, m->head);
        const float *v = oracle_row(oracle, ROLE_VALUE_DPROBABILITY, m->begin + j, m->head);
        const float *k = oracle_row(oracle, ROLE_KEY_DQUERY_DIAGONAL, m->begin + j, m->head);
        if (causal ? j == query : true) {
            gradient = fmax(gradient, sqrt(oracle_dot(g, g, d, &magnitude)));
        }
        if (!causal || visible(m, query, j)) {
            value = fmax(value, sqrt(oracle_dot(v, v, d, &magnitude)));
            for (size_t i = 0; i < d; i++) {
                key = fmax(key, fabs((double)k[i]));
            }
        }
    }
    for (size_t i = 0; i < d; i++) {
        widest = fmax(widest, sums->magnitude[i]);
    }
    const double tiles = (double)((m->tokens + TILE - 1) / TILE);
    const double unit = ldexp(2 * gradient * value * key, -14 + 1); /* at most 2^-s, and a factor 2 for E */
    return tiles * (2 * 0x1p-11 * widest + 2 * 0x1p-25 * unit);
}

static void check_dquery(const struct oracle *oracle, const struct matrices *m)
{
    const struct attention_case *c = oracle->c;
    const size_t n = m->tokens, d = c->shape.head_dim;
    for (size_t i = 0; i < n; i++) {
        struct sums sums = {.terms = 0};
        for (size_t j = 0; j < n && visible(m, i, j); j++) {
            const enum operand_role role = oracle_keyed(oracle, i, j, oracle->recipe->diagonal_backward)
                                               ? ROLE_KEY_DQUERY_DIAGONAL
                                               : ROLE_KEY_DQUERY;
            add_term(&sums, (double)m->dscore_query[i * n + j], oracle_row(oracle, role, m->begin + j, m->head), d);
        }
        sums.extra = oracle->recipe->dquery == DQUERY_FP32 ? 0 : fp16_error(oracle, m, i, &sums);
        check_gradient(oracle, &sums, recipe_rotates(oracle->recipe, d), (double)c->shape.softmax_scale,
                       c->dquery + ((m->begin + i) * c->shape.heads + m->head) * d, "dQ", m->begin + i);
    }
}

/* Adds one head's share of one key's dK and dV. */
static void add_key(const struct oracle *oracle, const struct matrices *m, size_t key, struct sums *dkey,
                    struct sums *dvalue)
{
    const size_t n = m->tokens, d = oracle->c->shape.head_dim;
    for (size_t i = 0; i < n; i++) {
        if (visible(m, i, key)) {
            add_term(dkey, (double)m->dscore_key[i * n + key],
                     oracle_row(oracle, ROLE_QUERY_DKEY, m->begin + i, m->head), d);
            add_term(dvalue, (double)m->probability_dvalue[i * n + key],
                     oracle_row(oracle, ROLE_DOUTPUT_DVALUE, m->begin + i, m->head), d);
        }
    }
}

static struct matrices matrices_make(const struct oracle *oracle, size_t document, size_t head)
{
    const struct attention_case *c = oracle->c;
    struct matrices m = {.head = head,
                         .begin = (size_t)c->offsets[document],
                         .tokens = (size_t)(c->offsets[document + 1] - c->offsets[document]),
                         .causal = c->shape.causal};
    m.probability = copy_visible(oracle, &m, c->trace.probability);
    m.dprobability = copy_visible(oracle, &m, c->trace.dprobability);
    m.dscore = copy_visible(oracle, &m, c->trace.dscore);
    quantize_dscore(oracle, &m);
    quantize_probability(oracle, &m);
    return m;
}

static void matrices_free(struct matrices *m)
{
    float *const each[] = {m->probability,  m->dprobability, m->dscore,
                           m->dscore_query, m->dscore_key,   m->probability_dvalue};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        free(each[i]);
    }
}

/* One document and key/value head, with the query heads of its group. */
static void check_group(const struct oracle *oracle, size_t document, size_t kv_head)
{
    const struct attention_case *c = oracle->c;
    const size_t group = c->shape.heads / c->shape.kv_heads, d = c->shape.head_dim;
    const size_t begin = (size_t)c->offsets[document], tokens = (size_t)c->offsets[document + 1] - begin;
    struct sums *dkey = calloc(tokens + 1, sizeof *dkey), *dvalue = calloc(tokens + 1, sizeof *dvalue);
    ck_assert(dkey && dvalue);
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        struct matrices m = matrices_make(oracle, document, head);
        check_products(oracle, &m);
        check_dscore(oracle, &m);
        check_codes(oracle, &m, m.dscore_query, c->trace.dscore_query, "dS of dQ");
        check_codes(oracle, &m, m.dscore_key, c->trace.dscore_key, "dS of dK");
        check_dquery(oracle, &m);
        for (size_t j = 0; j < tokens; j++) {
            add_key(oracle, &m, j, &dkey[j], &dvalue[j]);
        }
        matrices_free(&m);
    }
    for (size_t j = 0; j < tokens; j++) {
        const size_t at = ((begin + j) * c->shape.kv_heads + kv_head) * d;
        check_gradient(oracle, &dkey[j], recipe_rotates(oracle->recipe, d), (double)c->shape.softmax_scale,
                       c->dkey + at, "dK", begin + j);
        check_gradient(oracle, &dvalue[j], false, 1, c->dvalue + at, "dV", begin + j);
    }
    free(dkey);
    free(dvalue);
}

void oracle_check_backward(const struct attention_case *c, const struct recipe *recipe)
{
    static const enum operand_role roles[] = {
        ROLE_QUERY_SCORE,    ROLE_KEY_SCORE,  ROLE_VALUE_DPROBABILITY, ROLE_DOUTPUT_DPROBABILITY,
        ROLE_DOUTPUT_DVALUE, ROLE_QUERY_DKEY, ROLE_KEY_DQUERY,         ROLE_KEY_DQUERY_DIAGONAL};
    struct oracle oracle = oracle_make(c, recipe, roles, sizeof roles / sizeof *roles);
    for (size_t document = 0; document < c->documents.count; document++) {
        for (size_t kv_head = 0; kv_head < c->shape.kv_heads; kv_head++) {
            check_group(&oracle, document, kv_head);
        }
    }
    oracle_free(&oracle);
}
