/* attention_cpu — fast causal attention in tiles of BLOCK queries by BLOCK keys (Dao et al. 2022),
 * and attention of the last query only. attention_bwd_cpu.c has the gradient. Nothing of size T×T
 * is ever stored. Tiles above the diagonal are skipped; tiles on it are cut at each group of rows.
 *
 * A task owns a run of one head's queries. It goes over keys block by block and lays them out for
 * the products (kt: transposed, so that a vector holds one coordinate of VEC_W keys). Then it
 * processes the queries that may attend to them, in groups of up to TILE_ROWS. The shape determines
 * the order of every sum. */
#include "kernels/attention.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/attention_keys_cpu.h"
#include "kernels/exp2_cpu.h"
#include "kernels/gemv_cpu.h"

/* ---- forward ---- */

#define FWD_CACHED 32768 /* elements of q and of o of a run: 256 KiB together */
#define MAX_SLACK 8      /* a maximum may rise by this before sums are rescaled: e ≤ 2^8 */

/* A run of queries of one head and its sums so far, one row a query. */
struct running {
    int64_t first, n;
    float *s;   /* (BLOCK, BLOCK): scores, then e, of a block of queries with a block of keys */
    float *q;   /* (n, dp) */
    float *o;   /* (n, dp): Σ e·v */
    float *max; /* (n): e = 2^(score·log2 e - max); no score·log2 e is more than MAX_SLACK above */
    float *sum; /* (n, VEC_W): Σ e, by lanes */
};

/* Returns the largest score of row r, in units of the exponential of 2. */
static inline __attribute__((always_inline)) float score_max(const struct head *x,
                                                             const struct keys *keys,
                                                             const struct group *m, int r,
                                                             const float *s, const int64_t cols)
{
    vec top = vec_set(-INFINITY);
    for (int64_t j = 0; j < cols; j += VEC_W)
        top = vec_max(top, load_scores(keys, m, r, s, j));
    return tile_max(top) * x->scale2;
}

/* Moves the query's maximum if `top` is far above it, and rescales its sums. Returns the number to
 * subtract from scores. */
static inline float running_move(const struct head *x, struct running *g, int64_t row, float top)
{
    float old = g->max[row];
    if (!(top > old + MAX_SLACK))
        return old == -INFINITY ? 0 : old; /* no key so far: every e is 2^-inf */
    g->max[row] = top;
    if (old == -INFINITY)
        return top; /* the sums are zero */
    float shrink = exp2f(old - top);
    vec_store(g->sum + row * VEC_W, vec_load(g->sum + row * VEC_W) * vec_set(shrink));
    for (int64_t e = 0; e < x->dp; e += VEC_W)
        vec_store(g->o + row * x->dp + e, vec_load(g->o + row * x->dp + e) * vec_set(shrink));
    return top;
}

/* Turns the scores of a group of rows into e; updates maxima and sums. cols is a constant after
 * inlining. */
static inline __attribute__((always_inline)) void
softmax_rows(const struct head *x, const struct keys *keys, const struct group *m,
             struct running *g, float *s, const int64_t cols)
{
    float base[TILE_ROWS];
    for (int r = 0; r < m->rows; r++)
        base[r] = score_max(x, keys, m, r, s, cols);
    for (int r = 0; r < m->rows; r++)
        base[r] = running_move(x, g, m->i + r - g->first, base[r]);
    for (int r = 0; r < m->rows; r++) {
        float *sums = g->sum + (m->i + r - g->first) * VEC_W;
        vec sum = vec_load(sums);
        for (int64_t j = 0; j < cols; j += VEC_W) {
            vec e = exp2_vec(
                vec_fma(load_scores(keys, m, r, s, j), vec_set(x->scale2), vec_set(-base[r])));
            sum += e;
            vec_store(s + r * BLOCK + j, e);
        }
        vec_store(sums, sum);
    }
}

