/* step_pipe_run — the passes of a stage of a pipeline: the actions of its plan, one after the other
 * (step/pipe.h).
 *
 * A chunk's backward passes run in ascending order of micro-batches, so its gradients are added as
 * on one rank. The token embedding that the first and the last stage share is the exception
 * (step/pipe_ends.c). */
#include "base/assert.h"
#include "base/clock.h"
#include "train/step/pipe.h"

/* The data that all actions of a step use. */
struct run {
    struct step_core *s;
    struct step_pipe *p;
    const struct step_now *now;
    const struct batch *batch;
    bool is_check;        /* passes of a shard that is only compared (step_shard_check.h) */
    int64_t sample_first; /* first sample of the batch, in the global batch */
    struct step_result *r;
    struct step_pipe_message *received[2]; /* in progress, or arrived: forward, backward */
    struct step_pipe_message *sent[STEP_PIPE_GRADS_MAX]; /* last message from made[i] */
    int64_t made_n, sent_n;                              /* numbers of gradients */
    struct step_pipe_message *embed;                     /* last message to or from embed_rows */
};

static bool is_first(const struct step_pipe *p, int chunk) { return p->stage == 0 && chunk == 0; }
static bool is_last(const struct step_pipe *p, int chunk)
{
    return p->stage == p->pipe.stages - 1 && chunk == p->pipe.chunks - 1;
}

/* micro_elems — Returns the elements of a message of a micro-batch. */
static int64_t micro_elems(const struct run *run)
{
    return step_pipe_elems(run->s, run->s->config.batch_samples, run->s->own_tokens);
}

static struct pass pass_of(const struct run *run, struct pipe_op op)
{
    const struct step_core *s = run->s;
    const int64_t first = op.micro * s->config.batch_samples;
    struct pass p = step_pass_train(s->step, run->sample_first + first, run->now->step_i);
    step_pipe_bind(s, op.chunk, op.micro, &p);
    step_pipe_ends_bind(s, op.micro, &p);
    p.accumulate = op.micro > 0;
    step_pass_scale(s->step, &p);
    return p;
}

static struct step_micro micro_of(const struct run *run, struct pipe_op op)
{
    const int64_t first = op.micro * run->s->config.batch_samples;
    return (struct step_micro){.first = first,
                               .is_last = !run->is_check && op.micro == run->p->pipe.micros - 1,
                               .is_check = run->is_check};
}

/* pass_at — Returns the pass of an op that runs now. at: its position in data flow. */
static struct pass pass_at(const struct run *run, struct pipe_op op, int at)
{
    struct pass p = pass_of(run, op);
    const struct step_micro m = micro_of(run, op);
    step_pass_begin(run->s->step, &m, at, &p);
    return p;
}

/* ends_at — Returns the position after all ops. */
static int ends_at(const struct run *run) { return 2 * run->p->pipe.stages * run->p->pipe.chunks; }

/* Numbers the passes forward through all chunks of all stages, and back. */
static struct pass pass_begin(const struct run *run, struct pipe_op op)
{
    const int at = op.chunk * run->p->pipe.stages + run->p->stage;
    return pass_at(run, op, op.is_backward ? ends_at(run) - 1 - at : at);
}

/* ---- messages ---- */

static enum status move(void *arg)
{
    struct step_pipe_message *m = arg;
    return m->is_send ? comm_send(m->line, m->data, m->elems, m->peer)
                      : comm_recv(m->line, m->data, m->elems, m->peer);
}

/* begin_message — Begins a message as soon as its memory is ready. copied: for a receive, the event
 * after which the memory is free. */
static enum status begin_message(struct run *run, struct step_pipe_message *m,
                                 struct dev_event *copied)
{
    struct step_pipe *p = run->p;
    if (m->is_send)
        TRY(dev_event_record(run->s->stream, &m->made));
    TRY(dev_flush(run->s->stream));
    comm_wait_event(p->line, m->is_send ? m->made : copied);
    TRY(comm_job_begin(p->line, move, m, &m->ticket));
    p->newest = m->ticket;
    p->is_under_way = true;
    return ST_OK;
}

/* wait_message — Waits for a message, and counts the time as the pipeline's. */
static enum status wait_message(struct run *run, const struct step_pipe_message *m)
{
    int64_t start = clock_ns();
    TRY(dev_busy_pause(run->s->stream));
    TRY(comm_wait(run->p->line, m->ticket));
    run->r->pipe_wait_ms += (double)(clock_ns() - start) * 1e-6;
    return dev_busy_resume(run->s->stream);
}

