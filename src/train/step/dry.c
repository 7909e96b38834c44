/* step_dry — see step/dry.h. Two walks make a step: one through the passes of the model, one
 * through the work of the store around them, in the order of step/run.c and step/pipe_run.c. */
#include "train/step/dry.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"
#include "dev/dev_dry.h"
#include "mesh/store/dry.h"
#include "train/step/inside.h"
#include "train/step/pipe.h"

/* Micro-batches of a pipeline that are walked through, in rounds of one for each stage: the first
 * two rounds and the last ones, and between them one that stands for all. */
#define ROUNDS 4
#define ROUND_MIDDLE 2

/* The ranks of a group. */
struct group {
    int *rank;
    int n;
};

struct dry {
    struct step s;
    struct dev_dry dev;
    struct store_dry store_dry;
    const struct step_dry_listener *listener;
    struct model_axis tensor_axis, context_axis;
    struct group tensor, context, data, world;
    int rank, group_ranks; /* group_ranks: of SHARD=hybrid; else 0 */
    int64_t passes;        /* micro-batches of the step; s may have fewer */
    /* state of the current report */
    double times;
    bool is_muted, is_in_pass, is_backward;
    bool is_beside; /* sums of numbers are made during the passes */
};

/* ---- reports ---- */

/* is_forward_op — Returns true for an operation that a backward pass runs only to compute an
 * activation again. */
static bool is_forward_op(enum op_kind op, const void *args)
{
    if (op == OP_KIND_rope)
        return !((const struct rope *)args)->inverse;
    return op == OP_KIND_norm_fwd || op == OP_KIND_head_norm_fwd || op == OP_KIND_matmul_fwd ||
           op == OP_KIND_gelu_fwd || op == OP_KIND_relu2_fwd || op == OP_KIND_swiglu_fwd ||
           op == OP_KIND_attention_fwd || op == OP_KIND_branch_add;
}

static void on_op(void *arg, enum op_kind op, const void *args)
{
    const struct dry *d = arg;
    const struct step_dry_op told = {
        .op = op,
        .args = args,
        .times = d->times,
        .is_in_pass = d->is_in_pass,
        .is_backward =
            d->is_backward ||
            (op == OP_KIND_embed_bwd || op == OP_KIND_norm_bwd || op == OP_KIND_head_norm_bwd ||
             op == OP_KIND_matmul_bwd_x || op == OP_KIND_matmul_bwd_w || op == OP_KIND_gelu_bwd ||
             op == OP_KIND_relu2_bwd || op == OP_KIND_swiglu_bwd || op == OP_KIND_attention_bwd),
        .is_again = d->is_backward && is_forward_op(op, args)};
    if (!d->is_muted)
        d->listener->on_op(d->listener->arg, &told);
}

static void report_call(const struct dry *d, struct step_dry_call call, struct group ranks)
{
    call.ranks = ranks.rank;
    call.ranks_n = ranks.n;
    call.times = d->times;
    if (!d->is_muted && ranks.n > 1)
        d->listener->on_call(d->listener->arg, &call);
}

/* ---- calls of the store ---- */

_Static_assert((int)STEP_DRY_CALL_ALL_TO_ALL == (int)STORE_CALL_ALL_TO_ALL, "the same order");

/* subgroup_of — Returns n of the store's ranks from `first` on, `step` apart (SHARD=hybrid). */
static struct group subgroup_of(const struct dry *d, int first, int step, int n, int *room)
{
    for (int i = 0; i < n; i++)
        room[i] = d->data.rank[first + i * step];
    return (struct group){room, n};
}

static struct group group_of(const struct dry *d, enum store_group group, int *room)
{
    int own = step_mesh_store_rank(&d->s.core), each = d->group_ranks;
    if (group == STORE_GROUP_WORLD)
        return d->world;
    if (group == STORE_GROUP_ALL || each == 0)
        return d->data;
    return group == STORE_GROUP_WITHIN ? subgroup_of(d, own - own % each, 1, each, room)
                                       : subgroup_of(d, own % each, each, d->data.n / each, room);
}

