/* meet — which nodes take part: this node's side of the job's membership, on the supervisor's event
 * loop.
 *
 * Node 0's supervisor holds the coordinator (coordinator.h: a pure state machine) and listens on
 * MASTER_ADDR:MASTER_PORT; every node, 0 included, is a member of it (member.h: pure too). With one
 * node there is no network: the same machines talk by calls. The job lives in generations:
 *
 *   join (every node known and admitted, all agree) → ready (each node's workers have packed their
 *   comm addresses) → world g (everybody gets all addresses) → … → abort g (someone was lost) →
 *   ready again → world g+1
 *
 * A generation fences: what carries an older number is refused. Only this room declares a node
 * dead.
 *
 * On the wire: HTTPS with TLS 1.3 and a pre-shared key from JOB_TOKEN (HKDF-SHA256), JSON bodies,
 * all readers pure functions of (bytes, size). A member always keeps one request open (a long poll
 * of at most a second), its heartbeat, and by which the coordinator tells it at once what has
 * changed. Must not know workers' work, models, comm or the board. */
#ifndef CONVOY_CLUSTER_CLUSTER_H
#define CONVOY_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rank_stats.h"
#include "base/status.h"
#include "dataset_share/file_list.h"

#define CLUSTER_NODES_MAX 4096
#define CLUSTER_WORKERS_MAX 64
#define CLUSTER_SECRET_BYTES 16
#define CLUSTER_ADDRESS_MAX 2048 /* bytes; what it means is the workers' affair */

struct event_base;
struct cluster;

struct cluster_address {
    int64_t bytes;
    uint8_t data[CLUSTER_ADDRESS_MAX];
};

/* All ranks of a generation, node by node; valid during the call it is handed to. */
struct cluster_world {
    int64_t generation;
    int ranks_n;
    const struct cluster_address *addresses; /* ranks_n */
    /* by what they know each other; told to members only, never logged */
    uint8_t secret[CLUSTER_SECRET_BYTES];
};

/* What this node says of one of its workers with every heartbeat: also how a stuck one is found. */
struct cluster_rank {
    int rank;
    char state[16]; /* contract §4: the phase */
    char device[64];
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
    char call[24]; /* the collective it is in; "" none */
    int64_t call_sequence, call_age_ms;
};

enum cluster_node_state {
    CLUSTER_NODE_AWAITED,
    CLUSTER_NODE_JOINED,
    CLUSTER_NODE_SUSPECT,
    CLUSTER_NODE_LOST,
    CLUSTER_NODE_LEFT
};
struct cluster_node {
    int node_id;
    char address[64]; /* as seen by node 0 */
    enum cluster_node_state state;
    double heartbeat_age_seconds; /* NAN: none yet */
    int ranks_n;
    const struct cluster_rank *ranks;
};

/* Do these two workers, of these nodes, have the same data? false: how they differ, for people.
 * Pure. */
typedef bool cluster_is_same_data(const struct cluster_address *one, int one_node,
                                  const struct cluster_address *other, int other_node, char *out,
                                  size_t cap);

struct cluster_config {
    int node_id, nodes_n, workers_n;
    const char *master_addr;
    int master_port;
    const char *token; /* JOB_TOKEN; "none": no secret, said aloud */
    int64_t join_timeout_ms, peer_timeout_ms;
    int max_restarts;
    /* one JSON object, flat: what must be the same on every node, name → value as text (settings
     * marked so, version, fingerprints of data and model, kind of device, library versions). A
     * difference names key, both values, node. */
    const char *agree_json;
    /* whether a node that comes back fits those that trained; NULL: any does */
    cluster_is_same_data *is_same_data;
    struct event_base *loop;
    /* called from the loop */
    void (*on_world)(void *arg, const struct cluster_world *world);
    /* Workers return to joining; why names node and rank. May come for a world that never reached
     * this node (its readiness is used up then too). In both cases cluster_ready is to be called
     * again, with addresses packed anew. */
    void (*on_abort)(void *arg, int64_t generation, const char *why);
    void (*on_stop)(void *arg, int request); /* another node was asked to stop: so are all */
    /* Refused, late, no restart left …: the sentence is in status_message. Also follows
     * cluster_leave, with its st, when all who must know have been told. Comes once, last of all;
     * cluster_close may be called from it. */
    void (*on_end)(void *arg, enum status st);
    void *arg;
};

/* node 0: listens, else ST_… with why */
enum status cluster_open(const struct cluster_config *config, struct cluster **out);
void cluster_close(struct cluster *cluster); /* accepts NULL */

/* What the supervisor tells. */
/* for the next generation */
void cluster_ready(struct cluster *cluster, const struct cluster_address *mine, int workers_n);
/* cluster_worker_lost — a worker ended, or its comm failed: on_abort follows, or on_end with st
 * when no restart is left. generation: the world it was in, 0 when it was not in one (cluster_ready
 * is taken back then, and no on_abort follows). */
void cluster_worker_lost(struct cluster *cluster, int64_t generation, enum status st,
                         const char *why);
void cluster_report(struct cluster *cluster, const struct cluster_rank *ranks,
                    int ranks_n);                        /* goes with the next heartbeat */
void cluster_stop(struct cluster *cluster, int request); /* asked to stop here: tells all */
/* cluster_leave — this node is done (ST_OK), or ends and why. on_end follows: node 0 waits for the
 * others to leave too. An error (not a stop that was told to all) ends the job on every node, with
 * this reason and node. */
void cluster_leave(struct cluster *cluster, enum status st, const char *message);

/* cluster_offer_data — node 0: the data it can hand out to nodes that have none, as file_list_write
 * wrote them. What cannot be read is told in the log, and, where nothing stands yet, to those who
 * ask. */
void cluster_offer_data(struct cluster *cluster, enum file_list_kind kind, const char *bytes,
                        size_t n);
struct https_server_strangers;
/* cluster_strangers — node 0: its connections without the job's key. false: this is not node 0. */
bool cluster_strangers(const struct cluster *cluster, struct https_server_strangers *out);

struct psk;
/* cluster_psk — the key of this job, for a process of this node that asks node 0 itself
 * (bring.h). */
void cluster_psk(const struct cluster *cluster, struct psk *out);

/* cluster_nodes — node 0: every node; others: themselves and node 0. Valid until the loop turns. */
int cluster_nodes(struct cluster *cluster, const struct cluster_node **out);
int64_t cluster_generation(const struct cluster *cluster); /* 0: none yet */
int64_t cluster_restarts(const struct cluster *cluster);   /* generations begun anew */
const char *
cluster_missing(const struct cluster *cluster); /* joining: who is awaited, for people; "" */

/* cluster_straggler — node 0, with a world: whom the others have waited for for 3 s or longer, or
 * that nothing has arrived for 20 s, for people; "" nobody.
 * Valid until the loop turns. */
const char *cluster_straggler(struct cluster *cluster);

#endif
