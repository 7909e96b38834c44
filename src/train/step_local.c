/* step_local — see step_local.h. The state of all replicas: step_local_state.c. */
#include "train/step_local.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/outer.h"
#include "train/step_inside.h"

/* ---- places ---- */

/* check_replicas — of a job that is planned, nothing else may have been checked yet. */
static enum status check_replicas(const struct step_config *c, int ranks, int each)
{
    if (ranks % each != 0)
        return FAIL(ST_BAD_SETTING,
                    "LOCAL_STEPS=%lld divides workers into nodes: %d workers are not nodes of %d "
                    "each; change N_NODES or N_GPU_EACH_NODE",
                    (long long)c->local.steps, ranks, each);
    if (ranks / each > STEP_LOCAL_REPLICAS_MAX)
        return FAIL(ST_BAD_SETTING, "LOCAL_STEPS=%lld takes at most %d nodes, not %d; use fewer",
                    (long long)c->local.steps, STEP_LOCAL_REPLICAS_MAX, ranks / each);
    if (c->global_samples % (ranks / each) != 0)
        return FAIL(ST_BAD_SETTING,
                    "GLOBAL_BATCH=%lld is not a multiple of the %d nodes that LOCAL_STEPS=%lld "
                    "divides it between; change one of them",
                    (long long)c->global_samples, ranks / each, (long long)c->local.steps);
    return ST_OK;
}

enum status step_local_place(struct step *s, struct step_place *place)
{
    const struct step_local_config *c = &s->config.local;
    const int each = c->replica_ranks > 0 ? c->replica_ranks : place->ranks;
    struct step_local *l = &s->local;
    *l = (struct step_local){.replicas = 1, .ranks = place->ranks, .rank = place->rank};
    if (c->steps == 0 || s->config.is_eval)
        return ST_OK;
    TRY(check_replicas(&s->config, place->ranks, each));
    l->is_on = true;
    l->ranks = each;
    l->replicas = place->ranks / each;
    l->replica = place->rank / each;
    l->rank = place->rank % each;
    s->config.global_samples /= l->replicas;
    place->rank = l->rank;
    place->ranks = l->ranks;
    return ST_OK;
}

void step_local_outside(const struct step *s, struct step_config *config, struct step_place *place)
{
    *config = s->config;
    config->global_samples *= s->local.replicas;
    place->rank += s->local.replica * s->local.ranks;
    place->ranks *= s->local.replicas;
}

int step_local_feed_rank(const struct step *s)
{
    return s->local.replica * step_mesh_data_ranks(s) + step_mesh_data_rank(s);
}

int step_local_feed_ranks(const struct step *s)
{
    return s->local.replicas * step_mesh_data_ranks(s);
}

/* ---- open and close ---- */

/* split — n ranks of the world from `first` on, each so many behind the one before. */
static enum status split(struct comm *world, int first, int apart, int n, struct comm **out)
{
    int *ranks = calloc((size_t)n, sizeof *ranks);
    if (!ranks)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks; use a machine with more", n);
    for (int i = 0; i < n; i++)
        ranks[i] = first + i * apart;
    enum status st = comm_split(world, ranks, n, out);
    free(ranks);
    return st;
}

enum status step_local_open(struct step *s)
{
    struct step_local *l = &s->local;
    if (!l->is_on || l->replicas == 1)
        return ST_OK;
    l->world = s->config.comm;
    s->config.comm = NULL; /* the step opens one for a rank alone */
    if (l->ranks > 1)
        TRY(split(l->world, l->replica * l->ranks, 1, l->ranks, &l->inside));
    if (l->ranks > 1)
        s->config.comm = l->inside;
    if (l->ranks == 1)
        l->across = l->world;
    else
        TRY(split(l->world, l->rank, l->ranks, l->replicas, &l->across));
    return ST_OK;
}

static bool has_chunk(const struct step_local *l) { return l->ranks > 1; }

static struct part_extent own_part(const struct step *s)
{
    return part_extent(s->table.total_elems, s->local.ranks, s->local.rank);
}

static int64_t memory_bytes(const struct step *s)
{
    int64_t elems = 3 * own_part(s).elems + (has_chunk(&s->local) ? MESH_STATE_ELEMS : 0);
    return elems * (int64_t)sizeof(float);
}

/* ---- compressed differences ----
 *
 * They travel in runs of RUN_ELEMS, each a bucket of grad_compress.h, so that the buffers of
 * messages stay small. */

