/* coordinator — see coordinator.h. In this file: the state changes, the replies and the timeouts.
 * coordinator_join.c decides on joining. Must not know sockets, clocks or processes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "cluster/coordinator_inside.h"
#include "cluster/restart_budget.h"

#define GAP_MS 2000 /* ms; shorter stalls of this process are not logged */

/* ---- open and close ---- */

static bool is_some(struct message_incarnation incarnation)
{
    return incarnation.hi != 0 || incarnation.lo != 0;
}

static void inherit_state(struct coordinator *c, const struct coordinator_inheritance *from)
{
    ASSERTF(c->past != NULL && from->generation > 0 && from->former_id >= 0 &&
                from->former_id < c->config.nodes_n,
            "generation %lld of node %d", (long long)from->generation, from->former_id);
    succession_merge(c->past, from->past);
    c->former_id = from->former_id;
    c->was_in_sight = is_some(from->ended);
    if (c->was_in_sight)
        succession_end_process(c->past, from->ended, true);
    c->generation = from->generation;
    c->budget.counts = from->counts;
    c->stop = from->stop;
}

struct coordinator *coordinator_open(const struct coordinator_config *config, int64_t now_ms)
{
    ASSERTF(config->nodes_n > 0 && config->workers_n > 0, "%d nodes of %d workers", config->nodes_n,
            config->workers_n);
    ASSERTF(config->min_nodes >= 0 && config->min_nodes <= config->nodes_n, "%d of %d nodes",
            config->min_nodes, config->nodes_n);
    size_t nodes_n = (size_t)config->nodes_n, ranks_n = nodes_n * (size_t)config->workers_n;
    struct coordinator *c = memory_new(1, sizeof *c);
    c->nodes = memory_new(nodes_n, sizeof *c->nodes);
    c->addresses = memory_new(ranks_n, sizeof *c->addresses);
    c->world = memory_new(ranks_n, sizeof *c->world);
    c->world_ids = memory_new(nodes_n, sizeof *c->world_ids);
    c->ranks = memory_new(ranks_n, sizeof *c->ranks);
    c->status_nodes = memory_new(nodes_n, sizeof *c->status_nodes);
    c->repeats = memory_new(ranks_n, sizeof *c->repeats);
    c->config = *config;
    c->config.min_nodes = config->min_nodes > 0 ? config->min_nodes : config->nodes_n;
    c->opened_ms = c->waiting_ms = now_ms, c->generation_end_ms = INT64_MAX;
    loop_lag_init(&c->lag, now_ms);
    c->step = c->budget.counts.first.step = -1;
    c->budget.restarts_max = config->max_restarts;
    c->budget.workers_n = (int)ranks_n;
    c->budget.others = c->repeats;
    c->revision = 1;
    for (size_t i = 0; i < nodes_n; i++)
        c->nodes[i].disconnected_ms = c->nodes[i].data_closed_ms = c->nodes[i].parted_ms =
            c->nodes[i].step = -1;
    c->former_id = -1;
    if (config->has_succession)
        c->past = memory_new(1, sizeof *c->past),
        c->controls = memory_new(nodes_n, sizeof *c->controls);
    if (config->inheritance)
        inherit_state(c, config->inheritance);
    return c;
}

void coordinator_close(struct coordinator *c)
{
    if (!c)
        return;
    free(c->nodes);
    free(c->addresses);
    free(c->world);
    free(c->world_ids);
    free(c->ranks);
    free(c->status_nodes);
    free(c->repeats);
    free(c->past);
    free(c->controls);
    free(c);
}

struct log_queue *coordinator_log(struct coordinator *c) { return &c->log; }
int64_t coordinator_revision(const struct coordinator *c) { return c->revision; }
const char *coordinator_cause(const struct coordinator *c, int *rank_out)
{
    *rank_out = c->cause_rank;
    return c->cause;
}
void coordinator_checkpoints(struct coordinator *c, int64_t n) { c->checkpoints = n; }

/* Returns true if our replies reach this member. A round trip needs longer if hosts stall. */
static bool is_in_contact(const struct coordinator *c, const struct coordinator_node *node,
                          const struct message_heartbeat *heartbeat)
{
    return heartbeat->silence_ms < COORDINATOR_LEASE_MS + coordinator_nodes_grace(c, node);
}

/* ---- changes of the job ---- */

static void bump_revision(struct coordinator *c)
{
    c->revision++;
    c->is_missing_known = false;
}

void coordinator_end_job(struct coordinator *c, enum status st, const char *why)
{
    if (c->is_ended)
        return;
    c->is_ended = true;
    c->is_running = false;
    c->end_st = st;
    text_copy(c->why, sizeof c->why, why);
    bump_revision(c);
}

