/* comm_two_level — hierarchical reduce-scatter and all-gather: inside the nodes, between them,
 * inside again. The numbers are the steps in two_level.h. Must not know small calls, nor where the
 * memory lies. */
#include "comm/algorithm/two_level.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum status comm_two_level_open(struct comm_two_level *two_level,
                                const struct comm_two_level_config *config)
{
    const struct comm_place *place = config->place;
    *two_level = (struct comm_two_level){.ops = config->ops,
                                         .intra = config->intra,
                                         .nodes = place->nodes,
                                         .node = place->node,
                                         .locals = place->locals,
                                         .local = place->local};
    two_level->inter_ranks = memory_new((size_t)place->nodes, sizeof(*two_level->inter_ranks));
    two_level->parts = memory_new((size_t)place->ranks, sizeof(*two_level->parts));
    two_level->rail_parts = memory_new((size_t)place->nodes, sizeof(*two_level->rail_parts));
    for (int v = 0; v < place->nodes; v++)
        two_level->inter_ranks[v] = config->root_rank[v * place->locals + place->local];
    two_level->inter = (struct comm_direct){.messenger = config->messenger,
                                            .group = config->group,
                                            .root_rank = two_level->inter_ranks,
                                            .n = place->nodes,
                                            .me = place->node,
                                            .nodes = place->nodes,
                                            .locals = 1,
                                            .memory = config->memory};
    return comm_direct_open(&two_level->inter, config->chunk_bytes);
}

void comm_two_level_free(struct comm_two_level *two_level)
{
    comm_memory_free(&two_level->inter.memory, two_level->rail, two_level->rail_bytes);
    comm_direct_free(&two_level->inter);
    free(two_level->inter_ranks);
    free(two_level->parts);
    free(two_level->rail_parts);
    *two_level = (struct comm_two_level){0};
}

/* Computes the parts of the call's buffer and of this worker's rail, and allocates the rail: its
 * sums, and for 16-bit types also their fp32 sums. */
static enum status lay_out(struct comm_two_level *two_level, const struct comm_call *call)
{
    const struct comm_memory *memory = &two_level->inter.memory;
    const int ranks = two_level->nodes * two_level->locals;
    int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    for (int r = 0; r < ranks; r++)
        two_level->parts[r] = part_extent(call->elems, ranks, r);
    two_level->rail_elems = part_rail(call->elems, two_level->nodes, two_level->locals,
                                      two_level->local, two_level->rail_parts);
    if (dtype_bytes(call->dtype) == 2)
        elem_bytes += (int64_t)sizeof(float);
    int64_t bytes = two_level->rail_elems * elem_bytes;
    if (bytes <= two_level->rail_bytes)
        return ST_OK;
    comm_memory_free(memory, two_level->rail, two_level->rail_bytes);
    two_level->rail = NULL;
    two_level->rail_bytes = 0;
    void *rail;
    TRY(comm_memory_alloc(memory, bytes, &rail));
    two_level->rail = rail;
    two_level->rail_bytes = bytes;
    return ST_OK;
}

/* Uses this rank's part, which is finished already, in place, or copies it to its range in the
 * rail. */
static void copy_own_part(struct comm_two_level *two_level, const struct comm_call *call)
{
    const int64_t bytes =
        two_level->rail_parts[two_level->node].elems * (int64_t)dtype_bytes(call->dtype);
    if (!two_level->ops->wants_whole_rail)
        two_level->own = (char *)(uintptr_t)call->in;
    else if (bytes > 0)
        memcpy(two_level->own, call->in, (size_t)bytes);
}

enum status comm_two_level_run(struct comm_two_level *two_level, const struct comm_call *call,
                               struct comm_direct_call base, struct message_wait *wait)
{
    base.dtype = base.dtype_out = call->dtype;
    base.parts = two_level->rail_parts;
    base.in = NULL;
    base.out = NULL;
    if (call->kind == COMM_CALL_BROADCAST) {
        base.out = call->out;
        if (two_level->local != call->peer % two_level->locals)
            return ST_OK;
        return comm_chain_broadcast(&two_level->inter, &base, transport_bytes(call),
                                    call->peer / two_level->locals, wait);
    }
    TRY(lay_out(two_level, call));
    if (call->kind != COMM_CALL_ALL_GATHER) {
        /* 1. Add the node's contributions to this worker's rail, for the sums between the nodes; in
         * fp32 if the call's type has 16 bits. */
        const enum dtype dtype = dtype_bytes(call->dtype) == 2 ? DTYPE_F32 : call->dtype;
        TRY(two_level->ops->reduce(two_level, call, base, dtype, wait));
        base.in = two_level->rail;
        base.dtype = dtype;
    }
    /* The finished rail lies in the rail's memory, after the sums if its elements have another
     * size. */
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    two_level->finished = two_level->rail;
    if (base.dtype != base.dtype_out)
        two_level->finished += two_level->rail_elems * (int64_t)dtype_bytes(base.dtype);
    two_level->own =
        two_level->finished + two_level->rail_parts[two_level->node].first * elem_bytes;
    if (call->kind == COMM_CALL_ALL_GATHER)
        copy_own_part(two_level, call);
    if (call->kind == COMM_CALL_REDUCE_SCATTER)
        base.own_out = call->out;
    else {
        base.out = two_level->finished;
        base.own_out = two_level->own;
    }
    return comm_direct_run(&two_level->inter, &base, wait); /* 2. */
}

enum status comm_two_level_end(struct comm_two_level *two_level, const struct comm_call *call,
                               struct comm_direct_call base, struct message_wait *wait)
{
    switch (call->kind) { /* 3. */
    case COMM_CALL_ALL_REDUCE:
    case COMM_CALL_ALL_GATHER:
        return two_level->ops->gather(two_level, call, base, wait);
    case COMM_CALL_BROADCAST:
        return two_level->ops->broadcast(two_level, call, base, call->peer % two_level->locals,
                                         wait);
    default:
        return ST_OK;
    }
}
