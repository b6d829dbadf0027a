/* fuzz.h: libFuzzer's entry points, for tests/fuzz_NAME.c.
 *
 * Seeds are valid inputs made by the project's own writers, so that they never lag behind a format: a fuzzer that has
 * some writes them into the folder that FUZZ_SEEDS names before it begins. Name the same folder as the corpus:
 *
 *     FUZZ_SEEDS=corpus fuzz_shard -max_total_time=60 corpus
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */

#endif
