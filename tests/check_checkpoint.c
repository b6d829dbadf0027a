/* check_checkpoint.c: a checkpoint gives back every bit, or is refused; nothing that goes wrong while one is saved
 * takes an earlier one away. Kills while saving are in check_crash.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/checkpoint_case.h"
#include "train/options.h"
#include "train/signals.h"

static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "COMPLETE"};
#define FILES (sizeof files / sizeof *files)

START_TEST(reading_gives_back_every_bit_that_was_saved)
{
    for (int family = MODEL_GPT2; family <= MODEL_LLAMA; family++) {
        struct random_stream random = random_stream((uint64_t)family);
        const uint64_t seed = random_bits(&random);
        struct checkpoint_case run = checkpoint_case_make((enum model_family)family);
        checkpoint_case_save(&run, seed, 1 + (int64_t)random_below(&random, 1000));
        checkpoint_case_load(&run, seed);
        checkpoint_case_free(&run);
    }
}
END_TEST

START_TEST(the_settings_come_back_as_they_were)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_LLAMA);
    struct checkpoint_info info;
    struct error error = {0};
    char message[256];
    run.settings.learning_rate = 1.0 / 3;
    run.settings.schedule = SCHEDULE_WSD;
    run.settings.beta2 = 0.1 + 0.2;
    run.settings.seed = 12345678901;
    snprintf(run.settings.data, sizeof run.settings.data, "a \"folder\"/\xC3\xA4.bin");
    run.settings.recipe = *recipe_find("mxfp8");
    ck_assert_msg(recipe_set(&run.settings.recipe, "dscore-scale=row", message, sizeof message), "%s", message);
    checkpoint_case_save(&run, 1, 3);
    ck_assert_msg(checkpoint_read_info(checkpoint_case_path(&run, 3, ""), &info, &error), "%s", error.text);
    json_t *saved = options_json(COMMAND_TRAIN, &run.settings), *read = options_json(COMMAND_TRAIN, &info.settings);
    ck_assert_ptr_nonnull(saved);
    ck_assert_int_eq(json_equal(saved, read), 1);
    ck_assert(info.settings.learning_rate == 1.0 / 3 && info.settings.beta2 == 0.1 + 0.2);
    ck_assert_int_eq(memcmp(&info.settings.model, &run.settings.model, sizeof info.settings.model), 0);
    json_decref(saved);
    json_decref(read);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_save_leaves_four_files_and_nothing_else)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    char saved[CHECKPOINT_PATH];
    struct error error = {0};
    checkpoint_case_fill(&run, 1, 5);
    ck_assert(checkpoint_save(run.run, &run.state, &run.settings, CASE_IDENTITY, saved, &error));
    ck_assert_str_eq(saved, checkpoint_case_path(&run, 5, ""));
    ck_assert_uint_eq(files_in(saved), FILES);
    ck_assert_uint_eq(files_in(path_in(run.run, "checkpoints")), 1);
    for (size_t i = 0; i < FILES; i++) {
        ck_assert_int_eq(access(path_in(saved, files[i]), R_OK), 0);
    }
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(saving_a_step_again_replaces_it)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    checkpoint_case_save(&run, 1, 5);
    checkpoint_case_save(&run, 2, 5);
    ck_assert_int_eq(checkpoint_case_load(&run, 2), 5);
    ck_assert_uint_eq(files_in(path_in(run.run, "checkpoints")), 1);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(what_a_killed_save_left_is_no_obstacle)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    checkpoint_case_save(&run, 1, 1);
    const char *left = path_in(run.run, "checkpoints/.saving");
    ck_assert_int_eq(mkdir(left, 0777), 0);
    write_file(path_in(left, "model.safetensors"), "half", 4);
    write_file(path_in(left, "COMPLETE"), "", 0);
    ck_assert_int_eq(checkpoint_case_load(&run, 1), 1);
    checkpoint_case_save(&run, 1, 2);
    ck_assert_int_eq(checkpoint_case_load(&run, 1), 2);
    ck_assert_uint_eq(files_in(path_in(run.run, "checkpoints")), 2);
    checkpoint_case_free(&run);
}
END_TEST

/* ---- keeping ---- */

