/* plan_ops — see plan_ops.h: collects the reports of train/step/dry.h in rows of equal operations
 * and calls. */
#include "plan/plan_ops.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/step/dry.h"

#define SEEN_MAX 16

/* A group of calls that was examined before: its ranks are identified by their number and the first
 * two. */
struct seen {
    int ranks_n, first, second;
    bool is_message;
    int inside, sharers;
};

/* The listener's state. */
struct adding {
    struct plan_ops *ops;
    const struct memory_plan_place *place;
    bool is_own[2]; /* attention by the program's own kernels on a GPU: forward, backward */
    struct mesh mesh;
    struct seen seen[SEEN_MAX];
    int seen_n;
};

/* ---- operations ---- */

static void set_shape(struct plan_op *row, int64_t rows, int64_t in, int64_t out)
{
    row->rows = rows;
    row->in = in;
    row->out = out;
}

static int64_t width_of(enum op_kind op, const void *args)
{
    const struct attention_fwd *fwd = args;
    const struct attention_bwd *bwd = args;
    return op == OP_KIND_attention_fwd ? fwd->d : op == OP_KIND_attention_bwd ? bwd->d : 0;
}

static struct plan_op *op_row(struct adding *a, const struct plan_op *like)
{
    struct plan_ops *ops = a->ops;
    for (int i = 0; i < ops->ops_n; i++)
        if (ops->op[i].op == like->op && ops->op[i].cost.flops == like->cost.flops &&
            ops->op[i].cost.bytes_read == like->cost.bytes_read &&
            ops->op[i].cost.bytes_written == like->cost.bytes_written &&
            ops->op[i].rows == like->rows && ops->op[i].in == like->in &&
            ops->op[i].out == like->out && ops->op[i].width == like->width &&
            ops->op[i].is_own == like->is_own && ops->op[i].is_backward == like->is_backward &&
            ops->op[i].is_again == like->is_again)
            return &ops->op[i];
    if (ops->ops_n == ops->ops_cap) {
        ops->ops_cap = ops->ops_cap > 0 ? 2 * ops->ops_cap : 64;
        ops->op = memory_resize(ops->op, (size_t)ops->ops_cap, sizeof *ops->op);
    }
    ops->op[ops->ops_n] = *like;
    return &ops->op[ops->ops_n++];
}

static void on_op(void *arg, const struct step_dry_op *op)
{
    struct adding *a = arg;
    struct plan_op like = {.op = op->op, .is_backward = op->is_backward, .is_again = op->is_again};
    op_cost(op->op, op->args, &like.cost);
    const void *args = op->args;
    const struct matmul_fwd *fwd = args;
    const struct matmul_bwd_x *bwd_x = args;
    const struct matmul_bwd_w *bwd_w = args;
    if (like.op == OP_KIND_matmul_fwd)
        set_shape(&like, fwd->n, fwd->in, fwd->out);
    if (like.op == OP_KIND_matmul_bwd_x)
        set_shape(&like, bwd_x->n, bwd_x->in, bwd_x->out);
    if (like.op == OP_KIND_matmul_bwd_w)
        set_shape(&like, bwd_w->n, bwd_w->in, bwd_w->out);
    like.width = width_of(op->op, op->args);
    like.is_own = like.width > 0 && a->is_own[op->op == OP_KIND_attention_bwd];
    struct plan_op *row = op_row(a, &like);
    if (op->is_in_pass)
        row->per_pass += op->times;
    else
        row->per_step += op->times;
}

/* ---- calls ---- */

static int ranks_inside(const struct adding *a, const struct step_dry_call *call)
{
    const struct comm_place *at = &a->place->at;
    int n = 0;
    for (int i = 0; i < call->ranks_n; i++)
        n += call->ranks[i] / at->locals == at->node;
    return n;
}

/* The other nodes that a call reaches. */
struct reach {
    bool is_there[COMM_RANKS_MAX]; /* by node */
};

