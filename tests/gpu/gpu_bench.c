/* gpu_bench — operations of a step of GPT-2 124M (B=64, T=1024) against the limits of the GPU they
 * run on, one line each:
 *
 *   name<TAB>unit<TAB>value<TAB>share of the limit<TAB>milliseconds
 *
 * Operations run as the program runs them: through the device (dev_op), with its choice of library
 * or kernel, with its shapes and strides. "own" rows call this program's kernels where the device
 * may choose a library. "both forms" of a product stand side by side: with what is fused in, and
 * without. A value is the median of RUNS runs, from an event before and one after each. The limit
 * of an operation that moves memory is the copy bandwidth of the same run; bytes and operations are
 * op_cost's, and causal attention counts as half. Buffers are larger than the caches and hold
 * random numbers near one: zeros would make products faster than they are. An operation that is
 * refused is reported as refused; only measured values are printed. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantile.h"
#include "base/status.h"
#include "dev/dev.h"
#include "dev/cuda/cuda.h"
#include "dev/nvidia/library.h"
#include "dev/op_cost.h"
#include "kernels/column.h"
#include "kernels/cuda.h"
#include "real.h"

/* BENCH_DRY: the smallest sizes, on the emulation (tests/cuda/test_bench_cuda.c). Rows keep the
 * names of the true sizes. */
#ifdef BENCH_DRY
enum { B = 1, T = 32, C = 128, V = 100, STRIDE = 112, WIDE_STRIDE = 128, CHUNK = 16 };
enum { PARAMS = 1000, WARM = 1, RUNS = 2 };
#define MEMORY_BYTES ((size_t)64 << 20)
#define COPY_BYTES ((size_t)1 << 20)
#else
enum { B = 64, T = 1024, C = 768, V = 50257, STRIDE = 50272, WIDE_STRIDE = 50304, CHUNK = 8192 };
enum { PARAMS = 124439808, WARM = 5, RUNS = 20 };
#define MEMORY_BYTES ((size_t)12 << 30)
#define COPY_BYTES ((size_t)2 << 30)
#endif
enum { N = B * T };

static struct {
    const char *only; /* a word in the names to measure; NULL: all */
    struct dev *dev;
    struct stream *stream;
    struct cuda cuda; /* for "own" rows: the same stream */
    cudaEvent_t event[RUNS + 1];
    char *memory; /* what all cases take their tensors from */
    size_t used;
    double copy_rate;
} bench;

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "gpu_bench: %s: %s\n", what, why);
    exit(1);
}

static void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        give_up(what, cudaGetErrorString(error));
}

static void must(enum status st, const char *what)
{
    if (st != ST_OK)
        give_up(what, status_message());
}

/* ---- memory ---- */

static struct tensor allocate(int64_t n, enum dtype dtype)
{
    struct tensor t = {bench.memory + bench.used, dtype};
    bench.used += ((size_t)n * dtype_bytes(dtype) + 255) / 256 * 256;
    if (bench.used > MEMORY_BYTES)
        give_up("a case", "it needs more memory than MEMORY_BYTES");
    return t;
}

/* begin_case — memory as if nothing had been there: random numbers, 0.5 to 2 in size, as bf16 and
 * as fp32 alike. */
static void begin_case(void)
{
    static uint16_t some[1 << 20];
    uint32_t state = 1;
    bench.used = 0;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        state = state * 1664525u + 1013904223u;
        some[i] = (uint16_t)((state >> 16 & 0x80ffu) | 0x3f00u);
    }
    must(dev_copy(bench.stream, bench.memory, some, sizeof some), "memory");
    for (size_t done = sizeof some; done < MEMORY_BYTES; done *= 2)
        must(dev_copy(bench.stream, bench.memory + done, bench.memory,
                      done < MEMORY_BYTES - done ? done : MEMORY_BYTES - done),
             "memory");
    must(dev_sync(bench.stream), "memory");
}

/* ---- times ---- */

