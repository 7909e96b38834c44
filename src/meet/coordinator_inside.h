/* coordinator_inside — what the files of the coordinator share. */
#ifndef CONVOY_MEET_COORDINATOR_INSIDE_H
#define CONVOY_MEET_COORDINATOR_INSIDE_H

#include "meet/coordinator.h"
#include "meet/late.h"
#include "meet/notes.h"

struct slot {
    enum meet_node_state state;
    struct wire_instance instance;
    char host[64], address[64];
    int64_t pid;
    /* the highest heard, of this instance; the generation it came with */
    int64_t sequence, generation;
    int64_t seated_ms, spoke_ms, heard_ms, closed_ms; /* heard: with a lease; closed -1: not */
    /* it stood still for so long lately · its lease ends, as it was told */
    int64_t late_ms, until_ms;
    int64_t ready, used, losses; /* as in wire.h */
    int stop, ranks_n;
    bool is_told;                 /* that the job is over */
    struct wire_instance refused; /* its data are others than the job's: told so, and no more */
    char why[384];                /* it was */
    /* wants this place; the holder has until it dies to be heard from */
    struct wire_instance newcomer;
    int64_t newcomer_ms;
};

struct coordinator {
    struct coordinator_config config;
    struct slot *slots;
    struct meet_address *addresses; /* nodes_n × workers_n, as last made ready */
    struct meet_rank *ranks;        /* likewise, as last reported */
    struct meet_node *roster;
    struct late late;                             /* this process itself */
    int64_t turn, generation, gather_ms, fall_ms; /* fall_ms far ahead before the first */
    bool is_running, is_ended, is_missing_known;
    /* it ended because this node 0, a new one, has other settings than those who trained */
    bool is_wrong;
    /* of nodes 0 and 1, in the first world: what all later ones are like */
    struct meet_address first[2];
    int worlds_n, left_n, stop; /* worlds made in this life */
    int64_t step;
    struct wire_counts counts;
    enum status end_st;
    char why[WIRE_TEXT_MAX], missing[WIRE_TEXT_MAX];
    struct notes notes;
};

/* coordinator_grace_late — how long this process and that member stood still lately.
 * coordinator_grace — what a lease is longer by for it: the worst seen may come again, several
 * times in a round trip. */
int64_t coordinator_grace_late(const struct coordinator *c, const struct slot *slot);
int64_t coordinator_grace(const struct coordinator *c, const struct slot *slot);

/* coordinator_alike — while the job gathers anew: a node that is ready with other data than those
 * that trained is refused itself (*slot is lost, with `refused` and `why`), and the others wait for
 * a right one. At the first meeting nobody can tell which is wrong: the workers end it for all.
 * true: somebody was refused. */
bool coordinator_alike(struct coordinator *c);

#endif
