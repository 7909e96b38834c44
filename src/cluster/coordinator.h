/* coordinator — node 0's view of the job: which nodes are members, which generation runs, and when
 * the job is over.
 *
 * A pure state machine: (state, event, time) → state. A reply to a member is a function of the
 * state (coordinator_make_reply). There are no system calls; time comes from the caller. The driver
 * is coordinator_server, or the simulator in tests/cluster/sim.h. It delivers messages, and answers
 * the requests that it holds when coordinator_revision has changed.
 *
 *   gathering → running → gathering → … → ended
 *
 *   gathering   until every node has joined and is ready
 *   running     generation g has a world; it ends when a node is lost, or when a member gives it up
 *   ended       all nodes have left, or the job ended with a reason; every member is sent it
 *
 * What must hold (tests/cluster/test_sim.c checks it):
 *
 *   - Generation numbers only grow.
 *   - A world takes one readiness of every node; no readiness is used twice.
 *   - A process takes over the place of a node only after the former process has given up. That is
 *     so when the former process's lease has ended (member.h counts it from an earlier moment), or
 *     when its connections were closed.
 *
 * A lease is peer_timeout_ms. It is longer where this process or the member stalled lately, as on
 * an overloaded host: by COORDINATOR_GRACE_FACTOR times the stall, and by
 * COORDINATOR_GRACE_FACTOR_MAX × peer_timeout_ms at most. Time in which this process itself stalled
 * does not count as silence of a node.
 *
 * Must not know sockets. */
#ifndef CONVOY_CLUSTER_COORDINATOR_H
#define CONVOY_CLUSTER_COORDINATOR_H

#include "cluster/log_queue.h"
#include "cluster/message.h"

#define COORDINATOR_SUSPECT_MS 3000
/* Two processes want the place of one node. The holder is alive if it sends a message so long after
 * the other one's first: a shorter time could be a message that was delayed. */
#define COORDINATOR_PROOF_MS 500
/* A member that has had no reply for so long gets one, but no lease. It must show by its next
 * message that the reply has arrived. */
#define COORDINATOR_LEASE_MS 1500
#define COORDINATOR_GRACE_FACTOR 3
#define COORDINATOR_GRACE_FACTOR_MAX 1
#define COORDINATOR_DISCONNECTED_MS 500 /* a member may take so long to connect again */

struct coordinator;
struct coordinator_config {
    int nodes_n, workers_n; /* workers_n: of each node */
    int64_t join_timeout_ms, peer_timeout_ms;
    int max_restarts;
    const char *agree_json; /* as in cluster_config; must outlive the coordinator */
    struct message_incarnation incarnation;
    cluster_is_same_data *is_same_data; /* as in cluster_config */
};

enum status coordinator_open(const struct coordinator_config *config, int64_t now_ms,
                             struct coordinator **out);
void coordinator_close(struct coordinator *c); /* accepts NULL */

/* coordinator_on_heartbeat — applies a member's message and makes the reply. join: what the member
 * adds to ask for admission, NULL otherwise. */
void coordinator_on_heartbeat(struct coordinator *c, const struct message_heartbeat *heartbeat,
                              const struct message_join *join, int64_t now_ms,
                              struct message_reply *reply);
/* coordinator_on_disconnect — the last connection of this incarnation was closed. */
void coordinator_on_disconnect(struct coordinator *c, int node_id,
                               struct message_incarnation incarnation, int64_t now_ms);
/* coordinator_tick — call it every LOOP_LAG_TICK_MS: it finds silent nodes and timeouts. */
void coordinator_tick(struct coordinator *c, int64_t now_ms);

/* coordinator_revision — grows with every change that members must know. */
int64_t coordinator_revision(const struct coordinator *c);
/* coordinator_make_reply — the state now, as the reply to message `sequence`, for a request that
 * was held. */
void coordinator_make_reply(struct coordinator *c, int node_id,
                            struct message_incarnation incarnation, int64_t sequence,
                            struct message_reply *reply);
/* coordinator_is_end_known — no member is left that has not been sent the end of the job. */
bool coordinator_is_end_known(const struct coordinator *c);

/* coordinator_world — the world that runs, without its secret. false: another generation runs, or
 * the caller is no member. */
bool coordinator_world(const struct coordinator *c, int node_id,
                       struct message_incarnation incarnation, int64_t generation,
                       struct cluster_world *out);
/* coordinator_nodes_set_address — the IP address that a node's messages come from, for the
 * status. */
void coordinator_nodes_set_address(struct coordinator *c, int node_id,
                                   struct message_incarnation incarnation, const char *address);
/* coordinator_nodes — nodes_n entries, for the status. Valid until the next call that changes the
 * state. */
const struct cluster_node *coordinator_nodes(struct coordinator *c, int64_t now_ms);
/* coordinator_log — lines that the driver takes out and prints. */
struct log_queue *coordinator_log(struct coordinator *c);

#endif
