/* pipe_plan — what a stage of a pipeline does in a step, one thing after another: the ops of pipe.h
 * with the messages between stages. Pure arithmetic.
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
#ifndef CONVOY_MESH_PIPE_PLAN_H
#define CONVOY_MESH_PIPE_PLAN_H

#include "mesh/pipe.h"

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
