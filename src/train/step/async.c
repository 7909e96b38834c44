/* step_async — the end of a step on GPUs: the update is enqueued behind the backward pass, and the
 * host reads loss and norm while the update runs. With one GPU, and with several over NCCL.
 *
 * The kernel grad_scale computes the factor of the gradients, or NaN if loss or norm is not finite;
 * on NaN the optimiser skips the update. Without accumulation, passes, grad_scale and update form
 * one CUDA graph with one rank; with several, one from exchange to exchange. The host waits for an
 * event recorded before the update. When it has read loss and norm and launched the next step, the
 * device is still busy.
 *
 * Several ranks. The sums of squares and the loss are all-reduced on the device, so all ranks have
 * the same bits, and each decides alike. What is only reported is gathered: each sample's loss and
 * each rank's vote. So the reported loss is summed on the host in the order of samples, as
 * everywhere, and then over the ranks by the tree of the other transports.
 *
 * A lost rank leaves undefined numbers on the device. The host asks comm_check before it uses any;
 * the generation is over then, and the next one begins at a checkpoint. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/part.h"
#include "comm/core/sum.h"
#include "train/step/inside.h"

/* What ranks tell each other in a step. */
struct step_ranks {
    struct tensor all; /* (ranks, each) f32 on the device: a rank's losses, then its vote */
    float *all_host;   /* pinned */
    int64_t each, losses_n;
    int n, rank;
    double *loss; /* (n) */
    struct sum_tree_step *order;
};

static size_t all_bytes(const struct step_ranks *ranks)
{
    return (size_t)(ranks->n * ranks->each) * sizeof(float);
}

int64_t step_async_memory(const struct step *s)
{
    return s->ranks != NULL ? (int64_t)all_bytes(s->ranks) : 0;
}

bool step_async_takes(const struct step_config *c, const struct step_place *place)
{
    bool is_alone = place->ranks == 1;
    if (c->spike.mode != SPIKE_MODE_OFF) /* the device skips only what is not finite */
        return false;
    for (int i = 0; i < MESH_AXES; i++) /* the norm of groups is added up on the host */
        if (i != MESH_AXIS_DATA && c->axis_ranks[i] > 1)
            return false;
    return place->is_discrete && !c->is_eval && c->shards == 0 &&
           (is_alone || (place->stays_on_device && !grad_compress_quantises(c->store.compress)));
}

