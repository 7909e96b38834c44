/* bf16 and f16: each kernel on 16-bit elements against the plain truth of the same numbers as
 * float; also column sums, which only CUDA has. Widths with and without 16-byte accesses, other
 * orders of threads, guards. */
#include "tests/cuda/halves.h"

#include "kernels/column.h"

static void norm(struct set *s, enum dtype t, int64_t n, int64_t c)
{
    struct cuda cuda = emulated_cuda();
    struct pair *x = add(s, t, n * c, 1), *w = add(s, t, c, 1), *b = add(s, t, c, 1),
                *y = add(s, t, n * c, 1);
    struct pair *mean = add(s, DTYPE_F32, n, 1), *rstd = add(s, DTYPE_F32, n, 1),
                *dy = add(s, t, n * c, 1);
    struct pair *dx = add(s, t, n * c, 1), *dw = add(s, DTYPE_F32, c, 1),
                *db = add(s, DTYPE_F32, c, 1), *r = add(s, t, n * c, 1);
    PLAIN(norm_fwd, &(struct norm_fwd){truth(y), truth(mean), truth(rstd), truth(x), truth(w),
                                       truth(b), n, c, 1e-5f, NORM_KIND_LAYER});
    ran(norm_fwd_cuda(&cuda, &(struct norm_fwd){y->half, mean->half, rstd->half, x->half, w->half,
                                                b->half, n, c, 1e-5f, NORM_KIND_LAYER}));
    near("norm y", y, limit_of(t));
    near("norm mean", mean, 1e-8); /* means near zero, of numbers near one */
    near("norm rstd", rstd, 1e-10);
    PLAIN(norm_bwd,
          &(struct norm_bwd){truth(dx), truth(dw), truth(db), truth(dy), truth(x), truth(mean),
                             truth(rstd), truth(w), truth(r), n, c, true, NORM_KIND_LAYER});
    ran(norm_bwd_cuda(&cuda, &(struct norm_bwd){dx->half, dw->half, db->half, dy->half, x->half,
                                                mean->half, rstd->half, w->half, r->half, n, c,
                                                true, NORM_KIND_LAYER}));
    near("norm dx", dx, limit_of(t));
    near("norm dw", dw, 1e-10);
    near("norm db", db, 1e-10);
    done(s);
}

/* RMSNorm as transformers rounds it: x·rstd becomes an element, then it is multiplied by w and the
 * product is rounded. y's truth becomes that. Were x·rstd not rounded, the error would be that of a
 * rounding, which `RMS_LIMIT` is below; one element of many may fall to the other side where rstd
 * differs in its last bit. */
#define RMS_LIMIT(t) (limit_of(t) / 20)

static void rms_truth(struct pair *y, const struct pair *x, const struct pair *w, int64_t at,
                      int64_t c, double eps)
{
    double squares = 0;
    for (int64_t i = 0; i < c; i++)
        squares += (double)x->truth[at + i] * x->truth[at + i];
    double r = 1 / sqrt(squares / (double)c + eps);
    for (int64_t i = 0; i < c; i++) {
        enum dtype t = y->half.dtype;
        float hat = from_bits(t, to_bits(t, (float)(x->truth[at + i] * r)));
        y->truth[at + i] = from_bits(t, to_bits(t, hat * w->truth[i]));
    }
}