/* Multiplies e of a group of rows by the factors of dropout; the sums above have all of e. */
static void drop_rows(const struct head *x, const struct keys *keys, const struct group *m,
                      float *s)
{
    float factor[BLOCK] __attribute__((aligned(64)));
    for (int r = 0; r < m->rows; r++) {
        drop_row(x, keys, m, r, factor);
        for (int64_t j = 0; j < m->cols; j += VEC_W)
            vec_store(s + r * BLOCK + j, vec_load(s + r * BLOCK + j) * vec_load(factor + j));
    }
}

/* Computes a group of queries: its rows of e. */
static void fwd_rows(const struct head *x, const struct keys *keys, struct running *g, int64_t i,
                     int rows, float *s)
{
    struct group m = group_of(keys, i, rows);
    struct tile scores = {
        g->q + (i - g->first) * x->dp, x->dp, keys->kt, BLOCK, s, BLOCK, x->d, false};
    tile_rows(&scores, rows, m.cols);
    if (m.is_open)
        softmax_rows(x, keys, &(struct group){.i = i, .rows = rows, .is_open = true}, g, s, BLOCK);
    else
        softmax_rows(x, keys, &m, g, s, m.cols);
    if (x->dropout->p > 0)
        drop_rows(x, keys, &m, s);
}

/* Processes queries [i, i+n) with one block of keys. Two loops, so that first kt, then v stays in
 * the first-level cache. */
static void fwd_block(const struct head *x, const struct keys *keys, struct running *g, int64_t i,
                      int64_t n)
{
    int rows;
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        if (i + n == g->first + g->n)
            keys_fetch(x, keys, r, rows);
        fwd_rows(x, keys, g, i + r, rows, g->s + r * BLOCK);
    }
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        struct tile out = {g->s + r * BLOCK,
                           BLOCK,
                           keys->v,
                           x->dp,
                           g->o + (i + r - g->first) * x->dp,
                           x->dp,
                           group_of(keys, i + r, rows).seen,
                           true};
        tile_rows(&out, rows, x->dp);
    }
}

/* out = o / Σe, lse = max·ln 2 + log Σe. */
static void fwd_finish(const struct head *x, const struct running *g, float *out, float *lse)
{
    for (int64_t i = 0; i < g->n; i++) {
        double sum = vec_sum(vec_load(g->sum + i * VEC_W));
        const float *o = g->o + i * x->dp;
        float factor = sum == 0 ? 0 : (float)(1 / sum);
        int64_t row = g->first + i - x->shift;
        lse[row] = sum == 0 ? -INFINITY : (float)(g->max[i] * EXP2_LN2 + log(sum));
        for (int64_t e = 0; e < x->d; e++)
            out[row * x->c + e] = o[e] * factor;
    }
}

struct fwd_work {
    const struct cpu *cpu;
    const struct attention_fwd *a;
    struct shape shape;
    /* a head's queries are cut into runs_n runs, of at most run_max queries at a time */
    int64_t runs_n, run_max;
};

/* Returns the first row of run `run`, at a multiple of BLOCK: equal shares of a triangle's area;
 * for own queries, which see many keys each, equal shares of the rows. */
static int64_t run_first(const struct fwd_work *w, int64_t run)
{
    double share = (double)run / (double)w->runs_n;
    share = (w->a->kv.data ? share : sqrt(share)) * (double)w->shape.rows;
    return run >= w->runs_n ? w->shape.rows : (int64_t)(share / BLOCK) * BLOCK;
}

/* Lays out the run's queries and clears its sums. */
static void running_start(const struct head *x, struct running *g)
{
    memset(g->sum, 0, (size_t)(g->n * VEC_W) * sizeof(float));
    memset(g->o, 0, (size_t)(g->n * x->dp) * sizeof(float));
    for (int64_t i = 0; i < g->n; i++) {
        g->max[i] = -INFINITY;
        fetch_row(query_of(x, g->first + i + FETCH_ROWS), x->d);
        pack_row(g->q + i * x->dp, query_of(x, g->first + i), x->d);
    }
}

