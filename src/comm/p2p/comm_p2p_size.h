/* comm_p2p_size — how comm_p2p carries a call, by its size and the number of ranks: measured, not
 * reckoned. Must not know calls. */
#ifndef CONVOY_COMM_COMM_P2P_SIZE_H
#define CONVOY_COMM_COMM_P2P_SIZE_H

#include <stdint.h>

/* For all send to all:
 *   up to `eager_max`    with the meeting: every rank sends its buffer to all, one message each
 *   way,
 *   and adds up all
 *   up to `whole_max`    the same in chunks: adding overlaps with moving, and nothing is copied to
 *   send
 *   it
 *   above            in parts: chunks to the owner of a part and finished back from it
 *   (p2p_pipeline.h), so
 *   that each byte
 *                    travels twice, however many ranks there are; parts up to `eager_max` go to the
 *                    owner with the meeting Pieces have at most `chunk_bytes` bytes; messages of so
 *                    many
 *                    UCX sends without asking. */
struct comm_p2p_size {
    int ranks_max;
    int64_t eager_max, whole_max, chunk_bytes;
};
#define COMM_P2P_EAGER_EXTRA (8 << 10) /* above a chunk: where UCX begins to ask */

const struct comm_p2p_size *comm_p2p_size(int ranks);

#endif
