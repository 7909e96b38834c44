/* attention_bwd_cpu — the gradient of attention_cpu.c's fast causal attention, in the same tiles
 * (Dao et al. 2022). Probabilities are computed again.
 *
 * A task owns some query heads that read one key head of a sample: all of them if their queries fit
 * the second-level cache together. It processes keys block by block, with the queries that may
 * attend to them. The first task of a key head writes dk and dv to their final position. The
 * results of the other tasks wait in the shared memory, and are added in the order of heads. The
 * shape determines the order of every sum. */
#include "kernels/attention.h"

#include <math.h>

#include "kernels/attention_keys_cpu.h"
#include "kernels/cpu.h"
#include "kernels/exp2_cpu.h"
#include "kernels/philox_cpu.h"

#define BWD_CACHED 65536 /* elements of q, dout, dq each, of several heads: 768 KiB together */

/* A run of queries of one head, laid out row by row (n, dp), and the two tiles that a block of them
 * makes with keys. The runs of several heads are stored one after the other. */
struct queries {
    int64_t first, n;
    int64_t block; /* first query of the block to which p and ds belong */
    float *q, *dout, *dq;
    float *lse2, *delta; /* (n): logΣexp·log2 e; Σ dout·out */
    /* (BLOCK, BLOCK): drop(p); gradient of the scaled scores. 1/√D comes last, to dq and dk */
    float *p, *ds;
};

struct bwd_head {
    struct head x;
    const float *dout, *out, *lse; /* row stride c, c, 1 */
    float *dq, *dk, *dv;           /* row stride x.stride; x.k_stride */
};

static void queries_pack(const struct bwd_head *h, struct queries *q)
{
    const struct head *x = &h->x;
    int64_t first = q->first - x->shift;
    for (int64_t i = 0; i < q->n; i++) {
        const float *out = h->out + (first + i) * x->c, *dout = h->dout + (first + i) * x->c;
        const float *row = q->dout + i * x->dp;
        fetch_row(out + FETCH_ROWS * x->c, x->d);
        fetch_row(dout + FETCH_ROWS * x->c, x->d);
        fetch_row(x->q + (first + i + FETCH_ROWS) * x->stride, x->d);
        pack_row(q->dout + i * x->dp, dout, x->d);
        pack_row(q->q + i * x->dp, x->q + (first + i) * x->stride, x->d);
        vec sum = {0};
        int64_t e = 0;
        for (; e + VEC_W <= x->d; e += VEC_W)
            sum = vec_fma(vec_load(row + e), vec_load(out + e), sum);
        if (e < x->d)
            sum = vec_fma(vec_load(row + e), vec_load_n(out + e, (int)(x->d - e)), sum);
        q->delta[i] = vec_sum(sum);
        float lse = h->lse[first + i];
        /* no key: every score is -inf and p = 2^-inf */
        q->lse2[i] = lse == -INFINITY ? 0 : (float)(EXP2_LOG2E * lse);
    }
    memset(q->dq, 0, (size_t)(q->n * x->dp) * sizeof(float));
}

/* Computes row r: p = exp(s - lse), then drop(p) and ds = p·(drop(dp) - delta), into the tiles of
 * the block; s is stored in the place of drop(p). cols, is_open and drops are constants after
 * inlining. */
static inline __attribute__((always_inline)) void
bwd_row(const struct head *x, const struct keys *keys, const struct group *m, int r,
        const struct queries *q, const float *dp, const int64_t cols, const bool drops)
{
    int64_t row = m->i + r - q->first, in_block = m->i - q->block;
    float *p = q->p + in_block * BLOCK, *ds = q->ds + (in_block + r) * BLOCK;
    float factor[BLOCK] __attribute__((aligned(64)));
    vec scale = vec_set(x->scale2), lse = vec_set(-q->lse2[row]), delta = vec_set(q->delta[row]);
    if (drops)
        drop_row(x, keys, m, r, factor);
    for (int64_t j = 0; j < cols; j += VEC_W) {
        vec y = exp2_vec(vec_fma(load_scores(keys, m, r, p, j), scale, lse)),
            dy = vec_load(dp + r * BLOCK + j), kept = y;
        if (drops) {
            kept = y * vec_load(factor + j);
            dy = dy * vec_load(factor + j);
        }
        vec_store(p + r * BLOCK + j, kept);
        vec_store(ds + j, y * (dy - delta));
    }
    for (int64_t j = cols; j < BLOCK; j += VEC_W) { /* keys later than the whole group */
        vec_store(p + r * BLOCK + j, vec_set(0));
        vec_store(ds + j, vec_set(0));
    }
}

