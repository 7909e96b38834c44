/* param — appends and finds parameters, and draws initial values from counters (param.h). */
#include "model/param.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rand.h"
#include "base/text.h"

#define INIT_STD 0.02 /* Radford et al. 2019 */

void param_table_free(struct param_table *t)
{
    free(t->param);
    *t = (struct param_table){0};
}

static enum status grow_table(struct param_table *t)
{
    int cap = t->params_cap ? 2 * t->params_cap : 32;
    struct param *grown = realloc(t->param, (size_t)cap * sizeof *grown);
    if (!grown)
        return FAIL(ST_RETRY,
                    "out of memory: a table of %d parameters; use a machine with more memory", cap);
    t->param = grown;
    t->params_cap = cap;
    return ST_OK;
}

enum status param_add(struct param_table *t, int unit, enum param_init init, int split_dim,
                      const char *name, int dims_n, int64_t dim0, int64_t dim1)
{
    ASSERTF(dims_n == 1 || dims_n == 2, "%s: dims_n %d", name, dims_n);
    ASSERTF(dim0 > 0 && (dims_n == 1 || dim1 > 0), "%s: %lld x %lld", name, (long long)dim0,
            (long long)dim1);
    ASSERTF(split_dim < dims_n, "%s: split_dim %d dims_n %d", name, split_dim, dims_n);
    ASSERTF(t->params_n == 0 || unit >= t->param[t->params_n - 1].unit, "%s: unit %d out of order",
            name, unit);
    if (t->params_n == t->params_cap)
        TRY(grow_table(t));
    struct param *p = &t->param[t->params_n];
    *p = (struct param){.dims_n = dims_n,
                        .dim = {dim0, dims_n == 2 ? dim1 : 1},
                        .split_dim = split_dim,
                        .init = init,
                        .whole_param = t->params_n,
                        .tensor_copies = 1,
                        .unit = unit,
                        .offset = t->total_elems};
    ASSERTF(text_copy(p->name, sizeof p->name, name), "name too long: %s", name);
    int64_t total;
    bool is_over = __builtin_mul_overflow(p->dim[0], p->dim[1], &p->elems) ||
                   __builtin_add_overflow(t->total_elems, p->elems, &total) ||
                   __builtin_add_overflow(total, PARAM_ALIGN - 1, &total) || total > INT64_MAX / 8;
    if (is_over)
        return FAIL(ST_BAD_SETTING,
                    "%s with %lld x %lld elements is too large to address; use a smaller model",
                    name, (long long)p->dim[0], (long long)p->dim[1]);
    p->room_elems = p->elems;
    t->total_elems = total / PARAM_ALIGN * PARAM_ALIGN;
    t->parameters += p->elems;
    t->params_n++;
    t->units_n = unit + 1;
    return ST_OK;
}

static int64_t round_up(int64_t n, int64_t align) { return (n + align - 1) / align * align; }

void param_pack(struct param_table *t)
{
    ASSERTF(t->params_n >= 2, "%d parameters", t->params_n);
    struct param *last = &t->param[t->params_n - 1];
    ASSERTF(last[-1].unit == last->unit, "%s: unit %d", last->name, last->unit);
    last->is_packed = true;
    last->offset = last[-1].offset + last[-1].room_elems;
    t->total_elems = round_up(last->offset + last->elems, PARAM_ALIGN);
}

void param_reserve(struct param_table *t, int64_t elems)
{
    ASSERTF(t->params_n >= 1, "%d parameters", t->params_n);
    struct param *last = &t->param[t->params_n - 1];
    ASSERTF(!last->is_packed && elems >= last->elems, "%s: %lld of %lld elements", last->name,
            (long long)elems, (long long)last->elems);
    last->room_elems = elems;
    t->total_elems = round_up(last->offset + elems, PARAM_ALIGN);
}

const struct param *param_find(const struct param_table *t, const char *name)
{
    for (int i = 0; i < t->params_n; i++)
        if (strcmp(t->param[i].name, name) == 0)
            return &t->param[i];
    return NULL;
}

void param_unit_span(const struct param_table *t, int unit, int64_t *offset_out, int64_t *elems_out)
{
    ASSERTF(unit >= 0 && unit < t->units_n, "unit %d of %d", unit, t->units_n);
    int64_t first = t->total_elems, last = t->total_elems;
    for (int i = t->params_n - 1; i >= 0 && t->param[i].unit >= unit; i--) {
        if (t->param[i].unit > unit)
            last = t->param[i].offset;
        else
            first = t->param[i].offset;
    }
    *offset_out = first < last ? first : last; /* no parameter: an empty span */
    *elems_out = last - *offset_out;
}

void param_pad(struct param_table *t, int64_t align) { param_pad_each(t, align, PARAM_ALIGN); }

void param_pad_each(struct param_table *t, int64_t align, int64_t each)
{
    int64_t end = 0;
    ASSERTF(each > 0 && each % PARAM_ALIGN == 0 && align % each == 0, "align %lld each %lld",
            (long long)align, (long long)each);
    for (int i = 0; i < t->params_n; i++) {
        struct param *p = &t->param[i];
        bool begins = i == 0 || p->unit == 0 || p->unit != p[-1].unit;
        p->offset = p->is_packed ? end : round_up(end, begins ? align : each);
        end = p->offset + p->room_elems;
    }
    t->total_elems = round_up(end, align);
}

int param_at(const struct param_table *t, int64_t elem)
{
    int i = 0;
    while (i + 1 < t->params_n && t->param[i + 1].offset <= elem)
        i++;
    return i;
}

int64_t param_end(const struct param_table *t, int param)
{
    return param + 1 < t->params_n ? t->param[param + 1].offset : t->total_elems;
}

