/* Attention of one rank: own heads draw the numbers of the whole, and own queries see the keys of
 * all positions, so the ranks' outputs and gradients are slices of the whole's. */
#include "documents.h"
#include "kernel_test.h"

#define B 2
#define T 70
#define D 8

/* H query heads and K key heads, divided equally over the ranks. */
struct heads {
    int64_t h, hk, ranks;
    enum attention_layout layout;
};

/* Copies head columns: those of rank `rank`, of rows (B·T, (h+2hk)·D) as rows of their own. */
static void slice(const struct heads *x, int64_t rank, const float *qkv, float *own, bool is_back)
{
    int64_t h = x->h / x->ranks, hk = x->hk / x->ranks;
    struct attention_row all = attention_row_of(x->layout, x->h, x->hk, D),
                         some = attention_row_of(x->layout, h, hk, D);
    for (int64_t n = 0; n < B * T; n++)
        for (int64_t i = 0; i < h + 2 * hk; i++) {
            int64_t kind = i < h        ? 0
                           : i < h + hk ? 1
                                        : 2,
                    head = i - (kind > 0) * h - (kind > 1) * hk,
                    first = kind ? rank * hk : rank * h,
                    at = kind == 0   ? 0
                         : kind == 1 ? all.k
                                     : all.v,
                    to = kind == 0   ? 0
                         : kind == 1 ? some.k
                                     : some.v;
            float *whole = (float *)(uintptr_t)qkv + n * all.row + at + (first + head) * all.head,
                  *own_at = own + n * some.row + to + head * some.head;
            memcpy(is_back ? whole : own_at, is_back ? own_at : whole, D * sizeof *own);
        }
}

/* out (B·T, H·D): the columns of rank `rank`. */
static void slice_out(const struct heads *x, int64_t rank, float *out, float *own, bool is_back)
{
    int64_t c = x->h / x->ranks * D;
    for (int64_t n = 0; n < B * T; n++) {
        float *whole = out + n * x->h * D + rank * c, *some = own + n * c;
        memcpy(is_back ? whole : some, is_back ? some : whole, (size_t)c * sizeof *own);
    }
}

struct bufs {
    float *qkv, *out, *lse, *dout, *dqkv;
};

static struct bufs bufs_new(int64_t h, int64_t hk)
{
    int64_t rows = B * T * (h + 2 * hk) * D, n = B * T * h * D;
    return (struct bufs){kt_floats(rows, KT_RANDOM, 1), kt_floats(n, KT_ONES, 0),
                         kt_floats(B * h * T, KT_ONES, 0), kt_floats(n, KT_RANDOM, 2),
                         kt_floats(rows, KT_ONES, 0)};
}

static void bufs_free(struct bufs *x)
{
    kt_free(x->qkv);
    kt_free(x->out);
    kt_free(x->lse);
    kt_free(x->dout);
    kt_free(x->dqkv);
}

/* Both directions over the heads of rank `rank` of x->ranks; -1: the whole. */
static void both(const struct kt_device *d, const struct heads *x, int64_t rank, struct bufs *m)
{
    int64_t ranks = rank < 0 ? 1 : x->ranks, h = x->h / ranks, hk = x->hk / ranks;
    struct attention_fwd f = {.out = kt_f32(m->out),
                              .lse = kt_f32(m->lse),
                              .qkv = kt_f32(m->qkv),
                              .b = B,
                              .t = T,
                              .h = h,
                              .hk = hk,
                              .d = D,
                              .layout = x->layout,
                              .dropout = kt_dropout(0.3f),
                              .head_first = rank < 0 ? 0 : rank * h,
                              .heads_whole = rank < 0 ? 0 : x->h};
    struct attention_bwd g = {.dqkv = kt_f32(m->dqkv),
                              .dout = kt_f32(m->dout),
                              .out = f.out,
                              .qkv = f.qkv,
                              .lse = f.lse,
                              .b = B,
                              .t = T,
                              .h = h,
                              .hk = hk,
                              .d = D,
                              .layout = x->layout,
                              .dropout = f.dropout,
                              .head_first = f.head_first,
                              .heads_whole = f.heads_whole};
    kt_ok(dev_op(d->dev)->attention_fwd(d->stream, &f));
    kt_ok(dev_op(d->dev)->attention_bwd(d->stream, &g));
}

