/* step_local — see step_local.h. step_local_sync.c has the outer steps, step_local_state.c the
 * state of all replicas. */
#include "train/feature/step_local.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "train/step/dry.h"
#include "train/step/feature.h"

/* ---- places ---- */

enum status step_local_place(struct step_core *s, struct step_place *place)
{
    const struct step_local_config *c = &s->config.local;
    const int ranks = place->ranks, each = c->replica_ranks > 0 ? c->replica_ranks : ranks;
    struct step_local *l = &s->local;
    *l = (struct step_local){.replicas = 1, .ranks = ranks, .rank = place->rank};
    if (c->steps == 0 || s->config.is_eval)
        return ST_OK;
    /* If the job is only planned, nothing else has checked this yet. */
    if (ranks % each != 0)
        return FAIL(ST_BAD_SETTING,
                    "LOCAL_STEPS=%lld needs equal numbers of workers on all nodes: %d workers are "
                    "no multiple of %d; change N_NODES or N_GPU_EACH_NODE",
                    (long long)c->steps, ranks, each);
    if (ranks / each > STEP_LOCAL_REPLICAS_MAX)
        return FAIL(ST_BAD_SETTING, "LOCAL_STEPS=%lld allows at most %d nodes, not %d; use fewer",
                    (long long)c->steps, STEP_LOCAL_REPLICAS_MAX, ranks / each);
    if (s->config.global_samples % (ranks / each) != 0)
        return FAIL(ST_BAD_SETTING,
                    "GLOBAL_BATCH=%lld is not a multiple of the %d nodes that LOCAL_STEPS=%lld "
                    "divides it between; change one of them",
                    (long long)s->config.global_samples, ranks / each, (long long)c->steps);
    l->is_on = true;
    l->ranks = each;
    l->replicas = ranks / each;
    l->replica = place->rank / each;
    l->rank = place->rank % each;
    s->config.global_samples /= l->replicas;
    s->config.batch_warmup.from /= l->replicas;
    place->rank = l->rank;
    place->ranks = l->ranks;
    return ST_OK;
}

void step_local_outside(const struct step_core *s, struct step_config *config,
                        struct step_place *place)
{
    *config = s->config;
    config->global_samples *= s->local.replicas;
    config->batch_warmup.from *= s->local.replicas;
    place->rank += s->local.replica * s->local.ranks;
    place->ranks *= s->local.replicas;
}

int step_local_feed_rank(const struct step_core *s)
{
    return s->local.replica * step_mesh_data_ranks(s) + step_mesh_data_rank(s);
}

int step_local_feed_ranks(const struct step_core *s)
{
    return s->local.replicas * step_mesh_data_ranks(s);
}

/* ---- open and close ---- */

/* split_comm — Makes a comm of n ranks of the world: `first` and the following ones, `apart` ranks
 * apart. */
static enum status split_comm(struct comm *world, int first, int apart, int n, struct comm **out)
{
    int *ranks = memory_new((size_t)n, sizeof *ranks);
    for (int i = 0; i < n; i++)
        ranks[i] = first + i * apart;
    enum status st = comm_split(world, ranks, n, out);
    free(ranks);
    return st;
}

enum status step_local_open(struct step_core *s)
{
    struct step_local *l = &s->local;
    if (!l->is_on || l->replicas == 1)
        return ST_OK;
    l->world = s->config.comm;
    s->config.comm = NULL; /* the step opens a comm of one rank */
    if (l->ranks > 1)
        TRY(split_comm(l->world, l->replica * l->ranks, 1, l->ranks, &l->inside));
    if (l->ranks > 1)
        s->config.comm = l->inside;
    if (l->ranks == 1)
        l->across = l->world;
    else
        TRY(split_comm(l->world, l->rank, l->ranks, l->replicas, &l->across));
    return ST_OK;
}

static bool has_chunk(const struct step_local *l) { return l->ranks > 1; }

struct part_extent step_local_part(const struct step_core *s, int owner)
{
    return part_extent(s->table.total_elems, s->local.ranks, owner);
}