int64_t param_rest(const struct param_table *t, int64_t first, int64_t end)
{
    int64_t rest = first < end ? end - first : 0;
    for (int i = 0; i < t->params_n; i++) {
        int64_t from = t->param[i].offset > first ? t->param[i].offset : first,
                to = param_end(t, i) < end ? param_end(t, i) : end;
        if (t->param[i].is_hidden && from < to)
            rest -= to - from;
    }
    return rest;
}

int param_matrices(const struct param *p, struct param_matrix out[PARAM_MATRICES_MAX])
{
    ASSERTF(p->dims_n == 2 && p->fused.n <= PARAM_MATRICES_MAX, "%s: %d dimensions, %d matrices",
            p->name, p->dims_n, p->fused.n);
    out[0] = (struct param_matrix){0, 1, p->elems, p->elems, p->dim[0], p->dim[1]};
    for (int i = 0; i < p->fused.n; i++) {
        /* Matrix i of a tensor of several. */
        const struct param_fused *f = &p->fused;
        const bool is_rows = p->split_dim == 0;
        int64_t period = 0, before = 0, each = is_rows ? p->dim[1] : 1;
        for (int j = 0; j < f->n; j++) {
            before += j < i ? f->width[j] : 0;
            period += f->width[j];
        }
        out[i] = (struct param_matrix){.first = before * each,
                                       .runs = f->repeats * (is_rows ? 1 : p->dim[0]),
                                       .run = f->width[i] * each,
                                       .stride = period * each,
                                       .rows = is_rows ? f->repeats * f->width[i] : p->dim[0],
                                       .columns = is_rows ? p->dim[1] : f->repeats * f->width[i]};
    }
    return p->fused.n > 0 ? p->fused.n : 1;
}

/* Draws four normal numbers from one Philox block, by Box–Muller on pairs of 32-bit words: |z| ≤
 * 6.8. A quarter of the work of rand_normal, which matters at a start that draws 124 million of
 * them. */
static void draw_normals(uint64_t seed, uint64_t stream, uint64_t block, double z[4])
{
    struct rand4 r = rand_philox(seed, stream, block);
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2.0 * log((r.v[i] + 0.5) * 0x1p-32));
        double angle = 2.0 * 3.14159265358979323846 * (r.v[i + 1] * 0x1p-32);
        double s, c;
        sincos(angle, &s, &c);
        z[i] = radius * c;
        z[i + 1] = radius * s;
    }
}

struct param_stripes param_stripes(const struct param *p)
{
    const struct param_cut *cut = &p->cut;
    if (cut->whole == 0)
        return (struct param_stripes){.span = p->elems, .n = p->elems};
    int64_t inner = p->split_dim == 0 ? p->dim[1] : 1;
    return (struct param_stripes){
        .span = cut->whole / cut->groups * inner, .first = cut->first * inner, .n = cut->n * inner};
}

int64_t param_run(const struct param *p, int64_t first, int64_t *whole_first)
{
    ASSERTF(first >= 0 && first < p->elems, "%s: element %lld of %lld", p->name, (long long)first,
            (long long)p->elems);
    const struct param_stripes s = param_stripes(p);
    *whole_first = first / s.n * s.span + s.first + first % s.n;
    return s.n - first % s.n;
}

/* Draws four numbers that are uniform in (-1, 1). */
static void draw_uniforms(uint64_t seed, uint64_t stream, uint64_t block, double z[4])
{
    struct rand4 r = rand_philox(seed, stream, block);
    for (int i = 0; i < 4; i++)
        z[i] = (r.v[i] + 0.5) * 0x1p-31 - 1;
}

/* How the values of a tensor are drawn: numbers of a distribution times a factor. */
struct draw {
    void (*four)(uint64_t seed, uint64_t stream, uint64_t block, double z[4]);
    double scale;
};

static struct draw draw_of(const struct param_table *t, const struct param *p)
{
    if (p->init == PARAM_INIT_UNIFORM)
        return (struct draw){
            draw_uniforms,
            1 / sqrt((double)(p->cut.whole > 0 && p->split_dim == 1 ? p->cut.whole : p->dim[1]))};
    return (struct draw){
        draw_normals, p->init == PARAM_INIT_RESIDUAL ? INIT_STD / sqrt(2.0 * t->layers) : INIT_STD};
}

/* fill_run — draws elements [first, first + n) of a whole tensor. */
static void fill_run(uint64_t seed, uint64_t stream, struct draw draw, int64_t first, int64_t n,
                     float *out)
{
    double z[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = (uint64_t)(first + i);
        if (i == 0 || index % 4 == 0)
            draw.four(seed, stream, index / 4, z);
        out[i] = (float)(draw.scale * z[index % 4]);
    }
}

void param_fill(const struct param_table *t, int param, uint64_t seed, int64_t first, int64_t n,
                float *out)
{
    ASSERTF(param >= 0 && param < t->params_n, "param %d of %d", param, t->params_n);
    const struct param *p = &t->param[param];
    ASSERTF(first >= 0 && n >= 0 && first <= p->elems - n, "%s: first %lld n %lld of %lld", p->name,
            (long long)first, (long long)n, (long long)p->elems);
    if (p->init == PARAM_INIT_ZERO || p->init == PARAM_INIT_ONE) {
        for (int64_t i = 0; i < n; i++)
            out[i] = p->init == PARAM_INIT_ONE;
        return;
    }
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t whole_first;
        run = param_run(p, first + done, &whole_first);
        run = run < n - done ? run : n - done;
        fill_run(seed, RAND_STREAM(INIT, p->whole_param), draw_of(t, p), whole_first, run,
                 out + done);
    }
}
