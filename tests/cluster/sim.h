/* sim — a simulator of processes and a network for the state machines of the cluster, driven by a
 * seed. Time is simulated in steps of 10 ms; 10,000 histories take seconds. sim_run runs a history
 * with faults, sim_overload one in which processes only stall, sim_incident one in which all nodes
 * but MIN_NODES are lost within 5 s, sim_rollback one that returns to a checkpoint again and
 * again. */
#ifndef CONVOY_TESTS_SIM_H
#define CONVOY_TESTS_SIM_H

#include "cluster/sim_death.h"
#include "cluster/sim_incident.h"
#include "cluster/sim_return.h"

/* ---- processes ---- */

static void open_coordinator(struct sim *s, int id, const struct coordinator_inheritance *from)
{
    struct process *p = &s->processes[id];
    const struct coordinator_config config = {
        .nodes_n = s->nodes_n,
        .workers_n = 1,
        .leader_id = p->node,
        .has_succession = s->hands_over,
        .process = p->member.config.incarnation,
        .inheritance = from,
        .min_nodes = s->min_nodes,
        .join_timeout_ms = 1 << 30,
        .peer_timeout_ms = 6000,
        .max_restarts = s->max_restarts,
        .agree_json = "{}",
        .incarnation = {0xC + (uint64_t)s->coordinators_n, (uint64_t)id + 1}};
    s->coordinators_n += s->hands_over;
    p->leads_as = config.incarnation;
    p->coordinator = coordinator_open(&config, s->now_ms);
    memset(&p->view, 0, sizeof p->view);
    memset(&p->incident, 0, sizeof p->incident);
    memset(p->states, 0, sizeof p->states);
    memset(p->held, 0, sizeof p->held);
    p->incident.restarts = p->coordinator->budget.counts.restarts;
    p->incident.generation = p->coordinator->generation;
    for (int i = 0; i < PROCESSES_MAX; i++)
        p->signs[i] = (struct sign){.disconnected_ms = -1, .reported_ms = -1};
}

static void start(struct sim *s, int node)
{
    if (s->processes_n == PROCESSES_MAX)
        return;
    int id = s->processes_n++;
    struct process *p = &s->processes[id];
    memset(p, 0, sizeof(*p));
    struct member_config member = {node, 1 << 30, 6000, {0xA, (uint64_t)id + 1}, s->hands_over};
    p->is_alive = true;
    p->node = node;
    p->ready_ms = s->now_ms + 10 + (int64_t)draw(s, 500);
    p->tick_ms = s->now_ms;
    p->step = -1;
    member_init(&p->member, &member, s->now_ms);
    s->is_host_down[node] = false;
    if (node == 0)
        open_coordinator(s, id, NULL);
    add_to_digest(s, 0x2000 + (uint64_t)node);
}

/* Ends a process; is_host_up: its host closes its connections, else it has lost power. */
static void end_process(struct sim *s, int id, bool is_host_up, bool is_closed)
{
    struct process *p = &s->processes[id];
    int zero = leader_of(s, id);
    if (!p->is_alive)
        return;
    p->is_alive = false;
    coordinator_close(p->coordinator);
    p->coordinator = NULL;
    add_to_digest(s, 0x3000 + (uint64_t)id);
    s->is_host_down[p->node] = alive_of(s, p->node) < 0 && !is_host_up;
    if (is_host_up)
        cut_data(s, id, false);
    if (s->hands_over &&
        (!is_host_up || (zero >= 0 && is_cut(s, p->node, s->processes[zero].node))))
        return;
    if ((s->hands_over ? zero != id : p->node != 0) && zero >= 0 && is_closed &&
        !s->cut_to[p->node]) {
        struct packet *m = post(s, PACKET_DISCONNECT, id, zero);
        if (m != NULL)
            deliver_in(s, m, 1 + (int64_t)draw(s, 40));
    }
}

static void crash(struct sim *s, int id)
{
    if (s->processes[id].is_alive) {
        const bool is_host_up = chance(s, 0.8);
        end_process(s, id, is_host_up, chance(s, 0.8));
    }
}

