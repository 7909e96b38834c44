/* part_map — see part_map.h. */
#include "mesh/part_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

static struct part_map_tensor *tensor_of(const struct part_map *map, int part, int i)
{
    return &map->tensor[(size_t)part * (size_t)map->whole->params_n + (size_t)i];
}

/* ---- the map ---- */

void part_map_init(const struct param_table *whole, int parts_n, struct part_map *out)
{
    ASSERTF(parts_n > 0 && whole->params_n > 0, "%d parts, %d tensors", parts_n, whole->params_n);
    *out = (struct part_map){
        .whole = whole,
        .parts_n = parts_n,
        .tensor = memory_new((size_t)parts_n * (size_t)whole->params_n, sizeof *out->tensor)};
}

void part_map_free(struct part_map *map)
{
    free(map->tensor);
    *map = (struct part_map){0};
}

/* span_of — returns the span of a tensor's stripes, in the parts that have it. */
static int64_t span_of(const struct part_map *map, int i)
{
    for (int part = 0; part < map->parts_n; part++)
        if (tensor_of(map, part, i)->stripes.n > 0)
            return tensor_of(map, part, i)->stripes.span;
    return -1;
}

/* is_cut_of — returns true if the cut is one of a whole dimension, and its length fits. */
static bool is_cut_of(const struct param *own)
{
    const struct param_cut *cut = &own->cut;
    return own->split_dim >= 0 && cut->groups > 0 && cut->whole % cut->groups == 0 && cut->n > 0 &&
           cut->first >= 0 && cut->first + cut->n <= cut->whole / cut->groups &&
           own->dim[own->split_dim] == cut->groups * cut->n;
}

/* matches_param — returns true if a part's tensor is tensor i of the whole model, cut as in the
 * other parts. */
static bool matches_param(const struct part_map *map, int i, const struct param *own)
{
    const struct param *whole = &map->whole->param[i];
    int64_t dim[2] = {own->dim[0], own->dim[1]}, span = span_of(map, i);
    if (own->cut.whole > 0 && !is_cut_of(own))
        return false;
    if (own->cut.whole > 0)
        dim[own->split_dim] = own->cut.whole;
    return own->dims_n == whole->dims_n && dim[0] == whole->dim[0] && dim[1] == whole->dim[1] &&
           (span < 0 || span == param_stripes(own).span);
}

/* is_new — returns true if no part with a lower number has these elements. */
static bool is_new(const struct part_map *map, int part, int i)
{
    const struct param_stripes *t = &tensor_of(map, part, i)->stripes;
    for (int other = 0; other < part; other++) {
        const struct param_stripes *o = &tensor_of(map, other, i)->stripes;
        if (o->n > 0 && o->first <= t->first && o->first + o->n >= t->first + t->n)
            return false;
    }
    return true;
}

enum status part_map_add(struct part_map *map, int part, const struct param_table *table)
{
    int next = 0;
    ASSERTF(part >= 0 && part < map->parts_n, "part %d of %d", part, map->parts_n);
    for (int own = 0; own < table->params_n; own++) {
        const struct param *p = &table->param[own];
        int i = next; /* parts keep the order of the whole model */
        while (i < map->whole->params_n && strcmp(map->whole->param[i].name, p->name) != 0)
            i++;
        if (i == map->whole->params_n || !matches_param(map, i, p))
            return FAIL(ST_BUG,
                        "part %d of %d has %s of %lld x %lld, elements [%lld, +%lld) of %d groups "
                        "of %lld, which is not in the whole model, or in another order",
                        part, map->parts_n, p->name, (long long)p->dim[0], (long long)p->dim[1],
                        (long long)p->cut.first, (long long)p->cut.n, p->cut.groups,
                        (long long)p->cut.whole);
        *tensor_of(map, part, i) =
            (struct part_map_tensor){.own_at = p->offset, .stripes = param_stripes(p)};
        tensor_of(map, part, i)->is_source = is_new(map, part, i);
        next = i + 1;
    }
    return ST_OK;
}

enum status part_map_check(const struct part_map *map)
{
    for (int i = 0; i < map->whole->params_n; i++) {
        /* until: the end of the elements of a stripe that sources hold without a gap. */
        int64_t span = span_of(map, i), until = 0;
        for (int part = 0; part < map->parts_n; part++) {
            const struct part_map_tensor *t = tensor_of(map, part, i);
            if (t->is_source && t->stripes.first == until) {
                until += t->stripes.n;
                part = -1; /* the next may have a lower number */
            }
        }
        if (until != span)
            return FAIL(ST_BUG, "the %d parts of the model have %lld of %lld elements of %s",
                        map->parts_n, (long long)until, (long long)span, map->whole->param[i].name);
    }
    return ST_OK;
}

/* ---- ranges ---- */

