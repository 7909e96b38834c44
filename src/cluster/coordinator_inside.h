/* coordinator_inside — the state of the coordinator, for its own files. */
#ifndef CONVOY_CLUSTER_COORDINATOR_INSIDE_H
#define CONVOY_CLUSTER_COORDINATOR_INSIDE_H

#include "cluster/coordinator.h"
#include "cluster/log_queue.h"
#include "cluster/succession.h"
#include "net/loop_lag.h"

/* One NODE_ID, and the process that holds it (incarnation). */
struct coordinator_node {
    enum cluster_node_state state;
    struct message_incarnation incarnation;
    char host[64], address[64], reached[64];
    int control_port; /* as in message_join */
    int64_t pid;
    int64_t sequence;   /* the highest number received from this incarnation */
    int64_t generation; /* the highest generation in its message of joining */
    int64_t joined_ms, last_message_ms;
    int64_t last_leased_ms;       /* the last message that renewed its lease */
    int64_t disconnected_ms;      /* its last connection was closed; -1: it has one */
    int64_t parted_ms;            /* as disconnected_ms, and it stays when the node is lost */
    int64_t lag_ms;               /* its longest stall lately, by its own report */
    int64_t lease_end_ms;         /* end of the lease in the last reply */
    int64_t ready, used, losses;  /* as in message.h */
    int64_t lost, closed;         /* as in message.h: the last generations that it reported */
    int64_t step;                 /* as in message.h; -1: none */
    int64_t data_closed_ms;       /* coordinator_nodes.c; -1: not reported since its last message */
    struct machine_stats machine; /* last reported values */
    int stop, ranks_n;
    bool is_in_world;  /* this process is in the last generation */
    bool has_departed; /* LEFT, but the job continues without it: it may return */
    bool is_returning; /* the job has trained with this node before this process joined */
    bool is_end_sent;  /* the end of the job was sent to it */
    /* refused because its data differ from the job's; why: the reason */
    struct message_incarnation refused;
    char why[384];
    /* The process that held the NODE_ID before, and its readiness that was used. Messages of it may
     * arrive even after the next process is gone. */
    struct message_incarnation before;
    int64_t before_used;
    struct message_incarnation newcomer; /* requests the NODE_ID while the holder may still live */
    int64_t newcomer_ms;
};

struct coordinator {
    struct coordinator_config config;
    struct coordinator_node *nodes;
    struct cluster_address *addresses; /* nodes_n × workers_n: addresses of the last readiness */
    struct cluster_address *world;     /* world_n × workers_n: addresses of the last generation */
    int *world_ids;                    /* world_n: nodes of the last generation, ascending */
    int world_n;
    struct cluster_rank *ranks;        /* nodes_n × workers_n, from the last report */
    struct cluster_node *status_nodes; /* the result of coordinator_nodes */
    struct loop_lag lag;               /* lag of this process */
    int64_t revision, generation;
    int64_t opened_ms, waiting_ms; /* this process began; it waits for nodes since */
    int64_t generation_end_ms;     /* end of the last generation; INT64_MAX: none has ended */
    int64_t world_generation;      /* the generation of `world`; 0: none yet */
    int64_t world_begun_ms;        /* when it began */
    bool has_stepped;              /* a node of `world` reports a step in that generation */
    int64_t step;                  /* the highest step that such nodes report in it; -1: none */
    bool is_running, is_ended;
    /* The state of `missing`: up to date, or as old as one tick if has_missing_changed, so that a
     * thousand nodes that join at the same time do not each make a list of the others. */
    bool is_missing_known, has_missing_changed;
    /* the nodes at which coordinator_world_is_ready and coordinator_is_end_sent begin */
    int unready_id, unended_id;
    /* The job ended because this node 0, a new process, has other settings than the other nodes. */
    bool is_node0_wrong;
    /* Addresses of the first two nodes of the first world: later addresses must have the same
     * data. */
    struct cluster_address first[2];
    int first_ids[2];
    struct succession *past;               /* NULL: no other node becomes the coordinator */
    struct succession_world past_world;    /* the last world, as in the list */
    char (*controls)[CLUSTER_CONTROL_MAX]; /* nodes_n: of the last world, by position */
    int former_id;     /* the node of the former coordinator; -1: this process is new */
    bool was_in_sight; /* … whose process ended while this node was its member */
    int reference_id;  /* the reference of coordinator_join_check_data, while worlds_n is 0 */
    int worlds_n;      /* worlds that this process has made */
    int left_n, stop;
    struct restart_budget budget;
    struct restart_repeat *repeats; /* memory of `budget` */
    int64_t checkpoints;
    /* The last generation ended because a rank reported that comm failed, or a node that it
     * abandoned the generation, and no cause was reported yet. `report` is that report. */
    bool is_cause_awaited;
    struct restart_loss report;
    char report_why[MESSAGE_TEXT_MAX];
    char cause[MESSAGE_TEXT_MAX];
    int cause_rank; /* the lost rank, or the first rank of a lost node */
    enum status end_st;
    char why[MESSAGE_TEXT_MAX], missing[MESSAGE_TEXT_MAX];
    struct log_queue log;
};

/* coordinator_node_id — returns the NODE_ID of a node. */
static inline int coordinator_node_id(const struct coordinator *c,
                                      const struct coordinator_node *node)
{
    return (int)(node - c->nodes);
}

/* coordinator_leader — returns the node of this process. */
static inline const struct coordinator_node *coordinator_leader(const struct coordinator *c)
{
    return &c->nodes[c->config.leader_id];
}

/* coordinator_is_present — returns true for a member: joined or suspect. */
static inline bool coordinator_is_present(const struct coordinator_node *node)
{
    return node->state == CLUSTER_NODE_JOINED || node->state == CLUSTER_NODE_SUSPECT;
}