static void carry_out(struct sim *s, int id, const struct member_actions *a)
{
    struct process *p = &s->processes[id];
    if (a->is_over) {
        int others_n = 0;
        for (int i = 0; i < s->processes_n; i++)
            others_n += i != id && s->processes[i].node == p->node;
        if (strstr(a->text, "the same rank was lost three times") != NULL)
            /* The job ends by its own rule (check_incident), and so does the history. */
            s->is_budget_spent = true;
        else if (others_n == 0 && !p->member.is_leaving && !s->is_budget_spent)
            violation(s, "a node's only process was refused", id, a->st);
        crash(s, id);
        return;
    }
    if (a->abort != 0)
        p->ready_ms = s->now_ms + 10 + (int64_t)draw(s, 300);
    if (a->abort > p->aborted)
        p->aborted = a->abort;
    if (a->lead && p->coordinator == NULL) {
        const struct coordinator_inheritance from = {
            .former_id = p->member.leader_id,
            .ended = p->member.ended,
            .past = &p->member.past,
            .generation = p->member.generation,
            .counts = p->member.counts,
            .stop = p->member.known_stop,
        };
        open_coordinator(s, id, p->member.past.n > 0 ? &from : NULL);
        member_lead(&p->member);
        add_to_digest(s, 0x4000 + (uint64_t)id);
    }
    if (a->fetch != 0) {
        int zero = leader_of(s, id);
        struct cluster_world world;
        /* A request takes a round trip; the reply may be lost. */
        if (zero >= 0 && s->processes[zero].coordinator != NULL && !s->processes[zero].is_frozen &&
            !is_lost(s, id, zero) &&
            coordinator_world(s->processes[zero].coordinator, p->node, p->member.config.incarnation,
                              a->fetch, &world)) {
            record_world(s, s->processes[zero].leads_as, &world);
            if (member_on_world(&p->member, world.generation, world.past, s->now_ms))
                enter(s, id, &world);
        }
    }
    if (a->is_urgent && p->is_alive)
        send_heartbeat(s, id);
}

static void send_reply(struct sim *s, int zero, int to, const struct message_reply *reply,
                       int64_t sent_ms)
{
    if (is_lost(s, zero, to))
        return;
    struct packet *m = post(s, PACKET_REPLY, zero, to);
    if (m == NULL)
        return;
    m->reply = *reply;
    m->sent_ms = sent_ms;
    if (to == zero)
        deliver_in(s, m, 0);
    duplicate(s, m);
}

static void flush(struct sim *s, int zero)
{
    struct process *z = &s->processes[zero];
    for (int i = 0; i < s->nodes_n && z->coordinator != NULL; i++) {
        struct held *h = &z->held[i];
        struct message_reply reply;
        if (!h->is_held ||
            (h->revision == coordinator_revision(z->coordinator) && s->now_ms < h->until_ms))
            continue;
        h->is_held = false;
        coordinator_make_reply(z->coordinator, i, h->incarnation, h->sequence, &reply);
        send_reply(s, zero, h->process, &reply, h->sent_ms);
    }
}

static void receive_heartbeat(struct sim *s, struct packet *m)
{
    struct process *z = &s->processes[m->to];
    struct message_reply reply;
    static struct cluster_address address = {.bytes = sizeof(struct origin)};
    const struct message_join join = {
        MESSAGE_PROTOCOL, s->nodes_n, 1, 1, "sim", "{}", 0, m->past >= 0 ? &pasts[m->past] : NULL,
        m->ended};
    memcpy(address.data, &m->origin, sizeof(m->origin));
    m->heartbeat.addresses_n = m->has_origin;
    m->heartbeat.addresses = &address;
    if (z->coordinator == NULL && s->hands_over && m->from != m->to) {
        reply = (struct message_reply){.answer = MESSAGE_ANSWER_ELSEWHERE,
                                       .sequence = m->heartbeat.sequence,
                                       .leader_id = member_leader(&z->member)};
        send_reply(s, m->to, m->from, &reply, m->sent_ms);
    }
    if (z->coordinator == NULL)
        return;
    const bool was_member = is_holder(z, &s->processes[m->from]),
               returns = is_return(z, &m->heartbeat);
    if (was_member)
        note_step(z, &m->heartbeat);
    note_message(s, m->to, m->from, &m->heartbeat);
    coordinator_on_heartbeat(z->coordinator, &m->heartbeat, m->has_join ? &join : NULL, s->now_ms,
                             &reply);
    if (!was_member && is_holder(z, &s->processes[m->from]))
        z->view.is_returning[m->heartbeat.node_id] = returns;
    check_losses(s, m->to);
    check_incident(s, m->to);
    check_return(s, m->to, false);
    check_load_error(s, m->to);
    if (reply.answer == MESSAGE_ANSWER_MEMBER && reply.is_lease &&
        m->heartbeat.revision == reply.revision && chance(s, 0.7)) {
        struct held *h = &z->held[m->heartbeat.node_id];
        h->until_ms = 0;
        flush(s, m->to); /* at most one request of each node is held */
        *h = (struct held){
            true,           m->heartbeat.incarnation, m->from,   m->heartbeat.sequence,
            reply.revision, s->now_ms + 1000,         m->sent_ms};
    } else {
        send_reply(s, m->to, m->from, &reply, m->sent_ms);
    }
    flush(s, m->to);
}