static void rms(struct set *s, enum dtype t, int64_t n, int64_t c)
{
    struct cuda cuda = emulated_cuda();
    struct pair *x = add(s, t, n * c, 1), *w = add(s, t, c, 1), *y = add(s, t, n * c, 1);
    struct pair *rstd = add(s, DTYPE_F32, n, 1), *dy = add(s, t, n * c, 1);
    struct pair *dx = add(s, t, n * c, 1), *dw = add(s, DTYPE_F32, c, 1), *r = add(s, t, n * c, 1);
    struct norm_fwd f = {.y = y->half,
                         .rstd = rstd->half,
                         .x = x->half,
                         .w = w->half,
                         .n = n,
                         .c = c,
                         .eps = 1e-5f,
                         .kind = NORM_KIND_RMS};
    ran(norm_fwd_cuda(&cuda, &f));
    f.y = truth(y), f.rstd = truth(rstd), f.x = truth(x), f.w = truth(w);
    PLAIN(norm_fwd, &f);
    for (int64_t i = 0; i < n; i++)
        rms_truth(y, x, w, i * c, c, 1e-5);
    near("rms y", y, RMS_LIMIT(t));
    near("rms rstd", rstd, 1e-10);
    struct norm_bwd b = {.dx = dx->half,
                         .dw = dw->half,
                         .dy = dy->half,
                         .x = x->half,
                         .rstd = rstd->half,
                         .w = w->half,
                         .dresidual = r->half,
                         .n = n,
                         .c = c,
                         .accumulate = true,
                         .kind = NORM_KIND_RMS};
    ran(norm_bwd_cuda(&cuda, &b));
    b.dx = truth(dx), b.dw = truth(dw), b.dy = truth(dy), b.x = truth(x), b.rstd = truth(rstd);
    b.w = truth(w), b.dresidual = truth(r);
    PLAIN(norm_bwd, &b);
    near("rms dx", dx, limit_of(t));
    near("rms dw", dw, 1e-10);
    done(s);
}

static void head_norm(struct set *s, enum dtype t, int64_t n, int64_t heads, int64_t d, int64_t gap)
{
    struct cuda cuda = emulated_cuda();
    int64_t stride = heads * d + gap;
    struct pair *x = add(s, t, n * stride, 1), *w = add(s, t, d, 1), *y = add(s, t, n * stride, 1);
    struct pair *dy = add(s, t, n * stride, 1), *dx = add(s, t, n * stride, 1),
                *dw = add(s, DTYPE_F32, d, 1);
    ran(head_norm_fwd_cuda(
        &cuda, &(struct head_norm_fwd){y->half, x->half, w->half, n, heads, d, stride, 1e-6f}));
    for (int64_t i = 0; i < n * heads; i++)
        rms_truth(y, x, w, i / heads * stride + i % heads * d, d, 1e-6);
    near("head_norm y", y, RMS_LIMIT(t));
    struct head_norm_bwd b = {dx->half, dw->half, dy->half, x->half, w->half, n,
                              heads,    d,        stride,   1e-6f,   false};
    ran(head_norm_bwd_cuda(&cuda, &b));
    b.dx = truth(dx), b.dw = truth(dw), b.dy = truth(dy), b.x = truth(x), b.w = truth(w);
    PLAIN(head_norm_bwd, &b);
    near("head_norm dx", dx, limit_of(t));
    near("head_norm dw", dw, 1e-10);
    done(s);
}

static void rope(struct set *s, enum dtype t, int64_t n, int64_t h, int64_t hk, int64_t d,
                 int64_t rot)
{
    struct cuda cuda = emulated_cuda();
    struct pair *x = add(s, t, n * (h + 2 * hk) * d, 1), *table = add(s, DTYPE_F32, n * rot, 1);
    struct rope_table a = {.table = table->half, .t = n, .rot = rot, .scale = 1};
    for (int64_t i = 0; i < rot / 2; i++)
        a.freq[i] = (float)pow(1e4, -2.0 * (double)i / (double)rot);
    ran(rope_table_cuda(&cuda, &a));
    a.table = truth(table);
    PLAIN(rope_table, &a);
    near("rope_table", table, 1e-13);
    struct rope r = {.x = x->half,
                     .table = table->half,
                     .n = n,
                     .t = n,
                     .h = h,
                     .hk = hk,
                     .d = d,
                     .rot = rot,
                     .layout = ATTENTION_LAYOUT_QKV};
    for (int form = 0; form < 4; form++) {
        r.inverse = form & 1;
        r.layout = form & 2 && h == hk ? ATTENTION_LAYOUT_HEADS : ATTENTION_LAYOUT_QKV;
        r.x = x->half, r.table = table->half;
        for (int64_t i = 0; i < x->n; i++)
            x->truth[i] = from_bits(t, ((uint16_t *)x->half.data)[i]);
        ran(rope_cuda(&cuda, &r));
        r.x = truth(x), r.table = truth(table);
        PLAIN(rope, &r);
        near("rope", x, limit_of(t));
    }
    done(s);
}

