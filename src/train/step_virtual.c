/* step_virtual — a step whose rank computes several parts of every layer (VIRTUAL_TP), each as a
 * rank of a larger tensor axis would. mesh/tensor_virtual.h says how these virtual ranks take
 * turns. It must not know layers.
 *
 * - The rank's table holds the tensors of all its virtual ranks, unit by unit (param_join), also
 *   those of which each has a copy. A tensor has a tensor rank, so the store, the optimiser, the
 *   norm and checkpoints treat them as tensors of several ranks.
 * - s->model is a table of functions that make a pass of the step a pass of each virtual rank, with
 *   dimensions, activations and tables of its own. The model is the same.
 * - A stage of a pipeline has virtual ranks of each of its chunks of layers (step_pipe.h), with
 *   activations for each micro-batch in flight. The tensor axis of a pass says which are its
 *   own. */
#include <stdlib.h>

#include "base/assert.h"
#include "mesh/tensor_virtual.h"
#include "model/model_part.h"
#include "train/step_pipe.h"

/* A virtual rank's part of a chunk. Its tables have the offsets of a pass's, of its own tensors. */
struct virtual_rank {
    struct model_dims dims;
    struct param_table params, grads;
    int *row;                 /* of its tensors in the table of the rank */
    int64_t token_at;         /* of its first one (step_pipe_ends_at) */
    struct model_acts **acts; /* of each micro-batch in flight */
};

/* A micro-batch in flight. By the arg of their tensor axis functions of `ops` know a pass's. */
struct virtual_flight {
    struct model_axis axis;
    const struct step_virtual *all;
    const struct virtual_chunk *chunk;
    int i;
};

/* A chunk of the stage (step_pipe.h); without stages all layers, and one micro-batch in flight. */
struct virtual_chunk {
    struct virtual_rank *rank;     /* each of this rank's */
    struct virtual_flight *flight; /* flights_n; of micro-batch i: i % flights_n */
    int flights_n;
};

struct step_virtual {
    struct model_ops ops;           /* s->model */
    const struct model_ops *inside; /* of a virtual rank */
    struct tensor_virtual *turns;
    int n; /* virtual ranks of this rank */
    int chunks_n;
    struct virtual_chunk chunk[MODEL_CHUNKS_MAX];
};

/* ---- which parts ---- */

static int tensor_ranks(const struct step_config *c)
{
    const int ranks = c->axis_ranks[MESH_AXIS_TENSOR];
    return ranks > 1 ? ranks : 1;
}

int step_virtual_parts(const struct step_config *c)
{
    return c->tensor_parts > 0 ? c->tensor_parts : tensor_ranks(c);
}

int step_virtual_n(const struct step_config *c) { return step_virtual_parts(c) / tensor_ranks(c); }

/* named — a failure that names TP, where VIRTUAL_TP is meant. */
static enum status named(const struct step_config *c, enum status st)
{
    if (st != ST_BAD_SETTING)
        return st;
    return FAIL(st, "VIRTUAL_TP=%d cuts a model as TP=%d does: %s", c->tensor_parts,
                c->tensor_parts, status_message());
}

enum status step_virtual_check(const struct step_config *c)
{
    const int parts = step_virtual_parts(c);
    const struct model_part first = {.tensor_ranks = parts};
    struct model_dims dims;
    if (c->tensor_parts == 0)
        return ST_OK;
    ASSERTF(c->shards > 0, "%d parts without shards", parts);
    TRY(tensor_virtual_check(parts, tensor_ranks(c)));
    return named(c, model_part_dims(&c->dims, &first, &dims));
}

/* ---- passes ---- */

enum function { EMBED_FWD, EMBED_BWD, BLOCK_FWD, BLOCK_BWD, HEAD, LOGITS };

/* A call of a function of the model, with its arguments. */
struct call {
    enum function function;
    const struct pass *p;
    int block;
    int64_t row;
    struct tensor out;
};

static const struct virtual_flight *flight_of(const struct pass *p) { return p->tensor->arg; }

/* set_offsets — of a virtual rank's tensors, from those of the whole rank's. */
static const struct param_table *set_offsets(const struct virtual_rank *r, struct param_table *own,
                                             const struct param_table *from)
{
    for (int i = 0; i < own->params_n; i++)
        own->param[i].offset = from->param[r->row[i]].offset;
    return own;
}

/* pass_of — of virtual rank i. The last one comes last to where all have done their part of the
 * embedding's gradient. */
