/* succession — the worlds in which processes may have trained lately, and whether the nodes that a
 * coordinator has are enough to go on from them. With ON_LOSS=shrink each node may become the
 * coordinator, and two coordinators must never train at the same time.
 *
 * Each member keeps a list: the last world in which its workers finished a step, and the later
 * worlds that it entered. All members of a world enter it before any of them finishes a step, so
 * the newest finished world replaces all worlds with a lower generation. A member sends the list
 * when it joins a coordinator, which merges the lists of all members with its own.
 *
 * A coordinator may form a world of the nodes S if each world w of its list permits it:
 *
 *   majority    more than half of the processes of w are in S
 *   incumbent   half of them are, and this coordinator has formed w
 *   account     each process of w is in S or has ended. The coordinator or one of its members was
 *               connected to the process until its end, or S has a process for every NODE_ID.
 *
 * Two disjoint sets of living processes cannot both satisfy this, because a process that is in both
 * sets has brought its list to the later coordinator.
 *
 * Pure functions. Must not depend on sockets, time or the states of members. */
#ifndef CONVOY_CLUSTER_SUCCESSION_H
#define CONVOY_CLUSTER_SUCCESSION_H

#include "cluster/message.h"

struct succession_process {
    int node_id;
    struct message_incarnation incarnation;
    bool has_ended;    /* it is proved that the process has ended; only on a coordinator */
    bool was_in_sight; /* … and that it belonged to this coordinator until then */
};

struct succession_world {
    int64_t generation;
    struct message_incarnation coordinator; /* the coordinator that has formed it */
    bool has_stepped;                       /* a member has finished a step in it */
    int n;
    struct succession_process processes[SUCCESSION_NODES_MAX]; /* n, in the order of node_id */
};

struct succession {
    int n;
    /* The highest generation of a world for which the list had no room; 0: none. Until a world that
     * replaces it is finished, the list permits no other world. */
    int64_t left_out;
    struct succession_world worlds[SUCCESSION_WORLDS_MAX]; /* n, the last one added is the last */
};

/* succession_add — adds a world, unless a finished world with a higher generation replaces it.
 * Returns false if the list is full. */
bool succession_add(struct succession *s, const struct succession_world *world);
/* succession_step — notes that a member has finished a step in this world, which replaces the
 * worlds with lower generations. */
void succession_step(struct succession *s, struct message_incarnation coordinator,
                     int64_t generation);
/* succession_merge — adds the worlds of another list. */
void succession_merge(struct succession *s, const struct succession *other);
/* succession_newest — returns the world with the highest generation; NULL: the list is empty. */
const struct succession_world *succession_newest(const struct succession *s);
/* succession_find_process — returns the process that the world has for a NODE_ID; NULL: none. */
const struct succession_process *succession_find_process(const struct succession_world *world,
                                                         int node_id);
/* succession_end_process — notes in all worlds that a process has ended. */
void succession_end_process(struct succession *s, struct message_incarnation incarnation,
                            bool was_in_sight);
/* succession_find_unknown — returns a process of this NODE_ID, other than `but`, that may still
 * live; NULL: the list has none. */
const struct succession_process *succession_find_unknown(const struct succession *s, int node_id,
                                                         struct message_incarnation but);
/* succession_permits — returns true if the list permits a world. is_in: true for a process of the
 * new world. is_whole: the new world has a process for every NODE_ID. coordinator: the one that
 * forms it. */
bool succession_permits(const struct succession *s, struct message_incarnation coordinator,
                        bool (*is_in)(const void *arg, const struct succession_process *process),
                        const void *arg, bool is_whole);

#endif