/* Counts the loss of a worker or a node: uses one restart of the budget, unless the loss belongs to
 * an incident that has used one, or ends the job. */
static void count_loss(struct coordinator *c, const struct restart_loss *loss, const char *why)
{
    char text[MESSAGE_TEXT_MAX];
    ASSERT(!c->is_running && !c->is_ended);
    ASSERTF(loss->worker >= 0 && loss->worker < c->budget.workers_n, "worker %d of %d",
            loss->worker, c->budget.workers_n);
    c->is_cause_awaited = false;
    text_copy(c->cause, sizeof c->cause, why);
    c->cause_rank = loss->worker;
    if (!restart_budget_spend(&c->budget, loss, why, text, sizeof text))
        coordinator_end_job(c, loss->st, text);
    else if (c->budget.counts.losses == 1)
        log_queue_add(&c->log, true, "%s; restart %lld of %d", why,
                      (long long)restart_budget_used(&c->budget), c->config.max_restarts);
    else
        log_queue_add(&c->log, true, "%s, while the job recovers", why);
}

/* Returns true if a report may still be the cause of the last generation's end, or one of several
 * causes. */
static bool may_be_late_cause(const struct coordinator *c)
{
    return !c->is_running && !c->is_ended && c->stop == 0 && c->left_n == 0;
}

static void stop_running(struct coordinator *c, int64_t now_ms)
{
    if (c->is_running && c->has_stepped)
        restart_budget_passed(&c->budget, c->step);
    c->is_running = false;
    c->cause[0] = 0;
    c->waiting_ms = c->generation_end_ms = now_ms;
}

/* Ends the running generation, or, while the job waits for nodes, counts a loss that does not
 * belong to the last generation. is_cause false: the report shows only an effect of a loss. A rank
 * reports that its comm failed, or a node reports that it abandoned the generation. */
static void end_generation(struct coordinator *c, const struct restart_loss *loss, bool is_cause,
                           const char *why, int64_t now_ms)
{
    if (c->is_ended)
        return;
    stop_running(c, now_ms);
    text_copy(c->why, sizeof c->why, why);
    bump_revision(c);
    if (c->stop != 0) {
        log_queue_add(&c->log, true, "%s, while the job was stopping", why);
    } else if (c->left_n > 0) {
        coordinator_end_job(c, loss->st, why); /* a node that has left cannot join again */
    } else if (is_cause) {
        count_loss(c, loss, why);
    } else {
        c->is_cause_awaited = true;
        c->report = *loss;
        text_copy(c->report_why, sizeof c->report_why, why);
        log_queue_add(&c->log, true, "%s", why);
    }
    ASSERT(!c->is_running);
}

static struct restart_loss loss_of_node(const struct coordinator *c,
                                        const struct coordinator_node *node)
{
    return (struct restart_loss){ST_PEER, coordinator_node_id(c, node) * c->config.workers_n,
                                 node->step, c->generation};
}

/* Writes ", ranks 2 to 3: stage 1"; nothing if their places are unknown. */
static void describe_ranks(const struct coordinator *c, const struct coordinator_node *node,
                           char *out, size_t cap)
{
    char place[64] = "";
    const int ranks = c->config.workers_n, first = coordinator_node_id(c, node) * ranks;
    const struct cluster_places *places = &c->config.places;
    if (places->describe != NULL)
        places->describe(places->arg, first, ranks, place, sizeof place);
    out[0] = 0;
    if (place[0] != 0 && ranks == 1)
        text_format(out, cap, ", rank %d: %s", first, place);
    else if (place[0] != 0)
        text_format(out, cap, ", ranks %d to %d: %s", first, first + ranks - 1, place);
}

static void mark_lost(struct coordinator *c, struct coordinator_node *node, const char *how,
                      int64_t now_ms)
{
    char why[320], ranks[96];
    ASSERTF(coordinator_is_present(node), "node %d, state %d", coordinator_node_id(c, node),
            (int)node->state);
    const struct restart_loss loss = loss_of_node(c, node);
    describe_ranks(c, node, ranks, sizeof ranks);
    text_format(why, sizeof why, "node %d (%s, pid %lld%s) was lost: %s",
                coordinator_node_id(c, node), node->host, (long long)node->pid, ranks, how);
    node->state = CLUSTER_NODE_LOST;
    node->ready = 0;
    node->disconnected_ms = node->data_closed_ms = -1;
    if (c->is_running ? node->is_in_world : node->joined_ms > c->generation_end_ms) {
        end_generation(c, &loss, true, why, now_ms);
    } else {
        /* A loss in the generation that ended; it may be the cause of that end. */
        if (node->is_in_world && may_be_late_cause(c))
            count_loss(c, &loss, why);
        else
            log_queue_add(&c->log, true, "%s", why);
        c->waiting_ms = c->is_running ? c->waiting_ms : now_ms;
        bump_revision(c);
    }
}

