/* bench_kernels — every kernel except products, at GPT-2 124M's shapes, those of other
 * architectures at SmolLM2 135M's or Qwen3 0.6B's, as a share of its limit: the FMA peak
 * (attention) or the bandwidth of updating in place (all others), measured in the same run.
 *
 *   bench_kernels [level=avx2] [gates] [NAME]…
 *     level: sse4, avx2, avx512 or amx; default: the best of this machine
 *     gates: ends with 1 where a kernel of GPT-2 is below its gate (attention, cross-entropy, GELU,
 *            LayerNorm, dropout, AdamW)
 *     NAME: only the groups named: attention, decode, elements, other, vocabulary, params */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_level.h"
#include "base/clock.h"
#include "base/assert.h"
#include "base/rand.h"
#include "base/text.h"
#include "dev/dev.h"
#include "kernels/cpu.h"

#define C 768
#define H 12
#define V 50257
#define V_STRIDE 50304
#define N 1024
#define PARAMS ((int64_t)124439808)
#define REPEATS 9

static struct dev *dev;
static struct stream *stream;
static struct bench_level level;
static double peak_flops, peak_bytes;

static void must(enum status st) { ASSERTF(st == ST_OK, "%s", status_message()); }

static struct tensor floats(int64_t n, float scale)
{
    void *data;
    must(dev_alloc(dev, (size_t)n * sizeof(float), &data));
    for (int64_t i = 0; i < n && scale > 0; i++)
        ((float *)data)[i] =
            scale * ((float)(rand_u32(1, 1, (uint64_t)i) >> 8) / 8388608.0f - 1.0f);
    return (struct tensor){data, DTYPE_F32};
}

static void release(struct tensor t, int64_t n)
{
    dev_free(dev, t.data, (size_t)n * sizeof(float));
}

/* The best of REPEATS timings, in seconds. */
#define TIME(call)                                                  \
    __extension__({                                                 \
        double best_ = 1e9;                                         \
        for (int repeat_ = 0; repeat_ < REPEATS; repeat_++) {       \
            int64_t begin_ = clock_ns();                            \
            must(call);                                             \
            double elapsed_ = 1e-9 * (double)(clock_ns() - begin_); \
            best_ = elapsed_ < best_ ? elapsed_ : best_;            \
        }                                                           \
        best_;                                                      \
    })

/* What GPT-2's kernels must reach of their limits; the groups of other models have no gate. */
#define GATE_FLOPS 0.75
#define GATE_BYTES 0.85
static bool is_gated;
static int missed_n;

static void show(const char *name, const char *shape, double seconds, double work, bool is_flops)
{
    double share = work / seconds / (is_flops ? peak_flops : peak_bytes);
    bool is_missed = is_gated && share < (is_flops ? GATE_FLOPS : GATE_BYTES);
    missed_n += is_missed;
    printf("%-14s %-22s %9.3f ms %8.1f %s %6.1f %%%s\n", name, shape, seconds * 1e3,
           work / seconds * 1e-9, is_flops ? "GFLOP/s" : "GB/s   ", 100 * share,
           is_missed ? "   below its gate" : "");
    fflush(stdout);
}

/* Heads of attention: query and key heads, width. */
struct heads {
    int64_t h, hk, d;
};

