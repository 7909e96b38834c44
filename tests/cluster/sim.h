/* sim — a seeded simulator of nodes, network and people for the machines of meet; test_sim.c says
 * what must hold. */
#ifndef CONVOY_TESTS_SIM_H
#define CONVOY_TESTS_SIM_H

#include "harness.h"

#include <string.h>

#include "base/text.h"
#include "cluster/coordinator.h"
#include "cluster/member.h"

#define NODES_MAX 8
#define PROCESSES_MAX 64 /* of one history; then no more are started */
#define PACKETS_MAX 512
#define FAULTS_MS 12000
#define CALM_MS 10000
#define GRACE_MS 6000 /* longer, where processes stood still: leases are longer for it */
#define WORLDS_MAX 512

struct badge { /* what a worker's address says in this simulation */
    int32_t node, process, ready;
};

struct process {
    bool is_alive, is_frozen;
    int node;
    struct member member;
    /* stall_ms: it stands still next; 0: never */
    int64_t tick_ms, heartbeat_ms, ready_ms, thaw_ms, stall_ms;
    int64_t entered; /* the last world */
    int64_t aborted; /* given up: the workers take no world up to this number any more */
    struct coordinator *coordinator;
    struct held {
        bool is_held;
        struct message_incarnation incarnation;
        int process;
        int64_t sequence, revision, until_ms, sent_ms;
    } held[NODES_MAX];
};

enum packet_kind { PACKET_HEARTBEAT, PACKET_REPLY, PACKET_DISCONNECT };
struct packet {
    enum packet_kind kind;
    int64_t sent_ms;
    int from, to; /* processes */
    bool has_join, has_badge;
    struct badge badge;
    union {
        struct message_heartbeat heartbeat;
        struct message_reply reply;
    };
};

struct sim {
    uint64_t seed, draws, digest;
    int nodes_n;
    int64_t now_ms, order;
    bool is_calm, is_budget_spent;
    double loss, twice, slow;
    bool cut_to[NODES_MAX], cut_from[NODES_MAX]; /* to node 0, from node 0 */
    int64_t heal_ms[NODES_MAX];
    struct process processes[PROCESSES_MAX];
    int processes_n;
    struct packet packets[PACKETS_MAX];
    int64_t at_ms[PACKETS_MAX], order_of[PACKETS_MAX]; /* of each mail; at_ms INT64_MAX: none */
    int packets_n;                                     /* beyond it all are free */
    struct world {
        struct message_incarnation coordinator;
        int64_t generation;
        struct badge badges[NODES_MAX];
    } worlds[WORLDS_MAX];
    int worlds_n;
    char failure[512];
};

/* ---- chance ---- */

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
static void note(struct sim *s, uint64_t x)
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
    m->has_join = m->has_badge = false;
    s->order_of[i] = s->order++;
    s->at_ms[i] = s->now_ms + 1 + (int64_t)draw(s, chance(s, s->slow) ? 3000 : 30);
    return m;
}

static void deliver_in(struct sim *s, const struct packet *m, int64_t in_ms)
{
    s->at_ms[m - s->packets] = s->now_ms + in_ms;
}

