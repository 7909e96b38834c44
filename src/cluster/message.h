/* message — the messages between members and the coordinator, as structs and as JSON.
 *
 * A message carries a whole state, never a change: a lost, repeated or late one does no harm. A
 * member sends its own state (struct message_heartbeat), at first with a request to join (struct
 * message_join). The coordinator replies with the state of the job (struct message_reply).
 * Addresses travel separately: a member sends its own when they are new, and fetches the addresses
 * of all ranks once a generation.
 *
 * Some JSON keys have older names than the fields here, because the bytes on the wire stay as they
 * are: "turn" is the revision, "instance" the incarnation, and "step_best" the step after which
 * worker 0 was lost last. The losses of an incident have an older key, too (add_counts).
 *
 * Readers are pure functions of (bytes, size). Must not know sockets, time or the consequences of a
 * message. */
#ifndef CONVOY_CLUSTER_MESSAGE_H
#define CONVOY_CLUSTER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine_stats.h"
#include "base/status.h"
#include "base/text.h"
#include "cluster/cluster.h"
#include "cluster/restart_budget.h"

#define MESSAGE_PROTOCOL 1
/* Bytes of the host and port at which a node's supervisor listens. */
#define MESSAGE_CONTROL_MAX CLUSTER_CONTROL_MAX
#define MESSAGE_TEXT_MAX 1024
#define MESSAGE_BODY_MAX ((size_t)256 << 10) /* bytes of a request to node 0 */
#define MESSAGE_AGREE_MAX ((size_t)48 << 10)
/* Bytes of the largest world: every address in base64. */
#define MESSAGE_WORLD_MAX ((size_t)24 << 20)

struct succession;