static void swiglu(struct set *s, enum dtype t, int64_t n, int64_t f)
{
    struct cuda cuda = emulated_cuda();
    struct pair *gu = add(s, t, 2 * n * f, 2), *y = add(s, t, n * f, 1), *dy = add(s, t, n * f, 1),
                *dgu = add(s, t, 2 * n * f, 1);
    ran(swiglu_fwd_cuda(&cuda, &(struct swiglu_fwd){y->half, gu->half, n, f}));
    ran(swiglu_bwd_cuda(&cuda, &(struct swiglu_bwd){dgu->half, dy->half, gu->half, n, f}));
    PLAIN(swiglu_fwd, &(struct swiglu_fwd){truth(y), truth(gu), n, f});
    PLAIN(swiglu_bwd, &(struct swiglu_bwd){truth(dgu), truth(dy), truth(gu), n, f});
    near("swiglu y", y, limit_of(t));
    near("swiglu dgu", dgu, limit_of(t));
    done(s);
}

static void embed(struct set *s, enum dtype t, int64_t n, int64_t c)
{
    enum { V = 7 };
    struct cuda cuda = emulated_cuda();
    int32_t tokens[64];
    for (int i = 0; i < 64; i++)
        tokens[i] = i * i % V;
    struct pair *x = add(s, t, n * c, 1), *wte = add(s, t, V * c, 1), *wpe = add(s, t, n * c, 1);
    struct pair *dwte = add(s, DTYPE_F32, V * c, 1), *dwpe = add(s, DTYPE_F32, n * c, 1),
                *dx = add(s, t, n * c, 1);
    struct embed_fwd f = {.x = x->half,
                          .tokens = kt_i32(tokens),
                          .wte = wte->half,
                          .wpe = wpe->half,
                          .n = n,
                          .t = n / 2,
                          .c = c,
                          .dropout = kt_dropout(0.25f)};
    struct embed_bwd b = {dwte->half, dwpe->half, dx->half, kt_i32(tokens),    n, n / 2, c,
                          V,          n,          false,    kt_dropout(0.25f), 0, 0};
    ran(embed_fwd_cuda(&cuda, &f));
    ran(embed_bwd_cuda(&cuda, &b));
    f.x = truth(x), f.wte = truth(wte), f.wpe = truth(wpe);
    b.dwte = truth(dwte), b.dwpe = truth(dwpe), b.dx = truth(dx);
    PLAIN(embed_fwd, &f);
    PLAIN(embed_bwd, &b);
    near("embed x", x, limit_of(t));
    near("embed dwte", dwte, 1e-12);
    near("embed dwpe", dwpe, 1e-12);
    int32_t positions[64];
    for (int i = 0; i < 64; i++)
        positions[i] = i % 5;
    f.positions = kt_i32(positions);
    f.x = x->half, f.wte = wte->half, f.wpe = wpe->half;
    ran(embed_fwd_cuda(&cuda, &f));
    f.x = truth(x), f.wte = truth(wte), f.wpe = truth(wpe);
    PLAIN(embed_fwd, &f);
    near("embed x, positions of documents", x, limit_of(t));
    f = (struct embed_fwd){
        .x = x->half, .tokens = f.tokens, .wte = wte->half, .n = n, .t = n / 2, .c = c};
    b = (struct embed_bwd){
        .dwte = dwte->half, .dx = dx->half, .tokens = f.tokens, .n = n, .t = n / 2, .c = c, .v = V};
    ran(embed_fwd_cuda(&cuda, &f));
    ran(embed_bwd_cuda(&cuda, &b));
    f.x = truth(x), f.wte = truth(wte), b.dwte = truth(dwte), b.dx = truth(dx);
    PLAIN(embed_fwd, &f);
    PLAIN(embed_bwd, &b);
    near("embed x without positions", x, 0);
    near("embed dwte without positions", dwte, 1e-12);
    done(s);
}