static struct pass pass_of(const struct pass *p, int i)
{
    const struct virtual_flight *f = flight_of(p);
    struct virtual_rank *r = &f->chunk->rank[i];
    struct pass own = *p;
    own.dims = &r->dims;
    own.acts = r->acts[f->i];
    own.tensor = tensor_virtual_axis(f->all->turns, i);
    own.table = set_offsets(r, &r->params, p->table);
    own.grad_table = set_offsets(r, &r->grads, p->grad_table ? p->grad_table : p->table);
    own.token_grad = tensor_at(p->token_grad, r->token_at);
    if (i < f->all->n - 1)
        own.embedding_grad_ready = NULL;
    return own;
}

void step_virtual_bind(const struct step *s, int chunk, int micro, struct pass *p)
{
    const struct virtual_chunk *of = &s->virtual_ranks->chunk[chunk];
    p->tensor = &of->flight[micro % of->flights_n].axis;
}

struct pass step_virtual_pass(const struct step *s, const struct pass *p, int i)
{
    return s->virtual_ranks ? pass_of(p, i) : *p;
}

static enum status call_inside(void *arg, int i)
{
    const struct call *c = arg;
    const struct pass p = pass_of(c->p, i);
    const struct model_ops *inside = flight_of(c->p)->all->inside;
    switch (c->function) {
    case EMBED_FWD:
        return inside->embed_fwd(&p);
    case EMBED_BWD:
        return inside->embed_bwd(&p);
    case BLOCK_FWD:
        return inside->block_fwd(&p, c->block);
    case BLOCK_BWD:
        return inside->block_bwd(&p, c->block);
    case HEAD:
        return inside->head(&p);
    case LOGITS:
        return inside->logits(&p, c->row, c->out);
    }
    return FAIL(ST_BUG, "function %d of a model", (int)c->function);
}

static enum status run(struct call call)
{
    return tensor_virtual_run(flight_of(call.p)->all->turns, call_inside, &call);
}

static enum status embed_fwd(const struct pass *p) { return run((struct call){EMBED_FWD, .p = p}); }
static enum status embed_bwd(const struct pass *p) { return run((struct call){EMBED_BWD, .p = p}); }
static enum status head(const struct pass *p) { return run((struct call){HEAD, .p = p}); }

static enum status block_fwd(const struct pass *p, int block)
{
    return run((struct call){BLOCK_FWD, .p = p, .block = block});
}

static enum status block_bwd(const struct pass *p, int block)
{
    return run((struct call){BLOCK_BWD, .p = p, .block = block});
}

static enum status logits(const struct pass *p, int64_t row, struct tensor out)
{
    return run((struct call){LOGITS, .p = p, .row = row, .out = out});
}

enum status step_virtual_each(struct step *s, enum status (*work)(void *arg, int i), void *arg)
{
    return s->virtual_ranks ? tensor_virtual_run(s->virtual_ranks->turns, work, arg) : work(arg, 0);
}

const struct model_axis *step_virtual_axis(const struct step *s, int i)
{
    return s->virtual_ranks ? tensor_virtual_axis(s->virtual_ranks->turns, i) : s->tensor_axis;
}

const struct model_axis *step_virtual_ranks(const struct step *s)
{
    return s->mesh.tensor ? &s->tensor.model : NULL;
}

void step_virtual_set_ranks(struct step *s, const struct model_axis *ranks)
{
    tensor_virtual_set_ranks(s->virtual_ranks->turns, ranks);
}

/* ---- life ---- */

/* row_of — of a virtual rank's tensor, in the table of the rank. */
static int row_of(const struct param_table *table, const struct param *own)
{
    int row = 0;
    while (row < table->params_n && (table->param[row].whole_param != own->whole_param ||
                                     table->param[row].tensor_rank != own->tensor_rank))
        row++;
    ASSERTF(row < table->params_n, "%s of tensor rank %d", own->name, own->tensor_rank);
    return row;
}

/* describe_rank — a virtual rank's part of a chunk: its dimensions, and which of the rank's tensors
 * are its own. */
static enum status describe_rank(const struct step *s, const struct model_part *part, int flights_n,
                                 struct virtual_rank *r)
{
    TRY(model_part_dims(&s->config.dims, part, &r->dims));
    TRY(model_ops(&r->dims)->describe(&r->dims, &r->params));
    TRY(model_ops(&r->dims)->describe(&r->dims, &r->grads));
    r->row = calloc((size_t)r->params.params_n + 1, sizeof *r->row);
    r->acts = calloc((size_t)flights_n, sizeof *r->acts);
    if (!r->row || !r->acts)
        return FAIL(ST_RETRY, "out of memory: %d tensors of a virtual rank", r->params.params_n);
    for (int i = 0; i < r->params.params_n; i++)
        r->row[i] = row_of(&s->table, &r->params.param[i]);
    r->token_at = step_pipe_ends_at(s, r->row[0]);
    return ST_OK;
}