typedef int launch(const void *args);

/* Milliseconds of one launch, the median; < 0: refused. */
static double time_of(launch *fn, const void *args)
{
    double ms[RUNS];
    for (int i = 0; i < WARM; i++)
        if (fn(args) != 0)
            return -1;
    check(cudaEventRecord(bench.event[0], bench.cuda.stream), "an event");
    for (int i = 0; i < RUNS; i++) {
        if (fn(args) != 0)
            return -1;
        check(cudaEventRecord(bench.event[i + 1], bench.cuda.stream), "an event");
    }
    check(cudaEventSynchronize(bench.event[RUNS]), "a kernel");
    for (int i = 0; i < RUNS; i++) {
        float one;
        check(cudaEventElapsedTime(&one, bench.event[i], bench.event[i + 1]), "an event");
        ms[i] = (double)one;
    }
    return quantile_median(ms, RUNS);
}

static bool is_wanted(const char *name) { return !bench.only || strstr(name, bench.only); }

/* print_row — TFLOP/s of what multiplies, GB/s and its share of the copy bandwidth of the rest. */
static void print_row(const char *name, double ms, double flops, double bytes)
{
    const char *unit = flops > 0 ? "TFLOP/s" : "GB/s";
    double rate = (flops > 0 ? flops * 1e-3 : bytes) / ms * 1e-6;
    if (ms < 0)
        printf("%s\t%s\trefused\t\t\n", name, unit);
    else if (flops > 0)
        printf("%s\t%s\t%.1f\t\t%.4f\n", name, unit, rate, ms);
    else
        printf("%s\t%s\t%.1f\t%.3f\t%.4f\n", name, unit, rate, rate / bench.copy_rate, ms);
    fflush(stdout);
}

static int done(enum status st)
{
    if (st == ST_OK)
        return 0;
    fprintf(stderr, "gpu_bench: %s\n", status_message());
    return 1;
}

#define RUN(name)                                                 \
    static int step_##name(const void *args)                      \
    {                                                             \
        return done(dev_op(bench.dev)->name(bench.stream, args)); \
    }                                                             \
    static int own_##name(const void *args) { return name##_cuda(&bench.cuda, args); }
OP_LIST(RUN)
#define STEP_ROW(name) step_##name,
#define OWN_ROW(name) own_##name,
static launch *const step_of[] = {OP_LIST(STEP_ROW)}, *const own_of[] = {OP_LIST(OWN_ROW)};

static const char *dtype_text(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "bf16" : dtype == DTYPE_F16 ? "fp16" : "fp32";
}

/* measure — one row of an operation, as the program runs it, or by its own kernel. */
static void measure_as(const char *name, enum dtype dtype, enum op_kind op, const void *args,
                       bool is_own)
{
    char row[96];
    struct op_cost cost;
    snprintf(row, sizeof row, "%s%s %s", is_own ? "own " : "", name, dtype_text(dtype));
    if (is_wanted(row) && op_cost(op, args, &cost))
        print_row(row, time_of(is_own ? own_of[op] : step_of[op], args), (double)cost.flops,
                  (double)(cost.bytes_read + cost.bytes_written));
}

static void measure(const char *name, enum dtype dtype, enum op_kind op, const void *args)
{
    measure_as(name, dtype, op, args, false);
}

/* ---- copy ---- */

static int run_copy(const void *args)
{
    (void)args;
    return done(dev_copy(bench.stream, bench.memory, bench.memory + COPY_BYTES, COPY_BYTES));
}

/* Always measured: the limit of the others. */
static void bench_copy(void)
{
    double ms = time_of(run_copy, NULL);
    bench.copy_rate = 2.0 * (double)COPY_BYTES / ms * 1e-6;
    print_row("copy", ms, 0, 2.0 * (double)COPY_BYTES);
}

/* ---- what moves memory ---- */

