/* check_cuda_attention.c: the GPU's attention against the reference: operands bit for bit, results within rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attention_cuda.h"
#include "attention/formats.h"
#include "attention/worklist_cpu.h"
#include "tests/support_device.h"

#define HEADS    2
#define KV_HEADS 1

/* One token, a tile and two more, an empty document, odd lengths. */
static const int32_t offsets[] = {0, 1, 131, 131, 148, 212};
#define DOCUMENTS 5
#define TOKENS    212

struct call {
    struct attention_shape shape;
    struct attention_schedule schedule;
    void *schedule_memory;
    int32_t *offsets, *count;
};

static struct call make_call(size_t head_dim, bool causal)
{
    const int32_t count = DOCUMENTS;
    struct call call = {.shape = {TOKENS, HEADS, KV_HEADS, head_dim, causal, 1.0f / sqrtf((float)head_dim)}};
    call.offsets = upload(offsets, sizeof offsets);
    call.count = upload(&count, sizeof count);
    call.schedule_memory = upload(NULL, attention_schedule_bytes(TOKENS, DOCUMENTS + 3));
    attention_schedule_layout(&call.schedule, TOKENS, DOCUMENTS + 3, call.schedule_memory);
    ck_assert_int_eq(attention_schedule_cuda(&call.schedule, call.offsets, call.count, causal, NULL), ATTENTION_OK);
    return call;
}

static void free_call(struct call *call)
{
    release(call->offsets);
    release(call->count);
    release(call->schedule_memory);
}

START_TEST(the_schedule_is_the_reference_s)
{
    struct call call = make_call(64, _i == 0);
    const struct documents documents = {offsets, DOCUMENTS};
    struct work_item expected[TOKENS], items[TOKENS];
    int32_t count;
    const size_t expected_count = worklist_build(&documents, _i == 0, expected);
    download(&count, call.schedule.item_count, sizeof count);
    ck_assert_int_eq(count, (int)expected_count);
    download(items, call.schedule.items, expected_count * sizeof *items);
    ck_assert(memcmp(items, expected, expected_count * sizeof *items) == 0);
    free_call(&call);
}
END_TEST

/* ---- operands ---- */

/* Values of many sizes; every 37th row of a kind: zero, tiny, huge, an outlier, NaN, infinity. */
static void fill_hard(struct random_stream *random, float *x, size_t rows, size_t width)
{
    random_normals(random, x, rows * width, 1);
    for (size_t row = 0; row < rows; row++) {
        float *at = x + row * width;
        const size_t kind = random_below(random, 24);
        for (size_t i = 0; i < width; i++) {
            at[i] *= kind == 0 ? 0.0f : kind == 1 ? 1e-38f : kind == 2 ? 1e30f : kind == 3 ? 1e-4f : 1.0f;
        }
        if (kind >= 4 && kind <= 6) {
            at[random_below(random, width)] = kind == 4 ? 1e4f : kind == 5 ? NAN : -INFINITY;
        }
    }
}

