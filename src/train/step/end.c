/* step_end — the end of a step's passes: loss, norm and vote of all ranks, and the factor by which
 * the optimiser multiplies gradients. The host reads them, decides on the update (run.c) and starts
 * it; or the device decides by itself: with one GPU, and with several over NCCL, unless SPIKE is
 * set.
 *
 * On the device the kernel grad_scale computes the factor, or NaN if loss or norm is not finite; on
 * NaN the optimiser skips the update, which is enqueued after the backward pass, and the host reads
 * loss and norm while it runs. Without accumulation, passes, grad_scale and update form one CUDA
 * graph with one rank; with several, one from exchange to exchange. The host waits for an event
 * recorded before the update. When it has read loss and norm and launched the next step, the device
 * is still busy.
 *
 * Several ranks. The sums of squares and the loss are all-reduced on the device, so all ranks have
 * the same bits, and each decides alike. Numbers that are only reported are all-gathered: each
 * sample's loss and each rank's vote. So the reported loss is summed on the host in the order of
 * samples, as everywhere, and then over the ranks by the tree of the other transports.
 *
 * If a rank is lost, the numbers on the device are undefined. The host calls comm_check before it
 * uses any; the generation is over then, and the next one begins at a checkpoint. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/core/part.h"
#include "comm/core/sum.h"
#include "kernels/grad_scale.h" /* grad_scale_of */
#include "mesh/store/exact.h"
#include "train/step/inside.h"

/* ---- on the host ---- */

/* losses_n — Returns the number of sums that make the loss: one; or, with virtual shards, one for
 * each shard on each context rank, because they are added in an order of their own. */
static int losses_n(const struct step_core *s)
{
    return s->config.shards > 0 ? s->config.shards * step_mesh_context_ranks(s) : 1;
}

void step_end_open(struct step *s)
{
    s->end_sums = memory_new((size_t)losses_n(&s->core) + STEP_VOTES, sizeof *s->end_sums);
}

void step_end_close(struct step *s) { free(s->end_sums); }

/* sum_losses — Writes this rank's sums; the sums of other shards and positions are zero. */
static void sum_losses(struct step *s, const struct batch *batch)
{
    const struct step_core *c = &s->core;
    const bool has_shards = c->config.shards > 0;
    const int stride = has_shards ? step_mesh_context_ranks(c) : 1,
              first = has_shards ? store_exact_deal(c->store)[step_mesh_data_rank(c)] * stride +
                                       c->mesh.at.at[MESH_AXIS_CONTEXT]
                                 : 0;
    const int64_t each = has_shards ? c->config.global_samples / c->config.shards : batch->samples,
                  each_n = each * step_sample_losses(c);
    for (int i = 0; i < losses_n(c) + STEP_VOTES; i++)
        s->end_sums[i] = 0;
    for (int64_t i = 0; i < batch->samples / each && c->counts_losses; i++)
        s->end_sums[first + i * stride] =
            batch_loss(batch->task, s->losses_host + i * each_n, each_n, s->scale, s->scale_end);
}

static enum status sum_up(struct step *s, const struct batch *batch, double *norm_sq,
                          struct step_result *r)
{
    const int n = losses_n(&s->core);
    TRY(store_grad_norm_begin(s->core.store));
    TRY(dev_sync(s->core.stream));
    sum_losses(s, batch);
    s->end_sums[n + s->vote] = 1;
    TRY(store_grad_norm_end(s->core.store, norm_sq, s->end_sums, n + STEP_VOTES));
    r->loss = 0;
    for (int i = 0; i < n; i++)
        r->loss += s->end_sums[i];
    for (int vote = 0; vote < STEP_VOTES; vote++)
        r->vote = s->end_sums[n + vote] > 0 ? vote : r->vote;
    return ST_OK;
}

/* ---- on the device ---- */

/* The numbers that ranks exchange in a step. */
struct step_ranks {
    struct tensor all; /* (ranks, each) f32 on the device: a rank's losses, then its vote */
    float *all_host;   /* pinned */
    size_t bytes;      /* allocated for each of them */
    /* elements and losses of a rank in the step in progress; losses of the rank with the most */
    int64_t each, losses_n;
    int n, rank;
    double *loss; /* (n) */
    struct sum_tree_step *order;
};

int64_t step_async_memory(const struct step *s)
{
    return s->async.ranks != NULL ? (int64_t)s->async.ranks->bytes : 0;
}

