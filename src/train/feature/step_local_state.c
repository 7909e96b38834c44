/* step_local_state — the state of all replicas, between rank 0 and the ranks that hold it
 * (step_local.h). Rank 0 broadcasts requests, and all ranks carry them out.
 *
 * Parts, of `parts` in a replica (parameters and moments) and R replicas:
 *   0                    the outer parameters: what others read as the model
 *   1 … parts - 1        moments of replica 0
 *   parts                the outer momentum
 *   then                 moments of the replicas 1 … R - 1
 *   then                 with error feedback: that of what replicas 0 … R - 1 send, and of sums
 *   last                 parameters of the replicas 0 … R - 1, unless all have the outer ones */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "train/step/feature.h"
#include "train/feature/step_local.h"

enum { REQUEST_GET = 1, REQUEST_PUT, REQUEST_END };

/* Doubles, which every transport carries; exact below 2^53. REQUEST_END: part is the status. */
struct request {
    double what, part, first, n;
};

/* ---- parts ---- */

/* keeps_residual — whether outer steps lose something that error feedback keeps. */
static bool keeps_residual(const struct step_local_config *c, int replicas)
{
    return replicas > 1 && grad_compress_quantises(c->compress);
}

static int count(int parts, int replicas, bool has_residual, bool is_apart)
{
    return parts + 1 + (replicas - 1) * (parts - 1) + (has_residual ? replicas + 1 : 0) +
           (is_apart ? replicas : 0);
}

int step_local_state_parts_of(const struct step_config *c, int ranks)
{
    const int parts = 1 + optim_moments(&c->optim),
              each = c->local.replica_ranks > 0 ? c->local.replica_ranks : ranks;
    return c->local.steps > 0
               ? count(parts, ranks / each, keeps_residual(&c->local, ranks / each), true)
               : parts;
}

int step_local_state_parts(const struct step *step, bool is_apart)
{
    const struct step_core *s = step_core(step);
    const int replicas = s->local.replicas;
    return s->local.is_on ? count(step_parts(step), replicas,
                                  keeps_residual(&s->config.local, replicas), is_apart)
                          : step_parts(step);
}

int step_local_state_parts_most(const struct step *step)
{
    return step_local_state_parts(step, true);
}

