/* attention_cpu — fast causal attention in tiles of BLOCK queries by BLOCK keys (Dao et al. 2022).
 * Nothing of size T×T is ever stored. Tiles above the diagonal are skipped; tiles on it are cut at
 * each group of rows.
 *
 * Forward, a task owns a run of one head's queries; backward, one key head of one sample with all
 * query heads that read it. It takes keys block by block and lays them out for the products (kt:
 * transposed, so that a vector holds one coordinate of VEC_W keys). Then it takes the queries that
 * may attend to them, in groups of up to TILE_ROWS. Every sum runs in an order given by the
 * shape. */
#include "kernels/attention.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/philox_cpu.h"
#include "kernels/attention_keys_cpu.h"
#include "kernels/exp2_cpu.h"
#include "kernels/gemv_cpu.h"

/* ---- forward ---- */

/* A run of queries of one head and its sums so far, one row a query. */
struct running {
    int64_t first, n;
    float *o;   /* (n, dp): Σ e·v */
    float *max; /* (n): running maximum of score·log2 e; e = 2^(score·log2 e - max) */
    float *sum; /* (n, VEC_W): Σ e, by lanes */
};

/* The largest score of row r, in units of the exponential of 2. */
static inline __attribute__((always_inline)) float score_max(const struct head *x,
                                                             const struct keys *keys,
                                                             const struct group *m, int r,
                                                             const float *s, const int64_t cols)
{
    vec top = vec_set(-INFINITY);
    for (int64_t j = 0; j < cols; j += VEC_W)
        top = vec_max(top, score(keys, m, r, s, j));
    return tile_max(top) * x->scale2;
}

/* Raises the query's maximum to at least `top` and rescales its sums. Returns what to subtract from
 * scores. */
static inline float running_move(const struct head *x, struct running *g, int64_t row, float top)
{
    float old = g->max[row];
    if (!(top > old))
        return old == -INFINITY ? 0 : old; /* no key so far: every e is 2^-inf */
    float shrink = exp2f(old - top);
    vec_store(g->sum + row * VEC_W, vec_load(g->sum + row * VEC_W) * vec_set(shrink));
    for (int64_t e = 0; e < x->dp; e += VEC_W)
        vec_store(g->o + row * x->dp + e, vec_load(g->o + row * x->dp + e) * vec_set(shrink));
    g->max[row] = top;
    return top;
}

/* Scores of a group of rows become e; maxima and sums are updated. cols is a constant where
 * inlined. */
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
            vec e =
                exp2_vec(vec_fma(score(keys, m, r, s, j), vec_set(x->scale2), vec_set(-base[r])));
            sum += e;
            vec_store(s + r * BLOCK + j, e);
        }
        vec_store(sums, sum);
    }
}

/* The dropout factors of row r of a group, and the row times them. */
static void drop_row(const struct head *x, const struct keys *keys, const struct group *m, int r,
                     float *factor)
{
    uint64_t index = (uint64_t)((x->drop_head * x->t + m->i + r) * x->t + keys->first);
    philox_scale(x->dropout, index, m->cols, factor);
}

