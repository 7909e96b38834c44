/* comm_shm — the mapping, its control blocks, and the ctx that the workers of a node have among
 * themselves. Must not know networks.
 *
 * Layout of the mapping:
 *   struct control | control block of all workers | splits_n control blocks for splits |
 *   from `data` on: the memory of comm_alloc
 * It is sparse: untouched pages need no memory. Addresses are reserved once, so that the base stays
 * the same while the mapping grows. Buffers are identified by their offset from the base. */
#include "comm/shm/shm.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"

/* Most splits at a time. Splits are groups of two to all workers of a node, so of each kind (an
 * axis of a mesh, the neighbours of a store, the ends of a pipeline …) there are at most half as
 * many as workers on the node. A block uses addresses, which `ulimit -v` counts: few workers have
 * few blocks. */
#define SPLITS 128
#define SPLITS_MIN 16
#define SPLITS_EACH 8 /* control blocks for each worker of a node: sixteen kinds of splits */
#define ALLOC_ALIGN ((int64_t)2 << 20)
#define RESERVE ((int64_t)1 << 40) /* addresses, not memory; halved until mmap succeeds */
#define RESERVE_MIN ((int64_t)1 << 28)

/* A split's control block. Its members find it under control.lock. The lock holds the generation of
 * its holder, so a worker that died with the lock does not block the next generation. */
struct split_block {
    /* the generation that uses the block; if it is an earlier one, the block is free */
    uint64_t generation;
    uint64_t members, joined, left; /* a bit for each of the node's workers */
    uint64_t parent, tag;           /* tag of the parent's block, and of this one */
};
struct control {
    _Atomic uint64_t lock;
    uint64_t tags; /* tags assigned to splits so far */
    struct split_block splits[SPLITS];
};

struct mapping {
    char *base;
    int64_t reserved, data, used; /* comm_alloc uses [data, used) */
    int fd;
    bool owns_fd;
};

struct comm_shm {
    struct comm_ctx ctx; /* this node's workers among themselves; its parent is the owner */
    struct comm_ctx *owner;
    struct shm_coll coll;
    struct mapping *mapping; /* shared by the root and its splits */
    struct comm_shm *parent;
    int split_i;    /* a split's index in control.splits */
    int node_local; /* this worker's number on its node */
    int ranks[COMM_SHM_LOCALS_MAX];
    int node_locals[COMM_SHM_LOCALS_MAX]; /* each member's number on its node */
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
}
static struct control *control_of(const struct mapping *m)
{
    return (struct control *)(void *)m->base;
}
static int splits_n(int locals)
{
    int n = SPLITS_EACH * locals;
    return n < SPLITS_MIN ? SPLITS_MIN : n > SPLITS ? SPLITS : n;
}
static int64_t barrier_offset(int locals, int i)
{
    const int64_t each = (shm_barrier_bytes(locals) + 4095) / 4096 * 4096;
    return 16384 + each * i;
}

static enum status map_at(const struct mapping *m, int64_t offset, int64_t bytes)
{
    const int64_t end = offset + bytes;
    const char none = 0;
    /* The file only grows, because another worker may have grown it further. The byte is written
     * after all allocations. */
    if (pwrite(m->fd, &none, 1, end - 1) != 1)
        return FAIL(errno == EFBIG ? ST_STORE : memory_status(end),
                    "cannot enlarge the memory that workers share to %lld bytes: %s%s",
                    (long long)end, strerror(errno),
                    errno == EFBIG ? "; raise the limit of a file's size (ulimit -f)" : "");
    if (end > m->reserved || mmap(m->base + offset, (size_t)bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_FIXED, m->fd, offset) == MAP_FAILED)
        return FAIL(end > m->reserved ? ST_BAD_SETTING : memory_status(bytes),
                    "cannot map %lld bytes of the memory that workers share: %s", (long long)bytes,
                    end > m->reserved ? "no addresses left; raise ulimit -v" : strerror(errno));
    madvise(m->base + offset, (size_t)bytes, MADV_HUGEPAGE);
    return ST_OK;
}

