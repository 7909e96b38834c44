/* comm_two_level — hierarchical reduce-scatter and all-gather: a large collective over several
 * nodes of several workers each, inside each node and between the nodes. After Cho, Finkler, Kung
 * and Hunter, "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network
 * hierarchy", MLSys 2019.
 *
 *   1. The workers of a node add among themselves, each for one rail: the parts of all ranks with
 *      its own local number.
 *   2. Each rail goes through a direct reduce-scatter and all-gather (direct.h) between the nodes.
 *   3. The finished rails are gathered inside each node.
 *
 * So one buffer leaves a node, not one for each worker. BF16 sums stay in fp32 until the nodes'
 * sums are added, and are rounded once. A broadcast is step 2 over the root's rail (chain.c), then
 * step 3.
 *
 * The buffers lie in the host's memory or in a GPU's (memory.c). A table has the exchange between
 * the workers of one node: shared memory (nodes_open.c), or messages between GPUs (gpu.c). The tree
 * of sums is the same, so the bits are too. Must not know small calls. */
#ifndef CONVOY_COMM_TWO_LEVEL_H
#define CONVOY_COMM_TWO_LEVEL_H

#include "comm/core/transport.h"
#include "comm/algorithm/direct.h"

struct comm_two_level;

/* The part of a call inside one node. `base`: sequence, poll and arg of its chunked calls. */
struct comm_two_level_ops {
    bool wants_whole_rail; /* gather reads this rank's own part in the rail, not at ->own */
    /* reduce — writes the node's sums of this worker's rail to two_level->rail, as dtype_out. */
    enum status (*reduce)(struct comm_two_level *two_level, const struct comm_call *call,
                          struct comm_direct_call base, enum dtype dtype_out,
                          struct message_wait *wait);
    /* gather — copies the node's finished rails (two_level->finished, ->own) to every worker's
     * call->out. */
    enum status (*gather)(struct comm_two_level *two_level, const struct comm_call *call,
                          struct comm_direct_call base, struct message_wait *wait);
    /* broadcast — copies call->out of the worker with that local number to all workers. */
    enum status (*broadcast)(struct comm_two_level *two_level, const struct comm_call *call,
                             struct comm_direct_call base, int local, struct message_wait *wait);
};

/* Zeroed: none. */
struct comm_two_level {
    /* NULL: each node has one worker, and nothing here is called */
    const struct comm_two_level_ops *ops;
    void *intra; /* the state of ops */
    int nodes, node, locals, local;
    struct comm_direct inter;       /* the workers with this one's local number, by node */
    int *inter_ranks;               /* root_rank of inter */
    struct part_extent *parts;      /* ranks: parts of the call's buffer */
    struct part_extent *rail_parts; /* nodes: parts of the rail */
    /* sums of the node, then also the finished rail if its elements have another size */
    char *rail;
    int64_t rail_elems, rail_bytes; /* elements of the current call; bytes allocated */
    char *finished, *own; /* finished rail of the current call, and this rank's part of it */
};

struct comm_two_level_config {
    const struct comm_two_level_ops *ops;
    void *intra;
    struct messenger *messenger;
    struct comm_memory memory;
    const struct comm_place *place;
    int group;
    const int *root_rank;
    int64_t chunk_bytes;
};
/* comm_two_level_open — opens both levels. root_rank: each member's rank in the root, node by node.
 * memory, intra: borrowed until comm_two_level_free. chunk_bytes: as in comm_direct_open. */
enum status comm_two_level_open(struct comm_two_level *two_level,
                                const struct comm_two_level_config *config);
void comm_two_level_free(struct comm_two_level *two_level); /* accepts a zeroed struct */

/* comm_two_level_run — runs all_reduce, reduce_scatter, all_gather or broadcast inside and between
 * the nodes. Errors of this function and the next: the errors of comm_direct_run and ops. */
enum status comm_two_level_run(struct comm_two_level *two_level, const struct comm_call *call,
                               struct comm_direct_call base, struct message_wait *wait);
/* comm_two_level_end — gathers or broadcasts inside each node. Call it only when all ranks have
 * entered the call: a rank that waits for another node is then not reported as missing. */
enum status comm_two_level_end(struct comm_two_level *two_level, const struct comm_call *call,
                               struct comm_direct_call base, struct message_wait *wait);

#endif
