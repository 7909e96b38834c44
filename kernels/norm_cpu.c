/* norm_cpu — fast LayerNorm. A row stays in the first-level cache, so passes over it are cheap.
 * Rows are cut into fixed slices.
 *
 * Backward: dw and db are sums over all rows. Each of at most SLICES_MAX slices of rows adds its
 * own sums in cpu->shared; then the slices are added in order. So the result does not depend on the
 * number of threads. */
#include "kernels/norm.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define PART_ROWS 16
#define SLICES_MAX 32
#define PART_COLUMNS 256

/* A row's sums of two vectors' worth of values, in double. */
struct pair {
    double s0, s1;
};

/* n ≤ VEC_W elements; the rest of the vector is zero. */
static inline vec load_some(const float *p, int64_t n)
{
    return n >= VEC_W ? vec_load(p) : vec_load_n(p, (int)n);
}

static inline void store_some(float *p, int64_t n, vec x)
{
    if (n >= VEC_W)
        vec_store(p, x);
    else
        vec_store_n(p, (int)n, x);
}

static inline vec lanes_below(vec x, int64_t n)
{
    if (n < VEC_W) {
        float v[VEC_W];
        memcpy(v, &x, sizeof v);
        memset(v + n, 0, (size_t)(VEC_W - n) * sizeof *v);
        memcpy(&x, v, sizeof v);
    }
    return x;
}

static double row_sum(const float *x, int64_t c)
{
    vec s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + 2 * VEC_W <= c; i += 2 * VEC_W) {
        s0 += vec_load(x + i);
        s1 += vec_load(x + i + VEC_W);
    }
    for (; i < c; i += VEC_W)
        s0 += load_some(x + i, c - i);
    return vec_sum(s0 + s1);
}

/* Sums of x - shift and of its square. */
static struct pair row_moments(const float *x, int64_t c, float shift)
{
    vec s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0}, m = vec_set(shift);
    int64_t i = 0;
    for (; i + 2 * VEC_W <= c; i += 2 * VEC_W) {
        vec d0 = vec_load(x + i) - m, d1 = vec_load(x + i + VEC_W) - m;
        s0 += d0, s1 += d1;
        q0 = vec_fma(d0, d0, q0), q1 = vec_fma(d1, d1, q1);
    }
    for (; i < c; i += VEC_W) {
        vec d = lanes_below(load_some(x + i, c - i) - m, c - i);
        s0 += d;
        q0 = vec_fma(d, d, q0);
    }
    return (struct pair){vec_sum(s0 + s1), vec_sum(q0 + q1)};
}

/* The mean is found in two steps, so that rows far from zero keep their digits: a first guess, then
 * the mean of the remainder. */
static void norm_fwd_row(const struct norm_fwd *a, int64_t n)
{
    float *y = (float *)a->y.data + n * a->c;
    const float *x = (const float *)a->x.data + n * a->c, *w = a->w.data, *b = a->b.data;
    float guess = (float)(row_sum(x, a->c) / (double)a->c);
    struct pair moments = row_moments(x, a->c, guess);
    double rest = moments.s0 / (double)a->c, var = moments.s1 / (double)a->c - rest * rest;
    double r = 1 / sqrt((var > 0 || isnan(var) ? var : 0) + a->eps);
    vec m0 = vec_set(guess), m1 = vec_set((float)rest), scale = vec_set((float)r);
    for (int64_t i = 0; i < a->c; i += VEC_W) {
        vec hat = (load_some(x + i, a->c - i) - m0 - m1) * scale;
        vec shift = b ? load_some(b + i, a->c - i) : vec_set(0);
        store_some(y + i, a->c - i, vec_fma(hat, load_some(w + i, a->c - i), shift));
    }
    if (a->mean.data)
        ((float *)a->mean.data)[n] = (float)(guess + rest);
    if (a->rstd.data)
        ((float *)a->rstd.data)[n] = (float)r;
}

static void norm_fwd_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct norm_fwd *a = arg;
    int64_t end = cpu_part_end(a->n, PART_ROWS, part_i);
    for (int64_t n = (int64_t)part_i * PART_ROWS; n < end; n++)
        norm_fwd_row(a, n);
}

void CPU_FN(norm_fwd)(const struct cpu *cpu, const struct norm_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_parts(a->n, PART_ROWS), norm_fwd_part, (void *)a);
}

struct norm_bwd_work {
    const struct norm_bwd *a;
    float *sums; /* slice after slice: dw (C), db (C) */
    int64_t slices_n, slice_rows;
};

