/* coordinator — the view of the job at its leading node, at first node 0: which nodes are members,
 * which generation runs, and when the job is over. cluster.h is the overview.
 *
 * A pure state machine: (state, event, time) → state. It makes no system calls, and time comes from
 * the caller. Its caller on the event loop is cluster.c with coordinator_server.c; in the tests it
 * is the simulator tests/cluster/sim.h. The caller delivers the members' messages, sends the
 * replies and prints the log lines. One thread uses it.
 *
 * The terms:
 *
 *   member        a process that joined as one node; message_incarnation identifies it
 *   NODE_ID       the number of a node, held by one process until that process is lost or, with
 *                 min_nodes, leaves
 *   readiness     a member's report that all its workers wait for the next generation, with their
 *                 addresses and a number
 *   generation    a numbered period of training with one world, which is the list of all addresses
 *   lease         the time for which a member counts as alive after one of its messages
 *   revision      grows with each change of the state; a member that has an older one gets a reply
 *                 immediately
 *
 * The states of the job:
 *
 *   waiting       until all nodes are members and ready; with min_nodes, until every node that must
 *                 be waited for is ready (coordinator_world.c). Then the next generation begins
 *   running       until a member is lost or reports that it abandoned the generation; with
 *                 min_nodes also until a member leaves, or a node outside the world is to be
 *                 included. Then waiting
 *   ended         all nodes have left, or the job failed; each member gets the reason in a reply
 *
 * The invariants (tests/cluster/test_sim.c checks them):
 *
 *   - Generation numbers only grow.
 *   - A world uses one readiness of each of its nodes. No readiness is used twice.
 *   - A process gets the NODE_ID of another process only after the other process has certainly
 *     abandoned its generation: its connections are closed, or its lease has ended. A member counts
 *     its lease from an earlier moment, so it abandons the generation before this process counts it
 *     as lost.
 *   - A node that returns does not end a generation until the generation has finished a step, or
 *     has run for COORDINATOR_RETURN_MS.
 *   - A silent or disconnected node is lost when its lease ends, or COORDINATOR_DISCONNECTED_MS
 *     after its last connection was closed. It is lost earlier if, and only if, both signs of its
 *     death are present (coordinator_inside.h).
 *   - An incident uses one restart, however many nodes are lost before a generation finishes a
 *     step. Further losses of the incident end the job only if they are repeats
 *     (restart_budget.h).
 *   - If a rank reports only that a peer disappeared, that report is not the cause. The cause is
 *     the worker or node that was lost, if it is found before the next generation begins.
 *
 * A lease lasts peer_timeout_ms plus a grace for stalls, as on an overloaded host. The grace is
 * COORDINATOR_GRACE_FACTOR times the longest recent stalls of this process and of the member, added
 * together, but at most COORDINATOR_GRACE_FACTOR_MAX × peer_timeout_ms. Time in which this process
 * itself stalled does not count as silence of a member.
 *
 * Must not know sockets, clocks or the work of a worker. */
#ifndef CONVOY_CLUSTER_COORDINATOR_H
#define CONVOY_CLUSTER_COORDINATOR_H

#include "cluster/log_queue.h"
#include "cluster/message.h"

/* A member that is silent for this long is suspect: shown and logged, but not lost. */
#define COORDINATOR_SUSPECT_MS 3000
/* When a second process requests a NODE_ID, the holder counts as alive only if one of its messages
 * arrives at least this long after that request. An earlier message may have been in flight. */
#define COORDINATOR_PROOF_MS 500
/* A member that has received no reply for this long (plus its grace) gets a reply, but no lease.
 * Its next message must prove that replies arrive. */
#define COORDINATOR_LEASE_MS 1500
/* Factors of the grace; see "A lease" above. */
#define COORDINATOR_GRACE_FACTOR 3
#define COORDINATOR_GRACE_FACTOR_MAX 1
/* ms between the end of a member's lease and its loss: the member checks the lease only every
 * LOOP_LAG_TICK_MS, and must have abandoned its generation when another one begins. */
#define COORDINATOR_MARGIN_MS 200
/* A member whose last connection was closed is lost after this long, plus the stalls measured
 * lately, unless it connects again. If both signs of its death are present, it is lost immediately
 * (coordinator_inside.h). */
#define COORDINATOR_DISCONNECTED_MS 500
/* A process that is found to have ended this long after its last connection was closed, or soon
 * after this coordinator replaced another one, has not joined another coordinator: it waits for
 * MEMBER_DISCONNECTED_MS before. */
#define COORDINATOR_IN_SIGHT_MS 300
/* A node that returns ends a generation that has not finished a step only after this long. */
#define COORDINATOR_RETURN_MS 10000

struct coordinator;
struct succession;

/* The state that a member hands to the coordinator that it starts, because the former one is
 * lost. */
struct coordinator_inheritance {
    int former_id; /* the node of the former coordinator */
    /* the former coordinator's process, if it has ended while this node was its member; else 0 */
    struct message_incarnation ended;
    const struct succession *past;
    int64_t generation;
    struct restart_counts counts;
    int stop;
};