/* ---- other coordinators ---- */

static void yield(struct sim *s, int id, int leader_id)
{
    struct process *p = &s->processes[id];
    struct member_actions actions = {0};
    coordinator_close(p->coordinator);
    p->coordinator = NULL;
    add_to_digest(s, 0x5000 + (uint64_t)id);
    member_follow(&p->member, leader_id, s->now_ms, &actions);
    carry_out(s, id, &actions);
}

static struct message_view view_of(const struct process *p)
{
    struct message_view view = {.node_id = p->node,
                                .incarnation = p->member.config.incarnation,
                                .leader_id = member_leader(&p->member)};
    if (p->coordinator != NULL)
        coordinator_fill_view(p->coordinator, &view);
    return view;
}

/* Requests the views of the nodes that are no members, as cluster.c does. */
static void exchange_views(struct sim *s, int id)
{
    struct process *p = &s->processes[id];
    for (int node = 0; node < s->nodes_n && p->coordinator != NULL; node++) {
        struct message_incarnation expected;
        const int to = answers_for(s, node);
        if (!coordinator_wants_view(p->coordinator, node, &expected) || is_cut(s, p->node, node) ||
            is_cut(s, node, p->node) || chance(s, s->loss) || s->is_host_down[node])
            continue;
        if (expected.lo != 0 && !s->processes[expected.lo - 1].is_alive) {
            coordinator_on_ended(p->coordinator, node, expected, s->now_ms);
            check_losses(s, id);
            check_incident(s, id);
            check_return(s, id, false);
        }
        if (to < 0 || to == id || s->processes[to].is_frozen)
            continue;
        struct process *q = &s->processes[to];
        const struct message_view mine = view_of(p), theirs = view_of(q);
        struct member_actions actions = {0};
        if (q->coordinator != NULL && coordinator_yields(q->coordinator, &mine)) {
            yield(s, to, mine.leader_id);
        } else if (coordinator_yields(p->coordinator, &theirs)) {
            yield(s, id, theirs.leader_id);
        } else if (q->coordinator == NULL) {
            member_on_view(&q->member, &mine, s->now_ms, &actions);
            carry_out(s, to, &actions);
        }
    }
}

static void receive_disconnect(struct sim *s, int zero, int id)
{
    const struct process *p = &s->processes[id];
    note_disconnect(s, zero, id);
    coordinator_on_disconnect(s->processes[zero].coordinator, p->node, p->member.config.incarnation,
                              s->now_ms);
    check_losses(s, zero);
    check_incident(s, zero);
    check_return(s, zero, false);
    exchange_views(s, zero);
}

/* A worker of this process finds that a connection ended. Its collective fails, too. */
static void receive_closed(struct sim *s, int id, const struct packet *m)
{
    struct process *p = &s->processes[id];
    struct member_actions actions = {0};
    if (p->entered != m->generation)
        return;
    member_closed(&p->member, m->generation, m->rank, &actions);
    if (p->member.closed != m->generation)
        violation(s, "a connection that was closed is not reported", id, m->generation);
    if (p->member.running == m->generation)
        member_lost(&p->member,
                    &(struct cluster_loss){m->generation, -1, -1, ST_PEER, "its connection ended"},
                    &actions);
    carry_out(s, id, &actions);
}

