/* step_local — see step_local.h. Outer steps: step_local_sync.c. The state of all
 * replicas: step_local_state.c. */
#include "train/step_local.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/step_inside.h"

/* ---- places ---- */

/* check_fragments — the settings that conf_rules.c cannot compare with the model. */
static enum status check_fragments(const struct step_config *c)
{
    const struct fragment_schedule f = step_local_schedule(&c->local);
    ASSERTF(f.n <= FRAGMENT_MAX && f.steps % f.n == 0 && f.delay >= 0 && f.delay <= f.steps / f.n,
            "steps %lld fragments %d delay %lld", (long long)f.steps, f.n, (long long)f.delay);
    if (f.n <= c->dims.layers || f.n == 1)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "LOCAL_FRAGMENTS=%d is more than the %lld layers of the model; lower it", f.n,
                (long long)c->dims.layers);
}

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
    TRY(check_fragments(&s->config));
    TRY(check_replicas(&s->config, place->ranks, each));
    l->is_on = true;
    l->ranks = each;
    l->replicas = place->ranks / each;
    l->replica = place->rank / each;
    l->rank = place->rank % each;
    s->config.global_samples /= l->replicas;
    s->config.batch_warmup.from /= l->replicas;
    place->rank = l->rank;
    place->ranks = l->ranks;
    return ST_OK;
}