/* coordinator_is_absent — returns true if the node is awaited or lost. */
static inline bool coordinator_is_absent(const struct coordinator_node *node)
{
    return node->state == CLUSTER_NODE_AWAITED || node->state == CLUSTER_NODE_LOST;
}

/* coordinator_end_job — ends the job for all nodes with this reason; the first one counts. */
void coordinator_end_job(struct coordinator *c, enum status st, const char *why);

/* coordinator_nodes_lag — returns the stalls of this process and of that member lately, together in
 * ms. */
int64_t coordinator_nodes_lag(const struct coordinator *c, const struct coordinator_node *node);
/* coordinator_nodes_grace — returns the ms by which the stalls extend the member's lease: the worst
 * stall may come again, several times in one round trip. */
int64_t coordinator_nodes_grace(const struct coordinator *c, const struct coordinator_node *node);

/* ---- the two signs of a node's death (coordinator_nodes.c) ----
 *
 * The node's last connection to node 0 was closed, and a rank of another node reports that its
 * connection to a rank of that node was closed or reset. If both happen within
 * COORDINATOR_DISCONNECTED_MS, the node's processes ended, so it is lost immediately. One sign does
 * not suffice: a supervisor may connect again, and a worker may end while its supervisor lives.
 * ---- */

/* coordinator_nodes_note_closed — applies the report in a message of `from`. Returns the node that
 * the report concerns; NULL: there is no report, or it is old, or that node explained it. */
struct coordinator_node *coordinator_nodes_note_closed(struct coordinator *c,
                                                       struct coordinator_node *from,
                                                       const struct message_heartbeat *heartbeat,
                                                       int64_t now_ms);
/* coordinator_nodes_is_dead — returns true if both signs are present. */
bool coordinator_nodes_is_dead(const struct coordinator_node *node);

/* coordinator_nodes_absent — lists the nodes that are no members, as text; returns their number. */
int coordinator_nodes_absent(const struct coordinator *c, char *out, size_t cap);
/* coordinator_nodes_refresh_missing — brings `missing` up to date. */
void coordinator_nodes_refresh_missing(struct coordinator *c);

/* coordinator_join_check_data — compares the data of a node that has become ready, while the
 * job waits for nodes for a later generation. A node whose data differ from the job's is refused
 * and counts as lost; the others wait for one with the right data. Before the first generation it
 * is unknown which node is wrong; there the workers compare, and end the job. Returns true if a
 * node was refused. */
bool coordinator_join_check_data(struct coordinator *c, struct coordinator_node *node);

/* coordinator_world_is_ready — returns true if the next generation may begin: every node that it
 * has to wait for is ready, and there are enough nodes. */
bool coordinator_world_is_ready(struct coordinator *c, int64_t now_ms);
/* coordinator_world_is_enough — returns true if enough nodes are members for a generation. */
bool coordinator_world_is_enough(const struct coordinator *c);
/* coordinator_world_may_lose — returns true if the job may continue without this node. */
bool coordinator_world_may_lose(const struct coordinator *c, const struct coordinator_node *node);
/* coordinator_world_is_done — returns true if all its nodes have left, and there may be others. */
bool coordinator_world_is_done(const struct coordinator *c);
/* coordinator_world_form — makes the world of the ready nodes. */
void coordinator_world_form(struct coordinator *c, int64_t now_ms);
/* coordinator_world_can_include — returns true if a node that is not in the running generation ends
 * it now, so that the next one has it. A returning node waits until this generation has finished a
 * step, so that the job makes progress, but not for longer than COORDINATOR_RETURN_MS. A node that
 * is new to the job does not wait. */
bool coordinator_world_can_include(const struct coordinator *c, const struct coordinator_node *node,
                                   int64_t now_ms);
/* coordinator_world_find_outside — returns the first node for which coordinator_world_can_include
 * is true; NULL: none. */
const struct coordinator_node *coordinator_world_find_outside(const struct coordinator *c,
                                                              int64_t now_ms);
/* coordinator_world_describe — writes "2 of 3 nodes (0, 2)". */
void coordinator_world_describe(const struct coordinator *c, char *out, size_t cap);

/* coordinator_join_check_settings — compares the settings of a node that requests to join. All
 * nodes run the same job, or none does:
 *   - before the first generation a difference ends the job, because it is unknown which node is
 *     wrong;
 *   - later only the newcomer is refused, which may be this node 0: the others then wait for
 *     another.
 * false: refused, with the reason in the reply. */
bool coordinator_join_check_settings(struct coordinator *c,
                                     const struct message_heartbeat *heartbeat,
                                     const struct message_join *join, struct message_reply *reply);
/* coordinator_join_is_refused — returns true if this incarnation was refused before; the
 * reason is in the reply. */
bool coordinator_join_is_refused(const struct coordinator_node *node,
                                 struct message_incarnation incarnation,
                                 struct message_reply *reply);
/* coordinator_join_is_member — returns true if the message comes from the process that holds
 * the NODE_ID, or has just received it. false: the reply has the sender's next action. */
bool coordinator_join_is_member(struct coordinator *c, const struct message_heartbeat *heartbeat,
                                const struct message_join *join, int64_t now_ms,
                                struct message_reply *reply);
/* coordinator_join_wait_for_node0 — writes the reply to a member of a job that this node 0, a
 * new process with other settings, cannot lead: wait for another node 0. */
void coordinator_join_wait_for_node0(const struct coordinator *c, struct message_reply *reply);
/* coordinator_join_refuse — writes a reply that ends the sender with st; the caller adds the
 * text. */
void coordinator_join_refuse(struct message_reply *reply, enum status st);

#endif
