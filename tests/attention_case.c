/* attention_case.c: see attention_case.h. */
#include "tests/attention_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void allocate(struct attention_case *c)
{
    const struct attention_shape *s = &c->shape;
    c->query_count = s->total_tokens * s->heads * s->head_dim;
    c->key_count = s->total_tokens * s->kv_heads * s->head_dim;
    c->query = test_alloc(c->query_count * sizeof(float));
    c->output_gradient = test_alloc(c->query_count * sizeof(float));
    c->key = test_alloc(c->key_count * sizeof(float));
    c->value = test_alloc(c->key_count * sizeof(float));
    c->output = test_alloc(c->query_count * sizeof(float));
    c->dquery = test_alloc(c->query_count * sizeof(float));
    c->lse = test_alloc(s->heads * s->total_tokens * sizeof(float));
    c->dkey = test_alloc(c->key_count * sizeof(float));
    c->dvalue = test_alloc(c->key_count * sizeof(float));
    c->workspace_fill = 0xFF;
}

struct attention_case case_make(struct random_stream *stream, const size_t *lengths, size_t count, size_t heads,
                                size_t kv_heads, size_t head_dim, bool causal)
{
    struct attention_case c = {.random = {.seed = 1234567, .step = 89, .layer = 3, .query_offset = 0}};
    size_t total = 0;
    c.offsets = test_alloc((count + 1) * sizeof *c.offsets);
    c.offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        total += lengths[i];
        c.offsets[i + 1] = (int32_t)total;
    }
    c.documents = (struct documents){c.offsets, count};
    c.shape = (struct attention_shape){total, heads, kv_heads, head_dim, causal, 1 / sqrtf((float)head_dim)};
    allocate(&c);
    random_normals(stream, c.query, c.query_count, 1);
    random_normals(stream, c.key, c.key_count, 1);
    random_normals(stream, c.value, c.key_count, 1);
    random_normals(stream, c.output_gradient, c.query_count, 1);
    return c;
}

void case_trace(struct attention_case *c)
{
    const size_t pairs = c->shape.heads * c->shape.total_tokens * c->shape.total_tokens;
    float **const each[] = {&c->trace.probability_value, &c->trace.probability,
                            &c->trace.dprobability,      &c->trace.dscore,
                            &c->trace.dscore_query,      &c->trace.dscore_key};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        *each[i] = test_alloc(pairs * sizeof(float));
    }
    c->trace.delta = test_alloc(c->shape.heads * c->shape.total_tokens * sizeof(float));
    c->traced = true;
}

static struct attention_inputs inputs_of(const struct attention_case *c)
{
    const size_t query_stride = c->shape.heads * c->shape.head_dim, key_stride = c->shape.kv_heads * c->shape.head_dim;
    return (struct attention_inputs){c->query, c->key, c->value, query_stride, key_stride, key_stride};
}

void case_forward(struct attention_case *c, const struct recipe *recipe)
{
    const size_t bytes = attention_workspace_bytes(recipe, &c->shape);
    void *workspace = memset(test_alloc(bytes), c->workspace_fill, bytes);
    const struct attention_inputs inputs = inputs_of(c);
    const enum attention_status status =
        attention_forward_cpu(recipe, &c->shape, &c->documents, &inputs, c->output, inputs.query_stride, c->lse,
                              workspace, bytes, c->traced ? &c->trace : NULL);
    free(workspace);
    expect(status == ATTENTION_OK, "%s forward: %s", recipe->name, attention_status_text(status));
}

void case_backward(struct attention_case *c, const struct recipe *recipe)
{
    const size_t bytes = attention_workspace_bytes(recipe, &c->shape);
    void *workspace = memset(test_alloc(bytes), c->workspace_fill, bytes);
    const struct attention_inputs inputs = inputs_of(c);
    const struct attention_gradients gradients = {c->dquery,           c->dkey,           c->dvalue,
                                                  inputs.query_stride, inputs.key_stride, inputs.key_stride};
    const enum attention_status status = attention_backward_cpu(
        recipe, &c->shape, &c->documents, &inputs, c->output, inputs.query_stride, c->lse, c->output_gradient,
        inputs.query_stride, &c->random, &gradients, workspace, bytes, c->traced ? &c->trace : NULL);
    free(workspace);
    expect(status == ATTENTION_OK, "%s backward: %s", recipe->name, attention_status_text(status));
}

void case_run(struct attention_case *c, const struct recipe *recipe)
{
    case_forward(c, recipe);
    case_backward(c, recipe);
}

