/* shard.h: files of token ids.
 *
 * Three formats, told apart by their first int32; all little-endian, all with a header of 1024 bytes:
 *   llm.c GPT-2    magic 20240520, version 1, count (int32), zeros; uint16 ids below 50257; a document begins at each
 * id 50256 llm.c Llama-3  magic 20240801, version 7, count (int32), zeros; uint32 ids below 128256; a document begins
 * at each id 128000 flamia         magic 20261201, version 1, as below; it says itself what the others leave to
 * convention llm.c puts the end-of-text token in front of each document, so it is a document's first token. Whatever
 * precedes the first one in a file is a document too (llm.c cuts documents at the end of a file): documents never
 * continue from file to file.
 *
 * The flamia header, by byte:
 *      0 int32 magic    4 int32 version    8 int32 bytes per token (1, 2 or 4)    12 int32 0
 *     16 int64 tokens  24 int64 vocabulary (ids are below it)  32 int64 end-of-text id, -1 if there is none  40 int64
 * documents 48 int64 offset of the document index: 1024 + the tokens, rounded up to 8     56 uint64 checksum of
 * everything after the header 64 char[64] tokenizer's name, zero-padded   128 char[8] "flamia"   136 uint64 checksum of
 * bytes 0 to 135   144.. zeros Tokens follow, zeros up to the index, then the index: int64 start of each document,
 * never decreasing (equal starts are empty documents), the first 0, none above the number of tokens. Checksums are
 * FNV-1a 64.
 */
#ifndef DATA_SHARD_H
#define DATA_SHARD_H

#include "data/document.h"
#include "data/file.h"

#define SHARD_HEADER    1024
#define SHARD_TOKENIZER 64 /* bytes of the name, terminator included */

enum shard_kind { SHARD_GPT2, SHARD_LLAMA3, SHARD_FLAMIA };

struct shard {
    enum shard_kind kind;
    int width; /* bytes a token */
    int64_t tokens;
    int64_t vocabulary;
    int64_t end_of_text; /* -1: none */
    int64_t documents;   /* flamia only: entries of the index, empty documents included */
    uint64_t index_offset;
    uint64_t checksum;
    char tokenizer[SHARD_TOKENIZER];
};

const char *shard_kind_name(enum shard_kind kind); /* "llm.c GPT-2", "llm.c Llama-3", "flamia" */

/* Does the file begin as a shard does? `is_shard` false: raw bytes. An error: it is a shard, or another program's file,
 * that cannot be read (byte order, version, a header like a shard's under an unknown magic). */
bool shard_recognise(const struct file *file, bool *is_shard, struct error *error);

/* Reads and checks the header, the file's size included. */
bool shard_read_header(const struct file *file, struct shard *shard, struct error *error);

/* Reads the whole file: every id, the document index, the checksum. Adds the documents' starts to `index`, counted from
 * `first`. */
bool shard_validate(const struct file *file, const struct shard *shard, int64_t first, struct document_index *index,
                    struct error *error);

/* Ids of `count` little-endian tokens of `width` bytes. */
void shard_decode(const uint8_t *bytes, int width, size_t count, uint32_t *ids);

/* Writes a flamia shard from a stream of ids. */
struct shard_writer {
    struct file_writer file;
    struct shard shard;
    uint64_t checksum;
    int64_t *starts; /* of all documents, empty ones included */
    size_t starts_capacity;
};

/* `width` 0: the fewest bytes that hold the vocabulary. */
bool shard_writer_open(struct shard_writer *writer, const char *path, int width, int64_t vocabulary,
                       int64_t end_of_text, const char *tokenizer, struct error *error);
bool shard_writer_document(struct shard_writer *writer, struct error *error); /* a document begins here */
bool shard_writer_tokens(struct shard_writer *writer, const uint32_t *ids, size_t count, struct error *error);
bool shard_writer_commit(struct shard_writer *writer, struct error *error);
void shard_writer_discard(struct shard_writer *writer);

#endif