/* Computes a group of queries: its rows of both tiles, from its scores. */
static void bwd_rows(const struct head *x, const struct keys *keys, const struct queries *q,
                     int64_t i, int rows)
{
    float dp[TILE_ROWS * BLOCK] __attribute__((aligned(64)));
    struct group m = group_of(keys, i, rows);
    struct tile dps = {
        q->dout + (i - q->first) * x->dp, x->dp, keys->vt, BLOCK, dp, BLOCK, x->d, false};
    tile_rows(&dps, rows, m.cols);
    bool drops = x->dropout->p > 0;
    for (int r = 0; r < rows; r++)
        if (m.is_open && !drops)
            bwd_row(x, keys, &(struct group){.i = i, .cols = BLOCK, .is_open = true}, r, q, dp,
                    BLOCK, false);
        else
            bwd_row(x, keys, &m, r, q, dp, m.cols, drops);
}

/* Computes both tiles of one block of queries [i, i+n) with one block of keys. One product for each
 * loop here and below, so that its right factor stays in the first-level cache. */
static void bwd_tiles(const struct head *x, const struct keys *keys, const struct queries *q,
                      int64_t i, int64_t n)
{
    int rows;
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        struct tile scores = {q->q + (i + r - q->first) * x->dp,
                              x->dp,
                              keys->kt,
                              BLOCK,
                              q->p + r * BLOCK,
                              BLOCK,
                              x->d,
                              false};
        tile_rows(&scores, rows, group_of(keys, i + r, rows).cols);
    }
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        if (i + n == q->first + q->n)
            keys_fetch(x, keys, r, rows);
        bwd_rows(x, keys, q, i + r, rows);
    }
}

/* sums (BLOCK, dp) += tileᵀ·rows, of queries [i, i+n) and a block of keys. */
static void bwd_columns(const struct head *x, const struct keys *keys, int64_t i, int64_t n,
                        const float *tile, const float *rows_of, float *sums)
{
    int rows;
    for (int64_t j = 0; j < keys->n; j += rows) {
        rows = rows_next(keys->n - j);
        /* on the diagonal, earlier queries do not see key j */
        int64_t from = i == keys->first ? j : 0;
        if (from >= n)
            break;
        struct tile t = {tile + from * BLOCK + j,
                         BLOCK,
                         rows_of + from * x->dp,
                         x->dp,
                         sums + j * x->dp,
                         x->dp,
                         n - from,
                         true};
        tile_columns(&t, rows, x->dp);
    }
}

/* Processes one block of queries [i, i+n) with one block of keys; adds to dk, dv (BLOCK, dp). */
static void bwd_block(const struct bwd_head *h, const struct keys *keys, const struct queries *q,
                      int64_t i, int64_t n, float *dk, float *dv)
{
    const struct head *x = &h->x;
    int64_t row = i - q->first;
    int rows;
    bwd_tiles(x, keys, q, i, n);
    bwd_columns(x, keys, i, n, q->p, q->dout + row * x->dp, dv);
    bwd_columns(x, keys, i, n, q->ds, q->q + row * x->dp, dk);
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        struct tile dq = {q->ds + r * BLOCK,
                          BLOCK,
                          keys->k,
                          x->dp,
                          q->dq + (row + r) * x->dp,
                          x->dp,
                          group_of(keys, i + r, rows).seen,
                          true};
        tile_rows(&dq, rows, x->dp);
    }
}

struct bwd_work {
    const struct cpu *cpu;
    const struct attention_bwd *a;
    struct shape shape;
    int64_t run_max;   /* queries of a run, all heads together */
    int64_t heads_max; /* query heads in a run */
    int64_t tasks; /* tasks of a key head; 1: one task has all query heads, one after the other */
    int64_t key_first; /* the first key head of the current tasks */
};

/* The memory for a task's dk and dv: dqkv, dkv, or the shared memory. */
struct bwd_sums {
    float *dk, *dv;
    int64_t stride;
    float scale; /* factor of dk in this memory */
};

/* Stores n rows of d elements, times factor, to rows far apart. Whole cache lines go past the
 * caches, so that no line is read before it is written. Call vec_fence before other threads read
 * them. */