/* Returns true if the group of a rank reaches one of these nodes, and has no rank on its own node
 * before this one. */
static bool is_first_across(const struct adding *a, int rank, unsigned axes,
                            const struct reach *reach)
{
    int group[COMM_RANKS_MAX], locals = a->place->at.locals;
    int n = mesh_group(&a->mesh, rank, axes, group);
    bool is_across = false;
    for (int i = 0; i < n; i++) {
        if (group[i] / locals == rank / locals && group[i] < rank)
            return false;
        is_across |= reach->is_there[group[i] / locals];
    }
    return is_across;
}

/* Returns true if a rank sends such a message to one of these nodes. */
static bool is_sent_across(const struct adding *a, int rank, int distance,
                           const struct reach *reach)
{
    const struct comm_place *at = &a->place->at;
    int to = rank + distance;
    return to >= 0 && to < at->ranks && reach->is_there[to / at->locals];
}

static void set_reach(const struct adding *a, const struct step_dry_call *call, struct reach *out)
{
    const struct comm_place *at = &a->place->at;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < call->ranks_n; i++)
        out->is_there[call->ranks[i] / at->locals] = true;
    out->is_there[at->node] = false;
}

/* Returns the number of groups that share the link. For a part of an axis (SHARD=hybrid), each rank
 * of the node has a separate group. */
static int count_sharers(const struct adding *a, const struct step_dry_call *call, int inside)
{
    const struct comm_place *at = &a->place->at;
    /* Find the axes along which the ranks of the call differ. */
    struct mesh_coord first = mesh_coord_of(&a->mesh, call->ranks[0]);
    unsigned axes = 0;
    for (int i = 1; i < call->ranks_n; i++) {
        struct mesh_coord other = mesh_coord_of(&a->mesh, call->ranks[i]);
        for (int axis = 0; axis < MESH_AXES; axis++)
            axes |= other.at[axis] != first.at[axis] ? MESH_BIT(axis) : 0;
    }
    bool is_message = call->kind == STEP_DRY_CALL_MESSAGE;
    int n = 0, distance = call->ranks[0] + call->ranks[1] - 2 * at->rank;
    struct reach reach;
    if (inside == call->ranks_n)
        return 0;
    if (!is_message && call->ranks_n != mesh_group_n(&a->mesh, axes))
        return at->locals / inside;
    set_reach(a, call, &reach);
    for (int rank = at->node * at->locals; rank < (at->node + 1) * at->locals; rank++)
        n += is_message ? is_sent_across(a, rank, distance, &reach)
                        : is_first_across(a, rank, axes, &reach);
    return n;
}

static enum plan_call_kind kind_of(enum step_dry_call_kind kind)
{
    static const enum plan_call_kind kinds[] = {[STEP_DRY_CALL_ALL_REDUCE] = PLAN_CALL_ALL_REDUCE,
                                                [STEP_DRY_CALL_REDUCE_SCATTER] =
                                                    PLAN_CALL_REDUCE_SCATTER,
                                                [STEP_DRY_CALL_ALL_GATHER] = PLAN_CALL_ALL_GATHER,
                                                [STEP_DRY_CALL_ALL_TO_ALL] = PLAN_CALL_ALL_TO_ALL,
                                                [STEP_DRY_CALL_MESSAGE] = PLAN_CALL_MESSAGE};
    return kinds[kind];
}

static struct plan_call *call_row(struct adding *a, const struct plan_call *like)
{
    struct plan_ops *ops = a->ops;
    for (int i = 0; i < ops->calls_n; i++)
        if (ops->call[i].kind == like->kind && ops->call[i].axis == like->axis &&
            ops->call[i].ranks == like->ranks && ops->call[i].ranks_inside == like->ranks_inside &&
            ops->call[i].bytes == like->bytes && ops->call[i].sharers == like->sharers &&
            ops->call[i].is_hidden == like->is_hidden &&
            ops->call[i].is_to_next == like->is_to_next)
            return &ops->call[i];
    if (ops->calls_n == ops->calls_cap) {
        ops->calls_cap = ops->calls_cap > 0 ? 2 * ops->calls_cap : 16;
        ops->call = memory_resize(ops->call, (size_t)ops->calls_cap, sizeof *ops->call);
    }
    ops->call[ops->calls_n] = *like;
    return &ops->call[ops->calls_n++];
}

