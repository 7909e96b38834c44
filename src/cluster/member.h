/* member — one node's side of the job: makes the messages to the coordinator, and turns the replies
 * into actions.
 *
 * A pure state machine: (state, event, time) → state and actions, which the caller carries out.
 * There are no system calls, and no memory beyond the struct; time comes from the caller.
 *
 * A lease keeps two worlds from running at the same time. A member counts the lease from the moment
 * at which it sent the last message whose reply renewed it. The coordinator counts from the moment
 * at which that message arrived. So the member abandons its world before the coordinator counts it
 * as lost. Each reply contains the length of the lease, each message the longest recent stall of
 * this node.
 *
 * Must not know sockets. */
#ifndef CONVOY_CLUSTER_MEMBER_H
#define CONVOY_CLUSTER_MEMBER_H

#include "cluster/message.h"
#include "cluster/succession.h"
#include "net/loop_lag.h"

#define MEMBER_LEASE_FACTOR_MAX 4 /* × peer_timeout_ms: a longer lease is shortened to this */
/* Node 0 is lost if its connection has ended, and no other can be made, for this long. */
#define MEMBER_DISCONNECTED_MS 400
/* A member turns to other nodes if the coordinator's connection is lost for this long, and
 * immediately if the host of the coordinator refuses connections. */
#define MEMBER_SEARCH_MS 1500
/* A member that searches for the coordinator waits this long for the answer of one node. */
#define MEMBER_ASK_MS 1000
/* A member that leaves waits MEMBER_LEAVE_MS for node 0 to confirm it, and only
 * MEMBER_LEAVE_SILENT_MS if node 0 was silent for MEMBER_LEAVE_MS already. */
#define MEMBER_LEAVE_MS 3000
#define MEMBER_LEAVE_SILENT_MS 500

struct member_config {
    int node_id;
    int64_t join_timeout_ms, peer_timeout_ms;
    struct message_incarnation incarnation;
    bool may_search; /* other nodes may become the coordinator (succession.h) */
};

/* The actions that the caller must carry out, in this order. */
struct member_actions {
    int64_t abort; /* end this generation; 0: none; the reason is in text */
    int64_t fetch; /* request the addresses of this generation; 0: none */
    int stop;      /* the request to stop; 0: none */
    bool is_over;  /* the member is done: st, text */
    enum status st;
    bool lead;      /* start the coordinator on this node, and call member_lead */
    bool is_urgent; /* send a message immediately, not with the next heartbeat */
    char text[MESSAGE_TEXT_MAX];
};

struct member {
    struct member_config config;
    struct message_incarnation coordinator; /* the coordinator that answered last; zero: none yet */
    int64_t sequence, revision;
    int64_t generation; /* the highest generation received */
    int64_t running;    /* the generation that this node is in; 0: none */
    int64_t ready;      /* number of times that the workers were ready */
    bool is_ready, is_ready_held,
        is_ready_sent;    /* not used up yet · node 0 confirmed it · was sent */
    bool is_joined;       /* it has joined this coordinator */
    bool has_ever_joined; /* it has joined some coordinator before */
    int64_t since_ms;     /* when the last reply arrived; before the first: when it began */
    /* when the last message whose reply renewed the lease was sent; -1: never */
    int64_t answered_ms;
    int64_t contact_ms;       /* when the last answered message was sent; -1: never */
    int64_t lease_ms;         /* length of the lease, from answered_ms on */
    struct loop_lag lag;      /* lag of this process */
    int64_t disconnected_ms;  /* since when node 0 cannot be reached; -1: it can */
    int64_t losses, lost;     /* as in message_heartbeat */
    int64_t replied_sequence; /* the highest number of an answered message */
    enum status lost_st;
    int lost_worker; /* as in message_heartbeat, like lost_step */
    int64_t lost_step;
    int64_t closed; /* as in message_heartbeat, like closed_rank */
    int closed_rank;
    int64_t stepped;      /* as in message_heartbeat */
    int stop, known_stop; /* stop requested on this node · on any node */
    bool is_leaving, is_over;
    int64_t leaving_ms;
    enum status leave_st;
    int64_t step;
    struct restart_counts counts;
    /* ---- the search for the coordinator (succession.h) ---- */
    int target;        /* the node to which messages go */
    int leader_id;     /* the node of the coordinator that answered last; at first node 0 */
    bool is_searching; /* the coordinator is lost */
    int search_i;      /* index of `target` in the newest world; -1: leader_id */
    int64_t asked_ms;  /* when it turned to `target` */
    /* the process of the coordinator's node, which ended while this node was its member; 0: none */
    struct message_incarnation ended;
    struct succession past;
    char why[MESSAGE_TEXT_MAX];     /* reason of `lost` or of leaving */
    char missing[MESSAGE_TEXT_MAX]; /* as in message_reply */
    char unreachable_why[256];      /* why node 0 cannot be reached, as text */
    char where[288];                /* node 0's host and port, for messages; "": unknown */
};