static void try_start_generation(struct coordinator *c, int64_t now_ms)
{
    char nodes[320];
    if (c->is_running || c->is_ended || c->stop != 0 || !coordinator_world_is_ready(c, now_ms))
        return;
    if (c->worlds_n == 0 && c->generation > 0) {
        /* This coordinator replaces a lost one. The heartbeats of the other nodes have the
         * progress of the lost process. */
        char why[96];
        struct restart_loss loss = loss_of_node(c, &c->nodes[c->former_id < 0 ? 0 : c->former_id]);
        for (int i = 0; i < c->config.nodes_n; i++)
            loss.step = c->nodes[i].step > loss.step ? c->nodes[i].step : loss.step;
        text_format(why, sizeof why,
                    c->former_id < 0 ? "node 0 was lost and has started again"
                                     : "node %d is lost; node %d leads the job now",
                    c->former_id, c->config.leader_id);
        count_loss(c, &loss, why);
    } else if (c->is_cause_awaited) {
        /* All nodes are ready, so no worker or node was lost: the report itself is the loss. */
        char why[MESSAGE_TEXT_MAX];
        text_format(why, sizeof why, "no worker or node was lost, but %s", c->report_why);
        count_loss(c, &c->report, why);
    }
    if (c->is_ended)
        return;
    coordinator_world_form(c, now_ms);
    ASSERTF(coordinator_leader(c)->is_in_world && c->world_n >= c->config.min_nodes &&
                c->world_n <= c->config.nodes_n,
            "a world of %d nodes, of %d to %d", c->world_n, c->config.min_nodes, c->config.nodes_n);
    if (c->worlds_n == 0 && c->config.nodes_n > 1)
        for (int i = 0; i < 2; i++) {
            const int at = i < c->world_n ? i : 0;
            c->first[i] = c->world[(size_t)at * (size_t)c->config.workers_n];
            c->first_ids[i] = c->world_ids[at];
        }
    c->world_generation = ++c->generation;
    c->worlds_n++;
    c->is_running = true;
    c->why[0] = 0;
    bump_revision(c);
    coordinator_world_describe(c, nodes, sizeof nodes);
    log_queue_add(&c->log, false, "generation %lld: %s, %d worker%s each", (long long)c->generation,
                  nodes, c->config.workers_n, c->config.workers_n > 1 ? "s" : "");
}

/* Ends the generation without a loss, so that the next one has other nodes. how: what happened to
 * this node, as text. */
static void regroup_nodes(struct coordinator *c, const struct coordinator_node *node,
                          const char *how, int64_t now_ms)
{
    ASSERT(c->is_running && !c->is_ended);
    stop_running(c, now_ms);
    text_format(c->why, sizeof c->why, "node %d (%s) %s", coordinator_node_id(c, node), node->host,
                how);
    bump_revision(c);
    log_queue_add(&c->log, false, "%s", c->why);
}

/* ---- a message of a member ---- */

/* Returns true if the job has trained, and its last generation did not have this process. */
static bool is_outside(const struct coordinator *c, const struct coordinator_node *node)
{
    return c->worlds_n > 0 && !node->is_in_world;
}

/* Returns true if the job may continue without a node that leaves with this status: it was stopped,
 * or its results cannot be trusted, or the last generation did not have it. */
static bool may_depart(const struct coordinator *c, const struct coordinator_node *node,
                       enum status st)
{
    enum status_group group = status_group(st);
    if (c->is_ended || !coordinator_world_may_lose(c, node))
        return false;
    if (is_outside(c, node) && st != ST_OK)
        return true;
    return c->stop == 0 &&
           (group == STATUS_GROUP_STOP || group == STATUS_GROUP_RETRY || st == ST_FAULT);
}