static void elementwise(struct set *s, enum dtype t, int64_t n)
{
    struct cuda cuda = emulated_cuda();
    struct pair *x = add(s, t, n, 2), *y = add(s, t, n, 1), *dy = add(s, t, n, 1),
                *dx = add(s, t, n, 1), *z = add(s, t, n, 1);
    ran(gelu_fwd_cuda(&cuda, &(struct gelu_fwd){y->half, x->half, n, GELU_KIND_TANH}));
    ran(gelu_bwd_cuda(&cuda, &(struct gelu_bwd){dx->half, dy->half, x->half, n, GELU_KIND_TANH}));
    ran(drop_cuda(&cuda, &(struct drop){z->half, x->half, n, kt_dropout(0.3f)}));
    PLAIN(gelu_fwd, &(struct gelu_fwd){truth(y), truth(x), n, GELU_KIND_TANH});
    PLAIN(gelu_bwd, &(struct gelu_bwd){truth(dx), truth(dy), truth(x), n, GELU_KIND_TANH});
    PLAIN(drop, &(struct drop){truth(z), truth(x), n, kt_dropout(0.3f)});
    near("gelu y", y, limit_of(t));
    near("gelu dx", dx, limit_of(t));
    struct gelu_fwd ef = {y->half, x->half, n, GELU_KIND_ERF};
    struct gelu_bwd eb = {dx->half, dy->half, x->half, n, GELU_KIND_ERF};
    ran(gelu_fwd_cuda(&cuda, &ef));
    ran(gelu_bwd_cuda(&cuda, &eb));
    ef.y = truth(y), ef.x = truth(x), eb.dx = truth(dx), eb.dy = truth(dy), eb.x = truth(x);
    PLAIN(gelu_fwd, &ef);
    PLAIN(gelu_bwd, &eb);
    near("exact gelu y", y, limit_of(t));
    near("exact gelu dx", dx, limit_of(t));
    near("drop y", z, limit_of(t));
    double got[2] = {1, 1}, want[2] = {1, 1};
    ran(sum_cuda(&cuda, &(struct sum){kt_f64(&got[0]), x->half, n, true}));
    ran(sumsq_cuda(&cuda, &(struct sumsq){kt_f64(&got[1]), x->half, n, true, false}));
    PLAIN(sum, &(struct sum){kt_f64(&want[0]), truth(x), n, true});
    PLAIN(sumsq, &(struct sumsq){kt_f64(&want[1]), truth(x), n, true, false});
    assert_true(fabs(got[0] - want[0]) <= 1e-9 * (double)n &&
                fabs(got[1] - want[1]) <= 1e-9 * (double)n);
    done(s);
}

static void squares(struct set *s, enum dtype t, int64_t n)
{
    struct cuda cuda = emulated_cuda();
    struct pair *x = add(s, t, n, 2), *y = add(s, t, n, 1), *dy = add(s, t, n, 1),
                *dx = add(s, t, n, 1);
    ran(relu2_fwd_cuda(&cuda, &(struct relu2_fwd){y->half, x->half, n}));
    ran(relu2_bwd_cuda(&cuda, &(struct relu2_bwd){dx->half, dy->half, x->half, n}));
    PLAIN(relu2_fwd, &(struct relu2_fwd){truth(y), truth(x), n});
    PLAIN(relu2_bwd, &(struct relu2_bwd){truth(dx), truth(dy), truth(x), n});
    near("relu2 y", y, limit_of(t));
    near("relu2 dx", dx, limit_of(t));
    done(s);
}

/* Logits that a soft cap makes, and their cross-entropy. */
static void capped(struct set *s, enum dtype t, int64_t n, int64_t v)
{
    struct cuda cuda = emulated_cuda();
    int32_t targets[8] = {0, 1, -1, 3, 2, 1, 0, 2};
    struct pair *x = add(s, t, n * (v + 3), 3), *z = add(s, t, n * (v + 3), 1.5f),
                *l = add(s, DTYPE_F32, n, 1);
    struct softcap cap = {x->half, n, v, v + 3, 2};
    struct xent xent = {z->half, l->half, kt_i32(targets), n, v, v + 3, 0.5f, true, 2, {0}};
    ran(softcap_cuda(&cuda, &cap));
    ran(xent_cuda(&cuda, &xent));
    cap.x = truth(x), xent.logits = truth(z), xent.losses = truth(l);
    PLAIN(softcap, &cap);
    PLAIN(xent, &xent);
    near("softcap x", x, limit_of(t));
    near("xent dlogits after a soft cap", z, limit_of(t));
    near("xent losses after a soft cap", l, 1e-11);
    done(s);
}

