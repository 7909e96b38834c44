/* p2p_shm — the workers' rails as a partition of the node's buffers. Must not know the other
 * nodes. */
#include "comm/p2p/p2p_shm.h"

#include <stdlib.h>

#include "base/memory.h"

void p2p_shm_open(struct p2p_shm *s, struct comm_shm *shm, int ranks)
{
    *s = (struct p2p_shm){.shm = shm, .extents = memory_new((size_t)ranks, sizeof(*s->extents))};
}

void p2p_shm_close(struct p2p_shm *s)
{
    comm_shm_close(s->shm);
    free(s->extents);
    *s = (struct p2p_shm){0};
}

/* Each worker's rail: the parts of the ranks with its local number. */
static struct shm_coll_partition rails(const struct p2p_two_level *two_level)
{
    const struct p2p_shm *s = two_level->intra;
    const int nodes = two_level->nodes, locals = two_level->locals;
    for (int v = 0; v < nodes; v++)
        for (int l = 0; l < locals; l++)
            s->extents[l * nodes + v] = two_level->parts[v * locals + l];
    return (struct shm_coll_partition){.extents = s->extents, .each = nodes};
}

static enum status reduce(struct p2p_two_level *two_level, const struct comm_call *call,
                          struct p2p_pipeline_call base, enum dtype dtype_out,
                          struct p2p_wait *wait)
{
    const struct p2p_shm *s = two_level->intra;
    const struct shm_coll_partition partition = rails(two_level);
    (void)base, (void)wait;
    return comm_shm_reduce(s->shm, call, &partition, two_level->rail, dtype_out);
}

static enum status gather(struct p2p_two_level *two_level, const struct comm_call *call,
                          struct p2p_pipeline_call base, struct p2p_wait *wait)
{
    const struct p2p_shm *s = two_level->intra;
    const struct shm_coll_partition partition = rails(two_level);
    (void)base, (void)wait;
    return comm_shm_gather(s->shm, call, &partition, two_level->finished);
}

static enum status broadcast(struct p2p_two_level *two_level, const struct comm_call *call,
                             struct p2p_pipeline_call base, int local, struct p2p_wait *wait)
{
    const struct p2p_shm *s = two_level->intra;
    (void)base, (void)wait;
    return comm_shm_broadcast(s->shm, call, local);
}

const struct p2p_two_level_ops p2p_shm_ops = {
    .wants_whole_rail = true, .reduce = reduce, .gather = gather, .broadcast = broadcast};
