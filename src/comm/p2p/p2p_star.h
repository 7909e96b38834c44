/* p2p_star — a small sum or a barrier of ranks that share cores: all send to one rank, which adds
 * and sends the result to all.
 *
 * Of n ranks on fewer cores every message takes processor time from the others: 2(n-1) messages
 * are quicker than the n(n-1) of p2p_eager.h, although each takes two turns. The messages are
 * those of p2p_eager.h. Only the root receives from all. While it waits it sends each rank that has
 * entered a status, the ranks that have entered, so that each names those that are missing. Must
 * not know what is summed. */
#ifndef CONVOY_COMM_P2P_STAR_H
#define CONVOY_COMM_P2P_STAR_H

#include "comm/p2p/p2p_eager.h"

#define P2P_STAR_ROOT 0
#define P2P_STAR_RANKS_MAX 16

/* p2p_star_gather — the root returns when the content of every rank is there
 * (p2p_eager_received), all others when theirs is on its way.
 * p2p_star_scatter — the root sends the first `bytes` of p2p_eager_to_send(eager, root) to all; the
 * others return when they have come (p2p_eager_received of the root).
 * content: `bytes` bytes, not read on the root. Errors: those of p2p_progress; ST_BUG: a rank is in
 * another call. */
enum status p2p_star_gather(struct p2p_eager *eager, const struct comm_ctx *ctx,
                            const struct comm_call *call, const void *content, int64_t bytes,
                            struct p2p_wait *wait);
enum status p2p_star_scatter(struct p2p_eager *eager, const struct comm_ctx *ctx, int64_t bytes,
                             struct p2p_wait *wait);

#endif
