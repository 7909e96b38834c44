/* member — see member.h. Must not know sockets, clocks or processes. */
#include "meet/member.h"

#include <string.h>

void member_init(struct member *m, const struct member_config *config, int64_t now_ms)
{
    *m = (struct member){.config = *config,
                         .since_ms = now_ms,
                         .answered_ms = -1,
                         .contact_ms = -1,
                         .closed_ms = -1,
                         .lease_ms = config->peer_timeout_ms,
                         .step = -1,
                         .turn = -1,
                         .told_sequence = -1,
                         .counts.step_best = -1};
    late_init(&m->late, now_ms);
}

/* ---- what the supervisor tells ---- */

void member_ready(struct member *m, struct member_actions *actions)
{
    m->ready++;
    m->is_ready = true;
    m->is_ready_held = m->is_ready_sent = false;
    actions->is_news = true;
}

static void add_loss(struct member *m, int64_t generation, enum status st, const char *why,
                     struct member_actions *actions)
{
    m->losses++;
    m->lost = generation;
    m->lost_st = st;
    if (!m->is_leaving)
        text_copy(m->why, sizeof(m->why), why);
    actions->is_news = true;
}

void member_lost(struct member *m, int64_t generation, enum status st, const char *why,
                 struct member_actions *actions)
{
    if (generation != m->running || (m->running != 0 && m->lost == m->running))
        return; /* of a world that is over, or said already */
    m->is_ready = m->is_ready_held = false;
    add_loss(m, generation, st, why, actions);
}

void member_stop(struct member *m, int request, struct member_actions *actions)
{
    m->stop = m->stop_told = request;
    actions->is_news = true;
}

void member_leave(struct member *m, enum status st, const char *why, int64_t now_ms,
                  struct member_actions *actions)
{
    if (m->is_leaving || m->is_over)
        return;
    m->is_leaving = true;
    m->leaving_ms = now_ms;
    m->leave_st = st;
    m->running = 0; /* its workers are done with it */
    text_copy(m->why, sizeof(m->why), why);
    actions->is_news = true;
}

/* ---- what it says ---- */

bool member_has_addresses(const struct member *m)
{
    return m->is_joined && m->is_ready && !m->is_ready_held;
}

bool member_say(struct member *m, int64_t now_ms, struct wire_says *says)
{
    *says = (struct wire_says){.node_id = m->config.node_id,
                               .instance = m->config.instance,
                               .sequence = ++m->sequence,
                               .turn = m->turn,
                               .silence_ms = m->contact_ms >= 0 ? now_ms - m->contact_ms : 0,
                               .late_ms = late_worst(&m->late, now_ms),
                               .generation = m->generation,
                               .running = m->running,
                               .ready = m->is_ready ? m->ready : 0,
                               .losses = m->losses,
                               .lost = m->lost,
                               .lost_st = m->lost_st,
                               .is_leaving = m->is_leaving,
                               .leave_st = m->leave_st,
                               .stop = m->stop,
                               .step = m->step,
                               .counts = m->counts};
    text_copy(says->why, sizeof(says->why), m->why);
    m->is_ready_sent = m->is_ready_sent || member_has_addresses(m);
    return !m->is_joined;
}

/* ---- what it makes of answers ---- */

static void over(struct member *m, enum status st, const char *text, struct member_actions *actions)
{
    m->is_over = true;
    m->running = 0;
    actions->is_over = true;
    actions->st = st;
    text_copy(actions->text, sizeof(actions->text), text);
}

/* The world this node is in is no more. */
static void drop(struct member *m, const char *why, struct member_actions *actions)
{
    actions->abort = m->running;
    text_copy(actions->text, sizeof(actions->text), why);
    m->running = 0;
}

/* Given up by this node's own judgement: node 0 may not know. */
static void give_up(struct member *m, const char *why, struct member_actions *actions)
{
    int64_t generation = m->running;
    drop(m, why, actions);
    if (m->lost != generation)
        add_loss(m, generation, ST_PEER, why, actions);
}

void member_desert(struct member *m, const char *why, struct member_actions *actions)
{
    if (m->running != 0)
        give_up(m, why, actions);
}

static void told_running(struct member *m, const struct wire_told *told,
                         struct member_actions *actions)
{
    bool is_mine = m->ready > 0 && told->used == m->ready;
    if (m->running == told->generation || m->is_leaving)
        return;
    if (m->running != 0)
        drop(m, "another generation was begun without this node", actions);
    else if (is_mine && m->is_ready)
        actions->fetch = told->generation;
    else if (told->used > 0 &&
             m->lost != told->generation) /* the readiness was taken back too late */
        add_loss(m, told->generation, ST_PEER,
                 m->why[0] != 0 ? m->why : "its workers are no longer ready", actions);
}

static void told_gathering(struct member *m, const struct wire_told *told,
                           struct member_actions *actions)
{
    if (m->running != 0 && told->generation >= m->running) {
        drop(m, told->text, actions);
    } else if (m->is_ready &&
               told->used ==
                   m->ready) { /* a world came and went unseen: its readiness is used up */
        m->is_ready = m->is_ready_held = false;
        actions->abort = told->generation;
        text_copy(actions->text, sizeof(actions->text), told->text);
    }
}

static void told_in(struct member *m, const struct wire_told *told, struct member_actions *actions)
{
    /* now it may have the addresses */
    actions->is_news = actions->is_news || (!m->is_joined && m->is_ready);
    m->is_joined = m->is_welcome = true;
    m->turn = told->turn;
    m->counts = told->counts;
    if (told->generation > m->generation)
        m->generation = told->generation;
    m->is_ready_held = m->is_ready && told->ready == m->ready;
    text_copy(m->missing, sizeof(m->missing), told->missing);
    if (m->is_leaving && told->is_left) {
        over(m, m->leave_st, m->why, actions);
        return;
    }
    if (told->is_running)
        told_running(m, told, actions);
    else
        told_gathering(m, told, actions);
    if (told->stop != 0 && told->stop != m->stop_told)
        actions->stop = m->stop_told = told->stop;
}