static bool is_there(const struct checkpoint_case *run, int64_t step)
{
    return access(checkpoint_case_path(run, step, "COMPLETE"), F_OK) == 0;
}

START_TEST(the_newest_n_are_kept)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    run.settings.keep = 3;
    for (int64_t step = 1; step <= 7; step++) {
        checkpoint_case_save(&run, 1, 10 * step);
    }
    ck_assert_uint_eq(files_in(path_in(run.run, "checkpoints")), 3);
    ck_assert(is_there(&run, 50) && is_there(&run, 60) && is_there(&run, 70));
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(keep_0_keeps_all)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    for (int64_t step = 1; step <= 5; step++) {
        checkpoint_case_save(&run, 1, step);
    }
    ck_assert_uint_eq(files_in(path_in(run.run, "checkpoints")), 5);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_damaged_checkpoint_is_not_counted_as_kept)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    run.settings.keep = 2;
    checkpoint_case_save(&run, 1, 1);
    checkpoint_case_save(&run, 1, 2);
    ck_assert_int_eq(truncate(checkpoint_case_path(&run, 2, "optimizer.safetensors"), 100), 0);
    checkpoint_case_save(&run, 1, 3);
    ck_assert(is_there(&run, 1) && is_there(&run, 3));
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(an_abandoned_continuation_goes_when_the_new_one_is_saved)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    run.settings.keep = 2;
    checkpoint_case_save(&run, 1, 20);
    checkpoint_case_save(&run, 1, 30);
    checkpoint_case_save(&run, 2, 25); /* resumed from step 20 */
    ck_assert(is_there(&run, 20) && is_there(&run, 25) && !is_there(&run, 30));
    ck_assert_int_eq(checkpoint_case_load(&run, 2), 25);
    checkpoint_case_free(&run);
}
END_TEST

/* ---- damage ---- */