struct step_local_part step_local_state_part(const struct step *step, int part)
{
    const struct step_core *s = step_core(step);
    int parts = step_parts(step), rest = part - parts - 1,
        first_last = count(parts, s->local.replicas, false, false);
    ASSERTF(part >= 0 && part < step_local_state_parts_most(step), "part %d", part);
    if (!s->local.is_on)
        return (struct step_local_part){STEP_LOCAL_REPLICA, 0, part};
    if (part == 0)
        return (struct step_local_part){STEP_LOCAL_OUTER, 0, 0};
    if (part == parts)
        return (struct step_local_part){STEP_LOCAL_MOMENTUM, 0, 0};
    if (part < parts)
        return (struct step_local_part){STEP_LOCAL_REPLICA, 0, part};
    if (part >= first_last) {
        /* Of those behind all moments. */
        int i = part - first_last;
        const int replicas = s->local.replicas;
        if (keeps_residual(&s->config.local, replicas)) {
            if (i < replicas)
                return (struct step_local_part){STEP_LOCAL_RESIDUAL, i, 0};
            if (i == replicas)
                return (struct step_local_part){STEP_LOCAL_RESIDUAL_SUM, 0, 0};
            i -= replicas + 1;
        }
        return (struct step_local_part){STEP_LOCAL_REPLICA, i, 0};
    }
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

static int world_rank(const struct step_core *s)
{
    return s->local.replica * s->local.ranks + s->local.rank;
}

/* Elements of a chunk that one rank has in one array, or every replica's rank of that number. */
struct holding {
    int64_t n;
    int rank;      /* in the replica */
    int replica;   /* 0, of what all replicas have */
    float *values; /* on that rank; else undefined */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* narrow — Narrows a holding to one bucket, and of sums to the rank between replicas that has its
 * part. at: in the owner's part, which has `all` elements. */
static void narrow(const struct step_core *s, const struct chunk *c, int64_t at, int64_t all,
                   struct holding *h)
{
    const int64_t each = STEP_LOCAL_BUCKET_ELEMS, bucket = at / each, in = at - bucket * each,
                  elems = least(all - bucket * each, each);
    const bool is_sum = c->part.kind == STEP_LOCAL_RESIDUAL_SUM;
    struct part_extent part = {0, elems};
    h->replica = c->part.replica;
    if (is_sum)
        for (h->replica = 0; part = part_extent(elems, s->local.replicas, h->replica),
            in >= part.first + part.elems;)
            h->replica++;
    h->n = least(h->n, part.first + part.elems - in);
    if (h->rank != s->local.rank || h->replica != s->local.replica)
        return;
    const struct grad_compress_residual residual =
        grad_compress_residual(s->local.compress, (int)bucket);
    h->values = is_sum ? residual.sum + in - part.first : residual.own + in;
}

/* holding_at — what begins at element `skip` of a chunk. */
static struct holding holding_at(const struct step_core *s, const struct chunk *c, int64_t skip)
{
    const int64_t at = c->first + skip;
    struct holding h = {.rank = 0};
    struct part_extent part = step_local_part(s, 0);
    while (at >= part.first + part.elems)
        part = step_local_part(s, ++h.rank);
    h.n = least(c->n - skip, part.first + part.elems - at);
    if (c->part.kind == STEP_LOCAL_RESIDUAL || c->part.kind == STEP_LOCAL_RESIDUAL_SUM)
        narrow(s, c, at - part.first, part.elems, &h);
    else
        h.values = (c->part.kind == STEP_LOCAL_OUTER ? s->local.outer : s->local.momentum) + at -
                   part.first;
    return h;
}

/* carry — from the rank that has elements to rank 0, or the way back. */
static enum status carry(struct step_core *s, const struct holding *h, bool is_put, float *values)
{
    const int holder = h->replica * s->local.ranks + h->rank, self = world_rank(s);
    if (self != holder && self != 0)
        return ST_OK;
    const bool sends = self == (is_put ? 0 : holder);
    float *at = self == holder ? h->values : values;
    if (holder != 0)
        return sends ? comm_send(step_world(s), (struct tensor){at, DTYPE_F32}, h->n,
                                 is_put ? holder : 0)
                     : comm_recv(step_world(s), (struct tensor){at, DTYPE_F32}, h->n,
                                 is_put ? 0 : holder);
    memcpy(is_put ? h->values : values, is_put ? values : h->values, (size_t)h->n * sizeof *values);
    return ST_OK;
}

/* get_replica — from the first rank of a replica. */
static enum status get_replica(struct step_core *s, const struct chunk *c)
{
    const int leader = c->part.replica * s->local.ranks;
    const struct tensor values = {c->values, DTYPE_F32};
    if (world_rank(s) == 0 && leader != 0)
        return comm_recv(step_world(s), values, c->n, leader);
    if (world_rank(s) != leader)
        return ST_OK;
    TRY(dev_copy(s->stream, c->values,
                 tensor_at(store_replicated(s->store, c->part.part), c->first).data,
                 (size_t)c->n * sizeof(float)));
    TRY(dev_sync(s->stream));
    return leader == 0 ? ST_OK : comm_send(step_world(s), values, c->n, 0);
}

/* put_replica — to the first rank of a replica, which gives them to the others. The ranks of the
 * other replicas meet all the same: all ranks then make as many collectives, which comm_activity
 * counts. */
static enum status put_replica(struct step_core *s, const struct chunk *c)
{
    const int leader = c->part.replica * s->local.ranks;
    const bool is_ours = c->part.replica == s->local.replica;
    const struct tensor values = {c->values, DTYPE_F32};
    if (leader != 0 && world_rank(s) == 0)
        TRY(comm_send(step_world(s), values, c->n, leader));
    if (leader != 0 && world_rank(s) == leader)
        TRY(comm_recv(step_world(s), values, c->n, 0));
    if (s->local.ranks > 1 && is_ours)
        TRY(comm_broadcast(s->config.comm, values, c->n, 0));
    else if (s->local.ranks > 1)
        TRY(comm_broadcast(s->config.comm, (struct tensor){&(float){0}, DTYPE_F32}, 1, 0));
    return is_ours ? store_set(s->store, c->part.part, c->first, c->n, c->values) : ST_OK;
}

static enum status carry_out(struct step_core *s, bool is_put, const struct chunk *c)
{
    const enum step_local_kind kind = c->part.kind;
    if (is_put && kind == STEP_LOCAL_REPLICA && c->part.part == 0)
        s->local.is_apart = true;
    if (kind == STEP_LOCAL_REPLICA)
        return is_put ? put_replica(s, c) : get_replica(s, c);
    if (is_put && kind != STEP_LOCAL_RESIDUAL && kind != STEP_LOCAL_RESIDUAL_SUM) {
        /* All ranks get the values; each keeps its own part. Of the parameters all start from all
         * of them. */
        struct holding h;
        if (comm_place(step_world(s))->ranks > 1)
            TRY(comm_broadcast(step_world(s), (struct tensor){c->values, DTYPE_F32}, c->n, 0));
        for (int64_t at = 0; at < c->n; at += h.n) {
            h = holding_at(s, c, at);
            if (h.rank == s->local.rank)
                memcpy(h.values, c->values + at, (size_t)h.n * sizeof *h.values);
        }
        if (c->part.kind != STEP_LOCAL_OUTER)
            return ST_OK;
        s->local.is_apart = false;
        return store_set(s->store, 0, c->first, c->n, c->values);
    }
    struct holding h;
    for (int64_t at = 0; at < c->n; at += h.n) {
        h = holding_at(s, c, at);
        TRY(carry(s, &h, is_put, c->values + at));
    }
    return ST_OK;
}

/* ---- ranges ---- */

static enum status broadcast(struct step_core *s, struct request *request)
{
    if (comm_place(step_world(s))->ranks == 1)
        return ST_OK;
    return comm_broadcast(step_world(s), (struct tensor){request, DTYPE_F64}, 4, 0);
}

/* range — of any length. dst, src: what rank 0 reads to or writes from; NULL on the others. */
static enum status range(struct step_core *s, const struct request *q, float *dst, const float *src,
                         float *buffer)
{
    struct chunk c = {.part = step_local_state_part(s->step, (int)q->part)};
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

static enum status ask(struct step_core *s, struct request *q, float *dst, const float *src)
{
    ASSERT(world_rank(s) == 0);
    TRY(store_drain(s->store));
    float *buffer = memory_new(MESH_STATE_ELEMS, sizeof *buffer);
    enum status st = broadcast(s, q);
    if (st == ST_OK)
        st = range(s, q, dst, src, buffer);
    free(buffer);
    return st;
}

enum status step_local_state_get(struct step_core *s, int part, int64_t first, int64_t n,
                                 float *dst)
{
    return ask(s, &(struct request){REQUEST_GET, part, (double)first, (double)n}, dst, NULL);
}

enum status step_local_state_put(struct step_core *s, int part, int64_t first, int64_t n,
                                 const float *src)
{
    return ask(s, &(struct request){REQUEST_PUT, part, (double)first, (double)n}, NULL, src);
}

enum status step_local_state_end(struct step_core *s, enum status st)
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

static enum status serve(struct step_core *s, float *buffer)
{
    struct request q = {0};
    for (;;) {
        TRY(broadcast(s, &q));
        if (q.what == REQUEST_END)
            break;
        /* The range came from rank 0: it is checked before it is used. */
        if (!(q.part >= 0 && q.part < step_local_state_parts_most(s->step) && q.first >= 0 &&
              q.n >= 0 && q.first <= (double)s->table.total_elems - q.n))
            return FAIL(ST_BUG, "rank 0 asked for part %g, %g elements from %g of %lld", q.part,
                        q.n, q.first, (long long)s->table.total_elems);
        TRY(range(s, &q, NULL, NULL, buffer));
    }
    if (q.part == 0)
        return ST_OK;
    return FAIL(ST_PEER, "rank 0 could not read or write the model's state: %s; its log says why",
                status_name((enum status)(int)q.part));
}

enum status step_local_state_serve(struct step_core *s)
{
    if (comm_place(step_world(s))->ranks == 1)
        return ST_OK;
    ASSERT(world_rank(s) > 0);
    TRY(store_drain(s->store));
    float *buffer = memory_new(MESH_STATE_ELEMS, sizeof *buffer);
    enum status st = serve(s, buffer);
    free(buffer);
    return st;
}
