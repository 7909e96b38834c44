/* sim_state — the state of the simulator (sim.h), its random numbers, its network, and what must
 * hold after every event (test_sim.c lists it). */
#ifndef CONVOY_TESTS_SIM_STATE_H
#define CONVOY_TESTS_SIM_STATE_H

#include "harness.h"

#include "cluster/coordinator_inside.h"
#include "cluster/member.h"

#define NODES_MAX 8
#define PROCESSES_MAX 64 /* of one history; no more are started */
#define PACKETS_MAX 512
#define FAULTS_MS 12000
#define CALM_MS 10000
#define GRACE_MS 6000 /* more, because stalls make leases longer */
/* So long after the last fault a history settles; a return may wait for a step once, too. */
#define SETTLE_MS(s) \
    (CALM_MS + GRACE_MS + ((s)->min_nodes < (s)->nodes_n ? COORDINATOR_RETURN_MS : 0))
#define WORLDS_MAX 512

struct origin { /* the address of a worker in the simulation: which readiness of which process */
    int32_t node, process, ready;
};

/* What node 0 has received of the two signs of a process's death (sim_death.h). */
struct sign {
    int64_t disconnected_ms; /* its connection was closed; -1: a message came since */
    int64_t reported_ms;     /* a report of another node's rank was; -1: a message came since */
    int64_t lost, closed; /* the last generations whose loss, or closed connection, it reported */
    bool is_dead;         /* both signs were there */
};

struct process {
    bool is_alive, is_frozen;
    int node;
    struct member member;
    /* thaw_ms: the end of a stall; stall_ms: the begin of the next one, 0: none */
    int64_t tick_ms, heartbeat_ms, ready_ms, thaw_ms, stall_ms;
    int64_t entered; /* the last generation that it entered */
    int64_t aborted; /* the workers enter no generation up to this one any more */
    int64_t cut; /* its connections for data ended in this generation, so it cannot train in it */
    int64_t trained, step_ms; /* it trains in this generation, and finishes a step then */
    int64_t step;             /* of its worker; -1: none since the process began */
    struct coordinator *coordinator;
    struct message_incarnation leads_as; /* of its last coordinator */
    struct view { /* of node 0: its coordinator as it was before the event (sim_return.h) */
        int64_t generation, begun_ms;
        bool is_running, has_stepped;
        bool is_returning[NODES_MAX], is_in_world[NODES_MAX];
    } view;
    struct incident { /* of node 0: the losses since a finished step (sim_incident.h) */
        int64_t restarts, generation;
        int worlds_n;
        bool is_open; /* it has taken a restart */
        /* step: the highest after which the node was lost; before: its step before the event */
        int64_t losses[NODES_MAX], step[NODES_MAX], before[NODES_MAX], reported[NODES_MAX];
        struct message_incarnation incarnations[NODES_MAX];
        bool is_lost[NODES_MAX];
    } incident;
    struct sign signs[PROCESSES_MAX];          /* of node 0: as its coordinator should see them */
    enum cluster_node_state states[NODES_MAX]; /* of node 0: of each node, at the last event */
    struct held {
        bool is_held;
        struct message_incarnation incarnation;
        int process;
        int64_t sequence, revision, until_ms, sent_ms;
    } held[NODES_MAX];
};

/* CLOSED: a connection for data ended in `generation`, whose rank `rank` closed it. */
enum packet_kind { PACKET_HEARTBEAT, PACKET_REPLY, PACKET_DISCONNECT, PACKET_CLOSED };
struct packet {
    enum packet_kind kind;
    int64_t sent_ms;
    int from, to; /* indices of processes */
    int64_t generation;
    int rank;
    bool has_join, has_origin;
    int past; /* of a message that joins: the index of its list in `pasts` */
    struct message_incarnation ended;
    struct origin origin;
    union {
        struct message_heartbeat heartbeat;
        struct message_reply reply;
    };
};