/* Copies the rows of a micro-batch between the activations of a pass and a message. */
static enum status copy_rows(const struct run *run, struct tensor to, struct tensor from)
{
    return dev_copy(run->s->stream, to.data, from.data,
                    (size_t)micro_elems(run) * dtype_bytes(to.dtype));
}

static enum status begin_transfer(struct run *run, const struct pipe_plan_action *a, bool is_send)
{
    struct step_pipe *p = run->p;
    struct step_pipe_message *m = &p->message[a - p->plan.action];
    *m = (struct step_pipe_message){.line = p->line,
                                    .data = p->received[a->op.is_backward],
                                    .elems = micro_elems(run),
                                    .peer = a->peer,
                                    .is_send = is_send,
                                    .made = m->made};
    if (!is_send) {
        run->received[a->op.is_backward] = m;
    } else if (a->op.is_backward) {
        int64_t at = run->sent_n++ % p->plan.grads_out;
        m->data = p->made[at];
        run->sent[at] = m;
    } else {
        struct pass pass = pass_of(run, a->op);
        m->data = model_shard_output(&pass);
    }
    return begin_message(run, m, p->copied[a->op.is_backward]);
}

static enum status copy_received_rows(struct run *run, struct pipe_op op)
{
    struct pass p = pass_of(run, op);
    TRY(wait_message(run, run->received[op.is_backward]));
    TRY(copy_rows(run, op.is_backward ? model_shard_grad(&p) : model_shard_input(&p),
                  run->p->received[op.is_backward]));
    return dev_event_record(run->s->stream, &run->p->copied[op.is_backward]);
}

/* call_row_hooks — Calls the hooks for rows that are about to be sent to another stage. */
static enum status call_row_hooks(const struct run *run, struct tensor rows)
{
    return step_rows(run->s->step, rows, micro_elems(run));
}

/* keep_grad — Copies the gradient of a chunk's input, to be sent. */
static enum status keep_grad(struct run *run, const struct pass *p)
{
    int64_t at = run->made_n++ % run->p->plan.grads_out;
    if (run->sent[at])
        TRY(wait_message(run, run->sent[at]));
    run->sent[at] = NULL;
    TRY(copy_rows(run, run->p->made[at], model_shard_grad(p)));
    return call_row_hooks(run, run->p->made[at]);
}

/* ---- the gradient of the embedding's output (step/pipe_ends.c) ---- */

#define COPIED_EMBED 2 /* index in step_pipe.copied */

static enum status begin_embed(struct run *run, const struct pipe_plan_action *a)
{
    struct step_pipe *p = run->p;
    struct step_pipe_message *m = &p->message[a - p->plan.action];
    const bool is_send = a->kind == PIPE_PLAN_SEND_EMBED;
    *m = (struct step_pipe_message){.line = p->ends,
                                    .data = p->embed_rows,
                                    .elems = micro_elems(run),
                                    .peer = is_send,
                                    .is_send = is_send,
                                    .made = m->made};
    run->embed = m;
    return begin_message(run, m, p->copied[COPIED_EMBED]);
}

/* message_embed — Sends or receives the same rows of a shard that is only compared, and waits for
 * them. */
static enum status message_embed(struct run *run)
{
    if (run->p->stage > 0)
        return comm_recv(run->p->ends, run->p->embed_rows, micro_elems(run), 0);
    TRY(dev_sync(run->s->stream));
    return comm_send(run->p->ends, run->p->embed_rows, micro_elems(run), 1);
}

/* add_embed — On the last stage: adds the tokens' term to the head's gradient of a micro-batch,
 * which is complete then. */
static enum status add_embed(struct run *run, int micro)
{
    struct step_core *s = run->s;
    const struct pipe_op op = {true, run->p->pipe.chunks - 1, micro};
    const struct step_micro m = micro_of(run, op);
    struct pass p = pass_at(run, op, ends_at(run));
    TRY(run->is_check ? message_embed(run) : wait_message(run, run->embed));
    TRY(copy_rows(run, model_shard_grad(&p), run->p->embed_rows));
    TRY(dev_event_record(run->s->stream, &run->p->copied[COPIED_EMBED]));
    TRY(step_copy_inputs(s->step, run->batch, micro * p.b, &p));
    TRY(s->model->embed_bwd(&p));
    step_lap(s->step, &run->r->backward_ms);
    return step_unit_bwd(s->step, &m, 0);
}

/* ---- ops ---- */

