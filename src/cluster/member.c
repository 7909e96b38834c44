/* member — see member.h. Must not know sockets, clocks or processes. */
#include "cluster/member.h"

#include <string.h>

#include "base/assert.h"

void member_init(struct member *m, const struct member_config *config, int64_t now_ms)
{
    *m = (struct member){.config = *config,
                         .since_ms = now_ms,
                         .answered_ms = -1,
                         .contact_ms = -1,
                         .disconnected_ms = -1,
                         .lease_ms = config->peer_timeout_ms,
                         .step = -1,
                         .revision = -1,
                         .replied_sequence = -1,
                         .lost_worker = -1,
                         .lost_step = -1,
                         .counts.first.step = -1};
    loop_lag_init(&m->lag, now_ms);
}

/* Checks the invariants between two events, which hold for any answer of node 0. */
static void assert_invariants(const struct member *m)
{
    ASSERT(!m->is_ready_held || m->is_ready);
    ASSERTF(m->running == 0 || (m->is_joined && !m->is_leaving && !m->is_over && !m->is_ready),
            "in generation %lld", (long long)m->running);
    ASSERTF(m->running <= m->generation, "in generation %lld, of %lld", (long long)m->running,
            (long long)m->generation);
    ASSERT(m->contact_ms >= m->answered_ms);
}

/* ---- events of the supervisor ---- */

void member_ready(struct member *m, struct member_actions *actions)
{
    m->ready++;
    m->is_ready = true;
    m->is_ready_held = m->is_ready_sent = false;
    actions->is_urgent = true;
}

static void add_loss(struct member *m, const struct cluster_loss *loss,
                     struct member_actions *actions)
{
    ASSERTF(loss->generation >= 0 && loss->worker_i >= -1, "worker %d in generation %lld",
            loss->worker_i, (long long)loss->generation);
    m->losses++;
    m->lost = loss->generation;
    m->lost_st = loss->st;
    m->lost_worker = loss->worker_i;
    m->lost_step = loss->step;
    if (!m->is_leaving && loss->why != m->why)
        text_copy(m->why, sizeof m->why, loss->why);
    actions->is_urgent = true;
}

void member_lost(struct member *m, const struct cluster_loss *loss, struct member_actions *actions)
{
    const bool is_current = loss->generation == m->running,
               is_late = m->running == 0 && loss->worker_i >= 0;
    if (!is_current && !is_late)
        return; /* a loss in an ended generation, whose end had another cause */
    if (loss->generation != 0 &&
        !(m->lost != loss->generation || (m->lost_worker < 0 && loss->worker_i >= 0)))
        return;
    m->is_ready = m->is_ready_held = false;
    add_loss(m, loss, actions);
}

void member_closed(struct member *m, int64_t generation, int closed_rank,
                   struct member_actions *actions)
{
    if (generation <= m->closed)
        return;
    ASSERTF(closed_rank >= 0, "rank %d", closed_rank);
    m->closed = generation;
    m->closed_rank = closed_rank;
    actions->is_urgent = true;
}

void member_stepped(struct member *m, int64_t generation, struct member_actions *actions)
{
    if (generation <= m->stepped)
        return;
    m->stepped = generation;
    for (int i = 0; i < m->past.n; i++)
        if (m->past.worlds[i].generation == generation)
            succession_step(&m->past, m->past.worlds[i].coordinator, generation);
    /* The coordinator waits for the first step of a generation; its own node's report suffices. */
    actions->is_urgent = actions->is_urgent || m->config.node_id == m->leader_id;
}

void member_stop(struct member *m, int request, struct member_actions *actions)
{
    m->stop = m->known_stop = request;
    actions->is_urgent = true;
}

void member_leave(struct member *m, enum status st, const char *why, int64_t now_ms,
                  struct member_actions *actions)
{
    if (m->is_leaving || m->is_over)
        return;
    m->is_leaving = true;
    m->leaving_ms = now_ms;
    m->leave_st = st;
    m->running = 0; /* its workers have ended */
    text_copy(m->why, sizeof m->why, why);
    actions->is_urgent = true;
    assert_invariants(m);
}

/* ---- messages ---- */

bool member_has_addresses(const struct member *m)
{
    return m->is_joined && m->is_ready && !m->is_ready_held;
}

