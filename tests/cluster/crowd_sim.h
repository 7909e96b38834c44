/* crowd_sim — a real coordinator and N simulated members (real state machines and real JSON, no
 * sockets), in simulated time, as in a job without faults of the network. Measures the processor
 * time of what node 0 does: reading messages, the state machine, writing replies, ticks.
 *
 * Every member has one worker. It sends a heartbeat that node 0 may hold for a second, as
 * member_client.c does; replies arrive at once. sim.h covers lost, late and repeated messages. */
#ifndef CONVOY_TESTS_CROWD_SIM_H
#define CONVOY_TESTS_CROWD_SIM_H

#include "harness.h"

#include <malloc.h>
#include <time.h>

#include "base/rand.h"
#include "cluster/coordinator.h"
#include "cluster/member.h"
#include "cluster/straggler.h"

#define CROWD_STEP_MS 10 /* of simulated time */
#define CROWD_HOLD_MS 1000
#define CROWD_ADDRESS_BYTES 31 /* of a TCP worker */

struct crowd_member {
    struct member member;
    struct cluster_rank rank;
    bool is_alive, is_held;
    int64_t starts_ms, ready_ms; /* its process starts; its workers are ready (0: they were) */
    int64_t sequence, revision, until_ms, sent_ms; /* of the held heartbeat */
    int64_t entered;                               /* the generation that it is in; 0: none */
    int processes_n;
};

/* Processor time of node 0, in seconds, and how often. */
struct crowd_cost {
    double read_s, state_s, write_s, tick_s;
    int64_t messages_n, replies_n, ticks_n;
};

struct crowd_sim {
    int n;
    int64_t now_ms;
    struct coordinator *coordinator;
    struct message_incarnation incarnation; /* of the coordinator */
    struct crowd_member *members;
    struct crowd_cost cost;
    int64_t heartbeat_bytes, reply_bytes, reply_bytes_max, world_bytes; /* of the last one */
    int64_t coordinator_bytes; /* memory, as malloc counts it */
    int64_t lines_n;           /* of the log */
    char line[LOG_QUEUE_TEXT_MAX], straggler[256];
    struct message_body body;
    struct cluster_address address;
};

static inline double crowd_cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline double crowd_cost_s(const struct crowd_cost *cost)
{
    return cost->read_s + cost->state_s + cost->write_s + cost->tick_s;
}

/* Compares what is_same_data of the product compares: two fingerprints in the addresses. */
static bool crowd_same_data(const struct cluster_address *one, int one_node,
                            const struct cluster_address *other, int other_node, char *out,
                            size_t cap)
{
    text_format(out, cap, "the data of node %d are not those of node %d", other_node, one_node);
    return memcmp(one->data, other->data, 8) == 0;
}

/* A new process of node 0: it has no members yet. */
static void crowd_open_coordinator(struct crowd_sim *s)
{
    s->incarnation = (struct message_incarnation){0xC, s->incarnation.lo + 1};
    const struct coordinator_config config = {.nodes_n = s->n,
                                              .workers_n = 1,
                                              .join_timeout_ms = 600000,
                                              .peer_timeout_ms = 6000,
                                              .max_restarts = 1000,
                                              .agree_json = "{\"SEED\":\"1\"}",
                                              .is_same_data = crowd_same_data,
                                              .incarnation = s->incarnation};
    coordinator_close(s->coordinator);
    struct mallinfo2 before = mallinfo2();
    s->coordinator = coordinator_open(&config, s->now_ms);
    struct mallinfo2 after = mallinfo2();
    s->coordinator_bytes =
        (int64_t)(after.uordblks + after.hblkhd) - (int64_t)(before.uordblks + before.hblkhd);
}