/* Returns false if the packet must wait. */
static bool deliver(struct sim *s, struct packet *m)
{
    struct process *p = &s->processes[m->to];
    struct member_actions actions = {0};
    if (!p->is_alive)
        return true;
    if (p->is_frozen) /* it waits in the kernel */
        return false;
    add_to_digest(s, (uint64_t)m->kind * 7919 + (uint64_t)m->from * 97 + (uint64_t)m->to);
    if (m->kind == PACKET_HEARTBEAT)
        receive_heartbeat(s, m);
    else if (m->kind == PACKET_DISCONNECT && p->coordinator != NULL)
        receive_disconnect(s, m->to, m->from);
    else if (m->kind == PACKET_CLOSED)
        receive_closed(s, m->to, m);
    else if (m->kind == PACKET_REPLY) {
        member_on_reply(&p->member, &m->reply, m->sent_ms, s->now_ms, &actions);
        carry_out(s, m->to, &actions);
    }
    return true;
}

static void tick(struct sim *s, int id)
{
    struct process *p = &s->processes[id];
    struct member_actions actions = {0};
    const char *line;
    bool is_warning;
    p->tick_ms = s->now_ms + 100;
    member_tick(&p->member, s->now_ms, &actions);
    carry_out(s, id, &actions);
    if (!p->is_alive)
        return;
    if (p->coordinator != NULL) {
        coordinator_tick(p->coordinator, s->now_ms);
        check_losses(s, id);
        check_incident(s, id);
        check_return(s, id, true);
        exchange_views(s, id);
    }
    if (p->coordinator != NULL) {
        while ((line = log_queue_next(coordinator_log(p->coordinator), &is_warning)) != NULL)
            add_to_digest(s, (uint64_t)line[0]);
        flush(s, id);
    }
    if (p->ready_ms != 0 && s->now_ms >= p->ready_ms && p->member.running == 0) {
        struct member_actions news = {0};
        p->ready_ms = 0;
        if (cannot_load(s, p))
            member_leave(&p->member, ST_STORE, LOAD_ERROR, s->now_ms, &news);
        else
            member_ready(&p->member, &news);
        carry_out(s, id, &news);
    }
    if (p->is_alive && trains(s, id)) {
        struct member_actions news = {0};
        member_stepped(&p->member, p->member.running, &news);
        if (p->member.stepped != p->member.running)
            violation(s, "a step is not reported", id, p->member.running);
        carry_out(s, id, &news);
    } else if (p->is_alive && p->member.running != 0 && p->member.stepped == p->member.running &&
               p->cut != p->member.running && is_complete(s, p)) {
        p->step++;
    }
    if (p->is_alive && s->now_ms - p->heartbeat_ms >= (p->member.is_joined ? 500 : 150))
        send_heartbeat(s, id);
}

/* ---- faults ---- */

/* What is on its way in a connection that is reset never arrives. */
static void cut_packets(struct sim *s, int id)
{
    for (int i = 0; i < s->packets_n; i++) {
        if (s->packets[i].from == id || s->packets[i].to == id)
            s->at_ms[i] = INT64_MAX;
    }
}

/* Its end may be found later than the end of its connections, which others report. */
static void lose_worker(struct sim *s, int id)
{
    struct process *p = &s->processes[id];
    struct member_actions actions = {0};
    bool was_running = p->member.running != 0;
    cut_data(s, id, false);
    member_lost(&p->member,
                &(struct cluster_loss){p->member.running, 0, p->step, ST_RETRY, "worker died"},
                &actions);
    p->step = -1;
    if (!was_running)
        p->ready_ms = s->now_ms + 50 + (int64_t)draw(s, 300);
    carry_out(s, id, &actions);
}

/* Returns true if a second process of the node may be started while the first one lives. Not one of
 * every node: they would be another job, which no process of the first one can hinder. */
static bool may_double(const struct sim *s, int node)
{
    return node != 0 && !(s->hands_over && node == s->nodes_n - 1);
}

