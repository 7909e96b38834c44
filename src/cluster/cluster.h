/* cluster — the nodes of the job: membership, heartbeats, generations. Only this module declares a
 * node dead. It runs on the supervisor's event loop.
 *
 * Node 0 holds the coordinator (coordinator.h) and listens on MASTER_ADDR:MASTER_PORT. Every node,
 * node 0 included, is a member (member.h). Both are pure state machines; this file connects them to
 * timers and sockets. With one node there is no network: the machines exchange messages by calls.
 *
 * The job runs in generations. In generation g all ranks of all nodes form one world, in the sense
 * of torch.distributed: a list of ranks with an address each.
 *
 *   join    every node joins; all agree on settings, version, model and data
 *   ready   each node has sent the comm addresses of its workers
 *   world   generation g begins: every node receives all addresses, the workers connect and train
 *   abort   generation g ends because a node or a worker was lost; all get ready again for g + 1
 *
 * A message or connection of an older generation is refused, so generations never mix.
 *
 * The death of a node, from the loss to the next step:
 *
 *    1. Each member keeps one heartbeat request open at node 0, a long poll of at most one second.
 *    2. A node dies: its connection closes, or its heartbeats stop. After 3 s of silence it is
 *       suspect.
 *    3. The coordinator declares the node lost immediately if its connection was closed and a rank
 *       of another node reports that a data connection to it was closed. Otherwise it does so when
 *       the connection stays closed for COORDINATOR_DISCONNECTED_MS, or when its lease ends
 *       (PEER_TIMEOUT, longer if a host was seen to stall).
 *    4. The coordinator ends generation g and counts one restart of the budget (restart_budget.h);
 *       losses until the next finished step belong to the same incident. If the first report of a
 *       loss comes from a rank whose peer disappeared, the coordinator waits for the cause until
 *       all nodes are ready again. A spent budget, or JOIN_TIMEOUT without the node, ends the job
 *       on every node with the reason.
 *    5. coordinator_server answers all open heartbeats immediately; each member returns the action
 *       "abort g".
 *    6. on_abort: node/cluster_bridge marks g as aborted on the board. The workers' collectives
 *       fail, and the workers return to joining (node/generations). They stay alive; node/workers
 *       restarts only a worker process that ended, and reports that loss by cluster_worker_lost.
 *    7. A node that is cut off from node 0 aborts g by itself, before node 0 declares it lost: both
 *       sides count the same lease, the member from the earlier moment. Two worlds never run at the
 *       same time.
 *    8. The scheduler (Slurm, Kubernetes, a person) starts the dead node's process again, not
 *       Convoy. It joins with a new incarnation, a random number of 128 bits for one start of the
 *       process.
 *    9. When all nodes are ready again, the coordinator makes generation g + 1. With min_nodes it
 *       does so without the lost nodes, if enough are left. A node that is back and ready ends that
 *       generation once it has finished a step, and is in the next one.
 *   10. The workers connect with the new addresses, load the last checkpoint and continue training.
 *
 * Node 0 is no exception: members that lose it abort g, and join its next process. They send it the
 * highest generation and the restarts so far. With has_succession they search for another
 * coordinator instead. The first node that has lost it, in the order of NODE_ID, starts one.
 *
 * On the wire: HTTPS with TLS 1.3 and a pre-shared key derived from JOB_TOKEN (net/psk.h), JSON
 * bodies (message.h). The files, from the outside in:
 *
 *   cluster               this interface: timers, and the actions of the machines
 *   coordinator_server    node 0: receives requests and replies; holds a heartbeat until there is
 *                         news
 *   member_client         other nodes: heartbeats and world requests to the coordinator
 *   view_client           the coordinator's requests to nodes that are no members
 *   coordinator, member   the two state machines
 *     coordinator_join     which process becomes a member; whether its data is the job's
 *     coordinator_world         which nodes a generation has, and when it may begin
 *     coordinator_nodes         each node: grace of its lease, signs of its death, the nodes that
 *                               the job waits for, rows of the status page
 *   succession            which nodes may train after the coordinator was lost
 *   message               the messages as structs, and their JSON
 *   node_diff             the settings in which two nodes differ, as text
 *   restart_budget        whether the job may start again
 *   straggler             the ranks that the others wait for
 *   log_queue             log lines of the state machines
 *
 * Must not know models, comm, the board or how workers are started. */
#ifndef CONVOY_CLUSTER_CLUSTER_H
#define CONVOY_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine_stats.h"
#include "base/rank_stats.h"
#include "base/status.h"

