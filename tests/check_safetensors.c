/* check_safetensors.c: what is written is read back, and every way to lie in a header is refused with its reason. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "data/safetensors.h"
#include "tests/files.h"

Suite *suite_safetensors(void);

/* A file in memory from its header's text and `data` bytes of tensors. `length` < 0: the header's true length. */
static uint8_t *make_file(const char *header, int64_t length, size_t data, size_t *size)
{
    const size_t text = strlen(header);
    *size = 8 + text + data;
    uint8_t *bytes = test_alloc(*size);
    file_put_u64(bytes, length < 0 ? text : (uint64_t)length);
    memcpy(bytes + 8, header, text);
    return bytes;
}

static struct safetensors *parse(const uint8_t *bytes, size_t size, struct error *error)
{
    struct file file;
    *error = (struct error){0};
    ck_assert(file_open_memory(&file, bytes, size, "x.safetensors", error));
    return safetensors_open_file(&file, error);
}

static void assert_refused(const char *header, int64_t length, size_t data, const char *reason)
{
    size_t size;
    struct error error;
    uint8_t *bytes = make_file(header, length, data, &size);
    struct safetensors *tensors = parse(bytes, size, &error);
    ck_assert_msg(tensors == NULL, "taken: %s", header);
    assert_error_names(&error, "x.safetensors");
    assert_error_names(&error, reason);
    free(bytes);
}

START_TEST(file_made_by_hand_is_read)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[8,14]},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                                 "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[14,22]},"
                                 "\"none\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[14,14]}}   ";
    size_t size;
    struct error error;
    uint8_t *bytes = make_file(header, -1, 22, &size);
    for (size_t i = 0; i < 22; i++) {
        bytes[size - 22 + i] = (uint8_t)i;
    }
    struct safetensors *tensors = parse(bytes, size, &error);
    ck_assert_msg(tensors != NULL, "%s", error.text);
    ck_assert_uint_eq(safetensors_count(tensors), 4);
    ck_assert_str_eq(safetensors_entry(tensors, 0)->name, "a");
    ck_assert_str_eq(safetensors_entry(tensors, 2)->name, "none");
    ck_assert_ptr_null(safetensors_entry(tensors, 4));
    ck_assert_str_eq(safetensors_metadata(tensors, "format"), "pt");
    ck_assert_ptr_null(safetensors_metadata(tensors, "other"));
    ck_assert_ptr_null(safetensors_find(tensors, "__metadata__"));
    const struct tensor_entry *b = safetensors_find(tensors, "b"), *step = safetensors_find(tensors, "step");
    ck_assert(b && b->type == TENSOR_BF16 && b->elements == 3 && b->bytes == 6 && b->dimensions == 1 &&
              b->shape[0] == 3);
    ck_assert(step && step->type == TENSOR_I64 && step->elements == 1 && step->dimensions == 0);
    uint8_t six[6];
    ck_assert(safetensors_read(tensors, b, six, &error));
    ck_assert_mem_eq(six, "\x08\x09\x0a\x0b\x0c\x0d", 6);
    safetensors_close(tensors);
    free(bytes);
}
END_TEST

START_TEST(random_tensors_come_back)
{
    struct random_stream random = random_stream(1);
    const char *path = path_in(scratch_folder(), "x.safetensors");
    struct tensor_source sources[20];
    char names[20][40];
    const size_t count = random_below(&random, 21);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 1;
        snprintf(names[i], sizeof names[i], "layer.%zu.\xc3\xa4\"", i);
        sources[i] = (struct tensor_source){.name = names[i],
                                            .type = (enum tensor_type)random_below(&random, TENSOR_TYPE_COUNT),
                                            .dimensions = random_below(&random, 4)};
        for (size_t d = 0; d < sources[i].dimensions; d++) {
            sources[i].shape[d] = (int64_t)random_below(&random, 30);
            bytes *= (size_t)sources[i].shape[d];
        }
        bytes *= tensor_type_size(sources[i].type);
        uint8_t *data = test_alloc(bytes);
        for (size_t b = 0; b < bytes; b++) {
            data[b] = (uint8_t)random_bits(&random);
        }
        sources[i].data = data;
    }
    const struct tensor_text metadata[] = {{"step", "12"}, {"note", "a \"quoted\" text"}};
    struct error error = {0};
    ck_assert_msg(safetensors_write(path, sources, count, metadata, 2, &error), "%s", error.text);
    struct safetensors *tensors = safetensors_open(path, &error);
    ck_assert_msg(tensors != NULL, "%s", error.text);
    ck_assert_uint_eq(safetensors_count(tensors), count);
    ck_assert_str_eq(safetensors_metadata(tensors, "note"), metadata[1].value);
    for (size_t i = 0; i < count; i++) {
        const struct tensor_entry *entry =
            safetensors_expect(tensors, names[i], sources[i].type, sources[i].dimensions, sources[i].shape, &error);
        ck_assert_msg(entry != NULL, "%s", error.text);
        uint8_t *read = test_alloc(entry->bytes);
        ck_assert(safetensors_read(tensors, entry, read, &error));
        ck_assert(entry->bytes == 0 || memcmp(read, sources[i].data, entry->bytes) == 0);
        free(read);
        free((void *)sources[i].data);
    }
    safetensors_close(tensors);
}
END_TEST

