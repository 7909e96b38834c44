/* step_spikes — SPIKE: a step whose loss or norm is far above its history makes no update, or ends
 * the run (spike.h decides). A feature (step/feature.h). */
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "train/step/feature.h"
#include "train/step/lr_schedule.h"

struct spikes {
    const struct step_core *s;
    struct spike_history history;
};

/* fail_spike — Fails: SPIKE=stop, or more spikes than may be skipped. */
static enum status fail_spike(const struct spikes *own, const struct step_now *now)
{
    const struct step_core *s = own->s;
    const struct spike_config *c = &s->config.spike;
    const struct step_result *r = now->r;
    const struct spike_verdict *v = &r->spike;
    const int64_t samples = step_samples_at(&s->config, now->step_i) * s->local.replicas;
    char remedy[96] = ", or set SPIKE=skip to leave out such steps";
    if (c->mode == SPIKE_MODE_SKIP)
        text_format(remedy, sizeof remedy, "; SPIKE=skip leaves out %d of %d steps at most",
                    SPIKE_LIMIT, SPIKE_WINDOW);
    return FAIL(ST_SPIKE,
                "step %lld: %s %g is %.1f deviations above the %g expected from the last %d steps "
                "(SPIKE_SIGMA=%g); the parameters keep their values; look at samples %lld to %lld, "
                "lower LR or raise SPIKE_SIGMA%s",
                (long long)now->step_i + 1, v->cause == SPIKE_CAUSE_LOSS ? "loss" : "gradient norm",
                v->cause == SPIKE_CAUSE_LOSS ? r->loss : r->grad_norm, v->sigmas, v->expected,
                own->history.n, c->sigma, (long long)now->sample_first,
                (long long)(now->sample_first + samples - 1), remedy);
}

static enum status decide(void *self, struct step_now *now)
{
    struct spikes *own = self;
    struct spike_verdict *v = &now->r->spike;
    if (own->s->config.spike.mode == SPIKE_MODE_OFF)
        return ST_OK;
    *v = spike_check(&own->s->config.spike, &own->history, now->r->loss, now->r->grad_norm);
    if (v->is_skipped)
        now->decision = STEP_DECISION_SKIP;
    /* the step itself refuses numbers that are not finite */
    const bool is_spike = v->cause != SPIKE_CAUSE_NONE && v->cause != SPIKE_CAUSE_NOT_FINITE;
    return is_spike && !v->is_skipped ? fail_spike(own, now) : ST_OK;
}

static const struct step_feature spikes = {
    .name = "spikes", .phase = {[STEP_PHASE_DECIDE] = decide}, .close = free};

enum status step_spikes_add(struct step_core *s)
{
    struct spikes *own = memory_new(1, sizeof *own);
    own->s = s;
    step_feature_add(s, &spikes, own);
    return ST_OK;
}

void step_spikes(const struct step *step, struct step_spikes *out)
{
    const struct spikes *own = step_feature_find(step, &spikes);
    out->skipped_n = *step_skipped_n(own->s->step);
    out->history = own->history;
}

void step_spikes_set(struct step *step, const struct step_spikes *from)
{
    struct spikes *own = step_feature_find(step, &spikes);
    *step_skipped_n(step) = from->skipped_n;
    own->history = from->history;
    if (own->s->config.spike.mode == SPIKE_MODE_OFF)
        own->history.n = 0;
}
