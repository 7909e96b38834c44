/* step_balance — see step_balance.h. */
#include "train/feature/step_balance.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "mesh/store/exact.h"

/* ---- the choice of a deal ---- */

#define ALIGNED_COSTS 1.03 /* limit for deals with aligned runs, relative to the best deal's time */

static int run_of(const int *begin, int rank) { return begin[rank + 1] - begin[rank]; }

/* time_at — Returns the time of the slowest rank that has more than `past` units. */
static double time_at(const struct balance *b, const int *begin, int past)
{
    double most = 0;
    for (int i = 0; i < b->ranks; i++)
        if (run_of(begin, i) > past)
            most = fmax(most, b->ms[i]);
    return most;
}

/* time_of — Returns the time of the passes of a deal. In lockstep, ranks with fewer units join the
 * others' all-gathers before their own passes, so all end together. */
static double time_of(const struct balance *b, const int *begin)
{
    double time = 0;
    if (b->is_lockstep)
        for (int past = 0; past < b->units && time_at(b, begin, past) > 0; past++)
            time += time_at(b, begin, past);
    else
        for (int i = 0; i < b->ranks; i++)
            time = fmax(time, run_of(begin, i) * b->ms[i]);
    return time;
}

/* slowest_useful — Returns the time of a unit on the slowest rank that should have more than one
 * unit. In lockstep, a pass of the ranks up to a time of ms computes as many units as there are
 * such ranks, so their number for each millisecond is maximised. */
static double slowest_useful(const struct balance *b)
{
    double best = INFINITY, best_rate = 0;
    for (int i = 0; b->is_lockstep && i < b->ranks; i++) {
        int n = 0;
        for (int k = 0; k < b->ranks; k++)
            n += b->ms[k] <= b->ms[i];
        if (n / b->ms[i] > best_rate) {
            best_rate = n / b->ms[i];
            best = b->ms[i];
        }
    }
    return best;
}

/* next_of — Returns the rank for `unit` units more: the rank that would end first; in lockstep, the
 * useful rank with the fewest units. -1: no rank has memory for them. begin[i + 1]: units of rank
 * i. */
static int next_of(const struct balance *b, double slowest, const int *begin, int unit)
{
    double best_ms = 0;
    int best = -1;
    for (int i = 0; i < b->ranks; i++) {
        const bool is_late = b->ms[i] > slowest;
        const double ms = (begin[i + 1] + unit) * (!b->is_lockstep ? b->ms[i]
                                                   : is_late       ? (double)b->units
                                                                   : 1.0);
        if (begin[i + 1] + unit <= b->most && (best < 0 || ms < best_ms)) {
            best = i;
            best_ms = ms;
        }
    }
    return best;
}

/* deal_units — Deals units in runs of a multiple of `unit`. Returns false if that is impossible. */
static bool deal_units(const struct balance *b, int unit, int *begin)
{
    const double slowest = slowest_useful(b);
    if (b->units % unit != 0 || b->units / unit < b->ranks || unit > b->most)
        return false;
    begin[0] = 0;
    for (int i = 0; i < b->ranks; i++)
        begin[i + 1] = unit;
    for (int left = b->units / unit - b->ranks; left > 0; left--) {
        const int rank = next_of(b, slowest, begin, unit);
        if (rank < 0)
            return false;
        begin[rank + 1] += unit;
    }
    for (int i = 0; i < b->ranks; i++)
        begin[i + 1] += begin[i];
    return true;
}

/* deal_within — Deals units in the largest aligned runs that take at most `most_ms` and fit.
 * Returns false if there are none. */
static bool deal_within(const struct balance *b, double most_ms, int *begin)
{
    int unit = 1;
    while (b->is_tree && b->units % (2 * unit) == 0)
        unit *= 2;
    for (; unit >= 1; unit /= 2)
        if (deal_units(b, unit, begin) && time_of(b, begin) <= most_ms && b->fits(b->arg, begin))
            return true;
    return false;
}

bool step_balance_choose(const struct balance *b, int *begin)
{
    bool is_measured = true;
    for (int i = 0; i < b->ranks; i++)
        is_measured = is_measured && b->ms[i] > 0 && isfinite(b->ms[i]);
    if (!is_measured || !deal_units(b, 1, begin))
        return false;
    /* There may be memory only for aligned runs that need longer. */
    const double best = time_of(b, begin), most_ms = BALANCE_GAIN * time_of(b, b->begin);
    return deal_within(b, fmin(ALIGNED_COSTS * best, most_ms), begin) ||
           deal_within(b, most_ms, begin);
}