/* member_init — starts the state of a node that has not joined. now_ms: clock_ms. */
void member_init(struct member *m, const struct member_config *config, int64_t now_ms);

/* ---- events of the supervisor, as in cluster.h ----
 *
 * Each sets actions->is_urgent if node 0 must be informed immediately. */

/* member_ready — reports that all workers of this node wait for the next generation. */
void member_ready(struct member *m, struct member_actions *actions);
/* member_lost — reports that a worker of this node ended, or its comm failed. A loss in an earlier
 * generation counts only if a worker ended and no generation runs. */
void member_lost(struct member *m, const struct cluster_loss *loss, struct member_actions *actions);
/* member_closed — reports that the connection of a rank of this node to closed_rank was closed or
 * reset by that rank's host. The generation may have ended since. Only the first report of a
 * generation counts. */
void member_closed(struct member *m, int64_t generation, int closed_rank,
                   struct member_actions *actions);
/* member_stepped — reports that the workers of this node finished a step in this generation;
 * further calls for it do nothing. */
void member_stepped(struct member *m, int64_t generation, struct member_actions *actions);
/* member_stop — reports that a stop was requested on this node. */
void member_stop(struct member *m, int request, struct member_actions *actions);
/* member_abandon — abandons the generation immediately, because its ranks make no progress. Node 0
 * is informed by the next message that reaches it. */
void member_abandon(struct member *m, const char *why, struct member_actions *actions);
/* member_leave — reports that this node has finished or failed. actions->is_over follows later,
 * when node 0 has confirmed it or does not answer. */
void member_leave(struct member *m, enum status st, const char *why, int64_t now_ms,
                  struct member_actions *actions);

/* ---- messages ---- */

/* member_make_heartbeat — makes the next message; the caller adds ranks, addresses and the
 * machine's load. true: also request to join. */
bool member_make_heartbeat(struct member *m, int64_t now_ms, struct message_heartbeat *heartbeat);
/* member_has_addresses — returns true if the next message must carry the workers' addresses. They
 * are sent only to a coordinator that this node has joined, so that no two coordinators make a
 * world of them. */
bool member_has_addresses(const struct member *m);
/* member_on_reply — handles the reply to a message that was sent at sent_ms. */
void member_on_reply(struct member *m, const struct message_reply *reply, int64_t sent_ms,
                     int64_t now_ms, struct member_actions *actions);
/* member_on_world — handles the arrival of a generation's addresses. past: its processes; NULL: no
 * other node may become the coordinator. true: enter it now. */
bool member_on_world(struct member *m, int64_t generation, const struct succession_world *past,
                     int64_t now_ms);
/* member_on_disconnect — handles a connection that node 0 closed or refused; why: the reason. */
void member_on_disconnect(struct member *m, const char *why, int64_t now_ms);
/* member_on_refused — handles a refused connection to node `target`: no process listens at its
 * address, so its process has ended. why: the reason. */
void member_on_refused(struct member *m, int target, const char *why, int64_t now_ms,
                       struct member_actions *actions);
/* member_on_silence — handles a node that cannot be reached or does not answer. */
void member_on_silence(struct member *m, int target, int64_t now_ms,
                       struct member_actions *actions);
/* member_lead — notes that this node has started the coordinator. */
void member_lead(struct member *m);
/* member_follow — joins the coordinator of node leader_id. Another node has reported it, or this
 * node has closed its own coordinator in favour of it. */
void member_follow(struct member *m, int leader_id, int64_t now_ms, struct member_actions *actions);
/* member_on_view — handles the view of a coordinator that looks for this node. A member without a
 * coordinator joins it. */
void member_on_view(struct member *m, const struct message_view *view, int64_t now_ms,
                    struct member_actions *actions);
/* member_leader — returns the node of the coordinator; -1: it is lost. */
int member_leader(const struct member *m);
/* member_tick — finds the end of the lease and timeouts. Call it every LOOP_LAG_TICK_MS. */
void member_tick(struct member *m, int64_t now_ms, struct member_actions *actions);

#endif