static void inject_fault(struct sim *s)
{
    int id = (int)draw(s, (uint64_t)s->processes_n), node = (int)draw(s, (uint64_t)s->nodes_n);
    struct process *p = &s->processes[id];
    struct member_actions actions = {0};
    if (s->hands_over && s->sides == 0 && chance(s, 0.3)) {
        /* The network falls into two parts, mostly for longer than a lease. */
        s->sides = draw(s, (uint64_t)1 << s->nodes_n);
        s->sides_heal_ms = s->now_ms + 4000 + (int64_t)draw(s, 10000);
        return;
    }
    switch (draw(s, 9)) {
    case 0:
    case 1:
        crash(s, id);
        break;
    case 2: /* a second process of a node, by mistake, while the first may live */
        if (may_double(s, node) && chance(s, 0.5))
            start(s, node);
        break;
    case 3: /* frozen for a while */
        if (p->is_alive) {
            p->is_frozen = true;
            p->thaw_ms = s->now_ms + 100 + (int64_t)draw(s, 9000);
        }
        break;
    case 4:
        s->cut_to[node] = chance(s, 0.7);
        s->cut_from[node] = chance(s, 0.7);
        s->heal_ms[node] = s->now_ms + 100 + (int64_t)draw(s, 9000);
        if (may_double(s, node) && chance(s, 0.5)) /* a replacement is started while it is alive */
            start(s, node);
        break;
    case 5: /* a worker dies, or a node leaves: it was asked to stop, or its results are wrong */
        if (p->is_alive && !p->is_frozen && p->node != 0 && p->coordinator == NULL &&
            s->min_nodes < s->nodes_n && chance(s, 0.5)) {
            member_leave(&p->member, chance(s, 0.5) ? ST_TERMINATED : ST_FAULT, "not needed",
                         s->now_ms, &actions);
            carry_out(s, id, &actions);
        } else if (p->is_alive && !p->is_frozen) {
            lose_worker(s, id);
        }
        break;
    case 6: { /* both sides see the connection reset, or those for data, or all of the process */
        int zero = leader_of(s, id);
        const bool has_data = chance(s, 0.5);
        if (has_data && p->is_alive && !p->is_frozen)
            cut_data(s, id, true);
        if (has_data && chance(s, 0.4))
            break;
        if (p->is_alive && !p->is_frozen && (s->hands_over ? id != zero : p->node != 0) &&
            zero >= 0 && !s->processes[zero].is_frozen) {
            cut_packets(s, id);
            s->processes[zero].held[p->node].is_held = false;
            member_on_disconnect(&p->member, "reset", s->now_ms);
            receive_disconnect(s, zero, id);
        }
        break;
    }
    default:
        s->loss = chance(s, 0.5) ? 0 : (double)draw(s, 300) / 1e3;
        s->slow = chance(s, 0.5) ? 0 : (double)draw(s, 600) / 1e3;
        s->repeat = (double)draw(s, 100) / 1e3;
        break;
    }
}

static void heal(struct sim *s)
{
    if (s->now_ms >= s->sides_heal_ms)
        s->sides = 0;
    for (int node = 0; node < s->nodes_n; node++) {
        if (s->now_ms >= s->heal_ms[node])
            s->cut_to[node] = s->cut_from[node] = false;
        if (alive_of(s, node) < 0 && node != s->away && !s->has_no_returns &&
            (s->has_no_faults || chance(s, s->min_nodes < s->nodes_n ? 0.01 : 0.05)))
            start(s, node);
    }
    for (int i = 0; i < s->processes_n; i++) {
        struct process *p = &s->processes[i];
        if (p->is_frozen && s->now_ms >= p->thaw_ms) {
            p->is_frozen = false;
            tick(s, i); /* its timers run before anything else */
        }
    }
}

/* has_trained — a process of another node knows that the job has. Else the first world has all
 * nodes. */
static bool has_trained(const struct sim *s, int but)
{
    for (int i = 0; i < s->processes_n; i++)
        if (s->processes[i].is_alive && s->processes[i].node != but &&
            s->processes[i].member.generation > 0 && !s->processes[i].member.is_leaving)
            return true;
    return false;
}

static void end_faults(struct sim *s)
{
    s->has_no_faults = true;
    s->loss = s->slow = s->repeat = 0;
    s->sides_heal_ms = 0;
    for (int i = 0; i < s->nodes_n; i++)
        s->heal_ms[i] = 0;
    for (int i = 0; i < s->packets_n; i++) /* slow packets arrive soon */
        s->at_ms[i] = s->at_ms[i] == INT64_MAX ? INT64_MAX : s->now_ms + (int64_t)draw(s, 30);
    for (int i = 0; i < s->processes_n; i++) {
        struct process *p = &s->processes[i];
        p->thaw_ms = p->thaw_ms < s->now_ms ? p->thaw_ms : s->now_ms;
        if (p->is_alive && alive_of(s, p->node) != i)
            crash(s, i); /* of several processes of a node only the last one stays */
    }
    s->always_steps = s->hands_over;
    if (s->min_nodes == s->nodes_n || s->hands_over)
        return; /* with hands_over the rest may be too few until all have been there (lose_last) */
    const int away = 1 + (int)draw(s, (uint64_t)s->nodes_n - 1);
    s->away = has_trained(s, away) ? away : -1;
    if (s->away > 0 && alive_of(s, away) >= 0)
        crash(s, alive_of(s, away));
}