/* Returns inside and sharers of a call. The result is kept for each group: calls of a step have few
 * groups, and examining a thousand ranks is slow. */
static struct seen look_at(struct adding *a, const struct step_dry_call *call)
{
    bool is_message = call->kind == STEP_DRY_CALL_MESSAGE;
    for (int i = 0; i < a->seen_n; i++) {
        const struct seen *s = &a->seen[i];
        if (s->ranks_n == call->ranks_n && s->first == call->ranks[0] &&
            s->second == call->ranks[1] && s->is_message == is_message)
            return *s;
    }
    struct seen found = {.ranks_n = call->ranks_n,
                         .first = call->ranks[0],
                         .second = call->ranks[1],
                         .is_message = is_message};
    found.inside = ranks_inside(a, call);
    found.sharers = count_sharers(a, call, found.inside);
    if (a->seen_n < SEEN_MAX)
        a->seen[a->seen_n++] = found;
    return found;
}

static void on_call(void *arg, const struct step_dry_call *call)
{
    struct adding *a = arg;
    const struct seen seen = look_at(a, call);
    bool is_to_next = call->kind == STEP_DRY_CALL_MESSAGE && call->ranks[0] == a->place->at.rank;
    const struct plan_call like = {.kind = kind_of(call->kind),
                                   .axis = call->axis,
                                   .ranks = call->ranks_n,
                                   .ranks_inside = seen.inside,
                                   .sharers = seen.sharers,
                                   .is_to_next = is_to_next,
                                   .bytes = (double)call->bytes,
                                   .is_hidden = call->is_hidden};
    struct plan_call *row = call_row(a, &like);
    if (call->is_in_pass)
        row->per_pass += call->times;
    else
        row->per_step += call->times;
}

/* ---- all ---- */

enum status plan_ops_make(const struct trainer_config *config,
                          const struct memory_plan_place *place, struct plan_ops *out)
{
    struct plan_ops ops = {.op = NULL};
    struct adding adding = {.ops = &ops, .place = place};
    const struct step_dry_listener listener = {on_op, on_call, &adding};
    const struct step_place at = {place->at.rank, place->at.ranks, place->is_discrete,
                                  place->stays_on_device};
    struct step_dry_about about;
    for (int i = 0; i < 2; i++)
        adding.is_own[i] = place->is_discrete && memory_plan_attention_is_own(config, i == 1);
    TRY(step_mesh(&config->step, place->at.ranks, &adding.mesh));
    enum status st = step_dry_run(&config->step, &at, &listener, &about);
    if (st != ST_OK) {
        plan_ops_free(&ops);
        return st;
    }
    /* Counts of the step's passes become counts of one pass. */
    ops.passes = about.passes;
    ops.stages = about.stages;
    ops.stage = about.stage;
    ops.chunks = about.chunks;
    ops.tokens = (double)config->step.global_samples * (double)config->step.seq_tokens;
    ops.model_flops =
        ops.tokens * model_flops_per_token(&config->step.dims, config->step.seq_tokens);
    for (int i = 0; i < ops.ops_n; i++)
        ops.op[i].per_pass /= (double)about.passes;
    for (int i = 0; i < ops.calls_n; i++)
        ops.call[i].per_pass /= (double)about.passes;
    ops.nodes = place->at.nodes;
    ops.locals = place->at.locals;
    *out = ops;
    return ST_OK;
}

void plan_ops_free(struct plan_ops *ops)
{
    free(ops->op);
    free(ops->call);
    *ops = (struct plan_ops){.op = NULL};
}