static void on_store_call(void *arg, const struct store_call *call, int64_t bytes, bool is_awaited)
{
    const struct dry *d = arg;
    int room[COMM_RANKS_MAX];
    bool is_used = call->bucket >= 0 && call->kind == STORE_CALL_ALL_GATHER;
    report_call(d,
                (struct step_dry_call){
                    .kind = (enum step_dry_call_kind)call->kind,
                    .axis = MESH_AXIS_DATA,
                    .bytes = bytes,
                    .is_in_pass = is_used && store_dry_gathers_for_use(d->s.core.store),
                    .is_hidden = call->group == STORE_GROUP_WORLD ? d->is_beside : !is_awaited},
                group_of(d, call->group, room));
}

/* ---- calls of passes ---- */

/* tell_axis — Reports a call between `copies` neighbours of an axis; 0: all. */
static enum status tell_axis(const struct dry *d, enum mesh_axis axis, enum step_dry_call_kind kind,
                             struct tensor of, int64_t elems, int copies)
{
    const int own = d->s.core.mesh.at.at[axis];
    struct group ranks = axis == MESH_AXIS_TENSOR ? d->tensor : d->context;
    if (copies > 0 && copies < ranks.n)
        ranks = (struct group){ranks.rank + own / copies * copies, copies};
    report_call(d,
                (struct step_dry_call){.kind = kind,
                                       .axis = axis,
                                       .bytes = elems * (int64_t)dtype_bytes(of.dtype),
                                       .is_in_pass = d->is_in_pass},
                ranks);
    return ST_OK;
}

#define AXIS_CALLS(axis, AXIS)                                                                 \
    static enum status axis##_gather(void *arg, struct stream *s, struct tensor own,           \
                                     struct tensor *all, int64_t elems)                        \
    {                                                                                          \
        (void)s, (void)own;                                                                    \
        return tell_axis(arg, AXIS, STEP_DRY_CALL_ALL_GATHER, *all, elems, 0);                 \
    }                                                                                          \
    static enum status axis##_scatter(void *arg, struct stream *s, struct tensor own,          \
                                      struct tensor in, int64_t elems)                         \
    {                                                                                          \
        (void)s, (void)own;                                                                    \
        return tell_axis(arg, AXIS, STEP_DRY_CALL_REDUCE_SCATTER, in, elems, 0);               \
    }                                                                                          \
    static enum status axis##_sum(void *arg, struct stream *s, struct tensor x, int64_t elems, \
                                  int copies)                                                  \
    {                                                                                          \
        (void)s;                                                                               \
        return tell_axis(arg, AXIS, STEP_DRY_CALL_ALL_REDUCE, x, elems, copies);               \
    }
AXIS_CALLS(tensor, MESH_AXIS_TENSOR)
AXIS_CALLS(context, MESH_AXIS_CONTEXT)
#undef AXIS_CALLS

static void set_axes(struct dry *d)
{
    const struct mesh_coord *at = &d->s.core.mesh.at;
    d->tensor_axis = (struct model_axis){.at = at->at[MESH_AXIS_TENSOR],
                                         .ranks = d->tensor.n,
                                         .arg = d,
                                         .gather = tensor_gather,
                                         .scatter_sum = tensor_scatter,
                                         .sum = tensor_sum};
    d->context_axis = (struct model_axis){.at = at->at[MESH_AXIS_CONTEXT],
                                          .ranks = d->context.n,
                                          .arg = d,
                                          .gather = context_gather,
                                          .scatter_sum = context_scatter,
                                          .sum = context_sum};
    d->s.core.tensor_axis = d->tensor.n > 1 ? &d->tensor_axis : &model_axis_self;
    d->s.core.context_axis = d->context.n > 1 ? &d->context_axis : &model_axis_self;
}

/* ---- the walk through the model ---- */

typedef enum status (*block_fn)(const struct pass *p, int block);

/* run_blocks — Runs one block of a pass for each way to recompute activations, with the number of
 * such blocks. */
static enum status run_blocks(struct dry *d, const struct pass *p, block_fn run, double times)
{
    int64_t n[MODEL_RECOMPUTE_AUTO] = {0};
    int first[MODEL_RECOMPUTE_AUTO];
    for (int i = (int)p->dims->layers - 1; i >= 0; i--) {
        enum model_recompute way =
            model_recompute_of(d->s.core.config.recompute, model_layer(p->dims, i));
        first[way] = i;
        n[way]++;
    }
    for (int way = 0; way < MODEL_RECOMPUTE_AUTO; way++) {
        d->times = times * (double)n[way];
        if (n[way] > 0)
            TRY(run(p, first[way]));
    }
    d->times = times;
    return ST_OK;
}

