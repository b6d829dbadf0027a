/* trained.c: see trained.h. */
#include "train/trained.h"

bool trained_find(struct trained *trained, const char *command, const char *checkpoint, struct error *error)
{
    trained->network = NULL;
    if (checkpoint[0] == '\0') {
        return error_set(error, ERROR_USAGE, "%s: --checkpoint is needed: a run folder or a checkpoint's folder",
                         command);
    }
    error->code = ERROR_NONE;
    if (checkpoint_find(checkpoint, trained->folder, error)) {
        return checkpoint_read_info(trained->folder, &trained->info, error);
    }
    if (error->code == ERROR_NONE) {
        error_set(error, ERROR_FAILED,
                  "--checkpoint %s: there is no checkpoint in it: expected a run folder or one of its "
                  "checkpoints/step_*",
                  checkpoint);
    }
    return false;
}

bool trained_load(struct trained *trained, size_t rows, size_t sequence_length, struct error *error)
{
    const struct network_options options = {.max_tokens = rows * sequence_length, .training = false};
    trained->network = network_create(&trained->info.settings.model, &options, error);
    return trained->network && checkpoint_read_weights(trained->folder, trained->network, error);
}

void trained_close(struct trained *trained)
{
    network_destroy(trained->network);
    trained->network = NULL;
}