#define CLUSTER_NODES_MAX 4096
#define CLUSTER_WORKERS_MAX 64 /* most workers of one node */
#define CLUSTER_SECRET_BYTES 16
#define CLUSTER_ADDRESS_MAX 2048 /* bytes; only the workers interpret them */
/* Limits of a job whose nodes replace a lost coordinator (succession.h). */
#define SUCCESSION_NODES_MAX 256
#define SUCCESSION_WORLDS_MAX 8
#define CLUSTER_CONTROL_MAX 288 /* bytes of "host:port" of a supervisor */
#define CLUSTER_STOP_MAX 4      /* the highest request to stop; the caller defines the requests */

struct event_base;
struct https_server_request;
struct https_server_strangers;
struct psk;
struct cluster;
struct succession_world;

/* The address that one worker's comm publishes so that others can connect to it. */
struct cluster_address {
    int64_t bytes;
    uint8_t data[CLUSTER_ADDRESS_MAX];
};

/* All ranks of a generation, node by node. Valid during the call that passes it. With
 * cluster_config.min_nodes it may have only some of the nodes: the ranks of node_ids[0] are the
 * first ones. */
struct cluster_world {
    int64_t generation;
    int ranks_n, nodes_n;
    const struct cluster_address *addresses; /* ranks_n */
    const int *node_ids;                     /* nodes_n, ascending */
    /* The processes of the world; NULL: no other node may become the coordinator. Only for this
     * module. */
    const struct succession_world *past;
    const char (*controls)[CLUSTER_CONTROL_MAX]; /* nodes_n: where they listen, "host:port" */
    /* The workers' connections prove possession of it to each other. Sent to members only, never
     * logged. */
    uint8_t secret[CLUSTER_SECRET_BYTES];
};

/* State of one worker. It goes with every heartbeat; the status page and the search for stragglers
 * use it. */
struct cluster_rank {
    int rank;
    char state[16]; /* its phase, in the board's words */
    char device[64];
#define RANK_STAT(NAME, field, kind, ...) RANK_STATS_FIELD_##kind(field)
#include "base/rank_stats.def"
    char call[24]; /* the collective in progress; "": none */
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
    char address[64]; /* the node's address from node 0's view */
    /* on node 0: the address at which this node has reached node 0; "": unknown */
    char reached[64];
    enum cluster_node_state state;
    bool is_outside; /* the last generation does not have it, so its ranks have no numbers */
    double heartbeat_age_seconds; /* NAN: none yet */
    struct machine_stats machine; /* last reported values */
    int ranks_n;
    const struct cluster_rank *ranks;
};

/* cluster_is_same_data — returns true if two workers of these nodes have the same data. If not, the
 * difference is in out, as text for the log. Pure. */
typedef bool cluster_is_same_data(const struct cluster_address *one, int one_node,
                                  const struct cluster_address *other, int other_node, char *out,
                                  size_t cap);

/* The arrangement of the ranks, for texts. Zero-initialised: unknown. */
struct cluster_places {
    /* describe — writes the place that `ranks` ranks from `rank` on have in common ("stage 1"), or
     * "". */
    void (*describe)(const void *arg, int rank, int ranks, char *out, size_t cap);
    const void *arg;
    /* true: ranks make different numbers of collectives and messages, so the numbers of their calls
     * cannot be compared. This holds for stages of a pipeline, and for data groups of several
     * ranks, one of which may have no batch of an evaluation. */
    bool calls_differ;
};

struct cluster_config {
    int node_id, nodes_n, workers_n;
    int min_nodes;       /* least number of nodes of a generation; 0: it waits for all */
    bool has_succession; /* another node may become the coordinator (succession.h) */
    const char *master_addr;
    int master_port;
    const struct psk *psk; /* the job's key; NULL with one node. Copied by cluster_open */
    int64_t join_timeout_ms, peer_timeout_ms;
    int max_restarts;
    /* One flat JSON object, name → value as text, which must be the same on every node: settings,
     * version, fingerprints of data and model, kind of device, library versions. If a value
     * differs, the error contains the key, both values and the node. */
    const char *agree_json;
    /* Checks that a returning node has the data that the job has trained on. NULL: not checked. */
    cluster_is_same_data *is_same_data;
    struct cluster_places places;
    struct event_base *loop;
    /* ---- functions that are called from the loop ---- */

