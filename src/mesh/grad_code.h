/* grad_code — quantised gradients, as one rank sends them to another, in fewer bytes and back: the
 * numbers of all blocks are coded by zstd; their scales, which are as good as random, are not. Must
 * not know ranks or how gradients are quantised.
 *
 * A message has chunks of so many blocks that their numbers are GRAD_CODE_CHUNK_BYTES; the last has
 * the rest. A chunk is: bytes of its payload (u32, little-endian), all scales, the payload. The
 * payload is a frame of zstd, or, where that would not be smaller, the numbers as they are. */
#ifndef CONVOY_MESH_GRAD_CODE_H
#define CONVOY_MESH_GRAD_CODE_H

#include <stdint.h>

#include "base/status.h"

#define GRAD_CODE_CHUNK_BYTES 262144

/* Of a block's bytes the first scale_bytes are scales, the rest numbers. GRAD_CODE_CHUNK_BYTES is a
 * multiple of the latter. */
struct grad_code_block {
    int64_t bytes, scale_bytes;
};

struct grad_code;
/* grad_code_memory — what _open takes, with GRAD_CODE_ZSTD_BYTES that zstd takes at most.
 * grad_code_zstd_bytes — for tests: what zstd has taken so far. */
#define GRAD_CODE_ZSTD_BYTES ((int64_t)1 << 20)
int64_t grad_code_memory(void);
int64_t grad_code_zstd_bytes(const struct grad_code *code);
enum status grad_code_open(struct grad_code **out);
void grad_code_close(struct grad_code *code); /* accepts NULL */

/* grad_code_bound — bytes of the message of blocks_n blocks, at most.
 * grad_code_encode — `out` has grad_code_bound bytes; returns how many the message has.
 * grad_code_decode — blocks_n blocks from a message that begins at `coded`, where coded_bytes may
 * be read. What is behind the message is ignored. For messages of any content: ST_PEER when it is
 * not of blocks_n blocks; `packed` is undefined then. */
int64_t grad_code_bound(struct grad_code_block block, int64_t blocks_n);
int64_t grad_code_encode(struct grad_code *code, struct grad_code_block block,
                         const uint8_t *packed, int64_t blocks_n, uint8_t *out);
enum status grad_code_decode(struct grad_code *code, struct grad_code_block block,
                             const uint8_t *coded, int64_t coded_bytes, uint8_t *packed,
                             int64_t blocks_n);

#endif