/* First pass over a row: its sums of g and g·x̂, and its part of dw and db. */
static struct pair norm_bwd_sums(const struct norm_bwd *a, int64_t n, float *dw, float *db)
{
    const float *dy = (const float *)a->dy.data + n * a->c,
                *x = (const float *)a->x.data + n * a->c, *w = a->w.data;
    vec m = vec_set(((const float *)a->mean.data)[n]),
        r = vec_set(((const float *)a->rstd.data)[n]);
    vec s0 = {0}, s1 = {0};
    for (int64_t i = 0; i < a->c; i += VEC_W) {
        int64_t left = a->c - i;
        vec hat = (load_some(x + i, left) - m) * r, d = load_some(dy + i, left);
        vec g = d * load_some(w + i, left);
        s0 += g;
        s1 = vec_fma(g, hat, s1);
        store_some(dw + i, left, vec_fma(d, hat, load_some(dw + i, left)));
        store_some(db + i, left, d + load_some(db + i, left));
    }
    return (struct pair){vec_sum(s0), vec_sum(s1)};
}

static void norm_bwd_dx(const struct norm_bwd *a, int64_t n, struct pair sums)
{
    float *dx = (float *)a->dx.data + n * a->c;
    const float *dy = (const float *)a->dy.data + n * a->c,
                *x = (const float *)a->x.data + n * a->c, *w = a->w.data;
    const float *residual = a->dresidual.data ? (const float *)a->dresidual.data + n * a->c : NULL;
    vec m = vec_set(((const float *)a->mean.data)[n]),
        r = vec_set(((const float *)a->rstd.data)[n]);
    vec g_mean = vec_set((float)(sums.s0 / (double)a->c)),
        gx_mean = vec_set((float)(sums.s1 / (double)a->c));
    for (int64_t i = 0; i < a->c; i += VEC_W) {
        int64_t left = a->c - i;
        vec hat = (load_some(x + i, left) - m) * r;
        vec g = load_some(dy + i, left) * load_some(w + i, left) - g_mean - hat * gx_mean;
        vec path = residual ? load_some(residual + i, left) : vec_set(0);
        store_some(dx + i, left, vec_fma(g, r, path));
    }
}

static void norm_bwd_slice(void *arg, int slice_i, int thread_i)
{
    (void)thread_i;
    const struct norm_bwd_work *work = arg;
    const struct norm_bwd *a = work->a;
    float *dw = work->sums + slice_i * 2 * a->c, *db = dw + a->c;
    int64_t end = cpu_part_end(a->n, work->slice_rows, slice_i);
    memset(dw, 0, 2 * (size_t)a->c * sizeof *dw);
    for (int64_t n = slice_i * work->slice_rows; n < end; n++)
        norm_bwd_dx(a, n, norm_bwd_sums(a, n, dw, db));
}

/* Adds the slices of some columns, in order, in double. */
static void norm_bwd_columns(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct norm_bwd_work *work = arg;
    const struct norm_bwd *a = work->a;
    float *dw = a->dw.data, *db = a->db.data;
    int64_t end = cpu_part_end(a->c, PART_COLUMNS, part_i);
    for (int64_t c = (int64_t)part_i * PART_COLUMNS; c < end; c++) {
        double w_sum = a->accumulate ? dw[c] : 0, b_sum = a->accumulate && db ? db[c] : 0;
        for (int64_t s = 0; s < work->slices_n; s++) {
            w_sum += work->sums[s * 2 * a->c + c];
            b_sum += work->sums[s * 2 * a->c + a->c + c];
        }
        dw[c] = (float)w_sum;
        if (db)
            db[c] = (float)b_sum;
    }
}

void CPU_FN(norm_bwd)(const struct cpu *cpu, const struct norm_bwd *a)
{
    int64_t capacity = (int64_t)(CPU_SHARED_BYTES / sizeof(float)) / (2 * a->c);
    ASSERTF(capacity > 0, "%lld columns", (long long)a->c);
    int64_t slices = capacity < SLICES_MAX ? capacity : SLICES_MAX;
    int64_t rows = a->n / slices + (a->n % slices != 0);
    struct norm_bwd_work work = {
        .a = a, .sums = (float *)(void *)cpu->shared, .slice_rows = rows > 0 ? rows : 1};
    work.slices_n = cpu_parts(a->n, work.slice_rows);
    thread_pool_run(cpu->pool, (int)work.slices_n, norm_bwd_slice, &work);
    thread_pool_run(cpu->pool, cpu_parts(a->c, PART_COLUMNS), norm_bwd_columns, &work);
}