static bool is_settled(const struct sim *s)
{
    const int first = alive_of(s, s->away == 0 ? 1 : 0);
    const int zero = first < 0 ? -1 : leader_of(s, first);
    struct message_incarnation coordinator =
        zero >= 0 ? s->processes[zero].leads_as : (struct message_incarnation){0};
    int64_t generation = 0;
    for (int node = 0; node < s->nodes_n; node++) {
        int id = alive_of(s, node);
        if (node == s->away)
            continue;
        if (id < 0 || s->processes[id].member.running == 0 ||
            !message_is_same(s->processes[id].member.coordinator, coordinator))
            return false;
        if (generation != 0 && s->processes[id].member.running != generation)
            return false;
        generation = s->processes[id].member.running;
    }
    const struct world *w = find_world(s, coordinator, generation);
    return s->away < 0 || (w != NULL && w->origins[s->away].process < 0);
}

static inline void sim_print(const struct sim *s)
{
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        const struct member *m = &p->member;
        if (p->is_alive)
            print_message("# node %d process %d: joined %d running %lld ready %lld (%d held %d) "
                          "generation %lld revision %lld replied %lld silent %lld target %d "
                          "leader %d searches %d past %d leads %d missing %s\n",
                          p->node, i, m->is_joined, (long long)m->running, (long long)m->ready,
                          m->is_ready, m->is_ready_held, (long long)m->generation,
                          (long long)m->revision, (long long)m->replied_sequence,
                          (long long)(s->now_ms - m->answered_ms), m->target, m->leader_id,
                          m->is_searching, m->past.n, p->coordinator != NULL, m->missing);
    }
}

/* ---- one history ---- */

static int next_due(const struct sim *s)
{
    int next = -1;
    for (int i = 0; i < s->packets_n; i++) {
        if (s->at_ms[i] <= s->now_ms &&
            (next < 0 || s->at_ms[i] < s->at_ms[next] ||
             (s->at_ms[i] == s->at_ms[next] && s->order_of[i] < s->order_of[next])))
            next = i;
    }
    return next;
}

static void deliver_due(struct sim *s)
{
    static struct packet copy;
    for (int i; s->failure[0] == 0 && (i = next_due(s)) >= 0;) {
        copy = s->packets[i];
        s->at_ms[i] = INT64_MAX;
        if (!deliver(s, &copy)) {
            s->packets[i] = copy;
            s->at_ms[i] = (s->processes[copy.to].thaw_ms > s->now_ms ? s->processes[copy.to].thaw_ms
                                                                     : s->now_ms) +
                          (s->processes[copy.to].stall_ms != 0 ? 10 : 60);
        }
        check_one_world(s);
    }
}

static void step(struct sim *s)
{
    s->now_ms += 10;
    deliver_due(s);
    for (int i = 0; i < s->processes_n; i++) {
        if (s->processes[i].is_alive && !s->processes[i].is_frozen &&
            s->now_ms >= s->processes[i].tick_ms)
            tick(s, i);
    }
    check_one_world(s);
    if (!s->has_no_faults && s->now_ms % 100 == 0 && chance(s, 0.12))
        inject_fault(s);
    if (s->now_ms % 50 == 0)
        heal(s);
    check_one_world(s);
}

static void start_all(struct sim *s)
{
    for (int i = s->nodes_n - 1; i >= 0; i--)
        start(s, i);
}

static void begin(struct sim *s, uint64_t seed, bool hands_over)
{
    memset(s, 0, offsetof(struct sim, processes));
    s->processes_n = s->worlds_n = 0;
    s->failure[0] = 0;
    s->packets_n = 0;
    s->seed = seed;
    s->nodes_n = 3 + (int)(seed % 11 == 0 ? draw(s, 6) : draw(s, 2));
    s->min_nodes = seed % 3 == 0 ? (s->nodes_n + 1) / 2 : s->nodes_n;
    s->hands_over = hands_over && s->min_nodes < s->nodes_n;
    if (s->hands_over)
        s->min_nodes = 1; /* only the majority keeps two coordinators apart */
    s->away = -1;
    s->max_restarts = 1 << 30;
    s->now_ms = 1000000;
}