static void bench_norm(enum dtype dtype)
{
    begin_case();
    struct norm_fwd f = {.y = allocate(N * C, dtype),
                         .mean = allocate(N, DTYPE_F32),
                         .rstd = allocate(N, DTYPE_F32),
                         .x = allocate(N * C, dtype),
                         .w = allocate(C, dtype),
                         .b = allocate(C, dtype),
                         .n = N,
                         .c = C,
                         .eps = 1e-5f};
    measure("norm_fwd 65536x768", dtype, OP_KIND_norm_fwd, &f);
    struct norm_bwd b = {.dx = allocate(N * C, dtype),
                         .dw = allocate(C, DTYPE_F32),
                         .db = allocate(C, DTYPE_F32),
                         .dy = allocate(N * C, dtype),
                         .x = f.x,
                         .mean = f.mean,
                         .rstd = f.rstd,
                         .w = f.w,
                         .dresidual = allocate(N * C, dtype),
                         .n = N,
                         .c = C};
    measure("norm_bwd 65536x768 residual", dtype, OP_KIND_norm_bwd, &b);
}

static void bench_gelu(enum dtype dtype)
{
    const int64_t n = (int64_t)N * 4 * C;
    begin_case();
    struct gelu_fwd f = {.y = allocate(n, dtype), .x = allocate(n, dtype), .n = n};
    measure("gelu_fwd 65536x3072", dtype, OP_KIND_gelu_fwd, &f);
    struct gelu_bwd b = {.dx = allocate(n, dtype), .dy = f.y, .x = f.x, .n = n};
    measure("gelu_bwd 65536x3072", dtype, OP_KIND_gelu_bwd, &b);
}

/* As many rows as there are logits at a time. */
static void bench_xent(enum dtype dtype, int64_t stride, const char *name)
{
    begin_case();
    struct xent a = {.logits = allocate(CHUNK * stride, dtype),
                     .losses = allocate(CHUNK, DTYPE_F32),
                     .targets = allocate(CHUNK, DTYPE_I32),
                     .n = CHUNK,
                     .v = V,
                     .stride = stride,
                     .scale = 1.0f / N,
                     .want_grad = true};
    must(dev_fill(bench.stream, a.targets.data, 0, CHUNK * sizeof(int32_t)), "targets");
    measure(name, dtype, OP_KIND_xent, &a);
}

static void bench_update(void)
{
    begin_case();
    struct optim_span span = {.offset = 0, .elems = PARAMS, .weight_decay = 0.1f};
    struct adamw a = {.p = allocate(PARAMS, DTYPE_F32),
                      .g = allocate(PARAMS, DTYPE_F32),
                      .m = allocate(PARAMS, DTYPE_F32),
                      .v = allocate(PARAMS, DTYPE_F32),
                      .spans = &span,
                      .spans_n = 1,
                      .grad_scale = allocate(1, DTYPE_F64),
                      .lr = 1e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .step = 1};
    measure("adamw 124M", DTYPE_F32, OP_KIND_adamw, &a);
    struct sumsq q = {.out = allocate(1, DTYPE_F64), .x = a.g, .n = PARAMS};
    measure("sumsq 124M", DTYPE_F32, OP_KIND_sumsq, &q);
    struct checksum k = {.out = allocate(CHECKSUM_N, DTYPE_F64).data, .x = a.p, .n = PARAMS};
    measure("checksum 124M", DTYPE_F32, OP_KIND_checksum, &k);
    a.sums = allocate(sizeof *a.sums, DTYPE_U8).data;
    measure("adamw 124M with sums", DTYPE_F32, OP_KIND_adamw, &a);
    struct cast c = {.y = allocate(PARAMS, DTYPE_BF16), .x = a.p, .n = PARAMS};
    measure("cast 124M", DTYPE_BF16, OP_KIND_cast, &c);
}

