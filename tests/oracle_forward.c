/* oracle_forward.c: the forward's half of attention_oracle.h, and what both halves share. */
#include <math.h>
#include <stdlib.h>

#include "tests/attention_oracle.h"
#include "tests/reference_formats.h"

/* ---- shared ---- */

static const float *tensor_of(const struct attention_case *c, enum operand_role role, size_t *heads)
{
    *heads = c->shape.heads;
    switch (role) {
    case ROLE_QUERY_SCORE:
    case ROLE_QUERY_DKEY:
        return c->query;
    case ROLE_DOUTPUT_DPROBABILITY:
    case ROLE_DOUTPUT_DVALUE:
        return c->output_gradient;
    default:
        *heads = c->shape.kv_heads;
        return role == ROLE_KEY_SCORE || role == ROLE_KEY_DQUERY || role == ROLE_KEY_DQUERY_DIAGONAL ? c->key
                                                                                                     : c->value;
    }
}

struct oracle oracle_make(const struct attention_case *c, const struct recipe *recipe, const enum operand_role *roles,
                          size_t count)
{
    struct oracle oracle = {.c = c, .recipe = recipe, .factor = (double)c->shape.softmax_scale * 1.4426950408889634};
    for (size_t i = 0; i < count; i++) {
        size_t heads;
        const float *x = tensor_of(c, roles[i], &heads);
        oracle.operands[roles[i]] = reference_quantize(recipe, roles[i], &c->documents, c->shape.total_tokens, heads,
                                                       c->shape.head_dim, x, heads * c->shape.head_dim);
    }
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    for (size_t role = 0; role < ROLE_COUNT; role++) {
        reference_operand_free(&oracle->operands[role]);
    }
}

/* `head` is a query head; tensors of key heads are read at its group's. */
const float *oracle_row(const struct oracle *oracle, enum operand_role role, size_t token, size_t head)
{
    const struct reference_operand *operand = &oracle->operands[role];
    const size_t own = head / (oracle->c->shape.heads / operand->heads);
    return operand->values + (own * operand->tokens + token) * operand->head_dim;
}

double oracle_dot(const float *a, const float *b, size_t count, double *magnitude)
{
    double sum = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)b[i];
        size += fabs((double)a[i] * (double)b[i]);
    }
    *magnitude = size;
    return sum;
}

bool oracle_keyed(const struct oracle *oracle, size_t query, size_t key, int span)
{
    return oracle->c->shape.causal && query / (size_t)span == key / (size_t)span;
}

double oracle_score_error(const struct oracle *oracle, size_t query, size_t head, size_t key, double *x)
{
    const size_t d = oracle->c->shape.head_dim;
    double magnitude;
    const double sum = oracle_dot(oracle_row(oracle, ROLE_QUERY_SCORE, query, head),
                                  oracle_row(oracle, ROLE_KEY_SCORE, key, head), d, &magnitude);
    *x = sum * oracle->factor;
    return (double)(d + 4) * 0x1p-24 * magnitude * oracle->factor; /* d additions, the products, the factor */
}

bool oracle_maximum(const struct recipe *recipe, const double *x, size_t visible, double margin, double *reference)
{
    double m = -INFINITY;
    bool clear = true;
    for (size_t first = 0; first < visible; first += TILE) {
        double most = -INFINITY;
        const size_t last = first + TILE < visible ? first + TILE : visible;
        for (size_t j = first; j < last; j++) {
            most = fmax(most, x[j]);
        }
        if (m == -INFINITY || most - m > (double)recipe->rescale_threshold) {
            clear = clear && (m == -INFINITY || most - m > (double)recipe->rescale_threshold + margin);
            m = most;
        } else {
            clear = clear && most - m < (double)recipe->rescale_threshold - margin;
        }
        for (size_t j = first; j < last; j++) {
            reference[j] = m;
        }
    }
    return clear;
}

/* ---- P of P V ---- */

struct interval {
    double low, high;
};

static void widen(struct interval *interval, double value)
{
    interval->low = fmin(interval->low, value);
    interval->high = fmax(interval->high, value);
}

struct row {
    size_t token, head, begin, visible, query; /* query: from the document's start */
    double *x, *m, *error;                     /* of each visible key */
    uint8_t *fold;                             /* E8M0 byte of the key's exponent, 127 where there is none */
};

static double unrounded(const struct row *row, size_t key)
{
    return exp2(row->x[key] - row->m[key]);
}

static struct interval fixed_interval(const struct row *row, size_t key, int shift, double (*round_to)(double))
{
    const double p = ldexp(unrounded(row, key), shift), error = row->error[key];
    return (struct interval){ldexp(round_to(p * (1 - error)), -shift), ldexp(round_to(p * (1 + error)), -shift)};
}

