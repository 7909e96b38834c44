/* step_pipe — the chunks of a stage, their memory, and the comms of its messages (step/pipe.h). */
#include "train/step/pipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/pipe/split.h"

/* ---- which layers ---- */

/* pipe_of — Returns the schedule of a step. An evaluation has none; for it only stages and chunks
 * count. */
static struct pipe pipe_of(const struct step_core *s)
{
    const struct step_config *c = &s->config;
    int stages = s->mesh.mesh.size[MESH_AXIS_PIPELINE];
    return (struct pipe){.stages = stages,
                         .micros = c->is_eval ? stages : (int)(s->samples / c->batch_samples),
                         .chunks = c->pipe_chunks > 0 ? c->pipe_chunks : 1};
}

enum status step_pipe_shard(const struct step_core *s, int stage, struct model_shard *shard)
{
    const struct pipe pipe = pipe_of(s);
    const struct step_config *c = &s->config;
    if (pipe.stages == 1)
        return ST_OK;
    TRY(pipe_check(&pipe));
    double *cost = memory_new((size_t)c->dims.layers + 2, sizeof *cost);
    int64_t *first = memory_new((size_t)(pipe.stages * pipe.chunks) + 1, sizeof *first);
    pipe_split_costs(&c->dims, c->seq_tokens, c->recompute, cost);
    enum status st = pipe_split(cost, c->dims.layers, pipe.stages, pipe.chunks, first);
    if (st == ST_OK)
        pipe_split_shard(first, pipe.stages, pipe.chunks, stage, shard);
    free(cost);
    free(first);
    return st;
}

/* most_in_flight — Returns the largest number of a chunk's micro-batches that wait for their
 * backward op. */
static int most_in_flight(const struct step_pipe *p, int chunk)
{
    int flying = 0, most = 0;
    for (int i = 0; i < pipe_ops_n(&p->pipe); i++) {
        struct pipe_op op = pipe_op_at(&p->pipe, p->stage, i);
        flying += op.chunk != chunk ? 0 : op.is_backward ? -1 : 1;
        most = flying > most ? flying : most;
    }
    return most;
}

/* Not if ops make collective calls, which would wait for inputs in the comm's queue. */
bool step_pipe_is_early(const struct step_core *s)
{
    return s->mesh.mesh.size[MESH_AXIS_TENSOR] == 1 && step_mesh_context_ranks(s) == 1 &&
           s->config.store.shard != LAYOUT_SHARD_FULL;
}

enum status step_pipe_describe(struct step_core *s, const struct model_shard *shard)
{
    if (s->mesh.mesh.size[MESH_AXIS_PIPELINE] == 1)
        return ST_OK;
    struct step_pipe *p = s->pipe = memory_new(1, sizeof *p);
    p->pipe = pipe_of(s);
    p->stage = s->mesh.at.at[MESH_AXIS_PIPELINE];
    for (int i = 0; i < p->pipe.chunks; i++) {
        struct step_pipe_chunk *chunk = &p->chunk[i];
        struct model_shard own = *shard;
        own.chunks_n = 1;
        own.chunk[0] = shard->chunk[i];
        own.lacks_embed = shard->lacks_embed || i > 0;
        own.lacks_head = shard->lacks_head || i < p->pipe.chunks - 1;
        TRY(model_shard_dims(&s->config.dims, &own, &chunk->dims));
        TRY(model_ops(&chunk->dims)->describe(&chunk->dims, &chunk->table));
        TRY(model_describe_trained(&chunk->dims, &chunk->grads));
        if (chunk->dims.adapter.r > 0)
            TRY(model_describe_trained(&chunk->dims, &chunk->adapter));
        chunk->unit_first = i == 0 ? 1 : chunk[-1].unit_first + (int)chunk[-1].dims.layers;
        chunk->acts_n = s->config.is_eval ? 1 : most_in_flight(p, i);
        chunk->acts = memory_new((size_t)chunk->acts_n, sizeof *chunk->acts);
    }
    if (s->config.is_eval)
        return ST_OK;
    pipe_plan_make(&p->pipe, p->stage, step_pipe_is_early(s), step_pipe_ends_adds(s), &p->plan);
    if (p->plan.grads_out > STEP_PIPE_GRADS_MAX)
        return FAIL(
            ST_BAD_SETTING,
            "PP=%d, PP_CHUNKS=%d and %d micro-batch%s let %d gradients wait to be sent, and "
            "this version has room for %d; use fewer stages or runs of layers",
            p->pipe.stages, p->pipe.chunks, p->pipe.micros, p->pipe.micros == 1 ? "" : "es",
            p->plan.grads_out, STEP_PIPE_GRADS_MAX);
    p->message = memory_new((size_t)p->plan.actions_n, sizeof *p->message);
    return ST_OK;
}

/* ---- memory ---- */

