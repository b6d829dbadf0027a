/* check_quantize.c: the operands of every recipe against element-by-element definitions, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "attention/quantize.h"
#include "tests/attention_case.h"
#include "tests/reference_quantize.h"

/* A packed tensor with gaps between tokens (filled with NaN: nothing may read them) and its quantized operand. */
struct tensor {
    int32_t offsets[8];
    struct documents documents;
    size_t tokens, heads, head_dim, stride;
    float *x;
};

struct codes {
    struct operand operand;
    size_t elements;
};

static struct tensor tensor_make(struct random_stream *stream, const size_t *lengths, size_t count, size_t heads,
                                 size_t head_dim, float scale)
{
    struct tensor tensor = {.heads = heads, .head_dim = head_dim, .stride = heads * head_dim + 3};
    for (size_t i = 0; i < count; i++) {
        tensor.tokens += lengths[i];
        tensor.offsets[i + 1] = (int32_t)tensor.tokens;
    }
    tensor.documents.count = count;
    tensor.x = test_alloc((tensor.tokens * tensor.stride + 1) * sizeof *tensor.x);
    for (size_t token = 0; token < tensor.tokens; token++) {
        random_normals(stream, tensor.x + token * tensor.stride, heads * head_dim, scale);
    }
    return tensor;
}

static const struct documents *documents_of(struct tensor *tensor)
{
    tensor->documents.offsets = tensor->offsets; /* set here: the struct is passed by value */
    return &tensor->documents;
}

static struct codes quantize(const struct recipe *recipe, enum operand_role role, struct tensor *tensor)
{
    const size_t elements = tensor->tokens * tensor->heads * tensor->head_dim;
    struct codes codes = {
        {test_alloc(elements * sizeof(float)), test_alloc(elements), test_alloc(elements), test_alloc(elements), 0},
        elements};
    quantize_operand_cpu(recipe, role, documents_of(tensor), tensor->tokens, tensor->heads, tensor->head_dim, tensor->x,
                         tensor->stride, &codes.operand);
    return codes;
}

static void codes_free(struct codes *codes)
{
    free(codes->operand.values);
    free(codes->operand.codes);
    free(codes->operand.exponents);
    free(codes->operand.scales);
}

static int has_codes(enum representation r)
{
    return r != REPRESENTATION_FP32 && r != REPRESENTATION_BF16;
}

static int has_scales(enum representation r)
{
    return r == REPRESENTATION_NVFP4_CHANNEL || r == REPRESENTATION_NVFP4_TOKEN;
}

static int has_exponents(enum representation r)
{
    return has_codes(r) && r != REPRESENTATION_E4M3_TENSOR;
}

static void expect_bytes(const uint8_t *found, const uint8_t *expected, size_t count, const char *what,
                         const struct recipe *recipe, enum operand_role role)
{
    for (size_t i = 0; i < count; i++) {
        expect(found[i] == expected[i], "%s, %s: %s %zu is 0x%02x, expected 0x%02x", recipe->name,
               operand_role_name(role), what, i, found[i], expected[i]);
    }
}

/* Codes, scales, exponents and values equal the definition's. */
static void expect_definition(const struct recipe *recipe, enum operand_role role, struct tensor *tensor)
{
    struct codes codes = quantize(recipe, role, tensor);
    struct reference_operand reference = reference_quantize(recipe, role, documents_of(tensor), tensor->tokens,
                                                            tensor->heads, tensor->head_dim, tensor->x, tensor->stride);
    const enum representation r = reference.representation;
    expect(operand_representation(recipe, role) == r, "%s, %s: is %s, expected %s", recipe->name,
           operand_role_name(role), representation_name(operand_representation(recipe, role)), representation_name(r));
    if (has_codes(r)) {
        expect_bytes(codes.operand.codes, reference.codes, codes.elements, "code", recipe, role);
    }
    if (has_scales(r)) {
        expect_bytes(codes.operand.scales, reference.scales, codes.elements, "scale", recipe, role);
    }
    if (has_exponents(r)) {
        const size_t count = r == REPRESENTATION_NVFP4_TOKEN ? codes.elements : tensor->heads * tensor->tokens;
        expect_bytes(codes.operand.exponents, reference.exponents, count, "exponent", recipe, role);
    }
    for (size_t i = 0; i < codes.elements; i++) {
        const float found = codes.operand.values[i], expected = reference.values[i];
        expect(isnan(expected) ? isnan(found) : found == expected, "%s, %s: value %zu is %a, expected %a", recipe->name,
               operand_role_name(role), i, (double)found, (double)expected);
    }
    codes_free(&codes);
    reference_operand_free(&reference);
}