static void mark_departed(struct coordinator *c, struct coordinator_node *node, enum status st,
                          const char *why, int64_t now_ms)
{
    char how[MESSAGE_TEXT_MAX];
    ASSERT(node->state != CLUSTER_NODE_LEFT && coordinator_world_may_lose(c, node));
    const bool was_in_world = c->is_running && node->is_in_world,
               is_error = is_outside(c, node) && status_group(st) != STATUS_GROUP_STOP;
    text_format(how, sizeof how, "%s: %s", is_error ? "ended" : "leaves", why);
    node->state = CLUSTER_NODE_LEFT;
    node->has_departed = true;
    node->ready = 0;
    if (c->past) /* it enters no other world */
        succession_end_process(c->past, node->incarnation, true);
    /* Its ranks closed their connections because it leaves. */
    c->is_cause_awaited = c->is_cause_awaited && !node->is_in_world;
    c->has_missing_changed = true;
    if (was_in_world)
        regroup_nodes(c, node, how, now_ms);
    else
        log_queue_add(&c->log, is_error, "node %d (%s) %s%s", coordinator_node_id(c, node),
                      node->host, how, is_error ? "; the others go on (ON_LOSS=shrink)" : "");
}

static void apply_leave(struct coordinator *c, struct coordinator_node *node,
                        const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    char why[MESSAGE_TEXT_MAX];
    enum status_group group = status_group(heartbeat->leave_st);
    bool is_asked = c->stop != 0 && (group == STATUS_GROUP_STOP || group == STATUS_GROUP_RETRY);
    ASSERT(node->state != CLUSTER_NODE_LEFT);
    if (may_depart(c, node, heartbeat->leave_st)) {
        mark_departed(c, node, heartbeat->leave_st, heartbeat->why, now_ms);
        return;
    }
    node->state = CLUSTER_NODE_LEFT;
    c->left_n++;
    /* This is no news for the others: a new revision would make every node send a message for every
     * node that leaves. */
    c->has_missing_changed = true;
    if (heartbeat->leave_st == ST_OK || is_asked) {
        const struct restart_loss loss = loss_of_node(c, node);
        if (!c->is_running && c->stop == 0)
            end_generation(c, &loss, true, "a node left before the others", now_ms);
        else if (coordinator_world_is_done(c)) /* nodes that came back late have nothing to do */
            coordinator_end_job(c, ST_OK, "the job has ended");
        return;
    }
    text_format(why, sizeof why, "node %d (%s) ended: %s", coordinator_node_id(c, node), node->host,
                heartbeat->why);
    /* The other nodes end with the same status only if they share its cause. */
    const bool is_shared = group == STATUS_GROUP_REQUEST || group == STATUS_GROUP_STORE;
    coordinator_end_job(c, is_shared ? heartbeat->leave_st : ST_PEER, why);
}

static void apply_loss(struct coordinator *c, struct coordinator_node *node,
                       const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    char why[MESSAGE_TEXT_MAX];
    const bool is_cause =
                   heartbeat->lost_worker >= 0 && heartbeat->lost_worker < c->config.workers_n,
               is_current = c->is_running ? heartbeat->lost == c->generation : heartbeat->lost == 0,
               is_late = is_cause && node->is_in_world && heartbeat->lost == c->world_generation &&
                         may_be_late_cause(c);
    struct restart_loss loss = loss_of_node(c, node);
    ASSERTF(heartbeat->losses > node->losses, "loss %lld after %lld", (long long)heartbeat->losses,
            (long long)node->losses);
    node->losses = heartbeat->losses;
    node->lost = heartbeat->lost;
    if (!is_current && !is_late) /* a loss in a generation that has ended already */
        return;
    loss.st = heartbeat->lost_st;
    loss.worker += is_cause ? heartbeat->lost_worker : 0;
    loss.step = is_cause ? heartbeat->lost_step : heartbeat->step;
    text_format(why, sizeof why, "node %d (%s): %s", coordinator_node_id(c, node), node->host,
                heartbeat->why);
    if (is_current)
        end_generation(c, &loss, is_cause, why, now_ms);
    else
        count_loss(c, &loss, why);
}

/* Marks the node as lost: both signs of its death are present. */
static void lose_dead(struct coordinator *c, struct coordinator_node *node, int64_t now_ms)
{
    mark_lost(c, node, "its connections to node 0 and to a rank of another node were closed",
              now_ms);
}

static void apply_closed(struct coordinator *c, struct coordinator_node *from,
                         const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    struct coordinator_node *node = coordinator_nodes_note_closed(c, from, heartbeat, now_ms);
    if (node && coordinator_nodes_is_dead(node))
        lose_dead(c, node, now_ms);
}