static void losses(struct set *s, enum dtype t, int64_t n, int64_t v)
{
    struct cuda cuda = emulated_cuda();
    int32_t targets[8] = {0, 1, -1, 3, 2, 1, 0, 2};
    struct pair *x = add(s, t, n * (v + 3), 3), *l = add(s, DTYPE_F32, n, 1),
                *qx = add(s, t, n * v * 2, 3);
    struct pair *ql = add(s, DTYPE_F32, 2 * n, 1), *qd = add(s, t, n * v * 2, 1);
    ran(xent_cuda(
        &cuda, &(struct xent){x->half, l->half, kt_i32(targets), n, v, v + 3, 0.5f, true, 0, {0}}));
    ran(qa_xent_cuda(&cuda, &(struct qa_xent){ql->half, qd->half, qx->half, kt_i32(targets),
                                              kt_i32(targets), n, v, 1, 2}));
    PLAIN(xent,
          &(struct xent){truth(x), truth(l), kt_i32(targets), n, v, v + 3, 0.5f, true, 0, {0}});
    PLAIN(qa_xent, &(struct qa_xent){truth(ql), truth(qd), truth(qx), kt_i32(targets),
                                     kt_i32(targets), n, v, 1, 2});
    near("xent dlogits", x, limit_of(t));
    near("xent losses", l, 1e-11);
    near("qa_xent dlogits", qd, limit_of(t));
    near("qa_xent losses", ql, 1e-11);
    done(s);
}

/* Of a vocabulary in two shards, one; targets lie in both. */
static void losses_of_shards(struct set *s, enum dtype t, int64_t n, int64_t v)
{
    struct cuda cuda = emulated_cuda();
    int32_t targets[8] = {0, 1, -1, 3, 2, 1, 0, 2};
    struct pair *x = add(s, t, n * (v + 3), 3), *l = add(s, DTYPE_F32, n, 1),
                *stats = add(s, DTYPE_F32, 6 * n, 1);
    struct xent_shard shard = {stats->half, x->half, kt_i32(targets), n, 2, v, v + 3};
    struct xent_join join = {.logits = x->half,
                             .losses = l->half,
                             .stats = stats->half,
                             .targets = shard.targets,
                             .n = n,
                             .v_first = 2,
                             .v_n = v,
                             .stride = v + 3,
                             .shards = 2,
                             .scale = 0.5f,
                             .want_grad = true};
    for (int64_t i = 3 * n; i < 6 * n; i++) /* sums are positive */
        ((float *)stats->half.data)[i] = stats->truth[i] = fabsf(stats->truth[i]);
    ran(xent_shard_cuda(&cuda, &shard));
    ran(xent_join_cuda(&cuda, &join));
    shard.stats = truth(stats), shard.logits = truth(x);
    join.stats = truth(stats), join.logits = truth(x), join.losses = truth(l);
    PLAIN(xent_shard, &shard);
    PLAIN(xent_join, &join);
    near("xent_shard stats", stats, 1e-11);
    near("xent_join dlogits", x, limit_of(t));
    near("xent_join losses", l, 1e-11);
    done(s);
}

/* Rows whose largest logit, 2, is in several columns, among them the target (even rows, where it is
 * the first) or a column before it. Whole, and in two shards that end at each column. */