#define RUN_ELEMS ((int64_t)4 << 20)

static bool compresses(const struct step *s)
{
    return s->local.replicas > 1 && s->config.local.compress != GRAD_COMPRESS_KIND_NONE &&
           own_part(s).elems > 0;
}

static int64_t run_elems(int64_t elems, int64_t first)
{
    return elems - first < RUN_ELEMS ? elems - first : RUN_ELEMS;
}

/* compress_config — the caller frees bucket_elems. */
static enum status compress_config(const struct step *s, struct grad_compress_config *out)
{
    const int64_t elems = own_part(s).elems;
    const int n = (int)((elems + RUN_ELEMS - 1) / RUN_ELEMS);
    int64_t *runs = calloc((size_t)n, sizeof *runs);
    if (!runs)
        return FAIL(ST_RETRY, "out of memory: %d runs of %lld elements", n, (long long)elems);
    for (int i = 0; i < n; i++)
        runs[i] = run_elems(elems, i * RUN_ELEMS);
    *out = (struct grad_compress_config){.comm = s->local.across,
                                         .kind = s->config.local.compress,
                                         .is_coded = s->config.local.compress_coded,
                                         .deferred_first = n,
                                         .buckets_n = n,
                                         .bucket_elems = runs};
    return ST_OK;
}

static enum status plan_compress(const struct step *s, int64_t *bytes)
{
    struct grad_compress_config config;
    *bytes = 0;
    if (!compresses(s))
        return ST_OK;
    TRY(compress_config(s, &config));
    *bytes = grad_compress_plan(&config, s->local.replica, s->local.replicas, false);
    free((void *)(uintptr_t)config.bucket_elems);
    return ST_OK;
}

static enum status open_compress(struct step *s)
{
    struct grad_compress_config config;
    if (!compresses(s))
        return ST_OK;
    TRY(plan_compress(s, &s->local.compress_bytes));
    TRY(compress_config(s, &config));
    enum status st = grad_compress_open(&config, &s->local.compress);
    free((void *)(uintptr_t)config.bucket_elems);
    return st;
}

/* ---- memory ---- */

enum status step_local_plan(const struct step *s, int64_t *bytes)
{
    *bytes = 0;
    if (!s->local.is_on)
        return ST_OK;
    TRY(plan_compress(s, bytes));
    *bytes += memory_bytes(s);
    return ST_OK;
}

int64_t step_local_bytes(const struct step *s)
{
    return s->local.memory_bytes + s->local.compress_bytes;
}

/* assert_whole — each rank of a replica holds the whole model, with every moment of it. */
static void assert_whole(const struct step *s)
{
    const int *size = s->mesh.mesh.size;
    ASSERTF(s->config.optim.kind != OPTIM_KIND_MUON && s->config.store.shard == LAYOUT_SHARD_NONE &&
                size[MESH_AXIS_TENSOR] == 1 && size[MESH_AXIS_CONTEXT] == 1 &&
                size[MESH_AXIS_PIPELINE] == 1,
            "LOCAL_STEPS with optimiser %d shard %d tensor %d context %d pipeline %d",
            (int)s->config.optim.kind, (int)s->config.store.shard, size[MESH_AXIS_TENSOR],
            size[MESH_AXIS_CONTEXT], size[MESH_AXIS_PIPELINE]);
}

enum status step_local_take(struct step *s)
{
    struct step_local *l = &s->local;
    if (!l->is_on)
        return ST_OK;
    const int64_t bytes = memory_bytes(s);
    assert_whole(s);
    l->own = own_part(s);
    TRY(dev_is_discrete(s->config.dev) ? dev_pin(s->config.dev, (size_t)bytes, &l->memory)
                                       : dev_alloc(s->config.dev, (size_t)bytes, &l->memory));
    memset(l->memory, 0, (size_t)bytes);
    l->memory_bytes = bytes;
    l->outer = l->memory;
    l->momentum = l->outer + l->own.elems;
    l->work = l->momentum + l->own.elems;
    l->chunk = has_chunk(l) ? l->work + l->own.elems : NULL;
    return open_compress(s);
}