static void fwd_rows(const struct head *x, const struct keys *keys, struct running *g, int64_t i,
                     int rows)
{
    float s[TILE_ROWS * BLOCK] __attribute__((aligned(64))),
        factor[BLOCK] __attribute__((aligned(64)));
    struct group m = group_of(keys, i, rows);
    struct tile scores = {query_of(x, i), x->stride, keys->kt, BLOCK, s, BLOCK, x->d, false};
    tile_rows(&scores, rows, m.cols);
    for (int r = rows; r < 2 * rows; r++) /* the next group's */
        fetch_row(query_of(x, i + r), x->d);
    if (m.is_open)
        softmax_rows(x, keys, &(struct group){.i = i, .rows = rows, .is_open = true}, g, s, BLOCK);
    else
        softmax_rows(x, keys, &m, g, s, m.cols);
    for (int r = 0; r < rows && x->dropout->p > 0; r++) {
        drop_row(x, keys, &m, r, factor);
        for (int64_t j = 0; j < m.cols; j += VEC_W)
            vec_store(s + r * BLOCK + j, vec_load(s + r * BLOCK + j) * vec_load(factor + j));
    }
    struct tile out = {s,     BLOCK,  keys->v, x->dp, g->o + (i - g->first) * x->dp,
                       x->dp, m.seen, true};
    tile_rows(&out, rows, x->dp);
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

/* The first row of run `run`, at a multiple of BLOCK: equal shares of a triangle's area; of own
 * queries, which see many keys each, equal shares. */
static int64_t run_first(const struct fwd_work *w, int64_t run)
{
    double share = (double)run / (double)w->runs_n;
    share = (w->a->kv.data ? share : sqrt(share)) * (double)w->shape.rows;
    return run >= w->runs_n ? w->shape.rows : (int64_t)(share / BLOCK) * BLOCK;
}

static void fwd_run(const struct fwd_work *w, const struct head *x, int64_t first, int64_t n,
                    float *scratch)
{
    struct keys keys = {
        .kt = scratch, .v = scratch + x->dp * BLOCK, .bias = scratch + 2 * x->dp * BLOCK};
    struct running g = {.first = first, .n = n};
    g.sum = keys.bias + BLOCK;
    g.max = g.sum + n * VEC_W;
    g.o = g.max + round_up(n, 16);
    memset(g.sum, 0, (size_t)(n * VEC_W) * sizeof(float));
    memset(g.o, 0, (size_t)(n * x->dp) * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        g.max[i] = -INFINITY;
    for (int64_t j = 0; j < first + n; j += BLOCK) {
        keys_pack(x, &keys, j);
        int rows;
        for (int64_t i = j > first ? j : first; i < first + n; i += rows) {
            rows = rows_next(least(first + n - i, BLOCK - i % BLOCK));
            if (i < j + BLOCK || i < first + BLOCK)
                keys_fetch(x, &keys, i % BLOCK, rows);
            fwd_rows(x, &keys, &g, i, rows);
        }
    }
    int64_t b = x->bh / w->a->h, h = x->bh % w->a->h;
    fwd_finish(x, &g, (float *)w->a->out.data + b * x->rows * x->c + h * x->d,
               (float *)w->a->lse.data + x->bh * x->rows);
}

static void fwd_part(void *arg, int part_i, int thread_i)
{
    const struct fwd_work *w = arg;
    const struct attention_fwd *a = w->a;
    /* long runs first, so that the last ones are short */
    int64_t run = w->runs_n - 1 - part_i / (a->b * a->h), bh = part_i % (a->b * a->h),
            end = run_first(w, run + 1);
    struct head x = head_of(&a->qkv, &a->kv, &a->mask, &a->dropout, bh, &w->shape);
    x.drop_head = attention_drop_head(bh, a->h, a->head_first, a->heads_whole);
    for (int64_t row = run_first(w, run), n; row < end; row += n) {
        n = least(w->run_max, least(end, run_end(&a->own, row, x.rows)) - row);
        x.shift = attention_position(&a->own, row) - row;
        fwd_run(w, &x, row + x.shift, n, (float *)(void *)w->cpu->scratch[thread_i]);
    }
    vec_fence();
}

void CPU_FN(attention_fwd)(const struct cpu *cpu, const struct attention_fwd *a)
{
    int64_t dp = round_up(a->d, VEC_W), heads = a->b * a->h,
            wanted = 4 * (int64_t)thread_pool_threads(cpu->pool);
    int64_t capacity = (int64_t)(CPU_SCRATCH_BYTES / sizeof(float)) - 2 * dp * BLOCK - 2 * BLOCK;
    struct fwd_work w = {.cpu = cpu,
                         .a = a,
                         .shape = SHAPE_OF_OWN(a),
                         .run_max = capacity / (dp + VEC_W + 1) / BLOCK * BLOCK};
    ASSERTF(w.run_max > 0, "head width %lld", (long long)a->d);
    /* a query's sums do not depend on its run, so this cut may depend on the number of threads */
    w.runs_n = heads >= wanted
                   ? 1
                   : least((wanted + heads - 1) / heads, (w.shape.rows + BLOCK - 1) / BLOCK);
    thread_pool_run(cpu->pool, cpu_parts(heads * w.runs_n, 1), fwd_part, &w);
}

/* ---- the last query alone ---- */

#define DECODE_HEADS 16 /* query heads that share one reading of keys */

struct decode_work {
    const struct cpu *cpu;
    const struct attention_decode *a;
    struct shape shape;
    int64_t each;  /* query heads of a part, all of one key head */
    int64_t parts; /* of a key head */
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
        int cols = (int)least(x->d - e, GEMV_COLS);
        if (cols == GEMV_COLS)
            gemv_columns(v + e, x->stride, p, n, sums);
        else
            gemv_columns_n(v + e, x->stride, p, n, cols, sums);
        for (int i = 0; i < cols; i++)
            out[e + i] += sums[i];
    }
}

/* heads query heads of one key head, the first of them x: each key and each value is read from
 * memory once for all. p (heads, t up to whole vectors). */
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
                          least(GEMV_RUN, x->t - j));
    for (int64_t e = 0; e < heads * x->d; e++)
        out[e] *= factor[e / x->d];
}