/* sends_bf16 — Returns true if differences are sent as bf16. */
static bool sends_bf16(const struct step_core *s)
{
    return s->local.replicas > 1 && s->config.local.compress == GRAD_COMPRESS_KIND_BF16;
}

static int64_t memory_bytes(const struct step_core *s)
{
    const int64_t own = step_local_part(s, s->local.rank).elems,
                  elems = 3 * own + (has_chunk(&s->local) ? STATE_RANGE_ELEMS : 0);
    return elems * (int64_t)sizeof(float) + (sends_bf16(s) ? own * (int64_t)sizeof(uint16_t) : 0);
}

/* ---- compression ---- */

static bool sends_quantised(const struct step_core *s)
{
    return s->local.replicas > 1 && grad_compress_quantises(s->config.local.compress);
}

/* compress_config — Describes the buckets of this rank's part. The caller frees bucket_elems. */
static struct grad_compress_config compress_config(const struct step_core *s)
{
    const int64_t all = step_local_part(s, s->local.rank).elems, each = STEP_LOCAL_BUCKET_ELEMS;
    const int n = (int)((all + each - 1) / each);
    int64_t *elems = memory_new((size_t)n + 1, sizeof *elems);
    for (int i = 0; i < n; i++)
        elems[i] = i + 1 < n ? each : all - i * each;
    return (struct grad_compress_config){.comm = s->local.across,
                                         .kind = s->config.local.compress,
                                         .deferred_first = n,
                                         .buckets_n = n,
                                         .bucket_elems = elems};
}

static int64_t plan_compress(const struct step_core *s)
{
    if (!sends_quantised(s))
        return 0;
    const struct grad_compress_config config = compress_config(s);
    const int64_t bytes = config.buckets_n > 0 ? grad_compress_plan(&config, s->local.replica,
                                                                    s->local.replicas, false)
                                               : 0;
    free((void *)(uintptr_t)config.bucket_elems);
    return bytes;
}

/* ---- memory ---- */

int64_t step_local_plan(const struct step_core *s)
{
    return s->local.is_on ? plan_compress(s) + memory_bytes(s) : 0;
}

int64_t step_local_bytes(const struct step_core *s)
{
    return s->local.memory_bytes + s->local.compress_bytes;
}

enum status step_local_alloc(struct step_core *s)
{
    struct step_local *l = &s->local;
    if (!l->is_on)
        return ST_OK;
    /* Each rank of a replica holds the whole model, with every moment of it. */
    const int *size = s->mesh.mesh.size;
    ASSERTF(s->config.optim.kind != OPTIM_KIND_MUON && s->config.store.shard == LAYOUT_SHARD_NONE &&
                size[MESH_AXIS_TENSOR] == 1 && size[MESH_AXIS_CONTEXT] == 1 &&
                size[MESH_AXIS_PIPELINE] == 1,
            "LOCAL_STEPS with optimiser %d shard %d tensor %d context %d pipeline %d",
            (int)s->config.optim.kind, (int)s->config.store.shard, size[MESH_AXIS_TENSOR],
            size[MESH_AXIS_CONTEXT], size[MESH_AXIS_PIPELINE]);
    const int64_t bytes = memory_bytes(s);
    l->own = step_local_part(s, l->rank);
    TRY(dev_is_discrete(s->config.dev) ? dev_pin(s->config.dev, (size_t)bytes, &l->memory)
                                       : dev_alloc(s->config.dev, (size_t)bytes, &l->memory));
    memset(l->memory, 0, (size_t)bytes);
    l->memory_bytes = bytes;
    l->outer = l->memory;
    l->momentum = l->outer + l->own.elems;
    l->work = l->momentum + l->own.elems;
    l->chunk = has_chunk(l) ? l->work + l->own.elems : NULL;
    if (sends_bf16(s))
        l->sent = (uint16_t *)(l->work + l->own.elems + (has_chunk(l) ? STATE_RANGE_ELEMS : 0));
    if (!sends_quantised(s))
        return ST_OK;
    enum status st = ST_OK;
    l->compress_bytes = plan_compress(s);
    const struct grad_compress_config config = compress_config(s);
    if (config.buckets_n > 0)
        st = grad_compress_open(&config, &l->compress);
    free((void *)(uintptr_t)config.bucket_elems);
    return st;
}