static void refuse_folder(const struct checkpoint_case *run, int64_t step, const char *named)
{
    struct checkpoint_info info;
    struct error error = {0};
    char folder[CHECKPOINT_PATH];
    ck_assert_msg(!checkpoint_read_info(checkpoint_case_path(run, step, ""), &info, &error), "damage in %s was taken",
                  named);
    assert_error_names(&error, named);
    ck_assert(!checkpoint_find(checkpoint_case_path(run, step, ""), folder, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
}

START_TEST(a_file_cut_anywhere_is_refused)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    struct random_stream random = random_stream(10);
    checkpoint_case_save(&run, 1, 1);
    for (size_t i = 0; i < FILES; i++) {
        size_t bytes;
        const char *path = checkpoint_case_path(&run, 1, files[i]);
        uint8_t *whole = read_file(path, &bytes);
        for (size_t round = 0; round < 20; round++) {
            const size_t cut = round == 0 ? 0 : round == 1 ? bytes - 1 : random_below(&random, bytes);
            write_file(path, whole, cut);
            refuse_folder(&run, 1, "step_00000001");
        }
        write_file(path, whole, bytes);
        free(whole);
    }
    ck_assert_int_eq(checkpoint_case_load(&run, 1), 1);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_bit_flipped_anywhere_is_refused)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    struct random_stream random = random_stream(11);
    checkpoint_case_save(&run, 1, 1);
    for (size_t i = 0; i < FILES; i++) {
        size_t bytes;
        const char *path = checkpoint_case_path(&run, 1, files[i]);
        uint8_t *whole = read_file(path, &bytes);
        for (size_t round = 0; round < 100; round++) {
            const size_t at = random_below(&random, bytes);
            const uint8_t bit = (uint8_t)(1u << random_below(&random, 8));
            whole[at] ^= bit;
            write_file(path, whole, bytes);
            refuse_folder(&run, 1, "step_00000001");
            whole[at] ^= bit;
        }
        write_file(path, whole, bytes);
        free(whole);
    }
    ck_assert_int_eq(checkpoint_case_load(&run, 1), 1);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_missing_file_is_refused_by_name_and_the_run_falls_back)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    checkpoint_case_save(&run, 1, 1);
    for (size_t i = 0; i < FILES; i++) {
        checkpoint_case_save(&run, 1, 2);
        ck_assert_int_eq(unlink(checkpoint_case_path(&run, 2, files[i])), 0);
        refuse_folder(&run, 2, files[i]);
        ck_assert_int_eq(checkpoint_case_load(&run, 1), 1);
    }
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_run_falls_back_over_several_damaged_checkpoints_and_says_so)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    for (int64_t step = 1; step <= 4; step++) {
        checkpoint_case_save(&run, 1, step);
    }
    ck_assert_int_eq(truncate(checkpoint_case_path(&run, 4, "state.json"), 10), 0);
    ck_assert_int_eq(truncate(checkpoint_case_path(&run, 3, "model.safetensors"), 10), 0);
    const char *said = path_in(scratch_folder(), "stderr");
    fflush(stderr);
    ck_assert_ptr_nonnull(freopen(said, "w", stderr));
    ck_assert_int_eq(checkpoint_case_load(&run, 1), 2);
    fflush(stderr);
    size_t bytes;
    char *text = (char *)read_file(said, &bytes);
    char *line = test_alloc(bytes + 1);
    memcpy(line, text, bytes);
    line[bytes] = 0;
    ck_assert_ptr_nonnull(strstr(line, "step_00000004/state.json"));
    ck_assert_ptr_nonnull(strstr(line, "step_00000003/model.safetensors"));
    free(text);
    free(line);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_run_whose_checkpoints_are_all_damaged_is_an_error_and_an_empty_one_is_not)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    struct error error = {0};
    char folder[CHECKPOINT_PATH];
    ck_assert(!checkpoint_find(run.run, folder, &error));
    ck_assert_int_eq(error.code, ERROR_NONE);
    ck_assert(!checkpoint_run_exists(run.run));
    checkpoint_case_save(&run, 1, 1);
    ck_assert(checkpoint_run_exists(run.run));
    ck_assert_int_eq(unlink(checkpoint_case_path(&run, 1, "COMPLETE")), 0);
    ck_assert(!checkpoint_find(run.run, folder, &error));
    ck_assert_int_eq(error.code, ERROR_FAILED);
    assert_error_names(&error, "COMPLETE");
    checkpoint_case_free(&run);
}
END_TEST

/* Puts a tensor file of step `from` into step `to` with a state.json that vouches for it: what is left to see is the
 * tensors themselves. */
START_TEST(tensors_of_another_shape_are_refused_by_name)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2), other = checkpoint_case_make(MODEL_LLAMA);
    struct error error = {0};
    struct checkpoint_info info;
    checkpoint_case_save(&other, 1, 1);
    const char *folder = checkpoint_case_path(&other, 1, "");
    ck_assert_msg(checkpoint_read_info(folder, &info, &error), "%s", error.text);
    ck_assert(!checkpoint_read_weights(folder, run.state.network, &error));
    assert_error_names(&error, "model.safetensors");
    ck_assert(!checkpoint_read(folder, &info, &run.state, &error));
    checkpoint_case_free(&run);
    checkpoint_case_free(&other);
}
END_TEST

/* ---- another run ---- */

static void refuse_settings(const struct checkpoint_case *run, const struct settings *changed, uint64_t identity,
                            const char *named)
{
    struct error error = {0};
    struct checkpoint_info info;
    const char *folder = checkpoint_case_path(run, 1, "");
    ck_assert_msg(checkpoint_read_info(folder, &info, &error), "%s", error.text);
    ck_assert_msg(!checkpoint_agrees(&info, changed, identity, folder, &error), "a change of %s was taken", named);
    assert_error_names(&error, named);
    ck_assert_int_eq(error.code, ERROR_USAGE);
}