static void decode_part(void *arg, int part_i, int thread_i)
{
    static const struct tensor none;
    const struct decode_work *w = arg;
    const struct attention_decode *a = w->a;
    int64_t group = a->h / a->hk, first = part_i % w->parts * w->each,
            bh = part_i / w->parts * group + first;
    struct head x = head_of(&a->qkv, &none, &none, NULL, bh, &w->shape);
    decode_heads(&x, w->shape.row.head, least(w->each, group - first),
                 (float *)a->out.data + bh * a->d, (float *)(void *)w->cpu->scratch[thread_i]);
}

void CPU_FN(attention_decode)(const struct cpu *cpu, const struct attention_decode *a)
{
    int64_t row_bytes = round_up(a->t, VEC_W) * (int64_t)sizeof(float), group = a->h / a->hk,
            wanted = 4 * (int64_t)thread_pool_threads(cpu->pool);
    struct decode_work w = {.cpu = cpu, .a = a, .shape = SHAPE_OF(a)};
    ASSERTF((size_t)row_bytes <= CPU_SCRATCH_BYTES, "%lld tokens", (long long)a->t);
    w.each = least(least(group, DECODE_HEADS), (int64_t)CPU_SCRATCH_BYTES / row_bytes);
    /* a head's sums do not depend on its part, so this cut may depend on the number of threads */
    while (w.each > 1 && a->b * a->hk * cpu_parts(group, w.each) < wanted)
        w.each--;
    w.parts = cpu_parts(group, w.each);
    thread_pool_run(cpu->pool, cpu_parts(a->b * a->hk * w.parts, 1), decode_part, &w);
}

/* ---- backward ---- */

#define BWD_CACHED 65536 /* elements of q, dout, dq each, of several heads: 768 KiB together */

/* A run of queries of one head, laid out row by row (n, dp), and the two tiles a block of them
 * makes with keys. The runs of several heads lie one behind the other. */
