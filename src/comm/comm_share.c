/* comm_share — the mapping, its halls, and the wire that the workers of a node are among
 * themselves.
 *
 * The mapping: struct control | hall of all workers | GROUPS halls for groups | from `data` on,
 *   comm_alloc's pieces. Everything is sparse: a page that nobody touches takes no memory. A
 *   reservation of addresses is made once, so pieces keep one base, and buffers are named by their
 *   distance from it. Must not know networks. */
#include "comm/comm_share.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/must.h"

#define GROUPS 32
#define PIECE_ALIGN ((int64_t)2 << 20)
#define RESERVE ((int64_t)1 << 40) /* of addresses, not of memory; halved until the system agrees */
#define RESERVE_LEAST ((int64_t)1 << 28)

/* Halls of groups: found by their members under the lock, which holds the tag of its holder's
 * generation: one that died with it does not block the next. */
struct group {
    uint64_t generation;            /* whose group this is; another generation's is free */
    uint64_t members, joined, left; /* of the node's workers, bit by bit */
    uint64_t parent, tag;           /* the parent's tag */
};
struct control {
    _Atomic uint64_t lock;
    uint64_t tags; /* dealt to groups so far */
    struct group groups[GROUPS];
};

struct mapping {
    char *base;
    int64_t reserved, data, used; /* data: where pieces begin; used: their end */
    int fd;
    bool owns_fd;
};

struct comm_share {
    struct comm_wire wire; /* the node's workers among themselves, below the owner's */
    struct comm_wire *owner;
    struct comm_moves moves;
    struct mapping *mapping; /* of the first; shared with those made from it */
    struct comm_share *parent;
    int group_i;    /* of a sub */
    int node_local; /* this worker's number on its node */
    int ranks[COMM_SHARE_LOCALS_MAX];
    int node_locals[COMM_SHARE_LOCALS_MAX]; /* each member's number on its node */
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
}
static int64_t hall_bytes(int locals) { return (comm_hall_bytes(locals) + 4095) / 4096 * 4096; }
static struct control *control_of(const struct mapping *m)
{
    return (struct control *)(void *)m->base;
}
static int64_t hall_offset(int locals, int i) { return 16384 + hall_bytes(locals) * i; }

/* The file only grows: another worker may be ahead. The byte written is past every piece's end. */
static enum status grow(const struct mapping *m, int64_t bytes)
{
    const char none = 0;
    if (pwrite(m->fd, &none, 1, bytes - 1) != 1)
        return FAIL(errno == EFBIG ? ST_STORE : memory_status(bytes),
                    "cannot enlarge the memory that workers share to %lld bytes: %s%s",
                    (long long)bytes, strerror(errno),
                    errno == EFBIG ? "; raise the limit of a file's size (ulimit -f)" : "");
    return ST_OK;
}

static enum status map_at(const struct mapping *m, int64_t offset, int64_t bytes)
{
    TRY(grow(m, offset + bytes));
    if (offset + bytes > m->reserved ||
        mmap(m->base + offset, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->fd,
             offset) == MAP_FAILED)
        return FAIL(offset + bytes > m->reserved ? ST_BAD_SETTING : memory_status(bytes),
                    "cannot map %lld bytes of the memory that workers share: %s", (long long)bytes,
                    offset + bytes > m->reserved ? "no addresses left; raise ulimit -v"
                                                 : strerror(errno));
    madvise(m->base + offset, (size_t)bytes, MADV_HUGEPAGE);
    return ST_OK;
}