static void apply_ready(struct coordinator *c, struct coordinator_node *node,
                        const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    if (c->is_running && node->is_in_world)
        return;
    ASSERTF(node->used <= node->ready || node->ready == 0, "readiness %lld, used %lld",
            (long long)node->ready, (long long)node->used);
    int64_t before = node->ready;
    if (heartbeat->ready <= node->used) {
        node->ready = 0;
    } else if (heartbeat->addresses_n == c->config.workers_n) {
        size_t n = (size_t)c->config.workers_n;
        memcpy(c->addresses + (size_t)coordinator_node_id(c, node) * n, heartbeat->addresses,
               n * sizeof *c->addresses);
        node->ready = heartbeat->ready;
    } else if (heartbeat->ready != node->ready) {
        node->ready = 0;
    }
    c->has_missing_changed = c->has_missing_changed || node->ready != before;
    if (node->ready != before && node->ready > 0 && coordinator_join_check_data(c, node))
        bump_revision(c);
    if (coordinator_world_can_include(c, node, now_ms))
        regroup_nodes(c, node, "is back and joins the job again", now_ms);
}

/* Ends the generation if a ready node outside it may be included now, because the generation has
 * finished its first step or has run for long enough. The next generation has the node. */
static void include_ready_node(struct coordinator *c, int64_t now_ms)
{
    const struct coordinator_node *node = coordinator_world_find_outside(c, now_ms);
    if (node)
        regroup_nodes(c, node, "is back and joins the job again", now_ms);
}

/* Returns true if this is the first step of the generation. */
static bool apply_stepped(struct coordinator *c, const struct coordinator_node *node,
                          const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    if (!c->is_running || !node->is_in_world || heartbeat->stepped != c->generation)
        return false;
    c->step = heartbeat->step > c->step ? heartbeat->step : c->step;
    if (c->has_stepped)
        return false;
    ASSERT(c->worlds_n > 0 && c->generation == c->world_generation);
    c->has_stepped = true;
    if (c->past)
        succession_step(c->past, c->config.incarnation, c->generation);
    restart_budget_stepped(&c->budget, c->checkpoints, now_ms);
    return true;
}

static void apply_report(struct coordinator *c, struct coordinator_node *node,
                         const struct message_heartbeat *heartbeat)
{
    ASSERT(heartbeat->sequence == node->sequence);
    int n = heartbeat->ranks_n < c->config.workers_n ? heartbeat->ranks_n : c->config.workers_n;
    if (n > 0) {
        memcpy(c->ranks + (size_t)coordinator_node_id(c, node) * (size_t)c->config.workers_n,
               heartbeat->ranks, (size_t)n * sizeof *c->ranks);
        node->ranks_n = n;
    }
    node->step = heartbeat->step;
    node->machine = heartbeat->machine;
}

/* Adopts the generation and the restarts that a member reports, if the generation is later: this
 * process of node 0 is new, and may have begun a generation with a lower number itself. */
static void adopt_generation(struct coordinator *c, const struct coordinator_node *node,
                             const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    char why[96];
    if (heartbeat->generation > c->generation) {
        const struct restart_loss loss = loss_of_node(c, coordinator_leader(c));
        text_format(why, sizeof why, "node %d reports a later generation",
                    coordinator_node_id(c, node));
        c->generation = heartbeat->generation;
        const struct restart_counts *theirs = &heartbeat->counts, *own = &c->budget.counts;
        if (theirs->restarts > own->restarts ||
            (theirs->restarts == own->restarts && theirs->losses >= own->losses))
            c->budget.counts = *theirs;
        if (c->is_running)
            end_generation(c, &loss, true, why, now_ms);
    }
    /* The generation that ended with the previous process of node 0 had finished a step, which
     * ended the incident before. */
    if (c->worlds_n == 0 && c->generation > 0 && heartbeat->stepped == c->generation) {
        restart_budget_stepped(&c->budget, c->checkpoints, now_ms);
        restart_budget_passed(&c->budget, heartbeat->step);
    }
}

static void apply_heartbeat(struct coordinator *c, struct coordinator_node *node,
                            const struct message_heartbeat *heartbeat, int64_t now_ms)
{
    ASSERT(message_is_same(node->incarnation, heartbeat->incarnation) &&
           !coordinator_is_absent(node));
    if (node->state == CLUSTER_NODE_LEFT)
        return;
    node->last_message_ms = now_ms;
    node->disconnected_ms = node->parted_ms = -1;
    node->data_closed_ms = -1; /* its supervisor lives, so an earlier report proves nothing more */
    node->lag_ms = heartbeat->lag_ms;
    if (is_in_contact(c, node, heartbeat)) {
        if (node->state == CLUSTER_NODE_SUSPECT)
            log_queue_add(&c->log, false, "node %d sends heartbeats again",
                          coordinator_node_id(c, node));
        node->state = CLUSTER_NODE_JOINED;
        node->last_leased_ms = now_ms;
    }
    if (heartbeat->sequence > node->sequence) {
        node->sequence = heartbeat->sequence;
        apply_report(c, node, heartbeat);
        adopt_generation(c, node, heartbeat, now_ms);
        if (heartbeat->stop != 0 && heartbeat->stop != node->stop) {
            node->stop = c->stop = heartbeat->stop;
            bump_revision(c);
            log_queue_add(&c->log, false, "node %d was asked to stop: all nodes stop",
                          coordinator_node_id(c, node));
        }
        /* before a loss, which then begins another incident */
        const bool is_first_step = apply_stepped(c, node, heartbeat, now_ms);
        if (heartbeat->losses > node->losses)
            apply_loss(c, node, heartbeat, now_ms);
        apply_closed(c, node, heartbeat, now_ms);
        apply_ready(c, node, heartbeat, now_ms);
        if (is_first_step)
            include_ready_node(c, now_ms);
        if (heartbeat->is_leaving)
            apply_leave(c, node, heartbeat, now_ms);
    }
    try_start_generation(c, now_ms);
}

