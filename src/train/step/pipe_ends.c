/* step_pipe_ends — the token embedding that the head shares. The first and the last stage have a
 * copy each, and its gradient has two terms: the head's term, and the tokens' term (step/pipe.h).
 *
 * - Without virtual shards each of the two stages adds up its own term, and both sums are added at
 *   the end of the passes.
 * - With virtual shards the sum has the order of one rank: in each micro-batch the tokens' term is
 *   added to the head's. The last stage does that. It gets the gradient of the input that the
 *   embedding made, and keeps the head's term until then; the first stage makes only the gradient
 *   of the positions. At the end of the passes it gets the sums. */
#include "base/assert.h"
#include "mesh/store/exact.h"
#include "train/step/pipe.h"

static bool is_first(const struct step_core *s) { return s->pipe->stage == 0; }
static bool is_last(const struct step_core *s)
{
    return s->pipe->stage == s->pipe->pipe.stages - 1;
}

bool step_pipe_ends_is_tied(const struct step_config *c)
{
    return c->dims.task == MODEL_TASK_LM && !c->dims.features.is_untied && c->dims.adapter.r == 0;
}

bool step_pipe_ends_adds(const struct step_core *s)
{
    return s->pipe && s->config.shards > 0 && !s->config.is_eval &&
           step_pipe_ends_is_tied(&s->config);
}

/* Returns true if a tensor of this stage's table is the token embedding, or this rank's shard of
 * it. It is the table's first one. */
static bool is_tokens(const struct step_core *s, int param)
{
    return param == 0 && (is_first(s) || is_last(s));
}

bool step_pipe_ends_lacks(const struct step_core *s, int param)
{
    return step_pipe_ends_adds(s) && is_first(s) && is_tokens(s, param);
}

/* ---- memory ---- */

/* Returns the elements of one token_grad, with padding. */
static int64_t grad_elems(const struct step_core *s)
{
    return (s->table.param[0].room_elems + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

enum status step_pipe_ends_plan(struct step_core *s, struct arena *from)
{
    struct step_pipe *p = s->pipe;
    if (!step_pipe_ends_adds(s))
        return ST_OK;
    if (is_first(s) || is_last(s))
        p->embed_rows = step_pipe_alloc_rows(s, from);
    if (!is_last(s))
        return ST_OK;
    const int64_t elems = p->plan.heads_ahead * grad_elems(s);
    p->token_grads = (struct tensor){arena_alloc(from, (size_t)elems * sizeof(float)), DTYPE_F32};
    return ST_OK;
}

/* ---- life ---- */

enum status step_pipe_ends_open(struct step_core *s)
{
    struct step_pipe *p = s->pipe;
    int ranks[2];
    if ((!is_first(s) && !is_last(s)) || s->config.is_eval || !step_pipe_ends_is_tied(&s->config))
        return ST_OK;
    p->ends = p->line;
    if (p->pipe.stages == 2)
        return ST_OK;
    struct mesh_coord at = s->mesh.at;
    for (int i = 0; i < 2; i++) {
        at.at[MESH_AXIS_PIPELINE] = i * (p->pipe.stages - 1);
        ranks[i] = mesh_rank_of(&s->mesh.mesh, &at);
    }
    TRY(comm_split(s->config.comm, ranks, 2, &p->ends));
    p->is_ends_own = true;
    return ST_OK;
}

void step_pipe_ends_close(struct step_core *s)
{
    if (s->pipe->is_ends_own)
        comm_close(s->pipe->ends);
}

/* ---- passes ---- */

void step_pipe_ends_bind(const struct step_core *s, int64_t micro, struct pass *p)
{
    const struct step_pipe *pipe = s->pipe;
    if (!step_pipe_ends_adds(s))
        return;
    p->lacks_token_grad = is_first(s);
    if (is_last(s))
        p->token_grad =
            tensor_at(pipe->token_grads, micro % pipe->plan.heads_ahead * grad_elems(s));
}

struct tensor step_pipe_ends_grad(const struct step_core *s, const struct pass *p, int param)
{
    const struct tensor none = {0};
    if (step_pipe_ends_lacks(s, param))
        return none;
    return p->token_grad.data && is_tokens(s, param)
               ? p->token_grad
               : tensor_at(p->grads, p->grad_table->param[param].offset);
}

enum status step_pipe_ends_put(struct step_core *s, const struct pass *to, int64_t micro, int param)
{
    struct pass from = *to;
    step_pipe_ends_bind(s, micro, &from);
    const struct tensor made = step_pipe_ends_grad(s, &from, param),
                        slot = tensor_at(to->grads, to->grad_table->param[param].offset);
    return made.data == slot.data ? ST_OK
                                  : dev_copy(s->stream, slot.data, made.data,
                                             (size_t)s->table.param[param].elems * sizeof(float));
}

/* ---- the sums ---- */

int64_t step_pipe_ends_moved(const struct step_core *s)
{
    return step_pipe_ends_adds(s) && is_last(s)
               ? s->table.param[0].elems * store_exact_partials(s->store)
               : 0;
}

enum status step_pipe_ends_sum(struct step_core *s)
{
    struct pass p = {0};
    if (!s->pipe->ends)
        return ST_OK;
    store_bind(s->store, &p);
    TRY(dev_sync(s->stream));
    const int64_t elems = s->table.param[0].elems, offset = p.grad_table->param[0].offset;
    if (step_pipe_ends_adds(s)) {
        /* From the last stage to the first. */
        for (int partial = 0; partial < store_exact_partials(s->store); partial++) {
            const struct tensor grad = tensor_at(store_exact_partial(s->store, partial), offset);
            TRY(is_last(s) ? comm_send(s->pipe->ends, grad, elems, 0)
                           : comm_recv(s->pipe->ends, grad, elems, 1));
        }
        return ST_OK;
    }
    const struct tensor grad = tensor_at(p.grads, offset);
    return comm_all_reduce(s->pipe->ends, grad, grad, elems);
}