static void bench_attention(int64_t b, int64_t t, struct heads x, float p)
{
    int64_t n = b * t, c = x.h * x.d, row = (x.h + 2 * x.hk) * x.d;
    char shape[64];
    struct tensor qkv = floats(n * row, 1), out = floats(n * c, 0), dout = floats(n * c, 1),
                  dqkv = floats(n * row, 0), lse = floats(n * x.h, 0);
    struct dropout d = {.p = p, .seed = 1, .stream = 2};
    struct attention_fwd f = {.out = out,
                              .lse = lse,
                              .qkv = qkv,
                              .b = b,
                              .t = t,
                              .h = x.h,
                              .hk = x.hk,
                              .d = x.d,
                              .dropout = d};
    struct attention_bwd g = {.dqkv = dqkv,
                              .dout = dout,
                              .out = out,
                              .qkv = qkv,
                              .lse = lse,
                              .b = b,
                              .t = t,
                              .h = x.h,
                              .hk = x.hk,
                              .d = x.d,
                              .dropout = d};
    double fwd = TIME(dev_op(dev)->attention_fwd(stream, &f)),
           bwd = TIME(dev_op(dev)->attention_bwd(stream, &g));
    /* causal half: scores and values, 2 per multiply-add */
    double flops = 2.0 * (double)(c * t * n);
    text_format(shape, sizeof shape, "B%lld T%lld %lld+%lldxD%lld %s", (long long)b, (long long)t,
                (long long)x.h, (long long)x.hk, (long long)x.d, p > 0 ? "drop" : "");
    show("attention_fwd", shape, fwd, flops, true);
    show("attention_bwd", shape, bwd, 2 * flops, true);
    show("  both", shape, fwd + bwd, 3 * flops, true);
    release(qkv, n * row), release(dqkv, n * row), release(out, n * c), release(dout, n * c),
        release(lse, n * x.h);
}

/* The last of t queries: keys and values are read once. */
static void bench_decode(int64_t t, struct heads x)
{
    int64_t row = (x.h + 2 * x.hk) * x.d;
    char shape[64];
    struct tensor qkv = floats(t * row, 1), out = floats(x.h * x.d, 0);
    struct attention_decode a = {
        .out = out, .qkv = qkv, .b = 1, .t = t, .h = x.h, .hk = x.hk, .d = x.d};
    text_format(shape, sizeof shape, "T%lld %lld+%lldxD%lld", (long long)t, (long long)x.h,
                (long long)x.hk, (long long)x.d);
    show("attn_decode", shape, TIME(dev_op(dev)->attention_decode(stream, &a)),
         8.0 * (double)(t * x.hk * x.d), false);
    release(qkv, t * row), release(out, x.h * x.d);
}

static void bench_rows(void)
{
    struct tensor x = floats(N * C, 1), y = floats(N * C, 0), dy = floats(N * C, 1),
                  res = floats(N * C, 1), w = floats(C, 1);
    struct tensor mean = floats(N, 0), rstd = floats(N, 0), dw = floats(C, 0), db = floats(C, 0);
    struct norm_fwd f = {
        .y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = w, .n = N, .c = C, .eps = 1e-5f};
    struct norm_bwd g = {.dx = y,
                         .dw = dw,
                         .db = db,
                         .dy = dy,
                         .x = x,
                         .mean = mean,
                         .rstd = rstd,
                         .w = w,
                         .dresidual = res,
                         .n = N,
                         .c = C};
    struct drop d = {.y = y, .x = x, .n = N * C, .dropout = {.p = 0.1f, .seed = 1, .stream = 1}};
    show("norm_fwd", "N1024 C768", TIME(dev_op(dev)->norm_fwd(stream, &f)), 8.0 * N * C, false);
    show("norm_bwd", "N1024 C768", TIME(dev_op(dev)->norm_bwd(stream, &g)), 16.0 * N * C, false);
    show("drop", "N1024 C768", TIME(dev_op(dev)->drop(stream, &d)), 8.0 * N * C, false);
    release(x, N * C), release(y, N * C), release(dy, N * C), release(res, N * C);
    release(w, C), release(mean, N), release(rstd, N), release(dw, C), release(db, C);
}

static void bench_gelu(void)
{
    int64_t n = N * 4 * C;
    struct tensor x = floats(n, 2), y = floats(n, 0), dy = floats(n, 1);
    struct gelu_fwd f = {.y = y, .x = x, .n = n};
    struct gelu_bwd g = {.dx = y, .dy = dy, .x = x, .n = n};
    show("gelu_fwd", "N1024 4C", TIME(dev_op(dev)->gelu_fwd(stream, &f)), 8.0 * (double)n, false);
    show("gelu_bwd", "N1024 4C", TIME(dev_op(dev)->gelu_bwd(stream, &g)), 12.0 * (double)n, false);
    release(x, n), release(y, n), release(dy, n);
}

/* Qwen3 0.6B: C 1024, MLP 3072, 16 query and 8 key heads of 128. */
enum { QC = 1024, QF = 3072, QH = 16, QK = 8, QD = 128, QROW = (QH + 2 * QK) * QD };