static void check_heads(const struct kt_device *d, const struct heads *x)
{
    int64_t n = B * T * x->h * D, rows = B * T * (x->h + 2 * x->hk) * D;
    struct bufs whole = bufs_new(x->h, x->hk), got = bufs_new(x->h, x->hk);
    both(d, x, -1, &whole);
    for (int64_t rank = 0; rank < x->ranks; rank++) {
        struct bufs own = bufs_new(x->h / x->ranks, x->hk / x->ranks);
        slice(x, rank, whole.qkv, own.qkv, false);
        slice_out(x, rank, whole.dout, own.dout, false);
        both(d, x, rank, &own);
        slice(x, rank, got.dqkv, own.dqkv, true);
        slice_out(x, rank, got.out, own.out, true);
        bufs_free(&own);
    }
    assert_memory_equal(got.out, whole.out, (size_t)n * sizeof(float));
    assert_memory_equal(got.dqkv, whole.dqkv, (size_t)rows * sizeof(float));
    bufs_free(&whole);
    bufs_free(&got);
}

TEST(own_heads_are_slices_of_the_whole)
{
    static const struct heads heads[] = {{4, 4, 2, ATTENTION_LAYOUT_QKV},
                                         {6, 3, 3, ATTENTION_LAYOUT_QKV},
                                         {4, 4, 4, ATTENTION_LAYOUT_HEADS}};
    for (int level = 0; level < CPU_ISA_N; level++)
        for (size_t i = 0; i < 3 && kt_device(level, 2)->dev; i++)
            check_heads(kt_device(level, 2), &heads[i]);
}

struct own {
    int64_t t, h, hk, d, ranks;
    enum attention_layout layout;
    bool is_one_run; /* else two runs: chunk r and chunk 2·ranks-1-r of 2·ranks */
    int hidden;      /* 0: none; 1: some keys; 2: other documents; 3: both */
    float p;
};

static struct attention_runs runs_of(const struct own *x, int64_t r)
{
    int64_t n = x->is_one_run ? x->ranks : 2 * x->ranks, late = n - 1 - r;
    struct attention_runs own = {
        {x->t * r / n, x->t * late / n},
        {x->t * (r + 1) / n - x->t * r / n, x->t * (late + 1) / n - x->t * late / n}};
    if (x->is_one_run)
        own.first[1] = own.n[1] = 0;
    return own;
}

/* Everything of a whole, or of a rank, where qkv, out and lse have `rows` rows a sample. */
struct all {
    int64_t rows;
    float *qkv, *out, *lse, *dout, *dqkv, *kv, *dkv;
    struct attention_runs own;
};

static struct all all_new(const struct own *x, int64_t rows, struct attention_runs own)
{
    int64_t row = (x->h + 2 * x->hk) * x->d, n = B * rows;
    return (struct all){.rows = rows,
                        .qkv = kt_floats(n * row, KT_RANDOM, 1),
                        .out = kt_floats(n * x->h * x->d, KT_ONES, 0),
                        .lse = kt_floats(n * x->h, KT_ONES, 0),
                        .dout = kt_floats(n * x->h * x->d, KT_RANDOM, 2),
                        .dqkv = kt_floats(n * row, KT_ONES, 0),
                        .kv = kt_floats(B * x->t * 2 * x->hk * x->d, KT_ONES, 0),
                        .dkv = kt_floats(B * x->t * 2 * x->hk * x->d, KT_RANDOM, 5),
                        .own = own};
}

static void all_free(struct all *m)
{
    float *list[] = {m->qkv, m->out, m->lse, m->dout, m->dqkv, m->kv, m->dkv};
    for (int i = 0; i < 7; i++)
        kt_free(list[i]);
}