static double round_bf16(double x)
{
    return (double)reference_bf16((float)x); /* x to FP32 first: within the interval's error */
}

/* One exponent per 32 keys: e = ceil(a - m) - 8. If the group's largest is the reference itself, a - m is 0 exactly. */
static struct interval group_interval(const struct row *row, size_t key)
{
    const size_t first = key - key % 32;
    size_t largest = first;
    for (size_t j = first; j < first + 32 && j < row->visible; j++) {
        largest = row->x[j] > row->x[largest] ? j : largest;
    }
    const double peak = row->x[largest] - row->m[key], slack = peak == 0 ? 0 : 2 * row->error[largest];
    struct interval interval = {INFINITY, -INFINITY};
    for (int side = -1; side <= 1; side += 2) {
        const int e = (int)ceil(peak + side * slack) - 8;
        for (int end = -1; end <= 1; end += 2) {
            const double p = ldexp(unrounded(row, key) * (1 + end * row->error[key]), -e);
            widen(&interval, ldexp(reference_e4m3(p), e));
        }
    }
    return interval;
}

static double folded(const struct row *row, size_t key)
{
    return ldexp(unrounded(row, key), row->fold[key] - 127);
}

/* NVFP4 along the tile's visible keys, of p times the key's power of two. */
static struct interval nvfp4_interval(const struct row *row, size_t key)
{
    const size_t tile = key - key % TILE, group = key - key % 16;
    double vector = 0, most = 0, error = 0;
    for (size_t j = tile; j < tile + TILE && j < row->visible; j++) {
        vector = fmax(vector, folded(row, j));
        most = j >= group && j < group + 16 ? fmax(most, folded(row, j)) : most;
        error = fmax(error, row->error[j]);
    }
    struct interval interval = {INFINITY, -INFINITY};
    for (int corner = 0; corner < 8; corner++) {
        const double up = 1 + error, down = 1 - error;
        const int t = reference_exponent_up(vector * (corner & 1 ? up : down), 2688);
        const double s = reference_e4m3(ldexp(most * (corner & 2 ? up : down), -t) / 6);
        const double x = ldexp(folded(row, key) * (corner & 4 ? up : down), -t);
        widen(&interval, s == 0 ? 0 : ldexp(reference_e2m1(x / s) * s, t + 127 - row->fold[key]));
    }
    return interval;
}

static struct interval probability_interval(const struct recipe *recipe, const struct row *row, size_t key)
{
    const double p = unrounded(row, key), error = row->error[key];
    switch (recipe->probability) {
    case PROBABILITY_BF16:
        return fixed_interval(row, key, 0, round_bf16);
    case PROBABILITY_E4M3_FIXED:
        return fixed_interval(row, key, recipe->probability_shift, reference_e4m3);
    case PROBABILITY_E4M3_GROUP:
        return group_interval(row, key);
    case PROBABILITY_E2M1:
        return nvfp4_interval(row, key);
    default:
        return (struct interval){p * (1 - error), p * (1 + error)};
    }
}

/* ---- one row ---- */

static double exponential_error(enum exponential_kind kind)
{
    return kind == EXPONENTIAL_EXACT ? 0x1p-21 : 2e-4; /* the polynomial's fit */
}

/* Scores, their errors as relative errors of P, the running maximum, the keys' exponents. */
static bool prepare_row(const struct oracle *oracle, struct row *row)
{
    double margin = 0;
    for (size_t j = 0; j < row->visible; j++) {
        row->error[j] = oracle_score_error(oracle, row->token, row->head, row->begin + j, &row->x[j]);
        margin = fmax(margin, row->error[j]);
    }
    const bool clear = oracle_maximum(oracle->recipe, row->x, row->visible, 2 * margin + 1e-5, row->m);
    for (size_t j = 0; j < row->visible; j++) {
        const double rounding = 0x1p-23 * (fabs(row->x[j]) + fabs(row->m[j]));
        row->error[j] = 2 * (row->error[j] + margin + rounding) + exponential_error(oracle->recipe->exponential);
        const enum operand_role role = oracle_keyed(oracle, row->query, j, oracle->recipe->diagonal_forward)
                                           ? ROLE_VALUE_OUTPUT_DIAGONAL
                                           : ROLE_VALUE_OUTPUT;
        const struct reference_operand *value = &oracle->operands[role];
        const size_t own = row->head / (oracle->c->shape.heads / value->heads);
        row->fold[j] = value->representation == REPRESENTATION_E2M1_KEY
                           ? value->exponents[own * value->tokens + row->begin + j]
                           : 127;
    }
    return clear;
}