static void bench_rms(void)
{
    struct tensor x = floats(N * QC, 1), y = floats(N * QC, 0), dy = floats(N * QC, 1),
                  res = floats(N * QC, 1), w = floats(QC, 1), rstd = floats(N, 0),
                  dw = floats(QC, 0);
    struct norm_fwd f = {
        .y = y, .rstd = rstd, .x = x, .w = w, .n = N, .c = QC, .eps = 1e-6f, .kind = NORM_KIND_RMS};
    struct norm_bwd g = {.dx = y,
                         .dw = dw,
                         .dy = dy,
                         .x = x,
                         .rstd = rstd,
                         .w = w,
                         .dresidual = res,
                         .n = N,
                         .c = QC,
                         .kind = NORM_KIND_RMS};
    show("norm_fwd RMS", "N1024 C1024", TIME(dev_op(dev)->norm_fwd(stream, &f)), 8.0 * N * QC,
         false);
    show("norm_bwd RMS", "N1024 C1024", TIME(dev_op(dev)->norm_bwd(stream, &g)), 16.0 * N * QC,
         false);
    release(x, N * QC), release(y, N * QC), release(dy, N * QC), release(res, N * QC);
    release(w, QC), release(rstd, N), release(dw, QC);
}

/* The rows of queries, keys and values. */
static void bench_heads(void)
{
    double q = (double)N * QH * QD, turned = (double)N * (QH + QK) * QD;
    struct tensor x = floats(N * QROW, 1), y = floats(N * QROW, 0), dy = floats(N * QROW, 1),
                  w = floats(QD, 1), dw = floats(QD, 0), table = floats(N * QD, 0);
    struct head_norm_fwd f = {y, x, w, N, QH, QD, QROW, 1e-6f};
    struct head_norm_bwd g = {y, dw, dy, x, w, N, QH, QD, QROW, 1e-6f, false};
    struct rope_table t = {.table = table, .t = N, .rot = QD, .scale = 1};
    struct rope r = {.x = x, .table = table, .n = N, .t = N, .h = QH, .hk = QK, .d = QD, .rot = QD};
    for (int i = 0; i < QD / 2; i++)
        t.freq[i] = 1.0f / (float)(1 + i * i);
    show("head_norm_fwd", "N1024 H16 D128", TIME(dev_op(dev)->head_norm_fwd(stream, &f)), 8 * q,
         false);
    show("head_norm_bwd", "N1024 H16 D128", TIME(dev_op(dev)->head_norm_bwd(stream, &g)), 12 * q,
         false);
    show("rope_table", "T1024 R128", TIME(dev_op(dev)->rope_table(stream, &t)), 4.0 * N * QD,
         false);
    show("rope", "N1024 H16+8 R128", TIME(dev_op(dev)->rope(stream, &r)), 8 * turned + 4.0 * N * QD,
         false);
    release(x, N * QROW), release(y, N * QROW), release(dy, N * QROW), release(w, QD);
    release(dw, QD), release(table, N * QD);
}

static void bench_gates(void)
{
    double n = (double)N * QF;
    struct tensor gu = floats(2 * N * QF, 2), y = floats(N * QF, 0), dgu = floats(2 * N * QF, 0);
    struct swiglu_fwd f = {y, gu, N, QF};
    struct swiglu_bwd g = {dgu, y, gu, N, QF};
    struct gelu_fwd e = {y, gu, N * QF, GELU_KIND_ERF};
    struct gelu_bwd h = {dgu, y, gu, N * QF, GELU_KIND_ERF};
    show("swiglu_fwd", "N1024 F3072", TIME(dev_op(dev)->swiglu_fwd(stream, &f)), 12 * n, false);
    show("swiglu_bwd", "N1024 F3072", TIME(dev_op(dev)->swiglu_bwd(stream, &g)), 20 * n, false);
    show("gelu_fwd ERF", "N1024 F3072", TIME(dev_op(dev)->gelu_fwd(stream, &e)), 8 * n, false);
    show("gelu_bwd ERF", "N1024 F3072", TIME(dev_op(dev)->gelu_bwd(stream, &h)), 12 * n, false);
    release(gu, 2 * N * QF), release(y, N * QF), release(dgu, 2 * N * QF);
}

