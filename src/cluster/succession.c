/* succession — see succession.h. */
#include "cluster/succession.h"

#include <string.h>

#include "base/assert.h"

static bool has_same_processes(const struct succession_world *a, const struct succession_world *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (!message_is_same(a->processes[i].incarnation, b->processes[i].incarnation))
            return false;
    return true;
}

static void copy_world(struct succession_world *to, const struct succession_world *from)
{
    to->generation = from->generation;
    to->coordinator = from->coordinator;
    to->has_stepped = from->has_stepped;
    to->n = from->n;
    memcpy(to->processes, from->processes, (size_t)from->n * sizeof *from->processes);
}

/* Removes the worlds that a finished one with a higher generation replaces. */
static void drop_replaced(struct succession *s)
{
    int64_t finished = 0;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->worlds[i].has_stepped && s->worlds[i].generation > finished)
            finished = s->worlds[i].generation;
    for (int i = 0; i < s->n; i++) {
        if (s->worlds[i].generation < finished)
            continue;
        if (n != i)
            copy_world(&s->worlds[n], &s->worlds[i]);
        n++;
    }
    s->left_out = s->left_out > finished ? s->left_out : 0;
    s->n = n;
}

/* Copies the proofs that processes of a new world have ended from the worlds before it. */
static void copy_ends(struct succession_world *world, const struct succession *s)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->worlds[i].n; k++) {
            const struct succession_process *known = &s->worlds[i].processes[k];
            for (int j = 0; j < world->n && known->has_ended; j++) {
                struct succession_process *process = &world->processes[j];
                if (!message_is_same(process->incarnation, known->incarnation))
                    continue;
                process->has_ended = true;
                process->was_in_sight = process->was_in_sight || known->was_in_sight;
            }
        }
    }
}

bool succession_add(struct succession *s, const struct succession_world *world)
{
    ASSERTF(world->n > 0 && world->n <= SUCCESSION_NODES_MAX, "%d nodes", world->n);
    for (int i = 0; i < s->n; i++) {
        struct succession_world *own = &s->worlds[i];
        const bool is_same_coordinator = message_is_same(own->coordinator, world->coordinator);
        if (own->has_stepped && own->generation > world->generation)
            return true;
        if (is_same_coordinator && own->generation == world->generation) {
            own->has_stepped = own->has_stepped || world->has_stepped;
            return true;
        }
        if (is_same_coordinator && !own->has_stepped && !world->has_stepped &&
            has_same_processes(own, world)) {
            /* the same condition for the next world */
            if (world->generation > own->generation)
                own->generation = world->generation;
            return true;
        }
    }
    if (s->n == SUCCESSION_WORLDS_MAX)
        return false;
    copy_world(&s->worlds[s->n], world);
    copy_ends(&s->worlds[s->n], s);
    s->n++;
    return true;
}

void succession_step(struct succession *s, struct message_incarnation coordinator,
                     int64_t generation)
{
    for (int i = 0; i < s->n; i++)
        if (s->worlds[i].generation == generation &&
            message_is_same(s->worlds[i].coordinator, coordinator))
            s->worlds[i].has_stepped = true;
    drop_replaced(s);
}

void succession_merge(struct succession *s, const struct succession *other)
{
    s->left_out = s->left_out > other->left_out ? s->left_out : other->left_out;
    for (int i = 0; i < other->n; i++) {
        const int64_t generation = other->worlds[i].generation;
        if (!succession_add(s, &other->worlds[i]) && generation > s->left_out)
            s->left_out = generation;
        drop_replaced(s);
    }
}

const struct succession_world *succession_newest(const struct succession *s)
{
    const struct succession_world *newest = NULL;
    for (int i = 0; i < s->n; i++)
        if (!newest || s->worlds[i].generation >= newest->generation)
            newest = &s->worlds[i];
    return newest;
}

const struct succession_process *succession_find_process(const struct succession_world *world,
                                                         int node_id)
{
    for (int i = 0; world && i < world->n; i++)
        if (world->processes[i].node_id == node_id)
            return &world->processes[i];
    return NULL;
}

void succession_end_process(struct succession *s, struct message_incarnation incarnation,
                            bool was_in_sight)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->worlds[i].n; k++) {
            struct succession_process *process = &s->worlds[i].processes[k];
            if (!message_is_same(process->incarnation, incarnation))
                continue;
            process->has_ended = true;
            process->was_in_sight = process->was_in_sight || was_in_sight;
        }
    }
}

const struct succession_process *succession_find_unknown(const struct succession *s, int node_id,
                                                         struct message_incarnation but)
{
    for (int i = 0; i < s->n; i++) {
        const struct succession_process *process = succession_find_process(&s->worlds[i], node_id);
        if (process && !process->has_ended && !message_is_same(process->incarnation, but))
            return process;
    }
    return NULL;
}

bool succession_permits(const struct succession *s, struct message_incarnation coordinator,
                        bool (*is_in)(const void *arg, const struct succession_process *process),
                        const void *arg, bool is_whole)
{
    if (s->left_out != 0)
        return false;
    for (int i = 0; i < s->n; i++) {
        const struct succession_world *world = &s->worlds[i];
        int in_n = 0, accounted_n = 0;
        for (int k = 0; k < world->n; k++) {
            const struct succession_process *process = &world->processes[k];
            const bool is_here = is_in(arg, process);
            in_n += is_here;
            accounted_n += is_here || (process->has_ended && (process->was_in_sight || is_whole));
        }
        const bool is_incumbent = message_is_same(world->coordinator, coordinator);
        if (2 * in_n <= world->n && !(2 * in_n == world->n && is_incumbent) &&
            accounted_n < world->n)
            return false;
    }
    return true;
}
