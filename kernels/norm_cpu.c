/* norm_cpu — fast LayerNorm and RMSNorm. A row stays in the first-level cache, so passes over it
 * are cheap. Rows are cut into fixed slices.
 *
 * Backward: dw and db are sums over all rows. Each of at most SLICES_MAX slices of rows adds its
 * own sums in cpu->shared; then the slices are added in order. So the result does not depend on the
 * number of threads. RMSNorm's backward is LayerNorm's with means of 0. */
#include "kernels/norm.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ROWS 16
#define SLICES_MAX 32
#define RANGE_COLUMNS 256

/* A row's sums of two vectors' worth of values, in double. */
struct pair {
    double s0, s1;
};

/* Loads n ≤ VEC_W elements; the rest of the vector is zero. */
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

/* Returns the sums of x - shift and of its square. */
static struct pair row_moments(const float *x, int64_t c, float shift)
{
    vec s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0}, m = vec_set(shift);
    int64_t i = 0;
    for (; i + 2 * VEC_W <= c; i += 2 * VEC_W) {
        __builtin_prefetch(x + c + i); /* the next row; beyond the last one that does no harm */
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

/* Normalises a row. The mean is found in two steps, so that rows far from zero keep their digits: a
 * first guess, then the mean of the remainder. */
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

static double row_squares(const float *x, int64_t c)
{
    vec s[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * VEC_W <= c; i += 4 * VEC_W)
        for (int k = 0; k < 4; k++) {
            vec v = vec_load(x + i + k * VEC_W);
            s[k] = vec_fma(v, v, s[k]);
        }
    for (; i < c; i += VEC_W) {
        vec v = load_some(x + i, c - i);
        s[0] = vec_fma(v, v, s[0]);
    }
    return vec_sum((s[0] + s[1]) + (s[2] + s[3]));
}

/* 1/√(mean(x²) + eps) */
static float rms_rstd(const float *x, int64_t c, float eps)
{
    return (float)(1 / sqrt(row_squares(x, c) / (double)c + eps));
}

static void rms_scale(float *y, const float *x, const float *w, int64_t c, float rstd)
{
    vec r = vec_set(rstd);
    int64_t i = 0;
    for (; i + VEC_W <= c; i += VEC_W)
        vec_store(y + i, vec_load(w + i) * (vec_load(x + i) * r));
    if (i < c)
        store_some(y + i, c - i, load_some(w + i, c - i) * (load_some(x + i, c - i) * r));
}

static void rms_fwd_row(const struct norm_fwd *a, int64_t n)
{
    const float *x = (const float *)a->x.data + n * a->c;
    float r = rms_rstd(x, a->c, a->eps);
    rms_scale((float *)a->y.data + n * a->c, x, a->w.data, a->c, r);
    if (a->rstd.data)
        ((float *)a->rstd.data)[n] = r;
}

static void rms_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct norm_fwd *a = arg;
    int64_t end = cpu_range_end(a->n, RANGE_ROWS, range_i);
    for (int64_t n = (int64_t)range_i * RANGE_ROWS; n < end; n++)
        rms_fwd_row(a, n);
}

static void norm_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct norm_fwd *a = arg;
    int64_t end = cpu_range_end(a->n, RANGE_ROWS, range_i);
    for (int64_t n = (int64_t)range_i * RANGE_ROWS; n < end; n++)
        norm_fwd_row(a, n);
}

void CPU_FN(norm_fwd)(const struct cpu *cpu, const struct norm_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ROWS),
                    a->kind == NORM_KIND_RMS ? rms_fwd_range : norm_fwd_range, (void *)a);
}

struct norm_bwd_work {
    const struct norm_bwd *a;
    float *sums; /* slice after slice: dw (C), db (C) */
    int64_t slices_n, slice_rows;
};

/* Passes over a row for the first time: returns its sums of g and g·x̂, and adds its terms to dw
 * and db. */
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