static void hits_of_rows(struct set *s, enum dtype t, int64_t n, int64_t v)
{
    struct cuda cuda = emulated_cuda();
    int32_t targets[8];
    struct pair *x = add(s, t, n * v, 1), *l = add(s, DTYPE_F32, n, 1),
                *hits = add(s, DTYPE_F32, n, 1), *stats = add(s, DTYPE_F32, 6 * n, 1);
    const size_t bytes = dtype_bytes(t);
    for (int64_t row = 0; row < n; row++) {
        targets[row] = row == 5 ? -1 : (int32_t)(row * 3 % v);
        for (int64_t i = 0; i < v; i++) {
            const bool is_top = i >= targets[row] || (row % 2 && i + 1 == targets[row]);
            const float value = is_top ? 2 : -1;
            if (t == DTYPE_F32)
                ((float *)x->half.data)[row * v + i] = value;
            else
                ((uint16_t *)x->half.data)[row * v + i] = to_bits(t, value);
        }
    }
    for (int64_t cut = 0; cut < v; cut++) {
        struct xent whole = {.logits = x->half,
                             .losses = l->half,
                             .targets = kt_i32(targets),
                             .n = n,
                             .v = v,
                             .stride = v,
                             .hits = hits->half};
        float sum[8] = {0};
        if (cut == 0)
            ran(xent_cuda(&cuda, &whole));
        for (int i = 0; i < 2 && cut > 0; i++)
            ran(xent_shard_cuda(
                &cuda, &(struct xent_shard){tensor_at(stats->half, 3 * n * i),
                                            {(char *)x->half.data + (size_t)(i * cut) * bytes, t},
                                            kt_i32(targets),
                                            n,
                                            i * cut,
                                            i ? v - cut : cut,
                                            v}));
        for (int i = 0; i < 2; i++) {
            if (cut > 0)
                ran(xent_join_cuda(
                    &cuda, &(struct xent_join){
                               .logits = {(char *)x->half.data + (size_t)(i * cut) * bytes, t},
                               .losses = l->half,
                               .stats = stats->half,
                               .targets = kt_i32(targets),
                               .n = n,
                               .v_first = i * cut,
                               .v_n = i ? v - cut : cut,
                               .stride = v,
                               .shards = 2,
                               .hits = hits->half}));
            for (int64_t row = 0; row < n && (cut > 0 || i == 0); row++)
                sum[row] += ((float *)hits->half.data)[row];
        }
        for (int64_t row = 0; row < n; row++) {
            const bool is_hit = targets[row] == 0 || (targets[row] > 0 && row % 2 == 0);
            if (sum[row] != (is_hit ? 1 : 0))
                fail_msg("dtype %d, cut %lld, row %lld: hits %g", t, (long long)cut, (long long)row,
                         (double)sum[row]);
        }
    }
    done(s);
}

static void branches(struct set *s, enum dtype t, int64_t n, int64_t c)
{
    struct cuda cuda = emulated_cuda();
    struct pair *y = add(s, t, n * c, 1), *x = add(s, t, n * c, 1), *b = add(s, t, c, 1),
                *residual = add(s, t, n * c, 1);
    struct branch_add a = {y->half, x->half, b->half, residual->half, n, c, kt_dropout(0.3f)};
    ran(branch_add_cuda(&cuda, &a));
    a.y = truth(y), a.x = truth(x), a.b = truth(b), a.residual = truth(residual);
    PLAIN(branch_add, &a);
    near("branch_add y", y, limit_of(t));
    done(s);
}

TEST(all_match_plain)
{
    struct set s = {0};
    for (int t = DTYPE_BF16; t <= DTYPE_F16; t++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            emu_seed(seed);
            norm(&s, (enum dtype)t, 37, 128);
            norm(&s, (enum dtype)t, 5, 33);
            norm(&s, (enum dtype)t, 9, 768); /* of each number of vectors that a lane keeps */
            norm(&s, (enum dtype)t, 5, 1000);
            norm(&s, (enum dtype)t, 20, 1280);
            norm(&s, (enum dtype)t, 9, 1600);
            norm(&s, (enum dtype)t, 3, 2304);  /* kept no more */
            norm(&s, (enum dtype)t, 3, 13000); /* wider than the copies of dw and db that fit */
            rms(&s, (enum dtype)t, 37, 128);
            rms(&s, (enum dtype)t, 40, 33);
            rms(&s, (enum dtype)t, 9, 768);
            rms(&s, (enum dtype)t, 9, 2048);
            rms(&s, (enum dtype)t, 3, 2304);
            rms(&s, (enum dtype)t, 2, 26000);
            head_norm(&s, (enum dtype)t, 40, 3, 128, 64);
            head_norm(&s, (enum dtype)t, 20, 5, 64, 0);
            head_norm(&s, (enum dtype)t, 20, 4, 80, 5); /* rows that begin anywhere */
            head_norm(&s, (enum dtype)t, 9, 2, 520, 8);
            rope(&s, (enum dtype)t, 21, 4, 2, 64, 64);
            rope(&s, (enum dtype)t, 9, 3, 3, 32, 16);
            rope(&s, (enum dtype)t, 9, 5, 5, 10, 6);
            swiglu(&s, (enum dtype)t, 9, 640);
            swiglu(&s, (enum dtype)t, 70, 33);
            embed(&s, (enum dtype)t, 40, 48);
            embed(&s, (enum dtype)t, 10, 5);
            elementwise(&s, (enum dtype)t, 3000);
            elementwise(&s, (enum dtype)t, 1001);
            squares(&s, (enum dtype)t, 5003);
            capped(&s, (enum dtype)t, 8, 1000);
            capped(&s, (enum dtype)t, 5, 5003);
            losses(&s, (enum dtype)t, 8, 1000);
            losses(&s, (enum dtype)t, 5, 5003);
            losses_of_shards(&s, (enum dtype)t, 8, 1000);
            losses_of_shards(&s, (enum dtype)t, 5, 5003);
            hits_of_rows(&s, (enum dtype)t, 8, 37);
            branches(&s, (enum dtype)t, 7, 48);
            branches(&s, (enum dtype)t, 9, 33);
        }
}