START_TEST(written_bytes_are_the_format)
{
    /* Read with the format's description in hand, not with the reader: length, JSON, padding to 8 with spaces, data. */
    const char *path = path_in(scratch_folder(), "x.safetensors");
    const float values[] = {1, 2, 3};
    const struct tensor_source source = {
        .name = "w", .type = TENSOR_F32, .dimensions = 1, .shape = {3}, .data = values};
    static const char expected[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}";
    struct error error;
    ck_assert(safetensors_write(path, &source, 1, NULL, 0, &error));
    size_t size;
    uint8_t *bytes = read_file(path, &size);
    const size_t length = (size_t)file_get_u64(bytes);
    ck_assert_uint_eq(length % 8, 0);
    ck_assert_uint_eq(size, 8 + length + 12);
    ck_assert_mem_eq(bytes + 8, expected, strlen(expected));
    for (size_t i = strlen(expected); i < length; i++) {
        ck_assert_uint_eq(bytes[8 + i], ' ');
    }
    ck_assert_mem_eq(bytes + 8 + length, values, 12);
    free(bytes);
}
END_TEST

START_TEST(header_length_is_limited)
{
    static const int64_t lengths[] = {3, 100000000, 100000001, INT64_MAX, INT64_MIN + 0};
    assert_refused("{}", lengths[0], 0, "header of 3 bytes");
    assert_refused("{}", lengths[1], 0, "header of 100000000 bytes");
    assert_refused("{}", lengths[2], 0, "header of 100000001 bytes");
    assert_refused("{}", lengths[3], 0, "header of 9223372036854775807 bytes");
    uint8_t bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}'};
    struct error error;
    ck_assert_ptr_null(parse(bytes, 10, &error)); /* 2^63 */
    assert_error_names(&error, "9223372036854775808");
    memset(bytes, 0xFF, 8);
    ck_assert_ptr_null(parse(bytes, 10, &error)); /* 2^64 - 1: added to 8 it would wrap */
    assert_error_names(&error, "18446744073709551615");
    for (size_t size = 0; size < 8; size++) {
        ck_assert_ptr_null(parse(bytes, size, &error));
        assert_error_names(&error, "was cut");
    }
}
END_TEST

START_TEST(header_that_is_no_json_object_is_refused)
{
    static const char *const headers[] = {"", " {}", "[]", "1", "{", "{}x", "{\"a\"}", "{\"a\":}", "{\"\xff\":1}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        assert_refused(headers[i], -1, 0, "header");
    }
    char *deep = test_alloc(100001);
    memset(deep, '[', 100000);
    deep[0] = '{', deep[100000] = '\0';
    assert_refused(deep, -1, 0, "header");
    memcpy(deep, "{\"a\":", 5);
    assert_refused(deep, -1, 0, "header");
    free(deep);
}
END_TEST

#define ENTRY(type, shape, offsets) "{\"a\":{\"dtype\":" type ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