static void check_probabilities(const struct oracle *oracle, const struct row *row, double sum, const float *traced)
{
    const double final = row->m[row->visible - 1];
    for (size_t j = 0; j < row->visible; j++) {
        const struct interval p = probability_interval(oracle->recipe, row, j);
        const double unit = exp2(row->m[j] - final) / sum, slack = 1e-5 + 2 * row->error[j];
        expect((double)traced[j] >= p.low * unit * (1 - slack) - 0x1p-120 &&
                   (double)traced[j] <= p.high * unit * (1 + slack) + 0x1p-120,
               "%s: P of query %zu and key %zu is %.9g, expected %.9g to %.9g", oracle->recipe->name, row->query, j,
               (double)traced[j], p.low * unit, p.high * unit);
    }
}

/* O from the traced P and the decoded V: the error of an FP32 sum, and half a unit of BF16. */
static void check_output(const struct oracle *oracle, const struct row *row, const float *traced)
{
    const size_t d = oracle->c->shape.head_dim;
    const float *output = oracle->c->output + (row->token * oracle->c->shape.heads + row->head) * d;
    const double half = oracle->recipe->score == OPERAND_FP32 ? 0 : 0x1p-8;
    for (size_t i = 0; i < d; i++) {
        double sum = 0, magnitude = 0;
        for (size_t j = 0; j < row->visible; j++) {
            const enum operand_role role = oracle_keyed(oracle, row->query, j, oracle->recipe->diagonal_forward)
                                               ? ROLE_VALUE_OUTPUT_DIAGONAL
                                               : ROLE_VALUE_OUTPUT;
            const double term = (double)traced[j] * (double)oracle_row(oracle, role, row->begin + j, row->head)[i];
            sum += term;
            magnitude += fabs(term);
        }
        const double bound = half * fabs(sum) + (double)(row->visible + 32) * 0x1p-23 * magnitude + 1e-37;
        expect(fabs((double)output[i] - sum) <= bound,
               "%s: O of token %zu, head %zu, channel %zu is %.9g, expected %.9g", oracle->recipe->name, row->token,
               row->head, i, (double)output[i], sum);
    }
}

static void check_row(struct oracle *oracle, struct row *row)
{
    const struct attention_case *c = oracle->c;
    const size_t total = c->shape.total_tokens;
    const bool clear = prepare_row(oracle, row);
    const float *traced = c->trace.probability_value + (row->head * total + row->token) * total + row->begin;
    double sum = 0, error = 0;
    for (size_t j = 0; j < row->visible; j++) {
        sum += exp2(row->x[j] - row->m[row->visible - 1]);
        error = fmax(error, row->error[j]);
    }
    const double lse = row->m[row->visible - 1] + log2(sum), found = (double)c->lse[row->head * total + row->token];
    expect(fabs(found - lse) <= 2 * error + 1e-6 * (1 + fabs(lse)), "%s: lse of token %zu is %.9g, expected %.9g",
           oracle->recipe->name, row->token, found, lse);
    if (clear) {
        check_probabilities(oracle, row, sum, traced);
    }
    oracle->skipped += !clear;
    oracle->rows++;
    check_output(oracle, row, traced);
}

void oracle_check_forward(const struct attention_case *c, const struct recipe *recipe)
{
    static const enum operand_role roles[] = {ROLE_QUERY_SCORE, ROLE_KEY_SCORE, ROLE_VALUE_OUTPUT,
                                              ROLE_VALUE_OUTPUT_DIAGONAL};
    struct oracle oracle = oracle_make(c, recipe, roles, sizeof roles / sizeof *roles);
    const size_t longest = documents_longest(&c->documents);
    struct row row = {.x = test_alloc(longest * sizeof(double)),
                      .m = test_alloc(longest * sizeof(double)),
                      .error = test_alloc(longest * sizeof(double)),
                      .fold = test_alloc(longest)};
    for (size_t n = 0; n < c->documents.count; n++) {
        row.begin = (size_t)c->offsets[n];
        for (row.token = row.begin; row.token < (size_t)c->offsets[n + 1]; row.token++) {
            row.query = row.token - row.begin;
            row.visible = c->shape.causal ? row.query + 1 : (size_t)c->offsets[n + 1] - row.begin;
            for (row.head = 0; row.head < c->shape.heads; row.head++) {
                check_row(&oracle, &row);
            }
        }
    }
    ck_assert_msg(oracle.skipped * 20 <= oracle.rows + 20, "%s: %zu of %zu rows could not be judged", recipe->name,
                  oracle.skipped, oracle.rows);
    free(row.x);
    free(row.m);
    free(row.error);
    free(row.fold);
    oracle_free(&oracle);
}

void oracle_check(const struct attention_case *c, const struct recipe *recipe)
{
    oracle_check_forward(c, recipe);
    oracle_check_backward(c, recipe);
}
