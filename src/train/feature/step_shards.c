/* step_shards — EXACT=layout: a step has virtual shards, whose gradients and losses are functions
 * only of their samples (mesh/store/shard_tree.h). Ranks along the data axis share the shards. A
 * shard is one or several micro-batches of fixed shape. A feature (step/feature.h): it decides
 * where passes write gradients, and adds a shard's gradients after its last micro-batch. */
#include "mesh/store/exact.h"
#include "train/step/feature.h"
#include "train/step/pipe.h"

/* ---- passes ---- */

/* add_ends — Adds unit 0 of a stage that shares the token embedding with another stage, tensor by
 * tensor. */
static enum status add_ends(struct step_core *s, int64_t first)
{
    struct pass to = {0};
    store_bind(s->store, &to);
    step_shards_bind(s, first, &to);
    for (int i = 0; i < s->table.params_n && s->table.param[i].unit == 0; i++) {
        if (step_pipe_ends_lacks(s, i))
            continue;
        TRY(step_pipe_ends_put(s, &to, first / s->config.batch_samples, i));
        TRY(store_exact_add(s->store, step_shards_of(s, first), s->table.param[i].offset,
                            s->table.param[i].elems));
    }
    return ST_OK;
}

static void bind_pass(void *self, const struct step_micro *m, int at, struct pass *p)
{
    (void)at;
    step_shards_bind(self, m->first, p);
}

/* add_unit — After the last micro-batch of a shard: adds a unit's gradient over the tensor axis and
 * in the tree of shards. */
static enum status add_unit(void *self, const struct step_micro *m, int unit)
{
    struct step_core *s = self;
    if (m->is_check || (m->first + s->config.batch_samples) % step_shards_each(s) != 0)
        return ST_OK;
    TRY(step_mesh_sum_partial(s, m->first, unit));
    if (unit == 0 && step_pipe_ends_adds(s))
        return add_ends(s, m->first);
    int64_t begin, n;
    param_unit_span(&s->table, unit, &begin, &n);
    return store_exact_add(s->store, step_shards_of(s, m->first), begin, n);
}

/* ---- the feature ---- */

static const struct step_feature shards = {
    .name = "virtual shards", .pass = bind_pass, .unit_bwd = add_unit};

enum status step_shards_add(struct step_core *s)
{
    if (s->config.shards > 0)
        step_feature_add(s, &shards, s);
    return ST_OK;
}