bool member_make_heartbeat(struct member *m, int64_t now_ms, struct message_heartbeat *heartbeat)
{
    assert_invariants(m);
    *heartbeat =
        (struct message_heartbeat){.node_id = m->config.node_id,
                                   .incarnation = m->config.incarnation,
                                   .sequence = ++m->sequence,
                                   .revision = m->revision,
                                   .silence_ms = m->contact_ms >= 0 ? now_ms - m->contact_ms : 0,
                                   .lag_ms = loop_lag_worst(&m->lag, now_ms),
                                   .generation = m->generation,
                                   .running = m->running,
                                   .ready = m->is_ready ? m->ready : 0,
                                   .losses = m->losses,
                                   .lost = m->lost,
                                   .lost_st = m->lost_st,
                                   .lost_worker = m->lost_worker,
                                   .lost_step = m->lost_step,
                                   .closed = m->closed,
                                   .closed_rank = m->closed_rank,
                                   .stepped = m->stepped,
                                   .is_leaving = m->is_leaving,
                                   .leave_st = m->leave_st,
                                   .stop = m->stop,
                                   .step = m->step,
                                   .counts = m->counts};
    text_copy(heartbeat->why, sizeof heartbeat->why, m->why);
    m->is_ready_sent = m->is_ready_sent || member_has_addresses(m);
    return !m->is_joined;
}

/* ---- replies ---- */

static void finish_member(struct member *m, enum status st, const char *text,
                          struct member_actions *actions)
{
    ASSERT(!m->is_over);
    m->is_over = true;
    m->running = 0;
    actions->is_over = true;
    actions->st = st;
    text_copy(actions->text, sizeof actions->text, text);
}

/* Leaves the generation, which has ended. */
static void leave_world(struct member *m, const char *why, struct member_actions *actions)
{
    ASSERT(m->running != 0);
    actions->abort = m->running;
    text_copy(actions->text, sizeof actions->text, why);
    m->running = 0;
}

/* Ends this node's generation without node 0, which may not have noticed, so the loss is
 * reported. */
static void give_up(struct member *m, const char *why, struct member_actions *actions)
{
    int64_t generation = m->running;
    leave_world(m, why, actions);
    if (m->lost != generation)
        add_loss(m, &(struct cluster_loss){generation, -1, -1, ST_PEER, why}, actions);
}

void member_abandon(struct member *m, const char *why, struct member_actions *actions)
{
    if (m->running != 0)
        give_up(m, why, actions);
}

static void on_running(struct member *m, const struct message_reply *reply,
                       struct member_actions *actions)
{
    bool is_mine = m->ready > 0 && reply->used == m->ready;
    ASSERT(m->is_joined && !m->is_over);
    if (m->running == reply->generation || m->is_leaving)
        return;
    if (m->running != 0)
        leave_world(m, "another generation began without this node", actions);
    else if (is_mine && m->is_ready)
        actions->fetch = reply->generation;
    else if (reply->used > 0 && m->lost != reply->generation) {
        /* The readiness was withdrawn too late. If a worker ended, that is the loss. */
        int64_t generation = reply->generation;
        struct cluster_loss loss = {generation, -1, -1, ST_PEER, "its workers are no longer ready"};
        if (m->losses > 0 && m->lost == 0 && m->lost_worker >= 0)
            loss =
                (struct cluster_loss){generation, m->lost_worker, m->lost_step, m->lost_st, m->why};
        add_loss(m, &loss, actions);
    }
}

static void on_member_reply(struct member *m, const struct message_reply *reply,
                            struct member_actions *actions)
{
    /* Now the coordinator may have the addresses. */
    actions->is_urgent = actions->is_urgent || (!m->is_joined && m->is_ready);
    m->is_joined = m->has_ever_joined = true;
    m->revision = reply->revision;
    m->counts = reply->counts;
    if (reply->stepped > 0)
        succession_step(&m->past, reply->coordinator, reply->stepped);
    if (reply->generation > m->generation)
        m->generation = reply->generation;
    m->is_ready_held = m->is_ready && reply->ready == m->ready;
    text_copy(m->missing, sizeof m->missing, reply->missing);
    if (m->is_leaving && reply->is_leave_confirmed) {
        finish_member(m, m->leave_st, m->why, actions);
        return;
    }
    if (reply->is_running)
        on_running(m, reply, actions);
    else {
        /* A generation began and ended before this node noticed it, and used the readiness up. */
        bool is_used_up = m->is_ready && reply->used == m->ready;
        if (m->running != 0 && reply->generation >= m->running) {
            leave_world(m, reply->text, actions);
        } else if (is_used_up) {
            m->is_ready = m->is_ready_held = false;
            actions->abort = reply->generation;
            text_copy(actions->text, sizeof actions->text, reply->text);
        }
    }
    if (reply->stop != 0 && reply->stop != m->known_stop)
        actions->stop = m->known_stop = reply->stop;
}

