/* step_async — the end of a step with one rank on a GPU: the update is enqueued behind the backward
 * pass, and the host reads loss and norm while the update runs.
 *
 * The kernel grad_scale computes the factor of the gradients, or NaN if loss or norm is not finite;
 * on NaN the optimiser skips the update. Without accumulation, passes, grad_scale and update form
 * one CUDA graph. The host waits for an event recorded before the update. When it has read loss and
 * norm and launched the next step, the device is still busy.
 *
 * The reported loss is summed on the host, in the order of samples, as everywhere. It must not know
 * ranks. */
#include <math.h>

#include "base/clock.h"
#include "train/step_inside.h"

enum status step_async_losses(struct step *s, const struct pass *p, int64_t first, bool is_last)
{
    int64_t n = p->b * step_sample_losses(s);
    TRY(dev_op(s->config.dev)->sum(s->stream, &(struct sum){s->loss_sum, s->losses, n, first > 0}));
    /* each micro-batch copies to another address: read_async would make a graph for each */
    if (!is_last)
        return step_copy_losses(s, p, first);
    return dev_read_async(s->stream, s->losses_host + first * step_sample_losses(s), s->losses.data,
                          (size_t)n * sizeof(float));
}

static enum status begin_grad_scale(struct step *s)
{
    TRY(dev_op(s->config.dev)
            ->grad_scale(s->stream,
                         &(struct grad_scale){.out = s->grad_scale,
                                              .squares = store_bucket_norms_sq(s->store),
                                              .loss = s->loss_sum,
                                              .squares_n = store_layout(s->store)->buckets_n,
                                              .clip = step_grad_clip(s),
                                              .loss_scale = s->loss_scale.factor}));
    TRY(dev_read_async(s->stream, s->grad_scale_host, s->grad_scale.data,
                       2 * sizeof *s->grad_scale_host));
    return dev_event_record(s->stream, &s->results_ready);
}

enum status step_async(struct step *s, const struct batch *batch, struct step_result *r)
{
    double factor = s->loss_scale.factor > 0 ? s->loss_scale.factor : 1;
    TRY(begin_grad_scale(s));
    int64_t asked = clock_ns();
    r->norm_ms += (double)(asked - s->lap_ns) * 1e-6;
    TRY(store_update(s->store));
    TRY(dev_flush(s->stream));
    int64_t begun = clock_ns();
    r->update_ms += (double)(begun - asked) * 1e-6;
    TRY(dev_event_sync(s->results_ready));
    r->loss = batch_loss(batch->task, s->losses_host, s->samples * step_sample_losses(s), s->scale,
                         s->scale_end);
    r->grad_norm = sqrt(s->grad_scale_host[1]) / factor;
    r->vote = s->vote;
    s->lap_ns = clock_ns();
    r->norm_ms += (double)(s->lap_ns - begun) * 1e-6;
    bool is_finite = isfinite(r->loss) && isfinite(r->grad_norm),
         is_updated = !isnan(s->grad_scale_host[0]);
    if (is_finite != is_updated)
        return FAIL(ST_BUG,
                    "step %lld: loss %g, gradient norm %g, but the device computed a gradient "
                    "scale of %g; report it with GRAD_CLIP",
                    (long long)s->step_i + 1, r->loss, r->grad_norm, s->grad_scale_host[0]);
    return ST_OK;
}