static void bench_vocabulary(void)
{
    struct tensor logits = floats((int64_t)N * V_STRIDE, 1), losses = floats(N, 0),
                  targets = floats(N, 0);
    struct tensor wte = floats((int64_t)V * C, 1), wpe = floats(N * C, 1), x = floats(N * C, 1);
    targets.dtype = DTYPE_I32;
    for (int64_t i = 0; i < N; i++)
        ((int32_t *)targets.data)[i] = (int32_t)(rand_u32(1, 2, (uint64_t)i) % V);
    struct xent a = {logits, losses, targets, N, V, V_STRIDE, 1e-3f, true, 0, {0}};
    struct embed_fwd f = {
        .x = x, .tokens = targets, .wte = wte, .wpe = wpe, .n = N, .t = N, .c = C};
    struct embed_bwd g = {.dwte = wte,
                          .dwpe = wpe,
                          .dx = x,
                          .tokens = targets,
                          .n = N,
                          .t = N,
                          .c = C,
                          .v = V,
                          .context = N};
    show("xent", "N1024 V50257", TIME(dev_op(dev)->xent(stream, &a)), 8.0 * N * V, false);
    a.want_grad = false;
    show("xent, no grad", "N1024 V50257", TIME(dev_op(dev)->xent(stream, &a)), 4.0 * N * V, false);
    show("embed_fwd", "N1024 C768", TIME(dev_op(dev)->embed_fwd(stream, &f)), 12.0 * N * C, false);
    show("embed_bwd", "N1024 C768", TIME(dev_op(dev)->embed_bwd(stream, &g)), 20.0 * N * C, false);
    release(logits, (int64_t)N * V_STRIDE), release(losses, N), release(targets, N);
    release(wte, (int64_t)V * C), release(wpe, N * C), release(x, N * C);
}

/* The vocabulary in two shards, the first of which is here. */
static void bench_vocabulary_shard(void)
{
    int64_t half = V_STRIDE / 2;
    struct tensor logits = floats(N * half, 1), losses = floats(N, 0), targets = floats(N, 0),
                  stats = floats(2 * 3 * N, 0);
    targets.dtype = DTYPE_I32;
    struct xent_shard shard = {stats, logits, targets, N, 0, half, half},
                      other = {tensor_at(stats, 3 * N), logits, targets, N, half, half, half};
    struct xent_join join = {.logits = logits,
                             .losses = losses,
                             .stats = stats,
                             .targets = targets,
                             .n = N,
                             .v_n = half,
                             .stride = half,
                             .shards = 2,
                             .scale = 1e-3f,
                             .want_grad = true};
    double bytes = 4.0 * (double)(N * half);
    must(dev_op(dev)->xent_shard(stream, &other));
    show("xent_shard", "N1024 V25152", TIME(dev_op(dev)->xent_shard(stream, &shard)), bytes, false);
    show("xent_join", "N1024 V25152", TIME(dev_op(dev)->xent_join(stream, &join)), 2 * bytes,
         false);
    release(logits, N * half), release(losses, N), release(targets, N), release(stats, 2 * 3 * N);
}