/* Withdraws from the job, because node 0 does not list this node any more. That ends the
 * generation; and a readiness that was sent may have been used for another one, so it is
 * withdrawn. */
static void drop_membership(struct member *m, const char *why, struct member_actions *actions)
{
    m->is_joined = m->is_ready_held = false;
    if (m->running != 0) {
        give_up(m, why, actions);
    } else if (m->is_ready && m->is_ready_sent && !m->is_leaving) {
        m->is_ready = false;
        /* That generation's number is skipped, too: the next one must be higher. */
        actions->abort = ++m->generation;
        text_copy(actions->text, sizeof actions->text, why);
    }
}

static int64_t lease_from(const struct member *m, const struct message_reply *reply)
{
    int64_t least_ms = m->config.peer_timeout_ms, most_ms = MEMBER_LEASE_FACTOR_MAX * least_ms;
    return reply->lease_ms < least_ms  ? least_ms
           : reply->lease_ms < most_ms ? reply->lease_ms
                                       : most_ms;
}

/* ---- the search for the coordinator ---- */

/* Turns to a node. */
static void ask_node(struct member *m, int node_id, int64_t now_ms)
{
    m->target = node_id;
    m->asked_ms = now_ms;
}

/* Turns to node 0, where a node that was in no world finds the job. Node 0 itself starts a
 * coordinator. */
static void ask_node0(struct member *m, int64_t now_ms, struct member_actions *actions)
{
    ask_node(m, 0, now_ms);
    actions->lead = m->config.node_id == 0 && !m->is_leaving;
}

/* Turns to the next node: to the nodes of the newest world in ascending order, and then to the node
 * of the former coordinator again. A node that comes to its own number becomes the coordinator,
 * because no node before it answers. A node that was in no world asks node 0. A node that leaves
 * the job does not lead it: its end would be the end of all nodes. */
static void ask_next(struct member *m, int64_t now_ms, struct member_actions *actions)
{
    const struct succession_world *world = succession_newest(&m->past);
    ASSERT(m->is_searching);
    if (m->is_leaving)
        return;
    actions->is_urgent = true;
    if (!world && m->target != m->leader_id) {
        ask_node(m, m->leader_id, now_ms);
        return;
    }
    if (!world) {
        ask_node0(m, now_ms, actions);
        return;
    }
    do
        m->search_i++;
    while (m->search_i < world->n && world->processes[m->search_i].node_id == m->leader_id &&
           m->leader_id != m->config.node_id);
    if (m->search_i >= world->n) {
        m->search_i = -1;
        ask_node(m, m->leader_id, now_ms);
    } else if (world->processes[m->search_i].node_id == m->config.node_id) {
        actions->lead = true;
        m->asked_ms = now_ms;
    } else {
        ask_node(m, world->processes[m->search_i].node_id, now_ms);
    }
}

/* Begins the search: this node is no member any more, and its readiness is withdrawn. */
static void begin_search(struct member *m, const char *why, int64_t now_ms,
                         struct member_actions *actions)
{
    if (!m->config.may_search || m->is_searching || m->is_leaving || !m->has_ever_joined ||
        m->target == m->config.node_id)
        return;
    drop_membership(m, why, actions);
    m->is_searching = true;
    m->search_i = -1;
    ask_next(m, now_ms, actions);
}

void member_lead(struct member *m)
{
    ASSERT(m->running == 0);
    m->is_searching = false;
    m->target = m->leader_id = m->config.node_id;
    m->disconnected_ms = -1;
}

void member_follow(struct member *m, int leader_id, int64_t now_ms, struct member_actions *actions)
{
    ASSERTF(leader_id != m->config.node_id, "node %d", leader_id);
    if (!m->is_searching)
        drop_membership(m, "another node leads the job", actions);
    m->is_searching = m->config.may_search && m->has_ever_joined;
    m->search_i = -1;
    m->disconnected_ms = -1;
    m->leader_id = leader_id;
    actions->is_urgent = true;
    ask_node(m, leader_id, now_ms);
    assert_invariants(m);
}

