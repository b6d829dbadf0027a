/* decode.h: one token at a time with a KV cache, always with exact attention in FP32 over BF16-rounded Q, K, V:
 * generation never uses a quantized recipe (its token blocks would need tokens that do not exist yet). */
#ifndef MODEL_DECODE_H
#define MODEL_DECODE_H

#include "model/network.h"

struct decoder;

/* Uses (does not own) the network's parameters. `capacity` tokens at most, no more than the model's context. */
struct decoder *decoder_create(struct network *network, size_t capacity, struct error *error);
void decoder_destroy(struct decoder *decoder);
void decoder_reset(struct decoder *decoder);

/* Feeds the token at the next position; logits [vocabulary] predict the one after it. Fails when the cache is full or
 * the id is not in the vocabulary. */
bool decoder_step(struct decoder *decoder, int32_t token, const float **logits, struct error *error);

#endif
