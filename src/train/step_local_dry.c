/* step_local_dry — what replicas send each other, for a plan (step_local.h). */
#include <stdlib.h>

#include "train/step_dry.h"
#include "train/step_inside.h"

/* all_reduce — over n ranks of the job from `first` on, each so many behind the one before. */
static enum status all_reduce(const struct step_dry_listener *listener, int first, int apart, int n,
                              int64_t bytes, double times)
{
    int *ranks = calloc((size_t)n, sizeof *ranks);
    if (!ranks)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = first + i * apart;
    listener->on_call(listener->arg, &(struct step_dry_call){.kind = STEP_DRY_CALL_ALL_REDUCE,
                                                             .axis = MESH_AXIS_DATA,
                                                             .ranks = ranks,
                                                             .ranks_n = n,
                                                             .bytes = bytes,
                                                             .times = times});
    free(ranks);
    return ST_OK;
}

enum status step_local_dry_tell(const struct step *s, const struct step_dry_listener *listener)
{
    const struct step_local *l = &s->local;
    const int64_t elems = part_extent(s->table.total_elems, l->ranks, l->rank).elems;
    if (!l->is_on || l->replicas == 1)
        return ST_OK;
    TRY(all_reduce(listener, 0, 1, l->replicas * l->ranks,
                   STEP_LOCAL_SUMS * (int64_t)sizeof(double), 1));
    return all_reduce(listener, l->rank, l->ranks, l->replicas, elems * (int64_t)sizeof(float),
                      1 / (double)s->config.local.steps);
}
