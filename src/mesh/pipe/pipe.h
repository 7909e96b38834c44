/* pipe — in which order the stages of a pipeline run the forward and backward passes of a step's
 * micro-batches: pure arithmetic. It must not know models, nor how ranks communicate.
 *
 * A model's layers are cut into p·v chunks. Stage r of p has chunks r, p + r, 2p + r …: its own
 * chunks 0 … v-1. A micro-batch runs forward through all chunks in order, and backward in reverse.
 * An op is one pass of one micro-batch through one chunk.
 *
 *   1f1b         v = 1 (Narayanan et al. 2019): stage r runs p-1-r forward ops, then forward and
 *                backward in turn, then the backward ops that are left. Any number m of
 *                micro-batches.
 *   interleaved  v >= 2 (Narayanan et al. 2021): the same with chunks, p micro-batches of a chunk
 *                after another, and 2·(p-1-r) + (v-1)·p forward ops first. m is a multiple of p.
 *
 * Where all chunks take the same time, F forward and B backward, and messages take none, a step
 * takes (m·v + p - 1)·(F + B), of which (p - 1)·(F + B) are the bubble: a stage waits. Backward ops
 * of one chunk run in ascending order of micro-batches, as on one rank. */
#ifndef CONVOY_MESH_PIPE_H
#define CONVOY_MESH_PIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Stages, micro-batches of a step, chunks of a stage: p, m and v. */
struct pipe {
    int stages, micros, chunks;
};
struct pipe_op {
    bool is_backward;
    int chunk, micro; /* the stage's own chunk */
};

/* pipe_check — ST_BAD_SETTING: there is no such schedule; with the settings to change. */
enum status pipe_check(const struct pipe *pipe);

/* pipe_ops_n — ops of a stage in a step: 2·m·v. pipe_op_at — op i of a stage. */
int pipe_ops_n(const struct pipe *pipe);
struct pipe_op pipe_op_at(const struct pipe *pipe, int stage, int i);
/* pipe_source — the stage and the op on it that make the input of an op. false: it has none, for it
 * is the first chunk forward. The last chunk's backward op takes its own forward op's output. */
bool pipe_source(const struct pipe *pipe, int stage, struct pipe_op op, int *stage_out,
                 struct pipe_op *op_out);
/* pipe_in_flight — for tests: how many forward ops of a stage wait for their backward ops at once,
 * at most: 1f1b min(m, p-r); interleaved min(m·v, 2·(p-1-r) + (v-1)·p + 1). */
int pipe_in_flight(const struct pipe *pipe, int stage);
/* pipe_slots — the time of a step, in units of F + B: m·v + p - 1. pipe_bubble — of it the part in
 * which a stage waits: (p-1) / (m·v + p - 1). */
int64_t pipe_slots(const struct pipe *pipe);
double pipe_bubble(const struct pipe *pipe);

/* pipe_plan (pipe/plan.c): what a stage of a pipeline does in a step, one thing after another: the
 * ops with the messages between stages.
 *
 * Messages have one order among all stages: that of the times at which their receivers start the op
 * that reads them, where forward takes 1 and backward 2. Each stage sends and receives in this
 * order. So no stage waits without end, even where a message is sent only while its receiver
 * receives it: of all messages that are not done, the first one can be done.
 *
 * With is_early, a message is received beside the op before the one that reads it, where that
 * keeps the order. Calls that an op itself makes on the same queue then wait for that message: ops
 * that make collective calls do better without. A stage needs room for one received message of
 * each direction, and for grads_out gradients that wait to be sent.
 *
 * With has_embed the last stage adds the gradient of a token embedding that its head shares, micro-
 * batch by micro-batch: the head's part when it runs, and the embedding's once the first stage has
 * sent the gradient of its first chunk's input, which it does before that of the next one. The head
 * is ahead by heads_ahead micro-batches at most. */
enum pipe_plan_kind {
    PIPE_PLAN_RECV,
    PIPE_PLAN_TAKE,
    PIPE_PLAN_RUN,
    PIPE_PLAN_SEND,
    PIPE_PLAN_RECV_EMBED,
    PIPE_PLAN_ADD_EMBED,
    PIPE_PLAN_SEND_EMBED
};

/* RECV: begin to receive the input of `op` from stage `peer`. TAKE: wait for it and move it to its
 * place; the next message of its direction may come. RUN: `op` itself. SEND: begin to send the
 * result of `op` to stage `peer`. _EMBED: of what has_embed asks for; `op` is the first stage's:
 * ADD waits for what RECV began, and adds it. */
struct pipe_plan_action {
    enum pipe_plan_kind kind;
    struct pipe_op op;
    int peer;
};
struct pipe_plan {
    struct pipe_plan_action *action;
    int actions_n;
    int grads_out;   /* gradients that are made and not begun to be sent, at most */
    int heads_ahead; /* has_embed, of the last stage; else 0 */
};

/* pipe_plan_make — of one stage. has_embed: several stages. */
void pipe_plan_make(const struct pipe *pipe, int stage, bool is_early, bool has_embed,
                    struct pipe_plan *out);
void pipe_plan_free(struct pipe_plan *plan); /* may be called twice */

#endif