TEST(columns_are_summed)
{
    static const int64_t shapes[][3] = {
        {0, 5, 5}, {1, 1, 1}, {70, 33, 40}, {1000, 64, 64}, {33000, 3, 3}};
    for (int t = DTYPE_F32; t <= DTYPE_F16; t++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                struct set s = {0};
                struct cuda cuda = emulated_cuda();
                int64_t n = shapes[k][0], c = shapes[k][1], stride = shapes[k][2];
                struct pair *x = add(&s, (enum dtype)t, n * stride + 1, 1),
                            *out = add(&s, DTYPE_F32, c, 1);
                for (int64_t j = 0; j < c; j++) {
                    double sum = accumulate ? out->truth[j] : 0;
                    for (int64_t i = 0; i < n; i++)
                        sum += x->truth[i * stride + j];
                    out->truth[j] = (float)sum;
                }
                emu_seed((uint64_t)k);
                ran(column_sum_cuda(
                    &cuda, &(struct column_sum){out->half, x->half, n, c, stride, accumulate}));
                near("column_sum", out, 1e-12);
                done(&s);
            }
}

/* ---- GELU of every 16-bit number ---- */

enum { ALL = 65536 };

/* The position of a number among all of its type. */
static int rank_of(uint16_t bits) { return bits & 0x8000 ? 0x8000 - bits : bits; }

/* Compares the halves with the floats, rounded. A result near 0 whose error is below `least` is as
 * good as an equal one. */
static void count_ulps(const char *what, enum dtype t, const uint16_t *got, const float *exact,
                       float least)
{
    int64_t differ = 0, most = 0;
    for (int i = 0; i < ALL; i++) {
        int64_t ulps = llabs((long long)rank_of(got[i]) - rank_of(to_bits(t, exact[i])));
        if (isnan(exact[i]) && isnan(from_bits(t, got[i])))
            continue;
        if (fabsf(from_bits(t, got[i]) - exact[i]) < least)
            ulps = ulps > 0;
        differ += ulps > 0;
        most = ulps > most ? ulps : most;
    }
    print_message("# %s, dtype %d, error %g: %lld of 65536 differ, by %lld units at most\n", what,
                  t, (double)emu_quick_error, (long long)differ, (long long)most);
    if (most > 1)
        fail_msg("%s, dtype %d: %lld units in the last place", what, t, (long long)most);
}

/* 16-bit results of the quick form against results in float: within one unit in the last place,
 * whatever the sign of the instructions' greatest error. The gradient crosses 0 near -0.75: there
 * an error of 2^-20 is allowed instead, a thousandth of a unit of f16 at 1. */