/* Identifies one start of one process: 128 random bits. All zero: none. */
struct message_incarnation {
    uint64_t hi, lo;
};
/* message_is_same — returns true if both are the same start of the same process. */
static inline bool message_is_same(struct message_incarnation a, struct message_incarnation b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* The fields that a process adds to its heartbeat until it has joined. */
struct message_join {
    int64_t protocol;
    int nodes_n, workers_n;
    int64_t pid;
    char host[64];
    const char *agree_json; /* points into the reader's message_body */
    /* The port at which its supervisor listens, so that it may become the coordinator; 0: none. */
    int control_port;
    /* The worlds in which it may have trained (succession.h); NULL: none. */
    const struct succession *past;
    /* The process of the former coordinator, which ended while this node was its member; zero: it
     * may live. */
    struct message_incarnation ended;
};

/* The message of a member: its whole state. */
struct message_heartbeat {
    int node_id;
    struct message_incarnation incarnation;
    int64_t sequence;   /* grows with every message of this incarnation */
    int64_t revision;   /* revision of the coordinator's state in the last reply; -1: none */
    int64_t silence_ms; /* time since it sent the message that was last answered */
    int64_t lag_ms;     /* its longest stall lately (net/loop_lag.h): an overloaded host */
    int64_t generation; /* the highest generation that it has received */
    int64_t running;    /* the generation that it is in; 0: none */
    /* number of times that its workers were ready; 0: the last readiness is used up */
    int64_t ready;
    /* number of times that a worker was lost, or this node abandoned a generation */
    int64_t losses;
    int64_t lost; /* the generation of the last loss; 0: before there was a world */
    enum status lost_st;
    /* The worker of this node that ended, and its last step (-1: none). lost_worker -1: none ended,
     * so the cause of the loss may be on another node. */
    int lost_worker;
    int64_t lost_step;
    /* The last generation in which a connection for data ended because the host of a rank of
     * another node closed or reset it, and that rank's number in the generation; 0: none. */
    int64_t closed;
    int closed_rank;
    int64_t stepped; /* the last generation in which its workers finished a step; 0: none */
    bool is_leaving;
    enum status leave_st;
    int stop;     /* the request to stop that its supervisor got; 0: none */
    int64_t step; /* the highest step of its ranks; a return to a checkpoint lowers it; -1: none */
    struct restart_counts counts;
    char why[MESSAGE_TEXT_MAX]; /* reason of the last loss or of leaving; "" */
    struct machine_stats machine;
    int ranks_n; /* ≤ CLUSTER_WORKERS_MAX */
    const struct cluster_rank *ranks;
    int addresses_n; /* 0, or one for each of this node's workers, for `ready` */
    const struct cluster_address *addresses;
};

/* The standing of a process with the coordinator. */
enum message_answer {
    MESSAGE_ANSWER_MEMBER, /* a member: the rest of the reply is valid */
    MESSAGE_ANSWER_JOIN,   /* unknown: request to join */
    /* another process may still hold its NODE_ID: request to join again later */
    MESSAGE_ANSWER_WAIT,
    MESSAGE_ANSWER_END, /* it must end: st, text */
    /* the node that answers is not the coordinator: ask node leader_id, or later again */
    MESSAGE_ANSWER_ELSEWHERE
};
/* The coordinator's reply: the state of the job for this member. */
struct message_reply {
    enum message_answer answer;
    struct message_incarnation coordinator;
    int64_t revision;   /* grows when the job's state changes */
    int64_t sequence;   /* number of the message that this replies to */
    int64_t generation; /* the last generation that was made */
    bool is_running;    /* that generation runs; false: it waits for nodes */
    bool is_lease;      /* the message renews the lease; false: send another immediately */
    /* length of the lease from the sending of the message on; 0: PEER_TIMEOUT */
    int64_t lease_ms;
    int64_t stepped; /* the last generation in which a member has finished a step; 0: none */
    int64_t ready;   /* the member's readiness, once its addresses have arrived; 0: none */
    int64_t used;    /* the member's readiness that its last world used; 0: none */
    bool is_leave_confirmed; /* the member may leave: the coordinator has noted it */
    int stop;                /* the request to stop that a node got; 0: none */
    enum status st;          /* END */
    int leader_id;           /* the node of the coordinator; -1: the node has lost it, too */
    char control[MESSAGE_CONTROL_MAX]; /* ELSEWHERE: where that node listens */
    struct restart_counts counts;
    /* END: the reason; waiting: why the last generation ended */
    char text[MESSAGE_TEXT_MAX];
    char missing[MESSAGE_TEXT_MAX]; /* the nodes that are absent or not ready */
};

/* The view of one node, which the coordinator sends to nodes that are no members, and which they
 * return (coordinator_yields). */
struct message_view {
    int node_id;
    struct message_incarnation incarnation; /* the node's process */
    bool is_coordinator;
    struct message_incarnation coordinator; /* the coordinator of this node; zero: none */
    int64_t generation; /* the newest world, if this coordinator has formed it; else 0 */
    bool is_running;    /* the coordinator's generation runs */
    bool has_past;      /* the coordinator knows worlds in which the job has trained */
    int leader_id;      /* the node that it follows, or its own number; -1: it has lost it */
    char control[MESSAGE_CONTROL_MAX]; /* where the node leader_id listens; "": unknown */
};

/* ---- JSON ---- */

/* A parsed heartbeat, with the memory to which its pointers lead. */
struct message_body {
    struct succession *past; /* join.past leads here; NULL: it is not read */
    struct message_heartbeat heartbeat;
    struct message_join join;
    bool has_join;
    int64_t hold_ms; /* time for which the reply may be held back for news */
    struct cluster_rank ranks[CLUSTER_WORKERS_MAX];
    struct cluster_address addresses[CLUSTER_WORKERS_MAX];
    char agree[MESSAGE_AGREE_MAX];
};

/* Writers append JSON. A text that has overflowed its limit must not be sent. */

/* message_write_heartbeat — writes a heartbeat. join NULL: none. hold_ms: as in message_body. */
void message_write_heartbeat(struct text *out, const struct message_heartbeat *heartbeat,
                             const struct message_join *join, int64_t hold_ms);
/* message_write_reply — writes the reply to a heartbeat. */
void message_write_reply(struct text *out, const struct message_reply *reply);
/* message_write_world_request — writes the request for the addresses of a generation. */
void message_write_world_request(struct text *out, int node_id,
                                 struct message_incarnation incarnation, int64_t generation);
/* message_write_world — writes the world of a generation: its secret, nodes and addresses, and its
 * processes and where they listen, if another node may become the coordinator. */
void message_write_world(struct text *out, const struct cluster_world *world);
/* message_write_view — writes the view of a node. */
void message_write_view(struct text *out, const struct message_view *view);

/* Readers accept bytes of any content: ST_BAD_DATA with a reason; ST_RETRY: out of memory. */

/* message_read_heartbeat — reads a heartbeat. If the protocol differs, only protocol, node_id and
 * host are read, and has_join is set, so that the coordinator reports the difference. */
enum status message_read_heartbeat(const char *bytes, size_t n, struct message_body *out);
/* message_read_reply — reads the reply to a heartbeat. */
enum status message_read_reply(const char *bytes, size_t n, struct message_reply *out);
/* message_read_world_request — reads the request for the addresses of a generation. */
enum status message_read_world_request(const char *bytes, size_t n, int *node_id_out,
                                       struct message_incarnation *incarnation_out,
                                       int64_t *generation_out);
/* message_read_world — reads a world of at most nodes_n nodes of workers_n ranks into
 * addresses[nodes_n × workers_n] and node_ids[nodes_n], to which out points. Refuses node ids that
 * do not ascend, and a number of addresses that does not fit them. The processes are read into
 * past, to which out then points, and their addresses into controls[nodes_n]. */
enum status message_read_world(const char *bytes, size_t n, int nodes_n, int workers_n,
                               struct cluster_address *addresses, int *node_ids,
                               struct succession_world *past, char (*controls)[MESSAGE_CONTROL_MAX],
                               struct cluster_world *out);
/* message_read_view — reads the view of a node. */
enum status message_read_view(const char *bytes, size_t n, struct message_view *out);

#endif