static void compare_role(const struct recipe *recipe, enum operand_role role, struct call *call, const float *x,
                         const uint16_t *device)
{
    const size_t head_dim = call->shape.head_dim, elements = TOKENS * HEADS * head_dim;
    const struct documents documents = {offsets, DOCUMENTS};
    struct operand operand = {.values = test_alloc(elements * sizeof(float)),
                              .codes = test_alloc(elements),
                              .exponents = test_alloc(elements),
                              .scales = test_alloc(elements)};
    struct operand_cuda made = {upload(NULL, elements * sizeof(uint16_t)), upload(NULL, elements),
                                upload(NULL, elements), upload(NULL, elements), upload(NULL, sizeof(uint32_t))};
    uint8_t *bytes = test_alloc(elements);
    float *image = test_alloc(elements * sizeof *image);
    quantize_operand_cpu(recipe, role, &documents, TOKENS, HEADS, head_dim, x, HEADS * head_dim, &operand);
    ck_assert_int_eq(
        quantize_operand_cuda(recipe, role, &call->schedule, HEADS, head_dim, device, HEADS * head_dim, &made, NULL),
        ATTENTION_OK);
    const enum representation representation = operand_representation(recipe, role);
    const bool nvfp4 = representation == REPRESENTATION_NVFP4_CHANNEL || representation == REPRESENTATION_NVFP4_TOKEN;
    const bool coded = representation != REPRESENTATION_BF16,
               exponents = coded && representation != REPRESENTATION_E4M3_TENSOR;
    download_bf16(image, made.image, elements);
    for (size_t i = 0; i < elements; i++) {
        const float expected = operand.values[i];
        const bool tiny = fabsf(expected) < 0x1p-108f; /* below BF16's exactness; or a tensor scale, rounded to BF16 */
        expect(isnan(expected) ? isnan(image[i]) : tiny || image[i] == bf16_round(expected),
               "%s: %s: element %zu is %g, not %g", recipe->name, operand_role_name(role), i, (double)image[i],
               (double)expected);
    }
    download(bytes, made.codes, elements);
    ck_assert(!coded || memcmp(bytes, operand.codes, elements) == 0);
    download(bytes, made.exponents, elements);
    ck_assert(!exponents || memcmp(bytes, operand.exponents,
                                   representation == REPRESENTATION_NVFP4_TOKEN ? elements : TOKENS * HEADS) == 0);
    download(bytes, made.scales, elements);
    ck_assert(!nvfp4 || memcmp(bytes, operand.scales, elements) == 0);
    release(made.image);
    release(made.codes);
    release(made.exponents);
    release(made.scales);
    release(made.amax_bits);
    free(operand.values);
    free(operand.codes);
    free(operand.exponents);
    free(operand.scales);
    free(bytes);
    free(image);
}

START_TEST(operands_are_bit_equal)
{
    struct recipe recipe = *recipe_at((size_t)_i / 2);
    const size_t head_dim = _i % 2 ? 128 : 64, elements = TOKENS * HEADS * head_dim;
    if (recipe.score == OPERAND_FP32) {
        return; /* refused on a GPU */
    }
    struct random_stream random = random_stream((uint64_t)_i);
    struct call call = make_call(head_dim, true);
    float *x = test_alloc(elements * sizeof *x);
    fill_hard(&random, x, TOKENS * HEADS, head_dim);
    uint16_t *device = upload_bf16(x, elements);
    for (int role = 0; role < ROLE_COUNT; role++) {
        compare_role(&recipe, (enum operand_role)role, &call, x, device);
    }
    release(device);
    free(x);
    free_call(&call);
}
END_TEST

/* ---- the call ---- */

enum { QUERY, KEY, VALUE, DOUTPUT, OUTPUT, DQUERY, DKEY, DVALUE, ARRAYS };

static size_t width_of(const struct attention_shape *shape, int array)
{
    const bool key = array == KEY || array == VALUE || array == DKEY || array == DVALUE;
    return (key ? KV_HEADS : HEADS) * shape->head_dim;
}

static void run_cpu(const struct recipe *recipe, const struct attention_shape *shape, float *const *x)
{
    const struct documents documents = {offsets, DOCUMENTS};
    const size_t q = width_of(shape, QUERY), k = width_of(shape, KEY), bytes = attention_workspace_bytes(recipe, shape);
    const struct attention_inputs inputs = {x[QUERY], x[KEY], x[VALUE], q, k, k};
    const struct attention_gradients gradients = {x[DQUERY], x[DKEY], x[DVALUE], q, k, k};
    const struct attention_random random = {7, 11, 3, 0};
    float *lse = test_alloc(HEADS * TOKENS * sizeof *lse);
    void *workspace = test_alloc(bytes);
    ck_assert_int_eq(
        attention_forward_cpu(recipe, shape, &documents, &inputs, x[OUTPUT], q, lse, workspace, bytes, NULL),
        ATTENTION_OK);
    ck_assert_int_eq(attention_backward_cpu(recipe, shape, &documents, &inputs, x[OUTPUT], q, lse, x[DOUTPUT], q,
                                            &random, &gradients, workspace, bytes, NULL),
                     ATTENTION_OK);
    free(lse);
    free(workspace);
}