static enum status reserve(struct mapping *m)
{
    void *base = MAP_FAILED;
    struct memory_room room;
    memory_room(&room);
    m->reserved = RESERVE;
    while (room.process_bytes >= 0 && m->reserved > room.process_bytes / 2 &&
           m->reserved > RESERVE_LEAST)
        m->reserved /= 2; /* the other half is for what is not shared */
    for (; base == MAP_FAILED && m->reserved >= RESERVE_LEAST; m->reserved /= 2)
        base = mmap(NULL, (size_t)m->reserved, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return FAIL(memory_status(RESERVE_LEAST),
                    "no addresses for the memory that workers share: %s; raise ulimit -v",
                    strerror(errno));
    m->reserved *= 2; /* the loop halved once more */
    int64_t skip =
        (PIECE_ALIGN - (int64_t)((uintptr_t)base % (uintptr_t)PIECE_ALIGN)) % PIECE_ALIGN;
    if (skip > 0)
        munmap(base, (size_t)skip);
    m->base = (char *)base + skip;
    m->reserved -= skip;
    return ST_OK;
}

static enum status mapping_open(int fd, int locals, struct mapping **out)
{
    struct mapping *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return FAIL(ST_RETRY, "out of memory: a mapping");
    enum status st = ST_OK;
    m->owns_fd = fd < 0;
    m->fd = fd >= 0 ? fd : memfd_create("convoy-comm", MFD_CLOEXEC);
    if (m->fd < 0) {
        st = FAIL(ST_RETRY, "cannot make memory for workers to share: %s", strerror(errno));
        free(m);
        return st;
    }
    _Static_assert(sizeof(struct control) <= 16384, "the halls begin after it");
    m->data = round_up(hall_offset(locals, GROUPS + 1));
    m->used = m->data;
    st = reserve(m);
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

static void mapping_close(struct mapping *m)
{
    munmap(m->base, (size_t)m->reserved);
    if (m->owns_fd)
        close(m->fd);
    free(m);
}

/* ---- the wire of a node's workers ---- */

/* The calls of the transport above go on under its name and number, with its deadline. */
static struct comm_wire *enter(struct comm_share *share, const struct comm_call *call)
{
    share->wire.call = call;
    share->wire.spins = share->owner->spins;
    share->wire.config.generation = share->owner->config.generation;
    return &share->wire;
}

static int entered(const struct comm_wire *wire, int rank)
{
    const struct comm_share *share = wire->state;
    return comm_hall_entered(&share->moves.hall, wire->call, rank);
}

/* Entries of the wire inside: only `entered` is asked. */
static const struct comm_ops inside_ops = {
    .kind = COMM_KIND_UCX, .name = "shm", .entered = entered};

/* The members on this node of owner's ranks: its place's locals, one after the other. */
static void set_wire(struct comm_share *share, struct comm_wire *owner)
{
    const struct comm_place *place = &owner->config.place;
    share->owner = owner;
    share->wire = (struct comm_wire){.ops = &inside_ops,
                                     .config = owner->config,
                                     .parent = owner,
                                     .ranks = share->ranks,
                                     .state = share,
                                     .closing = owner->closing};
    share->wire.config.place = (struct comm_place){.rank = place->local,
                                                   .ranks = place->locals,
                                                   .nodes = 1,
                                                   .local = place->local,
                                                   .locals = place->locals};
    for (int l = 0; l < place->locals; l++)
        share->ranks[l] = place->node * place->locals + l;
}

/* What others of this node see: the mapping as far as it is dealt out. */
static void set_sight(struct comm_share *share)
{
    share->moves.hall.base = (uintptr_t)share->mapping->base;
    share->moves.hall.limit = (uintptr_t)share->mapping->base + (uintptr_t)share->mapping->used;
}

enum status comm_share_open(struct comm_wire *owner, struct comm_share **out)
{
    const struct comm_place *place = &owner->config.place;
    if (place->locals > COMM_SHARE_LOCALS_MAX)
        return FAIL(ST_BUG, "%d workers on a node, over %d", place->locals, COMM_SHARE_LOCALS_MAX);
    if (place->locals > 1 && owner->config.share_fd < 0)
        return FAIL(ST_BUG, "%d workers on a node and nothing to share", place->locals);
    struct comm_share *share = calloc(1, sizeof(*share));
    if (share == NULL)
        return FAIL(ST_RETRY, "out of memory: the view of rank %d", place->rank);
    set_wire(share, owner);
    share->node_local = place->local;
    for (int l = 0; l < place->locals; l++)
        share->node_locals[l] = l;
    enum status st = mapping_open(owner->config.share_fd, place->locals, &share->mapping);
    if (st == ST_OK)
        st = comm_moves_init(&share->moves, share->mapping->base + hall_offset(place->locals, 0), 1,
                             place->locals, place->local);
    if (st != ST_OK) {
        if (share->mapping != NULL)
            mapping_close(share->mapping);
        free(share);
        return st;
    }
    set_sight(share);
    *out = share;
    return ST_OK;
}

enum status comm_share_join(struct comm_share *share)
{
    struct comm_wire *wire = enter(share, share->owner->call);
    return comm_hall_join(&share->moves.hall, wire, (uint64_t)share->owner->config.generation + 1);
}

/* ---- groups ---- */

static enum status lock(struct comm_share *share)
{
    struct control *control = control_of(share->mapping);
    const uint64_t mine = (uint64_t)share->owner->config.generation + 1;
    for (;;) {
        uint64_t held = atomic_load_explicit(&control->lock, memory_order_relaxed);
        if (held != mine &&
            atomic_compare_exchange_strong_explicit(&control->lock, &held, mine,
                                                    memory_order_acquire, memory_order_relaxed))
            return ST_OK;
        TRY(comm_ops_check(&share->wire));
        sched_yield();
    }
}

static void unlock(struct comm_share *share)
{
    atomic_store_explicit(&control_of(share->mapping)->lock, 0, memory_order_release);
}

static bool is_free(const struct group *group, uint64_t generation)
{
    return group->generation != generation ||
           (group->joined == group->members && group->left == group->members);
}

/* The group of these members that this worker has not joined yet, else a new one; NULL when all are
 * taken. */
static struct group *find_group(struct comm_share *parent, uint64_t members, uint64_t me)
{
    struct control *control = control_of(parent->mapping);
    const uint64_t generation = (uint64_t)parent->owner->config.generation + 1,
                   of = parent->moves.hall.tag;
    struct group *free_one = NULL;
    for (int i = 0; i < GROUPS; i++) {
        struct group *group = &control->groups[i];
        if (is_free(group, generation))
            free_one = free_one == NULL ? group : free_one;
        else if (group->members == members && group->parent == of && (group->joined & me) == 0)
            return group;
    }
    if (free_one != NULL)
        *free_one = (struct group){.generation = generation,
                                   .members = members,
                                   .parent = of,
                                   .tag = (uint64_t)1 << 63 | ++control->tags};
    return free_one;
}

static enum status join_group(struct comm_share *share, uint64_t members)
{
    struct comm_share *parent = share->parent;
    struct control *control = control_of(share->mapping);
    const uint64_t me = (uint64_t)1 << share->node_local;
    enter(parent, share->owner->call);
    TRY(lock(parent));
    struct group *group = find_group(parent, members, me);
    uint64_t tag = group != NULL ? group->tag : 0;
    if (group != NULL)
        group->joined |= me;
    unlock(parent);
    if (group == NULL)
        return FAIL(ST_BUG, "more than %d groups of workers on a node at a time", GROUPS);
    share->group_i = (int)(group - control->groups);
    struct comm_share *first = parent;
    while (first->parent != NULL)
        first = first->parent;
    const int locals = first->moves.hall.n, n = share->wire.config.place.ranks;
    TRY(comm_moves_init(&share->moves,
                        share->mapping->base + hall_offset(locals, 1 + share->group_i), 1, n,
                        share->wire.config.place.rank));
    set_sight(share);
    return comm_hall_join(&share->moves.hall, enter(share, share->owner->call), tag);
}

enum status comm_share_sub(struct comm_share *parent, struct comm_wire *owner,
                           struct comm_share **out)
{
    const struct comm_place *place = &owner->config.place;
    struct comm_share *share = calloc(1, sizeof(*share));
    if (share == NULL)
        return FAIL(ST_RETRY, "out of memory: the view of rank %d", place->rank);
    set_wire(share, owner);
    share->parent = parent;
    share->mapping = parent->mapping;
    share->node_local = parent->node_local;
    share->group_i = -1;
    uint64_t members = 0;
    for (int l = 0; l < place->locals; l++) {
        /* the member's number in the parent, there its number on the node */
        int among = owner->ranks[share->ranks[l]] % parent->owner->config.place.locals;
        share->node_locals[l] = parent->node_locals[among];
        members |= (uint64_t)1 << share->node_locals[l];
    }
    enum status st = join_group(share, members);
    if (st != ST_OK) {
        comm_share_close(share);
        return st;
    }
    *out = share;
    return ST_OK;
}

/* A group's hall is free again when all have left; who cannot have the lock leaves that to the next
 * generation. */
static void leave_group(struct comm_share *share)
{
    static const struct comm_call closing = {.kind = COMM_CALL_SUB};
    struct comm_call call = closing;
    struct status_saved saved;
    status_keep(&saved);
    call.entered_ns = clock_ns();
    enter(share, &call);
    if (share->group_i >= 0 && lock(share) == ST_OK) {
        control_of(share->mapping)->groups[share->group_i].left |= (uint64_t)1 << share->node_local;
        unlock(share);
    }
    status_back(&saved);
}

void comm_share_close(struct comm_share *share)
{
    if (share == NULL)
        return;
    if (share->parent != NULL)
        leave_group(share);
    else
        mapping_close(share->mapping);
    comm_moves_free(&share->moves);
    free(share);
}

/* ---- memory ---- */

/* Pieces lie worker by worker; the page after them holds the byte that grew the file. */
enum status comm_share_alloc(struct comm_share *share, int64_t bytes, void **out)
{
    struct mapping *m = share->mapping;
    const struct comm_place *place = &share->wire.config.place;
    const int64_t each = round_up(bytes), all = each * place->ranks + PIECE_ALIGN;
    struct comm_wire *wire = enter(share, share->owner->call);
    if (bytes > RESERVE / place->ranks)
        return FAIL(ST_BAD_SETTING, "out of memory: %lld bytes for each of %d workers to share",
                    (long long)bytes, place->ranks);
    TRY(map_at(m, m->used, all));
    char *first = m->base + m->used, *mine = first + each * place->rank;
    m->used += all;
    set_sight(share);
#ifdef MADV_POPULATE_WRITE
    if (madvise(mine, (size_t)each, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
        return FAIL(memory_status(bytes), "out of memory: %lld bytes for workers to share: %s",
                    (long long)bytes, strerror(errno));
#endif
    memset(mine, 0, (size_t)bytes); /* an earlier life's words */
    TRY(comm_moves_barrier(&share->moves, wire, share->owner->call));
#ifdef MADV_POPULATE_WRITE
    /* the others' pieces into this one's page table */
    madvise(first, (size_t)(each * place->ranks), MADV_POPULATE_WRITE);
#endif
    *out = mine;
    return ST_OK;
}

void comm_share_range(const struct comm_share *share, void **data, int64_t *bytes)
{
    *data = share->mapping->base;
    *bytes = share->mapping->used;
}

/* ---- parts of a transport's collectives ---- */

enum status comm_share_reduce(struct comm_share *share, const struct comm_call *call,
                              const struct comm_moves_cut *cut, void *out, enum dtype dtype_out)
{
    return comm_moves_reduce(&share->moves, enter(share, call), call, cut, out, dtype_out);
}

enum status comm_share_gather(struct comm_share *share, const struct comm_call *call,
                              const struct comm_moves_cut *cut, const void *in)
{
    return comm_moves_gather(&share->moves, enter(share, call), call, cut, in);
}

enum status comm_share_barrier(struct comm_share *share, const struct comm_call *call)
{
    return comm_moves_barrier(&share->moves, enter(share, call), call);
}

/* With another peer than comm.c's, as the others here see it. */
static enum status with_peer(struct comm_share *share, const struct comm_call *call, int peer,
                             enum status (*move)(struct comm_moves *, struct comm_wire *,
                                                 const struct comm_call *))
{
    struct comm_call mine = *call;
    mine.peer = peer;
    enum status st = move(&share->moves, enter(share, &mine), &mine);
    share->wire.call = call;
    return st;
}

enum status comm_share_broadcast(struct comm_share *share, const struct comm_call *call, int root)
{
    return with_peer(share, call, root, comm_moves_broadcast);
}
enum status comm_share_send(struct comm_share *share, const struct comm_call *call, int to)
{
    return with_peer(share, call, to, comm_moves_send);
}
enum status comm_share_recv(struct comm_share *share, const struct comm_call *call, int from)
{
    return with_peer(share, call, from, comm_moves_recv);
}

/* ---- the whole transport, where there is one node ---- */

static enum status begin_open(struct comm_wire *wire, void *address, int64_t *address_bytes)
{
    (void)address;
    *address_bytes = 0;
    struct comm_share *share = NULL;
    TRY(comm_share_open(wire, &share));
    wire->state = share;
    return ST_OK;
}

static enum status end_open(struct comm_wire *wire, const void *addresses, const int64_t *bytes)
{
    (void)addresses, (void)bytes;
    return comm_share_join(wire->state);
}

static void wire_close(struct comm_wire *wire)
{
    comm_share_close(wire->state);
    wire->state = NULL;
}

static const char *describe(const struct comm_wire *wire)
{
    (void)wire;
    return "ucx (shm)";
}

static enum status alloc(struct comm_wire *wire, int64_t bytes, void **out)
{
    return comm_share_alloc(wire->state, bytes, out);
}

static enum status sub(struct comm_wire *wire)
{
    struct comm_share *share = NULL;
    TRY(comm_share_sub(wire->parent->state, wire, &share));
    wire->state = share;
    return ST_OK;
}

static int entered_all(const struct comm_wire *wire, int rank)
{
    const struct comm_share *share = wire->state;
    return share != NULL ? comm_hall_entered(&share->moves.hall, wire->call, rank) : -1;
}

static enum status move(struct comm_wire *wire, const struct comm_call *call,
                        enum status (*fn)(struct comm_moves *, struct comm_wire *,
                                          const struct comm_call *))
{
    struct comm_share *share = wire->state;
    return fn(&share->moves, enter(share, call), call);
}
static enum status all_reduce(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_all_reduce);
}
static enum status reduce_scatter(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_reduce_scatter);
}
static enum status all_gather(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_all_gather);
}
static enum status all_to_all(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_all_to_all);
}
static enum status broadcast(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_broadcast);
}
static enum status send_to(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_send);
}
static enum status recv_from(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_recv);
}
static enum status barrier(struct comm_wire *wire, const struct comm_call *call)
{
    return move(wire, call, comm_moves_barrier);
}

const struct comm_ops comm_share_ops = {
    .kind = COMM_KIND_UCX,
    .name = "ucx",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = wire_close,
    .describe = describe,
    .alloc = alloc,
    .sub = sub,
    .entered = entered_all,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .send = send_to,
    .recv = recv_from,
    .barrier = barrier,
};