/* ---- replies ---- */

static void assert_node_id(const struct coordinator *c, int node_id)
{
    ASSERTF(node_id >= 0 && node_id < c->config.nodes_n, "node %d of %d", node_id,
            c->config.nodes_n);
}

static void reply_init(const struct coordinator *c, int64_t sequence, struct message_reply *reply)
{
    *reply = (struct message_reply){.answer = MESSAGE_ANSWER_MEMBER,
                                    .coordinator = c->config.incarnation,
                                    .revision = c->revision,
                                    .sequence = sequence,
                                    .generation = c->generation,
                                    .stepped = c->has_stepped ? c->world_generation : 0,
                                    .is_running = c->is_running,
                                    .is_lease = true,
                                    .stop = c->stop,
                                    .leader_id = c->config.leader_id,
                                    .counts = c->budget.counts};
}

static void reply_end(struct coordinator *c, struct coordinator_node *node,
                      struct message_reply *reply)
{
    ASSERT(c->is_ended && !c->is_running);
    coordinator_join_refuse(reply, c->end_st);
    text_copy(reply->text, sizeof reply->text, c->why);
    if (node)
        node->is_end_sent = true;
    if (c->is_node0_wrong && node != coordinator_leader(c))
        coordinator_join_wait_for_node0(c, reply);
}

void coordinator_make_reply(struct coordinator *c, int node_id,
                            struct message_incarnation incarnation, int64_t sequence,
                            struct message_reply *reply)
{
    assert_node_id(c, node_id);
    struct coordinator_node *node = &c->nodes[node_id];
    bool is_holder =
        message_is_same(node->incarnation, incarnation) && !coordinator_is_absent(node);
    reply_init(c, sequence, reply);
    if (coordinator_join_is_refused(node, incarnation, reply))
        return;
    if (is_holder && node->state == CLUSTER_NODE_LEFT) {
        reply->is_leave_confirmed = true;
        return;
    }
    if (c->is_ended) {
        reply_end(c, is_holder ? node : NULL, reply);
        return;
    }
    if (!is_holder) {
        reply->answer = MESSAGE_ANSWER_JOIN;
        return;
    }
    coordinator_nodes_refresh_missing(c);
    reply->is_running = c->is_running && node->is_in_world;
    reply->lease_ms = c->config.peer_timeout_ms + coordinator_nodes_grace(c, node);
    if (node->lease_end_ms < node->last_leased_ms + reply->lease_ms)
        node->lease_end_ms = node->last_leased_ms + reply->lease_ms;
    reply->ready = node->ready;
    reply->used = node->used;
    text_copy(reply->text, sizeof reply->text, c->why);
    text_copy(reply->missing, sizeof reply->missing, c->missing);
}

void coordinator_on_heartbeat(struct coordinator *c, const struct message_heartbeat *heartbeat,
                              const struct message_join *join, int64_t now_ms,
                              struct message_reply *reply)
{
    ASSERTF(heartbeat->node_id >= 0, "node %d", heartbeat->node_id);
    reply_init(c, heartbeat->sequence, reply);
    if (join && !coordinator_join_check_settings(c, heartbeat, join, reply))
        return;
    if (heartbeat->node_id >= c->config.nodes_n) {
        coordinator_join_refuse(reply, ST_DISAGREE);
        text_format(reply->text, sizeof reply->text, "NODE_ID %d, but N_NODES is %d on node %d",
                    heartbeat->node_id, c->config.nodes_n, c->config.leader_id);
        return;
    }
    if (coordinator_join_is_refused(&c->nodes[heartbeat->node_id], heartbeat->incarnation, reply))
        return;
    if (c->is_ended &&
        !message_is_same(c->nodes[heartbeat->node_id].incarnation, heartbeat->incarnation)) {
        reply_end(c,
                  heartbeat->node_id == c->config.leader_id ? &c->nodes[heartbeat->node_id] : NULL,
                  reply);
        return;
    }
    if (!coordinator_join_is_member(c, heartbeat, join, now_ms, reply))
        return;
    apply_heartbeat(c, &c->nodes[heartbeat->node_id], heartbeat, now_ms);
    coordinator_make_reply(c, heartbeat->node_id, heartbeat->incarnation, heartbeat->sequence,
                           reply);
    reply->is_lease = is_in_contact(c, &c->nodes[heartbeat->node_id], heartbeat);
}