static void fwd_run(const struct fwd_work *w, const struct head *x, int64_t first, int64_t n,
                    float *scratch)
{
    struct keys keys = {
        .kt = scratch, .v = scratch + x->dp * BLOCK, .bias = scratch + 2 * x->dp * BLOCK};
    struct running g = {.first = first, .n = n, .s = keys.bias + BLOCK};
    g.sum = g.s + BLOCK * BLOCK;
    g.max = g.sum + n * VEC_W;
    g.q = g.max + round_up(n, 16);
    g.o = g.q + n * x->dp;
    running_start(x, &g);
    for (int64_t j = keys_begin(x, first); j < first + n; j += BLOCK) {
        keys_pack(x, &keys, j);
        int64_t some;
        for (int64_t i = j > first ? j : first; i < first + n && keys_are_seen(&keys, i);
             i += some) {
            some = min_i64(first + n - i, BLOCK - i % BLOCK);
            fwd_block(x, &keys, &g, i, some);
        }
    }
    int64_t b = x->bh / w->a->h, h = x->bh % w->a->h;
    fwd_finish(x, &g, (float *)w->a->out.data + b * x->rows * x->c + h * x->d,
               (float *)w->a->lse.data + x->bh * x->rows);
}

static void fwd_task(void *arg, int task_i, int thread_i)
{
    const struct fwd_work *w = arg;
    const struct attention_fwd *a = w->a;
    /* long runs first, so that the last ones are short */
    int64_t run = w->runs_n - 1 - task_i / (a->b * a->h), bh = task_i % (a->b * a->h),
            end = run_first(w, run + 1);
    struct head x = head_of(&a->qkv, &a->kv, &a->mask, &a->dropout, bh, &w->shape);
    x.drop_head = attention_drop_head(bh, a->h, a->head_first, a->heads_whole);
    x.first_key = first_key_of(&a->first_key, bh / a->h, a->t);
    for (int64_t row = run_first(w, run), n; row < end; row += n) {
        n = min_i64(w->run_max, min_i64(end, run_end(&a->own, row, x.rows)) - row);
        x.shift = attention_position(&a->own, row) - row;
        fwd_run(w, &x, row + x.shift, n, (float *)(void *)w->cpu->scratch[thread_i]);
    }
    vec_fence();
}

void CPU_FN(attention_fwd)(const struct cpu *cpu, const struct attention_fwd *a)
{
    /* heads that the threads cannot share equally are cut into shorter runs */
    int64_t dp = round_up(a->d, VEC_W), heads = a->b * a->h,
            threads = thread_pool_threads(cpu->pool), wanted = (heads % threads ? 16 : 4) * threads;
    int64_t capacity =
                (int64_t)(CPU_SCRATCH_BYTES / sizeof(float)) - 2 * dp * BLOCK - (BLOCK + 2) * BLOCK,
            most = capacity / (2 * dp + VEC_W + 1) / BLOCK * BLOCK;
    struct fwd_work w = {.cpu = cpu, .a = a, .shape = SHAPE_OF_OWN(a)};
    ASSERTF(most > 0, "head width %lld", (long long)a->d);
    w.run_max = min_i64(most, round_up(FWD_CACHED / dp, BLOCK));
    /* a query's sums do not depend on its run, so this cut may depend on the number of threads */
    w.runs_n = heads >= wanted
                   ? 1
                   : min_i64((wanted + heads - 1) / heads, (w.shape.rows + BLOCK - 1) / BLOCK);
    thread_pool_run(cpu->pool, cpu_ranges(heads * w.runs_n, 1), fwd_task, &w);
}

/* ---- only the last query ---- */

#define DECODE_HEADS 16 /* query heads that share one reading of keys */

struct decode_work {
    const struct cpu *cpu;
    const struct attention_decode *a;
    struct shape shape;
    int64_t each;  /* query heads in a task, all of one key head */
    int64_t tasks; /* tasks for a key head */
};