/* A process of this node starts after `after_ms`; its workers are ready a moment later. */
static void crowd_start(struct crowd_sim *s, int i, int64_t after_ms)
{
    struct crowd_member *m = &s->members[i];
    const int processes_n = m->processes_n + 1;
    const struct message_incarnation incarnation = {(uint64_t)processes_n, (uint64_t)i + 1};
    *m = (struct crowd_member){.is_alive = true,
                               .starts_ms = s->now_ms + after_ms,
                               .processes_n = processes_n,
                               .rank = {.rank = i,
                                        .step = 100,
                                        .state = "training",
                                        .device = "cuda:0 NVIDIA H100 80GB HBM3",
                                        .call = "all_reduce",
                                        .call_sequence = 812}};
    m->ready_ms = m->starts_ms + 500 + (int64_t)(rand_u64(7, 1, (uint64_t)i) % 500);
    m->rank.compute_ms = 123.456789, m->rank.comm_ms = 45.678912, m->rank.wait_ms = 5.0625;
    m->rank.sent_bytes = 123456789;
    member_init(&m->member, &(struct member_config){i, 600000, 6000, incarnation, false},
                m->starts_ms);
}

static inline void crowd_open(struct crowd_sim *s, int n)
{
    *s = (struct crowd_sim){.n = n, .now_ms = 1000};
    s->members = calloc((size_t)n, sizeof(*s->members));
    assert_non_null(s->members);
    s->address.bytes = CROWD_ADDRESS_BYTES;
    memset(s->address.data, 'a', CROWD_ADDRESS_BYTES);
    crowd_open_coordinator(s);
    for (int i = 0; i < n; i++)
        crowd_start(s, i, (int64_t)(rand_u64(7, 2, (uint64_t)i) % 1000));
}

static inline void crowd_close(struct crowd_sim *s)
{
    coordinator_close(s->coordinator);
    free(s->members);
}

/* ---- what a member does with a reply ---- */

static void crowd_enter(struct crowd_sim *s, int i, int64_t generation)
{
    struct crowd_member *m = &s->members[i];
    struct cluster_world world;
    double begin_s = crowd_cpu_s();
    bool is_there =
        coordinator_world(s->coordinator, i, m->member.config.incarnation, generation, &world);
    s->cost.state_s += crowd_cpu_s() - begin_s;
    if (!is_there || !member_on_world(&m->member, generation, NULL, s->now_ms))
        return;
    m->entered = generation;
    m->rank.call_age_ms = 0;
}

static void crowd_carry_out(struct crowd_sim *s, int i, const struct member_actions *actions)
{
    struct crowd_member *m = &s->members[i];
    if (actions->abort != 0) {
        m->entered = 0;
        m->ready_ms = s->now_ms + 100 + (int64_t)(rand_u64(7, 3, (uint64_t)i) % 200);
    }
    if (actions->fetch != 0)
        crowd_enter(s, i, actions->fetch);
    if (actions->is_over)
        m->is_alive = false;
}

static void crowd_deliver(struct crowd_sim *s, int i, const struct text *reply, int64_t sent_ms)
{
    struct crowd_member *m = &s->members[i];
    struct message_reply read;
    struct member_actions actions = {0};
    assert_int_equal(message_read_reply(reply->data, reply->len, &read), ST_OK);
    member_on_reply(&m->member, &read, sent_ms, s->now_ms, &actions);
    crowd_carry_out(s, i, &actions);
}

/* ---- what node 0 does ---- */

static void crowd_reply(struct crowd_sim *s, int i, const struct message_reply *reply,
                        int64_t sent_ms)
{
    struct text out = {0};
    double begin_s = crowd_cpu_s();
    message_write_reply(&out, reply);
    s->cost.write_s += crowd_cpu_s() - begin_s;
    s->cost.replies_n++;
    s->reply_bytes = (int64_t)out.len;
    if (s->reply_bytes > s->reply_bytes_max)
        s->reply_bytes_max = s->reply_bytes;
    crowd_deliver(s, i, &out, sent_ms);
    text_free(&out);
}