static enum status run_chunks(struct dry *d, bool accumulate, double times)
{
    const struct step *s = &d->s;
    int chunks = s->core.pipe ? s->core.pipe->pipe.chunks : 1;
    for (int i = 0; i < chunks; i++) {
        struct pass p = step_pass(s, s->core.config.batch_samples);
        bool is_first = !s->core.pipe || (s->core.pipe->stage == 0 && i == 0),
             is_last = !s->core.pipe ||
                       (s->core.pipe->stage == s->core.pipe->pipe.stages - 1 && i == chunks - 1);
        if (s->core.pipe)
            step_pipe_bind(&s->core, i, 0, &p);
        step_pipe_ends_bind(&s->core, 0, &p);
        p.want_grad = true;
        p.accumulate = accumulate;
        p.dropout = s->core.config.dropout;
        /* A micro-batch through a chunk of layers, forward and backward. */
        const bool has_embed = is_first || (is_last && step_pipe_ends_adds(&s->core));
        d->times = times;
        d->is_backward = false;
        TRY(s->core.model->embed_fwd(&p));
        TRY(run_blocks(d, &p, s->core.model->block_fwd, times));
        if (is_last)
            TRY(s->core.model->head(&p));
        d->is_backward = true;
        TRY(run_blocks(d, &p, s->core.model->block_bwd, times));
        if (has_embed)
            TRY(s->core.model->embed_bwd(&p));
        d->is_backward = false;
    }
    return ST_OK;
}

static enum status walk_model(struct dry *d)
{
    const struct step *s = &d->s;
    const struct step_config *c = &s->core.config;
    const int64_t losses_n = c->batch_samples * step_sample_losses(&s->core);
    /* A virtual shard begins with a gradient of its own. */
    const int64_t each = c->shards > 0 ? step_shards_each(&s->core) / c->batch_samples : d->passes,
                  begins_n = d->passes > each ? d->passes / each : 1;
    d->is_in_pass = true;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        double times = (double)(accumulate ? d->passes - begins_n : begins_n);
        if (times == 0)
            continue;
        TRY(run_chunks(d, accumulate, times));
        /* On a GPU by itself, or over NCCL, the losses are added up there (step/end.c). */
        d->times = times;
        const struct sum sum = {s->async.loss_sum, s->losses, losses_n, accumulate};
        if (s->async.is_on)
            TRY(dev_op(s->core.config.dev)->sum(s->core.stream, &sum));
    }
    d->is_in_pass = false;
    d->times = 1;
    return ST_OK;
}

/* ---- the walk through the store: one stage ---- */

static enum status finish_unit(struct dry *d, int unit)
{
    TRY(step_mesh_sum_partial(&d->s.core, 0, unit));
    return store_post_backward(d->s.core.store, unit);
}

static enum status store_forward(struct dry *d, bool is_last)
{
    struct step *s = &d->s;
    for (int unit = 0; unit <= s->core.dims.layers; unit++)
        TRY(store_unshard(s->core.store, unit, 1));
    TRY(step_unshard_head(&s->core));
    TRY(store_prepare_grad(s->core.store, s->core.table.units_n - 1));
    if (!is_last)
        return ST_OK;
    if (step_pipe_ends_is_tied(&s->core.config))
        TRY(store_embedding_grad_ready(s->core.store));
    return finish_unit(d, s->core.table.units_n - 1);
}

static enum status walk_passes(struct dry *d)
{
    int64_t walked = d->passes < 3 ? d->passes : 3;
    for (int64_t i = 0; i < walked; i++) {
        bool is_last = i == walked - 1;
        d->times = i == 1 && walked == 3 ? (double)(d->passes - 2) : 1;
        if (is_last)
            TRY(store_grad_sync_begin(d->s.core.store, NULL, 0, false));
        TRY(store_forward(d, is_last));
        struct step *s = &d->s;
        for (int unit = (int)s->core.dims.layers; unit >= 1; unit--) {
            TRY(store_unshard(s->core.store, unit, -1));
            TRY(store_prepare_grad(s->core.store, unit));
            if (is_last)
                TRY(finish_unit(d, unit));
        }
        TRY(is_last ? finish_unit(d, 0) : ST_OK);
    }
    return ST_OK;
}

/* ---- the walk through the store: a stage of a pipeline ---- */