/* p[j] ← 2^(p[j] - max), zeros up to a whole vector; returns their sum. */
static float decode_softmax(float *p, int64_t t)
{
    vec sum = {0}, max = vec_set(-INFINITY);
    for (int64_t j = t; j % VEC_W; j++)
        p[j] = -INFINITY;
    for (int64_t j = 0; j < t; j += VEC_W)
        max = vec_max(max, vec_load(p + j));
    vec base = vec_set(vec_top(max));
    for (int64_t j = 0; j < t; j += VEC_W) {
        vec e = exp2_vec(vec_load(p + j) - base);
        sum += e;
        vec_store(p + j, e);
    }
    return vec_sum(sum);
}

/* out (d) += Σ_j p[j]·v_j over at most GEMV_RUN keys. */
static void decode_values(float *out, const struct head *x, const float *v, const float *p,
                          int64_t n)
{
    for (int64_t e = 0; e < x->d; e += GEMV_COLS) {
        float sums[GEMV_COLS];
        int cols = (int)min_i64(x->d - e, GEMV_COLS);
        if (cols == GEMV_COLS)
            gemv_columns(v + e, x->stride, p, n, sums);
        else
            gemv_columns_n(v + e, x->stride, p, n, cols, sums);
        for (int i = 0; i < cols; i++)
            out[e + i] += sums[i];
    }
}

/* Processes `heads` query heads of one key head, the first of them x: each key and each value is
 * read from memory once for all. p (heads, t up to whole vectors). */
static void decode_heads(const struct head *x, int64_t head_step, int64_t heads, float *out,
                         float *p)
{
    int64_t p_step = round_up(x->t, VEC_W);
    const float *q = x->q + (x->t - 1) * x->stride;
    for (int64_t j = 0; j < x->t; j++)
        for (int64_t n = 0; n < heads; n++)
            p[n * p_step + j] = x->scale2 * gemv_dot(x->k + j * x->stride, q + n * head_step, x->d,
                                                     GEMV_AHEAD * x->stride);
    memset(out, 0, (size_t)(heads * x->d) * sizeof *out);
    float factor[DECODE_HEADS];
    for (int64_t n = 0; n < heads; n++)
        factor[n] = 1 / decode_softmax(p + n * p_step, x->t);
    for (int64_t j = 0; j < x->t; j += GEMV_RUN)
        for (int64_t n = 0; n < heads; n++)
            decode_values(out + n * x->d, x, x->v + j * x->stride, p + n * p_step + j,
                          min_i64(GEMV_RUN, x->t - j));
    for (int64_t e = 0; e < heads * x->d; e++)
        out[e] *= factor[e / x->d];
}

static void decode_task(void *arg, int task_i, int thread_i)
{
    static const struct tensor none;
    const struct decode_work *w = arg;
    const struct attention_decode *a = w->a;
    int64_t group = a->h / a->hk, first = task_i % w->tasks * w->each,
            bh = task_i / w->tasks * group + first;
    struct head x = head_of(&a->qkv, &none, &none, NULL, bh, &w->shape);
    decode_heads(&x, w->shape.row.head, min_i64(w->each, group - first),
                 (float *)a->out.data + bh * a->d, (float *)(void *)w->cpu->scratch[thread_i]);
}

void CPU_FN(attention_decode)(const struct cpu *cpu, const struct attention_decode *a)
{
    int64_t row_bytes = round_up(a->t, VEC_W) * (int64_t)sizeof(float), group = a->h / a->hk,
            wanted = 4 * (int64_t)thread_pool_threads(cpu->pool);
    struct decode_work w = {.cpu = cpu, .a = a, .shape = SHAPE_OF(a)};
    ASSERTF((size_t)row_bytes <= CPU_SCRATCH_BYTES, "%lld tokens", (long long)a->t);
    w.each = min_i64(min_i64(group, DECODE_HEADS), (int64_t)CPU_SCRATCH_BYTES / row_bytes);
    /* a head's sums do not depend on its task, so this cut may depend on the number of threads */
    while (w.each > 1 && a->b * a->hk * cpu_ranges(group, w.each) < wanted)
        w.each--;
    w.tasks = cpu_ranges(group, w.each);
    thread_pool_run(cpu->pool, cpu_ranges(a->b * a->hk * w.tasks, 1), decode_task, &w);
}
