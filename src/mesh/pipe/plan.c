/* pipe_plan — computes the times of all ops, then one stage's messages in the order of all
 * messages, then its ops and messages in one list (pipe/pipe.h). */
#include "mesh/pipe/pipe.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"

#define FORWARD_TIME 1
#define BACKWARD_TIME 2

/* A message of the stage, received for or sent from its op number op_i. is_embed: the gradient of a
 * micro-batch of the first stage's first chunk; the receiver reads it before op op_i, or, if op_i
 * is the number of ops, after all ops. */
struct message {
    int64_t key; /* position in the order of all messages */
    int op_i, peer, micro;
    bool is_recv, is_embed;
};

/* start, end: the times at which the ops of all stages start, in the order of ops of a stage, and
 * end, by op_slot. message: the messages of one stage. */
struct maker {
    const struct pipe *pipe;
    int stage, ops_n;
    bool is_early, has_embed;
    int64_t *start, *end; /* end: 0: it has not run */
    struct message *message;
    int messages_n, next;         /* next: the first message that is not in the list */
    const struct message *coming; /* is_embed: the message that is received, and not added yet */
    struct pipe_plan plan;
};

/* op_slot — returns the position of an op of a stage in `end`. */
static int64_t op_slot(const struct maker *m, int stage, struct pipe_op op)
{
    int64_t half = m->ops_n / 2;
    return stage * (int64_t)m->ops_n + (op.is_backward ? half : 0) +
           (int64_t)op.chunk * m->pipe->micros + op.micro;
}

/* ---- times ---- */

/* advance_stage — runs a stage's ops until one has no input yet. Returns the op at which it
 * stopped. */
static int advance_stage(struct maker *m, int stage, int i, int64_t *now)
{
    for (; i < m->ops_n; i++) {
        struct pipe_op op = pipe_op_at(m->pipe, stage, i), from;
        int source;
        int64_t ready = 0;
        if (pipe_source(m->pipe, stage, op, &source, &from)) {
            ready = m->end[op_slot(m, source, from)];
            if (ready == 0)
                return i;
        }
        *now = ready > *now ? ready : *now;
        m->start[stage * (int64_t)m->ops_n + i] = *now;
        *now += op.is_backward ? BACKWARD_TIME : FORWARD_TIME;
        m->end[op_slot(m, stage, op)] = *now;
    }
    return i;
}

static void set_times(struct maker *m)
{
    int stages = m->pipe->stages, left = stages;
    int *at = memory_new((size_t)stages, sizeof *at);
    int64_t *now = memory_new((size_t)stages, sizeof *now);
    while (left > 0) {
        left = 0;
        bool is_stuck = true;
        for (int stage = 0; stage < stages; stage++) {
            int before = at[stage];
            at[stage] = advance_stage(m, stage, before, &now[stage]);
            is_stuck = is_stuck && at[stage] == before;
            left += at[stage] < m->ops_n;
        }
        ASSERTF(left == 0 || !is_stuck, "%d stages wait for each other", left);
    }
    free(at);
    free(now);
}

/* ---- messages ---- */

/* key_of — returns the key of the message that a stage reads at a time; no two messages have the
 * same. */
static int64_t key_of(const struct maker *m, int64_t time, int receiver, bool is_embed)
{
    return (time * m->pipe->stages + receiver) * 2 + !is_embed;
}

static void add_message(struct maker *m, int receiver, int receiver_op_i, int op_i, int peer)
{
    int64_t start = m->start[receiver * (int64_t)m->ops_n + receiver_op_i];
    m->message[m->messages_n++] = (struct message){.key = key_of(m, start, receiver, false),
                                                   .op_i = op_i,
                                                   .peer = peer,
                                                   .is_recv = receiver == m->stage};
}

/* first_from — returns the first op of a stage that starts at `time` or later; the number of ops:
 * there is none. */
