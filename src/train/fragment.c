/* fragment — see fragment.h. */
#include "train/fragment.h"

#include <stdlib.h>

#include "base/assert.h"
#include "comm/core/part.h"

/* add — the next elements of the table; neighbours of one fragment are one range. */
static void add(struct fragment_map *map, int fragment, int64_t elems)
{
    struct fragment_range *last = map->ranges_n > 0 ? &map->range[map->ranges_n - 1] : NULL;
    if (elems == 0)
        return;
    if (last && last->fragment == fragment)
        last->elems += elems;
    else
        map->range[map->ranges_n++] =
            (struct fragment_range){.first = last ? last->first + last->elems : 0,
                                    .elems = elems,
                                    .at = map->elems[fragment],
                                    .fragment = fragment};
    map->elems[fragment] += elems;
}

/* add_tensor — with the padding behind it, which depends on the ranks: tensors are cut without. */
static void add_tensor(struct fragment_map *map, const struct param_table *table, int row)
{
    const struct param *p = &table->param[row];
    const int64_t from = row == 0 ? 0 : p->offset,
                  end = row + 1 < table->params_n ? p[1].offset : table->total_elems;
    const bool is_block = p->unit > 0 && p->unit < table->units_n - 1;
    for (int i = 0; i < map->n && !is_block; i++)
        add(map, i, part_extent(p->elems, map->n, i).elems);
    add(map, is_block ? (p->unit - 1) % map->n : map->n - 1,
        end - from - (is_block ? 0 : p->elems));
}

enum status fragment_init(const struct param_table *table, int n, struct fragment_map *out)
{
    ASSERTF(n >= 1 && n <= FRAGMENT_MAX, "%d fragments", n);
    *out = (struct fragment_map){.n = n};
    out->range = calloc((size_t)table->params_n * (size_t)n, sizeof *out->range);
    if (!out->range)
        return FAIL(ST_RETRY, "out of memory: %d fragments of %d tensors", n, table->params_n);
    for (int row = 0; row < table->params_n; row++)
        add_tensor(out, table, row);
    return ST_OK;
}

void fragment_free(struct fragment_map *map)
{
    free(map->range);
    map->range = NULL;
}

const struct fragment_range *fragment_at(const struct fragment_map *map, int64_t elem)
{
    int low = 0, high = map->ranges_n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (map->range[middle].first <= elem)
            low = middle;
        else
            high = middle - 1;
    }
    return &map->range[low];
}

static int begun(const struct fragment_schedule *s, int64_t step)
{
    const int64_t every = s->steps / s->n;
    return step > 0 && step % every == 0 ? (int)((step / every - 1) % s->n) : -1;
}

int fragment_begun(const struct fragment_schedule *s, int64_t step) { return begun(s, step); }

int fragment_landing(const struct fragment_schedule *s, int64_t step)
{
    return begun(s, step - s->delay);
}

int fragment_flying(const struct fragment_schedule *s, int64_t step)
{
    const int64_t every = s->steps / s->n, at = step > 0 ? (step - 1) / every * every : 0;
    return step - at <= s->delay ? begun(s, at) : -1;
}