static void write_rows(float *out, int64_t out_stride, const float *in, int64_t in_stride,
                       int64_t n, int64_t d, float factor)
{
    bool is_lines = ((uintptr_t)out | (uintptr_t)out_stride * sizeof *out) % 64 == 0 && d % 16 == 0;
    vec f = vec_set(factor);
    for (int64_t i = 0; i < n; i++, out += out_stride, in += in_stride) {
        int64_t e = 0;
        for (; is_lines && e < d; e += VEC_W)
            vec_stream(out + e, vec_load(in + e) * f);
        for (; e + VEC_W <= d; e += VEC_W)
            vec_store(out + e, vec_load(in + e) * f);
        if (e < d)
            vec_store_n(out + e, (int)(d - e), vec_load_n(in + e, (int)(d - e)) * f);
    }
}

/* sums (n, dp) += factor·x: the sums of earlier runs of queries. */
static void add_rows(float *sums, const float *x, int64_t stride, int64_t n,
                     const struct head *head, float factor)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t e = 0; e < head->d; e++)
            sums[i * head->dp + e] += factor * x[i * stride + e];
}

/* Query heads bh … bh+heads-1 of one key head, the queries from q.first on of each, and a block of
 * its keys with their sums. */
struct bwd_run {
    const struct bwd_work *w;
    int64_t bh, heads;
    int64_t shift;    /* shift of the queries (struct head) */
    struct queries q; /* queries of the first head */
    struct keys keys;
    float *dk, *dv; /* (BLOCK, dp) */
    struct bwd_sums to;
    bool is_later; /* `to` already holds sums of other query heads or other runs */
};

static struct bwd_head bwd_head_of(const struct bwd_work *w, int64_t bh, int64_t shift)
{
    const struct attention_bwd *a = w->a;
    struct bwd_head h = {.x = head_of(&a->qkv, &a->kv, &a->mask, &a->dropout, bh, &w->shape)};
    h.x.drop_head = attention_drop_head(bh, a->h, a->head_first, a->heads_whole);
    h.x.first_key = first_key_of(&a->first_key, bh / a->h, a->t);
    h.x.shift = shift;
    int64_t at = bh / a->h * h.x.rows * h.x.c + bh % a->h * a->d;
    const float *qkv = a->qkv.data, *kv = a->kv.data ? a->kv.data : qkv;
    float *dqkv = a->dqkv.data, *dkv = a->kv.data ? a->dkv.data : dqkv;
    h.dout = (const float *)a->dout.data + at;
    h.out = (const float *)a->out.data + at;
    h.lse = (const float *)a->lse.data + bh * h.x.rows;
    h.dq = dqkv + (h.x.q - qkv);
    h.dk = dkv + (h.x.k - kv);
    h.dv = dkv + (h.x.v - kv);
    return h;
}

/* Returns the queries of the run's head number n. */
static struct queries queries_of(const struct bwd_run *r, int64_t n, int64_t dp)
{
    struct queries q = r->q;
    int64_t rows = n * q.n;
    q.q += rows * dp;
    q.dout += rows * dp;
    q.dq += rows * dp;
    q.lse2 += rows;
    q.delta += rows;
    return q;
}

/* Processes one block of keys against all queries of the run. dk and dv of earlier runs are already
 * stored and are added to. */
static void bwd_keys(struct bwd_run *r, const struct bwd_head *first, int64_t j)
{
    const struct head *x = &first->x;
    const struct bwd_sums *to = &r->to;
    int64_t end = r->q.first + r->q.n, at = j * to->stride;
    keys_pack(x, &r->keys, j);
    memset(r->dk, 0, (size_t)(BLOCK * x->dp) * sizeof *r->dk);
    memset(r->dv, 0, (size_t)(BLOCK * x->dp) * sizeof *r->dv);
    for (int64_t n = 0; n < r->heads; n++) {
        struct bwd_head h = bwd_head_of(r->w, r->bh + n, r->shift);
        struct queries q = queries_of(r, n, x->dp);
        for (q.block = j > q.first ? j : q.first; q.block < end && keys_are_seen(&r->keys, q.block);
             q.block += BLOCK)
            bwd_block(&h, &r->keys, &q, q.block, min_i64(BLOCK, end - q.block), r->dk, r->dv);
    }
    if (r->is_later || j < r->q.first) {
        vec_fence();
        add_rows(r->dk, to->dk + at, to->stride, r->keys.n, x, 1 / to->scale);
        add_rows(r->dv, to->dv + at, to->stride, r->keys.n, x, 1);
    }
    write_rows(to->dk + at, to->stride, r->dk, x->dp, r->keys.n, x->d, to->scale);
    write_rows(to->dv + at, to->stride, r->dv, x->dp, r->keys.n, x->d, 1);
}

