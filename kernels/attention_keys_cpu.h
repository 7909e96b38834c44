/* attention_keys_cpu — code that attention's forward and backward share: a block of keys in the
 * layout of the products, a group of rows against it, and rows of a head. Included by
 * attention_cpu.c and attention_bwd_cpu.c only. It must not know which direction uses it.
 *
 * A block of keys is BLOCK wide. Its columns beyond D and its keys beyond the text are zero. */
#ifndef CONVOY_KERNELS_ATTENTION_KEYS_CPU_H
#define CONVOY_KERNELS_ATTENTION_KEYS_CPU_H

#include <math.h>

#include "kernels/attention.h"
#include "kernels/attention_tile_cpu.h"
#include "kernels/cpu.h"
#include "kernels/exp2_cpu.h"
#include "kernels/philox_cpu.h"

#define BLOCK 64
#define FETCH_ROWS 8

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static inline int rows_next(int64_t left)
{
    return left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* A block of keys, laid out for the products; columns beyond D and keys beyond n are zero. */
struct keys {
    float *kt;                /* (DP, BLOCK) */
    float *vt;                /* (DP, BLOCK), backward only */
    float *k;                 /* (BLOCK, DP), backward only */
    float *v;                 /* (BLOCK, DP), forward only */
    float *bias;              /* (BLOCK): 0 for a visible key, -inf for a hidden one */
    bool is_open;             /* every key of the block exists and is visible */
    int64_t first, n;         /* numbers of the keys */
    const int32_t *first_key; /* first_key of struct head */
};

/* The head as both directions see it. Queries are numbered by their positions; position i is row i
 * - shift of the rows in the call. */
struct head {
    int64_t t, rows, d, dp, c; /* rows: queries of a sample; dp: D up to whole vectors; c = H·D */
    int64_t bh, drop_head;     /* drop_head: attention_drop_head; with dropout only */
    int64_t stride, k_stride;  /* from row to row of queries; of keys */
    int64_t shift;             /* shift of the current run of positions */
    const float *q, *k, *v;    /* the head's first query; its first key and value */
    const uint8_t *mask;       /* mask of the sample, or NULL */
    const int32_t *first_key;  /* first keys of the sample's queries, by position; or NULL */
    const struct dropout *dropout;
    float scale, scale2; /* 1/√D; log2(e)/√D, so that a softmax's exponential is one of 2 */
};

/* The shape of an operation, and where heads lie in its rows. */
struct shape {
    int64_t t, rows, h, hk, d;
    struct attention_row row, key; /* row: layout of queries; key: layout of keys */
};

/* The shape from the arguments of any of the three operations; each position has a query. */
#define SHAPE_OF(a)                                                         \
    ((struct shape){(a)->t, (a)->t, (a)->h, (a)->hk, (a)->d,                \
                    attention_row_of((a)->layout, (a)->h, (a)->hk, (a)->d), \
                    attention_row_of((a)->layout, (a)->h, (a)->hk, (a)->d)})

/* The shape if keys may be stored apart from the own queries. */
#define SHAPE_OF_OWN(a) shape_of_own(SHAPE_OF(a), (a)->kv.data, (a)->layout, &(a)->own)
static inline struct shape shape_of_own(struct shape x, bool has_kv, enum attention_layout layout,
                                        const struct attention_runs *own)
{
    if (!has_kv)
        return x;
    x.rows = attention_rows(own, x.t);
    x.key = attention_kv_row_of(layout, x.hk, x.d);
    return x;
}

/* run_end — returns the end of the run of consecutive positions that begins at row `row`. */
static inline int64_t run_end(const struct attention_runs *own, int64_t row, int64_t rows)
{
    return row < own->n[0] ? own->n[0] : rows;
}

/* Returns the head of a call. kv: the tensor with the keys; qkv if they are not stored apart. */
static struct head head_of(const struct tensor *qkv, const struct tensor *kv,
                           const struct tensor *mask, const struct dropout *dropout, int64_t bh,
                           const struct shape *shape)
{
    const struct attention_row *row = &shape->row, *at = &shape->key;
    int64_t t = shape->t, h = shape->h, d = shape->d, b = bh / h,
            key = b * t * at->row + bh % h / (h / shape->hk) * at->head;
    const float *keys = kv->data ? kv->data : qkv->data;
    struct head x = {.t = t,
                     .rows = shape->rows,
                     .d = d,
                     .dp = round_up(d, VEC_W),
                     .c = h * d,
                     .bh = bh,
                     .stride = row->row,
                     .k_stride = at->row,
                     .dropout = dropout};
    x.q = (const float *)qkv->data + b * shape->rows * row->row + bh % h * row->head;
    x.k = keys + at->k + key;
    x.v = keys + at->v + key;
    x.mask = mask->data ? (const uint8_t *)mask->data + b * t : NULL;
    x.scale = (float)(1 / sqrt((double)d));
    x.scale2 = (float)(EXP2_LOG2E / sqrt((double)d));
    return x;
}

/* first_key_of — returns the first keys of sample b, or NULL. */
static inline const int32_t *first_key_of(const struct tensor *first_key, int64_t b, int64_t t)
{
    return first_key->data ? (const int32_t *)first_key->data + b * t : NULL;
}
/* keys_begin — returns the first block of keys that the query at position i, or any later one, may
 * see. */
static inline int64_t keys_begin(const struct head *x, int64_t i)
{
    return x->first_key ? x->first_key[i] / BLOCK * BLOCK : 0;
}

/* Returns the query at position i. */
static inline const float *query_of(const struct head *x, int64_t i)
{
    return x->q + (i - x->shift) * x->stride;
}

/* Prefetches a row of a head. The rows are far apart, a few cache lines each, and no hardware
 * prefetcher follows them. */
static inline void fetch_row(const float *x, int64_t d)
{
    for (int64_t e = 0; e < d; e += 16)
        __builtin_prefetch(x + e, 0, 3);
}

/* Copies one row of d elements to dp elements; the rest becomes zero. */
static inline void pack_row(float *out, const float *x, int64_t d)
{
    int64_t e = 0;
    for (; e + VEC_W <= d; e += VEC_W)
        vec_store(out + e, vec_load(x + e));
    if (e < d)
        vec_store(out + e, vec_load_n(x + e, (int)(d - e)));
}

/* out (BLOCK, dp) ← n rows of x, the rest zero. */
static void pack_rows(float *out, const float *x, int64_t stride, int64_t n, int64_t d, int64_t dp)
{
    for (int64_t i = 0; i < n; i++)
        pack_row(out + i * dp, x + i * stride, d);
    memset(out + n * dp, 0, (size_t)((BLOCK - n) * dp) * sizeof *out);
}

/* Prefetches rows r … r+rows-1 of the next block of keys; beyond the end that does no harm. */
static inline void keys_fetch(const struct head *x, const struct keys *keys, int64_t r, int rows)
{
    int64_t at = (keys->first + BLOCK + r) * x->k_stride;
    for (int i = 0; i < rows; i++, at += x->k_stride) {
        fetch_row(x->k + at, x->d);
        fetch_row(x->v + at, x->d);
    }
}

static void keys_pack(const struct head *x, struct keys *keys, int64_t first)
{
    int64_t stride = x->k_stride, n = min_i64(BLOCK, x->t - first);
    const float *k = x->k + first * stride, *v = x->v + first * stride;
    keys->first = first;
    keys->n = n;
    keys->is_open = n == BLOCK;
    keys->first_key = x->first_key;
    for (int64_t j = 0; j < BLOCK; j++) {
        bool is_seen = j < n && (!x->mask || x->mask[first + j]);
        keys->bias[j] = is_seen ? 0 : -INFINITY;
        keys->is_open = keys->is_open && is_seen;
    }
    tile_transpose(keys->kt, BLOCK, k, stride, n, x->d);
    if (keys->vt)
        tile_transpose(keys->vt, BLOCK, v, stride, n, x->d);
    if (keys->k)
        pack_rows(keys->k, k, stride, n, x->d, x->dp);
    if (keys->v)
        pack_rows(keys->v, v, stride, n, x->d, x->dp);
}

/* keys_are_seen — returns false if neither the query at position i nor any later one sees a key of
 * the block. */
static inline bool keys_are_seen(const struct keys *keys, int64_t i)
{
    return !keys->first_key || keys->first_key[i] < keys->first + BLOCK;
}

/* A group of rows, queries i … i+rows-1, against a block of keys. */
struct group {
    /* columns computed (whole vectors); keys that at least one of the rows may see */
    int64_t i, cols, seen;
    int rows;
    bool is_open; /* all rows see all BLOCK keys */
};

static struct group group_of(const struct keys *keys, int64_t i, int rows)
{
    int64_t reach = i + rows - keys->first;
    struct group m = {
        .i = i, .rows = rows, .is_open = keys->is_open && i - keys->first >= BLOCK - 1};
    if (keys->first_key) /* the last row has the latest first key */
        m.is_open = m.is_open && keys->first_key[i + rows - 1] <= keys->first;
    m.seen = min_i64(reach, BLOCK);
    m.cols = min_i64(round_up(reach, VEC_W), BLOCK);
    return m;
}

/* Scores of one row before scaling; -inf for a key that does not exist, is masked, comes after the
 * query or before its first key. */
static inline vec load_scores(const struct keys *keys, const struct group *m, int r, const float *s,
                              int64_t j)
{
    vec x = vec_load(s + r * BLOCK + j);
    if (m->is_open)
        return x;
    x += vec_load(keys->bias + j);
    int32_t own = (int32_t)min_i64(m->i + r - keys->first - j, BLOCK);
    x = vec_select(tile_lane() > own, vec_set(-INFINITY), x);
    if (!keys->first_key)
        return x;
    int32_t first = (int32_t)min_i64(keys->first_key[m->i + r] - keys->first - j, BLOCK);
    return vec_select(tile_lane() < first, vec_set(-INFINITY), x);
}

/* Writes the dropout factors of row r of a group. */
static inline void drop_row(const struct head *x, const struct keys *keys, const struct group *m,
                            int r, float *factor)
{
    uint64_t index = (uint64_t)((x->drop_head * x->t + m->i + r) * x->t + keys->first);
    philox_scale(x->dropout, index, m->cols, factor);
}

#endif