static enum status reserve_addresses(struct mapping *m)
{
    void *base = MAP_FAILED;
    struct memory_limits available;
    memory_limits(&available);
    m->reserved = RESERVE;
    while (available.process_bytes >= 0 && m->reserved > available.process_bytes / 2 &&
           m->reserved > RESERVE_MIN)
        m->reserved /= 2; /* the other half is for memory that is not shared */
    for (; base == MAP_FAILED && m->reserved >= RESERVE_MIN; m->reserved /= 2)
        base = mmap(NULL, (size_t)m->reserved, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return FAIL(memory_status(RESERVE_MIN),
                    "no addresses for the memory that workers share: %s; raise ulimit -v",
                    strerror(errno));
    m->reserved *= 2; /* undo the last halving of the loop */
    int64_t skip =
        (ALLOC_ALIGN - (int64_t)((uintptr_t)base % (uintptr_t)ALLOC_ALIGN)) % ALLOC_ALIGN;
    if (skip > 0)
        munmap(base, (size_t)skip);
    m->base = (char *)base + skip;
    m->reserved -= skip;
    return ST_OK;
}

static enum status mapping_open(int fd, int locals, struct mapping **out)
{
    struct mapping *m = memory_new(1, sizeof(*m));
    enum status st = ST_OK;
    m->owns_fd = fd < 0;
    m->fd = fd >= 0 ? fd : memfd_create("convoy-comm", MFD_CLOEXEC);
    if (m->fd < 0) {
        st = FAIL(ST_RETRY, "cannot create memory for workers to share: %s", strerror(errno));
        free(m);
        return st;
    }
    _Static_assert(sizeof(struct control) <= 16384, "the control blocks begin after it");
    m->data = round_up(barrier_offset(locals, splits_n(locals) + 1));
    m->used = m->data;
    st = reserve_addresses(m);
    if (st == ST_OK)
        st = map_at(m, 0, m->data);
    if (st != ST_OK) {
        if (m->base != NULL)
            munmap(m->base, (size_t)m->reserved);
        if (m->owns_fd)
            close(m->fd);
        free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

/* ---- the ctx of a node's workers ---- */

/* Continues a call of the owner here: same call, deadline, generation and wait policy. */
static struct comm_ctx *enter_call(struct comm_shm *shm, const struct comm_call *call)
{
    shm->ctx.call = call;
    shm->ctx.wait_policy = shm->owner->wait_policy;
    shm->ctx.generation = shm->owner->generation;
    return &shm->ctx;
}

static enum transport_entered entered(const struct comm_ctx *ctx, int rank)
{
    const struct comm_shm *shm = ctx->state;
    return shm != NULL ? shm_barrier_entered(&shm->coll.barrier, ctx->call, rank)
                       : TRANSPORT_ENTERED_UNKNOWN;
}

/* The table of that ctx: only `entered` is called. */
static const struct transport_ops node_ops = {.name = "shm", .entered = entered};

/* Sets the ctx: its ranks are the owner's ranks on this node, in order. */
static void set_ctx(struct comm_shm *shm, struct comm_ctx *owner)
{
    const struct comm_place *place = &owner->config.place;
    shm->owner = owner;
    shm->ctx = (struct comm_ctx){.ops = &node_ops,
                                 .config = owner->config,
                                 .generation = owner->generation,
                                 .parent = owner,
                                 .ranks = shm->ranks,
                                 .state = shm,
                                 .closing = owner->closing};
    shm->ctx.config.place = (struct comm_place){.rank = place->local,
                                                .ranks = place->locals,
                                                .nodes = 1,
                                                .local = place->local,
                                                .locals = place->locals};
    for (int l = 0; l < place->locals; l++)
        shm->ranks[l] = place->node * place->locals + l;
}

/* Makes the mapping visible up to the last allocation: other workers of the node see it. */
static void set_visible_range(struct comm_shm *shm)
{
    shm->coll.barrier.base = (uintptr_t)shm->mapping->base;
    shm->coll.barrier.limit = (uintptr_t)shm->mapping->base + (uintptr_t)shm->mapping->used;
}

enum status comm_shm_open(struct comm_ctx *owner, struct comm_shm **out)
{
    const struct comm_place *place = &owner->config.place;
    if (place->locals > COMM_SHM_LOCALS_MAX)
        return FAIL(ST_BUG, "%d workers on a node, over %d", place->locals, COMM_SHM_LOCALS_MAX);
    if (place->locals > 1 && owner->config.shm_fd < 0)
        return FAIL(ST_BUG, "%d workers on a node and no shared memory (shm_fd)", place->locals);
    struct comm_shm *shm = memory_new(1, sizeof(*shm));
    set_ctx(shm, owner);
    shm->node_local = place->local;
    for (int l = 0; l < place->locals; l++)
        shm->node_locals[l] = l;
    enum status st = mapping_open(owner->config.shm_fd, place->locals, &shm->mapping);
    if (st != ST_OK) {
        free(shm);
        return st;
    }
    shm_coll_init(&shm->coll, shm->mapping->base + barrier_offset(place->locals, 0),
                  &shm->ctx.config.place);
    set_visible_range(shm);
    *out = shm;
    return ST_OK;
}

enum status comm_shm_join(struct comm_shm *shm)
{
    struct comm_ctx *ctx = enter_call(shm, shm->owner->call);
    return shm_barrier_join(&shm->coll.barrier, ctx, (uint64_t)shm->owner->generation + 1);
}

/* ---- splits ---- */

static enum status lock_control(struct comm_shm *shm)
{
    struct control *control = control_of(shm->mapping);
    const uint64_t mine = (uint64_t)shm->owner->generation + 1;
    for (;;) {
        uint64_t held = atomic_load_explicit(&control->lock, memory_order_relaxed);
        if (held != mine &&
            atomic_compare_exchange_strong_explicit(&control->lock, &held, mine,
                                                    memory_order_acquire, memory_order_relaxed))
            return ST_OK;
        TRY(transport_check(&shm->ctx));
        sched_yield();
    }
}

static void unlock_control(struct comm_shm *shm)
{
    atomic_store_explicit(&control_of(shm->mapping)->lock, 0, memory_order_release);
}

/* Returns the number of workers of the node, also those outside a split. */
static int node_locals_n(const struct comm_shm *shm)
{
    while (shm->parent != NULL)
        shm = shm->parent;
    return shm->coll.barrier.n;
}

/* Returns the block of a split of these members that this worker has not joined yet, else a new
 * one. NULL: all are in use. */
static struct split_block *find_split(struct comm_shm *parent, uint64_t members, uint64_t me)
{
    struct control *control = control_of(parent->mapping);
    const uint64_t generation = (uint64_t)parent->owner->generation + 1,
                   parent_tag = parent->coll.barrier.tag;
    struct split_block *free_one = NULL;
    for (int i = 0; i < splits_n(node_locals_n(parent)); i++) {
        struct split_block *block = &control->splits[i];
        if (block->generation != generation ||
            (block->joined == block->members && block->left == block->members))
            free_one = free_one == NULL ? block : free_one;
        else if (block->members == members && block->parent == parent_tag &&
                 (block->joined & me) == 0)
            return block;
    }
    if (free_one != NULL)
        *free_one = (struct split_block){.generation = generation,
                                         .members = members,
                                         .parent = parent_tag,
                                         .tag = (uint64_t)1 << 63 | ++control->tags};
    return free_one;
}

static enum status join_split(struct comm_shm *shm, uint64_t members)
{
    struct comm_shm *parent = shm->parent;
    struct control *control = control_of(shm->mapping);
    const uint64_t me = (uint64_t)1 << shm->node_local;
    const int locals = node_locals_n(parent);
    enter_call(parent, shm->owner->call);
    TRY(lock_control(parent));
    struct split_block *block = find_split(parent, members, me);
    uint64_t tag = block != NULL ? block->tag : 0;
    if (block != NULL)
        block->joined |= me;
    unlock_control(parent);
    if (block == NULL)
        return FAIL(ST_BUG, "more than %d splits with workers of one node at a time",
                    splits_n(locals));
    shm->split_i = (int)(block - control->splits);
    shm_coll_init(&shm->coll, shm->mapping->base + barrier_offset(locals, 1 + shm->split_i),
                  &shm->ctx.config.place);
    set_visible_range(shm);
    return shm_barrier_join(&shm->coll.barrier, enter_call(shm, shm->owner->call), tag);
}

enum status comm_shm_split(struct comm_shm *parent, struct comm_ctx *owner, struct comm_shm **out)
{
    const struct comm_place *place = &owner->config.place;
    struct comm_shm *shm = memory_new(1, sizeof(*shm));
    set_ctx(shm, owner);
    shm->parent = parent;
    shm->mapping = parent->mapping;
    shm->node_local = parent->node_local;
    shm->split_i = -1;
    uint64_t members = 0;
    for (int l = 0; l < place->locals; l++) {
        /* the member's local number in the parent leads to its number on the node */
        int among = owner->ranks[shm->ranks[l]] % parent->owner->config.place.locals;
        shm->node_locals[l] = parent->node_locals[among];
        members |= (uint64_t)1 << shm->node_locals[l];
    }
    enum status st = join_split(shm, members);
    if (st != ST_OK) {
        comm_shm_close(shm);
        return st;
    }
    *out = shm;
    return ST_OK;
}

void comm_shm_close(struct comm_shm *shm)
{
    if (shm == NULL)
        return;
    if (shm->parent != NULL) {
        /* A block is free again when all members have left. If this worker cannot get the lock, the
         * next generation frees it. */
        static const struct comm_call closing = {.kind = COMM_CALL_SPLIT};
        struct comm_call call = closing;
        struct status_saved saved;
        status_save(&saved);
        call.entered_ns = clock_ns();
        enter_call(shm, &call);
        if (shm->split_i >= 0 && lock_control(shm) == ST_OK) {
            control_of(shm->mapping)->splits[shm->split_i].left |= (uint64_t)1 << shm->node_local;
            unlock_control(shm);
        }
        status_restore(&saved);
    } else {
        munmap(shm->mapping->base, (size_t)shm->mapping->reserved);
        if (shm->mapping->owns_fd)
            close(shm->mapping->fd);
        free(shm->mapping);
    }
    shm_coll_free(&shm->coll);
    free(shm);
}

/* ---- memory ---- */

/* Allocates the workers' memory in one range, one after the other. The page after it holds the byte
 * that grew the file. */
enum status comm_shm_alloc(struct comm_shm *shm, int64_t bytes, void **out)
{
    if (shm == NULL || shm->ctx.config.place.ranks == 1 || dev_is_discrete(shm->ctx.config.dev))
        return ST_OK;
    struct mapping *m = shm->mapping;
    const struct comm_place *place = &shm->ctx.config.place;
    const int64_t each = round_up(bytes), all = each * place->ranks + ALLOC_ALIGN;
    struct comm_ctx *ctx = enter_call(shm, shm->owner->call);
    if (bytes > RESERVE / place->ranks)
        return FAIL(ST_BAD_SETTING, "out of memory: %lld bytes for each of %d workers to share",
                    (long long)bytes, place->ranks);
    TRY(map_at(m, m->used, all));
    char *first = m->base + m->used, *mine = first + each * place->rank;
    m->used += all;
    set_visible_range(shm);
#ifdef MADV_POPULATE_WRITE
    if (madvise(mine, (size_t)each, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
        return FAIL(memory_status(bytes), "out of memory: %lld bytes for workers to share: %s",
                    (long long)bytes, strerror(errno));
#endif
    memset(mine, 0, (size_t)bytes); /* values of an earlier generation */
    TRY(shm_coll_run(&shm->coll, ctx, ctx->call));
#ifdef MADV_POPULATE_WRITE
    /* maps the other workers' memory into this process's page table */
    madvise(first, (size_t)(each * place->ranks), MADV_POPULATE_WRITE);
#endif
    *out = mine;
    return ST_OK;
}

/* ---- the level inside a node ---- */

enum status comm_shm_reduce(struct comm_shm *shm, const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out)
{
    return shm_coll_reduce(&shm->coll, enter_call(shm, call), call, partition, out, dtype_out);
}

enum status comm_shm_gather(struct comm_shm *shm, const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in)
{
    return shm_coll_gather(&shm->coll, enter_call(shm, call), call, partition, in);
}

/* Runs a broadcast. The call on this level has the root's local number instead of its rank. */
enum status comm_shm_broadcast(struct comm_shm *shm, const struct comm_call *call, int root)
{
    struct comm_call mine = *call;
    mine.peer = root;
    enum status st = shm_coll_run(&shm->coll, enter_call(shm, &mine), &mine);
    shm->ctx.call = call;
    return st;
}

/* ---- the transport of one node ---- */

static enum status begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    (void)address;
    *address_bytes = 0;
    struct comm_shm *shm = NULL;
    TRY(comm_shm_open(ctx, &shm));
    ctx->state = shm;
    return ST_OK;
}

static enum status end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    (void)addresses, (void)bytes;
    return comm_shm_join(ctx->state);
}

static void ctx_close(struct comm_ctx *ctx)
{
    comm_shm_close(ctx->state);
    ctx->state = NULL;
}

static enum status alloc(struct comm_ctx *ctx, int64_t bytes, void **out)
{
    return comm_shm_alloc(ctx->state, bytes, out);
}

static enum status split(struct comm_ctx *ctx)
{
    struct comm_shm *shm = NULL;
    TRY(comm_shm_split(ctx->parent->state, ctx, &shm));
    ctx->state = shm;
    return ST_OK;
}

static enum status run(struct comm_ctx *ctx, const struct comm_call *call)
{
    struct comm_shm *shm = ctx->state;
    return shm_coll_run(&shm->coll, enter_call(shm, call), call);
}

const struct transport_ops comm_shm_ops = {
    .name = "shm",
    .begin_open = begin_open,
    .end_open = end_open,
    .split = split,
    .close = ctx_close,
    .alloc = alloc,
    .run = run,
    .entered = entered,
};