/* describe_chunk — chunk i. part: the first virtual rank's. */
static enum status describe_chunk(const struct step *s, int i, struct model_part part,
                                  int flights_n)
{
    struct step_virtual *v = s->virtual_ranks;
    struct virtual_chunk *chunk = &v->chunk[i];
    chunk->rank = calloc((size_t)v->n, sizeof *chunk->rank);
    chunk->flight = calloc((size_t)flights_n, sizeof *chunk->flight);
    if (!chunk->rank || !chunk->flight)
        return FAIL(ST_RETRY, "out of memory: %d virtual ranks", v->n);
    chunk->flights_n = flights_n;
    for (int k = 0; k < flights_n; k++)
        chunk->flight[k] = (struct virtual_flight){.all = v, .chunk = chunk, .i = k};
    for (int k = 0; k < v->n; k++, part.tensor_rank++)
        TRY(describe_rank(s, &part, flights_n, &chunk->rank[k]));
    return ST_OK;
}

static enum status describe_chunks(const struct step *s)
{
    struct step_virtual *v = s->virtual_ranks;
    v->chunks_n = s->pipe ? s->pipe->pipe.chunks : 1;
    if (!s->pipe)
        return describe_chunk(s, 0, s->dims.part, 1);
    for (int i = 0; i < v->chunks_n; i++)
        TRY(describe_chunk(s, i, s->pipe->chunk[i].dims.part, s->pipe->chunk[i].acts_n));
    return ST_OK;
}

enum status step_virtual_describe(struct step *s)
{
    const int n = step_virtual_n(&s->config);
    if (n == 1)
        return ST_OK;
    struct step_virtual *v = calloc(1, sizeof *v);
    if (!v)
        return FAIL(ST_RETRY, "out of memory: %d virtual ranks", n);
    s->virtual_ranks = v;
    v->n = n;
    v->inside = s->model;
    v->ops = *v->inside;
    v->ops.embed_fwd = embed_fwd;
    v->ops.embed_bwd = embed_bwd;
    v->ops.block_fwd = block_fwd;
    v->ops.block_bwd = block_bwd;
    v->ops.head = head;
    v->ops.logits = logits;
    s->model = &v->ops;
    return describe_chunks(s);
}

static void forget_rank(struct virtual_rank *r, int flights_n)
{
    param_table_free(&r->params);
    param_table_free(&r->grads);
    free(r->row);
    for (int i = 0; r->acts && i < flights_n; i++)
        model_plan_free(r->acts[i]);
    free(r->acts);
}

void step_virtual_forget(struct step *s)
{
    struct step_virtual *v = s->virtual_ranks;
    if (!v)
        return;
    for (int i = 0; i < v->chunks_n; i++) {
        for (int k = 0; v->chunk[i].rank && k < v->n; k++)
            forget_rank(&v->chunk[i].rank[k], v->chunk[i].flights_n);
        free(v->chunk[i].rank);
        free(v->chunk[i].flight);
    }
    tensor_virtual_close(v->turns);
    free(v);
    s->virtual_ranks = NULL;
}

enum status step_virtual_plan_pass(struct step *s, int chunk, int flight, int i, struct arena *acts,
                                   struct arena *scratch)
{
    const struct step_config *c = &s->config;
    const struct virtual_rank *r = &s->virtual_ranks->chunk[chunk].rank[i];
    model_plan_free(r->acts[flight]);
    r->acts[flight] = NULL;
    return named(c, model_plan(&r->dims, c->batch_samples, s->own_tokens, c->recompute, !c->is_eval,
                               c->store.dtype, acts, scratch, &r->acts[flight]));
}

enum status step_virtual_plan(struct step *s, struct arena *acts, struct arena *scratch)
{
    for (int i = 0; i < s->virtual_ranks->n; i++)
        TRY(step_virtual_plan_pass(s, 0, 0, i, acts, scratch));
    return ST_OK;
}

static void open_axes(struct virtual_chunk *chunk, const struct model_axis *axis)
{
    for (int i = 0; i < chunk->flights_n; i++) {
        chunk->flight[i].axis = *axis;
        chunk->flight[i].axis.arg = &chunk->flight[i];
    }
}

enum status step_virtual_open(struct step *s)
{
    struct step_virtual *v = s->virtual_ranks;
    if (!v)
        return ST_OK;
    TRY(tensor_virtual_open(s->tensor_axis, dev_op(s->config.dev), v->n, &v->turns));
    for (int i = 0; i < v->chunks_n; i++)
        open_axes(&v->chunk[i], tensor_virtual_axis(v->turns, 0));
    s->tensor_axis = &v->chunk[0].flight[0].axis;
    return ST_OK;
}
