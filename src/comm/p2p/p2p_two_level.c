/* p2p_two_level — inside the nodes, between them, inside again. Must not know small calls, nor what
 * fails how. */
#include "comm/p2p/p2p_two_level.h"

#include <stdlib.h>
#include <string.h>

enum status p2p_two_level_open(struct p2p_two_level *two_level, struct comm_shm *share,
                               const struct comm_place *place, struct p2p *p2p, int group,
                               const int *world, int64_t chunk_bytes)
{
    *two_level = (struct p2p_two_level){.share = share,
                                        .nodes = place->nodes,
                                        .node = place->node,
                                        .locals = place->locals,
                                        .local = place->local};
    two_level->inter_world = calloc((size_t)place->nodes, sizeof(*two_level->inter_world));
    two_level->parts = calloc((size_t)place->nodes, sizeof(*two_level->parts));
    two_level->extents = calloc((size_t)place->ranks, sizeof(*two_level->extents));
    if (two_level->inter_world == NULL || two_level->parts == NULL || two_level->extents == NULL)
        return FAIL(ST_RETRY, "out of memory: rails of %d nodes", place->nodes);
    for (int v = 0; v < place->nodes; v++)
        two_level->inter_world[v] = world[v * place->locals + place->local];
    two_level->inter = (struct p2p_pipeline){.p2p = p2p,
                                             .group = group,
                                             .world = two_level->inter_world,
                                             .n = place->nodes,
                                             .me = place->node,
                                             .nodes = place->nodes,
                                             .locals = 1};
    return p2p_pipeline_open(&two_level->inter, chunk_bytes);
}

void p2p_two_level_free(struct p2p_two_level *two_level)
{
    comm_shm_close(two_level->share);
    p2p_pipeline_free(&two_level->inter);
    transport_unmap(two_level->rail, two_level->rail_bytes);
    free(two_level->inter_world);
    free(two_level->parts);
    free(two_level->extents);
    *two_level = (struct p2p_two_level){0};
}

/* Deals the parts of a buffer to the workers of a node, and takes room for this one's: each bytes
 * an element. */
static enum status lay_out(struct p2p_two_level *two_level, const struct comm_call *call,
                           int64_t each)
{
    for (int v = 0; v < two_level->nodes; v++)
        for (int l = 0; l < two_level->locals; l++)
            two_level->extents[l * two_level->nodes + v] = part_extent(
                call->elems, two_level->nodes * two_level->locals, v * two_level->locals + l);
    int64_t rail_elems = two_level->rail_elems = part_rail(
        call->elems, two_level->nodes, two_level->locals, two_level->local, two_level->parts);
    two_level->partition =
        (struct shm_coll_partition){.extents = two_level->extents, .each = two_level->nodes};
    if (rail_elems * each <= two_level->rail_bytes)
        return ST_OK;
    transport_unmap(two_level->rail, two_level->rail_bytes);
    two_level->rail = NULL;
    two_level->rail_bytes = 0;
    void *rail;
    TRY(transport_reserve(rail_elems * each, &rail));
    two_level->rail = rail;
    two_level->rail_bytes = rail_elems * each;
    return ST_OK;
}

/* The node's sums of the rail, in fp32 where the call's are BF16. */
static enum status reduce_intra(struct p2p_two_level *two_level, const struct comm_call *call,
                                struct p2p_pipeline_call *inter)
{
    inter->dtype = call->dtype == DTYPE_BF16 ? DTYPE_F32 : call->dtype;
    inter->dtype_out = call->dtype;
    inter->parts = two_level->parts;
    TRY(lay_out(two_level, call, 8));
    inter->in = two_level->rail;
    return comm_shm_reduce(two_level->share, call, &two_level->partition, two_level->rail,
                           inter->dtype);
}

enum status p2p_two_level_all_reduce(struct p2p_two_level *two_level, const struct comm_call *call,
                                     struct p2p_pipeline_call base, struct p2p_wait *wait)
{
    TRY(reduce_intra(two_level, call, &base));
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    base.out = two_level->rail;
    if (base.dtype != base.dtype_out)
        base.out += two_level->rail_elems * (int64_t)dtype_bytes(base.dtype);
    base.own_out = base.out + two_level->parts[two_level->node].first * each;
    two_level->finished = base.out;
    return p2p_pipeline_run(&two_level->inter, &base, wait);
}

enum status p2p_two_level_reduce_scatter(struct p2p_two_level *two_level,
                                         const struct comm_call *call,
                                         struct p2p_pipeline_call base, struct p2p_wait *wait)
{
    TRY(reduce_intra(two_level, call, &base));
    base.out = NULL;
    base.own_out = call->out;
    return p2p_pipeline_run(&two_level->inter, &base, wait);
}

enum status p2p_two_level_all_gather(struct p2p_two_level *two_level, const struct comm_call *call,
                                     struct p2p_pipeline_call base, struct p2p_wait *wait)
{
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    TRY(lay_out(two_level, call, each));
    const struct part_extent *mine = &two_level->parts[two_level->node];
    base.dtype = base.dtype_out = call->dtype;
    base.parts = two_level->parts;
    base.in = NULL;
    base.out = two_level->rail;
    base.own_out = base.out + mine->first * each;
    if (mine->elems > 0)
        memcpy(base.own_out, call->in, (size_t)(mine->elems * each));
    two_level->finished = base.out;
    return p2p_pipeline_run(&two_level->inter, &base, wait);
}

enum status p2p_two_level_broadcast(struct p2p_two_level *two_level, const struct comm_call *call,
                                    struct p2p_pipeline_call base, struct p2p_wait *wait)
{
    if (two_level->local != call->peer % two_level->locals)
        return ST_OK;
    base.out = call->out;
    return p2p_pipeline_broadcast(&two_level->inter, &base, transport_bytes(call),
                                  call->peer / two_level->locals, wait);
}

enum status p2p_two_level_end(struct p2p_two_level *two_level, const struct comm_call *call)
{
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
    case COMM_CALL_ALL_GATHER:
        return comm_shm_gather(two_level->share, call, &two_level->partition, two_level->finished);
    case COMM_CALL_BROADCAST:
        return comm_shm_broadcast(two_level->share, call, call->peer % two_level->locals);
    default:
        return ST_OK;
    }
}
