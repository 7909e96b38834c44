/* sim_succession — the simulator (sim.h) where any node may lead the job: nodes that are killed at
 * the same moment, and networks that fall apart again and again. */
#ifndef CONVOY_TESTS_SIM_SUCCESSION_H
#define CONVOY_TESTS_SIM_SUCCESSION_H

#include "cluster/sim.h"

/* ---- nodes are killed ---- */

#define HANDOVER_MS 3000

static void run_for(struct sim *s, int64_t span_ms)
{
    for (const int64_t end_ms = s->now_ms + span_ms; s->now_ms < end_ms && s->failure[0] == 0;)
        step(s);
}

/* Runs until the processes that live train, for at most `within_ms`. */
static void await_settled(struct sim *s, int64_t within_ms, const char *what)
{
    const int64_t end_ms = s->now_ms + within_ms;
    do
        step(s);
    while (s->now_ms < end_ms && s->failure[0] == 0 && !is_settled_without_lost(s));
    if (s->failure[0] == 0 && !is_settled_without_lost(s))
        violation(s, what, s->now_ms, within_ms);
}

/* Kills some of the processes that live, at the same moment and whatever they do; at least one is
 * left. Their hosts stay up. */
static void kill_some(struct sim *s, int alive_n)
{
    for (int left_n = 1 + (int)draw(s, (uint64_t)alive_n - 1); left_n > 0;) {
        const int id = alive_of(s, (int)draw(s, (uint64_t)s->nodes_n));
        if (id < 0)
            continue;
        cut_packets(s, id); /* nothing arrives after the end of its connection */
        end_process(s, id, true, true);
        left_n--;
    }
}

static void start_absent(struct sim *s)
{
    for (int node = s->nodes_n - 1; node >= 0; node--)
        if (alive_of(s, node) < 0)
            start(s, node);
}

static int count_alive(const struct sim *s)
{
    int n = 0;
    for (int node = 0; node < s->nodes_n; node++)
        n += alive_of(s, node) >= 0;
    return n;
}

/* Begins a history of `least` to 6 nodes. */
static void begin_succession(struct sim *s, uint64_t seed, int least)
{
    begin(s, seed, false);
    s->nodes_n = least + (int)draw(s, (uint64_t)(7 - least));
    s->min_nodes = 1;
    s->hands_over = s->has_no_faults = s->has_no_returns = true;
    start_all(s);
}

/* Runs one history in which any number of nodes is killed at once, with or without the
 * coordinator's, and again before the rest have finished a step. The rest train on within
 * HANDOVER_MS. At times the nodes come back, and are taken in: node 0 finds the job by the
 * coordinator, not by its address. */
static inline bool sim_handover(struct sim *s, uint64_t seed)
{
    begin_succession(s, seed, 2);
    s->always_steps = true;
    await_settled(s, 5000, "no world at the start");
    for (int round = 0; round < 6 && s->failure[0] == 0; round++) {
        const int alive_n = count_alive(s);
        run_for(s, (int64_t)draw(s, chance(s, 0.5) ? 300 : 4000)); /* without a step, or with one */
        if (alive_n == 1 || chance(s, 0.3)) {
            start_absent(s);
            await_settled(s, SETTLE_MS(s), "nodes that return are not taken in");
            continue;
        }
        kill_some(s, alive_n);
        await_settled(s, HANDOVER_MS, "the other nodes do not train on after a loss");
    }
    return end(s);
}

/* ---- a node leaves ---- */

static int find_searching(const struct sim *s)
{
    for (int node = 0; node < s->nodes_n; node++) {
        const int id = alive_of(s, node);
        if (id >= 0 && s->processes[id].member.is_searching)
            return id;
    }
    return -1;
}

/* Runs one history in which the two lowest nodes lose power, and the next one is asked to stop
 * while it waits for an answer of the second. It must not lead: its end would end all nodes. */
static inline bool sim_leave(struct sim *s, uint64_t seed)
{
    struct member_actions actions = {0};
    begin_succession(s, seed, 4);
    s->always_steps = true;
    await_settled(s, 5000, "no world at the start");
    run_for(s, 3000);
    for (int node = 0; node < 2; node++) {
        cut_packets(s, alive_of(s, node));
        end_process(s, alive_of(s, node), false, false);
    }
    while (s->failure[0] == 0 && find_searching(s) < 0)
        step(s);
    run_for(s, (int64_t)draw(s, 1000));
    const int id = find_searching(s);
    if (id >= 0 && s->failure[0] == 0) {
        member_leave(&s->processes[id].member, ST_TERMINATED, "not needed", s->now_ms, &actions);
        carry_out(s, id, &actions);
    }
    run_for(s, SETTLE_MS(s));
    return end(s);
}