/* Does the same as norm_bwd_sums for RMSNorm: returns only the sum of g·x̂. */
static double rms_bwd_sum(const float *dy, const float *x, const float *w, float *dw, int64_t c,
                          float rstd)
{
    vec r = vec_set(rstd), s0 = {0};
    int64_t i = 0;
    for (; i + VEC_W <= c; i += VEC_W) {
        vec d = vec_load(dy + i) * (vec_load(x + i) * r);
        s0 = vec_fma(d, vec_load(w + i), s0);
        vec_store(dw + i, d + vec_load(dw + i));
    }
    if (i < c) {
        vec d = load_some(dy + i, c - i) * (load_some(x + i, c - i) * r);
        s0 = vec_fma(d, load_some(w + i, c - i), s0);
        store_some(dw + i, c - i, d + load_some(dw + i, c - i));
    }
    return vec_sum(s0);
}

static inline vec rms_bwd_vec(vec dy, vec x, vec w, vec r, vec gx_mean)
{
    return (dy * w - x * r * gx_mean) * r;
}

/* Does the same as norm_bwd_dx for RMSNorm. residual NULL: none. */
static void rms_bwd_dx(float *dx, const float *dy, const float *x, const float *w,
                       const float *residual, int64_t c, float rstd, double gx_sum)
{
    vec r = vec_set(rstd), gx_mean = vec_set((float)(gx_sum / (double)c));
    for (int64_t i = 0; i < c; i += VEC_W) {
        int64_t left = c - i;
        vec d = rms_bwd_vec(load_some(dy + i, left), load_some(x + i, left), load_some(w + i, left),
                            r, gx_mean);
        store_some(dx + i, left, residual ? d + load_some(residual + i, left) : d);
    }
}

static void rms_bwd_row(const struct norm_bwd *a, int64_t n, float *dw)
{
    int64_t at = n * a->c;
    const float *dy = (const float *)a->dy.data + at, *x = (const float *)a->x.data + at,
                *w = a->w.data;
    const float *residual = a->dresidual.data ? (const float *)a->dresidual.data + at : NULL;
    float r = ((const float *)a->rstd.data)[n];
    double sum = rms_bwd_sum(dy, x, w, dw, a->c, r);
    rms_bwd_dx((float *)a->dx.data + at, dy, x, w, residual, a->c, r, sum);
}

static void norm_bwd_slice(void *arg, int slice_i, int thread_i)
{
    (void)thread_i;
    const struct norm_bwd_work *work = arg;
    const struct norm_bwd *a = work->a;
    float *dw = work->sums + slice_i * 2 * a->c, *db = dw + a->c;
    int64_t end = cpu_range_end(a->n, work->slice_rows, slice_i);
    memset(dw, 0, 2 * (size_t)a->c * sizeof *dw);
    for (int64_t n = slice_i * work->slice_rows; n < end; n++)
        norm_bwd_dx(a, n, norm_bwd_sums(a, n, dw, db));
}

/* Separate from norm_bwd_slice: in one function the compiler fuses LayerNorm's products and sums in
 * another way, and GPT-2's bits change. */
static void rms_bwd_slice(void *arg, int slice_i, int thread_i)
{
    (void)thread_i;
    const struct norm_bwd_work *work = arg;
    const struct norm_bwd *a = work->a;
    float *dw = work->sums + slice_i * 2 * a->c;
    int64_t end = cpu_range_end(a->n, work->slice_rows, slice_i);
    memset(dw, 0, 2 * (size_t)a->c * sizeof *dw);
    for (int64_t n = slice_i * work->slice_rows; n < end; n++)
        rms_bwd_row(a, n, dw);
}

