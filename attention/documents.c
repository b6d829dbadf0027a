/* documents.c: see documents.h. */
#include "attention/documents.h"

enum attention_status documents_check(const struct documents *documents, size_t total_tokens)
{
    if (total_tokens > INT32_MAX || !documents || !documents->offsets || documents->offsets[0] != 0) {
        return ATTENTION_BAD_OFFSETS;
    }
    for (size_t i = 0; i < documents->count; i++) {
        if (documents->offsets[i + 1] < documents->offsets[i]) {
            return ATTENTION_BAD_OFFSETS;
        }
    }
    return (size_t)documents->offsets[documents->count] == total_tokens ? ATTENTION_OK : ATTENTION_BAD_OFFSETS;
}

size_t documents_longest(const struct documents *documents)
{
    size_t longest = 0;
    for (size_t i = 0; i < documents->count; i++) {
        const size_t tokens = (size_t)(documents->offsets[i + 1] - documents->offsets[i]);
        longest = tokens > longest ? tokens : longest;
    }
    return longest;
}
