/* pipe — the order in which the stages of a pipeline run the forward and backward passes of a
 * step's micro-batches: pure arithmetic. It must not know models, nor how ranks communicate.
 *
 * A model's layers are divided into p·v chunks. Stage r of p has chunks r, p + r, 2p + r …: its own
 * chunks 0 … v-1. A micro-batch runs forward through all chunks in order, and backward in reverse.
 * An op is one pass of one micro-batch through one chunk.
 *
 *   1f1b         v = 1 (Narayanan et al. 2019): stage r runs p-1-r forward ops, then forward and
 *                backward in turn, then the remaining backward ops. Any number m of micro-batches.
 *   interleaved  v >= 2 (Narayanan et al. 2021): the same with chunks, p micro-batches of a chunk
 *                after another, and 2·(p-1-r) + (v-1)·p forward ops first. m is a multiple of p.
 *
 * If every chunk needs F for forward and B for backward, and messages need no time, a step needs
 * (m·v + p - 1)·(F + B). During (p - 1)·(F + B) of it, the bubble, a stage waits. Backward ops of
 * one chunk run in ascending order of micro-batches, as on one rank. */
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

/* pipe_check — returns ST_BAD_SETTING if there is no such schedule; the message names the settings
 * to change. */
enum status pipe_check(const struct pipe *pipe);

/* pipe_ops_n — returns the ops of a stage in a step: 2·m·v. */
int pipe_ops_n(const struct pipe *pipe);
/* pipe_op_at — returns op i of a stage. */
struct pipe_op pipe_op_at(const struct pipe *pipe, int stage, int i);
/* pipe_source — finds the stage and its op that compute the input of an op. false: it has none,
 * because it is the first chunk forward. The input of the last chunk's backward op is the output of
 * its own forward op. */
bool pipe_source(const struct pipe *pipe, int stage, struct pipe_op op, int *stage_out,
                 struct pipe_op *op_out);
/* pipe_in_flight — for tests: returns the most forward ops of a stage that wait for their backward
 * ops at a time: 1f1b min(m, p-r); interleaved min(m·v, 2·(p-1-r) + (v-1)·p + 1). */
int pipe_in_flight(const struct pipe *pipe, int stage);
/* pipe_slots — returns the time of a step, in units of F + B: m·v + p - 1. */
int64_t pipe_slots(const struct pipe *pipe);
/* pipe_bubble — returns the share of this time in which a stage waits: (p-1) / (m·v + p - 1). */
double pipe_bubble(const struct pipe *pipe);

/* pipe_plan (pipe/plan.c): the actions of one stage of a pipeline in a step, in their order: the
 * ops, and the messages between stages.
 *
 * All messages of all stages have one order: the order of the times at which their receivers start
 * the op that reads them, if a forward op needs time 1 and a backward op 2. Each stage sends and
 * receives in this order. So no stage waits forever, even if a message is sent only while its
 * receiver receives it: of all messages that are not done, the first one can be done.
 *
 * With is_early, a message is received during the op before its reader, if that keeps the order.
 * Calls that an op itself makes on the same queue then wait for that message: ops that make
 * collective calls are faster without is_early. A stage needs memory for one received message of
 * each direction, and for grads_out gradients that wait to be sent.
 *
 * With has_embed the last stage adds the gradient of a token embedding that its head shares,
 * micro-batch by micro-batch: first the head's term when the head runs, later the embedding's term,
 * which the first stage sends. The first stage sends the gradient of its first chunk's input before
 * the gradient of the next micro-batch. The head's terms are ahead by heads_ahead micro-batches at
 * most. */
enum pipe_plan_kind {
    PIPE_PLAN_RECV,
    PIPE_PLAN_COPY,
    PIPE_PLAN_RUN,
    PIPE_PLAN_SEND,
    PIPE_PLAN_RECV_EMBED,
    PIPE_PLAN_ADD_EMBED,
    PIPE_PLAN_SEND_EMBED
};

/* The actions.
 *   RECV  begins to receive the input of `op` from stage `peer`
 *   COPY  waits for that message and moves it to its destination; the next message of its direction
 *   may
 *         follow
 *   RUN   runs `op` itself
 *   SEND  begins to send the result of `op` to stage `peer`
 *   RECV_EMBED, ADD_EMBED, SEND_EMBED  are for has_embed; `op` is an op of the first stage: ADD
 *                                      waits for the message that RECV began, and adds it */
struct pipe_plan_action {
    enum pipe_plan_kind kind;
    struct pipe_op op;
    int peer;
};
struct pipe_plan {
    struct pipe_plan_action *action;
    int actions_n;
    int grads_out;   /* most gradients that are computed and whose send has not begun */
    int heads_ahead; /* has_embed, on the last stage; else 0 */
};

/* pipe_plan_make — computes the plan of one stage. has_embed needs several stages. */
void pipe_plan_make(const struct pipe *pipe, int stage, bool is_early, bool has_embed,
                    struct pipe_plan *out);
void pipe_plan_free(struct pipe_plan *plan); /* may be called twice */

#endif
