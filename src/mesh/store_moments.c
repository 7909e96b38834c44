/* store_moments — where an element's moments lie on this rank (store_inside.h).
 *
 * The first moment is laid out as the table, or as the local shard. So is the second one, unless
 * hidden matrices have none (skips_hidden_second): then the other elements lie one behind the
 * other, in the order of the table. It must not know what a moment means. */
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