START_TEST(another_model_or_other_data_is_refused_naming_both)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_LLAMA);
    checkpoint_case_save(&run, 1, 1);
    struct settings changed = run.settings;
    refuse_settings(&run, &changed, CASE_IDENTITY + 1, "fedcba9876543210");
    refuse_settings(&run, &changed, CASE_IDENTITY + 1, "fedcba9876543211");
    changed.model.layers = 2;
    refuse_settings(&run, &changed, CASE_IDENTITY, "layers 1, this run has 2");
    changed = run.settings;
    changed.model.rope_base = 500000;
    refuse_settings(&run, &changed, CASE_IDENTITY, "rope-base 10000, this run has 500000");
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(what_may_change_on_the_way_is_taken)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_LLAMA);
    struct error error = {0};
    struct checkpoint_info info;
    checkpoint_case_save(&run, 1, 1);
    const char *folder = checkpoint_case_path(&run, 1, "");
    ck_assert(checkpoint_read_info(folder, &info, &error));
    struct settings changed = run.settings;
    changed.learning_rate = 0.5;
    changed.steps = 77;
    changed.batch = 3;
    changed.keep = 9;
    ck_assert_msg(checkpoint_agrees(&info, &changed, CASE_IDENTITY, folder, &error), "%s", error.text);
    checkpoint_case_free(&run);
}
END_TEST

/* ---- a full disk ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(a_disk_that_fills_while_saving_loses_nothing)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    struct random_stream random = random_stream(20);
    struct error error = {0};
    size_t largest;
    ck_assert(signals_install(&error));
    run.settings.keep = 1;
    checkpoint_case_save(&run, 1, 1);
    free(read_file(checkpoint_case_path(&run, 1, "optimizer.safetensors"), &largest));
    for (size_t round = 0; round < 20; round++) {
        checkpoint_case_fill(&run, 1, 2);
        limit_files(round == 0 ? 0 : round == 1 ? largest - 1 : random_below(&random, largest));
        const bool saved = checkpoint_save(run.run, &run.state, &run.settings, CASE_IDENTITY, NULL, &error);
        limit_files(RLIM_INFINITY);
        ck_assert(!saved);
        assert_error_names(&error, ".saving");
        ck_assert_int_eq(checkpoint_case_load(&run, 1), 1);
        ck_assert_uint_eq(files_in(path_in(run.run, "checkpoints")), 1);
    }
    checkpoint_case_save(&run, 1, 2);
    ck_assert_int_eq(checkpoint_case_load(&run, 1), 2);
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_an_error)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    struct error error = {0};
    checkpoint_case_fill(&run, 1, 1);
    write_file(run.run, "a file", 6);
    ck_assert(!checkpoint_save(run.run, &run.state, &run.settings, CASE_IDENTITY, NULL, &error));
    assert_error_names(&error, run.run);
    checkpoint_case_free(&run);
}
END_TEST

/* ---- state.json ---- */

static bool parse(const char *text)
{
    struct checkpoint_info info;
    struct error error = {0};
    const bool taken = checkpoint_parse_state(text, strlen(text), "state.json", &info, &error);
    if (!taken) {
        assert_error_names(&error, "state.json");
        ck_assert_int_eq(error.code, ERROR_FAILED);
    }
    return taken;
}

