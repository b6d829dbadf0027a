/* vocabulary.h: what the ids of tokens stand for, as bytes.
 *
 * Bytes need no file. GPT-2's and other vocabularies come from a file in llm.c's format (tokenizer.bin: magic 20240328,
 * version 1 or 2; for each id one byte of length and the bytes). Tokenizing text is the business of
 * scripts/tokenize.py; here only bytes are encoded.
 */
#ifndef DATA_VOCABULARY_H
#define DATA_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/error.h"

struct vocabulary;

/* The 256 bytes, each its own token. */
struct vocabulary *vocabulary_bytes(struct error *error);

/* Reads a tokenizer.bin, all of it checked. */
struct vocabulary *vocabulary_open(const char *path, struct error *error);
void vocabulary_free(struct vocabulary *vocabulary);

size_t vocabulary_size(const struct vocabulary *vocabulary);
int64_t vocabulary_end_of_text(const struct vocabulary *vocabulary); /* -1: none */

/* The bytes of a token (not terminated); NULL, length 0, if the id is not in the vocabulary. */
const uint8_t *vocabulary_decode(const struct vocabulary *vocabulary, int64_t id, size_t *length);

/* Ids of `length` bytes of text, at most `length` of them, to `ids`; their number to `count`. Only the byte vocabulary
 * can: the merges that other tokenizers need are not in the file, which is said. */
bool vocabulary_encode(const struct vocabulary *vocabulary, const uint8_t *text, size_t length, int32_t *ids,
                       size_t *count, struct error *error);

#endif