/* Processes a run of queries against all keys that they may attend to. */
static void bwd_run(struct bwd_run *r)
{
    struct bwd_head first = bwd_head_of(r->w, r->bh, r->shift);
    const struct head *x = &first.x;
    for (int64_t n = 0; n < r->heads; n++) {
        struct bwd_head h = bwd_head_of(r->w, r->bh + n, r->shift);
        struct queries q = queries_of(r, n, x->dp);
        queries_pack(&h, &q);
    }
    for (int64_t j = keys_begin(x, r->q.first); j < r->q.first + r->q.n; j += BLOCK)
        bwd_keys(r, &first, j);
    for (int64_t n = 0; n < r->heads; n++) {
        struct bwd_head h = bwd_head_of(r->w, r->bh + n, r->shift);
        struct queries q = queries_of(r, n, x->dp);
        write_rows(h.dq + (q.first - r->shift) * x->stride, x->stride, q.dq, x->dp, q.n, x->d,
                   x->scale);
    }
}

static struct bwd_run bwd_run_of(const struct bwd_work *w, float *scratch)
{
    int64_t dp = round_up(w->a->d, VEC_W), tile = BLOCK * dp;
    struct bwd_run r = {.w = w, .dk = scratch + 3 * tile, .dv = scratch + 4 * tile};
    r.keys = (struct keys){
        .kt = scratch, .vt = scratch + tile, .k = scratch + 2 * tile, .bias = scratch + 5 * tile};
    r.q.p = r.keys.bias + BLOCK;
    r.q.ds = r.q.p + BLOCK * BLOCK;
    r.q.lse2 = r.q.ds + BLOCK * BLOCK;
    r.q.delta = r.q.lse2 + w->run_max;
    r.q.q = r.q.delta + w->run_max;
    r.q.dout = r.q.q + w->run_max * dp;
    r.q.dq = r.q.dout + w->run_max * dp;
    return r;
}

/* Sets all T rows of dk and dv of a key head to zero; own queries add to them. */
static void bwd_zero(const struct bwd_work *w, int64_t bh)
{
    struct bwd_head h = bwd_head_of(w, bh, 0);
    for (int64_t j = 0; j < h.x.t; j++) {
        memset(h.dk + j * h.x.k_stride, 0, (size_t)h.x.d * sizeof(float));
        memset(h.dv + j * h.x.k_stride, 0, (size_t)h.x.d * sizeof(float));
    }
}

static struct bwd_sums bwd_sums_of(const struct bwd_work *w, int64_t key_head, int64_t task)
{
    struct bwd_head h = bwd_head_of(w, key_head * (w->a->h / w->a->hk), 0);
    int64_t elems = h.x.t * h.x.d, slot = (key_head - w->key_first) * (w->tasks - 1) + task - 1;
    float *shared = (float *)(void *)w->cpu->shared + 2 * elems * slot;
    return task > 0 ? (struct bwd_sums){shared, shared + elems, h.x.d, 1}
                    : (struct bwd_sums){h.dk, h.dv, h.x.k_stride, h.x.scale};
}

/* Processes the own queries of r->heads query heads from r->bh on, run by run. */
static void bwd_heads(struct bwd_run *r)
{
    const struct bwd_work *w = r->w;
    const struct attention_runs *own = &w->a->own;
    for (int64_t row = 0, rows = w->shape.rows; row < rows; row += r->q.n) {
        r->shift = attention_position(own, row) - row;
        r->q.first = row + r->shift;
        r->q.n = min_i64(w->run_max / r->heads, run_end(own, row, rows) - row);
        bwd_run(r);
    }
}

