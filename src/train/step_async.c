/* step_async — the end of a step of one rank on a device that works on its own: the update is asked
 * for behind the backward pass, and the host looks at loss and norm while the device is at it.
 *
 * What the host decided between the two is decided on the device: `grad_scale` makes of the squares
 * of all pieces and of the losses what the optimiser is told, in the same arithmetic, and the
 * optimiser changes nothing where that is not finite. So the stream is given passes, verdict and
 * update in one piece (without accumulation: one CUDA graph), and the host waits for an event that
 * is recorded before the update: by the time that it has read the verdict, and asked for the next
 * step, the device has not come to rest. The loss that is told is summed on the host, in the order of
 * samples, as everywhere. Must not know ranks. */
#include <math.h>

#include "base/clock.h"
#include "train/step_inside.h"

enum status step_async_losses(struct step *s, const struct pass *p, int64_t first, bool is_last)
{
    int64_t n = p->b * step_sample_losses(s);
    TRY(dev_op(s->config.dev)->sum(s->stream, &(struct sum){s->loss_sum, s->losses, n, first > 0}));
    /* another place for each: brought, it would make each micro-batch a graph of its own */
    if (!is_last)
        return step_copy_losses(s, p, first);
    return dev_read_async(s->stream, s->losses_host + first * step_sample_losses(s), s->losses.data,
                          (size_t)n * sizeof(float));
}

static enum status ask_verdict(struct step *s)
{
    double factor = s->loss_scale.factor, clip = s->config.optim.grad_clip;
    s->clip = factor > 0 ? 1 : clip;
    TRY(dev_op(s->config.dev)
            ->grad_scale(s->stream,
                         &(struct grad_scale){.out = s->norm_sq,
                                              .squares = store_bucket_norms_sq(s->store),
                                              .loss = s->loss_sum,
                                              .squares_n = store_layout(s->store)->buckets_n,
                                              .clip = clip,
                                              .loss_scale = factor}));
    TRY(dev_read_async(s->stream, s->verdict_host, s->norm_sq.data, 2 * sizeof *s->verdict_host));
    return dev_event_record(s->stream, &s->results_ready);
}

enum status step_async(struct step *s, const struct batch *batch, struct step_result *r)
{
    double factor = s->loss_scale.factor > 0 ? s->loss_scale.factor : 1;
    TRY(ask_verdict(s));
    int64_t asked = clock_ns();
    r->norm_ms += (double)(asked - s->lap_ns) * 1e-6;
    TRY(store_update(s->store));
    TRY(dev_flush(s->stream));
    int64_t begun = clock_ns();
    r->update_ms += (double)(begun - asked) * 1e-6;
    TRY(dev_event_sync(s->results_ready));
    r->loss = batch_loss(batch->task, s->losses_host, s->samples * step_sample_losses(s), s->scale,
                         s->scale_end);
    r->grad_norm = sqrt(s->verdict_host[1]) / factor;
    r->vote = s->vote;
    s->lap_ns = clock_ns();
    r->norm_ms += (double)(s->lap_ns - begun) * 1e-6;
    bool is_fit = isfinite(r->loss) && isfinite(r->grad_norm),
         is_done = isfinite(s->verdict_host[0]);
    if (is_fit != is_done)
        return FAIL(ST_BUG,
                    "step %lld: loss %g, gradient norm %g, but the device made of them %g for the "
                    "optimiser; report it with GRAD_CLIP",
                    (long long)s->step_i + 1, r->loss, r->grad_norm, s->verdict_host[0]);
    return ST_OK;
}