/* What node 0 knew of this node is gone: with it a world, and a readiness of which it may have made
 * one. */
static void start_over(struct member *m, const char *why, struct member_actions *actions)
{
    m->is_joined = m->is_ready_held = false;
    if (m->running != 0) {
        give_up(m, why, actions);
    } else if (m->is_ready && m->is_ready_sent && !m->is_leaving) {
        m->is_ready = false;
        /* its number is given up, too: the next world must have a higher one */
        actions->abort = ++m->generation;
        text_copy(actions->text, sizeof(actions->text), why);
    }
}

/* Another life of node 0, or the first: it must hear everything anew. */
static void meet_coordinator(struct member *m, const struct wire_told *told,
                             struct member_actions *actions)
{
    start_over(m, "node 0 was lost and came back", actions);
    m->coordinator = told->coordinator;
    m->turn = -1;
}

static int64_t lease_of(const struct member *m, const struct wire_told *told)
{
    int64_t least_ms = m->config.peer_timeout_ms, most_ms = MEMBER_LEASE_MAX * least_ms;
    return told->lease_ms < least_ms  ? least_ms
           : told->lease_ms < most_ms ? told->lease_ms
                                      : most_ms;
}

void member_told(struct member *m, const struct wire_told *told, int64_t sent_ms, int64_t now_ms,
                 struct member_actions *actions)
{
    bool is_known = wire_is_same(told->coordinator, m->coordinator);
    if (m->is_over || (is_known ? told->turn < m->turn : told->sequence <= m->told_sequence))
        return; /* overtaken by a newer answer */
    if (told->sequence > m->told_sequence)
        m->told_sequence = told->sequence;
    if (sent_ms > m->contact_ms)
        m->contact_ms = sent_ms;
    if (told->is_lease && sent_ms > m->answered_ms) {
        m->answered_ms = sent_ms;
        m->lease_ms = lease_of(m, told);
    }
    actions->is_news = actions->is_news || !told->is_lease;
    m->since_ms = now_ms;
    m->closed_ms = -1;
    m->trouble[0] = 0;
    if (!is_known)
        meet_coordinator(m, told, actions);
    switch (told->answer) {
    case WIRE_ANSWER_IN:
        told_in(m, told, actions);
        break;
    case WIRE_ANSWER_JOIN:
        start_over(m, "node 0 had given this node up for lost", actions);
        actions->is_news = true;
        break;
    case WIRE_ANSWER_WAIT:
        start_over(m, told->text, actions);
        text_copy(m->missing, sizeof(m->missing), told->text);
        break;
    case WIRE_ANSWER_END:
        over(m, m->is_leaving ? m->leave_st : told->st, m->is_leaving ? m->why : told->text,
             actions);
        break;
    }
}

static bool is_lease_over(const struct member *m, int64_t now_ms)
{
    return now_ms - m->answered_ms >= m->lease_ms;
}

bool member_world(struct member *m, int64_t generation, int64_t now_ms)
{
    bool is_wanted = m->is_joined && m->is_ready && m->running == 0 &&
                     generation == m->generation && m->lost != generation && !m->is_over &&
                     !is_lease_over(m, now_ms);
    if (!is_wanted)
        return false;
    m->running = generation;
    m->is_ready = m->is_ready_held = false;
    return true;
}

/* ---- time and connections ---- */

void member_closed(struct member *m, const char *why, int64_t now_ms)
{
    if (m->closed_ms < 0)
        m->closed_ms = now_ms;
    text_copy(m->trouble, sizeof(m->trouble), why);
}

static void look_running(struct member *m, int64_t now_ms, struct member_actions *actions)
{
    char why[512];
    if (is_lease_over(m, now_ms)) {
        text_format(why, sizeof(why), "node 0 was lost: silent for %.1f s",
                    (double)(now_ms - m->answered_ms) / 1e3);
        give_up(m, why, actions);
    } else if (m->closed_ms >= 0 && now_ms - m->closed_ms >= MEMBER_CLOSED_MS) {
        text_format(why, sizeof(why), "node 0 was lost: %.200s", m->trouble);
        give_up(m, why, actions);
    }
}

void member_tick(struct member *m, int64_t now_ms, struct member_actions *actions)
{
    char why[512], span[32];
    (void)late_tick(&m->late, now_ms);
    if (m->is_over)
        return;
    if (m->running != 0)
        look_running(m, now_ms, actions);
    bool is_alone = m->closed_ms >= 0 && now_ms - m->closed_ms >= MEMBER_CLOSED_MS;
    int64_t leave_ms =
        now_ms - m->answered_ms >= MEMBER_LEAVE_MS ? MEMBER_LEAVE_SILENT_MS : MEMBER_LEAVE_MS;
    if (m->is_leaving && (is_alone || now_ms - m->leaving_ms >= leave_ms)) {
        over(m, m->leave_st, m->why, actions); /* nobody is there to tell */
    } else if (now_ms - m->since_ms >= m->config.join_timeout_ms) {
        text_format(why, sizeof(why),
                    "node 0 could not be reached for %s: %.200s; is it running, and are "
                    "MASTER_ADDR and MASTER_PORT right?",
                    text_span(span, sizeof(span), m->config.join_timeout_ms),
                    m->trouble[0] != 0 ? m->trouble : "no answer");
        over(m, ST_PEER, why, actions);
    }
}