static bool end(struct sim *s)
{
    for (int i = 0; i < s->processes_n; i++) {
        coordinator_close(s->processes[i].coordinator);
        s->processes[i].coordinator = NULL;
    }
    return s->failure[0] == 0;
}

/* ---- overloaded hosts ---- */

/* Each process runs for a moment, then stalls for at most most_ms: it ticks late, and its packets
 * wait. */
static void stall(struct sim *s, struct process *p, int64_t most_ms)
{
    if (p->is_frozen || s->now_ms < p->stall_ms)
        return;
    if (p->stall_ms != 0) {
        p->is_frozen = true;
        p->thaw_ms = s->now_ms + 1 + (int64_t)draw(s, (uint64_t)most_ms);
    }
    p->stall_ms = (p->stall_ms != 0 ? p->thaw_ms : s->now_ms) + 30 + (int64_t)draw(s, 100);
}

static void overload_step(struct sim *s, int64_t most_ms)
{
    s->now_ms += 10;
    for (int i = 0; i < s->processes_n; i++) {
        struct process *p = &s->processes[i];
        if (p->is_frozen && s->now_ms >= p->thaw_ms) {
            p->is_frozen = false;
            tick(s, i);
        }
    }
    deliver_due(s);
    for (int i = 0; i < s->processes_n; i++) {
        stall(s, &s->processes[i], most_ms);
        if (s->processes[i].is_alive && !s->processes[i].is_frozen &&
            s->now_ms >= s->processes[i].tick_ms)
            tick(s, i);
    }
    check_one_world(s);
}

/* A history without other faults. Returns true if all nodes train after 5 s. */
static bool begin_calm(struct sim *s, uint64_t seed, bool hands_over)
{
    begin(s, seed, hands_over);
    start_all(s);
    s->has_no_faults = true;
    for (int64_t until_ms = s->now_ms + 5000; s->now_ms < until_ms && s->failure[0] == 0;)
        step(s);
    if (s->failure[0] == 0 && !is_settled(s))
        violation(s, "no world at the start", 0, 0);
    return s->failure[0] == 0;
}

/* Runs one history in which all processes stall again and again, for up to 1.2 s from the start.
 * With an even seed the stalls grow slowly to 2 s, and the leases with them. No node may be
 * lost. */
static inline bool sim_overload(struct sim *s, uint64_t seed)
{
    begin_calm(s, seed, seed % 2 == 0);
    for (int64_t begin_ms = s->now_ms; s->now_ms < begin_ms + 40000 && s->failure[0] == 0;) {
        int64_t worse_ms = seed % 2 == 0 ? (s->now_ms - begin_ms) / 1000 * 40 : 0;
        overload_step(s, 1200 + (worse_ms < 800 ? worse_ms : 800));
        if (s->worlds_n != 1 || !is_settled(s))
            violation(s, "a node was lost, but none had failed", s->worlds_n, s->now_ms - begin_ms);
    }
    return end(s);
}

/* ---- a history with faults ---- */

/* With hands_over: kills a node once all know that the last world has finished a step, so that the
 * others are enough. Returns false if it is too early. */
static bool lose_last(struct sim *s)
{
    const int first = alive_of(s, 0);
    const struct member *m = &s->processes[first].member;
    const struct world *w = find_world(s, m->coordinator, m->running);
    if (w == NULL || !is_finished(s, w))
        return false;
    s->away = (int)draw(s, (uint64_t)s->nodes_n);
    crash(s, alive_of(s, s->away));
    return true;
}

static inline bool sim_run(struct sim *s, uint64_t seed)
{
    bool is_last_lost = false;
    begin(s, seed, seed % 2 == 0);
    start_all(s);
    int64_t calm_ms = s->now_ms + FAULTS_MS, end_ms = calm_ms + SETTLE_MS(s);
    while (s->failure[0] == 0 && !s->is_budget_spent && s->now_ms < end_ms) {
        if (!s->has_no_faults && s->now_ms >= calm_ms)
            end_faults(s);
        step(s);
        if (!s->has_no_faults || s->now_ms % 100 != 0)
            continue;
        if (s->away >= 0 && !has_trained(s, s->away)) /* that process was refused: from the start */
            s->away = -1;
        else if (!is_settled(s))
            continue;
        else if (s->away < 0 && s->hands_over && !is_last_lost) {
            is_last_lost = lose_last(s);
            end_ms += is_last_lost ? s->now_ms + SETTLE_MS(s) - end_ms : 0;
            continue;
        } else if (s->away < 0)
            break;
        s->away = -1; /* the others train; now it comes back */
        end_ms = s->now_ms + SETTLE_MS(s);
    }
    if (s->failure[0] == 0 && !s->is_budget_spent && !is_settled(s))
        violation(s,
                  s->away < 0
                      ? "not all are in one generation in time after the last fault"
                      : "not all but one are in one generation in time after the last fault",
                  alive_of(s, 0), s->processes_n);
    return end(s);
}

