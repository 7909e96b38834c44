/* council — what the ranks of a run decide together, at the same place of the same step.
 *
 * Rank 0 is the lead: it alone reads and writes checkpoints and talks to people. A request to stop
 * or save may reach each rank at another moment, so it counts when all have asked the others. With
 * one rank nothing is asked. Every call is collective, and fails with ST_PEER when another rank is
 * lost. Must not know what is decided about. */
#ifndef CONVOY_TRAIN_COUNCIL_H
#define CONVOY_TRAIN_COUNCIL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/board.h"
#include "base/status.h"
#include "comm/comm.h"

struct council {
    struct comm *comm;
    int rank, ranks;
};

/* comm NULL: one rank, alone; borrowed */
void council_init(struct council *council, struct comm *comm);
bool council_is_lead(const struct council *council);
/* council_share — the lead's bytes become everybody's. */
enum status council_share(const struct council *council, void *bytes, int64_t n);
/* council_outcome — how something that the lead did alone has ended (its st, and its sentence), for
 * everybody: with several nodes the others say that it was on node 0, for theirs may be the first
 * to be heard. */
enum status council_outcome(const struct council *council, enum status st);
/* council_request — the highest request that any rank has seen. */
enum status council_request(const struct council *council, enum board_request mine,
                            enum board_request *out);

#endif
