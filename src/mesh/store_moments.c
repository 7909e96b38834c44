/* store_moments — where an element's moments lie on this rank (store_inside.h).
 *
 * The first moment is laid out as the table, or as the local shard. So is the second one, unless
 * hidden matrices have none (skips_hidden_second): then the other elements lie one behind the
 * other, in the order of the table. So do the numbers of hidden matrices' neurons (has_neurons),
 * all of them on every rank. It must not know what a moment means. */
#include "base/assert.h"
#include "mesh/store_inside.h"

static bool is_rest(const struct store *s, int part)
{
    return part == 2 && s->c.skips_hidden_second;
}

static bool is_whole(const struct store *s) { return s->policy.moments == STORE_WHOLE; }

int64_t store_moments_elems(const struct store *s, int part)
{
    const struct param_table *t = s->c.table;
    if (is_rest(s, part))
        return is_whole(s) ? param_rest(t, 0, t->total_elems) : s->layout.rest_elems;
    return is_whole(s) ? t->total_elems : s->layout.shard_elems;
}

/* begin_of — where this rank's part of a bucket begins. */
static int64_t begin_of(const struct store *s, int part, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    if (is_rest(s, part))
        return is_whole(s) ? param_rest(s->c.table, 0, l->first) : l->rest_at;
    return is_whole(s) ? l->first : l->shard_at;
}

struct tensor store_moments_at(const struct store *s, int part, int bucket)
{
    return tensor_at(s->moment[part - 1], begin_of(s, part, bucket));
}

int64_t store_moments_run(const struct store *s, int part, int64_t first, int64_t *n)
{
    int bucket = layout_bucket_at(&s->layout, first);
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    int64_t begin = is_whole(s) ? l->first : l->first + l->own.first,
            end = begin + (is_whole(s) ? l->elems : l->own.elems);
    ASSERTF(first >= begin && first < end, "element %lld of another rank", (long long)first);
    *n = *n < end - first ? *n : end - first;
    if (!is_rest(s, part))
        return begin_of(s, part, bucket) + first - begin;
    const struct param_table *t = s->c.table;
    int param = param_at(t, first);
    int64_t left = param_end(t, param) - first;
    *n = *n < left ? *n : left;
    return t->param[param].is_hidden ? -1 : begin_of(s, part, bucket) + param_rest(t, begin, first);
}

/* ---- neurons ---- */

int64_t store_moments_neurons_n(const struct store *s)
{
    return s->c.has_neurons ? param_neurons_before(s->c.table, s->c.table->params_n) : 0;
}

struct tensor store_moments_neurons(const struct store *s, int64_t first, int64_t *n)
{
    const int param = param_at(s->c.table, first);
    const struct param *p = &s->c.table->param[param];
    const int64_t at = first - p->offset, left = param_neurons(p) - at;
    if (!s->c.has_neurons || left <= 0)
        return (struct tensor){0};
    *n = *n < left ? *n : left;
    return tensor_at(store_neurons(s, param), at);
}

enum status store_moments_set_neurons(struct store *s, int64_t first, int64_t n,
                                      const float *values)
{
    const struct param_table *t = s->c.table;
    for (int64_t at = first, next, set; at < first + n; at = next) {
        const int64_t end = param_end(t, param_at(t, at));
        next = end < first + n ? end : first + n;
        set = next - at;
        const struct tensor to = store_moments_neurons(s, at, &set);
        if (to.data)
            TRY(dev_copy(s->c.stream, to.data, values + at - first, (size_t)set * sizeof *values));
    }
    return ST_OK;
}
