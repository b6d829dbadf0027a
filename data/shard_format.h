/* shard_format.h: the numbers of the flamia shard header that its reader and its writer share; shard.h describes the
 * format. */
#ifndef DATA_SHARD_FORMAT_H
#define DATA_SHARD_FORMAT_H

#include <stdint.h>

#define SHARD_MAGIC              UINT32_C(20261201)
#define SHARD_VERSION            1
#define SHARD_SIGNATURE          "flamia\0" /* with its own terminator: 8 bytes */
#define SHARD_AT_SIGNATURE       128
#define SHARD_AT_HEADER_CHECKSUM 136
#define SHARD_AT_ZEROS           144

/* Where the document index begins. */
uint64_t shard_index_offset(int64_t tokens, int width);

#endif