/* ---- other coordinators ---- */

bool coordinator_wants_view(const struct coordinator *c, int node_id,
                            struct message_incarnation *expected_out)
{
    const struct coordinator_node *node = &c->nodes[node_id];
    const bool is_here = coordinator_is_present(node) && node->disconnected_ms < 0;
    *expected_out = (struct message_incarnation){0};
    if (!c->past || c->is_ended || c->generation == 0)
        return false;
    const struct succession_process *process = succession_find_unknown(
        c->past, node_id, is_here ? node->incarnation : (struct message_incarnation){0});
    if (process)
        *expected_out = process->incarnation;
    return process || !is_here;
}

/* The host of the process says that it has ended. While its last connection is closed for less than
 * MEMBER_DISCONNECTED_MS, the process cannot have joined another coordinator. Nor can another
 * process of a running world, soon after this coordinator has replaced one that ended. */
void coordinator_on_ended(struct coordinator *c, int node_id,
                          struct message_incarnation incarnation, int64_t now_ms)
{
    assert_node_id(c, node_id);
    const struct coordinator_node *node = &c->nodes[node_id];
    if (!c->past)
        return;
    const bool is_own = message_is_same(node->incarnation, incarnation) && node->parted_ms >= 0 &&
                        now_ms - node->parted_ms < COORDINATOR_IN_SIGHT_MS &&
                        node->parted_ms - node->last_leased_ms < c->config.peer_timeout_ms,
               is_early = c->was_in_sight && now_ms - c->opened_ms < COORDINATOR_IN_SIGHT_MS;
    succession_end_process(c->past, incarnation, is_own || is_early);
    try_start_generation(c, now_ms);
}

/* Returns the generation of the newest world if this coordinator has formed it; else 0. */
static int64_t find_own_world(const struct coordinator *c)
{
    const struct succession_world *newest = c->past ? succession_newest(c->past) : NULL;
    const bool is_own = newest && message_is_same(newest->coordinator, c->config.incarnation);
    return is_own ? newest->generation : 0;
}

bool coordinator_yields(const struct coordinator *c, const struct message_view *other)
{
    if (!c->past || !other->is_coordinator || c->is_running || c->is_ended ||
        message_is_same(other->coordinator, c->config.incarnation))
        return false;
    const bool has_past = c->past->n > 0;
    if (other->has_past != has_past)
        return other->has_past;
    const int64_t own = find_own_world(c);
    if (!has_past || other->is_running || other->generation != own)
        return has_past && (other->is_running || other->generation > own);
    return other->leader_id < c->config.leader_id;
}

void coordinator_fill_view(const struct coordinator *c, struct message_view *view)
{
    view->is_coordinator = true;
    view->coordinator = c->config.incarnation;
    view->generation = find_own_world(c);
    view->is_running = c->is_running;
    view->has_past = c->past && c->past->n > 0;
    view->leader_id = c->config.leader_id;
}

/* ---- timeouts and connections ---- */

void coordinator_on_disconnect(struct coordinator *c, int node_id,
                               struct message_incarnation incarnation, int64_t now_ms)
{
    assert_node_id(c, node_id);
    struct coordinator_node *node = &c->nodes[node_id];
    if (!coordinator_is_present(node) || !message_is_same(node->incarnation, incarnation) ||
        node->disconnected_ms >= 0)
        return;
    node->disconnected_ms = node->parted_ms = now_ms;
    if (!coordinator_nodes_is_dead(node))
        return;
    lose_dead(c, node, now_ms);
    try_start_generation(c, now_ms);
}

