/* step_local_state — the state of all replicas (mesh/state.h): ranges are sent between rank 0 and
 * the ranks that hold them.
 *
 * Arrays, if a replica has `arrays` arrays (parameters and moments) and there are R replicas:
 *   0                    the outer parameters, which readers use as the model
 *   1 … arrays - 1       moments of replica 0
 *   arrays               the outer momentum
 *   then                 moments of the replicas 1 … R - 1
 *   then                 with error feedback: residuals of the messages of replicas 0 … R - 1, and
 *                        of the sums
 *   last                 parameters of the replicas 0 … R - 1, unless all have the outer ones */
#include <string.h>

#include "base/assert.h"
#include "mesh/store/state.h"
#include "train/step/feature.h"
#include "train/feature/step_local.h"

/* ---- arrays ---- */

/* keeps_residual — Returns true if outer steps lose something that error feedback keeps. */
static bool keeps_residual(const struct step_local_config *c, int replicas)
{
    return replicas > 1 && grad_compress_quantises(c->compress);
}

static int count_state_arrays(int arrays, int replicas, bool has_residual, bool is_apart)
{
    return arrays + 1 + (replicas - 1) * (arrays - 1) + (has_residual ? replicas + 1 : 0) +
           (is_apart ? replicas : 0);
}

int step_local_state_arrays_of(const struct step_config *c, int ranks)
{
    const int arrays = 1 + optim_moments(&c->optim),
              each = c->local.replica_ranks > 0 ? c->local.replica_ranks : ranks;
    return c->local.steps > 0 ? count_state_arrays(arrays, ranks / each,
                                                   keeps_residual(&c->local, ranks / each), true)
                              : arrays;
}

static int count_arrays(const struct state *state, bool is_apart)
{
    const struct step_core *s = state->arg;
    return count_state_arrays(step_arrays(s->step), s->local.replicas,
                              keeps_residual(&s->config.local, s->local.replicas), is_apart);
}

/* describe_last — Describes the i-th of the arrays after all moments. */
static struct state_array describe_last(const struct step_core *s, int i)
{
    const int replicas = s->local.replicas;
    if (!keeps_residual(&s->config.local, replicas))
        return (struct state_array){.kind = STATE_REPLICA, .replica = i};
    if (i < replicas)
        return (struct state_array){.kind = STATE_RESIDUAL, .replica = i};
    if (i == replicas)
        return (struct state_array){.kind = STATE_RESIDUAL_SUM};
    return (struct state_array){.kind = STATE_REPLICA, .replica = i - replicas - 1};
}

static struct state_array describe_array(const struct step_core *s, int array)
{
    const int arrays = step_arrays(s->step), rest = array - arrays - 1,
              first_last = count_state_arrays(arrays, s->local.replicas, false, false);
    if (array == 0)
        return (struct state_array){.kind = STATE_OUTER};
    if (array == arrays)
        return (struct state_array){.kind = STATE_MOMENTUM};
    if (array < arrays)
        return (struct state_array){.kind = STATE_REPLICA, .moment = array};
    if (array >= first_last)
        return describe_last(s, array - first_last);
    return (struct state_array){.kind = STATE_REPLICA,
                                .replica = 1 + rest / (arrays - 1),
                                .moment = 1 + rest % (arrays - 1)};
}

static void describe(const struct state *state, int array, int64_t first, struct state_array *out)
{
    const struct step_core *s = state->arg;
    (void)first;
    *out = describe_array(s, array);
    out->elems = s->table.total_elems;
}

/* ---- ranges: collective ---- */

static int world_rank(const struct step_core *s)
{
    return s->local.replica * s->local.ranks + s->local.rank;
}

/* A range, with the description of its array. */
struct chunk {
    struct state_array array;
    int64_t first, n;
    float *values;
};

static struct chunk chunk_of(const struct step_core *s, const struct state_range *r)
{
    return (struct chunk){describe_array(s, r->array), r->first, r->n, r->values};
}

/* Elements of a chunk in one array of one rank, or of the rank with this number in every
 * replica. */