static void run_device(const struct recipe *recipe, struct call *call, float *const *x)
{
    const struct attention_shape *shape = &call->shape;
    const size_t q = width_of(shape, QUERY), k = width_of(shape, KEY);
    const size_t bytes = attention_workspace_bytes_cuda(recipe, shape, call->schedule.max_documents);
    const uint64_t seed_step[] = {7, 11};
    uint16_t *d[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        const size_t count = TOKENS * width_of(shape, i);
        d[i] = i <= DOUTPUT ? upload_bf16(x[i], count) : upload(NULL, count * sizeof(uint16_t));
    }
    float *lse = upload(NULL, HEADS * TOKENS * sizeof *lse);
    void *workspace = upload(NULL, bytes);
    uint64_t *random_memory = upload(seed_step, sizeof seed_step);
    const struct attention_inputs_cuda inputs = {d[QUERY], d[KEY], d[VALUE], q, k, k};
    const struct attention_gradients_cuda gradients = {d[DQUERY], d[DKEY], d[DVALUE], q, k, k};
    const struct attention_random_cuda random = {random_memory, 3, 0};
    ck_assert_int_eq(
        attention_forward_cuda(recipe, shape, &call->schedule, &inputs, d[OUTPUT], q, lse, workspace, bytes, NULL),
        ATTENTION_OK);
    ck_assert_int_eq(attention_backward_cuda(recipe, shape, &call->schedule, &inputs, d[OUTPUT], q, lse, d[DOUTPUT], q,
                                             &random, &gradients, workspace, bytes, NULL),
                     ATTENTION_OK);
    for (int i = 0; i < ARRAYS; i++) {
        if (i > DOUTPUT) {
            download_bf16(x[i], d[i], TOKENS * width_of(shape, i));
        }
        release(d[i]);
    }
    release(lse);
    release(workspace);
    release(random_memory);
}

/* What separates two correct computations. Scores differ by FP32 rounding and P by 2 ulp of the exponential, 2^-18 in
 * all, generously. That turns a P or dS code that lies so close to a tie: a share of 2^-18 / u of them, each by 2u,
 * together 2u sqrt(2^-18 / u) of the sum, u = 2^-2 (E2M1), 2^-4 (E4M3), 2^-9 (BF16); twice that for scales that turn.
 * Besides, in so few rows a single one of them that turns the weight that dominates its row shows: two such rows. The
 * outputs' own rounding turns as rarely. dQ and dK take two such steps. */
static double bound_of(const struct recipe *recipe, int array)
{
    const double u = recipe->dscore == DSCORE_E2M1 ? 0x1p-2 : recipe->dscore == DSCORE_E4M3 ? 0x1p-4 : 0x1p-9;
    const double codes = 4 * u * sqrt(0x1p-18 / u) + 2 * u * sqrt(2.0 / TOKENS),
                 rounding = 0x1p-8 * sqrt(0x1p-18 / 0x1p-9);
    /* An FP32 tensor scale does not fit BF16 images: each of a product's two operands is rounded by up to 2^-9, and S
     * by both turns P by |x| times that. */
    const double images = recipe->exponents == EXPONENT_TENSOR ? 0x1p-6 : 0;
    return (codes + rounding + images) * (array == DQUERY || array == DKEY ? 2 : 1);
}