static void check_silence(struct coordinator *c, struct coordinator_node *node, int64_t now_ms)
{
    char how[96];
    ASSERT(coordinator_is_present(node));
    int64_t silent_ms = now_ms - node->last_leased_ms;
    if (node->disconnected_ms >= 0 &&
        now_ms - node->disconnected_ms >=
            COORDINATOR_DISCONNECTED_MS + coordinator_nodes_lag(c, node)) {
        mark_lost(c, node, "its connection was closed", now_ms);
    } else if (silent_ms >= c->config.peer_timeout_ms &&
               now_ms - node->lease_end_ms >= COORDINATOR_MARGIN_MS) {
        text_format(how, sizeof how, "silent for %.1f s", (double)silent_ms / 1e3);
        mark_lost(c, node, how, now_ms);
    } else if (node->state == CLUSTER_NODE_JOINED && silent_ms >= COORDINATOR_SUSPECT_MS) {
        node->state = CLUSTER_NODE_SUSPECT;
        log_queue_add(&c->log, true,
                      "node %d (%s) has been silent for %.1f s; it counts as lost after %.1f s",
                      coordinator_node_id(c, node), node->host, (double)silent_ms / 1e3,
                      (double)c->config.peer_timeout_ms / 1e3);
    }
}

static void check_join_timeout(struct coordinator *c, int64_t now_ms)
{
    char list[MESSAGE_TEXT_MAX - 256], why[MESSAGE_TEXT_MAX], span[32];
    if (c->is_running || c->is_ended || c->stop != 0 ||
        now_ms - c->waiting_ms < c->config.join_timeout_ms || coordinator_world_is_enough(c))
        return;
    int n = coordinator_nodes_absent(c, list, sizeof list);
    if (n == 0)
        return;
    text_format(why, sizeof why,
                "node%s %s did not join within %s (%d of %d); start the missing nodes, or raise "
                "JOIN_TIMEOUT",
                n > 1 ? "s" : "", list,
                text_format_span(span, sizeof span, c->config.join_timeout_ms), n,
                c->config.nodes_n);
    coordinator_end_job(c, ST_PEER, why);
}

void coordinator_tick(struct coordinator *c, int64_t now_ms)
{
    int64_t lag_ms = loop_lag_tick(&c->lag, now_ms);
    ASSERT(!(c->is_running && c->is_ended) && c->generation >= c->world_generation);
    if (lag_ms > 0) {
        /* This process stalled for lag_ms (an overloaded host, a stopped process). Messages that
         * arrived meanwhile are read after this call, so the stall does not count as silence of the
         * nodes. */
        for (int i = 0; i < c->config.nodes_n; i++) {
            struct coordinator_node *node = &c->nodes[i];
            if (node->last_leased_ms + lag_ms > now_ms)
                continue;
            node->last_leased_ms += lag_ms;
            node->lease_end_ms += lag_ms;
            node->disconnected_ms += node->disconnected_ms >= 0 ? lag_ms : 0;
            /* parted_ms is not moved: a proof must come soon after the event */
        }
    }
    if (lag_ms >= GAP_MS) {
        /* Logs a long stall. If it was as long as a lease, the members have abandoned the running
         * generation, so it ends here, too. */
        char why[128];
        c->waiting_ms += lag_ms;
        const struct restart_loss loss = loss_of_node(c, coordinator_leader(c));
        text_format(why, sizeof why, "node %d itself stalled for %.1f s", c->config.leader_id,
                    (double)lag_ms / 1e3);
        if (c->is_running && lag_ms >= c->config.peer_timeout_ms)
            end_generation(c, &loss, true, why, now_ms);
        else
            log_queue_add(&c->log, true, "%s", why);
    }
    for (int i = 0; i < c->config.nodes_n; i++) {
        if (coordinator_is_present(&c->nodes[i]))
            check_silence(c, &c->nodes[i], now_ms);
    }
    if (c->config.min_nodes < c->config.nodes_n) { /* the wait for a node may have ended */
        include_ready_node(c, now_ms);
        try_start_generation(c, now_ms);
    }
    check_join_timeout(c, now_ms);
    if (c->is_running && restart_budget_refill(&c->budget, c->checkpoints, now_ms))
        log_queue_add(&c->log, false,
                      "no loss for an hour or %d checkpoints: %lld of %d restarts "
                      "are used",
                      RESTART_BUDGET_REFILL_CHECKPOINTS, (long long)restart_budget_used(&c->budget),
                      c->config.max_restarts);
    c->is_missing_known = c->is_missing_known && !c->has_missing_changed;
}

/* Begins with the node that the last call waited for, as coordinator_world_is_ready does. */
bool coordinator_is_end_sent(struct coordinator *c)
{
    for (int i = 0; i < c->config.nodes_n && !c->is_node0_wrong; i++) {
        const struct coordinator_node *node = &c->nodes[c->unended_id];
        if (coordinator_is_present(node) && !(c->is_ended && node->is_end_sent))
            return false;
        c->unended_id = (c->unended_id + 1) % c->config.nodes_n;
    }
    return true;
}