static void bench_embed(enum dtype dtype)
{
    static int32_t tokens[N];
    begin_case();
    struct embed_fwd f = {.x = allocate(N * C, dtype),
                          .tokens = allocate(N, DTYPE_I32),
                          .wte = allocate((int64_t)V * C, dtype),
                          .wpe = allocate(T * C, dtype),
                          .n = N,
                          .t = T,
                          .c = C};
    for (int64_t i = 0; i < N; i++) /* as in text: one token is at every 25th position */
        tokens[i] = i % 25 ? (int32_t)(i * 7919 % V) : 11;
    must(dev_copy(bench.stream, f.tokens.data, tokens, sizeof tokens), "tokens");
    must(dev_sync(bench.stream), "tokens");
    measure("embed_fwd 65536x768", dtype, OP_KIND_embed_fwd, &f);
    struct embed_bwd b = {.dwte = allocate((int64_t)V * C, DTYPE_F32),
                          .dwpe = allocate(T * C, DTYPE_F32),
                          .dx = f.x,
                          .tokens = f.tokens,
                          .n = N,
                          .t = T,
                          .c = C,
                          .v = V,
                          .context = T};
    measure("embed_bwd 65536x768", dtype, OP_KIND_embed_bwd, &b);
}

static int run_column_sum(const void *args) { return column_sum_cuda(&bench.cuda, args); }

/* The bias gradient of a product without it. */
static void bench_column(enum dtype dtype)
{
    char row[64];
    const int64_t n = N, c = 4 * C;
    snprintf(row, sizeof row, "column_sum 65536x3072 %s", dtype_text(dtype));
    if (!is_wanted(row))
        return;
    begin_case();
    struct column_sum a = {
        .out = allocate(c, DTYPE_F32), .x = allocate(n * c, dtype), .n = n, .c = c, .stride = c};
    print_row(row, time_of(run_column_sum, &a), 0, (double)(n * c) * (double)dtype_bytes(dtype));
}

/* ---- what multiplies ---- */

static void bench_attention(enum dtype dtype, int64_t d)
{
    const int64_t h = C / d, n = (int64_t)N * C;
    char name[64];
    begin_case();
    struct attention_fwd f = {.out = allocate(n, dtype),
                              .lse = allocate(B * h * T, DTYPE_F32),
                              .qkv = allocate(3 * n, dtype),
                              .b = B,
                              .t = T,
                              .h = h,
                              .hk = h,
                              .d = d};
    struct attention_bwd g = {.dqkv = allocate(3 * n, dtype),
                              .dout = allocate(n, dtype),
                              .out = f.out,
                              .qkv = f.qkv,
                              .lse = f.lse,
                              .b = B,
                              .t = T,
                              .h = h,
                              .hk = h,
                              .d = d};
    for (int is_own = 0; is_own < 2; is_own++) {
        snprintf(name, sizeof name, "attention_fwd B64 H%d T1024 D%d", d == 64 ? 12 : 6, (int)d);
        measure_as(name, dtype, OP_KIND_attention_fwd, &f, is_own);
        snprintf(name, sizeof name, "attention_bwd B64 H%d T1024 D%d", d == 64 ? 12 : 6, (int)d);
        measure_as(name, dtype, OP_KIND_attention_bwd, &g, is_own);
    }
}

/* One of a layer's four matrices, and what is folded into its products. */
struct layer {
    const char *name;
    int64_t in, out;
    bool is_gelu, is_residual; /* neither: a bias alone */
};
static const struct layer layers[] = {{"768x2304", C, 3 * C, false, false},
                                      {"768x768", C, C, false, true},
                                      {"768x3072", C, 4 * C, true, false},
                                      {"3072x768", 4 * C, C, false, true}};

