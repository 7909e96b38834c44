/* step_shards — EXACT=layout: the passes of a step over the virtual shards of its batch
 * (mesh/shard_tree.h). A shard is one or several micro-batches of fixed shape, whose gradients are
 * added as they are made. Its gradients, and its loss, are functions of its samples alone. */
#include <stdlib.h>

#include "train/step_inside.h"

/* each — the samples of a shard. */
static int64_t each(const struct step *s) { return s->config.global_samples / s->config.shards; }

static int shard_of(const struct step *s, int64_t first) { return (int)(first / each(s)); }

enum status step_shards_check(const struct step_config *c, int ranks)
{
    if (c->shards == 0)
        return ST_OK;
    if (c->shards % ranks != 0)
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout: %d virtual shards do not go into %d equal parts, one for each "
                    "data-parallel worker; choose VIRTUAL_SHARDS as a multiple of all numbers of "
                    "workers that the run may have",
                    c->shards, ranks);
    if (c->global_samples % c->shards != 0 || c->global_samples / c->shards % c->batch_samples != 0)
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout: GLOBAL_BATCH=%lld does not go into VIRTUAL_SHARDS=%d shards of "
                    "whole micro-batches of BATCH_SIZE=%lld; change one of them",
                    (long long)c->global_samples, c->shards, (long long)c->batch_samples);
    return ST_OK;
}

enum status step_shards_open(struct step *s)
{
    if (s->config.shards == 0)
        return ST_OK;
    if (dev_is_discrete(s->config.dev))
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout is for CPUs in this version; set DEVICE=cpu, or EXACT=off");
    s->shard_sums = calloc((size_t)s->config.shards + STEP_VOTES, sizeof *s->shard_sums);
    return s->shard_sums ? ST_OK
                         : FAIL(ST_RETRY, "out of memory: %d virtual shards", s->config.shards);
}

void step_shards_close(struct step *s)
{
    free(s->shard_sums);
    s->shard_sums = NULL;
}

void step_shards_bind(const struct step *s, int64_t first, struct pass *p)
{
    if (s->config.shards == 0)
        return;
    store_exact_bind(s->store, shard_of(s, first), p);
    p->accumulate = first % each(s) > 0;
}

enum status step_shards_add(struct step *s, int64_t first, int unit)
{
    if (s->config.shards == 0 || (first + s->config.batch_samples) % each(s) != 0)
        return ST_OK;
    return store_exact_add(s->store, shard_of(s, first), unit);
}

/* set_losses — of this rank's shards; those of others are zero. */
static void set_losses(struct step *s, const struct batch *batch)
{
    const int64_t n = each(s) * step_sample_losses(s);
    const int mine = shard_of(s, batch->samples), first = step_mesh_data_rank(s) * mine;
    for (int i = 0; i < s->config.shards + STEP_VOTES; i++)
        s->shard_sums[i] = 0;
    for (int i = 0; i < mine && s->counts_losses; i++)
        s->shard_sums[first + i] =
            batch_loss(batch->task, s->losses_host + i * n, n, s->scale, s->scale_end);
    s->shard_sums[s->config.shards + s->vote] = 1;
}

enum status step_shards_loss(struct step *s, const struct batch *batch, double *norm_sq,
                             struct step_result *r)
{
    const int shards = s->config.shards;
    set_losses(s, batch);
    TRY(store_grad_norm_end(s->store, norm_sq, s->shard_sums, shards + STEP_VOTES));
    r->loss = 0;
    for (int i = 0; i < shards; i++)
        r->loss += s->shard_sums[i];
    step_run_set_vote(r, s->shard_sums + shards);
    return ST_OK;
}