/* A rank's part of what is gathered. */
static int64_t each_elems(int64_t losses_n)
{
    return (losses_n + 1 + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

int64_t step_async_plan(const struct step *s, const struct step_place *place)
{
    if (place->ranks == 1 || !step_async_takes(&s->config, place))
        return 0;
    return place->ranks * each_elems(s->samples * step_sample_losses(s)) * (int64_t)sizeof(float);
}

static struct tensor own_of(const struct step_ranks *ranks)
{
    return tensor_at(ranks->all, ranks->rank * ranks->each);
}

enum status step_async_open(struct step *s)
{
    const struct comm_place *place = comm_place(s->config.comm);
    void *data = NULL;
    if (!s->is_async || place->ranks == 1)
        return ST_OK;
    s->ranks = memory_new(1, sizeof *s->ranks);
    struct step_ranks *ranks = s->ranks;
    ranks->n = place->ranks;
    ranks->rank = place->rank;
    ranks->losses_n = s->samples * step_sample_losses(s);
    ranks->each = each_elems(ranks->losses_n);
    ranks->loss = memory_new((size_t)ranks->n, sizeof *ranks->loss);
    ranks->order = memory_new((size_t)ranks->n, sizeof *ranks->order);
    sum_tree_plan(ranks->n, ranks->order);
    TRY(dev_alloc(s->config.dev, all_bytes(ranks), &data));
    ranks->all = (struct tensor){data, DTYPE_F32};
    TRY(dev_pin(s->config.dev, all_bytes(ranks), &data));
    ranks->all_host = data;
    s->loss_sum = store_loss_sum(s->store);
    return ST_OK;
}

void step_async_close(struct step *s)
{
    struct step_ranks *ranks = s->ranks;
    if (ranks == NULL)
        return;
    dev_free(s->config.dev, ranks->all.data, all_bytes(ranks));
    dev_unpin(s->config.dev, ranks->all_host);
    free(ranks->loss);
    free(ranks->order);
    free(ranks);
    s->ranks = NULL;
}

enum status step_async_begin(struct step *s, double lr, int64_t step_i)
{
    s->lr_next = lr;
    s->step_next = step_i - s->spikes.skipped_n;
    if (s->ranks == NULL)
        return ST_OK;
    float vote = (float)s->vote;
    return dev_copy(s->stream, tensor_at(own_of(s->ranks), s->ranks->losses_n).data, &vote,
                    sizeof vote);
}

enum status step_async_losses(struct step *s, const struct pass *p, int64_t first, bool is_last)
{
    int64_t n = p->b * step_sample_losses(s);
    TRY(dev_op(s->config.dev)->sum(s->stream, &(struct sum){s->loss_sum, s->losses, n, first > 0}));
    if (s->ranks != NULL) {
        /* Each micro-batch copies to another address, so with several the copy is no part of the
         * gathered work: it would make a graph for each. */
        bool is_only = first == 0 && is_last;
        int64_t each = step_sample_losses(s);
        if (!is_only)
            TRY(dev_flush(s->stream));
        TRY(dev_copy(s->stream, tensor_at(own_of(s->ranks), first * each).data, s->losses.data,
                     (size_t)(p->b * each) * sizeof(float)));
        return is_only ? ST_OK : dev_flush(s->stream);
    }
    /* each micro-batch copies to another address: read_async would make a graph for each */
    if (!is_last)
        return step_run_copy_losses(s, p, first);
    return dev_read_async(s->stream, s->losses_host + first * step_sample_losses(s), s->losses.data,
                          (size_t)n * sizeof(float));
}

/* The sums over the ranks, and what they report. */
static enum status exchange(struct step *s)
{
    struct step_ranks *ranks = s->ranks;
    if (ranks == NULL)
        return ST_OK;
    TRY(store_gather_device(s->store, ranks->all, ranks->each));
    TRY(store_grad_norm_device(s->store));
    return dev_read_async(s->stream, ranks->all_host, ranks->all.data, all_bytes(ranks));
}

static void read_results(struct step *s, const struct batch *batch, struct step_result *r)
{
    double factor = s->loss_scale.factor > 0 ? s->loss_scale.factor : 1;
    r->vote = s->vote;
    if (s->ranks != NULL) {
        /* The loss of all ranks, and the greatest vote. */
        struct step_ranks *ranks = s->ranks;
        for (int rank = 0; rank < ranks->n; rank++) {
            const float *from = ranks->all_host + rank * ranks->each;
            int vote = (int)from[ranks->losses_n];
            ranks->loss[rank] = batch_loss(
                batch->task, from, batch->samples * step_sample_losses(s), s->scale, s->scale_end);
            r->vote = vote > r->vote ? vote : r->vote;
        }
        for (int i = 0; i < ranks->n - 1; i++)
            ranks->loss[ranks->order[i].to] += ranks->loss[ranks->order[i].from];
        r->loss = ranks->loss[0];
    } else
        r->loss = batch_loss(batch->task, s->losses_host, batch->samples * step_sample_losses(s),
                             s->scale, s->scale_end);
    r->grad_norm = sqrt(s->grad_scale_host[1]) / factor;
}

enum status step_async(struct step *s, const struct batch *batch, struct step_result *r)
{
    TRY(exchange(s));
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
    TRY(dev_event_record(s->stream, &s->results_ready));
    int64_t asked = clock_ns();
    r->norm_ms += (double)(asked - s->lap_ns) * 1e-6;
    /* The numbers of the update change only here: the updates that the last step deferred have
     * run. */
    s->lr = s->lr_next;
    s->step_i = s->step_next;
    TRY(store_update(s->store));
    TRY(dev_flush(s->stream));
    int64_t begun = clock_ns();
    r->update_ms += (double)(begun - asked) * 1e-6;
    TRY(dev_event_sync(s->results_ready));
    TRY(comm_check(s->config.comm));
    read_results(s, batch, r);
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
