/* step_shard_check — see step_shard_check.h. */
#include "train/feature/step_shard_check.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/store/exact.h"
#include "train/step/feature.h"
#include "train/step/pipe.h"
#include "train/feature/step_sentinel.h"
#include "train/step/lr_schedule.h"

/* ---- the choice of shards ---- */

static bool can_compare(const struct step_core *s)
{
    return s->config.checks_shards && s->config.shards > 0 && !s->config.is_eval &&
           step_mesh_data_ranks(s) > 1;
}

bool step_shard_check_is_due(const struct step_shard_check *k) { return k->turn > 0 && k->now; }

void step_shard_check_ask(struct step *step, int64_t turn)
{
    struct step_shard_check *k = step_shard_check_of(step);
    ASSERTF(turn > 0, "turn %lld", (long long)turn);
    k->asked = can_compare(k->s) ? turn : 0;
}

enum step_shard_found step_shard_check_found(const struct step *step)
{
    return step_shard_check_of(step)->found;
}

void step_shard_check_flip(struct step *step, const struct step_shard_flip *flip)
{
    step_shard_check_of(step)->planned = *flip;
}

/* All shards of a run have their turn. */
int step_shard_check_chosen(const struct step_shard_check *k, int group)
{
    const int *begin = store_exact_deal(k->s->store);
    return begin[group] + (int)(k->turn % (begin[group + 1] - begin[group]));
}

/* own_chosen — Returns the number of this rank's compared shard within its run. */
static int own_chosen(const struct step_shard_check *k)
{
    const int group = step_mesh_data_rank(k->s);
    return step_shard_check_chosen(k, group) - store_exact_deal(k->s->store)[group];
}

bool step_shard_check_has(const struct step_shard_check *k, const struct step_micro *m)
{
    return m->is_check || m->first / step_shards_each(k->s) == own_chosen(k);
}

struct step_shard_trace *step_shard_check_trace(struct step_shard_check *k,
                                                enum step_shard_pass pass)
{
    return &k->trace[pass == STEP_SHARD_PASS_OWN     ? STEP_SHARD_TRACE_OWN
                     : pass == STEP_SHARD_PASS_CHECK ? STEP_SHARD_TRACE_CHECK
                                                     : STEP_SHARD_TRACE_AGAIN];
}

/* ---- passes ---- */

/* completes_shard — Returns true if this micro-batch completes the gradient of a shard that is
 * compared; in a step without a comparison, of the last shard. */
static bool completes_shard(const struct step_shard_check *k, const struct step_micro *m)
{
    if (!step_shard_check_is_due(k))
        return m->is_last;
    const int shard = m->is_check ? 0 : own_chosen(k);
    return m->first + k->s->config.batch_samples == (shard + 1) * step_shards_each(k->s);
}

static enum status unit_bwd(void *self, const struct step_micro *m, int unit)
{
    struct step_shard_check *k = self;
    struct step_core *s = k->s;
    struct step_shard_flip *f = &k->flip;
    const enum step_shard_pass pass = m->is_check ? k->pass : STEP_SHARD_PASS_OWN;
    const bool is_due = step_shard_check_is_due(k),
               is_hit = f->passes & pass && f->give == 0 && f->unit == unit;
    struct pass p = {0};
    if ((!is_due && !is_hit) || !completes_shard(k, m))
        return ST_OK;
    store_bind(s->store, &p);
    if (!m->is_check)
        step_shards_bind(s, m->first, &p);
    step_pipe_ends_bind(s, m->first / s->config.batch_samples, &p);
    if (is_hit) {
        f->passes &= ~(unsigned)pass;
        TRY(step_shard_trace_flip(k, &p));
    }
    return is_due ? step_shard_trace_unit(k, &p, unit) : ST_OK;
}

/* run_passes — Runs the passes of a shard whose first sample in the global batch is `sample`. */
static enum status run_passes(struct step_core *s, const struct step_now *now,
                              const struct batch *batch, int64_t sample, struct step_result *r)
{
    for (int64_t first = 0; first < step_shards_each(s); first += s->config.batch_samples) {
        const struct step_micro m = {.first = first, .is_check = true};
        struct pass p = step_pass_train(s->step, sample + first, now->step_i);
        p.accumulate = first > 0;
        TRY(step_copy_inputs(s->step, batch, first, &p));
        TRY(step_micro_fwd(s->step, &p, &m));
        TRY(step_micro_bwd(s->step, &p, &m, r));
        TRY(step_copy_losses(s->step, &p, first));
    }
    return ST_OK;
}