static void run_all(const struct kt_device *d, const struct own *x, struct all *m,
                    const uint8_t *mask, bool has_kv)
{
    struct tensor hidden = {(void *)(uintptr_t)(x->hidden & 1 ? mask : NULL), DTYPE_U8};
    int32_t first_key[B * 300];
    documents_fill(first_key, B, x->t, 40);
    struct tensor first = {x->hidden & 2 ? first_key : NULL, DTYPE_I32};
    struct attention_fwd f = {.out = kt_f32(m->out),
                              .lse = kt_f32(m->lse),
                              .qkv = kt_f32(m->qkv),
                              .mask = hidden,
                              .first_key = first,
                              .b = B,
                              .t = x->t,
                              .h = x->h,
                              .hk = x->hk,
                              .d = x->d,
                              .layout = x->layout,
                              .dropout = kt_dropout(x->p)};
    struct attention_bwd g = {.dqkv = kt_f32(m->dqkv),
                              .dout = kt_f32(m->dout),
                              .out = f.out,
                              .qkv = f.qkv,
                              .lse = f.lse,
                              .mask = hidden,
                              .first_key = first,
                              .b = B,
                              .t = x->t,
                              .h = x->h,
                              .hk = x->hk,
                              .d = x->d,
                              .layout = x->layout,
                              .dropout = f.dropout};
    if (has_kv) {
        f.kv = g.kv = kt_f32(m->kv), g.dkv = kt_f32(m->dkv);
        f.own = g.own = m->own;
    }
    kt_ok(dev_op(d->dev)->attention_fwd(d->stream, &f));
    kt_ok(dev_op(d->dev)->attention_bwd(d->stream, &g));
}

/* k and v of rows of qkv become rows of kv; is_sum: those of kv are added to those of qkv. */
static void move_kv(const struct own *x, float *qkv, float *kv, bool is_sum)
{
    struct attention_row at = attention_row_of(x->layout, x->h, x->hk, x->d),
                         to = attention_kv_row_of(x->layout, x->hk, x->d);
    for (int64_t i = 0; i < B * x->t * 2 * x->hk * x->d; i++) {
        int64_t e = i % x->d, head = i / x->d % x->hk, is_v = i / x->d / x->hk % 2,
                n = i / x->d / x->hk / 2;
        float *a = qkv + n * at.row + (is_v ? at.v : at.k) + head * at.head + e,
              *b = kv + n * to.row + (is_v ? to.v : to.k) + head * to.head + e;
        *(is_sum ? a : b) = is_sum ? *a + *b : *a;
    }
}

/* Row `row` of sample b of a rank, and its row of the whole. */
static void own_row(const struct own *x, const struct all *local, const struct all *whole,
                    int64_t b, int64_t row, bool is_result)
{
    int64_t from = b * x->t + attention_position(&local->own, row), to = b * local->rows + row,
            c = x->h * x->d;
    struct attention_row at = attention_row_of(x->layout, x->h, x->hk, x->d);
    if (!is_result) { /* keys and values of own rows are not read: NaN */
        memset(local->qkv + to * at.row, 0xff, (size_t)at.row * sizeof(float));
        memcpy(local->dout + to * c, whole->dout + from * c, (size_t)c * sizeof(float));
    } else
        assert_memory_equal(local->out + to * c, whole->out + from * c, (size_t)c * sizeof(float));
    for (int64_t h = 0; h < x->h; h++) {
        int64_t q = h * at.head, mine = to * at.row + q, its = from * at.row + q;
        size_t bytes = (size_t)x->d * sizeof(float);
        if (!is_result) {
            memcpy(local->qkv + mine, whole->qkv + its, bytes);
            continue;
        }
        assert_memory_equal(local->dqkv + mine, whole->dqkv + its, bytes);
        assert_true(local->lse[(b * x->h + h) * local->rows + row] ==
                    whole->lse[(b * x->h + h) * x->t + from - b * x->t]);
    }
    for (int64_t e = 0; is_result && x->layout == ATTENTION_LAYOUT_QKV && e < at.row - at.k; e++)
        assert_true(local->dqkv[to * at.row + at.k + e] == 1); /* not written */
}

static void check_rank(const struct kt_device *d, const struct own *x, int64_t r, struct all *whole,
                       const uint8_t *mask, float *sum)
{
    struct attention_runs own = runs_of(x, r);
    struct all local = all_new(x, own.n[0] + own.n[1], own);
    for (int64_t i = 0; i < B * local.rows; i++)
        own_row(x, &local, whole, i / local.rows, i % local.rows, false);
    move_kv(x, whole->qkv, local.kv, false);
    run_all(d, x, &local, mask, true);
    for (int64_t i = 0; i < B * local.rows; i++)
        own_row(x, &local, whole, i / local.rows, i % local.rows, true);
    move_kv(x, sum, local.dkv, true);
    all_free(&local);
}

