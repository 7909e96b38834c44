/* step_shard_check — see step_shard_check.h. */
#include "train/feature/step_shard_check.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/store/exact.h"
#include "train/step/pipe.h"

/* each — the samples of a shard. */
static int64_t each(const struct step *s) { return s->config.global_samples / s->config.shards; }

/* ---- what is compared ---- */

static bool can_compare(const struct step *s)
{
    return s->config.checks_shards && s->config.shards > 0 && !s->config.is_eval &&
           step_mesh_data_ranks(s) > 1;
}

bool step_shard_check_is_due(const struct step *s) { return s->check.turn > 0 && s->check.feed; }

void step_shard_check_ask(struct step *s, int64_t turn)
{
    ASSERTF(turn > 0, "turn %lld", (long long)turn);
    s->check.turn = can_compare(s) ? turn : 0;
}

enum step_shard_found step_shard_check_found(const struct step *s) { return s->check.found; }

void step_shard_check_flip(struct step *s, const struct step_shard_flip *flip)
{
    s->check.flip = *flip;
}

/* All shards of a run have their turn. */
int step_shard_check_chosen(const struct step *s, int group)
{
    const int *begin = store_exact_deal(s->store);
    return begin[group] + (int)(s->check.turn % (begin[group + 1] - begin[group]));
}

/* own_chosen — the number of this rank's own one within its run. */
static int own_chosen(const struct step *s)
{
    const int group = step_mesh_data_rank(s);
    return step_shard_check_chosen(s, group) - store_exact_deal(s->store)[group];
}

bool step_shard_check_has(const struct step *s, const struct step_micro *m)
{
    return m->is_check || m->first / each(s) == own_chosen(s);
}

struct step_shard_trace *step_shard_check_trace(struct step *s, enum step_shard_pass pass)
{
    return &s->check.trace[pass == STEP_SHARD_PASS_OWN     ? STEP_SHARD_TRACE_OWN
                           : pass == STEP_SHARD_PASS_CHECK ? STEP_SHARD_TRACE_CHECK
                                                           : STEP_SHARD_TRACE_AGAIN];
}

/* ---- life ---- */

int64_t step_shard_check_bytes(const struct step *s)
{
    const int64_t tokens = s->config.seq_tokens;
    if (!can_compare(s))
        return 0;
    return batch_bytes(step_task(s), each(s), tokens) + step_context_part_bytes(s, each(s)) +
           (step_has_first_key(&s->config) ? batch_documents_bytes(each(s), tokens) : 0);
}

enum status step_shard_check_open(struct step *s)
{
    struct batch *batch = &s->check.batch;
    if (!can_compare(s))
        return ST_OK;
    TRY(batch_init(batch, step_task(s), each(s), s->config.seq_tokens));
    TRY(step_context_part_open(s, each(s), &s->check.own));
    return step_has_first_key(&s->config) ? batch_add_documents(batch) : ST_OK;
}

void step_shard_check_close(struct step *s)
{
    batch_free(&s->check.batch);
    batch_free(&s->check.own);
    for (int i = 0; i < STEP_SHARD_TRACES; i++)
        step_shard_trace_free(&s->check.trace[i]);
}

void step_shard_check_set_feed(struct step *s, const struct feed *feed, int64_t sample_first)
{
    s->check.feed = feed;
    s->check.sample_first = sample_first;
}

void step_shard_check_clear(struct step *s)
{
    s->check.feed = NULL;
    s->check.turn = 0;
    s->check.flip.passes = 0;
}

/* ---- passes ---- */

/* completes — the gradient of a shard that is compared is complete after this micro-batch; in a
 * step without a comparison, that of the last one. */
static bool completes(const struct step *s, const struct step_micro *m)
{
    if (!step_shard_check_is_due(s))
        return m->is_last;
    const int shard = m->is_check ? 0 : own_chosen(s);
    return m->first + s->config.batch_samples == (shard + 1) * each(s);
}

