/* figure_cosine.c: `make figures`: every recipe's cosine to exact attention, on Gaussian BF16 inputs of 4096 tokens, d
 * = 128, two heads, causal and full; and what c = 8 with tau = 2 does when it is forced.
 *
 *     build/figure_cosine [TOKENS [SEED]]
 *
 * "Exact" is the recipe `fp32`, itself within 2e-6 of FP64 (check_attention.c).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attention.h"
#include "attention/formats.h"
#include "tests/support.h"

#define HEADS    2
#define HEAD_DIM 128
#define WIDTH    (HEADS * HEAD_DIM)

struct call {
    struct attention_shape shape;
    int32_t offsets[2];
    float *query, *key, *value, *doutput;
    float *output, *lse, *dquery, *dkey, *dvalue;
};

static float *bf16_normals(struct random_stream *stream, size_t count)
{
    float *x = test_alloc(count * sizeof *x);
    random_normals(stream, x, count, 1);
    for (size_t i = 0; i < count; i++) {
        x[i] = bf16_round(x[i]);
    }
    return x;
}

static struct call call_make(size_t tokens, struct random_stream *stream)
{
    const size_t count = tokens * WIDTH;
    struct call call = {.shape = {tokens, HEADS, HEADS, HEAD_DIM, true, 1 / sqrtf(HEAD_DIM)},
                        .offsets = {0, (int32_t)tokens}};
    call.query = bf16_normals(stream, count);
    call.key = bf16_normals(stream, count);
    call.value = bf16_normals(stream, count);
    call.doutput = bf16_normals(stream, count);
    return call;
}

static void results_make(struct call *call)
{
    const size_t bytes = call->shape.total_tokens * WIDTH * sizeof(float);
    call->output = test_alloc(bytes);
    call->dquery = test_alloc(bytes);
    call->dkey = test_alloc(bytes);
    call->dvalue = test_alloc(bytes);
    call->lse = test_alloc(HEADS * call->shape.total_tokens * sizeof(float));
}

static void results_free(struct call *call)
{
    free(call->output);
    free(call->dquery);
    free(call->dkey);
    free(call->dvalue);
    free(call->lse);
}

static bool run(struct call *call, const struct recipe *recipe)
{
    const size_t bytes = attention_workspace_bytes(recipe, &call->shape);
    void *workspace = test_alloc(bytes);
    const struct documents documents = {call->offsets, 1};
    const struct attention_inputs inputs = {call->query, call->key, call->value, WIDTH, WIDTH, WIDTH};
    const struct attention_gradients gradients = {call->dquery, call->dkey, call->dvalue, WIDTH, WIDTH, WIDTH};
    const struct attention_random random = {1, 1, 0, 0};
    enum attention_status status = attention_forward_cpu(recipe, &call->shape, &documents, &inputs, call->output, WIDTH,
                                                         call->lse, workspace, bytes, NULL);
    if (status == ATTENTION_OK) {
        status = attention_backward_cpu(recipe, &call->shape, &documents, &inputs, call->output, WIDTH, call->lse,
                                        call->doutput, WIDTH, &random, &gradients, workspace, bytes, NULL);
    }
    free(workspace);
    if (status != ATTENTION_OK) {
        fprintf(stderr, "figure_cosine: %s: %s\n", recipe->name, attention_status_text(status));
    }
    return status == ATTENTION_OK;
}

static bool print_row(struct call *call, const struct call *exact, const struct recipe *recipe, const char *name)
{
    const size_t count = call->shape.total_tokens * WIDTH;
    if (!run(call, recipe)) {
        return false;
    }
    printf("%-22s %-6s  %.4f  %.4f  %.4f  %.4f\n", name, call->shape.causal ? "causal" : "full",
           cosine(call->output, exact->output, count), cosine(call->dquery, exact->dquery, count),
           cosine(call->dkey, exact->dkey, count), cosine(call->dvalue, exact->dvalue, count));
    fflush(stdout);
    return true;
}

static bool print_table(struct call *call, bool causal)
{
    struct recipe forced = *recipe_find("mxfp8");
    forced.probability_shift = 8;
    forced.rescale_threshold = 2;
    forced.forced = true;
    call->shape.causal = causal;
    struct call exact = *call;
    results_make(&exact);
    results_make(call);
    bool done = run(&exact, recipe_find("fp32"));
    for (size_t i = 1; done && i < recipe_count(); i++) {
        done = print_row(call, &exact, recipe_at(i), recipe_at(i)->name);
    }
    done = done && print_row(call, &exact, &forced, "mxfp8 c=8 tau=2 forced");
    results_free(&exact);
    results_free(call);
    return done;
}

static bool number(const char *text, unsigned long least, unsigned long most, unsigned long *value)
{
    char *end;
    errno = 0;
    *value = strtoul(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && *value >= least && *value <= most;
}

int main(int argc, char **argv)
{
    unsigned long tokens = 4096, seed = 1;
    if (argc > 3 || (argc > 1 && !number(argv[1], 1, 65536, &tokens)) ||
        (argc > 2 && !number(argv[2], 0, ~0ul, &seed))) {
        fprintf(stderr, "usage: figure_cosine [TOKENS [SEED]], TOKENS from 1 to 65536\n");
        return 2;
    }
    struct random_stream stream = {seed * 0x9E3779B97F4A7C15ull};
    struct call call = call_make(tokens, &stream);
    printf("cosine to fp32, %lu tokens, %d heads of %d\n%-22s %-6s  %-6s  %-6s  %-6s  %-6s\n", tokens, HEADS, HEAD_DIM,
           "recipe", "mask", "O", "dQ", "dK", "dV");
    const bool done = print_table(&call, true) && print_table(&call, false);
    free(call.query);
    free(call.key);
    free(call.value);
    free(call.doutput);
    return done ? 0 : 1;
}