struct sim {
    uint64_t seed, draws, digest;
    int nodes_n, min_nodes; /* min_nodes below nodes_n: of a third of the seeds */
    int away;               /* after the last fault: a node that stays away for now; -1: none */
    int64_t now_ms, order;
    int max_restarts;
    bool hands_over; /* other nodes may become the coordinator: half of the seeds with min_nodes */
    bool is_host_down[NODES_MAX]; /* the host of the node's last process lost power */
    uint64_t sides;               /* nodes with different bits do not reach each other */
    int64_t sides_heal_ms;
    int coordinators_n;
    bool has_no_returns; /* nodes that are lost stay away */
    bool has_no_steps;   /* no generation finishes one */
    bool always_steps;   /* each complete generation finishes a step, if it lasts long enough */
    bool rolls_back;     /* each generation goes on from step 0 */
    bool has_no_faults, is_budget_spent;
    double loss, repeat, slow;
    bool cut_to[NODES_MAX], cut_from[NODES_MAX]; /* of each node: to node 0, from node 0 */
    int64_t heal_ms[NODES_MAX];
    struct process processes[PROCESSES_MAX];
    int processes_n;
    struct packet packets[PACKETS_MAX];
    int64_t at_ms[PACKETS_MAX],
        order_of[PACKETS_MAX]; /* of each packet; at_ms INT64_MAX: the slot is free */
    int packets_n;             /* slots behind these are free */
    struct world {
        struct message_incarnation coordinator;
        int64_t generation;
        int nodes_n;
        int64_t step;                     /* with which it begins */
        struct origin origins[NODES_MAX]; /* process -1: the node is not in it */
    } worlds[WORLDS_MAX];
    int worlds_n;
    char failure[512];
};

/* ---- random numbers ---- */

static uint64_t draw(struct sim *s, uint64_t n)
{
    uint64_t x = s->seed * 0x9E3779B97F4A7C15u + ++s->draws * 0xBF58476D1CE4E5B9u;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 31;
    return x % n;
}
static bool chance(struct sim *s, double p) { return (double)draw(s, 1000000) < p * 1e6; }

static void violation(struct sim *s, const char *what, int64_t a, int64_t b)
{
    if (s->failure[0] == 0)
        text_format(s->failure, sizeof(s->failure), "seed %llu at %lld ms: %s (%lld, %lld)",
                    (unsigned long long)s->seed, (long long)s->now_ms, what, (long long)a,
                    (long long)b);
}
static void add_to_digest(struct sim *s, uint64_t x)
{
    s->digest = (s->digest ^ x ^ (uint64_t)s->now_ms) * 0x100000001B3u;
}

/* ---- the network ---- */

static struct packet *post(struct sim *s, enum packet_kind kind, int from, int to)
{
    int i = 0;
    while (i < s->packets_n && s->at_ms[i] != INT64_MAX)
        i++;
    if (i == PACKETS_MAX)
        return NULL;
    struct packet *m = &s->packets[i];
    s->packets_n += i == s->packets_n;
    m->kind = kind;
    m->from = from;
    m->to = to;
    m->has_join = m->has_origin = false;
    s->order_of[i] = s->order++;
    s->at_ms[i] = s->now_ms + 1 + (int64_t)draw(s, chance(s, s->slow) ? 3000 : 30);
    return m;
}

static void deliver_in(struct sim *s, const struct packet *m, int64_t in_ms)
{
    s->at_ms[m - s->packets] = s->now_ms + in_ms;
}

/* Returns true if nothing that node a sends arrives at node b. */
static bool is_cut(const struct sim *s, int a, int b)
{
    return a != b && (s->cut_to[a] || s->cut_from[b] || ((s->sides >> a ^ s->sides >> b) & 1));
}

static bool is_lost(struct sim *s, int from, int to)
{
    int a = s->processes[from].node, b = s->processes[to].node;
    if (from == to || (a == b && !s->hands_over))
        return false; /* a node reaches its own coordinator by call */
    if (s->hands_over)
        return is_cut(s, a, b) || chance(s, s->loss);
    return (b == 0 && s->cut_to[a]) || (a == 0 && s->cut_from[b]) || chance(s, s->loss);
}

static int alive_of(const struct sim *s, int node)
{
    for (int i = s->processes_n - 1; i >= 0; i--) {
        if (s->processes[i].is_alive && s->processes[i].node == node)
            return i;
    }
    return -1;
}

/* The process that answers at the address of a node: with several processes of the node, the one
 * that has a coordinator. */