/* ---- the feature ---- */

struct balancing {
    struct step_core *s;
    int units, ranks;        /* units of a step with GLOBAL_BATCH samples; data ranks */
    int *deal, *next;        /* (ranks + 1): the deal now, and the next one */
    bool is_next;            /* the deal changes at the end of this step */
    double *all_ms, *of_ms;  /* milliseconds of a unit: on all ranks of the mesh; of data ranks */
    struct comm_ticket sums; /* sum of all_ms over the ranks */
    bool is_exchanging;
    /* measured on this rank since the last exchange */
    double pace_ms, last_ms;
    int64_t pace_steps, pace_units, last_units;
};

static const int *deal_of(const struct balancing *own)
{
    return own->s->config.shards > 0 ? store_exact_deal(own->s->store) : own->deal;
}

/* begin — Begins the exchange of times when it is due. */
static enum status begin(void *self, struct step_now *now)
{
    struct balancing *own = self;
    const struct mesh *mesh = &own->s->mesh.mesh;
    (void)now;
    TRY(dev_busy_ms(own->s->stream, &own->last_ms)); /* drops a step without an update */
    own->last_ms = 0;
    own->last_units = 0;
    if (own->pace_steps < STEP_BALANCE_STEPS)
        return ST_OK;
    for (int i = 0; i < mesh_ranks(mesh); i++)
        own->all_ms[i] = 0;
    own->all_ms[comm_place(own->s->config.comm)->rank] =
        own->pace_units > 0 ? own->pace_ms / (double)own->pace_units : 0;
    own->pace_ms = 0;
    own->pace_steps = own->pace_units = 0;
    own->is_exchanging = true;
    return store_all_reduce_begin(own->s->store, own->all_ms, mesh_ranks(mesh), &own->sums);
}

static bool fits_store(void *arg, const int *begin)
{
    const struct step_core *s = ((const struct balancing *)arg)->s;
    return s->config.shards == 0 || store_exact_fits(s->store, begin);
}

/* gather_groups — Computes the time of a unit of each data rank: the time of its slowest rank along
 * the other axes, which wait for each other, and with SHARD=hybrid also within the group that
 * shares parameters. */
static void gather_groups(struct balancing *own)
{
    const struct step_config *c = &own->s->config;
    const int group = c->store.shard == LAYOUT_SHARD_HYBRID ? c->store.group_ranks : 1;
    const struct mesh *mesh = &own->s->mesh.mesh;
    for (int i = 0; i < own->ranks; i++)
        own->of_ms[i] = 0;
    for (int rank = 0; rank < mesh_ranks(mesh); rank++) {
        const int first = mesh_coord_of(mesh, rank).at[MESH_AXIS_DATA] / group * group;
        for (int i = first; i < first + group && i < own->ranks; i++)
            own->of_ms[i] = fmax(own->of_ms[i], own->all_ms[rank]);
    }
}

static void log_deal(const struct balancing *own)
{
    struct text line = {0};
    if (comm_place(own->s->config.comm)->rank != 0)
        return;
    for (int i = 0; i < own->ranks; i++)
        text_add(&line, "%s%d of %.1f ms", i > 0 ? ", " : "", run_of(own->next, i), own->of_ms[i]);
    LOG_INFO("BALANCE=auto: %s of each worker from now on, and the time of one: %s",
             own->s->config.shards > 0 ? "virtual shards" : "micro-batches",
             line.data ? line.data : "");
    text_free(&line);
}

/* choose — Ends the exchange, and chooses the next deal. The sum is complete, because a later one
 * is. */
static enum status choose(void *self, struct step_now *now)
{
    struct balancing *own = self;
    const struct step_config *c = &own->s->config;
    (void)now;
    if (!own->is_exchanging)
        return ST_OK;
    own->is_exchanging = false;
    TRY(store_wait(own->s->store, own->sums));
    gather_groups(own);
    const struct balance balance = {.ms = own->of_ms,
                                    .units = own->units,
                                    .ranks = own->ranks,
                                    .most =
                                        (int)(own->s->samples / (c->global_samples / own->units)),
                                    .is_lockstep = c->store.shard == LAYOUT_SHARD_FULL,
                                    .is_tree = c->shards > 0,
                                    .begin = deal_of(own),
                                    .fits = fits_store,
                                    .arg = own};
    own->is_next = step_balance_choose(&balance, own->next);
    return ST_OK;
}

