/* step_shards — see step_shards.h. A shard is one or several micro-batches of fixed shape, whose
 * gradients are added as they are made. */
#include "train/feature/step_shards.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "mesh/store/exact.h"
#include "train/step/feature.h"
#include "train/step/pipe.h"

/* The feature. pace: measured on this rank since the last deal was considered, with
 * config.balances. */
struct shards {
    struct step_core *s;
    double *pace_all; /* milliseconds of a shard on each data rank */
    double pace_ms;   /* milliseconds of computing */
    int64_t pace_steps, pace_shards;
};

/* ---- the shards of a rank ---- */

static int deal_of(const struct step_core *s, int data_rank)
{
    const int *begin = store_exact_deal(s->store);
    return begin[data_rank + 1] - begin[data_rank];
}

int step_shards_deal(const struct step *step, int data_rank)
{
    return deal_of(step_core(step), data_rank);
}

/* ---- passes ---- */

/* add_ends — Adds unit 0 of a stage that shares the token embedding with another stage, tensor by
 * tensor. */
static enum status add_ends(struct step_core *s, int64_t first)
{
    struct pass to = {0};
    store_bind(s->store, &to);
    step_shards_bind(s, first, &to);
    for (int i = 0; i < s->table.params_n && s->table.param[i].unit == 0; i++) {
        if (step_pipe_ends_lacks(s, i))
            continue;
        TRY(step_pipe_ends_put(s, &to, first / s->config.batch_samples, i));
        TRY(store_exact_add(s->store, step_shards_of(s, first), s->table.param[i].offset,
                            s->table.param[i].elems));
    }
    return ST_OK;
}

static void bind_pass(void *self, const struct step_micro *m, int at, struct pass *p)
{
    (void)at;
    step_shards_bind(((struct shards *)self)->s, m->first, p);
}

/* add_unit — After the last micro-batch of a shard: adds a unit's gradient over the tensor axis and
 * in the tree of shards. */
static enum status add_unit(void *self, const struct step_micro *m, int unit)
{
    struct step_core *s = ((struct shards *)self)->s;
    if (m->is_check || (m->first + s->config.batch_samples) % step_shards_each(s) != 0)
        return ST_OK;
    TRY(step_mesh_sum_partial(s, m->first, unit));
    if (unit == 0 && step_pipe_ends_adds(s))
        return add_ends(s, m->first);
    int64_t begin, n;
    param_unit_span(&s->table, unit, &begin, &n);
    return store_exact_add(s->store, step_shards_of(s, m->first), begin, n);
}

/* add_idle_passes — Adds idle passes before the passes of a rank that has fewer shards than
 * another. With SHARD=full every pass all-gathers parameters, and the idle passes only join these
 * calls. */
static enum status add_idle_passes(void *self, struct step_now *now)
{
    struct step_core *s = ((struct shards *)self)->s;
    int most = 0;
    (void)now;
    for (int i = 0; i < step_mesh_data_ranks(s); i++)
        most = deal_of(s, i) > most ? deal_of(s, i) : most;
    if (most == 0 || most == deal_of(s, step_mesh_data_rank(s)))
        return ST_OK;
    int64_t idle = (most - deal_of(s, step_mesh_data_rank(s))) * step_shards_each(s);
    for (int64_t first = 0; first < idle; first += s->config.batch_samples) {
        /* Requests parameters as a pass does, and computes nothing. */
        const int blocks = (int)s->dims.layers;
        for (int unit = 0; unit <= blocks; unit++)
            TRY(store_unshard(s->store, unit, 1));
        TRY(step_unshard_head(s));
        for (int unit = blocks; unit >= 1; unit--)
            TRY(store_unshard(s->store, unit, -1));
    }
    return ST_OK;
}

/* ---- BALANCE=auto ---- */

#define ALIGNED_COSTS 1.03 /* limit for deals with aligned runs, relative to the best deal's time */

/* time_of — Returns the time of the slowest rank. */
static double time_of(const struct balance *b, const int *begin)
{
    double most = 0;
    for (int i = 0; i < b->ranks; i++)
        most = fmax(most, (begin[i + 1] - begin[i]) * b->ms[i]);
    return most;
}

/* next_of — Returns the rank that would end first with `unit` shards more. begin[i + 1]: shards of
 * rank i. */
static int next_of(const struct balance *b, const int *begin, int unit)
{
    int best = 0;
    for (int i = 1; i < b->ranks; i++)
        if ((begin[i + 1] + unit) * b->ms[i] < (begin[best + 1] + unit) * b->ms[best])
            best = i;
    return best;
}