void member_on_view(struct member *m, const struct message_view *view, int64_t now_ms,
                    struct member_actions *actions)
{
    if (m->is_searching && view->is_coordinator && view->has_past && !m->is_over &&
        view->leader_id != m->target && view->leader_id != m->config.node_id)
        member_follow(m, view->leader_id, now_ms, actions);
}

int member_leader(const struct member *m)
{
    return m->is_joined && !m->is_searching ? m->leader_id : -1;
}

/* A node answers that it is not the coordinator. It is waited for if it has lost the coordinator,
 * too, and is before this node: it becomes the coordinator. */
static void on_elsewhere(struct member *m, const struct message_reply *reply, int64_t now_ms,
                         struct member_actions *actions)
{
    if (reply->leader_id >= 0 && reply->leader_id != m->config.node_id) {
        if (reply->leader_id != m->target)
            member_follow(m, reply->leader_id, now_ms, actions);
        return;
    }
    if (m->is_searching && (m->target > m->config.node_id || m->target == m->leader_id))
        ask_next(m, now_ms, actions);
    else if (!m->is_searching)
        begin_search(m, "the coordinator's node leads the job no more", now_ms, actions);
}

void member_on_reply(struct member *m, const struct message_reply *reply, int64_t sent_ms,
                     int64_t now_ms, struct member_actions *actions)
{
    bool is_known = message_is_same(reply->coordinator, m->coordinator);
    if (m->is_over)
        return;
    if (reply->answer == MESSAGE_ANSWER_ELSEWHERE) {
        if (reply->sequence > m->replied_sequence && m->target != m->config.node_id) {
            m->replied_sequence = reply->sequence;
            on_elsewhere(m, reply, now_ms, actions);
        }
        return;
    }
    if (m->config.may_search && reply->leader_id != m->target)
        return; /* this node has turned to another one since */
    if (is_known ? reply->revision < m->revision : reply->sequence <= m->replied_sequence)
        return; /* an older reply than the last */
    if (reply->sequence > m->replied_sequence)
        m->replied_sequence = reply->sequence;
    if (sent_ms > m->contact_ms)
        m->contact_ms = sent_ms;
    if (reply->is_lease && sent_ms > m->answered_ms) {
        m->answered_ms = sent_ms;
        m->lease_ms = lease_from(m, reply);
    }
    actions->is_urgent = actions->is_urgent || !reply->is_lease;
    m->since_ms = now_ms;
    m->disconnected_ms = -1;
    m->unreachable_why[0] = 0;
    m->is_searching = false;
    m->target = m->leader_id = reply->leader_id;
    if (!is_known) {
        /* A new coordinator, or the first: it needs the whole state of this node. */
        drop_membership(m, "the coordinator was lost, and another one has started", actions);
        m->coordinator = reply->coordinator;
        m->revision = -1;
    }
    switch (reply->answer) {
    case MESSAGE_ANSWER_MEMBER:
        on_member_reply(m, reply, actions);
        break;
    case MESSAGE_ANSWER_JOIN:
        drop_membership(m, "node 0 had declared this node lost", actions);
        actions->is_urgent = true;
        break;
    case MESSAGE_ANSWER_WAIT:
        drop_membership(m, reply->text, actions);
        text_copy(m->missing, sizeof m->missing, reply->text);
        break;
    case MESSAGE_ANSWER_ELSEWHERE: /* above */
        break;
    case MESSAGE_ANSWER_END:
        finish_member(m, m->is_leaving ? m->leave_st : reply->st,
                      m->is_leaving ? m->why : reply->text, actions);
        break;
    }
    assert_invariants(m);
}

static bool is_lease_over(const struct member *m, int64_t now_ms)
{
    return now_ms - m->answered_ms >= m->lease_ms;
}

bool member_on_world(struct member *m, int64_t generation, const struct succession_world *past,
                     int64_t now_ms)
{
    bool is_wanted = m->is_joined && m->is_ready && m->running == 0 &&
                     generation == m->generation && m->lost != generation && !m->is_leaving &&
                     !m->is_over && !is_lease_over(m, now_ms);
    if (!is_wanted || (past && !succession_add(&m->past, past)))
        return false;
    m->ended = (struct message_incarnation){0};
    m->running = generation;
    m->is_ready = m->is_ready_held = false;
    assert_invariants(m);
    return true;
}