static bool is_lost(struct sim *s, int from, int to)
{
    int a = s->processes[from].node, b = s->processes[to].node;
    if (a == b)
        return false; /* node 0 talks to itself by call */
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

static void duplicate(struct sim *s, const struct packet *m)
{
    if (!chance(s, s->twice))
        return;
    struct packet *again = post(s, m->kind, m->from, m->to);
    if (again != NULL)
        *again = *m;
}

static void say(struct sim *s, int from)
{
    struct process *p = &s->processes[from];
    struct message_heartbeat heartbeat;
    int to = alive_of(s, 0);
    p->heartbeat_ms = s->now_ms;
    p->member.step = s->now_ms;
    bool has_badge = member_has_addresses(&p->member),
         is_joining = member_make_heartbeat(&p->member, s->now_ms, &heartbeat);
    if (to < 0) { /* refused */
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
    m->has_badge = has_badge;
    m->badge = (struct badge){p->node, from, (int32_t)p->member.ready};
    if (p->node == 0)
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

static void note_world(struct sim *s, struct message_incarnation coordinator,
                       const struct cluster_world *world)
{
    if (find_world(s, coordinator, world->generation) != NULL || s->worlds_n == WORLDS_MAX)
        return;
    struct world *w = &s->worlds[s->worlds_n++];
    w->coordinator = coordinator;
    w->generation = world->generation;
    for (int i = 0; i < s->nodes_n; i++) {
        memcpy(&w->badges[i], world->addresses[i].data, sizeof(w->badges[i]));
        const struct badge *b = &w->badges[i];
        if (b->node != i)
            violation(s, "a world has the address of another node", i, b->node);
        for (int k = 0; k < s->worlds_n - 1; k++) {
            const struct badge *old = &s->worlds[k].badges[i];
            if (old->process == b->process && old->ready >= b->ready)
                violation(s, "a readiness was used for two worlds", b->process, b->ready);
        }
    }
}

static void enter(struct sim *s, int who, const struct cluster_world *world)
{
    struct process *p = &s->processes[who];
    const struct world *w = find_world(s, p->member.coordinator, world->generation);
    note(s, 0x1000 + (uint64_t)who * 64 + (uint64_t)world->generation);
    if (world->generation <= p->entered)
        violation(s, "a generation that is not new was entered", p->entered, world->generation);
    if (world->generation <= p->aborted)
        violation(s, "a generation that was given up was entered", p->aborted, world->generation);
    p->entered = world->generation;
    if (w == NULL || w->badges[p->node].process != who ||
        w->badges[p->node].ready != p->member.ready)
        violation(s, "entered a world of which it is no part", who, world->generation);
}

/* Every member of this world is in it: it could go on. */
static bool is_complete(const struct sim *s, const struct process *p)
{
    const struct world *w = find_world(s, p->member.coordinator, p->member.running);
    for (int i = 0; w != NULL && i < s->nodes_n; i++) {
        const struct process *other = &s->processes[w->badges[i].process];
        if (!other->is_alive || other->member.running != w->generation ||
            !message_is_same(other->member.coordinator, w->coordinator))
            return false;
    }
    return true;
}

/* Worlds of one coordinator never overlap. A new coordinator knows no old process whose place was
 * given to a second one while it was cut off: such a one may sit in its old world until its lease
 * ends, but not with all of that world. */
static void check_one_world(struct sim *s)
{
    const struct process *first = NULL;
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        if (!p->is_alive || p->is_frozen || p->member.running == 0)
            continue;
        bool is_kin =
            first != NULL && message_is_same(p->member.coordinator, first->member.coordinator);
        if (first == NULL)
            first = p;
        else if (is_kin ? p->member.running != first->member.running
                        : is_complete(s, p) && is_complete(s, first))
            violation(s, "two worlds are alive", first->member.running, p->member.running);
    }
}

/* ---- processes ---- */

static void start(struct sim *s, int node)
{
    if (s->processes_n == PROCESSES_MAX)
        return;
    int id = s->processes_n++;
    struct process *p = &s->processes[id];
    memset(p, 0, sizeof(*p));
    struct member_config member = {node, 1 << 30, 6000, {0xA, (uint64_t)id + 1}};
    p->is_alive = true;
    p->node = node;
    p->ready_ms = s->now_ms + 10 + (int64_t)draw(s, 500);
    p->tick_ms = s->now_ms;
    member_init(&p->member, &member, s->now_ms);
    struct coordinator_config coordinator = {
        s->nodes_n, 1, 1 << 30, 6000, 1 << 30, "{}", {0xC, (uint64_t)id + 1}, NULL};
    if (node == 0)
        (void)coordinator_open(&coordinator, s->now_ms, &p->coordinator);
    note(s, 0x2000 + (uint64_t)node);
}

static void crash(struct sim *s, int id)
{
    struct process *p = &s->processes[id];
    int zero = alive_of(s, 0);
    if (!p->is_alive)
        return;
    p->is_alive = false;
    coordinator_close(p->coordinator);
    p->coordinator = NULL;
    note(s, 0x3000 + (uint64_t)id);
    if (p->node != 0 && zero >= 0 && chance(s, 0.8) && !s->cut_to[p->node]) {
        struct packet *m = post(s, PACKET_DISCONNECT, id, zero);
        if (m != NULL)
            deliver_in(s, m, 1 + (int64_t)draw(s, 40));
    }
}

static void act(struct sim *s, int id, const struct member_actions *a)
{
    struct process *p = &s->processes[id];
    if (a->is_over) {
        int others_n = 0;
        for (int i = 0; i < s->processes_n; i++)
            others_n += i != id && s->processes[i].node == p->node;
        if (strstr(a->text, "made no new step") != NULL)
            /* three losses at once: the job ends by its own rule, and so does this history */
            s->is_budget_spent = true;
        else if (others_n == 0)
            violation(s, "a node's only process was refused", id, a->st);
        crash(s, id);
        return;
    }
    if (a->abort != 0)
        p->ready_ms = s->now_ms + 10 + (int64_t)draw(s, 300);
    if (a->abort > p->aborted)
        p->aborted = a->abort;
    if (a->fetch != 0) {
        int zero = alive_of(s, 0);
        struct cluster_world world;
        /* fetching takes a round trip; the answer may be lost */
        if (zero >= 0 && s->processes[zero].coordinator != NULL && !s->processes[zero].is_frozen &&
            !is_lost(s, id, zero) &&
            coordinator_world(s->processes[zero].coordinator, p->node, p->member.config.incarnation,
                              a->fetch, &world)) {
            note_world(s, (struct message_incarnation){0xC, (uint64_t)zero + 1}, &world);
            if (member_on_world(&p->member, world.generation, s->now_ms))
                enter(s, id, &world);
        }
    }
    if (a->is_urgent && p->is_alive)
        say(s, id);
}

static void answer(struct sim *s, int zero, int to, const struct message_reply *reply,
                   int64_t sent_ms)
{
    if (is_lost(s, zero, to))
        return;
    struct packet *m = post(s, PACKET_REPLY, zero, to);
    if (m == NULL)
        return;
    m->reply = *reply;
    m->sent_ms = sent_ms;
    if (s->processes[to].node == 0)
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
        answer(s, zero, h->process, &reply, h->sent_ms);
    }
}

static void hear(struct sim *s, struct packet *m)
{
    struct process *z = &s->processes[m->to];
    struct message_reply reply;
    static struct cluster_address address = {.bytes = sizeof(struct badge)};
    const struct message_join join = {MESSAGE_PROTOCOL, s->nodes_n, 1, 1, "sim", "{}"};
    memcpy(address.data, &m->badge, sizeof(m->badge));
    m->heartbeat.addresses_n = m->has_badge;
    m->heartbeat.addresses = &address;
    if (z->coordinator == NULL)
        return;
    coordinator_on_heartbeat(z->coordinator, &m->heartbeat, m->has_join ? &join : NULL, s->now_ms,
                             &reply);
    if (reply.answer == MESSAGE_ANSWER_MEMBER && reply.is_lease &&
        m->heartbeat.revision == reply.revision && chance(s, 0.7)) {
        struct held *h = &z->held[m->heartbeat.node_id];
        h->until_ms = 0;
        flush(s, m->to); /* one a node is held */
        *h = (struct held){
            true,           m->heartbeat.incarnation, m->from,   m->heartbeat.sequence,
            reply.revision, s->now_ms + 1000,         m->sent_ms};
    } else {
        answer(s, m->to, m->from, &reply, m->sent_ms);
    }
    flush(s, m->to);
}

/* false: not yet */
static bool deliver(struct sim *s, struct packet *m)
{
    struct process *p = &s->processes[m->to];
    struct member_actions actions = {0};
    if (!p->is_alive)
        return true;
    if (p->is_frozen) /* waits in the kernel */
        return false;
    note(s, (uint64_t)m->kind * 7919 + (uint64_t)m->from * 97 + (uint64_t)m->to);
    if (m->kind == PACKET_HEARTBEAT)
        hear(s, m);
    else if (m->kind == PACKET_DISCONNECT && p->coordinator != NULL)
        coordinator_on_disconnect(p->coordinator, s->processes[m->from].node,
                                  (struct message_incarnation){0xA, (uint64_t)m->from + 1},
                                  s->now_ms);
    else if (m->kind == PACKET_REPLY) {
        member_on_reply(&p->member, &m->reply, m->sent_ms, s->now_ms, &actions);
        act(s, m->to, &actions);
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
    act(s, id, &actions);
    if (!p->is_alive)
        return;
    if (p->coordinator != NULL) {
        coordinator_tick(p->coordinator, s->now_ms);
        while ((line = log_queue_next(coordinator_log(p->coordinator), &is_warning)) != NULL)
            note(s, (uint64_t)line[0]);
        flush(s, id);
    }
    if (p->ready_ms != 0 && s->now_ms >= p->ready_ms && p->member.running == 0) {
        struct member_actions news = {0};
        p->ready_ms = 0;
        member_ready(&p->member, &news);
        act(s, id, &news);
    }
    if (p->is_alive && s->now_ms - p->heartbeat_ms >= (p->member.is_joined ? 500 : 150))
        say(s, id);
}

/* ---- faults ---- */

/* What was on its way in a connection that is reset never arrives. */
static void cut_packets(struct sim *s, int id)
{
    for (int i = 0; i < s->packets_n; i++) {
        if (s->packets[i].from == id || s->packets[i].to == id)
            s->at_ms[i] = INT64_MAX;
    }
}

static void inject_fault(struct sim *s)
{
    int id = (int)draw(s, (uint64_t)s->processes_n), node = (int)draw(s, (uint64_t)s->nodes_n);
    struct process *p = &s->processes[id];
    struct member_actions actions = {0};
    switch (draw(s, 9)) {
    case 0:
    case 1:
        crash(s, id);
        break;
    case 2: /* a second process of a node, while the first may live: the operator's mistake */
        if (node != 0 && chance(s, 0.5))
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
        if (node != 0 && chance(s, 0.5)) /* somebody replaces it, while it lives on */
            start(s, node);
        break;
    case 5: /* a worker dies */
        if (p->is_alive && !p->is_frozen) {
            bool was_running = p->member.running != 0;
            member_lost(&p->member, p->member.running, ST_PEER, "worker died", &actions);
            if (!was_running)
                p->ready_ms = s->now_ms + 50 + (int64_t)draw(s, 300);
            act(s, id, &actions);
        }
        break;
    case 6: { /* both sides see the connection reset */
        int zero = alive_of(s, 0);
        if (p->is_alive && !p->is_frozen && p->node != 0 && zero >= 0 &&
            !s->processes[zero].is_frozen) {
            cut_packets(s, id);
            s->processes[zero].held[p->node].is_held = false;
            member_on_disconnect(&p->member, "reset", s->now_ms);
            coordinator_on_disconnect(s->processes[zero].coordinator, p->node,
                                      p->member.config.incarnation, s->now_ms);
        }
        break;
    }
    default:
        s->loss = chance(s, 0.5) ? 0 : (double)draw(s, 300) / 1e3;
        s->slow = chance(s, 0.5) ? 0 : (double)draw(s, 600) / 1e3;
        s->twice = (double)draw(s, 100) / 1e3;
        break;
    }
}

static void restore(struct sim *s)
{
    for (int node = 0; node < s->nodes_n; node++) {
        if (s->now_ms >= s->heal_ms[node])
            s->cut_to[node] = s->cut_from[node] = false;
        if (alive_of(s, node) < 0 && (s->is_calm || chance(s, 0.05)))
            start(s, node);
    }
    for (int i = 0; i < s->processes_n; i++) {
        struct process *p = &s->processes[i];
        if (p->is_frozen && s->now_ms >= p->thaw_ms) {
            p->is_frozen = false;
            tick(s, i); /* its timers are due before anything else */
        }
    }
}

static void calm(struct sim *s)
{
    s->is_calm = true;
    s->loss = s->slow = s->twice = 0;
    for (int i = 0; i < s->nodes_n; i++)
        s->heal_ms[i] = 0;
    for (int i = 0; i < s->packets_n; i++) /* what was slow arrives */
        s->at_ms[i] = s->at_ms[i] == INT64_MAX ? INT64_MAX : s->now_ms + (int64_t)draw(s, 30);
    for (int i = 0; i < s->processes_n; i++) {
        struct process *p = &s->processes[i];
        p->thaw_ms = p->thaw_ms < s->now_ms ? p->thaw_ms : s->now_ms;
        if (p->is_alive && alive_of(s, p->node) != i)
            crash(s, i); /* of several processes of a node the last one stays */
    }
}

static bool is_settled(const struct sim *s)
{
    int zero = alive_of(s, 0);
    struct message_incarnation coordinator =
        zero >= 0 ? (struct message_incarnation){0xC, (uint64_t)zero + 1}
                  : (struct message_incarnation){0};
    int64_t generation = 0;
    for (int node = 0; node < s->nodes_n; node++) {
        int id = alive_of(s, node);
        if (id < 0 || s->processes[id].member.running == 0 ||
            !message_is_same(s->processes[id].member.coordinator, coordinator))
            return false;
        if (generation != 0 && s->processes[id].member.running != generation)
            return false;
        generation = s->processes[id].member.running;
    }
    return true;
}

static inline void sim_show(const struct sim *s)
{
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        const struct member *m = &p->member;
        if (p->is_alive)
            print_message("# node %d process %d: joined %d running %lld ready %lld (%d held %d) "
                          "generation %lld turn %lld told %lld silent %lld missing %s\n",
                          p->node, i, m->is_joined, (long long)m->running, (long long)m->ready,
                          m->is_ready, m->is_ready_held, (long long)m->generation,
                          (long long)m->revision, (long long)m->replied_sequence,
                          (long long)(s->now_ms - m->answered_ms), m->missing);
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
    if (!s->is_calm && s->now_ms % 100 == 0 && chance(s, 0.12))
        inject_fault(s);
    if (s->now_ms % 50 == 0)
        restore(s);
    check_one_world(s);
}

static void begin(struct sim *s, uint64_t seed)
{
    memset(s, 0, offsetof(struct sim, processes));
    s->processes_n = s->worlds_n = 0;
    s->failure[0] = 0;
    s->packets_n = 0;
    s->seed = seed;
    s->nodes_n = 3 + (int)(seed % 11 == 0 ? draw(s, 6) : draw(s, 2));
    s->now_ms = 1000000;
    for (int i = s->nodes_n - 1; i >= 0; i--)
        start(s, i);
}

static bool end(struct sim *s)
{
    for (int i = 0; i < s->processes_n; i++) {
        coordinator_close(s->processes[i].coordinator);
        s->processes[i].coordinator = NULL;
    }
    return s->failure[0] == 0;
}

/* ---- a host with too much to do ---- */

/* Each process runs for a moment, then stands still for most_ms at most; its clock ticks late, and
 * mail waits. */
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

static void starve(struct sim *s, int64_t most_ms)
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

/* sim_starve — nobody is lost of a job whose processes all stand still for up to 1.2 s again and
 * again, out of nothing; nor where it becomes slowly worse, up to 2 s: leases have become longer by
 * then. */
static inline bool sim_starve(struct sim *s, uint64_t seed)
{
    begin(s, seed);
    s->is_calm = true;
    for (int64_t until_ms = s->now_ms + 5000; s->now_ms < until_ms && s->failure[0] == 0;)
        step(s);
    if (s->failure[0] == 0 && !is_settled(s))
        violation(s, "no world to begin with", 0, 0);
    for (int64_t begin_ms = s->now_ms; s->now_ms < begin_ms + 40000 && s->failure[0] == 0;) {
        int64_t worse_ms = seed % 2 == 0 ? (s->now_ms - begin_ms) / 1000 * 40 : 0;
        starve(s, 1200 + (worse_ms < 800 ? worse_ms : 800));
        if (s->worlds_n != 1 || !is_settled(s))
            violation(s, "a loss, and none was lost", s->worlds_n, s->now_ms - begin_ms);
    }
    return end(s);
}

/* ---- and with faults ---- */

static inline bool sim_run(struct sim *s, uint64_t seed)
{
    begin(s, seed);
    int64_t calm_ms = s->now_ms + FAULTS_MS, end_ms = calm_ms + CALM_MS + GRACE_MS;
    while (s->failure[0] == 0 && !s->is_budget_spent && s->now_ms < end_ms) {
        if (!s->is_calm && s->now_ms >= calm_ms)
            calm(s);
        step(s);
        if (s->is_calm && s->now_ms % 100 == 0 && is_settled(s))
            break;
    }
    if (s->failure[0] == 0 && !s->is_budget_spent && !is_settled(s))
        violation(s, "not all are in one generation 16 s after the last fault", alive_of(s, 0),
                  s->processes_n);
    return end(s);
}

#endif