void step_local_close(struct step *s)
{
    struct step_local *l = &s->local;
    grad_compress_close(l->compress);
    if (dev_is_discrete(s->config.dev))
        dev_unpin(s->config.dev, l->memory);
    else
        dev_free(s->config.dev, l->memory, (size_t)l->memory_bytes);
    if (l->across != l->world)
        comm_close(l->across);
    comm_close(l->inside);
    *l = (struct step_local){.replicas = 1};
}

/* ---- every step ---- */

enum status step_local_sum(struct step *s, double *values, int n)
{
    const struct tensor t = {values, DTYPE_F64};
    return s->local.world ? comm_all_reduce(s->local.world, t, t, n) : ST_OK;
}

enum status step_local_exchange(struct step *s, struct step_result *r)
{
    double v[STEP_LOCAL_SUMS] = {0};
    if (s->local.replicas == 1)
        return ST_OK;
    if (s->local.rank == 0) {
        v[0] = r->loss / s->local.replicas;
        v[1] = r->grad_norm / s->local.replicas;
        v[2 + r->vote] = 1;
    }
    TRY(step_local_sum(s, v, STEP_LOCAL_SUMS));
    r->loss = v[0];
    r->grad_norm = v[1];
    for (int vote = 0; vote < STEP_VOTES; vote++)
        r->vote = v[2 + vote] > 0 ? vote : r->vote;
    return ST_OK;
}

/* ---- the outer step ---- */

/* read_own — this rank's part of the replica's parameters. */
static enum status read_own(struct step *s, float *to)
{
    const struct part_extent *own = &s->local.own;
    TRY(store_drain(s->store));
    if (own->elems == 0)
        return ST_OK;
    TRY(dev_copy(s->stream, to, tensor_at(store_replicated(s->store, 0), own->first).data,
                 (size_t)own->elems * sizeof *to));
    return dev_sync(s->stream);
}

enum status step_local_fill(struct step *s)
{
    return s->local.is_on ? read_own(s, s->local.outer) : ST_OK;
}

static enum status add_up_compressed(struct step *s)
{
    struct step_local *l = &s->local;
    struct comm_ticket ticket;
    int run = 0;
    for (int64_t first = 0; first < l->own.elems; first += RUN_ELEMS, run++) {
        float *at = l->work + first;
        TRY(grad_compress_begin(l->compress, run, at, at, NULL, &ticket));
        TRY(comm_wait(l->across, ticket));
        step_heartbeat(s);
    }
    return ST_OK;
}

static enum status add_up(struct step *s)
{
    struct step_local *l = &s->local;
    const struct tensor t = {l->work, DTYPE_F32};
    if (!l->across || l->own.elems == 0)
        return ST_OK;
    return l->compress ? add_up_compressed(s) : comm_all_reduce(l->across, t, t, l->own.elems);
}

/* share — the outer parameters of one rank of the replica become those of all its ranks. */
static enum status share(struct step *s, int owner)
{
    struct step_local *l = &s->local;
    const struct part_extent part = part_extent(s->table.total_elems, l->ranks, owner);
    const struct tensor chunk = {l->chunk, DTYPE_F32};
    for (int64_t at = 0, n; at < part.elems; at += n) {
        n = part.elems - at < MESH_STATE_ELEMS ? part.elems - at : MESH_STATE_ELEMS;
        if (owner == l->rank)
            memcpy(l->chunk, l->outer + at, (size_t)n * sizeof *l->chunk);
        TRY(comm_broadcast(s->config.comm, chunk, n, owner));
        TRY(store_set(s->store, 0, part.first + at, n, l->chunk));
    }
    return ST_OK;
}

static enum status take_outer(struct step *s)
{
    struct step_local *l = &s->local;
    if (!l->chunk)
        return store_set(s->store, 0, l->own.first, l->own.elems, l->outer);
    for (int owner = 0; owner < l->ranks; owner++)
        TRY(share(s, owner));
    return ST_OK;
}

enum status step_local_sync(struct step *s, struct step_result *r)
{
    const struct step_local_config *c = &s->config.local;
    struct step_local *l = &s->local;
    ASSERT(l->is_on);
    TRY(read_own(s, l->work));
    outer_gradient(l->outer, l->work, l->own.elems);
    step_heartbeat(s);
    TRY(add_up(s));
    step_heartbeat(s);
    const struct outer_rule rule = {c->lr, c->momentum, l->replicas};
    outer_update(&rule, l->outer, l->momentum, l->work, l->own.elems);
    TRY(take_outer(s));
    step_run_add_waits(s, r);
    return ST_OK;
}
