/* coordinator_inside — what the files of the coordinator share. */
#ifndef CONVOY_CLUSTER_COORDINATOR_INSIDE_H
#define CONVOY_CLUSTER_COORDINATOR_INSIDE_H

#include "cluster/coordinator.h"
#include "net/loop_lag.h"
#include "cluster/log_queue.h"

struct coordinator_node {
    enum cluster_node_state state;
    struct message_incarnation incarnation;
    char host[64], address[64];
    int64_t pid;
    /* the highest heard, of this instance; the generation it came with */
    int64_t sequence, generation;
    int64_t admitted_ms, last_message_ms, last_leased_ms,
        disconnected_ms; /* heard: with a lease; closed -1: not */
    /* it stood still for so long lately · its lease ends, as it was told */
    int64_t lag_ms, lease_end_ms;
    int64_t ready, used, losses; /* as in wire.h */
    int stop, ranks_n;
    bool is_end_known; /* that the job is over */
    struct message_incarnation
        refused;   /* its data are others than the job's: told so, and no more */
    char why[384]; /* it was */
    /* wants this place; the holder has until it dies to be heard from */
    struct message_incarnation newcomer;
    int64_t newcomer_ms;
};

struct coordinator {
    struct coordinator_config config;
    struct coordinator_node *nodes;
    struct cluster_address *addresses; /* nodes_n × workers_n, as last made ready */
    struct cluster_rank *ranks;        /* likewise, as last reported */
    struct cluster_node *roster;
    struct loop_lag lag; /* this process itself */
    int64_t revision, generation, gathering_ms,
        generation_end_ms; /* fall_ms far ahead before the first */
    bool is_running, is_ended, is_missing_known;
    /* it ended because this node 0, a new one, has other settings than those who trained */
    bool is_node0_wrong;
    /* of nodes 0 and 1, in the first world: what all later ones are like */
    struct cluster_address first[2];
    int worlds_n, left_n, stop; /* worlds made in this life */
    int64_t step;
    struct message_restarts counts;
    enum status end_st;
    char why[MESSAGE_TEXT_MAX], missing[MESSAGE_TEXT_MAX];
    struct log_queue log;
};

/* coordinator_grace_lag — how long this process and that member stood still lately.
 * coordinator_grace — what a lease is longer by for it: the worst seen may come again, several
 * times in a round trip. */
int64_t coordinator_grace_lag(const struct coordinator *c, const struct coordinator_node *node);
int64_t coordinator_grace(const struct coordinator *c, const struct coordinator_node *node);

/* coordinator_data_check — while the job gathers anew: a node that is ready with other data than
 * those that trained is refused itself (*slot is lost, with `refused` and `why`), and the others
 * wait for a right one. At the first meeting nobody can tell which is wrong: the workers end it for
 * all. true: somebody was refused. */
bool coordinator_data_check(struct coordinator *c);

#endif
