/* check_cuda_emulator.c: the pieces the kernels are made of (matrix products, warps, barriers, copies), on the device
 * at hand; and, where that is the emulator, that it finds mistakes. */
#include <stdlib.h>
#include <string.h>

#include "attention/formats.h"
#include "tests/device_kernels.h"
#include "tests/support_device.h"

/* ---- matrix products: small integers, so that every sum is exact ---- */

struct product {
    float a[16 * 16], b[16 * 8], c[16 * 8];
};

static void fill_integers(struct random_stream *random, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)random_below(random, 401) - 200.0f;
    }
}

static void check_product(bool (*multiply)(const uint16_t *, const uint16_t *, float *, device_stream))
{
    struct random_stream random = random_stream(1);
    struct product product;
    fill_integers(&random, product.a, 16 * 16);
    fill_integers(&random, product.b, 16 * 8);
    fill_integers(&random, product.c, 16 * 8);
    uint16_t *a = upload_bf16(product.a, 16 * 16), *b = upload_bf16(product.b, 16 * 8);
    float *c = upload(product.c, sizeof product.c), result[16 * 8];
    ck_assert(multiply(a, b, c, NULL));
    download(result, c, sizeof result);
    for (size_t row = 0; row < 16; row++) {
        for (size_t column = 0; column < 8; column++) {
            float sum = product.c[row * 8 + column];
            for (size_t k = 0; k < 16; k++) {
                sum += product.a[row * 16 + k] * product.b[k * 8 + column];
            }
            ck_assert_float_eq(result[row * 8 + column], sum);
        }
    }
    release(a);
    release(b);
    release(c);
}

START_TEST(product_fragments_lie_as_ptx_says)
{
    device_for_test();
    check_product(trial_product);
}
END_TEST

START_TEST(ldmatrix_gives_the_product_its_fragments)
{
    device_for_test();
    check_product(trial_tile_product);
}
END_TEST

/* ---- warps ---- */

static int32_t shuffled(const int32_t *in, int lane, int kind, int parameter, int width)
{
    const int first = lane / width * width;
    const int sources[4] = {first + parameter % width, lane - parameter < first ? lane : lane - parameter,
                            lane + parameter >= first + width ? lane : lane + parameter,
                            (lane ^ parameter) >= first + width ? lane : lane ^ parameter};
    return in[sources[kind]];
}

START_TEST(shuffles_read_the_lane_they_name)
{
    device_for_test();
    struct random_stream random = random_stream(2);
    int32_t in[32], out[128];
    for (size_t i = 0; i < 32; i++) {
        in[i] = (int32_t)random_bits(&random);
    }
    int32_t *from = upload(in, sizeof in), *to = upload(NULL, sizeof out);
    for (int width = 2; width <= 32; width *= 2) {
        const int parameter = (int)random_below(&random, (size_t)width);
        ck_assert(trial_shuffles(from, to, parameter, width, NULL));
        download(out, to, sizeof out);
        for (int i = 0; i < 128; i++) {
            ck_assert_msg(out[i] == shuffled(in, i % 32, i / 32, parameter, width),
                          "kind %d, lane %d, parameter %d, width %d", i / 32, i % 32, parameter, width);
        }
    }
    release(from);
    release(to);
}
END_TEST

START_TEST(votes_count_every_lane)
{
    device_for_test();
    struct random_stream random = random_stream(3);
    for (unsigned round = 0; round < 4; round++) { /* none set, all set, some, some */
        uint32_t in[32], out[4], ballot = 0, largest = 0;
        for (size_t i = 0; i < 32; i++) {
            in[i] = round == 0 ? 0 : (uint32_t)random_bits(&random) | 1u;
            in[i] = round >= 2 && random_below(&random, 2) ? 0 : in[i];
            ballot |= in[i] ? 1u << i : 0u;
            largest = in[i] > largest ? in[i] : largest;
        }
        uint32_t *from = upload(in, sizeof in), *to = upload(NULL, sizeof out);
        ck_assert(trial_votes(from, to, NULL));
        download(out, to, sizeof out);
        ck_assert_uint_eq(out[0], ballot);
        ck_assert_uint_eq(out[1], ballot != 0);
        ck_assert_uint_eq(out[2], ballot == 0xFFFFFFFFu);
        ck_assert_uint_eq(out[3], largest);
        release(from);
        release(to);
    }
}
END_TEST

