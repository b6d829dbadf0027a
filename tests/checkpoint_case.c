/* checkpoint_case.c: see checkpoint_case.h. */
#include "tests/checkpoint_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/options.h"

struct checkpoint_case checkpoint_case_make(enum model_family family)
{
    struct checkpoint_case run = {.run = path_in(scratch_folder(), "run")};
    struct error error = {0};
    options_defaults(COMMAND_TRAIN, &run.settings);
    run.settings.sequence_length = 16;
    run.settings.keep = 0;
    run.settings.model = (struct model_config){
        .family = family,
        .layers = 1,
        .width = 16,
        .heads = 1,
        .kv_heads = 1,
        .head_dim = 16,
        .ffn = 64,
        .vocabulary = 7,
        .padded_vocabulary = 128,
        .context = 16,
        .tied_head = family == MODEL_GPT2,
        .norm_epsilon = 1e-5f,
        .rope_base = 10000,
    };
    const struct network_options options = {.max_tokens = 16, .training = true};
    run.state.network = network_create(&run.settings.model, &options, &error);
    ck_assert_msg(run.state.network != NULL, "%s", error.text);
    ck_assert_msg(adamw_create(&run.state.adamw, network_table(run.state.network), &error), "%s", error.text);
    memset(network_parameters(run.state.network), 0, network_table(run.state.network)->elements * sizeof(float));
    return run;
}

void checkpoint_case_free(struct checkpoint_case *run)
{
    adamw_destroy(&run->state.adamw);
    network_destroy(run->state.network);
}

/* Any bits at all, NaN payloads included: a checkpoint keeps them. */
static float value_at(uint64_t seed, int64_t step, size_t buffer, size_t index)
{
    struct random_stream random = {seed + (uint64_t)step * 1000003 + buffer * 7919 + index * 31};
    const uint32_t bits = (uint32_t)random_bits(&random);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float *buffer_of(const struct checkpoint_case *run, size_t buffer)
{
    return buffer == 0   ? network_parameters(run->state.network)
           : buffer == 1 ? run->state.adamw.mean
                         : run->state.adamw.square;
}

void checkpoint_case_fill(struct checkpoint_case *run, uint64_t seed, int64_t step)
{
    const struct parameter_table *table = network_table(run->state.network);
    for (size_t buffer = 0; buffer < 3; buffer++) {
        for (size_t i = 0; i < table->count; i++) {
            const struct parameter *parameter = &table->entries[i];
            for (size_t j = 0; j < parameter->rows * parameter->columns; j++) {
                buffer_of(run, buffer)[parameter->offset + j] = value_at(seed, step, buffer, parameter->offset + j);
            }
        }
    }
    run->state.adamw.updates = step - 1;
    run->state.step = step;
    run->state.sample = UINT64_MAX - (uint64_t)step; /* beyond what JSON's integers hold */
    run->state.skipped = 1;
    run->state.tokens = step * INT64_C(1000000007);
    run->state.seconds = (double)step / 3;
}

void checkpoint_case_expect(const struct checkpoint_case *run, uint64_t seed, int64_t step)
{
    const struct parameter_table *table = network_table(run->state.network);
    for (size_t buffer = 0; buffer < 3; buffer++) {
        for (size_t i = 0; i < table->count; i++) {
            const struct parameter *parameter = &table->entries[i];
            for (size_t j = 0; j < parameter->rows * parameter->columns; j++) {
                const float expected = value_at(seed, step, buffer, parameter->offset + j);
                expect(memcmp(&buffer_of(run, buffer)[parameter->offset + j], &expected, sizeof expected) == 0,
                       "buffer %zu, %s, element %zu is not that of step %" PRId64, buffer, parameter->name, j, step);
            }
        }
    }
    ck_assert_int_eq(run->state.adamw.updates, step - 1);
    ck_assert_int_eq(run->state.step, step);
    ck_assert(run->state.sample == UINT64_MAX - (uint64_t)step);
    ck_assert_int_eq(run->state.skipped, 1);
    ck_assert_int_eq(run->state.tokens, step * INT64_C(1000000007));
    ck_assert(run->state.seconds == (double)step / 3);
}

void checkpoint_case_save(struct checkpoint_case *run, uint64_t seed, int64_t step)
{
    struct error error = {0};
    checkpoint_case_fill(run, seed, step);
    ck_assert_msg(checkpoint_save(run->run, &run->state, &run->settings, CASE_IDENTITY, NULL, &error), "%s",
                  error.text);
}

int64_t checkpoint_case_load(struct checkpoint_case *run, uint64_t seed)
{
    struct error error = {0};
    struct checkpoint_info info;
    char folder[CHECKPOINT_PATH];
    ck_assert_msg(checkpoint_find(run->run, folder, &error), "nothing to load: %s", error.text);
    ck_assert_msg(checkpoint_read_info(folder, &info, &error), "%s", error.text);
    ck_assert_msg(checkpoint_agrees(&info, &run->settings, CASE_IDENTITY, folder, &error), "%s", error.text);
    checkpoint_case_fill(run, seed + 1, info.step + 1); /* so that nothing is right by chance */
    ck_assert_msg(checkpoint_read(folder, &info, &run->state, &error), "%s", error.text);
    checkpoint_case_expect(run, seed, info.step);
    return info.step;
}

const char *checkpoint_case_path(const struct checkpoint_case *run, int64_t step, const char *name)
{
    char text[96];
    snprintf(text, sizeof text, "checkpoints/step_%08" PRId64 "%s%s", step, name[0] ? "/" : "", name);
    return path_in(run->run, text);
}