/* Every operand of every preset; what differs only in name from one already compared is not compared again. */
static void expect_definitions(struct tensor *tensor)
{
    int done[REPRESENTATION_E2M1_KEY + 1][2][2] = {{{0}}};
    for (size_t i = 0; i < recipe_count(); i++) {
        for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
            const enum representation r = reference_representation(recipe_at(i), role);
            const int rotated = operand_rotated(recipe_at(i), role, tensor->head_dim);
            ck_assert_int_eq(operand_representation(recipe_at(i), role), r);
            if (!done[r][recipe_at(i)->rule == SCALE_FLOOR][rotated]++) {
                expect_definition(recipe_at(i), role, tensor);
            }
        }
    }
}

static const size_t odd_lengths[] = {1, 17, 0, 33, 150, 31};
#define ODD_COUNT (sizeof odd_lengths / sizeof *odd_lengths)

START_TEST(every_operand_of_every_recipe_has_its_definitions_bits)
{
    struct random_stream stream = random_stream(1);
    static const size_t head_dims[] = {16, 48, 128};
    for (size_t i = 0; i < 3; i++) {
        struct tensor tensor = tensor_make(&stream, odd_lengths, ODD_COUNT, 2, head_dims[i], 1);
        expect_definitions(&tensor);
        free(tensor.x);
    }
}
END_TEST

START_TEST(magnitudes_from_the_smallest_to_the_largest_keep_their_bits)
{
    /* Includes subnormal FP32 inputs (2^-140) and values that BF16 rounds to infinity. */
    struct random_stream stream = random_stream(2);
    static const size_t lengths[] = {40, 33};
    for (int exponent = -140; exponent <= 126; exponent += 14) {
        struct tensor tensor = tensor_make(&stream, lengths, 2, 1, 32, ldexpf(1, exponent));
        expect_definitions(&tensor);
        free(tensor.x);
    }
}
END_TEST

START_TEST(blocks_with_outliers_keep_their_bits)
{
    struct random_stream stream = random_stream(3);
    for (int repeat = 0; repeat < 4; repeat++) {
        struct tensor tensor = tensor_make(&stream, odd_lengths, ODD_COUNT, 2, 32, 1);
        for (size_t i = 0; i < tensor.tokens * tensor.stride; i++) {
            tensor.x[i] *= (float)exp(6 * random_normal(&stream));
            tensor.x[i] = random_below(&stream, 8) == 0 ? 0 : tensor.x[i];
        }
        expect_definitions(&tensor);
        free(tensor.x);
    }
}
END_TEST

START_TEST(both_exponent_rules_and_every_grouping_keep_their_bits)
{
    struct random_stream stream = random_stream(4);
    static const char *const switches[][3] = {
        {"exponents=token", "rule=floor"}, {"exponents=block", "rule=floor"}, {"hadamard=1"}};
    struct tensor tensor = tensor_make(&stream, odd_lengths, ODD_COUNT, 1, 64, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct recipe recipe = recipe_with("mxfp8", switches[i]);
        for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
            expect_definition(&recipe, role, &tensor);
        }
    }
    static const char *const keyed[] = {"value-groups=keyed", NULL};
    const struct recipe recipe = recipe_with("fp4", keyed);
    for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
        expect_definition(&recipe, role, &tensor);
    }
    free(tensor.x);
}
END_TEST

START_TEST(nvfp4_bits_agree_on_many_blocks_at_twenty_magnitudes)
{
    struct random_stream stream = random_stream(5);
    const size_t lengths[] = {test_is_sanitized() ? 32 : 320};
    const struct recipe *recipe = recipe_find("fp4");
    for (int exponent = -60; exponent < 60; exponent += 6) {
        struct tensor tensor = tensor_make(&stream, lengths, 1, 1, 128, ldexpf(1, exponent));
        expect_definition(recipe, ROLE_QUERY_SCORE, &tensor);
        expect_definition(recipe, ROLE_DOUTPUT_DVALUE, &tensor);
        free(tensor.x);
    }
}
END_TEST

START_TEST(zero_blocks_are_zero_codes_and_finite_scales)
{
    struct random_stream stream = random_stream(6);
    for (int kind = 0; kind < 4; kind++) { /* everything 0, everything -0, one zero block, one zero token */
        struct tensor tensor = tensor_make(&stream, odd_lengths, ODD_COUNT, 2, 32, 0.05f);
        for (size_t token = 0; token < tensor.tokens; token++) {
            const int zero = kind < 2 || (kind == 2 ? token >= 51 && token < 83 : token == 60);
            for (size_t i = 0; zero && i < 64; i++) {
                tensor.x[token * tensor.stride + i] = kind == 1 ? -0.0f : 0.0f;
            }
        }
        expect_definitions(&tensor);
        for (size_t i = 0; i < recipe_count(); i++) {
            for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
                struct codes codes = quantize(recipe_at(i), role, &tensor);
                for (size_t j = 0; j < codes.elements; j++) {
                    const float value = codes.operand.values[j];
                    expect(isfinite(value) && (kind > 1 || value == 0), "value %zu is %g", j, (double)value);
                    expect(!has_scales(operand_representation(recipe_at(i), role)) || codes.operand.scales[j] <= 0x7E,
                           "scale %zu is a NaN", j);
                }
                codes_free(&codes);
            }
        }
        free(tensor.x);
    }
}
END_TEST