static void bench_layer_fwd(enum dtype dtype, const struct layer *l)
{
    const struct tensor none = {0};
    char name[80];
    begin_case();
    struct matmul_fwd f = {.y = allocate(N * l->out, dtype),
                           .x = allocate(N * l->in, dtype),
                           .w = allocate(l->in * l->out, dtype),
                           .b = allocate(l->out, dtype),
                           .n = N,
                           .in = l->in,
                           .out = l->out,
                           .layout = MATMUL_LAYOUT_IO};
    struct tensor other = allocate(N * l->out, dtype);
    snprintf(name, sizeof name, "matmul_fwd %s bias", l->name);
    measure(name, dtype, OP_KIND_matmul_fwd, &f);
    f.pre = l->is_gelu ? other : none;
    f.act = l->is_gelu ? MATMUL_ACT_GELU : MATMUL_ACT_NONE;
    f.residual = l->is_residual ? other : none;
    snprintf(name, sizeof name, "matmul_fwd %s bias %s", l->name, l->is_gelu ? "gelu" : "residual");
    if (l->is_gelu || l->is_residual)
        measure(name, dtype, OP_KIND_matmul_fwd, &f);
    measure_as(name, dtype, OP_KIND_matmul_fwd, &f, true);
}

static void bench_layer_bwd_x(enum dtype dtype, const struct layer *l)
{
    char name[80];
    begin_case();
    struct matmul_bwd_x g = {.dx = allocate(N * l->in, dtype),
                             .dy = allocate(N * l->out, dtype),
                             .w = allocate(l->in * l->out, dtype),
                             .n = N,
                             .in = l->in,
                             .out = l->out,
                             .layout = MATMUL_LAYOUT_IO};
    snprintf(name, sizeof name, "matmul_bwd_x %s", l->name);
    measure(name, dtype, OP_KIND_matmul_bwd_x, &g);
    if (l->in <= l->out) {
        measure_as(name, dtype, OP_KIND_matmul_bwd_x, &g, true);
        return;
    }
    g.pre = allocate(N * l->in, dtype);
    snprintf(name, sizeof name, "matmul_bwd_x %s gelu", l->name);
    measure(name, dtype, OP_KIND_matmul_bwd_x, &g);
    measure_as(name, dtype, OP_KIND_matmul_bwd_x, &g, true);
}

static void bench_layer_bwd_w(enum dtype dtype, const struct layer *l)
{
    static const char *const forms[] = {"db", "db added", "alone"};
    char name[80];
    begin_case();
    struct matmul_bwd_w h = {.dw = allocate(l->in * l->out, DTYPE_F32),
                             .db = allocate(l->out, DTYPE_F32),
                             .x = allocate(N * l->in, dtype),
                             .dy = allocate(N * l->out, dtype),
                             .n = N,
                             .in = l->in,
                             .out = l->out,
                             .layout = MATMUL_LAYOUT_IO};
    for (int form = 0; form < 3; form++) {
        if (form == 2)
            h.db = (struct tensor){0};
        h.accumulate = form == 1;
        snprintf(name, sizeof name, "matmul_bwd_w %s %s", l->name, forms[form]);
        measure(name, dtype, OP_KIND_matmul_bwd_w, &h);
        if (form == 0)
            measure_as(name, dtype, OP_KIND_matmul_bwd_w, &h, true);
    }
}

/* Times the three products of the vocabulary with `out` columns: the number of tokens, or whole
 * tiles as in a training step (model_vocab_rows). */