static void copy_inputs(struct attention_case *to, const struct attention_case *from, size_t first)
{
    const size_t q = first * from->shape.heads * from->shape.head_dim;
    const size_t k = first * from->shape.kv_heads * from->shape.head_dim;
    memcpy(to->query, from->query + q, to->query_count * sizeof(float));
    memcpy(to->output_gradient, from->output_gradient + q, to->query_count * sizeof(float));
    memcpy(to->key, from->key + k, to->key_count * sizeof(float));
    memcpy(to->value, from->value + k, to->key_count * sizeof(float));
}

struct attention_case case_document(const struct attention_case *c, size_t n)
{
    const int32_t first = c->offsets[n], tokens = c->offsets[n + 1] - first;
    struct attention_case alone = {.shape = c->shape, .random = c->random};
    alone.random.query_offset += (uint32_t)first;
    alone.shape.total_tokens = (size_t)tokens;
    alone.offsets = test_alloc(2 * sizeof *alone.offsets);
    alone.offsets[0] = 0;
    alone.offsets[1] = tokens;
    alone.documents = (struct documents){alone.offsets, 1};
    allocate(&alone);
    copy_inputs(&alone, c, (size_t)first);
    return alone;
}

struct attention_case case_copy(const struct attention_case *c)
{
    struct attention_case copy = {.shape = c->shape, .random = c->random};
    copy.offsets = test_alloc((c->documents.count + 1) * sizeof *copy.offsets);
    memcpy(copy.offsets, c->offsets, (c->documents.count + 1) * sizeof *copy.offsets);
    copy.documents = (struct documents){copy.offsets, c->documents.count};
    allocate(&copy);
    copy_inputs(&copy, c, 0);
    return copy;
}

static void expect_bits(const float *x, const float *y, size_t count, const char *what, size_t document)
{
    for (size_t i = 0; i < count; i++) {
        expect(memcmp(x + i, y + i, sizeof *x) == 0, "%s of document %zu: element %zu is %.9g, alone %.9g", what,
               document, i, (double)x[i], (double)y[i]);
    }
}

void case_expect_same_document(const struct attention_case *c, size_t n, const struct attention_case *alone)
{
    const size_t first = (size_t)c->offsets[n], tokens = alone->shape.total_tokens;
    const size_t q = first * c->shape.heads * c->shape.head_dim, k = first * c->shape.kv_heads * c->shape.head_dim;
    expect_bits(c->output + q, alone->output, alone->query_count, "O", n);
    expect_bits(c->dquery + q, alone->dquery, alone->query_count, "dQ", n);
    expect_bits(c->dkey + k, alone->dkey, alone->key_count, "dK", n);
    expect_bits(c->dvalue + k, alone->dvalue, alone->key_count, "dV", n);
    for (size_t head = 0; head < c->shape.heads; head++) {
        expect_bits(c->lse + head * c->shape.total_tokens + first, alone->lse + head * tokens, tokens, "lse", n);
    }
}

void case_expect_same(const struct attention_case *a, const struct attention_case *b)
{
    expect_bits(a->output, b->output, a->query_count, "O", 0);
    expect_bits(a->lse, b->lse, a->shape.heads * a->shape.total_tokens, "lse", 0);
    expect_bits(a->dquery, b->dquery, a->query_count, "dQ", 0);
    expect_bits(a->dkey, b->dkey, a->key_count, "dK", 0);
    expect_bits(a->dvalue, b->dvalue, a->key_count, "dV", 0);
}

void case_free(struct attention_case *c)
{
    float *const each[] = {c->query,
                           c->key,
                           c->value,
                           c->output_gradient,
                           c->output,
                           c->lse,
                           c->dquery,
                           c->dkey,
                           c->dvalue,
                           c->trace.probability_value,
                           c->trace.probability,
                           c->trace.dprobability,
                           c->trace.dscore,
                           c->trace.dscore_query,
                           c->trace.dscore_key,
                           c->trace.delta};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        free(each[i]);
    }
    free(c->offsets);
}

struct recipe recipe_with(const char *preset, const char *const *assignments)
{
    const struct recipe *found = recipe_find(preset);
    expect(found != NULL, "there is no preset %s", preset);
    struct recipe recipe = *found;
    for (; assignments && *assignments; assignments++) {
        char message[256] = "";
        expect(recipe_set(&recipe, *assignments, message, sizeof message), "%s: %s", *assignments, message);
    }
    return recipe;
}