static enum status stage_forward(struct dry *d, struct pipe_op op)
{
    const struct step_pipe_chunk *chunk = &d->s.core.pipe->chunk[op.chunk];
    if (d->s.core.pipe->stage == 0 && op.chunk == 0)
        TRY(store_unshard(d->s.core.store, 0, 1));
    for (int block = 0; block < chunk->dims.layers; block++)
        TRY(store_unshard(d->s.core.store, chunk->unit_first + block, 1));
    return ST_OK;
}

static enum status stage_backward(struct dry *d, struct pipe_op op)
{
    struct step *s = &d->s;
    const struct pipe *pipe = &s->core.pipe->pipe;
    const struct step_pipe_chunk *chunk = &s->core.pipe->chunk[op.chunk];
    bool is_last_chunk = op.chunk == pipe->chunks - 1, is_done = op.micro == pipe->micros - 1;
    if (is_last_chunk && s->core.pipe->stage == pipe->stages - 1) {
        TRY(step_unshard_head(&s->core));
        TRY(store_prepare_grad(s->core.store, s->core.table.units_n - 1));
    }
    if (is_last_chunk && is_done)
        TRY(finish_unit(d, s->core.table.units_n - 1));
    for (int block = (int)chunk->dims.layers - 1; block >= 0; block--) {
        TRY(store_unshard(s->core.store, chunk->unit_first + block, -1));
        TRY(store_prepare_grad(s->core.store, chunk->unit_first + block));
        if (is_done)
            TRY(finish_unit(d, chunk->unit_first + block));
    }
    return ST_OK;
}

static void tell_message(const struct dry *d, int peer_stage)
{
    const struct step *s = &d->s;
    struct mesh_coord at = s->core.mesh.at;
    int64_t elems = step_pipe_elems(&s->core, s->core.config.batch_samples, s->core.own_tokens);
    at.at[MESH_AXIS_PIPELINE] = peer_stage;
    int peer = mesh_rank_of(&s->core.mesh.mesh, &at), ranks[2] = {d->rank, peer};
    if (peer < d->rank)
        ranks[0] = peer, ranks[1] = d->rank;
    report_call(
        d,
        (struct step_dry_call){.kind = STEP_DRY_CALL_MESSAGE,
                               .axis = MESH_AXIS_PIPELINE,
                               .bytes = elems * (int64_t)dtype_bytes(s->core.config.store.dtype),
                               .is_in_pass = true,
                               .is_hidden = step_pipe_is_early(&s->core)},
        (struct group){ranks, 2});
}

/* tell_ends — Reports the call for the embedding's gradient: a sum of both ends, or the last
 * stage's message. */
static void tell_ends(const struct dry *d)
{
    const struct step *s = &d->s;
    const bool is_sent = step_pipe_ends_adds(&s->core);
    int last = s->core.pipe->pipe.stages - 1, ranks[2];
    struct mesh_coord at = s->core.mesh.at;
    if (!step_pipe_ends_is_tied(&s->core.config) ||
        ((s->core.pipe->stage != 0 || is_sent) && s->core.pipe->stage != last))
        return;
    for (int i = 0; i < 2; i++) {
        at.at[MESH_AXIS_PIPELINE] = i * last;
        ranks[i] = mesh_rank_of(&s->core.mesh.mesh, &at);
    }
    report_call(
        d,
        (struct step_dry_call){
            .kind = is_sent ? STEP_DRY_CALL_MESSAGE : STEP_DRY_CALL_ALL_REDUCE,
            .axis = MESH_AXIS_PIPELINE,
            .bytes = (is_sent ? step_pipe_ends_moved(&s->core) : s->core.table.param[0].elems) *
                     (int64_t)sizeof(float)},
        (struct group){ranks, 2});
}

/* times_of — Returns the number of the step's micro-batches for which an action's stands. */
static double times_of(const struct dry *d, const struct pipe_plan_action *a)
{
    const struct pipe *pipe = &d->s.core.pipe->pipe;
    bool is_middle = a->op.micro / pipe->stages == ROUND_MIDDLE;
    return 1 + (is_middle ? (double)(d->passes - pipe->micros) / pipe->stages : 0);
}

