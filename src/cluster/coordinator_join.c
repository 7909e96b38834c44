/* coordinator_join — which process joins as which node, and whether a node that returns has the
 * data of the job; see coordinator_inside.h. Must not know sockets, or how data are compared:
 * config.is_same_data does that. */
#include "base/assert.h"
#include "cluster/coordinator_inside.h"
#include "cluster/node_diff.h"

void coordinator_join_refuse(struct message_reply *reply, enum status st)
{
    reply->answer = MESSAGE_ANSWER_END;
    reply->st = st;
}

bool coordinator_join_is_refused(const struct coordinator_node *node,
                                 struct message_incarnation incarnation,
                                 struct message_reply *reply)
{
    if (!message_is_same(node->refused, incarnation))
        return false;
    coordinator_join_refuse(reply, ST_DISAGREE);
    text_copy(reply->text, sizeof reply->text, node->why);
    return true;
}

void coordinator_join_wait_for_node0(const struct coordinator *c, struct message_reply *reply)
{
    char why[MESSAGE_TEXT_MAX - 64];
    reply->answer = MESSAGE_ANSWER_WAIT;
    text_copy(why, sizeof why, c->why);
    text_format(reply->text, sizeof reply->text, "node 0 with this job's settings (%s)", why);
}

bool coordinator_join_check_settings(struct coordinator *c,
                                     const struct message_heartbeat *heartbeat,
                                     const struct message_join *join, struct message_reply *reply)
{
    const struct node_diff_side mine = {
        0, "", MESSAGE_PROTOCOL, c->config.nodes_n, c->config.workers_n, c->config.agree_json};
    const struct node_diff_side theirs = {heartbeat->node_id, join->host,      join->protocol,
                                          join->nodes_n,      join->workers_n, join->agree_json};
    char why[MESSAGE_TEXT_MAX];
    if (node_diff_is_same(&mine, &theirs, why, sizeof why))
        return true;
    if (c->generation == 0) {
        c->is_node0_wrong = c->is_node0_wrong || (!c->is_ended && heartbeat->generation > 0);
        coordinator_end_job(c, ST_DISAGREE, why);
    } else {
        log_queue_add(&c->log, true, "refused: %s", why);
    }
    coordinator_join_refuse(reply, ST_DISAGREE);
    text_copy(reply->text, sizeof reply->text, why);
    if (c->is_node0_wrong)
        coordinator_join_wait_for_node0(c, reply);
    return false;
}

/* Learns from a member in which worlds it may have trained. A new process of node 0 listens where
 * the former one did, so that one has ended. */
static void learn_past(struct coordinator *c, const struct message_join *join)
{
    if (!c->past)
        return;
    if (join->past)
        succession_merge(c->past, join->past);
    if (join->ended.hi != 0 || join->ended.lo != 0)
        succession_end_process(c->past, join->ended, true);
    for (const struct succession_process *old;
         c->config.leader_id == 0 &&
         (old = succession_find_unknown(c->past, 0, c->config.process)) != NULL;)
        succession_end_process(c->past, old->incarnation, false);
}

static void add_member(struct coordinator *c, struct coordinator_node *node,
                       const struct message_heartbeat *heartbeat, const struct message_join *join,
                       int64_t now_ms)
{
    bool is_back = node->state == CLUSTER_NODE_LOST || node->has_departed;
    ASSERT(!message_is_same(node->refused, heartbeat->incarnation));
    const bool is_same = message_is_same(node->incarnation, heartbeat->incarnation),
               was_before = message_is_same(node->before, heartbeat->incarnation);
    const int64_t used = is_same ? node->used : was_before ? node->before_used : 0;
    *node = (struct coordinator_node){.state = CLUSTER_NODE_JOINED,
                                      .incarnation = heartbeat->incarnation,
                                      .before = is_same ? node->before : node->incarnation,
                                      .before_used = is_same ? node->before_used : node->used,
                                      .pid = join->pid,
                                      .control_port = join->control_port,
                                      .used = used,
                                      .generation = heartbeat->generation,
                                      .losses = heartbeat->losses,
                                      .lost = heartbeat->lost,
                                      .closed = heartbeat->closed,
                                      .step = heartbeat->step,
                                      .is_returning =
                                          is_back || heartbeat->generation > 0 || c->former_id >= 0,
                                      .disconnected_ms = -1,
                                      .parted_ms = -1,
                                      .data_closed_ms = -1};
    node->sequence = heartbeat->sequence - 1; /* so that apply_heartbeat accepts this message */
    node->joined_ms = node->last_leased_ms = node->last_message_ms = now_ms;
    text_copy(node->host, sizeof node->host, join->host);
    c->has_missing_changed = true;
    log_queue_add(&c->log, false, "node %d (%s, pid %lld) %s", coordinator_node_id(c, node),
                  node->host, (long long)node->pid, is_back ? "is back" : "joined");
}

/* Refuses the sender because another process holds the NODE_ID and is alive. The sender was a
 * member that was cut off, or it is a second process with the same NODE_ID. */
static void refuse_second(const struct coordinator_node *node,
                          const struct message_heartbeat *heartbeat, struct message_reply *reply)
{
    bool was_member = heartbeat->generation > 0;
    ASSERT(!message_is_same(node->incarnation, heartbeat->incarnation));
    coordinator_join_refuse(reply, was_member ? ST_PEER : ST_DISAGREE);
    text_format(reply->text, sizeof reply->text, "%sNODE_ID %d is held by host %s pid %lld%s",
                was_member ? "this node was away and its place was taken: " : "",
                heartbeat->node_id, node->host, (long long)node->pid,
                was_member ? ""
                           : ", which is alive; give every node its own NODE_ID, and every job its "
                             "own MASTER_PORT");
}