START_TEST(a_group_whose_scale_underflows_becomes_zero_not_nan)
{
    /* The token's largest value sets t; a group 2^-30 below it has scale 0. */
    struct random_stream stream = random_stream(7);
    static const size_t lengths[] = {16};
    struct tensor tensor = tensor_make(&stream, lengths, 1, 1, 32, 0x1p-30f);
    for (size_t token = 0; token < 16; token++) {
        tensor.x[token * tensor.stride + 20] = 1000;
    }
    struct codes codes = quantize(recipe_find("fp4"), ROLE_QUERY_SCORE, &tensor);
    for (size_t token = 0; token < 16; token++) {
        for (size_t i = 0; i < 16; i++) {
            ck_assert_float_eq(codes.operand.values[token * 32 + i], 0);
            ck_assert_uint_eq(codes.operand.scales[token * 32 + i], 0);
            ck_assert_uint_eq(codes.operand.codes[token * 32 + i], 0);
        }
    }
    codes_free(&codes);
    free(tensor.x);
}
END_TEST

START_TEST(nan_or_infinity_at_any_position_marks_its_whole_block)
{
    struct random_stream stream = random_stream(8);
    static const size_t lengths[] = {5, 32, 20};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t position = 0; position < 32; position++) {
        for (size_t kind = 0; kind < 3; kind++) {
            struct tensor tensor = tensor_make(&stream, lengths, 3, 1, 16, 1);
            const size_t token = 5 + position, channel = random_below(&stream, 16);
            tensor.x[token * tensor.stride + channel] = bad[kind];
            expect_definitions(&tensor);
            struct codes codes = quantize(recipe_find("mxfp8"), ROLE_VALUE_OUTPUT, &tensor);
            for (size_t t = 0; t < tensor.tokens; t++) {
                ck_assert_int_eq(codes.operand.exponents[t] == E8M0_NAN, t >= 5 && t < 37);
            }
            codes_free(&codes);
            codes = quantize(recipe_find("nvfp4"), ROLE_KEY_SCORE, &tensor);
            for (size_t t = 0; t < tensor.tokens; t++) {
                ck_assert_int_eq(codes.operand.scales[t * 16] == E4M3_NAN, t == token);
            }
            codes_free(&codes);
            free(tensor.x);
        }
    }
}
END_TEST

START_TEST(other_documents_change_nothing_but_under_tensor_scales)
{
    struct random_stream stream = random_stream(9);
    static const size_t lengths[] = {20, 44, 7};
    struct tensor tensor = tensor_make(&stream, lengths, 3, 1, 32, 1), scaled = tensor;
    scaled.x = test_alloc((tensor.tokens * tensor.stride + 1) * sizeof *scaled.x);
    memcpy(scaled.x, tensor.x, tensor.tokens * tensor.stride * sizeof *scaled.x);
    for (size_t i = 20 * tensor.stride; i < 64 * tensor.stride; i++) {
        scaled.x[i] *= 1000;
    }
    for (size_t i = 0; i < recipe_count(); i++) {
        for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
            struct codes before = quantize(recipe_at(i), role, &tensor), after = quantize(recipe_at(i), role, &scaled);
            const int first = memcmp(before.operand.values, after.operand.values, 20 * 32 * sizeof(float)) != 0;
            const int last =
                memcmp(before.operand.values + 64 * 32, after.operand.values + 64 * 32, 7 * 32 * sizeof(float)) != 0;
            const int tensor_wide = operand_representation(recipe_at(i), role) == REPRESENTATION_E4M3_TENSOR;
            expect(first == tensor_wide && last == tensor_wide, "%s, %s", recipe_at(i)->name, operand_role_name(role));
            codes_free(&before);
            codes_free(&after);
        }
    }
    free(tensor.x);
    free(scaled.x);
}
END_TEST

