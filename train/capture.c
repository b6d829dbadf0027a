/* capture.c: see capture.h. */
#include "train/capture.h"

#include <stdlib.h>
#include <string.h>

#include "data/loader.h"

/* The run's own data unless another is named. */
static struct dataset *open_data(const struct trained *trained, const char *data, const char *documents, size_t *begin,
                                 size_t *end, struct error *error)
{
    const struct settings *run = &trained->info.settings;
    const bool own = data[0] == '\0', apart = own && run->val_data[0] != '\0';
    struct dataset *dataset =
        dataset_open(own ? (apart ? run->val_data : run->data) : data, own ? run->documents : documents, error);
    if (dataset && own && !apart && !dataset_split(dataset, run->split, 1, begin, end, error)) {
        dataset_close(dataset);
        return NULL;
    }
    if (dataset && (!own || apart)) {
        *begin = 0;
        *end = dataset_tokens(dataset);
    }
    return dataset;
}

static float *dense_copy(const float *from, size_t stride, size_t tokens, size_t width)
{
    float *copy = malloc(tokens * width * sizeof *copy);
    for (size_t token = 0; copy && token < tokens; token++) {
        memcpy(copy + token * width, from + token * stride, width * sizeof *copy);
    }
    return copy;
}

static bool copy_view(struct capture *capture, const struct network_attention_view *view, const struct batch *batch,
                      struct error *error)
{
    const struct attention_shape *shape = &view->shape;
    const size_t query = shape->heads * shape->head_dim, key = shape->kv_heads * shape->head_dim,
                 tokens = shape->total_tokens;
    *capture = (struct capture){.shape = *shape, .documents = batch->documents};
    capture->query = dense_copy(view->inputs.query, view->inputs.query_stride, tokens, query);
    capture->key = dense_copy(view->inputs.key, view->inputs.key_stride, tokens, key);
    capture->value = dense_copy(view->inputs.value, view->inputs.value_stride, tokens, key);
    capture->doutput = dense_copy(view->output_gradient, query, tokens, query);
    capture->offsets = malloc((batch->documents + 1) * sizeof *capture->offsets);
    if (!capture->query || !capture->key || !capture->value || !capture->doutput || !capture->offsets) {
        capture_free(capture);
        return error_set(error, ERROR_FAILED, "no memory for the activations of %zu tokens", tokens);
    }
    memcpy(capture->offsets, batch->offsets, (batch->documents + 1) * sizeof *capture->offsets);
    return true;
}

static bool run_network(struct capture *capture, struct network *network, const struct trained *trained,
                        const struct batch *batch, size_t layer, struct error *error)
{
    const struct recipe *recipe = &trained->info.settings.recipe;
    const struct attention_random random = {trained->info.settings.seed, (uint64_t)trained->info.step, 0, 0};
    struct network_attention_view view;
    double loss;
    if (!checkpoint_read_weights(trained->folder, network, error) || !network_keep_output_gradients(network, error) ||
        !network_forward(network, recipe, batch, NULL, &loss, error) ||
        !network_backward(network, recipe, batch, 1.0f / (float)(batch->valid_targets ? batch->valid_targets : 1),
                          &random, error)) {
        return false;
    }
    return (network_attention(network, layer, &view) ||
            error_set(error, ERROR_USAGE, "--layer %zu: the model has layers 0 to %zu", layer,
                      network_config(network)->layers - 1)) &&
           copy_view(capture, &view, batch, error);
}

bool capture_take(struct capture *capture, const struct trained *trained, const char *data, const char *documents,
                  size_t layer, struct error *error)
{
    const struct settings *run = &trained->info.settings;
    struct loader_options options = {.sequence_length = (size_t)run->sequence_length,
                                     .batch = 1,
                                     .micro_batch = 1,
                                     .ranks = 1,
                                     .vocabulary = run->model.vocabulary};
    struct dataset *dataset = open_data(trained, data, documents, &options.begin, &options.end, error);
    struct loader *loader = dataset ? loader_create(dataset, &options, error) : NULL;
    const struct batch *batch = loader ? loader_next(loader, error) : NULL;
    const struct network_options network_options = {.max_tokens = options.sequence_length, .training = true};
    struct network *network = batch ? network_create(&run->model, &network_options, error) : NULL;
    const bool done = network && run_network(capture, network, trained, batch, layer, error);
    if (loader && !batch && error->code == ERROR_NONE) {
        error_set(error, ERROR_FAILED, "%s: less than one sequence of %zu tokens", dataset_path(dataset),
                  options.sequence_length);
    }
    network_destroy(network);
    if (loader) {
        loader_destroy(loader);
    }
    if (dataset) {
        dataset_close(dataset);
    }
    return done;
}

void capture_free(struct capture *capture)
{
    free(capture->query);
    free(capture->key);
    free(capture->value);
    free(capture->doutput);
    free(capture->offsets);
    *capture = (struct capture){.documents = 0};
}

static bool read_bytes(const struct dataset *dataset, size_t begin, size_t end, uint8_t *text, size_t length,
                       struct error *error)
{
    if (end - begin < length) {
        return error_set(error, ERROR_FAILED, "%s: %zu tokens of text are needed, there are %zu", dataset_path(dataset),
                         length, end - begin);
    }
    int32_t *ids = malloc(length * sizeof *ids);
    bool done = ids ? dataset_read(dataset, begin, length, ids, error)
                    : error_set(error, ERROR_FAILED, "no memory for %zu tokens", length);
    for (size_t i = 0; done && i < length; i++) {
        text[i] = (uint8_t)ids[i];
        done = (ids[i] >= 0 && ids[i] < 256) ||
               error_set(error, ERROR_USAGE, "%s: token %zu has id %d: --read needs bytes", dataset_path(dataset),
                         begin + i, ids[i]);
    }
    free(ids);
    return done;
}

bool capture_text(const struct trained *trained, const char *data, const char *documents, uint8_t *text, size_t length,
                  struct error *error)
{
    size_t begin = 0, end = 0;
    struct dataset *dataset = open_data(trained, data, documents, &begin, &end, error);
    const bool done = dataset && read_bytes(dataset, begin, end, text, length, error);
    if (dataset) {
        dataset_close(dataset);
    }
    return done;
}