static void bench_vocabulary(enum dtype dtype, int64_t out, int shown)
{
    char name[80];
    begin_case();
    struct tensor x = allocate(CHUNK * C, dtype), w = allocate(out * C, dtype),
                  y = allocate(CHUNK * (int64_t)WIDE_STRIDE, dtype);
    struct matmul_fwd f = {.y = y,
                           .x = x,
                           .w = w,
                           .n = CHUNK,
                           .in = C,
                           .out = out,
                           .y_stride = WIDE_STRIDE,
                           .layout = MATMUL_LAYOUT_OI};
    snprintf(name, sizeof name, "matmul_fwd 8192 768x%d stride 50304", shown);
    measure(name, dtype, OP_KIND_matmul_fwd, &f);
    struct matmul_bwd_x g = {.dx = x,
                             .dy = y,
                             .w = w,
                             .n = CHUNK,
                             .in = C,
                             .out = out,
                             .dy_stride = WIDE_STRIDE,
                             .layout = MATMUL_LAYOUT_OI};
    snprintf(name, sizeof name, "matmul_bwd_x 8192 768x%d stride 50304", shown);
    measure(name, dtype, OP_KIND_matmul_bwd_x, &g);
    struct matmul_bwd_w h = {.dw = allocate(out * C, DTYPE_F32),
                             .x = x,
                             .dy = y,
                             .n = CHUNK,
                             .in = C,
                             .out = out,
                             .dy_stride = WIDE_STRIDE,
                             .layout = MATMUL_LAYOUT_OI,
                             .accumulate = true};
    snprintf(name, sizeof name, "matmul_bwd_w 8192 768x%d stride 50304", shown);
    measure(name, dtype, OP_KIND_matmul_bwd_w, &h);
}

/* ---- all ---- */

static void open_all(void)
{
    struct cudaDeviceProp prop;
    void *memory = NULL, *scratch = NULL;
    char blas[LIBRARY_PATH_MAX] = "";
    must(dev_cuda_open(0, false, &bench.dev), "the GPU");
    must(dev_stream_open(bench.dev, &bench.stream), "a stream");
    must(dev_alloc(bench.dev, MEMORY_BYTES, &memory), "memory");
    must(dev_alloc(bench.dev, CUDA_SCRATCH_BYTES, &scratch), "scratch");
    check(cudaGetDeviceProperties(&prop, 0), "the GPU");
    for (int i = 0; i <= RUNS; i++)
        check(cudaEventCreateWithFlags(&bench.event[i], cudaEventDefault), "an event");
    bench.memory = memory;
    bench.cuda = (struct cuda){.stream = dev_stream_handle(bench.stream),
                               .scratch = scratch,
                               .scratch_bytes = CUDA_SCRATCH_BYTES,
                               .shared_bytes = prop.sharedMemPerBlockOptin,
                               .sm_count = prop.multiProcessorCount};
    printf("# %s, %d multiprocessors, %.1f GB\n", prop.name, prop.multiProcessorCount,
           (double)prop.totalGlobalMem * 1e-9);
    if (dev_cuda_blas(DEV_GPU_CUDA, blas, sizeof blas) == ST_OK)
        printf("# products by cuBLASLt %s\n", blas);
    else
        printf("# products by the program's own kernels: %s\n", status_message());
}

static void close_all(void)
{
    for (int i = 0; i <= RUNS; i++)
        check(cudaEventDestroy(bench.event[i]), "an event");
    dev_free(bench.dev, bench.memory, MEMORY_BYTES);
    dev_free(bench.dev, bench.cuda.scratch, CUDA_SCRATCH_BYTES);
    dev_stream_close(bench.stream);
    dev_close(bench.dev);
}

static void bench_memory(enum dtype dtype)
{
    bench_norm(dtype);
    bench_xent(dtype, STRIDE, "xent 8192x50257 stride 50272");
    bench_xent(dtype, WIDE_STRIDE, "xent 8192x50257 stride 50304");
    bench_gelu(dtype);
    bench_embed(dtype);
    bench_column(dtype);
}

static void bench_products(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        bench_layer_fwd(dtype, &layers[i]);
        bench_layer_bwd_x(dtype, &layers[i]);
        bench_layer_bwd_w(dtype, &layers[i]);
    }
    bench_vocabulary(dtype, V, 50257);
    bench_vocabulary(dtype, WIDE_STRIDE, 50304);
}

int real_bench(const char *only)
{
    bench.only = only;
    open_all();
    bench_copy();
    bench_memory(DTYPE_BF16);
    bench_update();
    bench_attention(DTYPE_BF16, 64);
    bench_products(DTYPE_BF16);
    bench_attention(DTYPE_BF16, 128);
    bench_memory(DTYPE_F32);
    close_all();
    return 0;
}