/* ---- the network falls apart ---- */

#define PARTITION_MS 20000

/* The last world whose members all know that it has finished a step. */
struct finished {
    int processes[NODES_MAX]; /* -1: the node is not in it */
    int nodes_n, leader;
};

static uint64_t side_of(const struct sim *s, int node) { return s->sides >> node & 1; }

static bool is_left(const struct sim *s, const struct finished *last, uint64_t side, int node)
{
    return last->processes[node] >= 0 && s->processes[last->processes[node]].is_alive &&
           side_of(s, node) == side;
}

/* Returns the world that runs with all processes that the last one has left on this side. Nodes
 * that are new find the job by node 0 only, so they may be missing. NULL: there is none. */
static const struct world *find_side_world(const struct sim *s, const struct finished *last,
                                           uint64_t side)
{
    const struct world *w = NULL;
    for (int node = 0; node < s->nodes_n; node++) {
        if (!is_left(s, last, side, node))
            continue;
        const struct process *p = &s->processes[last->processes[node]];
        w = w != NULL ? w : find_world(s, p->member.coordinator, p->member.running);
        if (w == NULL || w->origins[node].process != last->processes[node] || !is_complete(s, p))
            return NULL;
    }
    return w;
}

/* Returns true if the rules let this side train: it has more than half of the last world, or half
 * with its leader. */
static bool may_train(const struct sim *s, const struct finished *last, uint64_t side)
{
    int n = 0;
    for (int node = 0; node < s->nodes_n; node++)
        n += is_left(s, last, side, node);
    if (last->nodes_n == 0 || 2 * n != last->nodes_n)
        return last->nodes_n > 0 && 2 * n > last->nodes_n;
    const struct process *leader = &s->processes[last->leader];
    return leader->is_alive && side_of(s, leader->node) == side;
}

/* Notes the world that runs and is known to have finished a step; nodes_n 0: there is none. */
static struct finished find_finished(const struct sim *s)
{
    struct finished last = {.nodes_n = 0};
    for (int i = 0; i < s->processes_n; i++) {
        const struct process *p = &s->processes[i];
        const struct world *w = find_world(s, p->member.coordinator, p->member.running);
        if (!p->is_alive || w == NULL || !is_complete(s, p) || !is_finished(s, w))
            continue;
        last.nodes_n = w->nodes_n;
        for (int node = 0; node < s->nodes_n; node++)
            last.processes[node] = w->origins[node].process;
        last.leader = leader_of(s, i);
    }
    return last;
}

static void await_side(struct sim *s, const struct finished *last, uint64_t side)
{
    const int64_t end_ms = s->now_ms + PARTITION_MS;
    while (s->failure[0] == 0 && find_side_world(s, last, side) == NULL) {
        if (s->now_ms >= end_ms)
            violation(s, "the side that may train does not", (int64_t)side, last->nodes_n);
        step(s);
    }
}

/* Changes the network and the processes: other sides, nodes that are killed, nodes that return. */
static void move_sides(struct sim *s)
{
    s->sides = draw(s, (uint64_t)1 << s->nodes_n);
    s->sides_heal_ms = INT64_MAX;
    for (int node = 0; node < s->nodes_n; node++) {
        const int id = alive_of(s, node);
        if (id >= 0 && chance(s, 0.15))
            crash(s, id);
        else if (id < 0 && chance(s, 0.3))
            start(s, node);
    }
}

/* Runs one history in which the network falls into two other parts again and again, without being
 * whole in between, while nodes are killed and return. The side that may train does so within
 * PARTITION_MS. At last the network is whole, and so is the job. */
static inline bool sim_partition(struct sim *s, uint64_t seed)
{
    begin_succession(s, seed, 2);
    s->always_steps = true;
    run_for(s, 8000);
    for (int round = 0; round < 10 && s->failure[0] == 0; round++) {
        const struct finished last = find_finished(s);
        move_sides(s);
        for (uint64_t side = 0; side < 2; side++)
            if (may_train(s, &last, side))
                await_side(s, &last, side);
        run_for(s, (int64_t)draw(s, 12000));
    }
    s->sides = 0;
    start_absent(s);
    await_settled(s, SETTLE_MS(s), "not all are in one generation after the network is whole");
    return end(s);
}

#endif