/* dk and dv of all ranks together are the whole's. */
static void check_own(const struct kt_device *d, const struct own *x)
{
    static const struct attention_runs none;
    struct all whole = all_new(x, x->t, none);
    int64_t elems = B * x->t * (x->h + 2 * x->hk) * x->d;
    float *sum = kt_floats(elems, KT_ONES, 0);
    uint8_t mask[B * 300];
    for (int i = 0; i < B * 300; i++)
        mask[i] = rand_u32(3, 1, (uint64_t)i) % 3 != 0;
    run_all(d, x, &whole, mask, false);
    memset(sum, 0, (size_t)elems * sizeof *sum);
    for (int64_t r = 0; r < x->ranks; r++)
        check_rank(d, x, r, &whole, mask, sum);
    move_kv(x, sum, whole.kv, false);
    move_kv(x, whole.dqkv, whole.dkv, false);
    assert_true(kt_nmse(whole.kv, whole.dkv, B * x->t * 2 * x->hk * x->d) < 1e-12);
    kt_free(sum);
    all_free(&whole);
}

/* Heads of a GPU have a multiple of 8 elements. */
static bool serves(int64_t d)
{
#ifdef KT_DEVICE
    return d % 8 == 0;
#else
    return d > 0;
#endif
}

TEST(own_queries_see_the_keys_of_all)
{
    static const struct own shapes[] = {{64, 2, 2, 8, 1, ATTENTION_LAYOUT_QKV, true, 0, 0},
                                        {64, 2, 2, 8, 2, ATTENTION_LAYOUT_QKV, false, 0, 0},
                                        {70, 4, 2, 17, 2, ATTENTION_LAYOUT_QKV, false, 1, 0.2f},
                                        {71, 4, 2, 16, 2, ATTENTION_LAYOUT_QKV, false, 1, 0.2f},
                                        {257, 3, 1, 32, 3, ATTENTION_LAYOUT_QKV, false, 0, 0.1f},
                                        {300, 2, 2, 64, 2, ATTENTION_LAYOUT_HEADS, false, 1, 0},
                                        {200, 2, 1, 24, 4, ATTENTION_LAYOUT_QKV, true, 0, 0},
                                        {6, 2, 2, 3, 3, ATTENTION_LAYOUT_HEADS, false, 0, 0.3f},
                                        {257, 4, 2, 16, 2, ATTENTION_LAYOUT_QKV, false, 2, 0},
                                        {300, 2, 2, 24, 3, ATTENTION_LAYOUT_HEADS, false, 3, 0.2f},
                                        {300, 2, 1, 8, 4, ATTENTION_LAYOUT_QKV, true, 2, 0.1f}};
    for (int level = 0; level < CPU_ISA_N; level++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int threads_n = 1; threads_n <= KT_THREADS; threads_n += 2)
                if (kt_device(level, threads_n)->dev && serves(shapes[i].d))
                    check_own(kt_device(level, threads_n), &shapes[i]);
}

/* Runs that overlap, lie beyond T, or come without kv are refused. */
TEST(wrong_runs_are_refused)
{
    static const struct attention_runs wrong[] = {
        {{0, 0}, {0, 0}}, {{0, 3}, {4, 2}}, {{0, 7}, {4, 2}}, {{-1, 0}, {2, 0}}, {{5, 0}, {4, 0}}};
    float x[256] = {0};
    struct kt_device *d = kt_plain();
    struct attention_fwd a = {.out = kt_f32(x),
                              .lse = kt_f32(x),
                              .qkv = kt_f32(x),
                              .kv = kt_f32(x),
                              .b = 1,
                              .t = 8,
                              .h = 1,
                              .hk = 1,
                              .d = 4};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        a.own = wrong[i];
        assert_int_equal(dev_op(d->dev)->attention_fwd(d->stream, &a), ST_BUG);
    }
    a.kv.data = NULL, a.own = (struct attention_runs){{2, 0}, {2, 0}};
    assert_int_equal(dev_op(d->dev)->attention_fwd(d->stream, &a), ST_BUG);
    a.own.n[0] = a.own.first[0] = 0, a.first_key = kt_f32(x); /* no int32 */
    assert_int_equal(dev_op(d->dev)->attention_fwd(d->stream, &a), ST_BUG);
}

HARNESS_RUN_ALL()
