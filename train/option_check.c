/* option_check.c: see option_check.h. */
#include "train/option_check.h"

#include <inttypes.h>

#include "train/learning_rate.h"
#include "train/option_value.h"

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Sizes that follow from others where they were given as 0. */
static void derive_shape(struct model_config *model, size_t sequence_length)
{
    if (model->kv_heads == 0) {
        model->kv_heads = model->heads;
    }
    if (model->head_dim == 0) {
        model->head_dim = model->width / model->heads;
    }
    if (model->ffn == 0) {
        model->ffn = model->family == MODEL_LLAMA ? round_up((8 * model->width + 2) / 3, 64) : 4 * model->width;
    }
    if (model->context == 0) {
        model->context = sequence_length;
    }
    model->padded_vocabulary = round_up(model->vocabulary, 128);
}

static bool lengths_agree(const struct settings *s, struct error *error)
{
    const int given = (s->steps > 0) + (s->tokens > 0) + (s->epochs > 0);
    if (given != 1) {
        return error_set(error, ERROR_USAGE, "--steps, --tokens, --epochs: expected one of them above 0, found %s",
                         given ? "several" : "none");
    }
    if (s->micro_batch > 0 && s->batch % s->micro_batch != 0) {
        return error_set(error, ERROR_USAGE,
                         "--micro-batch %" PRId64 " does not divide --batch %" PRId64 ": give one that does",
                         s->micro_batch, s->batch);
    }
    if ((size_t)s->sequence_length > s->model.context) {
        return error_set(error, ERROR_USAGE, "--seq-len %" PRId64 " is longer than --context %zu", s->sequence_length,
                         s->model.context);
    }
    if (s->sequence_length * s->batch > INT32_MAX) {
        return error_set(error, ERROR_USAGE,
                         "--seq-len %" PRId64 " x --batch %" PRId64 ": expected a step of less than 2^31 tokens",
                         s->sequence_length, s->batch);
    }
    return true;
}

static bool recipe_agrees(enum command_id command, const struct settings *s, struct error *error)
{
    char message[256];
    if (command == COMMAND_TRAIN && !recipe_check(&s->recipe, s->model.head_dim, true, message, sizeof message)) {
        return error_set(error, ERROR_USAGE, "--recipe %s: %s", s->recipe.name, message);
    }
    return true;
}

bool options_complete(enum command_id command, struct settings *settings, struct error *error)
{
    recipe_normalise(&settings->recipe);
    derive_shape(&settings->model, (size_t)settings->sequence_length);
    if (command != COMMAND_TRAIN) {
        return recipe_agrees(command, settings, error);
    }
    return model_config_check(&settings->model, error) && lengths_agree(settings, error) &&
           (settings->steps == 0 || learning_rate_check(settings, settings->steps, error)) &&
           recipe_agrees(command, settings, error);
}