static enum status walk_stage(struct dry *d)
{
    const struct pipe_plan *plan = &d->s.core.pipe->plan;
    TRY(store_grad_sync_begin(d->s.core.store, NULL, 0, false));
    for (int i = 0; i < plan->actions_n; i++) {
        const struct pipe_plan_action *a = &plan->action[i];
        d->times = times_of(d, a);
        if (a->kind == PIPE_PLAN_SEND || a->kind == PIPE_PLAN_SEND_EMBED)
            tell_message(d, a->peer);
        if (a->kind == PIPE_PLAN_RUN)
            TRY(a->op.is_backward ? stage_backward(d, a->op) : stage_forward(d, a->op));
    }
    d->times = 1;
    tell_ends(d);
    return store_post_backward(d->s.core.store, 0);
}

/* ---- the walk through the store: the ends of a step ---- */

/* add_shards — Adds up the gradients of a rank's virtual shards, unit by unit, as step_shards.c
 * does. */
static enum status add_shards(struct dry *d)
{
    const struct step *s = &d->s;
    const struct tensor grads = dev_dry_tensor(DTYPE_F32);
    const int adds = store_dry_adds(s->core.store);
    d->times = adds;
    for (int unit = 0; unit < s->core.table.units_n && adds > 0; unit++) {
        int64_t first, n;
        param_unit_span(&s->core.table, unit, &first, &n);
        const struct combine add = {
            .out = grads, .in = grads, .own = grads, .elems = n, .stride = n, .sources_n = 2};
        if (n > 0)
            TRY(dev_op(s->core.config.dev)->combine(s->core.stream, &add));
    }
    d->times = 1;
    return ST_OK;
}

/* end_on_host — Ends a step as step/end.c does on the host. */
static enum status end_on_host(struct step *s)
{
    const struct step_config *c = &s->core.config;
    const int losses_n = c->shards > 0 ? c->shards * step_mesh_context_ranks(&s->core) : 1;
    double norm_sq, *extra = memory_new((size_t)losses_n + STEP_VOTES, sizeof *extra);
    enum status st = store_grad_norm_begin(s->core.store);
    if (st == ST_OK)
        st = store_grad_norm_end(s->core.store, &norm_sq, extra, losses_n + STEP_VOTES);
    free(extra);
    return st;
}

/* walk_store — Walks through two steps and reports only the second: the first one begins without
 * the work that a step defers to the next. */
static enum status walk_store(struct dry *d, const struct step_place *place)
{
    struct step *s = &d->s;
    d->times = 1;
    for (int step = 0; step < 2; step++) {
        d->is_muted = step == 0;
        struct comm_ticket ticket;
        d->is_beside = true;
        enum status st = store_all_reduce_begin(s->core.store, s->sums, STEP_COUNTS, &ticket);
        d->is_beside = false;
        TRY(st);
        TRY(s->core.pipe ? walk_stage(d) : walk_passes(d));
        TRY(add_shards(d));
        if (s->async.is_on) {
            /* As step/end.c does on the device. */
            int64_t all = step_async_plan(s, place) / (int64_t)sizeof(float);
            struct grad_scale scale = {.out = s->grad_scale,
                                       .squares = store_bucket_norms_sq(s->core.store),
                                       .loss = s->async.loss_sum,
                                       .squares_n = store_layout(s->core.store)->buckets_n};
            if (all > 0)
                TRY(store_gather_device(s->core.store, dev_dry_tensor(DTYPE_F32),
                                        all / place->ranks));
            TRY(store_grad_norm_device(s->core.store));
            TRY(dev_op(s->core.config.dev)->grad_scale(s->core.stream, &scale));
        } else {
            TRY(end_on_host(s));
        }
        TRY(store_update(s->core.store));
    }
    return ST_OK;
}

/* walk_comparison — Reports a comparison of states by its share of each step. */
static enum status walk_comparison(struct dry *d)
{
    const int64_t every = d->s.core.config.sentinel_every;
    if (every == 0)
        return ST_OK;
    d->times = 1 / (double)every;
    return step_sentinel_submit(&d->s.core);
}

/* ---- life ---- */

static struct group open_group(const struct dry *d, unsigned axes)
{
    const struct mesh *mesh = &d->s.core.mesh.mesh;
    struct group all = {.rank = memory_new((size_t)mesh_group_n(mesh, axes), sizeof(int))};
    all.n = mesh_group(mesh, d->rank, axes, all.rank);
    for (int i = 0; i < all.n; i++) /* a rank of the replica becomes one of the job */
        all.rank[i] += d->s.core.local.replica * d->s.core.local.ranks;
    return all;
}