static void bench_params(struct tensor p)
{
    struct tensor g = floats(PARAMS, 0), m = floats(PARAMS, 0), v = floats(PARAMS, 0),
                  sum = floats(2, 0);
    struct optim_span span = {0, PARAMS, 0.1f};
    sum.dtype = DTYPE_F64;
    struct adamw a = {.p = p,
                      .g = g,
                      .m = m,
                      .v = v,
                      .spans = &span,
                      .spans_n = 1,
                      .lr = 1e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.999,
                      .eps = 1e-8,
                      .step = 10};
    struct sgd b = {.p = p,
                    .g = g,
                    .m = m,
                    .spans = &span,
                    .spans_n = 1,
                    .lr = 1e-4,
                    .momentum = 0.9,
                    .step = 10};
    struct sumsq s = {sum, g, PARAMS, false, false};
    struct sum t = {sum, g, PARAMS, false};
    show("sumsq", "124M", TIME(dev_op(dev)->sumsq(stream, &s)), 4.0 * PARAMS, false);
    struct checksum c = {.out = sum.data, .x = g, .n = PARAMS};
    show("checksum", "124M", TIME(dev_op(dev)->checksum(stream, &c)), 4.0 * PARAMS, false);
    show("sum", "124M", TIME(dev_op(dev)->sum(stream, &t)), 4.0 * PARAMS, false);
    show("adamw", "124M", TIME(dev_op(dev)->adamw(stream, &a)), 28.0 * PARAMS, false);
    struct optim_sums bits = {0};
    a.sums = b.sums = &bits;
    show("adamw", "124M, sums of bits", TIME(dev_op(dev)->adamw(stream, &a)), 28.0 * PARAMS, false);
    show("sgd", "124M, sums of bits", TIME(dev_op(dev)->sgd(stream, &b)), 20.0 * PARAMS, false);
    b.sums = NULL;
    show("sgd", "124M", TIME(dev_op(dev)->sgd(stream, &b)), 20.0 * PARAMS, false);
    release(g, PARAMS), release(m, PARAMS), release(v, PARAMS), release(sum, 2);
}

static void bench_attentions(struct tensor p)
{
    struct heads gpt2 = {H, H, C / H}, smollm2 = {9, 3, 64}, qwen3 = {QH, QK, QD};
    (void)p;
    bench_attention(1, 1024, gpt2, 0);
    bench_attention(4, 256, gpt2, 0);
    is_gated = false;
    bench_attention(1, 1024, gpt2, 0.1f);
    bench_attention(1, 1024, smollm2, 0);
    bench_attention(4, 256, smollm2, 0);
    bench_attention(1, 1024, qwen3, 0);
}

static void bench_decodes(struct tensor p)
{
    (void)p;
    bench_decode(8192, (struct heads){H, H, C / H});
    bench_decode(8192, (struct heads){QH, QK, QD});
}

static void bench_elements(struct tensor p)
{
    (void)p;
    bench_rows();
    bench_gelu();
}

static void bench_other(struct tensor p)
{
    (void)p;
    bench_rms();
    bench_heads();
    bench_gates();
}

static void bench_vocabularies(struct tensor p)
{
    (void)p;
    bench_vocabulary();
    is_gated = false;
    bench_vocabulary_shard();
}

static const struct group {
    const char *name;
    void (*run)(struct tensor p);
    bool is_gated;
} groups[] = {{"attention", bench_attentions, true},    {"decode", bench_decodes, false},
              {"elements", bench_elements, true},       {"other", bench_other, false},
              {"vocabulary", bench_vocabularies, true}, {"params", bench_params, true}};

static void measure_peaks(struct tensor p, int threads_n)
{
    struct cpu cpu = {0};
    must(thread_pool_open(threads_n, &cpu.pool));
    for (int i = 0; i < 3; i++) { /* the best of three: a first one may find the core asleep */
        double flops = level.fma(&cpu, 0.02);
        peak_flops = flops > peak_flops ? flops : peak_flops;
    }
    peak_bytes = level.update(&cpu, p.data, PARAMS, REPEATS);
    thread_pool_close(cpu.pool);
}

int main(int argc, char **argv)
{
    struct dev_info info;
    level = bench_level_of(bench_level_pop(&argc, argv));
    bool has_gates = bench_level_word(&argc, argv, "gates"), is_all = argc < 2;
    must(dev_cpu_open(0, (int)level.isa, &dev));
    must(dev_stream_open(dev, &stream));
    dev_info(dev, &info);
    struct tensor p = floats(PARAMS, 0);
    measure_peaks(p, info.threads_n);
    printf("%s: FMA peak %.0f GFLOP/s, update in place %.1f GB/s\n", info.name, peak_flops * 1e-9,
           peak_bytes * 1e-9);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        is_gated = groups[i].is_gated;
        if (is_all || bench_level_word(&argc, argv, groups[i].name))
            groups[i].run(p);
    }
    if (argc > 1)
        fprintf(stderr, "%s: no such group of kernels\n", argv[1]);
    release(p, PARAMS);
    dev_stream_close(stream);
    dev_close(dev);
    return argc > 1 || (has_gates && missed_n > 0) ? 1 : 0;
}