    /* on_world — a generation begins. */
    void (*on_world)(void *arg, const struct cluster_world *world);
    /* on_abort — a generation ends; why: text with node and rank. The workers return to joining.
     * Also called for a generation that this node never entered, if that has used up its readiness.
     * Call cluster_ready again with new addresses after either. */
    void (*on_abort)(void *arg, int64_t generation, const char *why);
    void (*on_stop)(void *arg, int request); /* a stop was requested on another node */
    /* on_end — the last call, exactly once: the node was refused or too late, no restart is left,
     * or cluster_leave has been completed. status_message has the reason. cluster_close may be
     * called from it. */
    void (*on_end)(void *arg, enum status st);
    /* on_request — node 0: a request for a path that is not the cluster's. It must be answered, now
     * or later (https_server_respond). NULL: 404. */
    void (*on_request)(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n);
    void *arg;
};

/* cluster_open — opens this node's side: node 0 of several listens; other nodes begin to connect.
 * Does not block. */
enum status cluster_open(const struct cluster_config *config, struct cluster **out);
void cluster_close(struct cluster *cluster); /* accepts NULL */

/* cluster_ready — reports that all workers of this node wait for the next generation;
 * mine[workers_n]: their addresses, copied. */
void cluster_ready(struct cluster *cluster, const struct cluster_address *mine, int workers_n);
/* A worker of this node ended, or its comm failed. */
struct cluster_loss {
    int64_t generation; /* 0: before there was a world, or while the job waits for nodes */
    int worker_i;       /* the worker that ended; -1: none did, only comm failed */
    int64_t step;       /* the last step that it published; -1: none */
    enum status st;
    const char *why; /* as text */
};

/* cluster_worker_lost — reports a loss. on_abort follows, or on_end with st if no restart is left.
 * Generation 0: readiness is withdrawn, and no on_abort follows. If the generation has ended, the
 * worker may be the cause of that end. */
void cluster_worker_lost(struct cluster *cluster, const struct cluster_loss *loss);
/* cluster_closed — reports that a worker of this node found in this generation that the connection
 * to closed_rank, of another node, was closed or reset by that rank's host. The report helps node 0
 * to distinguish a dead node from a node whose connection was closed. Call it before
 * cluster_worker_lost. */
void cluster_closed(struct cluster *cluster, int64_t generation, int closed_rank);
/* cluster_stepped — reports that the workers of this node finished a step in this generation.
 * Before that, a node that returns does not end it. */
void cluster_stepped(struct cluster *cluster, int64_t generation);
/* cluster_report — sets the state of this node's workers, for the next heartbeat. Copied. */
void cluster_report(struct cluster *cluster, const struct cluster_rank *ranks, int ranks_n);
/* cluster_report_machine — sets the load of this node's machine, for the next heartbeat. Copied. */
void cluster_report_machine(struct cluster *cluster, const struct machine_stats *machine);
/* cluster_stop — requests a stop; all other nodes get on_stop. */
void cluster_stop(struct cluster *cluster, int request);
/* cluster_leave — reports that this node has finished (ST_OK) or failed. An error that is not a
 * stop ends the job on every node with this reason. on_end follows with st; node 0 waits for the
 * other nodes first. */
void cluster_leave(struct cluster *cluster, enum status st, const char *message);

/* cluster_strangers — node 0: returns the connections that have not shown the job's key. false:
 * this node does not listen. */
bool cluster_strangers(const struct cluster *cluster, struct https_server_strangers *out);

/* cluster_psk — returns a copy of the job's key, for a process of this node that connects to node 0
 * itself (file_share). The caller wipes it. */
void cluster_psk(const struct cluster *cluster, struct psk *out);

/* cluster_leads — returns true if this node has the coordinator. */
bool cluster_leads(const struct cluster *cluster);
/* cluster_nodes — returns the number of nodes in *out: on the coordinator's node every node, on
 * others that node and this node. Valid until the next callback of the loop. */
int cluster_nodes(struct cluster *cluster, const struct cluster_node **out);
int64_t cluster_restarts(const struct cluster *cluster); /* restarts of the job so far */
/* cluster_cause — returns the result of coordinator_cause on node 0; else "". */
const char *cluster_cause(const struct cluster *cluster, int *rank_out);
/* cluster_checkpoints — node 0: sets the number of checkpoints that the job has made, a count that
 * only grows. */
void cluster_checkpoints(struct cluster *cluster, int64_t n);
/* cluster_missing — while the job waits for nodes, returns the nodes that are absent or not ready,
 * as text; else "". */
const char *cluster_missing(const struct cluster *cluster);

/* cluster_generation — returns the highest generation that this node has received; 0: none yet; for
 * tests. */
int64_t cluster_generation(const struct cluster *cluster);

#endif