static int first_from(const struct maker *m, int stage, int64_t time)
{
    const int64_t *start = m->start + stage * (int64_t)m->ops_n;
    int low = 0, high = m->ops_n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (start[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* op_index — returns the position of an op in the order of its stage. */
static int op_index(const struct maker *m, int stage, struct pipe_op op)
{
    return first_from(
        m, stage, m->end[op_slot(m, stage, op)] - (op.is_backward ? BACKWARD_TIME : FORWARD_TIME));
}

static void find_messages(struct maker *m)
{
    int source;
    struct pipe_op from;
    const int n = m->pipe->stages;
    for (int stage = 0; stage < n; stage++) {
        /* Only neighbours exchange messages; the last stage's is the first. */
        if (stage != m->stage && (stage + 1) % n != m->stage && (m->stage + 1) % n != stage)
            continue;
        for (int i = 0; i < m->ops_n; i++) {
            bool has_source =
                pipe_source(m->pipe, stage, pipe_op_at(m->pipe, stage, i), &source, &from);
            if (!has_source || source == stage)
                continue;
            if (stage == m->stage)
                add_message(m, stage, i, i, source);
            else if (source == m->stage)
                add_message(m, stage, i, op_index(m, source, from), stage);
        }
    }
}

/* find_embed_messages — lists the messages whose gradients the last stage can add as soon as the
 * first stage has computed them. */
static void find_embed_messages(struct maker *m)
{
    const int last = m->pipe->stages - 1;
    const bool is_recv = m->stage == last;
    for (int micro = 0; micro < m->pipe->micros; micro++) {
        const struct pipe_op op = {true, 0, micro};
        const int64_t time = m->end[op_slot(m, 0, op)];
        m->message[m->messages_n++] =
            (struct message){.key = key_of(m, time, last, true),
                             .op_i = is_recv ? first_from(m, last, time) : op_index(m, 0, op),
                             .peer = is_recv ? 0 : last,
                             .micro = micro,
                             .is_recv = is_recv,
                             .is_embed = true};
    }
}

static int compare(const void *a, const void *b)
{
    const struct message *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* ---- the list ---- */

static void add_action(struct maker *m, enum pipe_plan_kind kind, int op_i, int peer)
{
    m->plan.action[m->plan.actions_n++] = (struct pipe_plan_action){
        .kind = kind, .op = pipe_op_at(m->pipe, m->stage, op_i), .peer = peer};
}

static void add_embed_action(struct maker *m, enum pipe_plan_kind kind,
                             const struct message *message)
{
    m->plan.action[m->plan.actions_n++] = (struct pipe_plan_action){
        .kind = kind, .op = {true, 0, message->micro}, .peer = message->peer};
}

/* add_embed — adds the received message, if it is for an op up to op_i. */
static void add_embed(struct maker *m, int op_i)
{
    if (!m->coming || m->coming->op_i > op_i)
        return;
    add_embed_action(m, PIPE_PLAN_ADD_EMBED, m->coming);
    m->coming = NULL;
}

/* add_messages — adds the next messages, as long as they send results of ops before `op_i` or
 * receive for ops up to recv_i. true: one of them receives for recv_i. If recv_i is after op_i, the
 * input of op_i has been copied already, and an ADD would overwrite it. */
static bool add_messages(struct maker *m, int op_i, int recv_i)
{
    bool is_found = false;
    while (m->next < m->messages_n) {
        const struct message *message = &m->message[m->next];
        if (message->is_recv ? message->op_i > recv_i : message->op_i >= op_i)
            break;
        if (recv_i > op_i && message->is_embed && message->is_recv && m->coming)
            break;
        m->next++;
        if (message->is_embed) {
            /* There is memory for one received message. */
            if (message->is_recv)
                add_embed(m, m->ops_n);
            add_embed_action(m, message->is_recv ? PIPE_PLAN_RECV_EMBED : PIPE_PLAN_SEND_EMBED,
                             message);
            m->coming = message->is_recv ? message : NULL;
            continue;
        }
        add_action(m, message->is_recv ? PIPE_PLAN_RECV : PIPE_PLAN_SEND, message->op_i,
                   message->peer);
        is_found = is_found || (message->is_recv && message->op_i == recv_i);
    }
    return is_found;
}

static bool has_input(const struct maker *m, int op_i)
{
    int source;
    struct pipe_op from;
    return pipe_source(m->pipe, m->stage, pipe_op_at(m->pipe, m->stage, op_i), &source, &from) &&
           source != m->stage;
}

static void list_actions(struct maker *m)
{
    bool is_here = false; /* op i's message is in the list */
    for (int i = 0; i < m->ops_n; i++) {
        is_here = add_messages(m, i, i) || is_here;
        add_embed(m, i);
        ASSERTF(is_here || !has_input(m, i), "stage %d op %d", m->stage, i);
        if (is_here)
            add_action(m, PIPE_PLAN_COPY, i, -1);
        is_here = add_messages(m, i, m->is_early ? i + 1 : i);
        add_action(m, PIPE_PLAN_RUN, i, -1);
    }
    add_messages(m, m->ops_n, m->ops_n);
    add_embed(m, m->ops_n);
    ASSERTF(m->next == m->messages_n, "message %d of %d", m->next, m->messages_n);
}

/* most_grads — returns the most gradients that wait to be sent. */
static int most_grads(int stage, const struct pipe_plan *plan)
{
    int most = 0, waiting = 0;
    for (int i = 0; i < plan->actions_n; i++) {
        const struct pipe_plan_action *a = &plan->action[i];
        if (!a->op.is_backward || (stage == 0 && a->op.chunk == 0))
            continue;
        waiting += (a->kind == PIPE_PLAN_RUN) - (a->kind == PIPE_PLAN_SEND);
        most = waiting > most ? waiting : most;
    }
    return most;
}

/* most_ahead — returns, for the last stage, the most micro-batches whose head's term is computed
 * and whose embedding's term is not added. */
static int most_ahead(const struct maker *m)
{
    int most = 0, ahead = 0;
    for (int i = 0; i < m->plan.actions_n; i++) {
        const struct pipe_plan_action *a = &m->plan.action[i];
        const bool is_head =
            a->kind == PIPE_PLAN_RUN && a->op.is_backward && a->op.chunk == m->pipe->chunks - 1;
        ahead += is_head - (a->kind == PIPE_PLAN_ADD_EMBED);
        most = ahead > most ? ahead : most;
    }
    return most;
}

void pipe_plan_free(struct pipe_plan *plan)
{
    free(plan->action);
    *plan = (struct pipe_plan){0};
}

void pipe_plan_make(const struct pipe *pipe, int stage, bool is_early, bool has_embed,
                    struct pipe_plan *out)
{
    const int last = pipe->stages - 1;
    struct maker m = {.pipe = pipe,
                      .stage = stage,
                      .ops_n = pipe_ops_n(pipe),
                      .is_early = is_early,
                      .has_embed = has_embed};
    ASSERTF(!has_embed || pipe->stages > 1, "%d stages", pipe->stages);
    const size_t ops = (size_t)m.ops_n, all = ops * (size_t)pipe->stages;
    m.start = memory_new(all, sizeof *m.start);
    m.end = memory_new(all, sizeof *m.end);
    m.message = memory_new(3 * ops, sizeof *m.message);
    m.plan.action = memory_new(6 * ops, sizeof *m.plan.action);
    set_times(&m);
    find_messages(&m);
    if (has_embed && (stage == 0 || stage == last))
        find_embed_messages(&m);
    qsort(m.message, (size_t)m.messages_n, sizeof *m.message, compare);
    list_actions(&m);
    m.plan.grads_out = most_grads(stage, &m.plan);
    if (has_embed && stage == last)
        m.plan.heads_ahead = most_ahead(&m);
    free(m.start);
    free(m.end);
    free(m.message);
    *out = m.plan;
}