struct holding {
    int64_t n;
    int rank;      /* number in the replica */
    int replica;   /* 0, if all replicas have them */
    float *values; /* on that rank; else undefined */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static bool is_residual(const struct chunk *c)
{
    return c->array.kind == STATE_RESIDUAL || c->array.kind == STATE_RESIDUAL_SUM;
}

/* narrow_to_bucket — Narrows a holding to one bucket; of the residuals of sums, also to the part of
 * one rank among the replicas. at: element in the owner's part, which has `all` elements. */
static void narrow_to_bucket(const struct step_core *s, const struct chunk *c, int64_t at,
                             int64_t all, struct holding *h)
{
    const int64_t each = STEP_LOCAL_BUCKET_ELEMS, bucket = at / each, in = at - bucket * each,
                  elems = least(all - bucket * each, each);
    const bool is_sum = c->array.kind == STATE_RESIDUAL_SUM;
    struct part_extent part = {0, elems};
    h->replica = c->array.replica;
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

/* holding_at — Returns the holding that begins at element `skip` of a chunk. */
static struct holding holding_at(const struct step_core *s, const struct chunk *c, int64_t skip)
{
    const int64_t at = c->first + skip;
    struct holding h = {.rank = 0};
    struct part_extent part = step_local_part(s, 0);
    while (at >= part.first + part.elems)
        part = step_local_part(s, ++h.rank);
    h.n = least(c->n - skip, part.first + part.elems - at);
    if (is_residual(c))
        narrow_to_bucket(s, c, at - part.first, part.elems, &h);
    else
        h.values =
            (c->array.kind == STATE_OUTER ? s->local.outer : s->local.momentum) + at - part.first;
    return h;
}

/* transfer_values — Sends elements from the rank that has them to rank 0, or in the other
 * direction. */
static enum status transfer_values(struct step_core *s, const struct holding *h, bool is_write,
                                   float *values)
{
    const int holder = h->replica * s->local.ranks + h->rank, self = world_rank(s);
    if (self != holder && self != 0)
        return ST_OK;
    const bool sends = self == (is_write ? 0 : holder);
    const struct tensor at = {self == holder ? h->values : values, DTYPE_F32};
    if (holder != 0)
        return sends ? comm_send(step_world(s), at, h->n, is_write ? holder : 0)
                     : comm_recv(step_world(s), at, h->n, is_write ? 0 : holder);
    memcpy(is_write ? h->values : values, is_write ? values : h->values,
           (size_t)h->n * sizeof *values);
    return ST_OK;
}

static enum status carry_all(struct step_core *s, const struct chunk *c, bool is_write)
{
    struct holding h;
    for (int64_t at = 0; at < c->n; at += h.n) {
        h = holding_at(s, c, at);
        TRY(transfer_values(s, &h, is_write, c->values + at));
    }
    return ST_OK;
}

/* read_replica — Reads a range on the first rank of a replica, and sends it to rank 0. */
static enum status read_replica(struct step_core *s, const struct chunk *c)
{
    const int leader = c->array.replica * s->local.ranks;
    const struct tensor values = {c->values, DTYPE_F32};
    if (world_rank(s) == 0 && leader != 0)
        return comm_recv(step_world(s), values, c->n, leader);
    if (world_rank(s) != leader)
        return ST_OK;
    TRY(state_read(store_state(s->store), c->array.moment, c->first, c->n, c->values));
    return leader == 0 ? ST_OK : comm_send(step_world(s), values, c->n, 0);
}

/* write_replica — Sends the values to the first rank of a replica, which sends them to the others.
 * The other replicas broadcast one number, so that all ranks make the same number of collectives:
 * comm_activity counts them. */
static enum status write_replica(struct step_core *s, const struct chunk *c)
{
    const int leader = c->array.replica * s->local.ranks;
    const bool is_ours = c->array.replica == s->local.replica;
    const struct tensor values = {c->values, DTYPE_F32};
    if (leader != 0 && world_rank(s) == 0)
        TRY(comm_send(step_world(s), values, c->n, leader));
    if (leader != 0 && world_rank(s) == leader)
        TRY(comm_recv(step_world(s), values, c->n, 0));
    if (s->local.ranks > 1 && is_ours)
        TRY(comm_broadcast(s->config.comm, values, c->n, 0));
    else if (s->local.ranks > 1)
        TRY(comm_broadcast(s->config.comm, (struct tensor){&(float){0}, DTYPE_F32}, 1, 0));
    return is_ours ? state_write(store_state(s->store), c->array.moment, c->first, c->n, c->values)
                   : ST_OK;
}

/* write_shared — Sends the values to all ranks; each keeps its own part. The outer parameters also
 * become the parameters of each replica. */
static enum status write_shared(struct step_core *s, const struct chunk *c)
{
    struct holding h;
    if (comm_place(step_world(s))->ranks > 1)
        TRY(comm_broadcast(step_world(s), (struct tensor){c->values, DTYPE_F32}, c->n, 0));
    for (int64_t at = 0; at < c->n; at += h.n) {
        h = holding_at(s, c, at);
        if (h.rank == s->local.rank)
            memcpy(h.values, c->values + at, (size_t)h.n * sizeof *h.values);
    }
    if (c->array.kind != STATE_OUTER)
        return ST_OK;
    s->local.is_apart = false;
    return state_write(store_state(s->store), 0, c->first, c->n, c->values);
}

static enum status read_range(const struct state *state, const struct state_range *r)
{
    const struct chunk c = chunk_of(state->arg, r);
    return c.array.kind == STATE_REPLICA ? read_replica(state->arg, &c)
                                         : carry_all(state->arg, &c, false);
}

static enum status write_range(const struct state *state, const struct state_range *r)
{
    struct step_core *s = state->arg;
    const struct chunk c = chunk_of(s, r);
    if (c.array.kind == STATE_REPLICA) {
        s->local.is_apart = s->local.is_apart || c.array.moment == 0;
        return write_replica(s, &c);
    }
    return is_residual(&c) ? carry_all(s, &c, true) : write_shared(s, &c);
}

static const struct state_ops ops = {count_arrays, describe, read_range, write_range};

struct state step_local_state(struct step_core *s)
{
    return (struct state){.ops = &ops,
                          .store = s->store,
                          .world = s->local.world ? s->local.world : s->config.comm,
                          .arg = s};
}
