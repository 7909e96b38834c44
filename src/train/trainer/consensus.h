/* consensus — common decisions of the ranks of a run, at the same point of the same step.
 *
 * Only rank 0 reads and writes checkpoints and prints. A request to stop or save may reach each
 * rank at another moment; the ranks exchange requests, so that all act on it in the same step. With
 * one rank nothing is sent. Every call is collective and fails with ST_PEER if a rank is lost. It
 * must not know the subject of a decision. */
#ifndef CONVOY_TRAIN_CONSENSUS_H
#define CONVOY_TRAIN_CONSENSUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"
#include "comm/core/comm.h"

struct consensus {
    struct comm *comm;
    int rank, ranks;
};

/* consensus_init — sets up *consensus for the ranks of a comm, which is borrowed; NULL: one
 * rank. */
void consensus_init(struct consensus *consensus, struct comm *comm);
/* consensus_is_rank0 — returns true on rank 0. */
bool consensus_is_rank0(const struct consensus *consensus);
/* consensus_broadcast — copies n bytes of rank 0 to all ranks. */
enum status consensus_broadcast(const struct consensus *consensus, void *bytes, int64_t n);
/* consensus_gather — all-gathers `each` bytes of every rank, a multiple of 16. Each rank writes its
 * own bytes to `all` first. */
enum status consensus_gather(const struct consensus *consensus, void *all, int64_t each);
/* consensus_compare — compares a text of every rank, shorter than CONSENSUS_TEXT, with the text of
 * rank 0. *out: the first rank whose text differs, and both texts; rank 0: there is none. */
#define CONSENSUS_TEXT 192
struct consensus_differs {
    int rank;
    char own[CONSENSUS_TEXT], rank0[CONSENSUS_TEXT];
};
enum status consensus_compare(const struct consensus *consensus, const char *text,
                              struct consensus_differs *out);
/* consensus_outcome — returns the status of rank 0, with its message, on all ranks. With several
 * nodes the other ranks prefix it with "on node 0", because their message may be the first that is
 * read. st counts on rank 0 only. */
enum status consensus_outcome(const struct consensus *consensus, enum status st);
/* consensus_request — finds the highest request that any rank has received. */
enum status consensus_request(const struct consensus *consensus, enum board_request mine,
                              enum board_request *out);

#endif