START_TEST(one_column_shows_how_far_a_later_token_reaches)
{
    /* 32 tokens of 0.3 and the last one swept: E4M3 keeps 0.3125 up to 3000 and loses it at 30000, as published; the
     * 4-bit groups along tokens move at once, and only inside the last token's group of 16 or through t. */
    struct random_stream stream = random_stream(10);
    static const size_t lengths[] = {32};
    static const struct {
        float last, value;
    } sweep[] = {{0.3f, 0.3125f}, {3, 0.3125f}, {30, 0.3125f}, {3000, 0.3125f}, {30000, 0.25f}};
    struct tensor tensor = tensor_make(&stream, lengths, 1, 1, 16, 0);
    for (size_t s = 0; s < sizeof sweep / sizeof *sweep; s++) {
        for (size_t token = 0; token < 32; token++) {
            tensor.x[token * tensor.stride] = token < 31 ? 0.3f : sweep[s].last;
        }
        struct codes codes = quantize(recipe_find("mxfp8"), ROLE_VALUE_OUTPUT, &tensor);
        ck_assert_float_eq(codes.operand.values[0], sweep[s].value);
        codes_free(&codes);
    }
    struct codes grouped = quantize(recipe_find("fp4-leaky"), ROLE_VALUE_OUTPUT, &tensor);
    struct codes keyed = quantize(recipe_find("fp4"), ROLE_VALUE_OUTPUT_DIAGONAL, &tensor);
    ck_assert_float_eq(grouped.operand.values[30 * 16], 0);   /* swallowed by its neighbour */
    ck_assert_float_eq(keyed.operand.values[30 * 16], 0.25f); /* its own exponent: 0.3 / 2^-4 = 4.8 -> 4 */
    codes_free(&grouped);
    codes_free(&keyed);
    free(tensor.x);
}
END_TEST

START_TEST(row_groups_and_column_groups_of_one_tensor_differ)
{
    struct random_stream stream = random_stream(11);
    static const size_t lengths[] = {64};
    struct tensor tensor = tensor_make(&stream, lengths, 1, 1, 64, 1);
    for (size_t i = 0; i < 64; i++) {
        tensor.x[9 * tensor.stride + i] *= 500; /* one outlier token */
    }
    struct codes along_d = quantize(recipe_find("fp4"), ROLE_QUERY_SCORE, &tensor);
    struct codes along_t = quantize(recipe_find("fp4"), ROLE_QUERY_DKEY, &tensor);
    size_t zeros_d = 0, zeros_t = 0;
    for (size_t i = 0; i < 64; i++) {
        zeros_d += along_d.operand.values[8 * 64 + i] == 0;
        zeros_t += along_t.operand.values[8 * 64 + i] == 0;
    }
    ck_assert_uint_lt(zeros_d, 32); /* its own scale: a quarter of its amax / 24 rounds to 0 */
    ck_assert_uint_gt(zeros_t, 55); /* shares a scale with the outlier */
    codes_free(&along_d);
    codes_free(&along_t);
    free(tensor.x);
}
END_TEST

START_TEST(missing_output_buffers_are_allowed)
{
    struct random_stream stream = random_stream(12);
    struct tensor tensor = tensor_make(&stream, odd_lengths, ODD_COUNT, 2, 16, 1);
    for (size_t i = 0; i < recipe_count(); i++) {
        for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
            struct codes all = quantize(recipe_at(i), role, &tensor);
            struct operand values = {.values = test_alloc(all.elements * sizeof(float))};
            quantize_operand_cpu(recipe_at(i), role, documents_of(&tensor), tensor.tokens, 2, 16, tensor.x,
                                 tensor.stride, &values);
            ck_assert_mem_eq(values.values, all.operand.values, all.elements * sizeof(float));
            free(values.values);
            codes_free(&all);
        }
    }
    free(tensor.x);
}
END_TEST

Suite *suite_quantize(void);

Suite *suite_quantize(void)
{
    Suite *suite = suite_create("quantize");
    TCase *tcase = tcase_create("quantize");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, every_operand_of_every_recipe_has_its_definitions_bits);
    tcase_add_test(tcase, magnitudes_from_the_smallest_to_the_largest_keep_their_bits);
    tcase_add_test(tcase, blocks_with_outliers_keep_their_bits);
    tcase_add_test(tcase, both_exponent_rules_and_every_grouping_keep_their_bits);
    tcase_add_test(tcase, nvfp4_bits_agree_on_many_blocks_at_twenty_magnitudes);
    tcase_add_test(tcase, zero_blocks_are_zero_codes_and_finite_scales);
    tcase_add_test(tcase, a_group_whose_scale_underflows_becomes_zero_not_nan);
    tcase_add_test(tcase, nan_or_infinity_at_any_position_marks_its_whole_block);
    tcase_add_test(tcase, other_documents_change_nothing_but_under_tensor_scales);
    tcase_add_test(tcase, one_column_shows_how_far_a_later_token_reaches);
    tcase_add_test(tcase, row_groups_and_column_groups_of_one_tensor_differ);
    tcase_add_test(tcase, missing_output_buffers_are_allowed);
    suite_add_tcase(suite, tcase);
    return suite;
}