/* Adds the slices of some columns, in order, in double. */
static void norm_bwd_columns(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct norm_bwd_work *work = arg;
    const struct norm_bwd *a = work->a;
    float *dw = a->dw.data, *db = a->db.data;
    int64_t end = cpu_range_end(a->c, RANGE_COLUMNS, range_i);
    for (int64_t c = (int64_t)range_i * RANGE_COLUMNS; c < end; c++) {
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
    work.slices_n = cpu_ranges(a->n, work.slice_rows);
    thread_pool_run(cpu->pool, (int)work.slices_n,
                    a->kind == NORM_KIND_RMS ? rms_bwd_slice : norm_bwd_slice, &work);
    thread_pool_run(cpu->pool, cpu_ranges(a->c, RANGE_COLUMNS), norm_bwd_columns, &work);
}

/* ---- each head of a row ---- */

static void head_norm_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct head_norm_fwd *a = arg;
    int64_t end = cpu_range_end(a->n, RANGE_ROWS, range_i);
    for (int64_t n = (int64_t)range_i * RANGE_ROWS; n < end; n++)
        for (int64_t at = n * a->stride, h = 0; h < a->heads; h++, at += a->d) {
            const float *x = (const float *)a->x.data + at;
            rms_scale((float *)a->y.data + at, x, a->w.data, a->d, rms_rstd(x, a->d, a->eps));
        }
}

void CPU_FN(head_norm_fwd)(const struct cpu *cpu, const struct head_norm_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ROWS), head_norm_fwd_range, (void *)a);
}

struct head_norm_bwd_work {
    const struct head_norm_bwd *a;
    float *sums; /* slice after slice: a row's sums (D), the slice's sums (D) */
    int64_t slices_n, slice_rows;
};

/* The heads of one row are added first, then the rows: sums of many terms keep their digits. */
static void head_norm_bwd_row(const struct head_norm_bwd *a, int64_t n, float *row, float *slice)
{
    memset(row, 0, (size_t)a->d * sizeof *row);
    for (int64_t at = n * a->stride, h = 0; h < a->heads; h++, at += a->d) {
        const float *dy = (const float *)a->dy.data + at, *x = (const float *)a->x.data + at,
                    *w = a->w.data;
        float r = rms_rstd(x, a->d, a->eps);
        double sum = rms_bwd_sum(dy, x, w, row, a->d, r);
        rms_bwd_dx((float *)a->dx.data + at, dy, x, w, NULL, a->d, r, sum);
    }
    for (int64_t i = 0; i < a->d; i++)
        slice[i] += row[i];
}

static void head_norm_bwd_slice(void *arg, int slice_i, int thread_i)
{
    (void)thread_i;
    const struct head_norm_bwd_work *work = arg;
    const struct head_norm_bwd *a = work->a;
    float *row = work->sums + slice_i * 2 * a->d, *slice = row + a->d;
    int64_t end = cpu_range_end(a->n, work->slice_rows, slice_i);
    memset(slice, 0, (size_t)a->d * sizeof *slice);
    for (int64_t n = slice_i * work->slice_rows; n < end; n++)
        head_norm_bwd_row(a, n, row, slice);
}

static void head_norm_bwd_total(const struct head_norm_bwd_work *work)
{
    const struct head_norm_bwd *a = work->a;
    float *dw = a->dw.data;
    for (int64_t i = 0; i < a->d; i++) {
        double sum = a->accumulate ? dw[i] : 0;
        for (int64_t s = 0; s < work->slices_n; s++)
            sum += work->sums[s * 2 * a->d + a->d + i];
        dw[i] = (float)sum;
    }
}

void CPU_FN(head_norm_bwd)(const struct cpu *cpu, const struct head_norm_bwd *a)
{
    int64_t capacity = (int64_t)(CPU_SHARED_BYTES / sizeof(float)) / (2 * a->d);
    ASSERTF(capacity > 0, "%lld elements of a head", (long long)a->d);
    int64_t slices = capacity < SLICES_MAX ? capacity : SLICES_MAX;
    int64_t rows = a->n / slices + (a->n % slices != 0);
    struct head_norm_bwd_work work = {
        .a = a, .sums = (float *)(void *)cpu->shared, .slice_rows = rows > 0 ? rows : 1};
    work.slices_n = cpu_ranges(a->n, work.slice_rows);
    thread_pool_run(cpu->pool, (int)work.slices_n, head_norm_bwd_slice, &work);
    head_norm_bwd_total(&work);
}
