/* fuzz_checkpoint.c: the reader of a checkpoint's state.json on arbitrary bytes, for libFuzzer.
 *
 * Whatever it takes must be a state the program could have written: written again and read again it is the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "tests/fuzz.h"
#include "train/checkpoint_parts.h"
#include "train/options.h"

static void require(bool fact, const char *what)
{
    if (!fact) {
        fprintf(stderr, "fuzz_checkpoint: a state was taken although %s\n", what);
        abort();
    }
}

static void check_taken(const struct checkpoint_info *info)
{
    static struct checkpoint_info again; /* a process of its own: too large for the stack beside the other */
    struct error error = {0};
    require(info->step >= 0 && info->updates >= 0 && info->skipped >= 0 && info->tokens >= 0 && info->seconds >= 0,
            "a count is negative");
    require(info->threads >= 1, "it had no thread");
    require(model_config_check(&info->settings.model, &error), "there is no such model");
    char *text = checkpoint_state_text(info);
    require(text != NULL, "it cannot be written");
    require(checkpoint_parse_state(text, strlen(text), "again", &again, &error), error.text);
    char *second = checkpoint_state_text(&again);
    require(second && strcmp(text, second) == 0, "it changes when it is written and read");
    free(text);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct checkpoint_info info;
    struct error error = {0};
    if (checkpoint_parse_state((const char *)data, size, "input", &info, &error)) {
        check_taken(&info);
    } else if (error.code == ERROR_NONE || error.text[0] == '\0') {
        abort(); /* refused without a reason */
    }
    return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    static struct checkpoint_info info;
    const char *folder = getenv("FUZZ_SEEDS");
    const char *const families[] = {"{}", "{\"preset\": \"llama-160m\"}",
                                    "{\"recipe\": \"fp4\", \"data\": \"a/b\", \"steps\": 7, \"warmup\": 2}"};
    struct error error = {0};
    char path[1024];
    for (size_t i = 0; folder && i < sizeof families / sizeof *families; i++) {
        memset(&info, 0, sizeof info);
        options_defaults(COMMAND_TRAIN, &info.settings);
        if (!options_read_config(COMMAND_TRAIN, families[i], strlen(families[i]), "seed", &info.settings, &error)) {
            fprintf(stderr, "fuzz_checkpoint: %s\n", error.text);
            exit(1);
        }
        info.step = info.updates = (int64_t)i;
        info.sample = UINT64_MAX - i;
        checkpoint_describe_machine(&info);
        char *text = checkpoint_state_text(&info);
        snprintf(path, sizeof path, "%s/state_%zu", folder, i);
        if (!text || !file_write_whole(path, text, strlen(text), &error)) {
            fprintf(stderr, "fuzz_checkpoint: %s\n", error.text);
            exit(1);
        }
        free(text);
    }
    return 0;
}
