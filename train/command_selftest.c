/* command_selftest.c: `flamia selftest`: does this build compute on this machine what it should? About ten seconds.
 *
 * Formats against their definitions, attention of every recipe against a plain double-precision softmax over its own
 * decoded operands, the probe's verdicts against what the recipes promise, a file written and read back.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attention/formats.h"
#include "attention/probe.h"
#include "attention/quantize.h"
#include "data/safetensors.h"
#include "train/commands.h"
#include "train/options.h"
#include "train/threads.h"

#define TOKENS   160
#define HEADS    2
#define HEAD_DIM 64

static bool report(const char *what, bool right, const char *detail)
{
    printf("%s  %-46s %s\n", right ? "PASS" : "FAIL", what, detail);
    fflush(stdout);
    return right;
}

/* ---- formats ---- */

/* Every code decodes to a value that encodes to the code; every BF16 number encodes to a nearest value. */
static bool formats_hold(void)
{
    bool right = true;
    for (int code = 0; code < 256; code++) {
        const float value = e4m3_decode((uint8_t)code);
        right = right && (isnan(value) || e4m3_encode(value) == code);
    }
    for (int code = 0; code < 16; code++) {
        right = right && e2m1_encode(e2m1_decode((uint8_t)code)) == code;
    }
    for (int i = 0; i < 0x7F80; i++) { /* positive finite BF16 numbers */
        const float x = bf16_decode((uint16_t)i), chosen = e4m3_round(x);
        const uint8_t code = e4m3_encode(x);
        const float below = code > 0 ? e4m3_decode((uint8_t)(code - 1)) : 0,
                    above = code < 0x7E ? e4m3_decode((uint8_t)(code + 1)) : 448;
        right = right && fabsf(x - chosen) <= fabsf(x - below) && fabsf(x - chosen) <= fabsf(x - above);
    }
    return report("formats", right, "codes of E4M3 and E2M1, nearest value of every BF16 number");
}

/* ---- attention ---- */

struct arrays {
    float *query, *key, *value, *doutput, *output, *lse, *dquery, *dkey, *dvalue, *query_image, *key_image,
        *value_image;
    double *expected;
    void *workspace;
    size_t workspace_bytes;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void fill(float *x, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        double sum = 0; /* of twelve uniform numbers: nearly normal */
        for (int k = 0; k < 12; k++) {
            sum += (double)next_random(state) * 0x1p-31;
        }
        x[i] = bf16_round((float)(sum - 6));
    }
}

static bool make_arrays(struct arrays *a, size_t workspace_bytes)
{
    const size_t count = TOKENS * HEADS * HEAD_DIM;
    float **const pieces[] = {&a->query,  &a->key,  &a->value,  &a->doutput,     &a->output,    &a->lse,
                              &a->dquery, &a->dkey, &a->dvalue, &a->query_image, &a->key_image, &a->value_image};
    bool done = true;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        *pieces[i] = calloc(count, sizeof(float));
        done = done && *pieces[i];
    }
    a->expected = calloc(count, sizeof(double));
    a->workspace = malloc(workspace_bytes);
    a->workspace_bytes = workspace_bytes;
    return done && a->expected && a->workspace;
}

static void free_arrays(struct arrays *a)
{
    float *const pieces[] = {a->query,  a->key,  a->value,  a->doutput,     a->output,    a->lse,
                             a->dquery, a->dkey, a->dvalue, a->query_image, a->key_image, a->value_image};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        free(pieces[i]);
    }
    free(a->expected);
    free(a->workspace);
}

/* O in double precision over decoded operands [H][T][d], P not rounded. */
static void plain_attention(const struct arrays *a, double scale)
{
    for (size_t head = 0; head < HEADS; head++) {
        for (size_t row = 0; row < TOKENS; row++) {
            double weight[TOKENS], sum = 0;
            const float *query = a->query_image + (head * TOKENS + row) * HEAD_DIM;
            double *out = a->expected + (row * HEADS + head) * HEAD_DIM;
            for (size_t key = 0; key <= row; key++) {
                double score = 0;
                for (size_t i = 0; i < HEAD_DIM; i++) {
                    score += (double)query[i] * (double)a->key_image[(head * TOKENS + key) * HEAD_DIM + i];
                }
                sum += weight[key] = exp(score * scale);
            }
            memset(out, 0, HEAD_DIM * sizeof *out);
            for (size_t key = 0; key <= row; key++) {
                for (size_t i = 0; i < HEAD_DIM; i++) {
                    out[i] += weight[key] / sum * (double)a->value_image[(head * TOKENS + key) * HEAD_DIM + i];
                }
            }
        }
    }
}

static void quantize(const struct recipe *recipe, enum operand_role role, const struct documents *documents,
                     const float *x, float *values)
{
    struct operand operand = {.values = values};
    quantize_operand_cpu(recipe, role, documents, TOKENS, HEADS, HEAD_DIM, x, HEADS * HEAD_DIM, &operand);
}

/* What rounding P may do to O, relative: FP32's own error, half a unit of BF16, E4M3 or E2M1, doubled for rows of few
 * keys. */
static double tolerance(const struct recipe *recipe)
{
    static const double by_format[] = {1e-5, 0x1p-7, 0x1p-3, 0x1p-3, 0.5};
    return by_format[recipe->probability];
}