/* The state of a saved checkpoint with one member set to `value` (NULL: without it). */
static bool parse_changed(const struct checkpoint_case *run, const char *key, json_t *value)
{
    json_t *root = json_load_file(checkpoint_case_path(run, 1, "state.json"), 0, NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_int_eq(value ? json_object_set_new(root, key, value) : json_object_del(root, key), 0);
    char *text = json_dumps(root, JSON_REAL_PRECISION(17));
    const bool taken = parse(text);
    free(text);
    json_decref(root);
    return taken;
}

START_TEST(every_member_of_the_state_is_needed_and_checked)
{
    struct checkpoint_case run = checkpoint_case_make(MODEL_GPT2);
    checkpoint_case_save(&run, 1, 1);
    const char *const keys[] = {"format",  "build",         "step",    "updates", "skipped", "tokens",  "sample",
                                "seconds", "data_identity", "threads", "blas",    "files",   "settings"};
    ck_assert(parse_changed(&run, "step", json_integer(3))); /* the way of changing works */
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        ck_assert_msg(!parse_changed(&run, keys[i], NULL), "a state without %s was taken", keys[i]);
        ck_assert_msg(!parse_changed(&run, keys[i], json_null()), "a state with no value of %s was taken", keys[i]);
        ck_assert_msg(!parse_changed(&run, keys[i], json_pack("[i]", 1)), "a list as %s was taken", keys[i]);
    }
    const char *const counts[] = {"step", "updates", "skipped", "tokens", "threads"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ck_assert_msg(!parse_changed(&run, counts[i], json_integer(-1)), "%s of -1 was taken", counts[i]);
        ck_assert_msg(!parse_changed(&run, counts[i], json_real(1.5)), "%s of 1.5 was taken", counts[i]);
    }
    ck_assert(!parse_changed(&run, "format", json_integer(99)));
    ck_assert(!parse_changed(&run, "seconds", json_real(-1)));
    ck_assert(!parse_changed(&run, "sample", json_string("123")));
    ck_assert(!parse_changed(&run, "sample", json_string("00000000000000zz")));
    ck_assert(!parse_changed(&run, "settings", json_pack("{s:i}", "layerz", 1)));
    ck_assert(!parse_changed(&run, "settings", json_pack("{s:i}", "layers", -1)));
    checkpoint_case_free(&run);
}
END_TEST

START_TEST(text_that_is_no_state_is_refused)
{
    const char *const texts[] = {
        "", "{", "[]", "7", "{\"format\": 1, \"format\": 1}", "\xFF\xFE", "{\"format\": 1e400}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_msg(!parse(texts[i]), "\"%s\" was taken", texts[i]);
    }
}
END_TEST

Suite *suite_checkpoint(void);
Suite *suite_checkpoint(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tests = tcase_create("checkpoint");
    tcase_set_timeout(tests, 60); /* every save waits for the disk a dozen times */
    tcase_add_test(tests, reading_gives_back_every_bit_that_was_saved);
    tcase_add_test(tests, the_settings_come_back_as_they_were);
    tcase_add_test(tests, a_save_leaves_four_files_and_nothing_else);
    tcase_add_test(tests, saving_a_step_again_replaces_it);
    tcase_add_test(tests, what_a_killed_save_left_is_no_obstacle);
    tcase_add_test(tests, the_newest_n_are_kept);
    tcase_add_test(tests, keep_0_keeps_all);
    tcase_add_test(tests, a_damaged_checkpoint_is_not_counted_as_kept);
    tcase_add_test(tests, an_abandoned_continuation_goes_when_the_new_one_is_saved);
    tcase_add_test(tests, a_file_cut_anywhere_is_refused);
    tcase_add_test(tests, a_bit_flipped_anywhere_is_refused);
    tcase_add_test(tests, a_missing_file_is_refused_by_name_and_the_run_falls_back);
    tcase_add_test(tests, a_run_falls_back_over_several_damaged_checkpoints_and_says_so);
    tcase_add_test(tests, a_run_whose_checkpoints_are_all_damaged_is_an_error_and_an_empty_one_is_not);
    tcase_add_test(tests, tensors_of_another_shape_are_refused_by_name);
    tcase_add_test(tests, another_model_or_other_data_is_refused_naming_both);
    tcase_add_test(tests, what_may_change_on_the_way_is_taken);
    tcase_add_test(tests, a_disk_that_fills_while_saving_loses_nothing);
    tcase_add_test(tests, a_folder_that_cannot_be_made_is_an_error);
    tcase_add_test(tests, every_member_of_the_state_is_needed_and_checked);
    tcase_add_test(tests, text_that_is_no_state_is_refused);
    suite_add_tcase(suite, tests);
    return suite;
}