/* As coordinator_server_flush. */
static void crowd_flush(struct crowd_sim *s)
{
    int64_t revision = coordinator_revision(s->coordinator);
    for (int i = 0; i < s->n; i++) {
        struct crowd_member *m = &s->members[i];
        struct message_reply reply;
        if (!m->is_held || (m->revision == revision && s->now_ms < m->until_ms))
            continue;
        m->is_held = false;
        double begin_s = crowd_cpu_s();
        coordinator_make_reply(s->coordinator, i, m->member.config.incarnation, m->sequence,
                               &reply);
        s->cost.state_s += crowd_cpu_s() - begin_s;
        crowd_reply(s, i, &reply, m->sent_ms);
    }
}

static void crowd_drain_log(struct crowd_sim *s)
{
    const char *line;
    bool is_warning;
    while ((line = log_queue_next(coordinator_log(s->coordinator), &is_warning)) != NULL) {
        s->lines_n++;
        if (is_warning)
            text_copy(s->line, sizeof(s->line), line);
    }
}

/* As on_heartbeat of coordinator_server.c. */
static void crowd_receive(struct crowd_sim *s, int i, const struct text *message, bool is_urgent)
{
    struct crowd_member *m = &s->members[i];
    struct message_reply reply;
    int64_t before = coordinator_revision(s->coordinator);
    double begin_s = crowd_cpu_s();
    assert_int_equal(message_read_heartbeat(message->data, message->len, &s->body), ST_OK);
    double read_s = crowd_cpu_s();
    coordinator_on_heartbeat(s->coordinator, &s->body.heartbeat,
                             s->body.has_join ? &s->body.join : NULL, s->now_ms, &reply);
    crowd_drain_log(s);
    s->cost.state_s += crowd_cpu_s() - read_s;
    s->cost.read_s += read_s - begin_s;
    s->cost.messages_n++;
    bool is_held = reply.answer == MESSAGE_ANSWER_MEMBER && reply.is_lease && !is_urgent &&
                   !s->body.has_join && !reply.is_leave_confirmed &&
                   s->body.heartbeat.revision == reply.revision;
    m->is_held = m->is_held || is_held;
    if (is_held) {
        m->sequence = s->body.heartbeat.sequence;
        m->revision = reply.revision;
        m->sent_ms = s->now_ms;
        m->until_ms = s->now_ms + CROWD_HOLD_MS;
    } else {
        crowd_reply(s, i, &reply, s->now_ms);
    }
    if (reply.revision != before)
        crowd_flush(s);
}

static void crowd_tick(struct crowd_sim *s)
{
    double begin_s = crowd_cpu_s();
    coordinator_tick(s->coordinator, s->now_ms);
    const struct cluster_node *nodes = coordinator_nodes(s->coordinator, s->now_ms);
    straggler_find(nodes, s->n, 3000, NULL, s->straggler, sizeof(s->straggler));
    crowd_drain_log(s);
    s->cost.tick_s += crowd_cpu_s() - begin_s;
    s->cost.ticks_n++;
    crowd_flush(s);
}

/* ---- what the members do ---- */

static void crowd_send(struct crowd_sim *s, int i, bool is_urgent)
{
    struct crowd_member *m = &s->members[i];
    const struct message_join join = {MESSAGE_PROTOCOL,   s->n, 1,    4000 + i, "node",
                                      "{\"SEED\":\"1\"}", 0,    NULL, {0, 0}};
    struct message_heartbeat heartbeat;
    struct text out = {0};
    bool has_addresses = member_has_addresses(&m->member);
    bool is_joining = member_make_heartbeat(&m->member, s->now_ms, &heartbeat);
    heartbeat.ranks = &m->rank;
    heartbeat.ranks_n = 1;
    heartbeat.addresses = &s->address;
    heartbeat.addresses_n = has_addresses;
    message_write_heartbeat(&out, &heartbeat, is_joining ? &join : NULL, CROWD_HOLD_MS);
    s->heartbeat_bytes = (int64_t)out.len;
    crowd_receive(s, i, &out, is_urgent);
    text_free(&out);
}