/* ---- blocks ---- */

START_TEST(barriers_order_a_tree_of_sums)
{
    enum { BLOCKS = 37 };
    device_for_test();
    struct random_stream random = random_stream(4);
    int32_t *in = test_alloc(BLOCKS * TRIAL_THREADS * sizeof *in), out[BLOCKS], sums[BLOCKS] = {0}, all = 0, total = 0;
    for (size_t i = 0; i < BLOCKS * TRIAL_THREADS; i++) {
        in[i] = (int32_t)random_below(&random, 1000);
        sums[i / TRIAL_THREADS] += in[i];
        total += in[i];
    }
    int32_t *from = upload(in, BLOCKS * TRIAL_THREADS * sizeof *in), *to = upload(NULL, sizeof out),
            *sum = upload(&all, sizeof all);
    ck_assert(trial_sums(from, to, sum, BLOCKS, NULL));
    download(out, to, sizeof out);
    download(&all, sum, sizeof all);
    ck_assert_mem_eq(out, sums, sizeof sums);
    ck_assert_int_eq(all, total);
    release(from);
    release(to);
    release(sum);
    free(in);
}
END_TEST

static size_t wrong_neighbours(bool barrier)
{
    int32_t out[TRIAL_THREADS], *to = upload(NULL, sizeof out);
    ck_assert(trial_neighbours(to, barrier, NULL));
    download(out, to, sizeof out);
    release(to);
    size_t wrong = 0;
    for (int i = 0; i < TRIAL_THREADS; i++) {
        wrong += out[i] != (i + 1) % TRIAL_THREADS;
    }
    return wrong;
}

START_TEST(shared_memory_is_seen_after_a_barrier)
{
    device_for_test();
    ck_assert_uint_eq(wrong_neighbours(true), 0);
}
END_TEST

START_TEST(cp_async_is_there_after_the_wait)
{
    device_for_test();
    const uint32_t in[4] = {7, 8, 9, 10};
    uint32_t out[4], *from = upload(in, sizeof in), *to = upload(NULL, sizeof out);
    ck_assert(trial_copy(from, to, NULL));
    download(out, to, sizeof out);
    ck_assert_uint_eq(out[1], 7);
    ck_assert_uint_eq(out[3], 0);
    if (IS_EMULATED) { /* as late as the hardware may: poison before */
        ck_assert_uint_eq(out[0], 0xFFFFFFFFu);
        ck_assert_uint_eq(out[2], 0xFFFFFFFFu);
    }
    release(from);
    release(to);
}
END_TEST

/* ---- graphs ---- */

START_TEST(a_graph_does_its_work_when_launched_and_not_before)
{
    device_for_test();
    enum { COUNT = 1000 };
    int32_t zeros[COUNT] = {0}, out[COUNT], *x = upload(zeros, sizeof zeros);
    device_stream stream;
    device_graph graph;
    struct error error;
    must(device_stream_create(&stream, &error) && device_graph_begin(stream, &error), &error);
    ck_assert(trial_increment(x, COUNT, stream) && trial_increment(x, COUNT, stream));
    must(device_graph_end(stream, &graph, &error), &error);
    download(out, x, sizeof out);
    ck_assert_int_eq(out[COUNT - 1], 0);
    for (int i = 0; i < 3; i++) {
        must(device_graph_launch(graph, stream, &error), &error);
    }
    must(device_stream_wait(stream, &error), &error);
    download(out, x, sizeof out);
    ck_assert_int_eq(out[0], 6);
    ck_assert_int_eq(out[COUNT - 1], 6);
    must(device_graph_destroy(graph, &error) && device_stream_destroy(stream, &error), &error);
    release(x);
}
END_TEST

