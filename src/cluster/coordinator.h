/* coordinator — node 0's view of the job: who is here, which generation stands, when it is over.
 *
 * A pure state machine: (state, event, now) → state, and what each member is to be told is a
 * function of the state. No system calls, no clock but the caller's. The driver (meet.c, or the
 * simulator of the tests) carries messages and answers held requests when coordinator_revision has
 * changed.
 *
 *   gathering: every node is joined and ready → world g stands (running) → a node is lost, or gives
 *   g up → gathering … → over: all have left, or the job ended with a reason that all are told.
 *
 * Safety: generations only grow; a world needs of every node a readiness that no world has used; a
 * place is given to another process only after its holder has been silent for as long as its lease,
 * by which time the holder has given up by itself (member.h counts its silence from when it asked),
 * or after its connection ended.
 *
 * A lease is peer_timeout_ms, and longer where this process or that member lately stood still, as
 * on a host with too much to do: by COORDINATOR_GRACE_FACTOR times that,
 * COORDINATOR_GRACE_FACTOR_MAX × peer_timeout_ms at most. What this process slept through counts as
 * no node's silence. Must not know sockets. */
#ifndef CONVOY_CLUSTER_COORDINATOR_H
#define CONVOY_CLUSTER_COORDINATOR_H

#include "cluster/log_queue.h"
#include "cluster/message.h"

#define COORDINATOR_SUSPECT_MS 3000
/* A holder heard so long after another wanted its place lives: it was no message from before that
 * came late. */
#define COORDINATOR_PROOF_MS 500
/* Who has not heard us for so long gets an answer, but no lease: it must hear that answer and say
 * so. */
#define COORDINATOR_LEASE_MS 1500
#define COORDINATOR_GRACE_FACTOR 3
#define COORDINATOR_GRACE_FACTOR_MAX 1
#define COORDINATOR_DISCONNECTED_MS 500 /* a connection that ended may be made again for so long */

struct coordinator;
struct coordinator_config {
    int nodes_n, workers_n;
    int64_t join_timeout_ms, peer_timeout_ms;
    int max_restarts;
    const char *agree_json; /* what all must have; borrowed for life */
    struct message_incarnation incarnation;
    cluster_is_same_data *is_same_data; /* as in cluster_config */
};

enum status coordinator_open(const struct coordinator_config *config, int64_t now_ms,
                             struct coordinator **out);
void coordinator_close(struct coordinator *c); /* accepts NULL */

/* coordinator_on_heartbeat — a message; hello is NULL but for the first. Answers at once into
 * *told. */
void coordinator_on_heartbeat(struct coordinator *c, const struct message_heartbeat *heartbeat,
                              const struct message_join *join, int64_t now_ms,
                              struct message_reply *reply);
/* coordinator_on_disconnect — the last connection of this instance ended. */
void coordinator_on_disconnect(struct coordinator *c, int node_id,
                               struct message_incarnation incarnation, int64_t now_ms);
void coordinator_tick(struct coordinator *c, int64_t now_ms); /* several times a second */

int64_t coordinator_revision(const struct coordinator *c);
/* coordinator_make_reply — the state again, for a request that was held: as
 * coordinator_on_heartbeat's answer to `sequence`. */
void coordinator_make_reply(struct coordinator *c, int node_id,
                            struct message_incarnation incarnation, int64_t sequence,
                            struct message_reply *reply);
/* coordinator_is_end_known — over, and nobody is left who does not know. */
bool coordinator_is_end_known(const struct coordinator *c);

/* coordinator_world — the addresses of the generation that stands; false: another generation, or
 * not a member. */
bool coordinator_world(const struct coordinator *c, int node_id,
                       struct message_incarnation incarnation, int64_t generation,
                       struct cluster_world *out);
/* coordinator_nodes_set_address — the address a node's messages come from, for the roster. */
void coordinator_nodes_set_address(struct coordinator *c, int node_id,
                                   struct message_incarnation incarnation, const char *address);
/* coordinator_nodes — nodes_n rows; valid until the next call that changes anything. */
const struct cluster_node *coordinator_nodes(struct coordinator *c, int64_t now_ms);
/* coordinator_log — lines for the log, for the driver to take out. */
struct log_queue *coordinator_log(struct coordinator *c);

#endif
