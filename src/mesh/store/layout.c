/* layout — divides the table into buckets, then assigns positions to each (layout.h). */
#include "mesh/store/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "kernels/reduce.h"

static void add_bucket(struct layout *l, int unit_first, int unit_last, int64_t first, int64_t end)
{
    l->bucket[l->buckets_n] =
        (struct layout_bucket){.first = first, .elems = end - first, .unit_first = unit_first};
    for (int unit = unit_first; unit <= unit_last; unit++)
        l->unit_bucket[unit] = l->buckets_n;
    l->buckets_n++;
}

/* Joins units from 1 on, from the last to the first; the buckets are in ascending order. */
static void cut_units(struct layout *l, const struct param_table *t, int64_t bucket_elems_min,
                      int *begins)
{
    int begins_n = 0;
    int64_t joined_elems = 0, offset, elems;
    for (int unit = t->units_n - 1; unit >= 1; unit--) {
        param_unit_span(t, unit, &offset, &elems);
        joined_elems += elems;
        if (joined_elems < bucket_elems_min && unit > 1)
            continue;
        begins[begins_n++] = unit;
        joined_elems = 0;
    }
    for (int i = begins_n - 1; i >= 0; i--) {
        int64_t end;
        int unit_last = i > 0 ? begins[i - 1] - 1 : t->units_n - 1;
        param_unit_span(t, begins[i], &offset, &elems);
        param_unit_span(t, unit_last, &end, &elems);
        add_bucket(l, begins[i], unit_last, offset, end + elems);
    }
}

static void cut_buckets(struct layout *l, const struct param_table *t, int64_t bucket_elems_min,
                        int *begins)
{
    if (l->ranks > 1) {
        for (int param = 0; param < t->params_n && t->param[param].unit == 0; param++)
            add_bucket(l, 0, 0, t->param[param].offset, param_end(t, param));
        cut_units(l, t, bucket_elems_min, begins);
        return;
    }
    for (int unit = 0; unit < t->units_n; unit++) {
        int64_t offset, elems;
        param_unit_span(t, unit, &offset, &elems);
        add_bucket(l, unit, unit, offset, offset + elems);
    }
}

int64_t layout_largest_part(int64_t elems, int ranks)
{
    int64_t most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t n = part_extent(elems, ranks, rank).elems;
        most = n > most ? n : most;
    }
    return most;
}

static int64_t align_elems(int64_t elems)
{
    return (elems + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

void layout_init(const struct param_table *t, int ranks, int rank, int64_t bucket_elems_min,
                 struct layout *out)
{
    ASSERTF(ranks >= 1 && rank >= 0 && rank < ranks, "rank %d of %d", rank, ranks);
    struct layout l = {.rank = rank, .ranks = ranks, .units_n = t->units_n};
    int *begins = memory_new((size_t)t->units_n, sizeof *begins);
    l.bucket = memory_new((size_t)(t->units_n + t->params_n), sizeof *l.bucket);
    l.unit_bucket = memory_new((size_t)t->units_n, sizeof *l.unit_bucket);
    l.buffer_table = *t;
    l.buffer_table.param = memory_new((size_t)t->params_n, sizeof *t->param);
    memcpy(l.buffer_table.param, t->param, (size_t)t->params_n * sizeof *t->param);
    cut_buckets(&l, t, bucket_elems_min > 0 ? bucket_elems_min : LAYOUT_BUCKET_ELEMS_MIN, begins);
    free(begins);
    int64_t slot_elems[2] = {0, 0};
    int shared_n = 0;
    for (int i = 0; i < l.buckets_n; i++) {
        struct layout_bucket *p = &l.bucket[i];
        p->own = part_extent(p->elems, l.ranks, l.rank);
        /* Parts of a bucket are equal in a table of layout_pad, else they differ by an alignment.
         * In the local shard each part has the elements of the largest one, so that shard_at is the
         * same on all ranks. */
        const int64_t first = p->first + p->own.first, end = first + p->own.elems;
        p->shard_at = l.shard_elems;
        l.shard_elems += align_elems(layout_largest_part(p->elems, ranks));
        p->rest_at = l.rest_elems;
        l.rest_elems += align_elems(param_rest(&l.buffer_table, first, end));
        p->slot = p->unit_first == 0 ? -1 : shared_n++ % 2;
        p->buffer_at = l.buffer_elems;
        if (p->slot < 0)
            l.buffer_elems += p->elems;
        else if (p->elems > slot_elems[p->slot])
            slot_elems[p->slot] = p->elems;
    }
    for (int i = 0; i < l.buckets_n; i++)
        if (l.bucket[i].slot >= 0)
            l.bucket[i].buffer_at = l.buffer_elems + (l.bucket[i].slot ? slot_elems[0] : 0);
    l.buffer_elems += slot_elems[0] + slot_elems[1];
    for (int i = 0; i < l.buffer_table.params_n; i++) {
        struct param *param = &l.buffer_table.param[i];
        const struct layout_bucket *p = &l.bucket[layout_bucket_at(&l, param->offset)];
        param->offset += p->buffer_at - p->first;
    }
    *out = l;
}

void layout_pad(struct param_table *table, int ranks)
{
    param_pad(table, (int64_t)ranks * PART_ALIGN);
}

void layout_pad_blocks(struct param_table *table, int ranks)
{
    param_pad_each(table, (int64_t)ranks * REDUCE_BLOCK_ELEMS, REDUCE_BLOCK_ELEMS);
}

void layout_free(struct layout *l)
{
    free(l->bucket);
    free(l->unit_bucket);
    free(l->buffer_table.param);
    *l = (struct layout){0};
}

int layout_bucket_at(const struct layout *l, int64_t elem)
{
    int i = 0;
    while (i < l->buckets_n - 1 && elem >= l->bucket[i + 1].first)
        i++;
    ASSERTF(elem >= l->bucket[i].first && elem < l->bucket[i].first + l->bucket[i].elems,
            "element %lld", (long long)elem);
    return i;
}

int layout_owner(const struct layout *l, int bucket, int64_t at, int64_t *elems_out,
                 int64_t *shard_at_out)
{
    const struct layout_bucket *p = &l->bucket[bucket];
    ASSERTF(at >= 0 && at < p->elems, "element %lld of %lld", (long long)at, (long long)p->elems);
    int rank = 0;
    struct part_extent part = part_extent(p->elems, l->ranks, rank);
    while (at >= part.first + part.elems)
        part = part_extent(p->elems, l->ranks, ++rank);
    *elems_out = part.first + part.elems - at;
    *shard_at_out = p->shard_at + at - part.first;
    return rank;
}
