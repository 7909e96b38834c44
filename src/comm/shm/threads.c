/* shm_threads — the transport THREADS: ranks are threads of one process, which see all buffers.
 * Must not know the computation of its threads.
 *
 * A world serves one generation: after a failure its ranks close, and a new generation opens a new
 * world. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "comm/shm/coll.h"

/* The control block of a split. Its members find it in any order. */
struct shm_threads_group {
    struct shm_threads_group *next;
    const void *parent; /* the control block of the parent */
    int ranks_n;
    int *ranks;
    bool *joined;
    void *memory;
};

struct shm_threads_world {
    int nodes, locals;
    void *memory;
    pthread_mutex_t mutex;
    struct shm_threads_group *groups;
};

struct shm_threads_world *shm_threads_world_new(int nodes, int locals)
{
    int64_t ranks = (int64_t)nodes * locals;
    ASSERTF(nodes >= 1 && locals >= 1 && ranks <= SHM_BARRIER_RANKS_MAX, "%d nodes of %d ranks",
            nodes, locals);
    struct shm_threads_world *world = memory_new(1, sizeof(*world));
    world->nodes = nodes;
    world->locals = locals;
    if (transport_reserve(shm_barrier_bytes((int)ranks), &world->memory) != ST_OK) {
        free(world);
        return NULL;
    }
    pthread_mutex_init(&world->mutex, NULL);
    return world;
}

static void group_free(struct shm_threads_group *group)
{
    transport_unmap(group->memory, shm_barrier_bytes(group->ranks_n));
    free(group->ranks);
    free(group->joined);
    free(group);
}

void shm_threads_world_free(struct shm_threads_world *world)
{
    if (world == NULL)
        return;
    for (struct shm_threads_group *group = world->groups, *next; group != NULL; group = next) {
        next = group->next;
        group_free(group);
    }
    transport_unmap(world->memory, shm_barrier_bytes(world->nodes * world->locals));
    pthread_mutex_destroy(&world->mutex);
    free(world);
}

/* Sets the state of a ctx over an existing control block. */
static void attach_coll(struct comm_ctx *ctx, void *memory)
{
    ctx->state = memory_new(1, sizeof(struct shm_coll));
    shm_coll_init(ctx->state, memory, &ctx->config.place);
}

static enum status begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    (void)address;
    const struct comm_place *place = &ctx->config.place;
    const struct shm_threads_world *world = ctx->config.threads;
    if (world == NULL || world->nodes != place->nodes || world->locals != place->locals)
        return FAIL(ST_BUG, "rank %d of %d nodes × %d workers opens a world of %d × %d",
                    place->rank, place->nodes, place->locals, world != NULL ? world->nodes : 0,
                    world != NULL ? world->locals : 0);
    *address_bytes = 0;
    attach_coll(ctx, world->memory);
    return ST_OK;
}

static enum status end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    (void)addresses, (void)bytes;
    return shm_coll_run(ctx->state, ctx, ctx->call);
}

static void ctx_close(struct comm_ctx *ctx)
{
    struct shm_coll *coll = ctx->state;
    if (coll == NULL)
        return;
    shm_coll_free(coll);
    free(coll);
    ctx->state = NULL;
}

static struct shm_threads_group *group_new(const void *parent, const int *ranks, int ranks_n)
{
    struct shm_threads_group *group = memory_new(1, sizeof(*group));
    *group = (struct shm_threads_group){.parent = parent,
                                        .ranks_n = ranks_n,
                                        .ranks = memory_new((size_t)ranks_n, sizeof(*ranks)),
                                        .joined = memory_new((size_t)ranks_n, sizeof(bool))};
    if (transport_reserve(shm_barrier_bytes(ranks_n), &group->memory) != ST_OK) {
        group_free(group);
        return NULL;
    }
    memcpy(group->ranks, ranks, (size_t)ranks_n * sizeof(*ranks));
    return group;
}

/* Returns the oldest group of these ranks that this rank has not joined, else a new one. The caller
 * holds the world's lock. */
static struct shm_threads_group *group_join(struct shm_threads_world *world, const void *parent,
                                            const int *ranks, int n, int rank)
{
    struct shm_threads_group **end = &world->groups;
    for (; *end != NULL; end = &(*end)->next) {
        struct shm_threads_group *group = *end;
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

static enum status split(struct comm_ctx *ctx)
{
    struct shm_threads_world *world = ctx->config.threads;
    const struct shm_coll *parent = ctx->parent->state;
    const struct comm_place *place = &ctx->config.place;
    pthread_mutex_lock(&world->mutex);
    struct shm_threads_group *group =
        group_join(world, parent->barrier.peers, ctx->ranks, place->ranks, place->rank);
    pthread_mutex_unlock(&world->mutex);
    if (group == NULL)
        return FAIL(ST_RETRY, "out of memory: a split of %d ranks", place->ranks);
    attach_coll(ctx, group->memory);
    return ST_OK;
}

static enum transport_entered entered(const struct comm_ctx *ctx, int rank)
{
    const struct shm_coll *coll = ctx->state;
    return shm_barrier_entered(&coll->barrier, ctx->call, rank);
}

static enum status run(struct comm_ctx *ctx, const struct comm_call *call)
{
    return shm_coll_run(ctx->state, ctx, call);
}

const struct transport_ops shm_threads_ops = {
    .name = "threads",
    .begin_open = begin_open,
    .end_open = end_open,
    .split = split,
    .close = ctx_close,
    .run = run,
    .entered = entered,
};