enum status step_shard_check_unit(struct step *s, const struct step_micro *m, int unit)
{
    struct step_shard_flip *f = &s->check.flip;
    const enum step_shard_pass pass = m->is_check ? s->check.pass : STEP_SHARD_PASS_OWN;
    const bool is_due = step_shard_check_is_due(s),
               is_hit = f->passes & pass && f->give == 0 && f->unit == unit;
    struct pass p = {0};
    if ((!is_due && !is_hit) || !completes(s, m))
        return ST_OK;
    store_bind(s->store, &p);
    if (!m->is_check)
        step_shards_bind(s, m->first, &p);
    step_pipe_ends_bind(s, m->first / s->config.batch_samples, &p);
    if (is_hit) {
        f->passes &= ~(unsigned)pass;
        TRY(step_shard_trace_flip(s, &p));
    }
    return is_due ? step_shard_trace_unit(s, &p, unit) : ST_OK;
}

/* passes — of a shard whose first sample in the global batch is `sample`. */
static enum status passes(struct step *s, const struct batch *batch, int64_t sample,
                          struct step_result *r)
{
    for (int64_t first = 0; first < each(s); first += s->config.batch_samples) {
        const struct step_micro m = {.first = first, .is_check = true};
        struct pass p = step_run_pass(s, sample + first, s->check.step_i);
        p.accumulate = first > 0;
        TRY(step_run_copy_inputs(s, batch, first, &p));
        TRY(step_run_micro(s, &p, &m, r));
        TRY(step_run_copy_losses(s, &p, first));
    }
    return ST_OK;
}

/* compute — any shard; only its trace is of use. */
static enum status compute(struct step *s, int shard, enum step_shard_pass pass,
                           struct step_result *r, uint64_t *sum_out)
{
    struct step_shard_check *k = &s->check;
    struct step_shard_trace *trace = step_shard_check_trace(s, pass);
    const int64_t sample = shard * each(s);
    /* The shard's samples; with a context axis own positions of them. */
    k->batch.samples = each(s);
    TRY(feed_get(k->feed, k->sample_first + sample, each(s), &k->batch.host));
    step_run_set_window(s, &k->batch, k->step_i);
    const struct batch batch = step_context_part(s, &k->batch, &k->own);
    k->pass = pass;
    step_shard_trace_clear(trace);
    TRY(s->pipe ? step_pipe_run_alone(s, &batch, sample, k->step_i, r)
                : passes(s, &batch, sample, r));
    TRY(dev_sync(s->stream));
    step_shard_trace_losses(s, trace, 0);
    *sum_out = step_shard_trace_sum(trace);
    return ST_OK;
}

enum status step_shard_check_begin(struct step *s, int64_t step_i, struct step_result *r)
{
    const int next = (step_mesh_data_rank(s) + 1) % step_mesh_data_ranks(s);
    if (!step_shard_check_is_due(s))
        return ST_OK;
    s->check.step_i = step_i;
    TRY(compute(s, step_shard_check_chosen(s, next), STEP_SHARD_PASS_CHECK, r, &s->check.other));
    step_shard_trace_clear(step_shard_check_trace(s, STEP_SHARD_PASS_OWN));
    return ST_OK;
}

/* From parameters that are gathered or rounded anew. */
enum status step_shard_check_again(struct step *s, int shard, uint64_t *sum_out)
{
    struct step_result r = {0};
    store_params_invalidate(s->store);
    return compute(s, shard, STEP_SHARD_PASS_AGAIN, &r, sum_out);
}

enum status step_shard_check_end(struct step *s, struct step_result *r)
{
    struct step_shard_trace *trace = step_shard_check_trace(s, STEP_SHARD_PASS_OWN);
    if (!step_shard_check_is_due(s))
        return ST_OK;
    r->is_compared = true;
    step_shard_trace_losses(s, trace, own_chosen(s) * each(s));
    const uint64_t own[2] = {step_shard_trace_sum(trace), s->check.other};
    uint64_t *all = memory_new((size_t)mesh_ranks(&s->mesh.mesh) * 2, sizeof *all);
    enum status st = step_sentinel_exchange(s, own, 2, all);
    if (st == ST_OK)
        st = step_shard_differ(s, all);
    free(all);
    return st;
}