/* deal_shards — Deals shards in runs of whole units. Returns false if there are too few. */
static bool deal_shards(const struct balance *b, int unit, int *begin)
{
    if (b->shards % unit != 0 || b->shards / unit < b->ranks)
        return false;
    begin[0] = 0;
    for (int i = 0; i < b->ranks; i++)
        begin[i + 1] = unit;
    for (int left = b->shards / unit - b->ranks; left > 0; left--)
        begin[next_of(b, begin, unit) + 1] += unit;
    for (int i = 0; i < b->ranks; i++)
        begin[i + 1] += begin[i];
    return true;
}

bool step_shards_balance_deal(const struct balance *b, int *begin)
{
    int unit = 1;
    bool is_measured = true;
    for (int i = 0; i < b->ranks; i++)
        is_measured = is_measured && b->ms[i] > 0 && isfinite(b->ms[i]);
    if (!is_measured || !deal_shards(b, 1, begin))
        return false;
    const double best = time_of(b, begin), now = time_of(b, b->begin);
    while (b->shards % (2 * unit) == 0)
        unit *= 2;
    for (; unit >= 1; unit /= 2) {
        bool is_found = deal_shards(b, unit, begin) &&
                        (unit == 1 || time_of(b, begin) <= ALIGNED_COSTS * best) &&
                        b->fits(b->arg, begin);
        if (is_found)
            return time_of(b, begin) <= BALANCE_GAIN * now;
    }
    return false;
}

static bool fits_store(void *arg, const int *begin)
{
    const struct step_core *s = arg;
    return store_exact_fits(s->store, begin);
}

/* deal_again — Makes another deal if one is faster. begin: room for it. */
static enum status deal_again(struct shards *own, int *begin)
{
    struct step_core *s = own->s;
    const struct balance balance = {.ms = own->pace_all,
                                    .shards = s->config.shards,
                                    .ranks = step_mesh_data_ranks(s),
                                    .begin = store_exact_deal(s->store),
                                    .fits = fits_store,
                                    .arg = s};
    if (!step_shards_balance_deal(&balance, begin))
        return ST_OK;
    TRY(store_exact_redeal(s->store, begin));
    if (comm_place(s->config.comm)->rank == 0) {
        struct text line = {0};
        for (int i = 0; i < step_mesh_data_ranks(s); i++)
            text_add(&line, "%s%d of %.1f ms", i > 0 ? ", " : "", deal_of(s, i), own->pace_all[i]);
        LOG_INFO("BALANCE=auto: virtual shards of each worker from now on, and the time of one: %s",
                 line.data ? line.data : "");
        text_free(&line);
    }
    return ST_OK;
}

/* ---- the feature ---- */

static void close_shards(void *self)
{
    struct shards *own = self;
    free(own->pace_all);
    free(own);
}

static const struct step_feature shards = {.name = "virtual shards",
                                           .phase = {[STEP_PHASE_FORWARD] = add_idle_passes},
                                           .pass = bind_pass,
                                           .unit_bwd = add_unit,
                                           .close = close_shards};

enum status step_shards_add(struct step_core *s)
{
    if (s->config.shards == 0)
        return ST_OK;
    struct shards *own = memory_new(1, sizeof *own);
    own->s = s;
    own->pace_all = memory_new((size_t)step_mesh_data_ranks(s), sizeof *own->pace_all);
    step_feature_add(s, &shards, own);
    return ST_OK;
}

enum status step_shards_balance(struct step *step, const struct step_result *r)
{
    struct step_core *s = step_core(step);
    struct shards *own = step_feature_find(step, &shards);
    const int ranks = step_mesh_data_ranks(s), rank = step_mesh_data_rank(s),
              each = mesh_ranks(&s->mesh.mesh) / ranks;
    struct comm_ticket ticket;
    if (!s->config.balances || ranks == 1)
        return ST_OK;
    own->pace_ms += r->compute_ms;
    /* the compared shard of another rank is work, too */
    own->pace_shards += deal_of(s, rank) + r->is_compared;
    if (++own->pace_steps < STEP_BALANCE_STEPS)
        return ST_OK;
    /* The milliseconds of a shard on every data rank: the mean of its ranks along other axes. */
    for (int i = 0; i < ranks; i++)
        own->pace_all[i] = 0;
    own->pace_all[rank] = own->pace_ms / (double)(own->pace_shards * each);
    own->pace_ms = 0;
    own->pace_steps = own->pace_shards = 0;
    TRY(store_all_reduce_begin(s->store, own->pace_all, ranks, &ticket));
    TRY(store_wait(s->store, ticket));
    int *begin = memory_new((size_t)ranks + 1, sizeof *begin);
    enum status st = deal_again(own, begin);
    free(begin);
    return st;
}