static enum status forward_chunk(struct step_core *s, const struct pass *p, int chunk)
{
    if (is_first(s->pipe, chunk))
        TRY(store_unshard(s->store, 0, 1));
    TRY(s->model->embed_fwd(p));
    int unit_first = s->pipe->chunk[chunk].unit_first;
    for (int block = 0; block < p->dims->layers; block++) {
        TRY(store_unshard(s->store, unit_first + block, 1));
        TRY(s->model->block_fwd(p, block));
        step_heartbeat(s);
    }
    return ST_OK;
}

static enum status run_forward(struct run *run, struct pipe_op op)
{
    struct pass p = pass_begin(run, op);
    TRY(step_copy_inputs(run->s->step, run->batch, op.micro * p.b, &p));
    TRY(forward_chunk(run->s, &p, op.chunk));
    if (!is_last(run->p, op.chunk))
        TRY(call_row_hooks(run, model_shard_output(&p)));
    step_lap(run->s->step, &run->r->forward_ms);
    return ST_OK;
}

static enum status run_head(struct run *run, const struct pass *p, struct pipe_op op)
{
    struct step_core *s = run->s;
    TRY(step_unshard_head(s));
    TRY(store_prepare_grad(s->store, s->table.units_n - 1));
    TRY(s->model->head(p));
    TRY(step_copy_losses(s->step, p, op.micro * p->b));
    step_lap(s->step, &run->r->head_ms);
    return ST_OK;
}

/* end_unit — Ends a unit's backward pass. */
static enum status end_unit(struct run *run, struct pipe_op op, int unit)
{
    struct step_core *s = run->s;
    const struct step_micro m = micro_of(run, op);
    struct pass p = {0};
    store_bind(s->store, &p);
    if (m.is_last)
        TRY(step_write_fault(s->step, &p, unit, run->now->fault));
    return step_unit_bwd(s->step, &m, unit);
}

static enum status backward_embed(struct run *run, const struct pass *p, struct pipe_op op)
{
    if (!p->accumulate)
        TRY(step_zero_added(run->s, p, false));
    if (step_pipe_ends_adds(run->s)) {
        /* The rows that the last stage adds. */
        if (run->embed)
            TRY(wait_message(run, run->embed));
        TRY(copy_rows(run, run->p->embed_rows, model_shard_grad(p)));
        TRY(call_row_hooks(run, run->p->embed_rows));
        TRY(run->is_check ? message_embed(run) : ST_OK);
    }
    TRY(run->s->model->embed_bwd(p));
    return end_unit(run, op, 0);
}

static enum status run_backward(struct run *run, struct pipe_op op)
{
    struct pass p = pass_begin(run, op);
    TRY(step_copy_inputs(run->s->step, run->batch, op.micro * p.b, &p));
    if (is_last(run->p, op.chunk))
        TRY(run_head(run, &p, op));
    if (op.chunk == run->p->pipe.chunks - 1)
        TRY(end_unit(run, op, run->s->table.units_n - 1));
    struct step_core *s = run->s;
    for (int block = (int)p.dims->layers - 1; block >= 0; block--) {
        int unit = run->p->chunk[op.chunk].unit_first + block;
        TRY(store_unshard(s->store, unit, -1));
        TRY(store_prepare_grad(s->store, unit));
        TRY(s->model->block_bwd(&p, block));
        TRY(end_unit(run, op, unit));
        step_heartbeat(s);
    }
    TRY(is_first(run->p, op.chunk) ? backward_embed(run, &p, op) : keep_grad(run, &p));
    step_lap(run->s->step, &run->r->backward_ms);
    return ST_OK;
}

/* ---- a step ---- */

static enum status run_action(struct run *run, const struct pipe_plan_action *a)
{
    switch (a->kind) {
    case PIPE_PLAN_RECV:
        return begin_transfer(run, a, false);
    case PIPE_PLAN_COPY:
        return copy_received_rows(run, a->op);
    case PIPE_PLAN_RUN:
        return a->op.is_backward ? run_backward(run, a->op) : run_forward(run, a->op);
    case PIPE_PLAN_SEND:
        return begin_transfer(run, a, true);
    case PIPE_PLAN_RECV_EMBED:
    case PIPE_PLAN_SEND_EMBED:
        return begin_embed(run, a);
    case PIPE_PLAN_ADD_EMBED:
        return add_embed(run, a->op.micro);
    }
    return ST_OK;
}