void step_local_close(struct step_core *s)
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

/* ---- for a plan ---- */

/* n ranks of the job: `first` and the following ones, `apart` ranks apart. */
struct group {
    int first, apart, n;
};

static void report_call(const struct step_dry_listener *listener, struct group g,
                        enum step_dry_call_kind kind, int64_t bytes, double times)
{
    int *ranks = memory_new((size_t)g.n, sizeof *ranks);
    for (int i = 0; i < g.n; i++)
        ranks[i] = g.first + i * g.apart;
    listener->on_call(listener->arg, &(struct step_dry_call){.kind = kind,
                                                             .axis = MESH_AXIS_DATA,
                                                             .ranks = ranks,
                                                             .ranks_n = g.n,
                                                             .bytes = bytes,
                                                             .times = times});
    free(ranks);
}

void step_local_dry_tell(const struct step_core *s, const struct step_dry_listener *listener)
{
    const struct step_local *l = &s->local;
    const struct step_local_config *c = &s->config.local;
    const int64_t elems = step_local_part(s, l->rank).elems,
                  elem_bytes = (int64_t)dtype_bytes(
                      c->compress == GRAD_COMPRESS_KIND_BF16 ? DTYPE_BF16 : DTYPE_F32);
    if (!l->is_on || l->replicas == 1)
        return;
    const struct group all = {0, 1, l->replicas * l->ranks},
                       across = {l->rank, l->ranks, l->replicas};
    report_call(listener, all, STEP_DRY_CALL_ALL_REDUCE, STEP_LOCAL_SUMS * (int64_t)sizeof(double),
                1);
    if (grad_compress_quantises(c->compress)) {
        /* As grad/compress.h exchanges a bucket: parts, then sums. */
        const double times = 1 / (double)c->steps;
        const int64_t part = grad_compress_part_bytes(c->compress, across.n, elems);
        const int64_t lengths = grad_compress_is_coded(c->compress)
                                    ? across.n * (int64_t)GRAD_COMPRESS_LENGTH_BYTES
                                    : 0;
        if (lengths > 0)
            report_call(listener, across, STEP_DRY_CALL_ALL_GATHER, lengths, 2 * times);
        report_call(listener, across, STEP_DRY_CALL_ALL_TO_ALL, across.n * part, times);
        report_call(listener, across, STEP_DRY_CALL_ALL_GATHER, across.n * part, times);
    } else
        report_call(listener, across, STEP_DRY_CALL_ALL_REDUCE, elems * elem_bytes,
                    1 / (double)c->steps);
}

/* ---- every step ---- */

enum status step_local_sum(struct step_core *s, double *values, int n)
{
    const struct tensor t = {values, DTYPE_F64};
    return s->local.world ? comm_all_reduce(s->local.world, t, t, n) : ST_OK;
}

/* exchange — Makes loss and norm the means over replicas, the targets their sum, and the vote the
 * highest of all. */
static enum status exchange(void *self, struct step_now *now)
{
    struct step_core *s = self;
    struct step_result *r = now->r;
    double v[STEP_LOCAL_SUMS] = {0};
    if (s->local.rank == 0) {
        v[0] = r->loss / s->local.replicas;
        v[1] = r->grad_norm / s->local.replicas;
        v[2] = (double)r->targets;
        v[3 + r->vote] = 1;
    }
    TRY(step_local_sum(s, v, STEP_LOCAL_SUMS));
    r->loss = v[0];
    r->grad_norm = v[1];
    r->targets = (int64_t)v[2];
    for (int vote = 0; vote < STEP_VOTES; vote++)
        r->vote = v[3 + vote] > 0 ? vote : r->vote;
    return ST_OK;
}

static const struct step_feature local = {.name = "local steps",
                                          .phase = {[STEP_PHASE_REDUCE] = exchange}};

enum status step_local_add(struct step_core *s)
{
    if (s->local.replicas > 1)
        step_feature_add(s, &local, s);
    return ST_OK;
}

int step_local_replicas(const struct step *step) { return step_core(step)->local.replicas; }

bool step_local_is_apart(const struct step *step) { return step_core(step)->local.is_apart; }
