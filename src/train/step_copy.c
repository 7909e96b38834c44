/* step_copy — a pass's inputs to the device, its losses to host memory (step_inside.h). */
#include "base/assert.h"
#include "train/step_inside.h"

static enum status copy_in(struct step *s, struct tensor to, const void *from, int64_t first,
                           int64_t elems)
{
    size_t each = dtype_bytes(to.dtype);
    return dev_copy(s->stream, to.data, (const char *)from + (size_t)first * each,
                    (size_t)elems * each);
}

enum status step_copy_inputs(struct step *s, const struct batch *batch, int64_t first,
                             struct pass *p)
{
    int64_t t = p->t, n = p->b * t, whole = s->config.seq_tokens;
    const int32_t *first_key = batch->host.first_key;
    ASSERTF(!first_key || s->first_key.data, "a batch of %lld samples has first keys",
            (long long)batch->samples);
    TRY(copy_in(s, s->tokens, batch->host.tokens, first * t, n));
    if (first_key)
        TRY(copy_in(s, s->first_key, first_key, first * whole, p->b * whole));
    else
        p->first_key = (struct tensor){0};
    if (batch->task == FEED_TASK_LM)
        return copy_in(s, s->targets, batch->host.targets, first * t, n);
    if (batch->host.mask)
        TRY(copy_in(s, s->mask, batch->host.mask, first * whole, p->b * whole));
    else
        p->mask = (struct tensor){0};
    TRY(copy_in(s, s->starts, batch->host.starts, first, p->b));
    return copy_in(s, s->ends, batch->host.ends, first, p->b);
}

enum status step_copy_losses(struct step *s, const struct pass *p, int64_t first)
{
    int64_t each = step_sample_losses(s);
    return dev_copy(s->stream, s->losses_host + first * each, s->losses.data,
                    (size_t)(p->b * each) * sizeof(float));
}
