/* p2p_two_level — a large call over several nodes of several workers each.
 *
 * First the workers of a node add among themselves in the memory they share, each getting its
 * partition: the parts of all ranks of its own number. The cuts then go between the nodes, among
 * the workers of equal number, each the rail of a pipeline. At last the finished two_level come
 * together inside each node. So what leaves a node is a buffer, not one for each worker. BF16 sums
 * stay in fp32 until the nodes' sums are added, and are rounded once. Must not know small calls. */
#ifndef CONVOY_COMM_P2P_TWO_LEVEL_H
#define CONVOY_COMM_P2P_TWO_LEVEL_H

#include "comm/shm/comm_shm.h"
#include "comm/p2p/p2p_pipeline.h"

/* Zeroed: none. */
struct p2p_two_level {
    /* the workers of this node; NULL: one worker, nothing here is called */
    struct comm_shm *share;
    int nodes, node, locals, local;
    struct p2p_pipeline inter; /* the workers of this one's number, by node */
    int *inter_world;
    struct part_extent *extents; /* locals × nodes: the partition */
    struct part_extent *parts;   /* nodes: where they lie in the rail */
    /* this worker's partition: sums of the node, behind them the finished ones if of another
     * size */
    char *rail;
    int64_t rail_elems, rail_bytes;      /* of the call under way; taken */
    struct shm_coll_partition partition; /* of the call under way */
    const char *finished;                /* its rail of finished parts */
};

/* p2p_two_level_open — over share (taken: closed by p2p_two_level_free). world: p2p's rank of each
 * member, node by node. */
enum status p2p_two_level_open(struct p2p_two_level *two_level, struct comm_shm *share,
                               const struct comm_place *place, struct p2p *p2p, int group,
                               const int *world, int64_t chunk_bytes);
void p2p_two_level_free(struct p2p_two_level *two_level); /* accepts a zeroed one */

/* Inside and between the nodes; then, when all ranks are known to be in the call (so that nobody
 * here is taken for missing who only waits for another node), p2p_two_level_end: together inside
 * each node. base: sequence, turn and arg of the pipeline. Errors: those of p2p_pipeline_run and
 * comm_shm. */
enum status p2p_two_level_all_reduce(struct p2p_two_level *two_level, const struct comm_call *call,
                                     struct p2p_pipeline_call base, struct p2p_wait *wait);
enum status p2p_two_level_reduce_scatter(struct p2p_two_level *two_level,
                                         const struct comm_call *call,
                                         struct p2p_pipeline_call base, struct p2p_wait *wait);
enum status p2p_two_level_all_gather(struct p2p_two_level *two_level, const struct comm_call *call,
                                     struct p2p_pipeline_call base, struct p2p_wait *wait);
enum status p2p_two_level_broadcast(struct p2p_two_level *two_level, const struct comm_call *call,
                                    struct p2p_pipeline_call base, struct p2p_wait *wait);
enum status p2p_two_level_end(struct p2p_two_level *two_level, const struct comm_call *call);

#endif
