/* p2p_shm — the part of a two-level collective inside one node, through the memory that its workers
 * share (comm_shm.h). Must not know the other nodes. */
#ifndef CONVOY_COMM_P2P_SHM_H
#define CONVOY_COMM_P2P_SHM_H

#include "comm/p2p/p2p_two_level.h"
#include "comm/shm/comm_shm.h"

/* Zeroed: none. */
struct p2p_shm {
    struct comm_shm *shm;        /* NULL: one worker a node */
    struct part_extent *extents; /* locals × nodes: the rail of each worker */
};

extern const struct p2p_two_level_ops p2p_shm_ops; /* intra: a struct p2p_shm */

/* p2p_shm_open — takes shm: p2p_shm_close closes it. */
void p2p_shm_open(struct p2p_shm *s, struct comm_shm *shm, int ranks);
void p2p_shm_close(struct p2p_shm *s); /* accepts a zeroed one */

#endif
