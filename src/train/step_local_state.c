/* step_local_state — the state of all replicas, between rank 0 and the ranks that hold it
 * (step_local.h). Rank 0 broadcasts requests, and all ranks carry them out.
 *
 * Parts, of `parts` in a replica (parameters and moments) and R replicas:
 *   0                    the outer parameters: what others read as the model
 *   1 … parts - 1        moments of replica 0
 *   parts                the outer momentum
 *   then                 moments of the replicas 1 … R - 1
 *   last                 parameters of the replicas 0 … R - 1, between two outer steps */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/step_inside.h"
#include "train/step_local.h"

enum { REQUEST_GET = 1, REQUEST_PUT, REQUEST_END };

/* Doubles, which every transport carries; exact below 2^53. REQUEST_END: part is the status. */
struct request {
    double what, part, first, n;
};

/* ---- parts ---- */

static int count(int parts, int replicas, bool is_between)
{
    return parts + 1 + (replicas - 1) * (parts - 1) + (is_between ? replicas : 0);
}

static int parts_n(const struct step *s, bool is_between)
{
    return count(step_parts(s), s->local.replicas, is_between);
}

int step_local_state_parts_of(const struct step_config *c, int ranks)
{
    const int parts = 1 + optim_moments(&c->optim),
              each = c->local.replica_ranks > 0 ? c->local.replica_ranks : ranks;
    return c->local.steps > 0 ? count(parts, ranks / each, true) : parts;
}

int step_local_state_parts(const struct step *s, int64_t steps_done)
{
    if (!s->local.is_on)
        return step_parts(s);
    return parts_n(s, steps_done % s->config.local.steps != 0);
}

int step_local_state_parts_most(const struct step *s)
{
    return s->local.is_on ? parts_n(s, true) : step_parts(s);
}

struct step_local_part step_local_state_part(const struct step *s, int part)
{
    int parts = step_parts(s), first_inner = parts_n(s, false), rest = part - parts - 1;
    ASSERTF(part >= 0 && part < step_local_state_parts_most(s), "part %d", part);
    if (!s->local.is_on)
        return (struct step_local_part){STEP_LOCAL_REPLICA, 0, part};
    if (part == 0)
        return (struct step_local_part){STEP_LOCAL_OUTER, 0, 0};
    if (part == parts)
        return (struct step_local_part){STEP_LOCAL_MOMENTUM, 0, 0};
    if (part < parts)
        return (struct step_local_part){STEP_LOCAL_REPLICA, 0, part};
    if (part >= first_inner)
        return (struct step_local_part){STEP_LOCAL_REPLICA, part - first_inner, 0};
    return (struct step_local_part){STEP_LOCAL_REPLICA, 1 + rest / (parts - 1),
                                    1 + rest % (parts - 1)};
}

/* ---- chunks: every rank takes part ---- */

/* A range of a part, and where its values are: rank 0's, or a buffer. */
struct chunk {
    struct step_local_part part;
    int64_t first, n;
    float *values;
};

static struct comm *world(const struct step *s)
{
    return s->local.world ? s->local.world : s->config.comm;
}

static int world_rank(const struct step *s)
{
    return s->local.replica * s->local.ranks + s->local.rank;
}

/* outer_at — the part of a chunk that lies in an owner's share; *skip: how far into the chunk.
 * Returns how many elements it has. */
static int64_t outer_at(const struct step *s, const struct chunk *c, int owner, int64_t *skip)
{
    const struct part_extent own = part_extent(s->table.total_elems, s->local.ranks, owner);
    int64_t from = c->first > own.first ? c->first : own.first,
            end = c->first + c->n < own.first + own.elems ? c->first + c->n : own.first + own.elems;
    *skip = from - c->first;
    return end > from ? end - from : 0;
}

static float *outer_array(const struct step *s, const struct chunk *c)
{
    return c->part.kind == STEP_LOCAL_OUTER ? s->local.outer : s->local.momentum;
}

/* get_outer — from the ranks of replica 0, which are the first of the world. */
static enum status get_outer(struct step *s, const struct chunk *c)
{
    for (int owner = 0; s->local.replica == 0 && owner < s->local.ranks; owner++) {
        int64_t skip, n = outer_at(s, c, owner, &skip);
        if (n == 0)
            continue;
        float *own = outer_array(s, c) + c->first + skip - s->local.own.first;
        struct tensor from = {own, DTYPE_F32}, to = {c->values + skip, DTYPE_F32};
        if (owner == s->local.rank && owner == 0)
            memcpy(to.data, from.data, (size_t)n * sizeof(float));
        else if (owner == s->local.rank)
            TRY(comm_send(world(s), from, n, 0));
        else if (s->local.rank == 0)
            TRY(comm_recv(world(s), to, n, owner));
    }
    return ST_OK;
}

/* get_replica — from the first rank of a replica. */
static enum status get_replica(struct step *s, const struct chunk *c)
{
    const int leader = c->part.replica * s->local.ranks;
    const struct tensor values = {c->values, DTYPE_F32};
    if (world_rank(s) == 0 && leader != 0)
        return comm_recv(world(s), values, c->n, leader);
    if (world_rank(s) != leader)
        return ST_OK;
    TRY(dev_copy(s->stream, c->values,
                 tensor_at(store_replicated(s->store, c->part.part), c->first).data,
                 (size_t)c->n * sizeof(float)));
    TRY(dev_sync(s->stream));
    return leader == 0 ? ST_OK : comm_send(world(s), values, c->n, 0);
}