START_TEST(entry_that_lies_is_refused)
{
    static const struct {
        const char *header;
        size_t data;
        const char *reason;
    } faults[] = {
        {ENTRY("\"F64\"", "[1]", "[0,8]"), 8, "dtype \"F64\""},
        {ENTRY("\"f32\"", "[1]", "[0,4]"), 4, "dtype \"f32\""},
        {ENTRY("4", "[1]", "[0,4]"), 4, "dtype"},
        {ENTRY("\"F32\"", "4", "[0,4]"), 4, "shape"},
        {ENTRY("\"F32\"", "[-1]", "[0,4]"), 4, "shape"},
        {ENTRY("\"F32\"", "[1.0]", "[0,4]"), 4, "shape"},
        {ENTRY("\"F32\"", "[\"1\"]", "[0,4]"), 4, "shape"},
        {ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "shape"},
        {ENTRY("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "overflows"},
        {ENTRY("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, "overflows"},
        {ENTRY("\"F32\"", "[9223372036854775807,2,0]", "[0,0]"), 0, "overflows"},
        {ENTRY("\"F32\"", "[9223372036854775808]", "[0,4]"), 4, "header"},
        {ENTRY("\"F32\"", "[2]", "[0,4]"), 4, "needs 8 bytes"},
        {ENTRY("\"F16\"", "[2]", "[0,8]"), 8, "needs 4 bytes"},
        {ENTRY("\"F32\"", "[]", "[0,8]"), 8, "needs 4 bytes"},
        {ENTRY("\"F32\"", "[0]", "[0,4]"), 4, "needs 0 bytes"},
        {ENTRY("\"F32\"", "[1]", "[4,0]"), 4, "bytes 4 to 0"},
        {ENTRY("\"F32\"", "[1]", "[-4,0]"), 4, "bytes -4 to 0"},
        {ENTRY("\"F32\"", "[2]", "[0,8]"), 4, "of the 4 that the file has"},
        {ENTRY("\"F32\"", "[1]", "[9223372036854775804,9223372036854775807]"), 4, "of the 4"},
        {ENTRY("\"F32\"", "[1]", "[0]"), 4, "data_offsets"},
        {ENTRY("\"F32\"", "[1]", "[0,4,8]"), 4, "data_offsets"},
        {ENTRY("\"F32\"", "[1]", "[0.0,4]"), 4, "data_offsets"},
        {ENTRY("\"F32\"", "[1]", "4"), 4, "data_offsets"},
        {"{\"a\":3}", 0, "no object"},
        {"{\"a\":{}}", 0, "no object"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "no object"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "no object"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "empty name"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
        {ENTRY("\"F32\"", "[1]", "[0,4]"), 5, "1 bytes behind the last tensor"},
        {ENTRY("\"F32\"", "[1]", "[4,8]"), 8, "a gap"},
        {"{}", 1, "1 bytes behind"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_refused(faults[i].header, -1, faults[i].data, faults[i].reason);
    }
}
END_TEST

#define TWO(name, begin, end)                                                                                          \
    "{\"k\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"" name                                          \
    "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" begin "," end "]}}"

START_TEST(tensors_that_share_or_leave_bytes_are_refused)
{
    assert_refused(TWO("v", "0", "8"), -1, 8, "overlap");
    assert_refused(TWO("v", "4", "12"), -1, 12, "overlap");
    assert_refused(TWO("v", "12", "20"), -1, 20, "a gap");
    assert_refused(TWO("k", "8", "16"), -1, 16, "duplicate");
    assert_refused(TWO("\\u006b", "8", "16"), -1, 16, "duplicate");
    size_t size;
    struct error error;
    uint8_t *bytes = make_file(TWO("v", "8", "16"), -1, 16, &size);
    struct safetensors *tensors = parse(bytes, size, &error);
    ck_assert_msg(tensors != NULL, "%s", error.text);
    safetensors_close(tensors);
    free(bytes);
}
END_TEST

START_TEST(every_cut_is_refused)
{
    size_t size;
    struct error error;
    uint8_t *bytes = make_file(TWO("v", "8", "16"), -1, 16, &size);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = test_alloc(cut); /* its own block: reading past it is seen by the sanitizers */
        memcpy(part, bytes, cut);
        ck_assert_ptr_null(parse(part, cut, &error));
        assert_error_names(&error, "x.safetensors");
        free(part);
    }
    free(bytes);
}
END_TEST

START_TEST(changed_headers_are_refused_or_make_sense)
{
    struct random_stream random = random_stream(2);
    size_t size;
    struct error error;
    uint8_t *bytes = make_file(TWO("v", "8", "16"), -1, 16, &size);
    for (int round = 0; round < 20000; round++) {
        const size_t at = random_below(&random, size - 16);
        const uint8_t before = bytes[at];
        bytes[at] = random_below(&random, 2) ? (uint8_t)random_bits(&random)
                                             : (uint8_t) "0123456789{}[],:\"-."[random_below(&random, 19)];
        struct safetensors *tensors = parse(bytes, size, &error);
        if (tensors) {
            uint64_t total = 0;
            for (size_t i = 0; i < safetensors_count(tensors); i++) {
                total += safetensors_entry(tensors, i)->bytes;
            }
            ck_assert_uint_eq(total, 16); /* all the data there is, once */
            safetensors_close(tensors);
        } else {
            ck_assert_int_ne(error.code, ERROR_NONE);
        }
        bytes[at] = before;
    }
    free(bytes);
}
END_TEST

START_TEST(expected_tensor_is_compared)
{
    size_t size;
    struct error error;
    uint8_t *bytes = make_file(ENTRY("\"F32\"", "[2,3]", "[0,24]"), -1, 24, &size);
    struct safetensors *tensors = parse(bytes, size, &error);
    const int64_t right[] = {2, 3}, wrong[] = {3, 2};
    ck_assert_ptr_nonnull(safetensors_expect(tensors, "a", TENSOR_F32, 2, right, &error));
    ck_assert_ptr_null(safetensors_expect(tensors, "a", TENSOR_F32, 2, wrong, &error));
    assert_error_names(&error, "is F32 [2, 3], expected F32 [3, 2]");
    ck_assert_ptr_null(safetensors_expect(tensors, "a", TENSOR_F32, 1, right, &error));
    ck_assert_ptr_null(safetensors_expect(tensors, "a", TENSOR_BF16, 2, right, &error));
    assert_error_names(&error, "expected BF16 [2, 3]");
    ck_assert_ptr_null(safetensors_expect(tensors, "b", TENSOR_F32, 2, right, &error));
    assert_error_names(&error, "\"b\" is not there");
    safetensors_close(tensors);
    free(bytes);
}
END_TEST

START_TEST(sources_that_cannot_be_written_are_refused)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "x.safetensors");
    const float value = 0;
    const struct tensor_source good = {.name = "a", .type = TENSOR_F32, .dimensions = 1, .shape = {1}, .data = &value};
    struct tensor_source pairs[8][2];
    for (size_t i = 0; i < 8; i++) {
        pairs[i][0] = pairs[i][1] = good;
        pairs[i][1].name = "b";
    }
    pairs[0][1].name = "a", pairs[1][1].name = "", pairs[2][1].name = "__metadata__", pairs[3][1].name = "\xff";
    pairs[4][1].shape[0] = -1, pairs[5][1].dimensions = 9, pairs[6][1].type = TENSOR_TYPE_COUNT;
    pairs[7][1].dimensions = 2, pairs[7][1].shape[0] = pairs[7][1].shape[1] = INT64_MAX / 2;
    for (size_t i = 0; i < 8; i++) {
        struct error error = {0};
        ck_assert_msg(!safetensors_write(path, pairs[i], 2, NULL, 0, &error), "case %zu", i);
        assert_error_names(&error, path);
    }
    const struct tensor_text twice[] = {{"k", "1"}, {"k", "2"}}, broken[] = {{"k", "\xff"}};
    struct error error;
    ck_assert(!safetensors_write(path, &good, 1, twice, 2, &error));
    ck_assert(!safetensors_write(path, &good, 1, broken, 1, &error));
    ck_assert_uint_eq(files_in(folder), 0);
}
END_TEST