static enum status open_all(struct dry *d, const struct step_place *place)
{
    struct step *s = &d->s;
    TRY(model_check(&s->core.config.dims));
    TRY(step_mesh_place(&s->core, place->rank, place->ranks));
    /* The micro-batches of the step. A stage is described with fewer (ROUNDS); the last round keeps
     * its length. */
    struct step_config *c = &d->s.core.config;
    const int64_t stages = d->s.core.mesh.mesh.size[MESH_AXIS_PIPELINE],
                  each = c->batch_samples * step_mesh_data_ranks(&d->s.core);
    d->passes = each > 0 ? c->global_samples / each : 0;
    if (d->passes < 1)
        return FAIL(ST_BAD_SETTING,
                    "GLOBAL_BATCH=%lld gives %d data-parallel ranks no micro-batch of %lld "
                    "samples; use a larger GLOBAL_BATCH or fewer ranks",
                    (long long)c->global_samples, step_mesh_data_ranks(&d->s.core),
                    (long long)c->batch_samples);
    if (stages > 1 && d->passes >= (ROUNDS + 1) * stages)
        step_shards_shorten(c, (ROUNDS * stages + d->passes % stages) * each);
    TRY(step_mesh_describe(&s->core, place->is_discrete));
    d->tensor = open_group(d, MESH_BIT(MESH_AXIS_TENSOR));
    d->context = open_group(d, MESH_BIT(MESH_AXIS_CONTEXT));
    d->data = open_group(d, MESH_COMM_DATA_AXES);
    d->world = open_group(d, MESH_BIT(MESH_AXES) - 1);
    set_axes(d);
    s->async.is_on = step_async_is_possible(&s->core.config, place);
    s->update.step_i = 1;
    struct arena arena[STEP_ARENA_N];
    for (int i = 0; i < STEP_ARENA_N; i++)
        arena_init(&arena[i], "dry", dev_dry_address(), SIZE_MAX / 4);
    TRY(step_memory_arenas(s, arena));
    step_update_open(s);
    struct store_config config = step_store_config(s);
    int ranks = step_mesh_store_ranks(&s->core);
    d->store_dry = (struct store_dry){on_store_call, d};
    if (config.settings.shard == LAYOUT_SHARD_HYBRID)
        d->group_ranks = config.settings.group_ranks;
    return store_dry_open(&config, &d->store_dry, step_mesh_store_rank(&s->core), ranks,
                          place->is_discrete, d->world.n > ranks, &s->core.store);
}

enum status step_dry_run(const struct step_config *config, const struct step_place *place,
                         const struct step_dry_listener *listener, struct step_dry_about *out)
{
    struct dry d = {.s = {.core.config = *config}, .listener = listener};
    struct step *s = &d.s;
    ASSERT(!config->is_eval);
    dev_dry_init(&d.dev, on_op, &d);
    d.s.core.config.dev = dev_dry_dev(&d.dev);
    d.s.core.config.comm = NULL;
    d.s.core.config.heartbeat = NULL;
    d.s.core.stream = dev_dry_stream(&d.dev);
    s->core.step = s;
    struct step_place inside = *place;
    enum status st = step_local_place(&d.s.core, &inside);
    d.rank = inside.rank;
    if (st == ST_OK)
        st = open_all(&d, &inside);
    if (st == ST_OK)
        st = walk_model(&d);
    if (st == ST_OK)
        st = walk_store(&d, &inside);
    if (st == ST_OK)
        st = walk_comparison(&d);
    if (st == ST_OK) {
        step_local_dry_tell(&d.s.core, listener);
        *out = (struct step_dry_about){.stages = s->core.pipe ? s->core.pipe->pipe.stages : 1,
                                       .stage = s->core.pipe ? s->core.pipe->stage : 0,
                                       .chunks = s->core.pipe ? s->core.pipe->pipe.chunks : 1,
                                       .passes = d.passes};
    }
    store_close(s->core.store);
    model_plan_free(s->acts);
    step_pipe_close(&s->core);
    step_mesh_forget(&s->core);
    step_update_close(s);
    free(d.tensor.rank);
    free(d.context.rank);
    free(d.data.rank);
    free(d.world.rank);
    return st;
}