static void bwd_task(void *arg, int task_i, int thread_i)
{
    const struct bwd_work *w = arg;
    int64_t group = w->a->h / w->a->hk, key_head = w->key_first + task_i / w->tasks,
            task = task_i % w->tasks, each = w->tasks > 1 ? w->heads_max : group,
            first = key_head * group + task * each,
            end = min_i64(first + each, (key_head + 1) * group);
    struct bwd_run r = bwd_run_of(w, (float *)(void *)w->cpu->scratch[thread_i]);
    r.to = bwd_sums_of(w, key_head, task);
    if (w->a->kv.data)
        bwd_zero(w, key_head * group);
    for (r.bh = first; r.bh < end; r.bh += r.heads) {
        r.heads = min_i64(w->heads_max, end - r.bh);
        r.is_later = r.bh > first || w->a->kv.data;
        bwd_heads(&r);
    }
    vec_fence();
}

/* sum_row — to (d) ← (from + to/factor)·factor, in the same way as bwd_keys adds to earlier
 * sums. */
static void sum_row(float *to, const float *from, int64_t d, float factor)
{
    for (int64_t e = 0; e < d; e += VEC_W) {
        int n = (int)min_i64(VEC_W, d - e);
        vec x = vec_fma(vec_set(1 / factor), vec_load_n(to + e, n), vec_load_n(from + e, n));
        vec_store_n(to + e, n, x * vec_set(factor));
    }
}

/* Adds the sums of the later tasks, which lie in the shared memory, for BLOCK keys of a key
 * head. */
static void bwd_sum_task(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    const struct bwd_work *w = arg;
    int64_t blocks = cpu_ranges(w->a->t, BLOCK), key_head = w->key_first + task_i / blocks,
            first = task_i % blocks * BLOCK, end = min_i64(first + BLOCK, w->a->t), d = w->a->d;
    struct bwd_sums to = bwd_sums_of(w, key_head, 0);
    for (int64_t task = 1; task < w->tasks; task++) {
        struct bwd_sums from = bwd_sums_of(w, key_head, task);
        for (int64_t j = first; j < end; j++) {
            sum_row(to.dk + j * to.stride, from.dk + j * d, d, to.scale);
            sum_row(to.dv + j * to.stride, from.dv + j * d, d, 1);
        }
    }
}

/* Returns the number of key heads for which the shared workspace can hold the sums of the later
 * tasks at the same time; 0: not even one. */
static int64_t bwd_workspace_heads(const struct bwd_work *w)
{
    int64_t bytes = (w->tasks - 1) * 2 * w->a->t * w->a->d * (int64_t)sizeof(float);
    return w->tasks > 1 ? (int64_t)CPU_SHARED_BYTES / bytes : w->a->b * w->a->hk;
}

void CPU_FN(attention_bwd)(const struct cpu *cpu, const struct attention_bwd *a)
{
    int64_t dp = round_up(a->d, VEC_W), capacity = (int64_t)(CPU_SCRATCH_BYTES / sizeof(float));
    capacity -= 5 * BLOCK * dp + BLOCK + 2 * BLOCK * BLOCK;
    int64_t most = capacity / (3 * dp + 2) / BLOCK * BLOCK, group = a->h / a->hk, heads_most,
            key_heads_n;
    struct bwd_work w = {.cpu = cpu, .a = a, .shape = SHAPE_OF_OWN(a)};
    ASSERTF(most > 0, "head width %lld", (long long)a->d);
    /* With several heads, keys are laid out less often. If their queries no longer fit the
     * second-level cache, that costs more than it saves. */
    w.heads_max = min_i64(min_i64(most, BWD_CACHED / dp) / w.shape.rows, group);
    w.heads_max = w.heads_max < 1 ? 1 : w.heads_max;
    w.run_max = min_i64(most, round_up(w.heads_max * w.shape.rows, BLOCK));
    w.tasks = a->kv.data ? 1 : cpu_ranges(group, w.heads_max);
    heads_most = bwd_workspace_heads(&w);
    w.tasks = heads_most > 0 ? w.tasks : 1;
    heads_most = bwd_workspace_heads(&w);
    for (; w.key_first < a->b * a->hk; w.key_first += key_heads_n) {
        key_heads_n = min_i64(heads_most, a->b * a->hk - w.key_first);
        thread_pool_run(cpu->pool, cpu_ranges(key_heads_n * w.tasks, 1), bwd_task, &w);
        if (w.tasks > 1)
            thread_pool_run(cpu->pool, cpu_ranges(key_heads_n * cpu_ranges(a->t, BLOCK), 1),
                            bwd_sum_task, &w);
    }
}