static void gelu_kind_of_every_half(enum gelu_kind kind)
{
    static const float errors[] = {0, 0x1p-22f, -0x1p-22f};
    /* The quick exponential is 0 where the exact one is subnormal: of x near -13. Else a product
     * just below 2^-126 may be flushed to 0. */
    float least = kind == GELU_KIND_ERF ? 0x1p-120f : 0x1p-125f;
    struct cuda cuda = emulated_cuda();
    uint16_t *x = malloc(ALL * sizeof *x), *dy = malloc(ALL * sizeof *x),
             *y = malloc(ALL * sizeof *x), *dx = malloc(ALL * sizeof *x);
    float *xf = malloc(ALL * sizeof *xf), *dyf = malloc(ALL * sizeof *xf),
          *yf = malloc(ALL * sizeof *xf), *dxf = malloc(ALL * sizeof *xf);
    assert_true(x && dy && y && dx && xf && dyf && yf && dxf);
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++)
        for (int e = 0; e < 3; e++) {
            enum dtype t = (enum dtype)dtype;
            for (int i = 0; i < ALL; i++) {
                x[i] = (uint16_t)i, xf[i] = from_bits(t, x[i]);
                dy[i] = to_bits(t, 1), dyf[i] = 1;
            }
            emu_quick_error = 0;
            ran(gelu_fwd_cuda(&cuda, &(struct gelu_fwd){kt_f32(yf), kt_f32(xf), ALL, kind}));
            ran(gelu_bwd_cuda(&cuda,
                              &(struct gelu_bwd){kt_f32(dxf), kt_f32(dyf), kt_f32(xf), ALL, kind}));
            emu_quick_error = errors[e];
            ran(gelu_fwd_cuda(&cuda, &(struct gelu_fwd){{y, t}, {x, t}, ALL, kind}));
            ran(gelu_bwd_cuda(&cuda, &(struct gelu_bwd){{dx, t}, {dy, t}, {x, t}, ALL, kind}));
            count_ulps("gelu", t, y, yf, least);
            count_ulps("gelu's gradient", t, dx, dxf, 0x1p-20f);
        }
    emu_quick_error = 0;
    void *all[] = {x, dy, y, dx, xf, dyf, yf, dxf};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

TEST(gelu_of_every_half)
{
    gelu_kind_of_every_half(GELU_KIND_TANH);
    gelu_kind_of_every_half(GELU_KIND_ERF);
}

/* Types that do not go together, and work beyond the scratch, are refused before anything runs. */
TEST(refusals)
{
    struct cuda cuda = emulated_cuda();
    float f[8] = {0};
    struct tensor t = kt_f32(f), h = {f, DTYPE_BF16}, i = {f, DTYPE_I32};
    assert_int_equal(gelu_fwd_cuda(&cuda, &(struct gelu_fwd){.y = i, .x = i, .n = 4}),
                     CUDA_REFUSAL_DTYPE);
    assert_int_equal(
        norm_fwd_cuda(&cuda, &(struct norm_fwd){.y = t, .x = h, .w = h, .n = 1, .c = 4, .eps = 1}),
        CUDA_REFUSAL_DTYPE);
    assert_int_equal(adamw_cuda(&cuda, &(struct adamw){.p = h, .g = t, .m = t, .v = t, .step = 1}),
                     CUDA_REFUSAL_DTYPE);
    assert_int_equal(swiglu_fwd_cuda(&cuda, &(struct swiglu_fwd){t, h, 1, 4}), CUDA_REFUSAL_DTYPE);
    assert_int_equal(
        rope_cuda(
            &cuda,
            &(struct rope){.x = t, .table = h, .n = 1, .t = 1, .h = 1, .hk = 1, .d = 2, .rot = 2}),
        CUDA_REFUSAL_DTYPE);
    struct head_norm_bwd heads = {t, t, t, t, t, 1, 1, 1032, 1032, 1, false};
    assert_int_equal(head_norm_bwd_cuda(&cuda, &heads), CUDA_REFUSAL_SHAPE);
    heads.dw = h;
    assert_int_equal(head_norm_bwd_cuda(&cuda, &heads), CUDA_REFUSAL_DTYPE);
    cuda.scratch_bytes = 16;
    heads.dw = t, heads.d = heads.stride = 8;
    assert_int_equal(head_norm_bwd_cuda(&cuda, &heads), CUDA_REFUSAL_SCRATCH);
    assert_int_equal(embed_bwd_cuda(&cuda, &(struct embed_bwd){.dwte = t,
                                                               .dwpe = t,
                                                               .dx = t,
                                                               .tokens = i,
                                                               .n = 8,
                                                               .t = 8,
                                                               .c = 1,
                                                               .v = 8,
                                                               .context = 8}),
                     CUDA_REFUSAL_SCRATCH);
    assert_int_equal(column_sum_cuda(&cuda, &(struct column_sum){t, t, 1, 8, 8, false}),
                     CUDA_REFUSAL_SCRATCH);
}

HARNESS_RUN_ALL()