static void crowd_member_step(struct crowd_sim *s, int i)
{
    struct crowd_member *m = &s->members[i];
    struct member_actions actions = {0};
    if (!m->is_alive || s->now_ms < m->starts_ms)
        return;
    if (s->now_ms % LOOP_LAG_TICK_MS == i % 10 * CROWD_STEP_MS) {
        member_tick(&m->member, s->now_ms, &actions);
        crowd_carry_out(s, i, &actions);
    }
    if (m->ready_ms != 0 && s->now_ms >= m->ready_ms) {
        m->ready_ms = 0;
        member_ready(&m->member, &actions);
    }
    if (m->is_alive && actions.is_urgent && m->is_held)
        crowd_send(s, i, true);
    if (m->is_alive && !m->is_held)
        crowd_send(s, i, false);
}

/* crowd_run — for so long, or until every living member is in this generation. */
static inline bool crowd_run(struct crowd_sim *s, int64_t ms, int64_t generation)
{
    for (int64_t end_ms = s->now_ms + ms; s->now_ms < end_ms; s->now_ms += CROWD_STEP_MS) {
        int in_n = 0;
        for (int i = 0; i < s->n; i++) {
            crowd_member_step(s, i);
            in_n += s->members[i].entered == generation;
        }
        if (s->now_ms % LOOP_LAG_TICK_MS == 0)
            crowd_tick(s);
        if (in_n == s->n)
            return true;
    }
    return false;
}

/* crowd_kill — the process ends, and its connections close. */
static inline void crowd_kill(struct crowd_sim *s, int i)
{
    struct crowd_member *m = &s->members[i];
    m->is_alive = m->is_held = false;
    m->entered = 0;
    coordinator_on_disconnect(s->coordinator, i, m->member.config.incarnation, s->now_ms);
}

/* crowd_replace_node0 — node 0 dies and starts again; the others find their connections closed. */
static inline void crowd_replace_node0(struct crowd_sim *s)
{
    crowd_open_coordinator(s);
    for (int i = 0; i < s->n; i++) {
        s->members[i].is_held = false;
        if (i > 0)
            member_on_disconnect(&s->members[i].member, "closed", s->now_ms);
    }
    crowd_start(s, 0, 0);
}

/* crowd_leave — every member has finished, within `ms`. Returns how many messages that took. */
static inline int64_t crowd_leave(struct crowd_sim *s, int64_t ms)
{
    int64_t before = s->cost.messages_n, begin_ms = s->now_ms;
    for (; s->now_ms < begin_ms + ms + 2000; s->now_ms += CROWD_STEP_MS) {
        for (int i = 0; i < s->n; i++) {
            struct crowd_member *m = &s->members[i];
            struct member_actions actions = {0};
            if (m->is_alive && s->now_ms - begin_ms == (int64_t)i * ms / s->n / 10 * 10) {
                member_leave(&m->member, ST_OK, "", s->now_ms, &actions);
                crowd_send(s, i, true);
            }
            crowd_member_step(s, i);
        }
        if (s->now_ms % LOOP_LAG_TICK_MS == 0)
            crowd_tick(s);
    }
    return s->cost.messages_n - before;
}

/* crowd_world_bytes — the JSON of the running generation's addresses. */
static inline int64_t crowd_world_bytes(struct crowd_sim *s)
{
    struct text out = {.limit = MESSAGE_WORLD_MAX};
    struct cluster_world world;
    const struct crowd_member *m = &s->members[0];
    assert_true(
        coordinator_world(s->coordinator, 0, m->member.config.incarnation, m->entered, &world));
    message_write_world(&out, &world);
    assert_false(out.overflow);
    int64_t bytes = (int64_t)out.len;
    text_free(&out);
    return bytes;
}

#endif