struct coordinator_config {
    int nodes_n, workers_n; /* workers_n: workers of each node */
    int leader_id;          /* the node of this process */
    /* Another node may become the coordinator: worlds follow the rules of succession.h. */
    bool has_succession;
    struct message_incarnation process; /* this node's, as in its messages */
    const char *control;                /* where this node listens, "host:port"; borrowed */
    /* NULL: the job begins, or this is a new process of node 0. Used during open. */
    const struct coordinator_inheritance *inheritance;
    int min_nodes; /* as in cluster_config */
    int64_t join_timeout_ms, peer_timeout_ms;
    int max_restarts;
    const char *agree_json; /* as in cluster_config; must outlive the coordinator */
    struct message_incarnation incarnation;
    cluster_is_same_data *is_same_data; /* as in cluster_config */
    struct cluster_places places;
};

/* coordinator_open — starts the state of a job in which no node has joined. now_ms: clock_ms. */
struct coordinator *coordinator_open(const struct coordinator_config *config, int64_t now_ms);
void coordinator_close(struct coordinator *c); /* accepts NULL */

/* coordinator_on_heartbeat — applies one message and makes the reply to it. join: the sender's
 * request to become a member; NULL: it is one already. The caller may hold the reply back and send
 * a later one instead (coordinator_make_reply) as long as the revision does not change. */
void coordinator_on_heartbeat(struct coordinator *c, const struct message_heartbeat *heartbeat,
                              const struct message_join *join, int64_t now_ms,
                              struct message_reply *reply);
/* coordinator_on_disconnect — handles the end of this member's last connection. Ignored if another
 * process holds the NODE_ID. */
void coordinator_on_disconnect(struct coordinator *c, int node_id,
                               struct message_incarnation incarnation, int64_t now_ms);
/* coordinator_tick — finds silent nodes and timeouts. Call it every LOOP_LAG_TICK_MS. */
void coordinator_tick(struct coordinator *c, int64_t now_ms);

/* coordinator_revision — returns a number that grows with every change that concerns members. Check
 * it after each call above, and then answer the held requests. */
int64_t coordinator_revision(const struct coordinator *c);
/* coordinator_make_reply — makes the reply to message `sequence` from the current state, for a
 * request that was held. */
void coordinator_make_reply(struct coordinator *c, int node_id,
                            struct message_incarnation incarnation, int64_t sequence,
                            struct message_reply *reply);
/* coordinator_is_end_sent — returns true if no member still has to be sent the end of the job:
 * every member has left or was sent the reason, or the other nodes wait for another node 0
 * (coordinator_join_wait_for_node0). Then this process may stop. */
bool coordinator_is_end_sent(struct coordinator *c);

/* ---- other coordinators (succession.h) ---- */

/* coordinator_wants_view — returns true if the view of this node is to be requested, because the
 * node is no member, or its last connection was closed. *expected_out: its process that may still
 * live; zero: none is known. */
bool coordinator_wants_view(const struct coordinator *c, int node_id,
                            struct message_incarnation *expected_out);
/* coordinator_on_ended — handles the proof that a process of a node has ended: the host refuses
 * connections at the address where it listened, or another process listens there. */
void coordinator_on_ended(struct coordinator *c, int node_id,
                          struct message_incarnation incarnation, int64_t now_ms);
/* coordinator_yields — returns true if this coordinator must end, because the job has another one:
 * the other one's generation runs, or only the other one has worlds of the job. If neither runs,
 * the coordinator that has formed the later world stays, because half of that world is enough for
 * it; if none has, the one on the lower node. The caller then closes this one. */
bool coordinator_yields(const struct coordinator *c, const struct message_view *other);
/* coordinator_fill_view — sets the fields of a view that concern the coordinator. */
void coordinator_fill_view(const struct coordinator *c, struct message_view *view);
/* coordinator_nodes_control — writes where this member listens, "host:port"; "": it does not. */
void coordinator_nodes_control(const struct coordinator *c, int node_id, char *out, size_t cap);

/* coordinator_world — writes the world of this generation to *out; the caller adds the secret.
 * Returns false if the generation is not running, or the sender is not a member in its world. */
bool coordinator_world(const struct coordinator *c, int node_id,
                       struct message_incarnation incarnation, int64_t generation,
                       struct cluster_world *out);
/* coordinator_cause — returns, as text, the loss that ended the last generation; "": no loss ended
 * it, or none is found yet. *rank_out: the lost rank, or the first rank of a lost node. */
const char *coordinator_cause(const struct coordinator *c, int *rank_out);
/* coordinator_checkpoints — sets the number of checkpoints that the job has made, a count that only
 * grows. */
void coordinator_checkpoints(struct coordinator *c, int64_t n);
/* coordinator_nodes_set_address — sets the IP address that a node's messages come from, and the
 * address of node 0 at which they arrive: for coordinator_nodes. */
void coordinator_nodes_set_address(struct coordinator *c, int node_id,
                                   struct message_incarnation incarnation, const char *address,
                                   const char *reached);
/* coordinator_nodes — returns nodes_n entries, for the status. Valid until the next call that
 * changes the state. */
const struct cluster_node *coordinator_nodes(struct coordinator *c, int64_t now_ms);
/* coordinator_log — returns the queue of lines, which the caller empties and prints. */
struct log_queue *coordinator_log(struct coordinator *c);

#endif