struct queries {
    int64_t first, n;
    int64_t block; /* the first query of the block whose tiles p and ds are */
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

/* Row r: p = exp(s - lse), then drop(p) and ds = p·(drop(dp) - delta), to the tiles of the block.
 * is_open and drops are constants where inlined. */
static inline __attribute__((always_inline)) void
bwd_row(const struct head *x, const struct keys *keys, const struct group *m, int r,
        const struct queries *q, const float *s, const float *dp, const int64_t cols,
        const bool drops)
{
    int64_t row = m->i + r - q->first, in_block = m->i + r - q->block;
    float *p = q->p + in_block * BLOCK, *ds = q->ds + in_block * BLOCK;
    float factor[BLOCK] __attribute__((aligned(64)));
    vec scale = vec_set(x->scale2), lse = vec_set(-q->lse2[row]), delta = vec_set(q->delta[row]);
    if (drops)
        drop_row(x, keys, m, r, factor);
    for (int64_t j = 0; j < cols; j += VEC_W) {
        vec y = exp2_vec(vec_fma(score(keys, m, r, s, j), scale, lse)),
            dy = vec_load(dp + r * BLOCK + j), kept = y;
        if (drops) {
            kept = y * vec_load(factor + j);
            dy = dy * vec_load(factor + j);
        }
        vec_store(p + j, kept);
        vec_store(ds + j, y * (dy - delta));
    }
    for (int64_t j = cols; j < BLOCK; j += VEC_W) { /* keys later than the whole group */
        vec_store(p + j, vec_set(0));
        vec_store(ds + j, vec_set(0));
    }
}

/* A group of queries: its rows of both tiles. */
static void bwd_rows(const struct head *x, const struct keys *keys, const struct queries *q,
                     int64_t i, int rows)
{
    float s[TILE_ROWS * BLOCK] __attribute__((aligned(64))),
        dp[TILE_ROWS * BLOCK] __attribute__((aligned(64)));
    struct group m = group_of(keys, i, rows);
    int64_t row = i - q->first;
    struct tile scores = {q->q + row * x->dp, x->dp, keys->kt, BLOCK, s, BLOCK, x->d, false};
    struct tile dps = {q->dout + row * x->dp, x->dp, keys->vt, BLOCK, dp, BLOCK, x->d, false};
    tile_rows(&scores, rows, m.cols);
    tile_rows(&dps, rows, m.cols);
    bool drops = x->dropout->p > 0;
    for (int r = 0; r < rows; r++)
        if (m.is_open && !drops)
            bwd_row(x, keys, &(struct group){.i = i, .cols = BLOCK, .is_open = true}, r, q, s, dp,
                    BLOCK, false);
        else
            bwd_row(x, keys, &m, r, q, s, dp, m.cols, drops);
}

/* One block of queries [i, i+n) with one block of keys; adds to dk, dv (BLOCK, dp). */
static void bwd_block(const struct bwd_head *h, const struct keys *keys, const struct queries *q,
                      int64_t i, int64_t n, float *dk, float *dv)
{
    const struct head *x = &h->x;
    int rows;
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        if (i < keys->first + BLOCK || i == q->first)
            keys_fetch(x, keys, r, rows);
        bwd_rows(x, keys, q, i + r, rows);
    }
    int64_t row = i - q->first;
    /* a loop of its own, so that kt and vt stay in the first-level cache above */
    for (int64_t r = 0; r < n; r += rows) {
        rows = rows_next(n - r);
        int64_t seen = least(i + r + rows - keys->first, BLOCK);
        struct tile dq = {q->ds + r * BLOCK,         BLOCK, keys->k, x->dp,
                          q->dq + (row + r) * x->dp, x->dp, seen,    true};
        tile_rows(&dq, rows, x->dp);
    }
    for (int64_t j = 0; j < keys->n; j += rows) {
        rows = rows_next(keys->n - j);
        /* on the diagonal, earlier queries do not see key j */
        int64_t from = i == keys->first ? j : 0;
        if (from >= n)
            break;
        struct tile to_v = {q->p + from * BLOCK + j,
                            BLOCK,
                            q->dout + (row + from) * x->dp,
                            x->dp,
                            dv + j * x->dp,
                            x->dp,
                            n - from,
                            true};
        struct tile to_k = {q->ds + from * BLOCK + j,
                            BLOCK,
                            q->q + (row + from) * x->dp,
                            x->dp,
                            dk + j * x->dp,
                            x->dp,
                            n - from,
                            true};
        tile_columns(&to_v, rows, x->dp);
        tile_columns(&to_k, rows, x->dp);
    }
}

struct bwd_work {
    const struct cpu *cpu;
    const struct attention_bwd *a;
    struct shape shape;
    int64_t run_max;   /* queries of a run, all heads together */
    int64_t heads_max; /* query heads of a run */
};

/* Query heads bh … bh+heads-1 of one key head, queries q.first … of each, and a block of its keys
 * with their sums. */
struct bwd_run {
    const struct bwd_work *w;
    int64_t bh, heads;
    int64_t shift;    /* of the queries: struct head */
    struct queries q; /* of the first head */
    struct keys keys;
    float *dk, *dv; /* (BLOCK, dp) */
    bool is_later;  /* dk and dv hold sums already, of other query heads or other runs */
};