START_TEST(full_disk_keeps_the_old_file)
{
    const char *folder = scratch_folder(), *path = path_in(folder, "x.safetensors");
    float *values = test_alloc(400000);
    struct tensor_source source = {.name = "a", .type = TENSOR_F32, .dimensions = 1, .shape = {10}, .data = values};
    struct error error = {0};
    ck_assert(safetensors_write(path, &source, 1, NULL, 0, &error));
    struct rlimit before, low;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 200000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    source.shape[0] = 100000;
    const bool written = safetensors_write(path, &source, 1, NULL, 0, &error);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    ck_assert(!written);
    assert_error_names(&error, path);
    struct safetensors *tensors = safetensors_open(path, &error);
    ck_assert_msg(tensors != NULL, "%s", error.text);
    ck_assert_uint_eq(safetensors_find(tensors, "a")->elements, 10);
    safetensors_close(tensors);
    ck_assert_uint_eq(files_in(folder), 1);
    assert_devices_are_safe();
    ck_assert(!safetensors_write("/dev/full", &source, 1, NULL, 0, &error));
    free(values);
}
END_TEST

Suite *suite_safetensors(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tests = tcase_create("safetensors");
    tcase_add_test(tests, file_made_by_hand_is_read);
    tcase_add_test(tests, random_tensors_come_back);
    tcase_add_test(tests, written_bytes_are_the_format);
    tcase_add_test(tests, header_length_is_limited);
    tcase_add_test(tests, header_that_is_no_json_object_is_refused);
    tcase_add_test(tests, entry_that_lies_is_refused);
    tcase_add_test(tests, tensors_that_share_or_leave_bytes_are_refused);
    tcase_add_test(tests, every_cut_is_refused);
    tcase_add_test(tests, changed_headers_are_refused_or_make_sense);
    tcase_add_test(tests, expected_tensor_is_compared);
    tcase_add_test(tests, sources_that_cannot_be_written_are_refused);
    tcase_add_test(tests, full_disk_keeps_the_old_file);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return suite;
}