/* put_outer — all ranks get the values; each keeps its own part, and starts from all of them. */
static enum status put_outer(struct step *s, const struct chunk *c)
{
    int64_t skip, n = outer_at(s, c, s->local.rank, &skip);
    if (comm_place(world(s))->ranks > 1)
        TRY(comm_broadcast(world(s), (struct tensor){c->values, DTYPE_F32}, c->n, 0));
    if (n > 0)
        memcpy(outer_array(s, c) + c->first + skip - s->local.own.first, c->values + skip,
               (size_t)n * sizeof(float));
    return c->part.kind == STEP_LOCAL_OUTER ? store_set(s->store, 0, c->first, c->n, c->values)
                                            : ST_OK;
}

/* put_replica — to the first rank of a replica, which gives them to the others. The ranks of the
 * other replicas meet all the same: all ranks then make as many collectives, which comm_activity
 * counts. */
static enum status put_replica(struct step *s, const struct chunk *c)
{
    const int leader = c->part.replica * s->local.ranks;
    const bool is_ours = c->part.replica == s->local.replica;
    const struct tensor values = {c->values, DTYPE_F32};
    if (leader != 0 && world_rank(s) == 0)
        TRY(comm_send(world(s), values, c->n, leader));
    if (leader != 0 && world_rank(s) == leader)
        TRY(comm_recv(world(s), values, c->n, 0));
    if (s->local.ranks > 1 && is_ours)
        TRY(comm_broadcast(s->config.comm, values, c->n, 0));
    else if (s->local.ranks > 1)
        TRY(comm_broadcast(s->config.comm, (struct tensor){&(float){0}, DTYPE_F32}, 1, 0));
    return is_ours ? store_set(s->store, c->part.part, c->first, c->n, c->values) : ST_OK;
}

static enum status carry_out(struct step *s, bool is_put, const struct chunk *c)
{
    if (c->part.kind == STEP_LOCAL_REPLICA)
        return is_put ? put_replica(s, c) : get_replica(s, c);
    return is_put ? put_outer(s, c) : get_outer(s, c);
}

/* ---- ranges ---- */

static enum status broadcast(struct step *s, struct request *request)
{
    if (comm_place(world(s))->ranks == 1)
        return ST_OK;
    return comm_broadcast(world(s), (struct tensor){request, DTYPE_F64}, 4, 0);
}

/* range — of any length. dst, src: what rank 0 reads to or writes from; NULL on the others. */
static enum status range(struct step *s, const struct request *q, float *dst, const float *src,
                         float *buffer)
{
    struct chunk c = {.part = step_local_state_part(s, (int)q->part)};
    const int64_t first = (int64_t)q->first, all = (int64_t)q->n;
    for (int64_t at = 0; at < all; at += c.n) {
        c.first = first + at;
        c.n = all - at < MESH_STATE_ELEMS ? all - at : MESH_STATE_ELEMS;
        c.values = dst ? dst + at : buffer;
        if (src)
            memcpy(buffer, src + at, (size_t)c.n * sizeof *buffer);
        TRY(carry_out(s, q->what == REQUEST_PUT, &c));
    }
    return ST_OK;
}

static enum status take_buffer(float **out)
{
    *out = malloc((size_t)MESH_STATE_ELEMS * sizeof **out);
    return *out ? ST_OK : FAIL(ST_RETRY, "out of memory: 4 MiB for the state of the replicas");
}

static enum status ask(struct step *s, struct request *q, float *dst, const float *src)
{
    float *buffer;
    ASSERT(world_rank(s) == 0);
    TRY(store_drain(s->store));
    TRY(take_buffer(&buffer));
    enum status st = broadcast(s, q);
    if (st == ST_OK)
        st = range(s, q, dst, src, buffer);
    free(buffer);
    return st;
}

enum status step_local_state_get(struct step *s, int part, int64_t first, int64_t n, float *dst)
{
    return ask(s, &(struct request){REQUEST_GET, part, (double)first, (double)n}, dst, NULL);
}

enum status step_local_state_put(struct step *s, int part, int64_t first, int64_t n,
                                 const float *src)
{
    return ask(s, &(struct request){REQUEST_PUT, part, (double)first, (double)n}, NULL, src);
}

enum status step_local_state_end(struct step *s, enum status st)
{
    struct status_saved saved;
    ASSERT(world_rank(s) == 0);
    if (st != ST_OK)
        status_save(&saved);
    enum status sent = broadcast(s, &(struct request){.what = REQUEST_END, .part = (double)st});
    if (st == ST_OK)
        return sent;
    status_restore(&saved);
    return st;
}

/* ---- the other ranks ---- */

/* check_request — the range came from rank 0: it is checked before it is used. */
static enum status check_request(const struct step *s, const struct request *q)
{
    if (q->part >= 0 && q->part < parts_n(s, true) && q->first >= 0 && q->n >= 0 &&
        q->first <= (double)s->table.total_elems - q->n)
        return ST_OK;
    return FAIL(ST_BUG, "rank 0 asked for part %g, %g elements from %g of %lld", q->part, q->n,
                q->first, (long long)s->table.total_elems);
}

static enum status serve(struct step *s, float *buffer)
{
    struct request q = {0};
    for (;;) {
        TRY(broadcast(s, &q));
        if (q.what == REQUEST_END)
            break;
        TRY(check_request(s, &q));
        TRY(range(s, &q, NULL, NULL, buffer));
    }
    if (q.part == 0)
        return ST_OK;
    return FAIL(ST_PEER, "rank 0 could not read or write the model's state: %s; its log says why",
                status_name((enum status)(int)q.part));
}

enum status step_local_state_serve(struct step *s)
{
    float *buffer;
    if (comm_place(world(s))->ranks == 1)
        return ST_OK;
    ASSERT(world_rank(s) > 0);
    TRY(store_drain(s->store));
    TRY(take_buffer(&buffer));
    enum status st = serve(s, buffer);
    free(buffer);
    return st;
}