/* first_tensor — returns the first tensor that ends after element `at` of the whole table. */
static int first_tensor(const struct param_table *whole, int64_t at)
{
    int low = 0, high = whole->params_n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct param *p = &whole->param[middle];
        if (p->offset + p->elems <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* own_before — returns the number of the part's elements before element `at` of the tensor. */
static int64_t own_before(const struct param_stripes *t, int64_t at)
{
    return at / t->span * t->n + min(max(at % t->span - t->first, 0), t->n);
}

/* own_within — returns the part's elements of one tensor within a range of the whole table, counted
 * from the tensor's first element in the part. */
static struct part_map_range own_within(const struct param_stripes *t, const struct param *p,
                                        int64_t first, int64_t n)
{
    if (t->n == 0)
        return (struct part_map_range){0};
    int64_t from = own_before(t, max(first - p->offset, 0)),
            end = own_before(t, min(first + n - p->offset, p->elems));
    return (struct part_map_range){from, end - from};
}

static struct part_map_range range_of(const struct part_map *map, int part, int64_t first,
                                      int64_t n, bool are_sources)
{
    struct part_map_range all = {0};
    for (int i = first_tensor(map->whole, first);
         i < map->whole->params_n && map->whole->param[i].offset < first + n; i++) {
        const struct part_map_tensor *t = tensor_of(map, part, i);
        struct part_map_range own = own_within(&t->stripes, &map->whole->param[i], first, n);
        if (own.n == 0 || (are_sources && !t->is_source))
            continue;
        if (all.n == 0)
            all.first = t->own_at + own.first;
        all.n = t->own_at + own.first + own.n - all.first;
    }
    return all;
}

struct part_map_range part_map_sources(const struct part_map *map, int part, int64_t first,
                                       int64_t n)
{
    return range_of(map, part, first, n, true);
}

struct part_map_range part_map_held(const struct part_map *map, int part, int64_t first, int64_t n)
{
    return range_of(map, part, first, n, false);
}

/* ---- copies ---- */

/* A run of elements without a gap in the part's tensor and in the whole tensor. */
struct run {
    int64_t own, whole, n;
};

static struct run run_at(const struct param_stripes *t, int64_t at, int64_t end)
{
    int64_t stripe = at / t->n, within = at % t->n;
    return (struct run){at, stripe * t->span + t->first + within, min(t->n - within, end - at)};
}

/* The elements of one tensor to copy: [own.first, + own.n) of the part's tensor. Element 0 of the
 * tensors lies at own_at and whole_at in the two arrays, maybe before their begin. */
struct copy {
    const struct part_map_tensor *t;
    struct part_map_range own;
    int64_t own_at, whole_at;
};

static struct copy copy_of(const struct part_map *map, int part, int i, int64_t first, int64_t n,
                           struct part_map_range range)
{
    const struct part_map_tensor *t = tensor_of(map, part, i);
    const struct param *p = &map->whole->param[i];
    return (struct copy){.t = t,
                         .own = own_within(&t->stripes, p, first, n),
                         .own_at = t->own_at - range.first,
                         .whole_at = p->offset - first};
}

void part_map_copy_to_whole(const struct part_map *map, int part, int64_t first, int64_t n,
                            struct part_map_range range, const float *own, float *whole)
{
    for (int i = first_tensor(map->whole, first);
         i < map->whole->params_n && map->whole->param[i].offset < first + n; i++) {
        struct copy c = copy_of(map, part, i, first, n, range);
        int64_t end = c.t->is_source ? c.own.first + c.own.n : c.own.first;
        for (int64_t at = c.own.first; at < end;) {
            struct run run = run_at(&c.t->stripes, at, end);
            memcpy(whole + c.whole_at + run.whole, own + c.own_at + run.own,
                   (size_t)run.n * sizeof *whole);
            at += run.n;
        }
    }
}

void part_map_copy_from_whole(const struct part_map *map, int part, int64_t first, int64_t n,
                              struct part_map_range range, const float *whole, float *own)
{
    memset(own, 0, (size_t)range.n * sizeof *own);
    for (int i = first_tensor(map->whole, first);
         i < map->whole->params_n && map->whole->param[i].offset < first + n; i++) {
        struct copy c = copy_of(map, part, i, first, n, range);
        for (int64_t at = c.own.first; at < c.own.first + c.own.n;) {
            struct run run = run_at(&c.t->stripes, at, c.own.first + c.own.n);
            memcpy(own + c.own_at + run.own, whole + c.whole_at + run.whole,
                   (size_t)run.n * sizeof *own);
            at += run.n;
        }
    }
}

void part_map_pad(const struct part_map *map, int64_t first, int64_t n, float *whole)
{
    const struct param_table *table = map->whole;
    int64_t at = first;
    for (int i = first_tensor(table, first); i < table->params_n && at < first + n; i++) {
        int64_t gap = min(table->param[i].offset, first + n) - at;
        if (gap > 0)
            memset(whole + at - first, 0, (size_t)gap * sizeof *whole);
        at = max(at, table->param[i].offset + table->param[i].elems);
    }
    if (at < first + n)
        memset(whole + at - first, 0, (size_t)(first + n - at) * sizeof *whole);
}