static int answers_for(const struct sim *s, int node)
{
    for (int i = s->processes_n - 1; i >= 0 && s->hands_over; i--)
        if (s->processes[i].is_alive && s->processes[i].node == node &&
            s->processes[i].coordinator != NULL)
            return i;
    return alive_of(s, node);
}

/* The process of the coordinator that this one is a member of; -1: it has none that lives. */
static int leader_of(const struct sim *s, int id)
{
    for (int i = 0; i < s->processes_n && s->hands_over; i++)
        if (s->processes[i].coordinator != NULL &&
            message_is_same(s->processes[i].leads_as, s->processes[id].member.coordinator))
            return i;
    return s->hands_over ? -1 : alive_of(s, 0);
}

#define PASTS_N 2048
static struct succession pasts[PASTS_N];
static int pasts_i;

/* Copies the list of a message that joins; it is read before the ring is full. */
static int keep_past(const struct succession *past)
{
    struct succession *copy = &pasts[pasts_i = (pasts_i + 1) % PASTS_N];
    copy->n = 0;
    copy->left_out = 0;
    succession_merge(copy, past);
    return pasts_i;
}

static void carry_out(struct sim *s, int id, const struct member_actions *a);

static void duplicate(struct sim *s, const struct packet *m)
{
    if (!chance(s, s->repeat))
        return;
    struct packet *again = post(s, m->kind, m->from, m->to);
    if (again != NULL)
        *again = *m;
}

static void send_heartbeat(struct sim *s, int from)
{
    struct process *p = &s->processes[from];
    struct message_heartbeat heartbeat;
    const int target = p->member.target;
    int to = p->node == target ? from : answers_for(s, target);
    p->heartbeat_ms = s->now_ms;
    p->member.step = p->step;
    bool has_origin = member_has_addresses(&p->member),
         is_joining = member_make_heartbeat(&p->member, s->now_ms, &heartbeat);
    if (to < 0 && s->hands_over) {
        struct member_actions actions = {0};
        if (s->is_host_down[target] || is_cut(s, p->node, target) || is_cut(s, target, p->node))
            return;
        member_on_refused(&p->member, target, "refused", s->now_ms, &actions);
        if (actions.is_urgent) /* the next request is sent soon */
            p->heartbeat_ms = s->now_ms - 400;
        actions.is_urgent = false;
        carry_out(s, from, &actions);
        return;
    }
    if (to < 0) { /* the connection is refused */
        if (chance(s, 0.9))
            member_on_disconnect(&p->member, "refused", s->now_ms);
        return;
    }
    if (is_lost(s, from, to))
        return;
    struct packet *m = post(s, PACKET_HEARTBEAT, from, to);
    if (m == NULL)
        return;
    m->heartbeat = heartbeat;
    m->sent_ms = s->now_ms;
    m->has_join = is_joining;
    m->has_origin = has_origin;
    m->origin = (struct origin){p->node, from, (int32_t)p->member.ready};
    m->past = is_joining && s->hands_over ? keep_past(&p->member.past) : -1;
    m->ended = p->member.ended;
    if (to == from)
        deliver_in(s, m, 0);
    duplicate(s, m);
}

/* ---- what must hold ---- */

static bool is_same_world(const struct world *a, struct message_incarnation coordinator,
                          int64_t generation)
{
    return a->generation == generation && message_is_same(a->coordinator, coordinator);
}

static const struct world *find_world(const struct sim *s, struct message_incarnation coordinator,
                                      int64_t generation)
{
    for (int i = s->worlds_n - 1; i >= 0; i--) {
        if (is_same_world(&s->worlds[i], coordinator, generation))
            return &s->worlds[i];
    }
    return NULL;
}

