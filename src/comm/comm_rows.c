/* comm_rows — inside the nodes, between them, inside again. Must not know small calls, nor what
 * fails how. */
#include "comm/comm_rows.h"

#include <stdlib.h>
#include <string.h>

enum status comm_rows_open(struct comm_rows *rows, struct comm_share *share,
                           const struct comm_place *place, struct ucx *ucx, int group,
                           const int *world, int64_t piece_bytes)
{
    *rows = (struct comm_rows){.share = share,
                               .nodes = place->nodes,
                               .node = place->node,
                               .locals = place->locals,
                               .local = place->local};
    rows->line_world = calloc((size_t)place->nodes, sizeof(*rows->line_world));
    rows->parts = calloc((size_t)place->nodes, sizeof(*rows->parts));
    rows->extents = calloc((size_t)place->ranks, sizeof(*rows->extents));
    if (rows->line_world == NULL || rows->parts == NULL || rows->extents == NULL)
        return FAIL(ST_RETRY, "out of memory: rows of %d nodes", place->nodes);
    for (int v = 0; v < place->nodes; v++)
        rows->line_world[v] = world[v * place->locals + place->local];
    rows->line = (struct flow){.ucx = ucx,
                               .group = group,
                               .world = rows->line_world,
                               .n = place->nodes,
                               .me = place->node,
                               .nodes = place->nodes,
                               .locals = 1};
    return flow_open(&rows->line, piece_bytes);
}

void comm_rows_free(struct comm_rows *rows)
{
    comm_share_close(rows->share);
    flow_free(&rows->line);
    comm_ops_unmap(rows->row, rows->row_bytes);
    free(rows->line_world);
    free(rows->parts);
    free(rows->extents);
    *rows = (struct comm_rows){0};
}

/* Deals the parts of a buffer to the workers of a node, and takes room for this one's: each bytes
 * an element. */
static enum status deal(struct comm_rows *rows, const struct comm_call *call, int64_t each)
{
    for (int v = 0; v < rows->nodes; v++)
        for (int l = 0; l < rows->locals; l++)
            rows->extents[l * rows->nodes + v] =
                order_extent(call->elems, rows->nodes * rows->locals, v * rows->locals + l);
    int64_t row_elems = rows->row_elems =
        order_row(call->elems, rows->nodes, rows->locals, rows->local, rows->parts);
    rows->cut = (struct comm_moves_cut){.extents = rows->extents, .each = rows->nodes};
    if (row_elems * each <= rows->row_bytes)
        return ST_OK;
    comm_ops_unmap(rows->row, rows->row_bytes);
    rows->row = NULL;
    rows->row_bytes = 0;
    void *row;
    TRY(comm_ops_reserve(row_elems * each, &row));
    rows->row = row;
    rows->row_bytes = row_elems * each;
    return ST_OK;
}

/* The node's sums of the row, in fp32 where the call's are BF16. */
static enum status reduce_inside(struct comm_rows *rows, const struct comm_call *call,
                                 struct flow_call *line)
{
    line->dtype = call->dtype == DTYPE_BF16 ? DTYPE_F32 : call->dtype;
    line->dtype_out = call->dtype;
    line->parts = rows->parts;
    TRY(deal(rows, call, 8));
    line->in = rows->row;
    return comm_share_reduce(rows->share, call, &rows->cut, rows->row, line->dtype);
}

enum status comm_rows_all_reduce(struct comm_rows *rows, const struct comm_call *call,
                                 struct flow_call base, struct ucx_wait *wait)
{
    TRY(reduce_inside(rows, call, &base));
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    base.out = rows->row;
    if (base.dtype != base.dtype_out)
        base.out += rows->row_elems * (int64_t)dtype_bytes(base.dtype);
    base.own_out = base.out + rows->parts[rows->node].first * each;
    rows->finished = base.out;
    return flow_run(&rows->line, &base, wait);
}

enum status comm_rows_reduce_scatter(struct comm_rows *rows, const struct comm_call *call,
                                     struct flow_call base, struct ucx_wait *wait)
{
    TRY(reduce_inside(rows, call, &base));
    base.out = NULL;
    base.own_out = call->out;
    return flow_run(&rows->line, &base, wait);
}

enum status comm_rows_all_gather(struct comm_rows *rows, const struct comm_call *call,
                                 struct flow_call base, struct ucx_wait *wait)
{
    int64_t each = (int64_t)dtype_bytes(call->dtype);
    TRY(deal(rows, call, each));
    const struct order_extent *mine = &rows->parts[rows->node];
    base.dtype = base.dtype_out = call->dtype;
    base.parts = rows->parts;
    base.in = NULL;
    base.out = rows->row;
    base.own_out = base.out + mine->first * each;
    if (mine->elems > 0)
        memcpy(base.own_out, call->in, (size_t)(mine->elems * each));
    rows->finished = base.out;
    return flow_run(&rows->line, &base, wait);
}

enum status comm_rows_broadcast(struct comm_rows *rows, const struct comm_call *call,
                                struct flow_call base, struct ucx_wait *wait)
{
    if (rows->local != call->peer % rows->locals)
        return ST_OK;
    base.out = call->out;
    return flow_chain(&rows->line, &base, comm_ops_bytes(call), call->peer / rows->locals, wait);
}

enum status comm_rows_end(struct comm_rows *rows, const struct comm_call *call)
{
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
    case COMM_CALL_ALL_GATHER:
        return comm_share_gather(rows->share, call, &rows->cut, rows->finished);
    case COMM_CALL_BROADCAST:
        return comm_share_broadcast(rows->share, call, call->peer % rows->locals);
    default:
        return ST_OK;
    }
}