static bool attention_holds(const struct recipe *recipe)
{
    const int32_t offsets[] = {0, TOKENS};
    const struct documents documents = {offsets, 1};
    const struct attention_shape shape = {TOKENS, HEADS, HEADS, HEAD_DIM, true, 0.125f};
    const size_t stride = HEADS * HEAD_DIM, count = TOKENS * stride;
    struct arrays a;
    uint64_t state = 20260101;
    double difference = 0, size = 0;
    bool right = make_arrays(&a, attention_workspace_bytes(recipe, &shape));
    if (right) {
        fill(a.query, count, &state);
        fill(a.key, count, &state);
        fill(a.value, count, &state);
        fill(a.doutput, count, &state);
        const struct attention_inputs inputs = {a.query, a.key, a.value, stride, stride, stride};
        const struct attention_gradients gradients = {a.dquery, a.dkey, a.dvalue, stride, stride, stride};
        const struct attention_random random = {1, 1, 0, 0};
        right = attention_forward_cpu(recipe, &shape, &documents, &inputs, a.output, stride, a.lse, a.workspace,
                                      a.workspace_bytes, NULL) == ATTENTION_OK &&
                attention_backward_cpu(recipe, &shape, &documents, &inputs, a.output, stride, a.lse, a.doutput, stride,
                                       &random, &gradients, a.workspace, a.workspace_bytes, NULL) == ATTENTION_OK;
        quantize(recipe, ROLE_QUERY_SCORE, &documents, a.query, a.query_image);
        quantize(recipe, ROLE_KEY_SCORE, &documents, a.key, a.key_image);
        quantize(recipe, ROLE_VALUE_OUTPUT_DIAGONAL, &documents, a.value, a.value_image);
        plain_attention(&a, 0.125);
    }
    for (size_t i = 0; right && i < TILE * stride; i++) { /* the first tile, where V is quantized as on the diagonal */
        difference += ((double)a.output[i] - a.expected[i]) * ((double)a.output[i] - a.expected[i]);
        size += a.expected[i] * a.expected[i];
        right = isfinite(a.dquery[i]) && isfinite(a.dkey[i]) && isfinite(a.dvalue[i]);
    }
    char name[64], detail[64];
    snprintf(name, sizeof name, "attention, %s", recipe->name);
    snprintf(detail, sizeof detail, "O off by %.2g, may be %.2g", sqrt(difference / size), tolerance(recipe));
    right = right && sqrt(difference / size) <= tolerance(recipe);
    free_arrays(&a);
    return report(name, right, detail);
}

/* ---- probe, files ---- */

static bool probe_agrees(const struct recipe *recipe)
{
    const int32_t offsets[] = {0, 48, 96};
    const struct probe_setup setup = {
        .recipe = recipe, .shape = {96, 1, 1, HEAD_DIM, true, 0.125f}, .documents = {offsets, 2}, .seed = 1};
    enum attention_status status;
    struct probe_outcome total = {.verdict = CAUSALITY_EXACT};
    struct probe *probe = probe_create(&setup, &status);
    if (probe) {
        status = probe_run(probe, 3, &total, NULL);
    }
    probe_destroy(probe);
    char name[64], detail[64];
    snprintf(name, sizeof name, "probe, %s", recipe->name);
    snprintf(detail, sizeof detail, "%s, promised %s", causality_name(total.verdict),
             causality_name(recipe_causality(recipe)));
    return report(name, status == ATTENTION_OK && total.verdict == recipe_causality(recipe), detail);
}

static bool file_survives(void)
{
    char path[] = "/tmp/flamia_selftest_XXXXXX";
    const float values[] = {1.0f, -0.0f, 0x1p-149f};
    const struct tensor_source source = {
        .name = "x", .type = TENSOR_F32, .dimensions = 1, .shape = {3}, .data = values};
    float read[3] = {0};
    struct error error = {ERROR_NONE, ""};
    const int fd = mkstemp(path);
    bool right = fd >= 0 && close(fd) == 0 && safetensors_write(path, &source, 1, NULL, 0, &error);
    struct safetensors *file = right ? safetensors_open(path, &error) : NULL;
    const struct tensor_entry *entry = file ? safetensors_find(file, "x") : NULL;
    right = entry && safetensors_read(file, entry, read, &error) &&
            float_to_bits(read[0]) == float_to_bits(values[0]) && float_to_bits(read[1]) == float_to_bits(values[1]) &&
            float_to_bits(read[2]) == float_to_bits(values[2]);
    if (file) {
        safetensors_close(file);
    }
    unlink(path);
    return report("checkpoint files", right, right ? "written and read back" : error.text);
}

int command_selftest(int argc, char **argv)
{
    struct settings settings;
    int exit_code;
    if (!options_start(COMMAND_SELFTEST, argc, argv, &settings, NULL, &exit_code)) {
        return exit_code;
    }
    threads_use(settings.threads > 0 ? settings.threads
                                     : 1); /* calls so small that a second thread costs more than it brings */
    size_t failed = !formats_hold();
    for (size_t i = 0; i < recipe_count(); i++) {
        failed += !attention_holds(recipe_at(i));
    }
    for (size_t i = 0; i < recipe_count(); i++) {
        failed += !probe_agrees(recipe_at(i));
    }
    failed += !file_survives();
    if (failed) {
        printf("%zu checks failed: do not trust this build on this machine\n", failed);
    } else {
        printf("all checks passed\n");
    }
    return failed || fflush(stdout) != 0 ? ERROR_FAILED : 0;
}