static enum status begin_passes(void *self, struct step_now *now)
{
    struct balancing *own = self;
    const struct step_core *s = own->s;
    own->last_units += step_mesh_samples(s, step_mesh_data_rank(s), now->samples) /
                       (s->config.global_samples / own->units);
    return own->pace_steps >= STEP_BALANCE_WARM ? dev_busy_begin(s->stream) : ST_OK;
}

static enum status end_passes(void *self, int unit)
{
    struct balancing *own = self;
    return unit == 0 ? dev_busy_end(own->s->stream) : ST_OK;
}

/* end — Adds the time of this step, and changes to the next deal. A GPU has done the passes: their
 * loss is known. */
static enum status end(void *self, struct step_now *now)
{
    struct balancing *own = self;
    (void)now;
    TRY(dev_busy_ms(own->s->stream, &own->last_ms));
    own->pace_ms += own->last_ms;
    if (own->pace_steps++ >= STEP_BALANCE_WARM)
        own->pace_units += own->last_units;
    if (!own->is_next)
        return ST_OK;
    own->is_next = false;
    log_deal(own);
    if (own->s->config.shards > 0)
        return store_exact_redeal(own->s->store, own->next);
    for (int i = 0; i <= own->ranks; i++)
        own->deal[i] = own->next[i];
    return ST_OK;
}

static void close_balance(void *self)
{
    struct balancing *own = self;
    free(own->deal);
    free(own->next);
    free(own->all_ms);
    free(own->of_ms);
    free(own);
}

static const struct step_feature balance = {.name = "balance",
                                            .phase = {[STEP_PHASE_BEGIN] = begin,
                                                      [STEP_PHASE_COUNTED] = choose,
                                                      [STEP_PHASE_FORWARD] = begin_passes,
                                                      [STEP_PHASE_END] = end},
                                            .unit_done = end_passes,
                                            .close = close_balance};

enum status step_balance_add(struct step_core *s)
{
    const struct step_config *c = &s->config;
    const int ranks = step_mesh_data_ranks(s),
              units = c->shards > 0 ? c->shards : (int)(c->global_samples / c->batch_samples);
    if (!c->balances || c->is_eval || ranks == 1)
        return ST_OK;
    if (units == ranks && comm_place(c->comm)->rank == 0)
        LOG_WARN("BALANCE=auto has no effect: each worker has one %s in a step; raise "
                 "GLOBAL_BATCH, or lower %s",
                 c->shards > 0 ? "virtual shard" : "micro-batch",
                 c->shards > 0 ? "the samples of a shard (VIRTUAL_SHARDS)" : "BATCH_SIZE");
    if (units == ranks)
        return ST_OK;
    struct balancing *own = memory_new(1, sizeof *own);
    *own = (struct balancing){.s = s, .units = units, .ranks = ranks};
    own->deal = memory_new((size_t)ranks + 1, sizeof *own->deal);
    own->next = memory_new((size_t)ranks + 1, sizeof *own->next);
    own->all_ms = memory_new((size_t)mesh_ranks(&s->mesh.mesh), sizeof *own->all_ms);
    own->of_ms = memory_new((size_t)ranks, sizeof *own->of_ms);
    for (int i = 0; i <= ranks; i++)
        own->deal[i] = (int)((int64_t)units * i / ranks);
    s->deal = c->shards > 0 ? NULL : own->deal;
    step_feature_add(s, &balance, own);
    return ST_OK;
}

/* ---- for tests ---- */

int step_balance_deal(const struct step *step, int data_rank)
{
    const struct balancing *own = step_feature_find(step, &balance);
    return run_of(deal_of(own), data_rank);
}

void step_balance_measured(struct step *step, double ms)
{
    struct balancing *own = step_feature_find(step, &balance);
    own->pace_ms += own->pace_steps > STEP_BALANCE_WARM ? ms - own->last_ms : 0;
}
