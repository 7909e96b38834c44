/* step_virtual — a step whose rank computes several parts of every layer (VIRTUAL_TP), each as a
 * rank of a larger tensor axis would. mesh/tensor_virtual.h says how these virtual ranks take
 * turns. It must not know layers.
 *
 * - The rank's table holds the tensors of all its virtual ranks, unit by unit (param_join), also
 *   those of which each has a copy. A tensor has a tensor rank, so the store, the optimiser, the
 *   norm and checkpoints treat them as tensors of several ranks.
 * - s->model is a table of functions that make a pass of the step a pass of each virtual rank, with
 *   dimensions, activations and tables of its own. The model is the same. */
#include <stdlib.h>

#include "base/assert.h"
#include "mesh/tensor_virtual.h"
#include "model/model_part.h"
#include "train/step_inside.h"

/* A virtual rank. Its tables have the offsets of a pass's, of its own tensors. */
struct virtual_rank {
    struct model_dims dims;
    struct param_table params, grads;
    int *row; /* of its tensors in the table of the rank */
    struct model_acts *acts;
};

struct step_virtual {
    struct model_ops ops;           /* s->model */
    const struct model_ops *inside; /* of a virtual rank */
    struct model_axis axis;         /* s->tensor_axis: by its arg functions of `ops` know this */
    struct tensor_virtual *turns;
    int n; /* virtual ranks of this rank */
    struct virtual_rank rank[];
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
    const int parts = step_virtual_parts(c), stages = c->axis_ranks[MESH_AXIS_PIPELINE];
    const struct model_part first = {.tensor_ranks = parts};
    struct model_dims dims;
    if (c->tensor_parts == 0)
        return ST_OK;
    ASSERTF(c->shards > 0, "%d parts without shards", parts);
    TRY(tensor_virtual_check(parts, tensor_ranks(c)));
    TRY(named(c, model_part_dims(&c->dims, &first, &dims)));
    if (parts == tensor_ranks(c) || stages <= 1)
        return ST_OK;
    return FAIL(
        ST_BAD_SETTING,
        "VIRTUAL_TP=%d with TP=%d does not go with PP=%d: the messages of stages are of one "
        "part; set TP=%d, or PP=1",
        parts, tensor_ranks(c), stages, parts);
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

static struct step_virtual *virtual_of(const struct pass *p) { return p->tensor->arg; }

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
    struct step_virtual *v = virtual_of(p);
    struct virtual_rank *r = &v->rank[i];
    struct pass own = *p;
    own.dims = &r->dims;
    own.acts = r->acts;
    own.tensor = tensor_virtual_axis(v->turns, i);
    own.table = set_offsets(r, &r->params, p->table);
    own.grad_table = set_offsets(r, &r->grads, p->grad_table ? p->grad_table : p->table);
    if (i < v->n - 1)
        own.embedding_grad_ready = NULL;
    return own;
}

static enum status call_inside(void *arg, int i)
{
    const struct call *c = arg;
    const struct pass p = pass_of(c->p, i);
    const struct model_ops *inside = virtual_of(c->p)->inside;
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
    return tensor_virtual_run(virtual_of(call.p)->turns, call_inside, &call);
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

/* describe_rank — virtual rank i: its dimensions, and which of the rank's tensors are its own. */
static enum status describe_rank(const struct step *s, struct virtual_rank *r, int i)
{
    struct model_part part = s->dims.part;
    int n = 0;
    part.tensor_rank += i;
    TRY(model_part_dims(&s->config.dims, &part, &r->dims));
    TRY(param_of_part(&s->table, part.tensor_rank, &r->params));
    TRY(param_of_part(&s->table, part.tensor_rank, &r->grads));
    r->row = calloc((size_t)r->params.params_n, sizeof *r->row);
    if (!r->row)
        return FAIL(ST_RETRY, "out of memory: %d tensors of a virtual rank", r->params.params_n);
    for (int row = 0; row < s->table.params_n; row++)
        if (s->table.param[row].tensor_rank == part.tensor_rank)
            r->row[n++] = row;
    return ST_OK;
}

enum status step_virtual_describe(struct step *s)
{
    const int n = step_virtual_n(&s->config);
    if (n == 1)
        return ST_OK;
    struct step_virtual *v = calloc(1, sizeof *v + (size_t)n * sizeof *v->rank);
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
    for (int i = 0; i < n; i++)
        TRY(describe_rank(s, &v->rank[i], i));
    return ST_OK;
}

void step_virtual_forget(struct step *s)
{
    struct step_virtual *v = s->virtual_ranks;
    for (int i = 0; v && i < v->n; i++) {
        param_table_free(&v->rank[i].params);
        param_table_free(&v->rank[i].grads);
        free(v->rank[i].row);
        model_plan_free(v->rank[i].acts);
    }
    if (v)
        tensor_virtual_close(v->turns);
    free(v);
    s->virtual_ranks = NULL;
}

enum status step_virtual_plan(struct step *s, struct arena *acts, struct arena *scratch)
{
    const struct step_config *c = &s->config;
    for (int i = 0; i < s->virtual_ranks->n; i++) {
        struct virtual_rank *r = &s->virtual_ranks->rank[i];
        model_plan_free(r->acts);
        r->acts = NULL;
        TRY(named(c, model_plan(&r->dims, c->batch_samples, s->own_tokens, c->recompute,
                                !c->is_eval, c->store.dtype, acts, scratch, &r->acts)));
    }
    return ST_OK;
}

enum status step_virtual_open(struct step *s)
{
    struct step_virtual *v = s->virtual_ranks;
    if (!v)
        return ST_OK;
    TRY(tensor_virtual_open(s->tensor_axis, dev_op(s->config.dev), v->n, &v->turns));
    v->axis = *tensor_virtual_axis(v->turns, 0);
    v->axis.arg = v;
    s->tensor_axis = &v->axis;
    return ST_OK;
}