static struct bwd_head bwd_head_of(const struct bwd_work *w, int64_t bh, int64_t shift)
{
    const struct attention_bwd *a = w->a;
    struct bwd_head h = {.x = head_of(&a->qkv, &a->kv, &a->mask, &a->dropout, bh, &w->shape)};
    h.x.drop_head = attention_drop_head(bh, a->h, a->head_first, a->heads_whole);
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

/* The queries of the run's head number n. */
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

/* One block of keys against all queries of the run. dk and dv of earlier runs lie in dqkv already
 * and are added to. */
static void bwd_keys(struct bwd_run *r, const struct bwd_head *first, int64_t j)
{
    const struct head *x = &first->x;
    int64_t end = r->q.first + r->q.n, stride = x->k_stride;
    keys_pack(x, &r->keys, j);
    memset(r->dk, 0, (size_t)(BLOCK * x->dp) * sizeof *r->dk);
    memset(r->dv, 0, (size_t)(BLOCK * x->dp) * sizeof *r->dv);
    for (int64_t n = 0; n < r->heads; n++) {
        struct bwd_head h = bwd_head_of(r->w, r->bh + n, r->shift);
        struct queries q = queries_of(r, n, x->dp);
        for (q.block = j > q.first ? j : q.first; q.block < end; q.block += BLOCK)
            bwd_block(&h, &r->keys, &q, q.block, least(BLOCK, end - q.block), r->dk, r->dv);
    }
    if (r->is_later || j < r->q.first) {
        vec_fence();
        add_rows(r->dk, first->dk + j * stride, stride, r->keys.n, x, 1 / x->scale);
        add_rows(r->dv, first->dv + j * stride, stride, r->keys.n, x, 1);
    }
    write_rows(first->dk + j * stride, stride, r->dk, x->dp, r->keys.n, x->d, x->scale);
    write_rows(first->dv + j * stride, stride, r->dv, x->dp, r->keys.n, x->d, 1);
}

/* A run of queries against all keys that they may attend to. */
static void bwd_run(struct bwd_run *r)
{
    struct bwd_head first = bwd_head_of(r->w, r->bh, r->shift);
    const struct head *x = &first.x;
    for (int64_t n = 0; n < r->heads; n++) {
        struct bwd_head h = bwd_head_of(r->w, r->bh + n, r->shift);
        struct queries q = queries_of(r, n, x->dp);
        queries_pack(&h, &q);
    }
    for (int64_t j = 0; j < r->q.first + r->q.n; j += BLOCK)
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

/* All T rows of dk and dv of a key head, which own queries add to. */
static void bwd_zero(const struct bwd_work *w, int64_t bh)
{
    struct bwd_head h = bwd_head_of(w, bh, 0);
    for (int64_t j = 0; j < h.x.t; j++) {
        memset(h.dk + j * h.x.k_stride, 0, (size_t)h.x.d * sizeof(float));
        memset(h.dv + j * h.x.k_stride, 0, (size_t)h.x.d * sizeof(float));
    }
}

static void bwd_part(void *arg, int key_head, int thread_i)
{
    const struct bwd_work *w = arg;
    const struct attention_runs *own = &w->a->own;
    int64_t group = w->a->h / w->a->hk, end = (key_head + 1) * group, rows = w->shape.rows;
    struct bwd_run r = bwd_run_of(w, (float *)(void *)w->cpu->scratch[thread_i]);
    if (w->a->kv.data)
        bwd_zero(w, key_head * group);
    for (r.bh = key_head * group; r.bh < end; r.bh += r.heads) {
        r.heads = least(w->heads_max, end - r.bh);
        r.is_later = r.bh % group > 0 || w->a->kv.data;
        for (int64_t row = 0; row < rows; row += r.q.n) {
            r.shift = attention_position(own, row) - row;
            r.q.first = row + r.shift;
            r.q.n = least(w->run_max / r.heads, run_end(own, row, rows) - row);
            bwd_run(&r);
        }
    }
    vec_fence();
}

void CPU_FN(attention_bwd)(const struct cpu *cpu, const struct attention_bwd *a)
{
    int64_t dp = round_up(a->d, VEC_W), capacity = (int64_t)(CPU_SCRATCH_BYTES / sizeof(float));
    capacity -= 5 * BLOCK * dp + BLOCK + 2 * BLOCK * BLOCK;
    int64_t most = capacity / (3 * dp + 2) / BLOCK * BLOCK, group = a->h / a->hk;
    struct bwd_work w = {.cpu = cpu, .a = a, .shape = SHAPE_OF_OWN(a)};
    ASSERTF(most > 0, "head width %lld", (long long)a->d);
    /* Several heads save laying out keys again. Where their queries fall out of the second-level
     * cache, that costs more than it saves. */
    w.heads_max = least(least(most, BWD_CACHED / dp) / w.shape.rows, group);
    w.heads_max = w.heads_max < 1 ? 1 : w.heads_max;
    w.run_max = least(most, round_up(w.heads_max * w.shape.rows, BLOCK));
    thread_pool_run(cpu->pool, cpu_parts(a->b * a->hk, 1), bwd_part, &w);
}
