/* comm_p2p_size — how comm_p2p carries a call, by its bytes and the number of ranks: measured, not
 * calculated. Must not know calls. */
#ifndef CONVOY_COMM_COMM_P2P_SIZE_H
#define CONVOY_COMM_COMM_P2P_SIZE_H

#include <stdint.h>

/* The algorithm of an all_reduce, by its bytes:
 *
 *   up to star_max   of ranks that share cores: over one rank (p2p_star.h); with several workers on
 *                    a node up to eager_max
 *   up to eager_max  behind the headers: each rank sends its whole buffer to all ranks, one message
 *                    each way, and adds everything
 *   up to whole_max  the same in chunks: adding overlaps with moving, and no send copies
 *   above            in parts: chunks to the owner of each part, and sums back (p2p_pipeline.h).
 *                    Each byte travels twice, for any number of ranks. Parts up to eager_max go to
 *                    their owner behind the headers.
 *
 * Chunks have at most chunk_bytes bytes; UCX sends messages of that size eagerly. */
struct comm_p2p_size {
    int ranks_max;
    int64_t star_max, eager_max, whole_max, chunk_bytes;
};
#define COMM_P2P_EAGER_EXTRA (8 << 10) /* above a chunk: UCX's limit of eager messages */

const struct comm_p2p_size *comm_p2p_size(int ranks);

#endif