enum status step_pipe_run(struct step_core *s, const struct step_now *now)
{
    struct run run = {.s = s,
                      .p = s->pipe,
                      .now = now,
                      .batch = &now->batch,
                      .sample_first = step_mesh_data_rank(s) * s->samples,
                      .r = now->r};
    int64_t start = clock_ns();
    TRY(store_grad_sync_begin(s->store, NULL, 0, false)); /* no rows of tokens are exchanged */
    for (int i = 0; i < s->pipe->plan.actions_n; i++)
        TRY(run_action(&run, &s->pipe->plan.action[i]));
    now->r->pipe_ms += (double)(clock_ns() - start) * 1e-6;
    TRY(step_pipe_ends_sum(s));
    TRY(step_unit_reduce(s->step, 0));
    step_lap(s->step, &now->r->norm_ms);
    return ST_OK;
}

/* ---- messages outside the plan ---- */

/* find_neighbour — Returns the stage after this one, or before it. */
static int find_neighbour(const struct step_pipe *p, bool is_after)
{
    return (p->stage + (is_after ? 1 : p->pipe.stages - 1)) % p->pipe.stages;
}

/* send_rows — Sends the rows of a pass to a neighbour and waits for the end of the send. */
static enum status send_rows(struct step_core *s, const struct pass *p, struct tensor rows,
                             bool is_after)
{
    TRY(dev_sync(s->stream));
    return comm_send(s->pipe->line, rows, step_pipe_elems(s, p->b, p->t),
                     find_neighbour(s->pipe, is_after));
}

/* Receives the rows that a pass gets from a neighbour, and waits for them. */
static enum status receive_rows(struct step_core *s, const struct pass *p, struct tensor rows,
                                bool is_after)
{
    return comm_recv(s->pipe->line, rows, step_pipe_elems(s, p->b, p->t),
                     find_neighbour(s->pipe, is_after));
}

/* ---- the passes of one shard, to compare it ---- */

enum status step_pipe_run_alone(struct step_core *s, const struct step_now *now,
                                const struct batch *batch, int64_t sample, struct step_result *r)
{
    struct run run = {.s = s,
                      .p = s->pipe,
                      .now = now,
                      .batch = batch,
                      .is_check = true,
                      .sample_first = sample,
                      .r = r};
    const int chunks = s->pipe->pipe.chunks,
              micros = (int)(batch->samples / s->config.batch_samples);
    for (int micro = 0; micro < micros; micro++) {
        for (int chunk = 0; chunk < chunks; chunk++) {
            const struct pipe_op op = {false, chunk, micro};
            struct pass p = pass_of(&run, op);
            if (!is_first(s->pipe, chunk))
                TRY(receive_rows(s, &p, model_shard_input(&p), false));
            TRY(run_forward(&run, op));
            if (!is_last(s->pipe, chunk))
                TRY(send_rows(s, &p, model_shard_output(&p), true));
        }
        for (int chunk = chunks - 1; chunk >= 0; chunk--) {
            const struct pipe_op op = {true, chunk, micro};
            struct pass p = pass_of(&run, op);
            if (!is_last(s->pipe, chunk))
                TRY(receive_rows(s, &p, model_shard_grad(&p), true));
            TRY(run_backward(&run, op));
            if (!is_first(s->pipe, chunk)) {
                const int64_t made = (run.made_n - 1) % s->pipe->plan.grads_out;
                TRY(send_rows(s, &p, s->pipe->made[made], false));
            }
        }
        if (step_pipe_ends_adds(s) && s->pipe->stage == s->pipe->pipe.stages - 1)
            TRY(add_embed(&run, micro));
    }
    return ST_OK;
}

/* ---- only a forward pass ---- */

enum status step_pipe_run_forward(struct step_core *s, const struct pass *p)
{
    struct step_pipe *pipe = s->pipe;
    for (int chunk = 0; chunk < pipe->pipe.chunks; chunk++) {
        struct pass own = *p;
        step_pipe_bind(s, chunk, 0, &own);
        if (!is_first(pipe, chunk))
            TRY(receive_rows(s, &own, model_shard_input(&own), false));
        TRY(forward_chunk(s, &own, chunk));
        TRY(dev_sync(s->stream));
        if (!is_last(pipe, chunk))
            TRY(send_rows(s, &own, model_shard_output(&own), true));
    }
    return ST_OK;
}

enum status step_pipe_run_share(struct step_core *s, struct tensor x, int64_t elems)
{
    TRY(dev_sync(s->stream));
    return comm_broadcast(s->pipe->line, x, elems, s->pipe->pipe.stages - 1);
}
