/* step_local_dry — what replicas send each other, for a plan (step_local.h). */
#include <stdlib.h>

#include "train/step_dry.h"
#include "train/step_inside.h"

/* Ranks of the job: n from `first` on, each so many behind the one before. */
struct group {
    int first, apart, n;
};

static enum status tell(const struct step_dry_listener *listener, struct group g,
                        enum step_dry_call_kind kind, int64_t bytes, double times, bool is_hidden)
{
    int *ranks = calloc((size_t)g.n, sizeof *ranks);
    if (!ranks)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks", g.n);
    for (int i = 0; i < g.n; i++)
        ranks[i] = g.first + i * g.apart;
    listener->on_call(listener->arg, &(struct step_dry_call){.kind = kind,
                                                             .axis = MESH_AXIS_DATA,
                                                             .ranks = ranks,
                                                             .ranks_n = g.n,
                                                             .bytes = bytes,
                                                             .times = times,
                                                             .is_hidden = is_hidden});
    free(ranks);
    return ST_OK;
}

/* tell_compressed — as grad_compress.h exchanges a bucket of so many elements: parts, then sums. */
static enum status tell_compressed(const struct step *s, const struct step_dry_listener *listener,
                                   struct group g, int64_t elems)
{
    const struct step_local_config *c = &s->config.local;
    const double times = 1 / (double)c->steps;
    const bool is_hidden = c->delay > 0;
    const int64_t part = grad_compress_part_bytes(c->compress, g.n, elems);
    const int64_t lengths =
        grad_compress_is_coded(c->compress) ? g.n * (int64_t)GRAD_COMPRESS_LENGTH_BYTES : 0;
    if (lengths > 0)
        TRY(tell(listener, g, STEP_DRY_CALL_ALL_GATHER, lengths, 2 * times, is_hidden));
    TRY(tell(listener, g, STEP_DRY_CALL_ALL_TO_ALL, g.n * part, times, is_hidden));
    return tell(listener, g, STEP_DRY_CALL_ALL_GATHER, g.n * part, times, is_hidden);
}

enum status step_local_dry_tell(const struct step *s, const struct step_dry_listener *listener)
{
    const struct step_local *l = &s->local;
    const struct step_local_config *c = &s->config.local;
    const int n = step_local_schedule(c).n;
    const int64_t elem_bytes =
        (int64_t)dtype_bytes(c->compress == GRAD_COMPRESS_KIND_BF16 ? DTYPE_BF16 : DTYPE_F32);
    const int64_t elems = part_extent(s->table.total_elems / n, l->ranks, l->rank).elems;
    if (!l->is_on || l->replicas == 1)
        return ST_OK;
    const struct group all = {0, 1, l->replicas * l->ranks},
                       across = {l->rank, l->ranks, l->replicas};
    TRY(tell(listener, all, STEP_DRY_CALL_ALL_REDUCE, STEP_LOCAL_SUMS * (int64_t)sizeof(double), 1,
             false));
    for (int i = 0; i < n; i++)
        TRY(grad_compress_quantises(c->compress)
                ? tell_compressed(s, listener, across, elems)
                : tell(listener, across, STEP_DRY_CALL_ALL_REDUCE, elems * elem_bytes,
                       1 / (double)c->steps, c->delay > 0));
    return ST_OK;
}
