/* step_update — the update of a step: the optimiser on each bucket that this rank updates. The
 * store calls it bucket by bucket, for some buckets in the next step. The decision whether a step
 * has an update is made before: in run.c, or on a GPU by grad_scale (end.c). */
#include <stdlib.h>

#include "base/memory.h"
#include "train/step/inside.h"

void step_update_open(struct step *s)
{
    struct step_update *u = &s->update;
    u->spans = optim_spans(&s->core.table, &s->core.config.optim, &u->spans_n);
    u->cut = memory_new((size_t)u->spans_n + 1, sizeof *u->cut);
}

void step_update_close(struct step *s)
{
    free(s->update.spans);
    free(s->update.cut);
}

/* ---- for features ---- */

int64_t step_update_spans(const struct step *s, const struct store_local_shard *a,
                          const struct optim_span **out)
{
    *out = s->update.cut;
    return optim_cut(s->update.spans, s->update.spans_n, a->first, a->elems, s->update.cut);
}

int64_t step_steps_updated(const struct step *s)
{
    return s->update.step_i + s->update.skipped_n + 1;
}

void step_set_steps_updated(struct step *s, int64_t steps)
{
    s->update.step_i = steps - s->update.skipped_n - 1;
}

int64_t *step_skipped_n(struct step *s) { return &s->update.skipped_n; }

/* ---- a bucket ---- */

/* update_rest — Updates by AdamW the elements of a bucket outside hidden matrices. Their second
 * moments are contiguous; the other arrays have the bucket's layout, with hidden matrices in
 * between. */
static enum status update_rest(struct step *s, const struct store_local_shard *a, int64_t spans_n,
                               struct optim_sums *sums)
{
    int64_t v_at = 0;
    for (int64_t i = 0; i < spans_n; i++) {
        struct optim_span span = s->update.cut[i];
        struct optim_arrays arrays = {tensor_at(a->p, span.offset),
                                      tensor_at(a->g, span.offset),
                                      tensor_at(a->m, span.offset),
                                      tensor_at(a->v, v_at),
                                      {0},
                                      sums};
        span.offset = 0;
        v_at += span.elems;
        TRY(optim_update(&s->core.config.optim, dev_op(s->core.config.dev), s->core.stream, &arrays,
                         &span, 1, s->grad_scale, s->update.lr, s->update.step_i));
    }
    return ST_OK;
}

static enum status update_hidden(struct step *s, int bucket)
{
    const struct optim_config *c = &s->core.config.optim;
    const struct muon muon = {.op = dev_op(s->core.config.dev),
                              .stream = s->core.stream,
                              .table = &s->core.table,
                              .room = &s->update.muon,
                              .grad_scale = s->grad_scale,
                              .momentum = c->momentum,
                              .weight_decay = c->weight_decay,
                              .lr = s->update.lr,
                              .step = s->update.step_i + 1,
                              .heartbeat = s->core.config.heartbeat,
                              .heartbeat_arg = s->core.config.heartbeat_arg};
    return muon_update(&muon, s->core.store, bucket);
}

static enum status call_hooks(struct step *s, int bucket)
{
    for (int i = 0; i < s->features_n; i++)
        if (s->feature[i].hooks->bucket_update)
            TRY(s->feature[i].hooks->bucket_update(s->feature[i].self, bucket));
    return ST_OK;
}

enum status step_update_bucket(void *arg, int bucket)
{
    struct step *s = arg;
    const struct step_config *c = &s->core.config;
    struct store_local_shard a = store_local_shard(s->core.store, bucket);
    struct optim_sums *sums = s->core.sums.updates ? s->core.sums.updates + bucket : NULL;
    struct optim_arrays arrays = {a.p, a.g, a.m, a.v, {0}, sums};
    TRY(call_hooks(s, bucket));
    if (c->optim.kind == OPTIM_KIND_ADAMW)
        arrays.copy = store_params_update_copy(s->core.store, bucket);
    int64_t spans_n =
        optim_cut(s->update.spans, s->update.spans_n, a.first, a.elems, s->update.cut);
    if (c->optim.kind == OPTIM_KIND_MUON) {
        TRY(update_rest(s, &a, spans_n, sums));
        return update_hidden(s, bucket);
    }
    return optim_update(&c->optim, dev_op(c->dev), s->core.stream, &arrays, s->update.cut, spans_n,
                        s->grad_scale, s->update.lr, s->update.step_i);
}

/* ---- a step ---- */

enum status step_update(struct step *s, const struct step_now *now)
{
    struct step_result *r = now->r;
    /* The numbers of the update change only here, after the deferred work of the last step has
     * run. */
    s->update.lr = now->lr;
    s->update.step_i = now->step_i - s->update.skipped_n;
    (void)step_add_waits(&s->core, r);
    TRY(store_update(s->core.store));
    r->update_wait_ms = step_add_waits(&s->core, r);
    return dev_flush(s->core.stream); /* the device starts while the host reads the next samples */
}
