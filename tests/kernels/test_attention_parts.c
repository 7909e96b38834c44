/* Attention of a part of a model: own heads draw the numbers of the whole, so the parts' outputs
 * and gradients are slices of the whole's. */
#include "kernel_test.h"

#define B 2
#define T 70
#define D 8

/* H query heads and K key heads in parts of equal size. */
struct heads {
    int64_t h, hk, parts;
    enum attention_layout layout;
};

/* Copies head columns: those of part `part` of rows (B·T, (h+2hk)·D) as rows of their own. */
static void slice(const struct heads *x, int64_t part, const float *qkv, float *own, bool is_back)
{
    int64_t h = x->h / x->parts, hk = x->hk / x->parts;
    struct attention_row all = attention_row_of(x->layout, x->h, x->hk, D),
                         some = attention_row_of(x->layout, h, hk, D);
    for (int64_t n = 0; n < B * T; n++)
        for (int64_t i = 0; i < h + 2 * hk; i++) {
            int64_t kind = i < h        ? 0
                           : i < h + hk ? 1
                                        : 2,
                    head = i - (kind > 0) * h - (kind > 1) * hk,
                    first = kind ? part * hk : part * h,
                    at = kind == 0   ? 0
                         : kind == 1 ? all.k
                                     : all.v,
                    to = kind == 0   ? 0
                         : kind == 1 ? some.k
                                     : some.v;
            float *whole = (float *)(uintptr_t)qkv + n * all.row + at + (first + head) * all.head,
                  *part_at = own + n * some.row + to + head * some.head;
            memcpy(is_back ? whole : part_at, is_back ? part_at : whole, D * sizeof *own);
        }
}

/* out (B·T, H·D): the columns of part `part`. */
static void slice_out(const struct heads *x, int64_t part, float *out, float *own, bool is_back)
{
    int64_t c = x->h / x->parts * D;
    for (int64_t n = 0; n < B * T; n++) {
        float *whole = out + n * x->h * D + part * c, *some = own + n * c;
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

/* Both directions over the heads of part `part` of x->parts; -1: the whole. */
static void both(const struct kt_device *d, const struct heads *x, int64_t part, struct bufs *m)
{
    int64_t parts = part < 0 ? 1 : x->parts, h = x->h / parts, hk = x->hk / parts;
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
                              .head_first = part < 0 ? 0 : part * h,
                              .heads_whole = part < 0 ? 0 : x->h};
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
    for (int64_t part = 0; part < x->parts; part++) {
        struct bufs own = bufs_new(x->h / x->parts, x->hk / x->parts);
        slice(x, part, whole.qkv, own.qkv, false);
        slice_out(x, part, whole.dout, own.dout, false);
        both(d, x, part, &own);
        slice(x, part, got.dqkv, own.dqkv, true);
        slice_out(x, part, got.out, own.out, true);
        bufs_free(&own);
    }
    assert_memory_equal(got.out, whole.out, (size_t)n * sizeof(float));
    assert_memory_equal(got.dqkv, whole.dqkv, (size_t)rows * sizeof(float));
    bufs_free(&whole);
    bufs_free(&got);
}

static void own_heads_are_slices_of_the_whole(void **state)
{
    (void)state;
    static const struct heads heads[] = {{4, 4, 2, ATTENTION_LAYOUT_QKV},
                                         {6, 3, 3, ATTENTION_LAYOUT_QKV},
                                         {4, 4, 4, ATTENTION_LAYOUT_HEADS}};
    for (int level = 0; level < CPU_ISA_N; level++)
        for (size_t i = 0; i < 3 && kt_device(level, 2)->dev; i++)
            check_heads(kt_device(level, 2), &heads[i]);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(own_heads_are_slices_of_the_whole)};
HARNESS_MAIN(tests)
