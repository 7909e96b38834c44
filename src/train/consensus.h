/* consensus — what the ranks of a run decide together, at the same place of the same step.
 *
 * Rank 0 is rank 0: it alone reads and writes checkpoints and talks to people. A request to stop
 * or save may reach each rank at another moment, so it counts when all have asked the others. With
 * one rank nothing is asked. Every call is collective, and fails with ST_PEER when another rank is
 * lost. Must not know what is decided about. */
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

/* comm NULL: one rank, alone; borrowed */
void consensus_init(struct consensus *consensus, struct comm *comm);
bool consensus_is_rank0(const struct consensus *consensus);
/* consensus_broadcast — rank 0's bytes become everybody's. */
enum status consensus_broadcast(const struct consensus *consensus, void *bytes, int64_t n);
/* consensus_outcome — how something that rank 0 did alone has ended (its st, and its sentence), for
 * everybody: with several nodes the others say that it was on node 0, for theirs may be the first
 * to be heard. */
enum status consensus_outcome(const struct consensus *consensus, enum status st);
/* consensus_request — the highest request that any rank has seen. */
enum status consensus_request(const struct consensus *consensus, enum board_request mine,
                              enum board_request *out);

#endif