static void record_world(struct sim *s, struct message_incarnation coordinator,
                         const struct cluster_world *world)
{
    if (find_world(s, coordinator, world->generation) != NULL || s->worlds_n == WORLDS_MAX)
        return;
    struct world *w = &s->worlds[s->worlds_n++];
    w->coordinator = coordinator;
    w->generation = world->generation;
    w->nodes_n = world->nodes_n;
    w->step = 0;
    for (int i = 0; i < s->processes_n && !s->rolls_back; i++)
        if (s->processes[i].is_alive && s->processes[i].step > w->step)
            w->step = s->processes[i].step;
    if (!s->hands_over && world->node_ids[0] != 0)
        violation(s, "a world has no node 0", world->node_ids[0], 0);
    if (world->nodes_n < s->min_nodes)
        violation(s, "a world has too few nodes", world->nodes_n, s->min_nodes);
    for (int i = 0; i < s->nodes_n; i++)
        w->origins[i].process = -1;
    for (int at = 0; at < world->nodes_n; at++) {
        const int i = world->node_ids[at];
        memcpy(&w->origins[i], world->addresses[at].data, sizeof(w->origins[i]));
        const struct origin *b = &w->origins[i];
        if (b->node != i)
            violation(s, "a world has the address of another node", i, b->node);
        for (int k = 0; k < s->worlds_n - 1; k++) {
            const struct origin *old = &s->worlds[k].origins[i];
            /* A coordinator that is cut off may form a world of an older readiness, which nobody
             * enters. */
            const bool is_own = message_is_same(s->worlds[k].coordinator, coordinator);
            if (old->process == b->process &&
                (is_own || !s->hands_over ? old->ready >= b->ready : old->ready == b->ready))
                violation(s, "a readiness was used for two worlds", b->process, b->ready);
        }
    }
}

static void enter(struct sim *s, int id, const struct cluster_world *world)
{
    struct process *p = &s->processes[id];
    const struct world *w = find_world(s, p->member.coordinator, world->generation);
    add_to_digest(s, 0x1000 + (uint64_t)id * 64 + (uint64_t)world->generation);
    if (world->generation <= p->entered)
        violation(s, "entered a generation that is not new", p->entered, world->generation);
    if (world->generation <= p->aborted)
        violation(s, "entered a generation that was given up", p->aborted, world->generation);
    p->entered = world->generation;
    if (w == NULL || w->origins[p->node].process != id ||
        w->origins[p->node].ready != p->member.ready)
        violation(s, "entered a world that it is not part of", id, world->generation);
}

/* All members of the process's world are in it: it could run. */
static bool is_complete(const struct sim *s, const struct process *p)
{
    const struct world *w = find_world(s, p->member.coordinator, p->member.running);
    for (int i = 0; w != NULL && i < s->nodes_n; i++) {
        if (w->origins[i].process < 0)
            continue;
        const struct process *other = &s->processes[w->origins[i].process];
        if (!other->is_alive || other->member.running != w->generation ||
            !message_is_same(other->member.coordinator, w->coordinator))
            return false;
    }
    return true;
}

/* Returns true if all members of the world know that it has finished a step. */
static bool is_finished(const struct sim *s, const struct world *w)
{
    for (int node = 0; node < s->nodes_n; node++) {
        if (w->origins[node].process < 0)
            continue;
        const struct succession *past = &s->processes[w->origins[node].process].member.past;
        const struct succession_world *newest = succession_newest(past);
        if (past->n != 1 || !newest->has_stepped || newest->generation != w->generation)
            return false;
    }
    return true;
}

/* Worlds of one coordinator never overlap. A new coordinator does not know a process that was cut
 * off while its NODE_ID was given to a second one. Such a process may stay in its old world until
 * its lease ends, but not together with all others of that world. A process whose connections for
 * data ended does not run: no collective can end. */
static void check_two_coordinators(struct sim *s)
{
    const struct process *first = NULL;
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        if (!p->is_alive || p->is_frozen || p->member.running == 0 || p->member.running == p->cut ||
            !is_complete(s, p))
            continue;
        if (first == NULL)
            first = p;
        else if (p->member.running != first->member.running ||
                 !message_is_same(p->member.coordinator, first->member.coordinator))
            violation(s, "the worlds of two coordinators run at once", first->member.running,
                      p->member.running);
    }
}

static void check_one_world(struct sim *s)
{
    const struct process *first = NULL;
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        if (!p->is_alive || p->is_frozen || p->member.running == 0 || p->member.running == p->cut)
            continue;
        bool is_kin =
            first != NULL && message_is_same(p->member.coordinator, first->member.coordinator);
        if (first == NULL)
            first = p;
        else if (is_kin ? p->member.running != first->member.running
                        : is_complete(s, p) && is_complete(s, first))
            violation(s, "two worlds run at once", first->member.running, p->member.running);
    }
    check_two_coordinators(s);
}

#endif