static void compare_call(const struct recipe *recipe, size_t head_dim, bool causal, uint64_t test)
{
    struct call call = make_call(head_dim, causal);
    struct random_stream random = random_stream(test);
    float *expected[ARRAYS], *found[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        const size_t count = TOKENS * width_of(&call.shape, i);
        expected[i] = test_alloc(count * sizeof(float));
        found[i] = test_alloc(count * sizeof(float));
        random_normals(&random, found[i], count, 1);
        for (size_t k = 0; k < count; k++) {
            expected[i][k] = found[i][k] = bf16_round(found[i][k]);
        }
    }
    run_cpu(recipe, &call.shape, expected);
    run_device(recipe, &call, found);
    static const char *const names[] = {"", "", "", "", "O", "dQ", "dK", "dV"};
    for (int i = 0; i < ARRAYS; i++) {
        const double error = relative_error(found[i], expected[i], TOKENS * width_of(&call.shape, i));
        expect(i <= DOUTPUT || error <= bound_of(recipe, i), "%s, head_dim %zu, causal %d: %s is off by %g, may be %g",
               recipe->name, head_dim, causal, names[i], error, bound_of(recipe, i));
        free(expected[i]);
        free(found[i]);
    }
    free_call(&call);
}

START_TEST(presets_follow_the_reference)
{
    const struct recipe *recipe = recipe_at((size_t)_i / 2);
    if (recipe->score != OPERAND_FP32) {
        compare_call(recipe, _i % 2 ? 128 : 64, true, (uint64_t)_i);
    }
}
END_TEST

static const char *const switches[][2] = {
    {"mxfp8", "dscore-scale=tile"},
    {"mxfp8", "dscore-scale=tensor"},
    {"mxfp8", "dscore-scale=fixed"},
    {"mxfp8", "dquery=fp16-causal"},
    {"mxfp8", "dquery=fp16-sequence"},
    {"mxfp8", "delta=direct"},
    {"exact", "hadamard=1"},
    {"exact", "probability=fp32"},
    {"exact", "probability-dvalue=fp32"},
    {"exact", "dscore=fp32"},
    {"fp4", "value-groups=keyed"},
    {"fp4", "dscore-stochastic=0"},
    {"fp4", "delta=quantized"},
    {"nvfp4", "tau=0"},
};

START_TEST(switches_follow_the_reference)
{
    char message[256];
    struct recipe recipe = *recipe_find(switches[_i][0]);
    ck_assert_msg(recipe_set(&recipe, switches[_i][1], message, sizeof message), "%s", message);
    compare_call(&recipe, 64, true, 100 + (uint64_t)_i);
}
END_TEST

START_TEST(full_attention_follows_the_reference)
{
    static const char *const recipes[] = {"exact", "mxfp8", "nvfp4", "fp4"};
    compare_call(recipe_find(recipes[_i]), 64, false, 200 + (uint64_t)_i);
}
END_TEST

START_TEST(what_a_gpu_lacks_is_refused)
{
    char message[256];
    struct attention_shape shape = {TOKENS, HEADS, KV_HEADS, 96, true, 1};
    ck_assert(!attention_check_cuda(recipe_find("exact"), &shape, 232448, message, sizeof message));
    shape.head_dim = 128;
    ck_assert(attention_check_cuda(recipe_find("exact"), &shape, 232448, message, sizeof message));
    ck_assert(!attention_check_cuda(recipe_find("fp32"), &shape, 232448, message, sizeof message));
    ck_assert(!attention_check_cuda(recipe_find("exact"), &shape, 101376, message, sizeof message));
}
END_TEST

Suite *suite_cuda_attention(void);
Suite *suite_cuda_attention(void)
{
    Suite *suite = suite_create("cuda_attention");
    TCase *tests = tcase_create("attention");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, the_schedule_is_the_reference_s, 0, 2);
    tcase_add_loop_test(tests, operands_are_bit_equal, 0, 2 * (int)recipe_count());
    tcase_add_loop_test(tests, presets_follow_the_reference, 0, 2 * (int)recipe_count());
    tcase_add_loop_test(tests, switches_follow_the_reference, 0, (int)(sizeof switches / sizeof *switches));
    tcase_add_loop_test(tests, full_attention_follows_the_reference, 0, 4);
    tcase_add_test(tests, what_a_gpu_lacks_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
