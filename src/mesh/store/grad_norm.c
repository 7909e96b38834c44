/* store_grad_norm — the square of the gradients' norm over all ranks (store.h).
 *
 * Each rank adds the squares of its part of each bucket. If ranks of other groups hold the same
 * parameters, one of them counts (param.h: is_counted_elsewhere). The others add their squares
 * separately, only to find a number that is not finite: a fault in one of these copies must not go
 * unnoticed. */
#include <string.h>

#include "base/assert.h"
#include "mesh/store/inside.h"

/* ---- one bucket ---- */

/* A run of tensors of one kind, in elements of the table. */
struct run {
    int64_t first, end;
    bool is_counted;
};

/* run_at — returns the run that holds element `at`, up to `end`. Padding belongs to the tensor
 * before it. */
static struct run run_at(const struct param_table *t, int64_t at, int64_t end)
{
    int i = param_at(t, at);
    struct run run = {at, end, !t->param[i].is_counted_elsewhere};
    while (++i < t->params_n && t->param[i].offset < end)
        if (t->param[i].is_counted_elsewhere == run.is_counted) {
            run.end = t->param[i].offset;
            break;
        }
    return run;
}

static enum status add_squares(struct store *s, struct tensor out, struct tensor x, int64_t n,
                               bool accumulate)
{
    return dev_op(s->c.dev)->sumsq(s->c.stream, &(struct sumsq){out, x, n, accumulate, false});
}

static enum status group_add(struct store *s, int bucket, struct tensor own)
{
    return add_squares(s, tensor_at(s->norms, bucket), own, s->layout.bucket[bucket].own.elems,
                       false);
}

static enum status groups_add(struct store *s, int bucket, struct tensor own)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const int64_t first = l->first + l->own.first, end = first + l->own.elems;
    for (int64_t at = first; at < end;) {
        struct run run = run_at(s->c.table, at, end);
        struct tensor out = run.is_counted ? tensor_at(s->norms, bucket)
                                           : (tensor_at(s->norms, s->layout.buckets_n + 1));
        TRY(add_squares(s, out, tensor_at(own, at - first), run.end - at, true));
        at = run.end;
    }
    return ST_OK;
}

static enum status groups_reset(struct store *s)
{
    return dev_fill(s->c.stream, s->norms.data, 0,
                    (size_t)(s->layout.buckets_n + 2) * sizeof(double));
}

/* ---- all buckets ---- */

enum status store_grad_norm_begin(struct store *s)
{
    TRY(store_reduce_finish_all(s));
    return s->norm->begin(s);
}

static enum status copy_sums(struct store *s)
{
    return dev_copy(s->c.stream, s->sums, s->norms.data,
                    (size_t)(s->layout.buckets_n + 2) * sizeof *s->sums);
}

enum status store_grad_norm_device(struct store *s)
{
    ASSERT(!s->has_groups && s->c.shards == 0);
    TRY(store_reduce_finish_all(s));
    if (s->is_alone)
        return ST_OK;
    if (s->rank != s->layout.rank) /* as in store_grad_norm_end */
        TRY(dev_fill(s->c.stream, s->norms.data, 0, (size_t)s->layout.buckets_n * sizeof(double)));
    const struct store_call call = {STORE_CALL_ALL_REDUCE,  STORE_GROUP_ALL, -1, s->norms, s->norms,
                                    s->layout.buckets_n + 1};
    return store_call_and_wait(s, &call);
}

/* first_param — returns the number, in the whole model, of a bucket's first parameter. */
static int first_param(const struct store *s, int bucket)
{
    int i = 0;
    while (s->c.table->param[i].offset < s->layout.bucket[bucket].first)
        i++;
    ASSERTF(s->c.table->param[i].whole_param < s->c.whole->params_n, "parameter %d of %d",
            s->c.table->param[i].whole_param, s->c.whole->params_n);
    return s->c.table->param[i].whole_param;
}

/* groups_end — adds the sums of several groups. Groups may have different buckets, so a sum is sent
 * under the number of the bucket's first parameter in the whole model, and the sums are added in
 * the same order as on one rank. Squares that are not counted add nothing, or make the norm NaN. */
static enum status groups_end(struct store *s, double *norm_sq_out, double *extra, int n)
{
    struct comm_ticket ticket;
    int slots_n = s->c.whole->params_n;
    double total = 0, *slot = s->slots;
    memset(slot, 0, (size_t)slots_n * sizeof *slot);
    for (int bucket = 0; bucket < s->layout.buckets_n; bucket++)
        if (s->layout.bucket[bucket].elems > 0)
            slot[first_param(s, bucket)] += s->sums[bucket];
    slot[0] += 0 * s->sums[s->layout.buckets_n + 1];
    memcpy(slot + slots_n, extra, (size_t)n * sizeof *extra);
    TRY(store_all_reduce_begin(s, slot, slots_n + n, &ticket));
    TRY(store_wait(s, ticket));
    memcpy(extra, slot + slots_n, (size_t)n * sizeof *extra);
    for (int i = slots_n - 1; i >= 0; i--)
        total += slot[i];
    *norm_sq_out = total;
    return ST_OK;
}

static enum status group_end(struct store *s, double *norm_sq_out, double *extra, int n)
{
    int buckets_n = s->layout.buckets_n;
    struct comm_ticket ticket;
    memcpy(s->sums + buckets_n, extra, (size_t)n * sizeof *extra);
    if (s->rank != s->layout.rank) /* only the first group counts, because all hold the same */
        memset(s->sums, 0, (size_t)buckets_n * sizeof *s->sums);
    TRY(store_all_reduce_begin(s, s->sums, buckets_n + n, &ticket));
    TRY(store_wait(s, ticket));
    memcpy(extra, s->sums + buckets_n, (size_t)n * sizeof *extra);
    double total = 0;
    for (int bucket = buckets_n - 1; bucket >= 0; bucket--)
        total += s->sums[bucket];
    *norm_sq_out = total;
    return ST_OK;
}

const struct store_norm store_norm_group = {NULL, group_add, copy_sums, group_end},
                        store_norm_groups = {groups_reset, groups_add, copy_sums, groups_end};

enum status store_grad_norm_end(struct store *s, double *norm_sq_out, double *extra, int n)
{
    ASSERTF(n <= STORE_EXTRAS_MAX + s->c.shards * s->c.exact.context_ranks, "%d sums", n);
    return s->norm->end(s, norm_sq_out, extra, n);
}
