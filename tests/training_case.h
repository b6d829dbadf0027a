/* training_case.h: small models and batches for the tests of training. */
#ifndef TESTS_TRAINING_CASE_H
#define TESTS_TRAINING_CASE_H

#include <stdbool.h>

#include "data/batch.h"
#include "model/network.h"
#include "tests/support.h"

/* Two layers, width 64, two heads of 32 (Llama: one for keys). */
struct model_config tiny_model(enum model_family family, size_t vocabulary, size_t context);

/* For training, with the weights that `seed` gives. */
struct network *tiny_network(const struct model_config *config, size_t max_tokens, uint64_t seed);

/* Rows of random tokens below `vocabulary`; packed: cut into documents of 1 to 40 tokens, else one a row. Freed by
 * batch_free. */
struct batch *random_batch(struct random_stream *random, size_t rows, size_t sequence_length, size_t vocabulary,
                           bool packed);
/* Fills a batch that random_batch made anew. */
void random_batch_fill(struct batch *batch, struct random_stream *random, size_t vocabulary, bool packed);
void batch_free(struct batch *batch);

/* Rows [first, first + rows) of `batch`, as a batch of its own that points into it but for its offsets;
 * batch_free_part.
 */
struct batch *batch_part(const struct batch *batch, size_t first, size_t rows);
void batch_free_part(struct batch *part);

#endif
