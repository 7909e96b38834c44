/* comm_mem — threads of one process as ranks. All memory is everybody's, so every buffer is read
 * where it lies.
 *
 * A world lives once: when a call has failed its ranks close, and a new life opens a new world.
 * Must not know what its threads compute. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/must.h"
#include "comm/comm_moves.h"

/* The seats of a comm made by comm_sub, found by its members in no particular order. */
struct comm_mem_group {
    struct comm_mem_group *next;
    const void *parent; /* seats of the comm it was made from */
    int ranks_n, joined_n;
    int *ranks;
    bool *joined;
    void *memory;
};

struct comm_mem_world {
    int nodes, locals;
    void *memory;
    pthread_mutex_t mutex;
    struct comm_mem_group *groups;
};

struct comm_mem_world *comm_mem_world_new(int nodes, int locals)
{
    int64_t ranks = (int64_t)nodes * locals;
    ASSERTF(nodes >= 1 && locals >= 1 && ranks <= COMM_HALL_RANKS_MAX, "%d nodes of %d ranks",
            nodes, locals);
    struct comm_mem_world *world = calloc(1, sizeof(*world));
    if (world == NULL)
        return NULL;
    world->nodes = nodes;
    world->locals = locals;
    if (comm_ops_reserve(comm_hall_bytes((int)ranks), &world->memory) != ST_OK) {
        free(world);
        return NULL;
    }
    pthread_mutex_init(&world->mutex, NULL);
    return world;
}

static void group_free(struct comm_mem_group *group)
{
    comm_ops_unmap(group->memory, comm_hall_bytes(group->ranks_n));
    free(group->ranks);
    free(group->joined);
    free(group);
}

void comm_mem_world_free(struct comm_mem_world *world)
{
    if (world == NULL)
        return;
    for (struct comm_mem_group *group = world->groups, *next; group != NULL; group = next) {
        next = group->next;
        group_free(group);
    }
    comm_ops_unmap(world->memory, comm_hall_bytes(world->nodes * world->locals));
    pthread_mutex_destroy(&world->mutex);
    free(world);
}

/* A wire's state over seats that exist. */
static enum status take_seat(struct comm_wire *wire, void *memory)
{
    struct comm_moves *moves = malloc(sizeof(*moves));
    if (moves == NULL)
        return FAIL(ST_RETRY, "out of memory: the view of rank %d", wire->config.place.rank);
    const struct comm_place *place = &wire->config.place;
    enum status st = comm_moves_init(moves, memory, place->nodes, place->locals, place->rank);
    if (st != ST_OK) {
        free(moves);
        return st;
    }
    wire->state = moves;
    return ST_OK;
}

static enum status begin_open(struct comm_wire *wire, void *address, int64_t *address_bytes)
{
    (void)address;
    const struct comm_place *place = &wire->config.place;
    const struct comm_mem_world *world = wire->config.mem;
    if (world == NULL || world->nodes != place->nodes || world->locals != place->locals)
        return FAIL(ST_BUG, "rank %d of %d nodes × %d workers opens a world of %d × %d",
                    place->rank, place->nodes, place->locals, world != NULL ? world->nodes : 0,
                    world != NULL ? world->locals : 0);
    *address_bytes = 0;
    return take_seat(wire, world->memory);
}

static enum status end_open(struct comm_wire *wire, const void *addresses, const int64_t *bytes)
{
    (void)addresses, (void)bytes;
    return comm_moves_barrier(wire->state, wire, wire->call);
}

static void wire_close(struct comm_wire *wire)
{
    struct comm_moves *moves = wire->state;
    if (moves == NULL)
        return;
    comm_moves_free(moves);
    free(moves);
    wire->state = NULL;
}

static struct comm_mem_group *group_new(const void *parent, const int *ranks, int ranks_n)
{
    struct comm_mem_group *group = calloc(1, sizeof(*group));
    if (group == NULL)
        return NULL;
    *group = (struct comm_mem_group){.parent = parent,
                                     .ranks_n = ranks_n,
                                     .ranks = malloc((size_t)ranks_n * sizeof(*ranks)),
                                     .joined = calloc((size_t)ranks_n, sizeof(bool))};
    if (group->ranks == NULL || group->joined == NULL ||
        comm_ops_reserve(comm_hall_bytes(ranks_n), &group->memory) != ST_OK) {
        group_free(group);
        return NULL;
    }
    memcpy(group->ranks, ranks, (size_t)ranks_n * sizeof(*ranks));
    return group;
}

/* The oldest group of these ranks that this one has not joined, else a new one. Under the world's
 * lock. */
static struct comm_mem_group *group_join(struct comm_mem_world *world, const void *parent,
                                         const int *ranks, int n, int rank)
{
    struct comm_mem_group **end = &world->groups;
    for (; *end != NULL; end = &(*end)->next) {
        struct comm_mem_group *group = *end;
        if (group->parent == parent && group->ranks_n == n && !group->joined[rank] &&
            memcmp(group->ranks, ranks, (size_t)n * sizeof(*ranks)) == 0)
            break;
    }
    if (*end == NULL)
        *end = group_new(parent, ranks, n);
    if (*end != NULL)
        (*end)->joined[rank] = true;
    return *end;
}

static enum status sub(struct comm_wire *wire)
{
    struct comm_mem_world *world = wire->config.mem;
    const struct comm_moves *parent = wire->parent->state;
    const struct comm_place *place = &wire->config.place;
    pthread_mutex_lock(&world->mutex);
    struct comm_mem_group *group =
        group_join(world, parent->hall.seats, wire->ranks, place->ranks, place->rank);
    pthread_mutex_unlock(&world->mutex);
    if (group == NULL)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks", place->ranks);
    return take_seat(wire, group->memory);
}

static int entered(const struct comm_wire *wire, int rank)
{
    const struct comm_moves *moves = wire->state;
    return comm_hall_entered(&moves->hall, wire->call, rank);
}

static enum status all_reduce(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_all_reduce(wire->state, wire, call);
}
static enum status reduce_scatter(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_reduce_scatter(wire->state, wire, call);
}
static enum status all_gather(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_all_gather(wire->state, wire, call);
}
static enum status all_to_all(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_all_to_all(wire->state, wire, call);
}
static enum status broadcast(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_broadcast(wire->state, wire, call);
}
static enum status send_to(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_send(wire->state, wire, call);
}
static enum status recv_from(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_recv(wire->state, wire, call);
}
static enum status barrier(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_moves_barrier(wire->state, wire, call);
}

const struct comm_ops comm_mem_ops = {
    .kind = COMM_KIND_MEM,
    .name = "mem",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = wire_close,
    .sub = sub,
    .entered = entered,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .send = send_to,
    .recv = recv_from,
    .barrier = barrier,
};