void step_local_outside(const struct step *s, struct step_config *config, struct step_place *place)
{
    *config = s->config;
    config->global_samples *= s->local.replicas;
    config->batch_warmup.from *= s->local.replicas;
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

/* ---- fragments ---- */

struct fragment_schedule step_local_schedule(const struct step_local_config *c)
{
    return (struct fragment_schedule){c->steps, c->fragments > 0 ? c->fragments : 1, c->delay};
}

struct part_extent step_local_part_of(const struct step *s, int owner, int fragment)
{
    return part_extent(s->local.map.elems[fragment], s->local.ranks, owner);
}

int64_t step_local_own(const struct step *s, int owner, int fragment)
{
    int64_t at = 0;
    for (int i = 0; i < fragment; i++)
        at += step_local_part_of(s, owner, i).elems;
    return at;
}

/* rounds — Returns whether differences travel as bf16. */
static bool rounds(const struct step *s)
{
    return s->local.replicas > 1 && s->config.local.compress == GRAD_COMPRESS_KIND_BF16;
}

static int64_t memory_bytes(const struct step *s)
{
    const int64_t own = step_local_own(s, s->local.rank, s->local.map.n),
                  elems = 3 * own + (has_chunk(&s->local) ? MESH_STATE_ELEMS : 0);
    return elems * (int64_t)sizeof(float) + (rounds(s) ? own * (int64_t)sizeof(uint16_t) : 0);
}

/* ---- what travels ----
 *
 * A piece for each step of the delay. Compressed, in runs of RUN_ELEMS at most, so that the buffers
 * of messages stay small. */

#define RUN_ELEMS ((int64_t)4 << 20)

static bool quantises(const struct step *s)
{
    return s->local.replicas > 1 && grad_compress_quantises(s->config.local.compress);
}

static int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

struct step_local_runs step_local_runs(const struct step *s, int owner, int fragment)
{
    const int64_t all = step_local_part_of(s, owner, fragment).elems,
                  pieces = s->config.local.delay > 0 ? s->config.local.delay : 1,
                  most = quantises(s) ? RUN_ELEMS : INT64_MAX,
                  piece = divide_up(divide_up(all, pieces), PART_ALIGN) * PART_ALIGN;
    struct step_local_runs runs = {piece < most ? piece : most, 0};
    if (all > 0)
        runs.n = (int)divide_up(all, runs.elems);
    return runs;
}

int step_local_bucket(const struct step *s, int fragment)
{
    int n = 0;
    for (int i = 0; i < fragment; i++)
        n += step_local_runs(s, s->local.rank, i).n;
    return n;
}

static void list_buckets(const struct step *s, int fragment, int64_t *bucket)
{
    const struct step_local_runs runs = step_local_runs(s, s->local.rank, fragment);
    int64_t left = step_local_part_of(s, s->local.rank, fragment).elems;
    for (int i = 0; i < runs.n; i++, left -= runs.elems)
        bucket[i] = left < runs.elems ? left : runs.elems;
}

/* compress_config — the caller frees bucket_elems. */
static enum status compress_config(const struct step *s, struct grad_compress_config *out)
{
    const int n = step_local_bucket(s, s->local.map.n);
    int64_t *elems = calloc((size_t)n + 1, sizeof *elems);
    if (!elems)
        return FAIL(ST_RETRY, "out of memory: %d runs of outer gradients", n);
    for (int i = 0; i < s->local.map.n; i++)
        list_buckets(s, i, elems + step_local_bucket(s, i));
    *out = (struct grad_compress_config){.comm = s->local.across,
                                         .kind = s->config.local.compress,
                                         .deferred_first = n,
                                         .buckets_n = n,
                                         .bucket_elems = elems};
    return ST_OK;
}

static enum status plan_compress(const struct step *s, int64_t *bytes)
{
    struct grad_compress_config config;
    *bytes = 0;
    if (!quantises(s))
        return ST_OK;
    TRY(compress_config(s, &config));
    if (config.buckets_n > 0)
        *bytes = grad_compress_plan(&config, s->local.replica, s->local.replicas, false);
    free((void *)(uintptr_t)config.bucket_elems);
    return ST_OK;
}

static enum status open_compress(struct step *s)
{
    struct grad_compress_config config;
    enum status st = ST_OK;
    if (!quantises(s))
        return ST_OK;
    TRY(plan_compress(s, &s->local.compress_bytes));
    TRY(compress_config(s, &config));
    if (config.buckets_n > 0)
        st = grad_compress_open(&config, &s->local.compress);
    free((void *)(uintptr_t)config.bucket_elems);
    return st;
}

/* ---- memory ---- */

enum status step_local_plan(const struct step *s, int64_t *bytes)
{
    struct step planned = *s; /* a step that is planned has no fragments yet */
    *bytes = 0;
    if (!s->local.is_on)
        return ST_OK;
    TRY(fragment_init(&s->table, step_local_schedule(&s->config.local).n, &planned.local.map));
    enum status st = plan_compress(&planned, bytes);
    *bytes += memory_bytes(&planned);
    fragment_free(&planned.local.map);
    return st;
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
    assert_whole(s);
    TRY(fragment_init(&s->table, step_local_schedule(&s->config.local).n, &l->map));
    const int64_t bytes = memory_bytes(s);
    l->own_elems = step_local_own(s, l->rank, l->map.n);
    TRY(dev_is_discrete(s->config.dev) ? dev_pin(s->config.dev, (size_t)bytes, &l->memory)
                                       : dev_alloc(s->config.dev, (size_t)bytes, &l->memory));
    memset(l->memory, 0, (size_t)bytes);
    l->memory_bytes = bytes;
    l->outer = l->memory;
    l->momentum = l->outer + l->own_elems;
    l->work = l->momentum + l->own_elems;
    l->chunk = has_chunk(l) ? l->work + l->own_elems : NULL;
    if (rounds(s))
        l->sent = (uint16_t *)(l->work + l->own_elems + (has_chunk(l) ? MESH_STATE_ELEMS : 0));
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
    fragment_free(&l->map);
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

int step_local_replicas(const struct step *s) { return s->local.replicas; }

enum step_local_extent step_local_extent(const struct step *s)
{
    const struct step_local *l = &s->local;
    return !l->is_on || l->is_level ? STEP_LOCAL_LEVEL
           : l->is_flying           ? STEP_LOCAL_FLYING
                                    : STEP_LOCAL_APART;
}
