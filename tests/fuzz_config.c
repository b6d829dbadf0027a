/* fuzz_config.c: any bytes as a configuration file: refused with a message, or settings that print and read back. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz.h"
#include "train/options.h"
#include "train/preset.h"

static void check_round_trip(const struct settings *settings)
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    struct settings again;
    struct error error;
    if (!memory || !options_print_config(COMMAND_TRAIN, settings, memory) || fclose(memory) != 0 ||
        !options_read_config(COMMAND_TRAIN, text, length, "printed", &again, &error)) {
        abort();
    }
    json_t *one = options_json(COMMAND_TRAIN, settings), *other = options_json(COMMAND_TRAIN, &again);
    if (!json_equal(one, other)) {
        abort();
    }
    json_decref(one);
    json_decref(other);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct settings settings;
    struct error error = {.code = ERROR_NONE};
    if (options_read_config(COMMAND_TRAIN, (const char *)bytes, size, "fuzz", &settings, &error)) {
        check_round_trip(&settings);
    } else if (error.code == ERROR_NONE || !memchr(error.text, '\0', sizeof error.text) || error.text[0] == '\0') {
        abort();
    }
    return 0;
}

/* The printed settings of every preset. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *folder = getenv("FUZZ_SEEDS");
    for (size_t i = 0; folder && i < preset_count(); i++) {
        char path[1024];
        struct settings settings;
        struct error error;
        char *words[] = {(char *)"train", (char *)"--preset", (char *)preset_at(i)->name};
        snprintf(path, sizeof path, "%s/%s", folder, preset_at(i)->name);
        FILE *file = fopen(path, "wb");
        if (!file || options_parse(COMMAND_TRAIN, 3, words, &settings, NULL, &error) != OPTIONS_READY ||
            !options_print_config(COMMAND_TRAIN, &settings, file) || fclose(file) != 0) {
            fprintf(stderr, "fuzz_config: %s: the seed cannot be written\n", path);
            exit(1);
        }
    }
    return 0;
}