/* Returns true if this process may use the NODE_ID. If another one holds it, the sender waits until
 * the holder sends a message (then it is alive, and the sender is refused) or is lost. */
static bool is_vacant(struct coordinator *c, struct coordinator_node *node,
                      const struct message_heartbeat *heartbeat, int64_t now_ms,
                      struct message_reply *reply)
{
    if (coordinator_is_absent(node) || node->has_departed)
        return true;
    if (coordinator_is_present(node) && c->worlds_n == 0 &&
        heartbeat->generation > node->generation)
        return true; /* node 0 is new; an earlier process of that node joined first */
    reply->answer = MESSAGE_ANSWER_WAIT;
    text_format(reply->text, sizeof reply->text, "NODE_ID %d is held by host %s pid %lld",
                heartbeat->node_id, node->host, (long long)node->pid);
    if (node->state == CLUSTER_NODE_LEFT)
        return false;
    if (!message_is_same(node->newcomer, heartbeat->incarnation)) {
        node->newcomer = heartbeat->incarnation;
        node->newcomer_ms = now_ms;
    } else if (node->last_message_ms - node->newcomer_ms >= COORDINATOR_PROOF_MS &&
               node->disconnected_ms < 0) {
        refuse_second(node, heartbeat, reply);
        log_queue_add(&c->log, true,
                      "refused a second node %d: its place is held by host %s pid %lld",
                      heartbeat->node_id, node->host, (long long)node->pid);
    }
    return false;
}

bool coordinator_join_is_member(struct coordinator *c, const struct message_heartbeat *heartbeat,
                                const struct message_join *join, int64_t now_ms,
                                struct message_reply *reply)
{
    struct coordinator_node *node = &c->nodes[heartbeat->node_id];
    bool is_holder = message_is_same(node->incarnation, heartbeat->incarnation);
    if (is_holder && !coordinator_is_absent(node)) {
        if (join) /* it may have been a member of another coordinator since */
            learn_past(c, join);
        return true;
    }
    /* from before this process was declared lost */
    bool is_old = is_holder && heartbeat->sequence <= node->sequence;
    if (!join ? coordinator_is_absent(node) : is_old) {
        reply->answer = MESSAGE_ANSWER_JOIN;
        return false;
    }
    if (!join) {
        refuse_second(node, heartbeat, reply);
        return false;
    }
    if (!is_vacant(c, node, heartbeat, now_ms, reply))
        return false;
    add_member(c, node, heartbeat, join, now_ms);
    learn_past(c, join);
    return true;
}

/* ---- the data of a node that returns ---- */

static const struct cluster_address *address_of(const struct coordinator *c, int node_id)
{
    return &c->addresses[(size_t)node_id * (size_t)c->config.workers_n];
}

/* Returns true for a node that has trained already, and is ready: a new process of node 0 compares
 * other nodes with it, since it has not seen the first world. */
static bool is_reference(const struct coordinator_node *node)
{
    return node->generation > 0 && node->ready > node->used;
}

/* Returns the address whose data this node's must equal: the address of the first world's first
 * node (for that node: of the second one), or the reference, with which only nodes that have not
 * trained yet are compared. NULL: nothing yet. */
static const struct cluster_address *
find_reference(const struct coordinator *c, const struct coordinator_node *node, int *node_out)
{
    if (c->worlds_n > 0) {
        const int at = c->first_ids[0] == coordinator_node_id(c, node);
        *node_out = c->first_ids[at];
        return &c->first[at];
    }
    *node_out = c->reference_id;
    bool is_compared = node->generation == 0 && is_reference(&c->nodes[c->reference_id]);
    return is_compared ? address_of(c, c->reference_id) : NULL;
}

static bool refuse_other_data(struct coordinator *c, struct coordinator_node *node)
{
    int node_id = coordinator_node_id(c, node), right_id;
    ASSERT(coordinator_is_present(node) && node->ready > node->used);
    const struct cluster_address *right = find_reference(c, node, &right_id);
    if (!right || c->config.is_same_data(right, right_id, address_of(c, node_id), node_id,
                                         node->why, sizeof node->why))
        return false;
    node->refused = node->incarnation;
    node->state = CLUSTER_NODE_LOST;
    node->ready = 0;
    node->disconnected_ms = node->data_closed_ms = -1;
    log_queue_add(&c->log, true,
                  "refused node %d (%s, pid %lld): %s; the others wait for one with the right data",
                  node_id, node->host, (long long)node->pid, node->why);
    return true;
}

bool coordinator_join_check_data(struct coordinator *c, struct coordinator_node *node)
{
    if (!c->config.is_same_data || c->config.nodes_n == 1 || c->generation == 0 ||
        (c->is_running && node->is_in_world) || c->is_ended)
        return false;
    if (c->worlds_n > 0 || !is_reference(node) || is_reference(&c->nodes[c->reference_id]))
        return refuse_other_data(c, node);
    /* The first reference has arrived: compare the nodes that were ready before it. */
    bool is_any = false;
    c->reference_id = coordinator_node_id(c, node);
    for (int i = 0; i < c->config.nodes_n; i++)
        if (coordinator_is_present(&c->nodes[i]) && c->nodes[i].ready > c->nodes[i].used)
            is_any = refuse_other_data(c, &c->nodes[i]) || is_any;
    return is_any;
}