bool step_async_is_possible(const struct step_config *c, const struct step_place *place)
{
    bool is_alone = place->ranks == 1;
    if (c->spike.mode != SPIKE_MODE_OFF) /* the device skips only numbers that are not finite */
        return false;
    for (int i = 0; i < MESH_AXES; i++) /* the norm of groups is added up on the host */
        if (i != MESH_AXIS_DATA && c->axis_ranks[i] > 1)
            return false;
    return place->is_discrete && !c->is_eval && c->shards == 0 &&
           (is_alone || (place->stays_on_device && !grad_compress_quantises(c->store.compress)));
}

/* Returns the elements of one rank in the all-gathered buffer. */
static int64_t each_elems(int64_t losses_n)
{
    return (losses_n + 1 + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

int64_t step_async_plan(const struct step *s, const struct step_place *place)
{
    if (place->ranks == 1 || !step_async_is_possible(&s->core.config, place))
        return 0;
    return place->ranks * each_elems(s->core.samples * step_sample_losses(&s->core)) *
           (int64_t)sizeof(float);
}

static struct tensor own_of(const struct step_ranks *ranks)
{
    return tensor_at(ranks->all, ranks->rank * ranks->each);
}

enum status step_async_open(struct step *s)
{
    const struct comm_place *place = comm_place(s->core.config.comm);
    void *data = NULL;
    if (!s->async.is_on || place->ranks == 1)
        return ST_OK;
    s->async.ranks = memory_new(1, sizeof *s->async.ranks);
    struct step_ranks *ranks = s->async.ranks;
    ranks->n = place->ranks;
    ranks->rank = place->rank;
    ranks->bytes = (size_t)(ranks->n * each_elems(s->core.samples * step_sample_losses(&s->core))) *
                   sizeof(float);
    ranks->loss = memory_new((size_t)ranks->n, sizeof *ranks->loss);
    ranks->order = memory_new((size_t)ranks->n, sizeof *ranks->order);
    sum_tree_plan(ranks->n, ranks->order);
    TRY(dev_alloc(s->core.config.dev, ranks->bytes, &data));
    ranks->all = (struct tensor){data, DTYPE_F32};
    TRY(dev_pin(s->core.config.dev, ranks->bytes, &data));
    ranks->all_host = data;
    s->async.loss_sum = store_loss_sum(s->core.store);
    return ST_OK;
}

void step_async_close(struct step *s)
{
    struct step_ranks *ranks = s->async.ranks;
    if (ranks == NULL)
        return;
    dev_free(s->core.config.dev, ranks->all.data, ranks->bytes);
    dev_unpin(s->core.config.dev, ranks->all_host);
    free(ranks->loss);
    free(ranks->order);
    free(ranks);
    s->async.ranks = NULL;
}

enum status step_async_begin(struct step *s, int64_t samples)
{
    struct step_ranks *ranks = s->async.ranks;
    if (ranks == NULL)
        return ST_OK;
    float vote = (float)s->vote;
    ranks->losses_n = step_mesh_samples_most(&s->core, samples) * step_sample_losses(&s->core);
    ranks->each = each_elems(ranks->losses_n);
    return dev_copy(s->core.stream, tensor_at(own_of(ranks), ranks->losses_n).data, &vote,
                    sizeof vote);
}

enum status step_async_losses(struct step *s, const struct pass *p, const struct step_micro *m)
{
    int64_t n = p->b * step_sample_losses(&s->core);
    TRY(dev_op(s->core.config.dev)
            ->sum(s->core.stream, &(struct sum){s->async.loss_sum, s->losses, n, m->first > 0}));
    if (s->async.ranks != NULL) {
        /* Each micro-batch copies to another address, so with several the copy is no part of the
         * recorded work: it would make a graph for each. */
        bool is_only = m->first == 0 && m->is_last;
        int64_t each = step_sample_losses(&s->core);
        if (!is_only)
            TRY(dev_flush(s->core.stream));
        TRY(dev_copy(s->core.stream, tensor_at(own_of(s->async.ranks), m->first * each).data,
                     s->losses.data, (size_t)(p->b * each) * sizeof(float)));
        return is_only ? ST_OK : dev_flush(s->core.stream);
    }
    /* each micro-batch copies to another address: read_async would make a graph for each */
    if (!m->is_last)
        return step_copy_losses(s, p, m->first);
    return dev_read_async(s->core.stream, s->losses_host + m->first * step_sample_losses(&s->core),
                          s->losses.data, (size_t)n * sizeof(float));
}

/* Exchanges the sums over the ranks, and the numbers that are reported. */
static enum status exchange_sums(struct step *s)
{
    struct step_ranks *ranks = s->async.ranks;
    if (ranks == NULL)
        return ST_OK;
    TRY(store_gather_device(s->core.store, ranks->all, ranks->each));
    TRY(store_grad_norm_device(s->core.store));
    return dev_read_async(s->core.stream, ranks->all_host, ranks->all.data,
                          (size_t)(ranks->n * ranks->each) * sizeof(float));
}

static enum status scale_on_device(struct step *s)
{
    TRY(exchange_sums(s));
    TRY(dev_op(s->core.config.dev)
            ->grad_scale(s->core.stream,
                         &(struct grad_scale){.out = s->grad_scale,
                                              .squares = store_bucket_norms_sq(s->core.store),
                                              .loss = s->async.loss_sum,
                                              .squares_n = store_layout(s->core.store)->buckets_n,
                                              .clip = step_grad_clip(s),
                                              .loss_scale = s->loss_scale.factor}));
    TRY(dev_read_async(s->core.stream, s->async.grad_scale_host, s->grad_scale.data,
                       2 * sizeof *s->async.grad_scale_host));
    return dev_event_record(s->core.stream, &s->async.results_ready);
}

/* sum_ranks — Computes the loss of all ranks, and the greatest vote. */
static void sum_ranks(struct step *s, const struct step_now *now)
{
    struct step_result *r = now->r;
    struct step_ranks *ranks = s->async.ranks;
    for (int rank = 0; rank < ranks->n; rank++) {
        const float *from = ranks->all_host + rank * ranks->each;
        int vote = (int)from[ranks->losses_n];
        ranks->loss[rank] = batch_loss(now->batch.task, from,
                                       step_mesh_samples(&s->core, rank, now->samples) *
                                           step_sample_losses(&s->core),
                                       s->scale, s->scale_end);
        r->vote = vote > r->vote ? vote : r->vote;
    }
    for (int i = 0; i < ranks->n - 1; i++)
        ranks->loss[ranks->order[i].to] += ranks->loss[ranks->order[i].from];
    r->loss = ranks->loss[0];
}

static enum status wait_for_device(struct step *s, const struct step_now *now, double *norm_sq)
{
    struct step_result *r = now->r;
    TRY(dev_event_sync(s->async.results_ready));
    TRY(comm_check(s->core.config.comm));
    r->vote = s->vote;
    if (s->async.ranks != NULL)
        sum_ranks(s, now);
    else
        r->loss =
            batch_loss(now->batch.task, s->losses_host,
                       now->batch.samples * step_sample_losses(&s->core), s->scale, s->scale_end);
    *norm_sq = s->async.grad_scale_host[1];
    return ST_OK;
}

/* ---- either ---- */

/* begin_update — The device decides on the update: it skips one that is not finite. */
static enum status begin_update(struct step *s, const struct step_now *now)
{
    TRY(scale_on_device(s));
    step_lap(s, &now->r->norm_ms);
    TRY(step_update(s, now));
    step_lap(s, &now->r->update_ms);
    return ST_OK;
}

/* check_decision — Fails unless the device has decided as the host does. */
static enum status check_decision(const struct step *s, const struct step_now *now)
{
    const struct step_result *r = now->r;
    const bool is_finite = isfinite(r->loss) && isfinite(r->grad_norm),
               is_updated = !isnan(s->async.grad_scale_host[0]);
    if (is_finite != is_updated)
        return FAIL(ST_BUG,
                    "step %lld: loss %g, gradient norm %g, but the device computed a gradient "
                    "scale of %g; report it with GRAD_CLIP",
                    (long long)s->update.step_i + 1, r->loss, r->grad_norm,
                    s->async.grad_scale_host[0]);
    return ST_OK;
}

enum status step_end(struct step *s, struct step_now *now)
{
    struct step_result *r = now->r;
    double norm_sq;
    if (s->async.is_on)
        TRY(begin_update(s, now));
    TRY(s->async.is_on ? wait_for_device(s, now, &norm_sq) : sum_up(s, &now->batch, &norm_sq, r));
    r->grad_norm = sqrt(norm_sq) / step_loss_factor(s);
    step_lap(s, &r->norm_ms);
    if (s->async.is_on)
        return check_decision(s, now);
    const double scale = grad_scale_of(norm_sq, step_grad_clip(s), s->loss_scale.factor);
    return dev_copy(s->core.stream, s->grad_scale.data, &scale, sizeof scale);
}
