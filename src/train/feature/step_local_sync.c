/* step_local_sync — outer steps (step_local.h). The update is Nesterov momentum on the change of
 * the replicas since the last one (DiLoCo, Douillard et al. 2023, algorithm 1). */
#include <string.h>

#include "base/assert.h"
#include "kernels/bf16.h"
#include "mesh/store/state.h"
#include "train/step/feature.h"
#include "train/feature/step_local.h"

/* ---- arithmetic ---- */

void step_local_sync_gradient(const float *x, float *y, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        y[i] = x[i] - y[i];
}

void step_local_sync_round(const float *d, uint16_t *half, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        half[i] = bf16_from_float(d[i]);
}

void step_local_sync_widen(const uint16_t *half, float *d, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        d[i] = bf16_to_float(half[i]);
}

void step_local_sync_mean(int replicas, float *sum, int64_t elems)
{
    const float share = 1 / (float)replicas;
    for (int64_t i = 0; i < elems; i++)
        sum[i] *= share;
}

void step_local_sync_update(const struct step_local_rule *rule, float *x, float *v, const float *d,
                            int64_t elems)
{
    const float lr = (float)rule->lr, momentum = (float)rule->momentum;
    for (int64_t i = 0; i < elems; i++) {
        v[i] = momentum * v[i] + d[i];
        x[i] -= lr * (d[i] + momentum * v[i]);
    }
}

/* ---- an outer step ---- */

/* read_own — Reads this rank's part of the replica's own parameters. */
static enum status read_own(struct step_core *s, float *to)
{
    const struct part_extent own = s->local.own;
    return state_read(store_state(s->store), 0, own.first, own.elems, to);
}

enum status step_local_sync_fill(struct step_core *s)
{
    return s->local.is_on ? read_own(s, s->local.outer) : ST_OK;
}

/* copy_outer_params — Replaces the replica's own parameters by the outer ones. */
static enum status copy_outer_params(struct step_core *s)
{
    const struct step_local *l = &s->local;
    if (!l->chunk)
        return state_write(store_state(s->store), 0, l->own.first, l->own.elems, l->outer);
    for (int owner = 0; owner < l->ranks; owner++) {
        /* Copies one rank's outer parameters to all ranks of the replica. */
        const struct part_extent part = step_local_part(s, owner);
        for (int64_t at = 0, n; at < part.elems; at += n) {
            n = part.elems - at < STATE_RANGE_ELEMS ? part.elems - at : STATE_RANGE_ELEMS;
            if (owner == l->rank)
                memcpy(l->chunk, l->outer + at, (size_t)n * sizeof *l->chunk);
            TRY(comm_broadcast(s->config.comm, (struct tensor){l->chunk, DTYPE_F32}, n, owner));
            TRY(state_write(store_state(s->store), 0, part.first + at, n, l->chunk));
        }
    }
    return ST_OK;
}

/* sum_replicas — Adds up the differences in `work` over the replicas. */
static enum status sum_replicas(struct step_core *s)
{
    struct step_local *l = &s->local;
    const struct tensor t = {l->work, DTYPE_F32};
    struct comm_ticket ticket;
    if (!l->across || l->own.elems == 0)
        return ST_OK;
    if (l->sent) {
        const struct tensor sent = {l->sent, DTYPE_BF16};
        step_local_sync_round(l->work, l->sent, l->own.elems);
        TRY(comm_all_reduce(l->across, sent, sent, l->own.elems));
        step_local_sync_widen(l->sent, l->work, l->own.elems);
        return ST_OK;
    }
    if (!l->compress)
        return comm_all_reduce(l->across, t, t, l->own.elems);
    int bucket = 0;
    for (int64_t at = 0; at < l->own.elems; at += STEP_LOCAL_BUCKET_ELEMS)
        TRY(grad_compress_begin(l->compress, bucket++, l->work + at, l->work + at, NULL, &ticket));
    return comm_wait(l->across, ticket);
}

enum status step_local_sync(struct step *step, int64_t steps_done, bool is_last,
                            struct step_result *r)
{
    struct step_core *s = step_core(step);
    const struct step_local_config *c = &s->config.local;
    const struct step_local_rule rule = {c->lr, c->momentum};
    struct step_local *l = &s->local;
    ASSERT(l->is_on);
    l->is_apart = !is_last && steps_done % c->steps != 0;
    if (l->is_apart)
        return ST_OK;
    TRY(read_own(s, l->work));
    step_local_sync_gradient(l->outer, l->work, l->own.elems);
    step_heartbeat(s);
    TRY(sum_replicas(s));
    step_local_sync_mean(l->replicas, l->work, l->own.elems);
    step_heartbeat(s);
    step_local_sync_update(&rule, l->outer, l->momentum, l->work, l->own.elems);
    TRY(copy_outer_params(s));
    r->outer_steps++;
    (void)step_add_waits(s, r);
    return ST_OK;
}
