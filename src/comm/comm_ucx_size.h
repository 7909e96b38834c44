/* comm_ucx_size — how comm_ucx carries a call, by its size and the number of ranks: measured, not
 * reckoned. Must not know calls. */
#ifndef CONVOY_COMM_COMM_UCX_SIZE_H
#define CONVOY_COMM_COMM_UCX_SIZE_H

#include <stdint.h>

/* For all send to all:
 *   up to `small`    with the meeting: every rank sends its buffer to all, one message each way,
 *   and adds up all
 *   up to `whole`    the same in pieces: adding overlaps with moving, and nothing is copied to send
 *   it
 *   above            in parts: pieces to the owner of a part and finished back from it (flow.h), so
 *   that each byte
 *                    travels twice, however many ranks there are; parts up to `small` go to the
 *                    owner with the meeting Pieces have at most `piece` bytes; messages of so many
 *                    UCX sends without asking. */
struct comm_ucx_size {
    int ranks_max;
    int64_t small, whole, piece;
};
#define COMM_UCX_AT_ONCE_MORE (8 << 10) /* above a piece: where UCX begins to ask */

const struct comm_ucx_size *comm_ucx_size(int ranks);

#endif