/* ---- timeouts and connections ---- */

void member_on_disconnect(struct member *m, const char *why, int64_t now_ms)
{
    if (m->disconnected_ms < 0)
        m->disconnected_ms = now_ms;
    text_copy(m->unreachable_why, sizeof m->unreachable_why, why);
}

void member_on_refused(struct member *m, int target, const char *why, int64_t now_ms,
                       struct member_actions *actions)
{
    char text[MESSAGE_TEXT_MAX];
    if (target != m->target || m->is_over)
        return;
    member_on_disconnect(m, why, now_ms);
    if (!m->has_ever_joined)
        ask_node0(m, now_ms, actions); /* the node that another one has named does not answer */
    if (!m->config.may_search || !m->has_ever_joined)
        return;
    if (m->is_searching) {
        ask_next(m, now_ms, actions);
        return;
    }
    /* Until now the coordinator had this node as a member, so it can have formed no world without
     * it. */
    const struct succession_process *leader =
        succession_find_process(succession_newest(&m->past), m->leader_id);
    if (leader && m->running != 0 && !is_lease_over(m, now_ms) &&
        now_ms - m->disconnected_ms < MEMBER_DISCONNECTED_MS)
        m->ended = leader->incarnation;
    text_format(text, sizeof text, "node %d was lost: %s", m->leader_id, why);
    begin_search(m, text, now_ms, actions);
    assert_invariants(m);
}

void member_on_silence(struct member *m, int target, int64_t now_ms, struct member_actions *actions)
{
    if (target != m->target || m->is_over)
        return;
    if (m->is_searching)
        ask_next(m, now_ms, actions);
    else if (!m->has_ever_joined && m->target != m->config.node_id)
        ask_node0(m, now_ms, actions);
}

void member_tick(struct member *m, int64_t now_ms, struct member_actions *actions)
{
    char why[MESSAGE_TEXT_MAX], span[32];
    (void)loop_lag_tick(&m->lag, now_ms);
    if (m->is_over)
        return;
    bool is_alone =
        m->disconnected_ms >= 0 && now_ms - m->disconnected_ms >= MEMBER_DISCONNECTED_MS;
    if (m->running != 0 && is_lease_over(m, now_ms)) {
        text_format(why, sizeof why, "node %d was lost: silent for %.1f s", m->leader_id,
                    (double)(now_ms - m->answered_ms) / 1e3);
        give_up(m, why, actions);
    } else if (m->running != 0 && is_alone) {
        text_format(why, sizeof why, "node %d was lost: %s", m->leader_id, m->unreachable_why);
        give_up(m, why, actions);
    }
    const bool is_lost =
        m->has_ever_joined && m->target != m->config.node_id &&
        ((is_lease_over(m, now_ms) && now_ms - m->since_ms >= MEMBER_SEARCH_MS) ||
         (m->disconnected_ms >= 0 && now_ms - m->disconnected_ms >= MEMBER_SEARCH_MS));
    if (is_lost && !m->is_searching)
        begin_search(m, "the coordinator was lost", now_ms, actions);
    else if (now_ms - m->asked_ms >= MEMBER_ASK_MS)
        member_on_silence(m, m->target, now_ms, actions);
    int64_t leave_ms =
        now_ms - m->answered_ms >= MEMBER_LEAVE_MS ? MEMBER_LEAVE_SILENT_MS : MEMBER_LEAVE_MS;
    if (m->is_leaving && (is_alone || now_ms - m->leaving_ms >= leave_ms)) {
        finish_member(m, m->leave_st, m->why, actions); /* node 0 does not confirm it */
    } else if (now_ms - m->since_ms >= m->config.join_timeout_ms) {
        text_format(
            why, sizeof why,
            "node 0%s%s could not be reached for %s: %s; is it running, and are MASTER_ADDR "
            "and MASTER_PORT right?",
            m->where[0] != 0 ? " at " : "", m->where,
            text_format_span(span, sizeof span, m->config.join_timeout_ms),
            m->unreachable_why[0] != 0 ? m->unreachable_why : "no answer");
        finish_member(m, ST_PEER, why, actions);
    }
    assert_invariants(m);
}