int64_t step_pipe_elems(const struct step_core *s, int64_t b, int64_t t)
{
    return b * t * s->dims.embed / s->mesh.mesh.size[MESH_AXIS_TENSOR];
}

struct tensor step_pipe_alloc_rows(const struct step_core *s, struct arena *from)
{
    const struct step_config *c = &s->config;
    int64_t elems = step_pipe_elems(s, c->batch_samples, s->own_tokens);
    return (struct tensor){arena_alloc(from, (size_t)elems * dtype_bytes(c->store.dtype)),
                           c->store.dtype};
}

/* Plans the activations of a chunk for each micro-batch in flight. All chunks share the scratch
 * from its beginning: the rotary table that the forward pass of one chunk writes there is read by
 * the backward passes of all. */
static enum status plan_chunk(struct step_core *s, struct step_pipe_chunk *chunk,
                              struct arena *acts, struct arena *scratch)
{
    const struct step_config *c = &s->config;
    for (int i = 0; i < chunk->acts_n; i++) {
        struct arena shared = *scratch;
        shared.used_bytes = 0;
        model_plan_free(chunk->acts[i]);
        chunk->acts[i] = NULL;
        TRY(model_plan(&chunk->dims, c->batch_samples, s->own_tokens, c->recompute, !c->is_eval,
                       c->store.dtype, acts, &shared, &chunk->acts[i]));
        if (shared.used_bytes > scratch->used_bytes)
            scratch->used_bytes = shared.used_bytes;
    }
    return ST_OK;
}

enum status step_pipe_plan(struct step_core *s, struct arena arena[STEP_ARENA_N])
{
    struct step_pipe *p = s->pipe;
    struct arena *input = &arena[STEP_ARENA_INPUT];
    if (!s->config.is_eval) {
        p->received[0] = step_pipe_alloc_rows(s, input);
        p->received[1] = step_pipe_alloc_rows(s, input);
        for (int i = 0; i < p->plan.grads_out; i++)
            p->made[i] = step_pipe_alloc_rows(s, input);
    }
    TRY(step_pipe_ends_plan(s, input));
    for (int i = 0; i < p->pipe.chunks; i++)
        TRY(plan_chunk(s, &p->chunk[i], &arena[STEP_ARENA_ACTS], &arena[STEP_ARENA_SCRATCH]));
    return ST_OK;
}

/* ---- life ---- */

/* copy_offsets — Copies the offsets of the stage's table to a chunk's table. */
static void copy_offsets(struct param_table *chunk, const struct param_table *stage)
{
    for (int i = 0; i < chunk->params_n; i++) {
        int at = 0;
        while (at < stage->params_n && stage->param[at].whole_param != chunk->param[i].whole_param)
            at++;
        ASSERTF(at < stage->params_n, "%s", chunk->param[i].name);
        chunk->param[i].offset = stage->param[at].offset;
    }
}

enum status step_pipe_open(struct step_core *s)
{
    struct pass pass = {0};
    if (!s->pipe)
        return ST_OK;
    s->pipe->line = s->mesh.pipeline;
    store_bind(s->store, &pass);
    for (int i = 0; i < s->pipe->pipe.chunks; i++) {
        copy_offsets(&s->pipe->chunk[i].table, pass.table);
        copy_offsets(&s->pipe->chunk[i].adapter, pass.adapter.table);
        copy_offsets(&s->pipe->chunk[i].grads, pass.grad_table);
    }
    return step_pipe_ends_open(s);
}

void step_pipe_quiesce(struct step_core *s)
{
    if (s->pipe && s->pipe->is_under_way)
        (void)comm_wait(s->pipe->line, s->pipe->newest);
}

void step_pipe_close(struct step_core *s)
{
    struct step_pipe *p = s->pipe;
    if (!p)
        return;
    step_pipe_ends_close(s);
    for (int i = 0; p->message && i < p->plan.actions_n; i++)
        dev_event_free(p->message[i].made);
    for (size_t i = 0; i < sizeof p->copied / sizeof *p->copied; i++)
        dev_event_free(p->copied[i]);
    for (int i = 0; i < MODEL_CHUNKS_MAX; i++) {
        struct step_pipe_chunk *chunk = &p->chunk[i];
        for (int micro = 0; chunk->acts && micro < chunk->acts_n; micro++)
            model_plan_free(chunk->acts[micro]);
        free(chunk->acts);
        param_table_free(&chunk->table);
        param_table_free(&chunk->adapter);
        param_table_free(&chunk->grads);
    }
    pipe_plan_free(&p->plan);
    free(p->message);
    free(p);
    s->pipe = NULL;
}

void step_pipe_bind(const struct step_core *s, int chunk, int micro, struct pass *p)
{
    const struct step_pipe_chunk *at = &s->pipe->chunk[chunk];
    p->dims = &at->dims;
    p->table = &at->table;
    p->adapter.table = &at->adapter;
    p->grad_table = &at->grads;
    p->acts = at->acts[micro % at->acts_n];
}