/* compute_shard — Computes any shard, only for its trace. */
static enum status compute_shard(struct step_shard_check *k, int shard, enum step_shard_pass pass,
                                 struct step_result *r, uint64_t *sum_out)
{
    struct step_core *s = k->s;
    struct step_shard_trace *trace = step_shard_check_trace(k, pass);
    const int64_t sample = shard * step_shards_each(s);
    /* The shard's samples; with a context axis own positions of them. */
    k->batch.samples = step_shards_each(s);
    TRY(feed_get(k->now->feed, k->now->sample_first + sample, step_shards_each(s), &k->batch.host));
    step_set_reach(&s->config, &k->batch, k->now->step_i);
    const struct batch batch = step_context_batch(s, &k->batch, &k->own);
    k->pass = pass;
    step_shard_trace_clear(trace);
    TRY(s->pipe ? step_pipe_run_alone(s, k->now, &batch, sample, r)
                : run_passes(s, k->now, &batch, sample, r));
    TRY(dev_sync(s->stream));
    step_shard_trace_losses(s, trace, 0);
    *sum_out = step_shard_trace_sum(trace);
    return ST_OK;
}

/* Parameters are all-gathered or rounded anew first. */
enum status step_shard_check_again(struct step_shard_check *k, int shard, uint64_t *sum_out)
{
    struct step_result r = {0};
    store_params_invalidate(k->s->store);
    return compute_shard(k, shard, STEP_SHARD_PASS_AGAIN, &r, sum_out);
}

/* ---- a step ---- */

/* begin — Begins a step. Another rank's shard has the same scale of the loss, so counts come
 * first. */
static enum status begin(void *self, struct step_now *now)
{
    struct step_shard_check *k = self;
    k->now = now->feed ? now : NULL;
    k->turn = k->asked;
    k->flip = k->planned;
    k->asked = 0;
    k->planned.passes = 0;
    now->needs_counts |= step_shard_check_is_due(k);
    return ST_OK;
}

/* compute_other — Computes the next group's shard, before this rank's own passes. */
static enum status compute_other(void *self, struct step_now *now)
{
    struct step_shard_check *k = self;
    const int next = (step_mesh_data_rank(k->s) + 1) % step_mesh_data_ranks(k->s);
    if (!step_shard_check_is_due(k))
        return ST_OK;
    TRY(compute_shard(k, step_shard_check_chosen(k, next), STEP_SHARD_PASS_CHECK, now->r,
                      &k->other));
    step_shard_trace_clear(step_shard_check_trace(k, STEP_SHARD_PASS_OWN));
    return ST_OK;
}

/* compare — Fails on all ranks if two computations differ. */
static enum status compare(void *self, struct step_now *now)
{
    struct step_shard_check *k = self;
    struct step_shard_trace *trace = step_shard_check_trace(k, STEP_SHARD_PASS_OWN);
    if (!step_shard_check_is_due(k))
        return ST_OK;
    now->r->is_compared = true;
    step_shard_trace_losses(k->s, trace, own_chosen(k) * step_shards_each(k->s));
    const uint64_t own[2] = {step_shard_trace_sum(trace), k->other};
    uint64_t *all = memory_new((size_t)mesh_ranks(&k->s->mesh.mesh) * 2, sizeof *all);
    enum status st = step_sentinel_exchange(k->s, own, 2, all);
    if (st == ST_OK)
        st = step_shard_differ(k, all);
    free(all);
    return st;
}

/* ---- life ---- */

int64_t step_shard_check_bytes(const struct step_core *s)
{
    const int64_t tokens = s->config.seq_tokens;
    if (!can_compare(s))
        return 0;
    return batch_bytes(step_task(s), step_shards_each(s), tokens) +
           step_context_batch_bytes(s, step_shards_each(s)) +
           (step_has_first_key(&s->config) + step_has_positions(&s->config)) *
               batch_documents_bytes(step_shards_each(s), tokens);
}

static void close_check(void *self)
{
    struct step_shard_check *k = self;
    dev_unpin(k->s->config.dev, k->host);
    batch_free(&k->batch);
    batch_free(&k->own);
    for (int i = 0; i < STEP_SHARD_TRACES; i++)
        step_shard_trace_free(&k->trace[i]);
    free(k);
}

static const struct step_feature check = {.name = "shard check",
                                          .phase = {[STEP_PHASE_BEGIN] = begin,
                                                    [STEP_PHASE_FORWARD] = compute_other,
                                                    [STEP_PHASE_REDUCE] = compare},
                                          .pass = step_shard_trace_pass,
                                          .rows = step_shard_trace_give,
                                          .unit_bwd = unit_bwd,
                                          .close = close_check};

struct step_shard_check *step_shard_check_of(const struct step *step)
{
    return step_feature_find(step, &check);
}

enum status step_shard_check_add(struct step_core *s)
{
    struct step_shard_check *k = memory_new(1, sizeof *k);
    k->s = s;
    step_feature_add(s, &check, k);
    if (!can_compare(s))
        return ST_OK;
    if (dev_is_discrete(s->config.dev))
        TRY(dev_pin(s->config.dev, STEP_SHARD_HOST_BYTES, &k->host));
    TRY(batch_init(&k->batch, step_task(s), step_shards_each(s), s->config.seq_tokens));
    TRY(step_context_batch_open(s, step_shards_each(s), &k->own));
    if (step_has_positions(&s->config))
        TRY(batch_add_positions(&k->batch));
    return step_has_first_key(&s->config) ? batch_add_documents(&k->batch) : ST_OK;
}