/* ---- losses in a row ---- */

/* All processes that live are in one generation, and it has no others. */
static bool is_settled_without_lost(const struct sim *s)
{
    int alive_n = 0, first = -1;
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        if (!p->is_alive)
            continue;
        alive_n++;
        first = first < 0 ? i : first;
        if (p->member.running == 0 || p->member.running != s->processes[first].member.running)
            return false;
    }
    const int zero = first < 0 ? -1 : leader_of(s, first);
    return zero >= 0 && s->processes[zero].coordinator->is_running &&
           s->processes[zero].coordinator->world_n == alive_n;
}

/* Runs one history in which all nodes but min_nodes are lost at random moments within 5 s. In every
 * second one no step is finished, so that all losses are one incident and one restart suffices. */
static inline bool sim_incident(struct sim *s, uint64_t seed)
{
    int64_t at_ms[NODES_MAX];
    if (!begin_calm(s, seed, false))
        return end(s);
    const int least = 1 + (int)draw(s, (uint64_t)s->nodes_n - 1), lost_n = s->nodes_n - least;
    struct coordinator *c = s->processes[alive_of(s, 0)].coordinator;
    s->has_no_returns = true;
    s->has_no_steps = seed % 2 == 0;
    s->min_nodes = c->config.min_nodes = least;
    c->config.max_restarts = s->has_no_steps ? 1 : lost_n;
    c->budget.restarts_max = c->config.max_restarts;
    for (int node = 1; node <= lost_n; node++)
        at_ms[node] = s->now_ms + (int64_t)draw(s, 5000);
    for (int64_t end_ms = s->now_ms + 5000 + SETTLE_MS(s);
         s->now_ms < end_ms && s->failure[0] == 0;) {
        for (int node = 1; node <= lost_n; node++)
            if (s->now_ms >= at_ms[node] && alive_of(s, node) >= 0)
                crash(s, alive_of(s, node));
        step(s);
        if (s->is_budget_spent)
            violation(s, "one incident ended the job", lost_n, least);
    }
    if (s->failure[0] == 0 && !is_settled_without_lost(s))
        violation(s, "the nodes that are left do not train on", lost_n, least);
    return end(s);
}

/* Runs one history in which workers and nodes are lost one after the other, each after a step of
 * its generation, and each generation goes on from the same checkpoint. */
static inline bool sim_rollback(struct sim *s, uint64_t seed)
{
    if (!begin_calm(s, seed, false))
        return end(s);
    s->rolls_back = true;
    const int losses_n = 2 * s->nodes_n;
    int64_t lost_generation = 0;
    int64_t from_ms = s->now_ms + (int64_t)draw(s, 4000), end_ms = from_ms + SETTLE_MS(s);
    for (int i = 0; i < losses_n && s->failure[0] == 0;) {
        const int id = alive_of(s, i % s->nodes_n);
        const struct process *zero = &s->processes[alive_of(s, 0)];
        step(s);
        if (s->is_budget_spent)
            violation(s, "a return to a checkpoint ended the job", i, losses_n);
        else if (s->now_ms >= end_ms)
            violation(s, "no step after a return to a checkpoint", i, losses_n);
        if (s->now_ms < from_ms || !is_settled(s) || (i > 0 && !zero->coordinator->has_stepped) ||
            zero->member.running == lost_generation)
            continue;
        lost_generation = zero->member.running;
        if (zero->coordinator->budget.counts.restarts != i)
            violation(s, "losses did not take a restart each",
                      zero->coordinator->budget.counts.restarts, i);
        if (chance(s, 0.5) || s->processes[id].node == 0)
            lose_worker(s, id);
        else
            crash(s, id);
        i++;
        from_ms = s->now_ms + 1 + (int64_t)draw(s, 2000);
        end_ms = from_ms + 4 * SETTLE_MS(s);
    }
    return end(s);
}

#endif