START_TEST(waiting_spoils_a_capture)
{
    device_for_test();
    device_stream stream;
    device_graph graph;
    struct error error;
    must(device_stream_create(&stream, &error) && device_graph_begin(stream, &error), &error);
    ck_assert(!device_stream_wait(stream, &error));
    ck_assert(!device_graph_end(stream, &graph, &error));
    ck_assert_ptr_null(graph);
}
END_TEST

/* ---- the device ---- */

START_TEST(out_of_memory_names_the_buffer)
{
    device_for_test();
    struct error error;
    ck_assert_ptr_null(device_alloc((size_t)1 << 50, "the logits", &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    ck_assert_msg(strstr(error.text, "the logits") != NULL, "%s", error.text);
    int32_t *x = upload(NULL, 4); /* and the device goes on */
    release(x);
}
END_TEST

START_TEST(a_device_that_is_not_there_is_a_usage_error)
{
    struct device_description description;
    struct error error;
    ck_assert(!device_open(4711, &description, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, "4711") != NULL, "%s", error.text);
}
END_TEST

/* ---- mistakes, in the emulator: the launch fails, or the memory's edge is found damaged when it is freed ---- */

#ifdef EMULATED
START_TEST(a_missing_barrier_shows)
{
    device_for_test();
    ck_assert_uint_gt(wrong_neighbours(false), 0);
}
END_TEST

START_TEST(mistakes_fail_the_launch)
{
    device_for_test();
    int32_t *memory = upload(NULL, 64 * sizeof *memory);
    ck_assert(!trial_mistake((enum trial_mistake)_i, memory, 64, NULL));
}
END_TEST

START_TEST(a_write_before_memory_shows_when_it_is_freed)
{
    device_for_test();
    struct error error;
    int32_t *memory = upload(NULL, 64 * sizeof *memory);
    ck_assert(trial_mistake(MISTAKE_WRITE_BEFORE, memory, 64, NULL));
    ck_assert(!device_free(memory, &error));
}
END_TEST

START_TEST(no_mistake_no_failure)
{
    device_for_test();
    int32_t *memory = upload(NULL, 64 * sizeof *memory);
    for (int i = 0; i < 20; i++) {
        ck_assert(trial_mistake(MISTAKE_NONE, memory, 64, NULL));
    }
    release(memory);
}
END_TEST
#endif

Suite *suite_cuda_emulator(void);
Suite *suite_cuda_emulator(void)
{
    Suite *suite = suite_create("cuda_emulator");
    TCase *tcase = tcase_create("cuda_emulator");
    tcase_add_test(tcase, product_fragments_lie_as_ptx_says);
    tcase_add_test(tcase, ldmatrix_gives_the_product_its_fragments);
    tcase_add_test(tcase, shuffles_read_the_lane_they_name);
    tcase_add_test(tcase, votes_count_every_lane);
    tcase_add_test(tcase, barriers_order_a_tree_of_sums);
    tcase_add_test(tcase, shared_memory_is_seen_after_a_barrier);
    tcase_add_test(tcase, cp_async_is_there_after_the_wait);
    tcase_add_test(tcase, a_graph_does_its_work_when_launched_and_not_before);
    tcase_add_test(tcase, waiting_spoils_a_capture);
    tcase_add_test(tcase, out_of_memory_names_the_buffer);
    tcase_add_test(tcase, a_device_that_is_not_there_is_a_usage_error);
#ifdef EMULATED
    tcase_add_test(tcase, a_missing_barrier_shows);
    tcase_add_loop_test(tcase, mistakes_fail_the_launch, MISTAKE_BARRIER_SKIPPED, MISTAKE_WRITE_BEFORE);
    tcase_add_loop_test(tcase, mistakes_fail_the_launch, MISTAKE_SHARED_BEHIND, MISTAKE_NULL + 1);
    tcase_add_test(tcase, a_write_before_memory_shows_when_it_is_freed);
    tcase_add_test(tcase, no_mistake_no_failure);
#endif
    suite_add_tcase(suite, tcase);
    return suite;
}
