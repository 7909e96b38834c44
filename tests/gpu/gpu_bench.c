/* gpu_bench — the CUDA kernels against the limits of the GPU they run on, one line each:
 *
 *   name<TAB>unit<TAB>value<TAB>part of the limit<TAB>milliseconds
 *
 * The limit of a kernel that moves memory is the copy bandwidth measured in the same run (bytes
 * read and written). Products and attention are given in TFLOP/s; causal attention counts as half.
 * Launchers are called as the device calls them. Buffers are larger than the caches and hold random
 * numbers near one: zeros would make products faster than they are. A case that a launcher refuses
 * is reported as refused; only measured values are printed. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "dev/dev.h"
#include "dev/dev_cuda.h"
#include "kernels/column.h"
#include "kernels/cuda.h"
#include "real.h"

#define WARM 5
#define RUNS 30
#define MEMORY_BYTES ((size_t)12 << 30)

static struct cuda cuda;
static char *memory; /* what all cases take their tensors from */
static size_t taken;
static double copy_rate;

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_bench: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static struct tensor take(int64_t n, enum dtype dtype)
{
    struct tensor t = {memory + taken, dtype};
    taken += ((size_t)n * dtype_bytes(dtype) + 255) / 256 * 256;
    if (taken > MEMORY_BYTES) {
        fprintf(stderr, "gpu_bench: a case needs more than %zu bytes\n", MEMORY_BYTES);
        exit(1);
    }
    return t;
}

/* begin_case — memory as if nothing had been there: random numbers, 0.5 to 2 in size, as bf16 and
 * as fp32 alike. */
static void begin_case(void)
{
    static uint16_t some[1 << 20];
    uint32_t state = 1;
    taken = 0;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        state = state * 1664525u + 1013904223u;
        some[i] = (uint16_t)((state >> 16 & 0x80ffu) | 0x3f00u);
    }
    check(cudaMemcpy(memory, some, sizeof some, cudaMemcpyHostToDevice), "memory");
    for (size_t done = sizeof some; done < MEMORY_BYTES; done *= 2)
        check(cudaMemcpy(memory + done, memory,
                         done < MEMORY_BYTES - done ? done : MEMORY_BYTES - done,
                         cudaMemcpyDeviceToDevice),
              "memory");
    /* streams of the device do not wait for the default one */
    check(cudaDeviceSynchronize(), "memory");
}

typedef int launch(const void *args);

/* Milliseconds of one launch; < 0: refused. */
static double time_of(launch *fn, const void *args)
{
    cudaEvent_t begin, end;
    float ms = 0;
    check(cudaEventCreate(&begin), "an event");
    check(cudaEventCreate(&end), "an event");
    int rc = fn(args);
    for (int i = 1; i < WARM && rc == 0; i++)
        rc = fn(args);
    check(cudaEventRecord(begin, cuda.stream), "an event");
    for (int i = 0; i < RUNS && rc == 0; i++)
        rc = fn(args);
    check(cudaEventRecord(end, cuda.stream), "an event");
    check(cudaEventSynchronize(end), "a kernel");
    check(cudaEventElapsedTime(&ms, begin, end), "an event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return rc == 0 ? (double)ms / RUNS : -1;
}

static const char *dtype_text(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "bf16" : dtype == DTYPE_F16 ? "fp16" : "fp32";
}

static void print_bytes(const char *name, enum dtype dtype, double ms, double bytes)
{
    if (ms < 0)
        printf("%s %s\tGB/s\trefused\t\t\n", name, dtype_text(dtype));
    else
        printf("%s %s\tGB/s\t%.1f\t%.3f\t%.4f\n", name, dtype_text(dtype), bytes / ms * 1e-6,
               bytes / ms * 1e-6 / copy_rate, ms);
    fflush(stdout);
}

static void say_flops(const char *name, enum dtype dtype, double ms, double flops)
{
    if (ms < 0)
        printf("%s %s\tTFLOP/s\trefused\t\t\n", name, dtype_text(dtype));
    else
        printf("%s %s\tTFLOP/s\t%.1f\t\t%.4f\n", name, dtype_text(dtype), flops / ms * 1e-9, ms);
    fflush(stdout);
}

/* ---- copy ---- */

#define COPY_BYTES ((size_t)2 << 30)
static int run_copy(const void *args)
{
    (void)args;
    return (int)cudaMemcpyAsync(memory, memory + COPY_BYTES, COPY_BYTES, cudaMemcpyDeviceToDevice,
                                cuda.stream);
}
static void bench_copy(void)
{
    double ms = time_of(run_copy, NULL);
    copy_rate = 2.0 * (double)COPY_BYTES / ms * 1e-6;
    printf("copy\tGB/s\t%.1f\t1.000\t%.4f\n", copy_rate, ms);
}

/* ---- what moves memory ---- */

#define RUN(name) \
    static int run_##name(const void *args) { return name##_cuda(&cuda, args); }
RUN(norm_fwd)
RUN(norm_bwd)
RUN(gelu_fwd)
RUN(gelu_bwd)
RUN(xent)
RUN(adamw)
RUN(sumsq)
RUN(embed_fwd)
RUN(embed_bwd)
RUN(attention_fwd)
RUN(attention_bwd)
RUN(matmul_fwd)
RUN(matmul_bwd_x)
RUN(matmul_bwd_w)

static void bench_norm(enum dtype dtype)
{
    enum { N = 65536, C = 768 };
    double each = (double)dtype_bytes(dtype);
    begin_case();
    struct norm_fwd f = {.y = take(N * C, dtype),
                         .mean = take(N, DTYPE_F32),
                         .rstd = take(N, DTYPE_F32),
                         .x = take(N * C, dtype),
                         .w = take(C, dtype),
                         .b = take(C, dtype),
                         .n = N,
                         .c = C,
                         .eps = 1e-5f};
    print_bytes("norm_fwd 65536x768", dtype, time_of(run_norm_fwd, &f), 2.0 * N * C * each);
    struct norm_bwd b = {.dx = take(N * C, dtype),
                         .dw = take(C, DTYPE_F32),
                         .db = take(C, DTYPE_F32),
                         .dy = take(N * C, dtype),
                         .x = f.x,
                         .mean = f.mean,
                         .rstd = f.rstd,
                         .w = f.w,
                         .dresidual = take(N * C, dtype),
                         .n = N,
                         .c = C};
    print_bytes("norm_bwd 65536x768", dtype, time_of(run_norm_bwd, &b), 4.0 * N * C * each);
}

static void bench_gelu(enum dtype dtype)
{
    const int64_t n = (int64_t)65536 * 3072;
    double each = (double)dtype_bytes(dtype);
    begin_case();
    struct gelu_fwd f = {.y = take(n, dtype), .x = take(n, dtype), .n = n};
    print_bytes("gelu_fwd 65536x3072", dtype, time_of(run_gelu_fwd, &f), 2 * (double)n * each);
    struct gelu_bwd b = {.dx = take(n, dtype), .dy = f.y, .x = f.x, .n = n};
    print_bytes("gelu_bwd 65536x3072", dtype, time_of(run_gelu_bwd, &b), 3 * (double)n * each);
}

/* Logits read once and their gradients written once: what a fused one cannot do without. */
static void bench_xent(enum dtype dtype)
{
    enum { N = 8192, V = 50257, STRIDE = 50304 };
    begin_case();
    struct xent a = {.logits = take((int64_t)N * STRIDE, dtype),
                     .losses = take(N, DTYPE_F32),
                     .targets = take(N, DTYPE_I32),
                     .n = N,
                     .v = V,
                     .stride = STRIDE,
                     .scale = 1.0f / N,
                     .want_grad = true};
    check(cudaMemset(a.targets.data, 0, N * sizeof(int32_t)), "targets");
    print_bytes("xent 8192x50257", dtype, time_of(run_xent, &a),
                2.0 * N * V * (double)dtype_bytes(dtype));
}

static void bench_adamw(void)
{
    const int64_t n = 124439808;
    begin_case();
    struct optim_span span = {.offset = 0, .elems = n, .weight_decay = 0.1f};
    struct adamw a = {.p = take(n, DTYPE_F32),
                      .g = take(n, DTYPE_F32),
                      .m = take(n, DTYPE_F32),
                      .v = take(n, DTYPE_F32),
                      .spans = &span,
                      .spans_n = 1,
                      .grad_scale = take(1, DTYPE_F64),
                      .lr = 1e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .step = 1};
    print_bytes("adamw 124M", DTYPE_F32, time_of(run_adamw, &a), 28.0 * (double)n);
    struct sumsq q = {.out = take(1, DTYPE_F64), .x = a.g, .n = n};
    print_bytes("sumsq 124M", DTYPE_F32, time_of(run_sumsq, &q), 4.0 * (double)n);
}

static void bench_embed(enum dtype dtype)
{
    enum { B = 64, T = 1024, C = 768, V = 50257 };
    const int64_t n = B * T;
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    begin_case();
    struct embed_fwd f = {.x = take(n * C, dtype),
                          .tokens = take(n, DTYPE_I32),
                          .wte = take((int64_t)V * C, dtype),
                          .wpe = take(T * C, dtype),
                          .n = n,
                          .t = T,
                          .c = C};
    for (int64_t i = 0; i < n; i++) /* as in text: one token is at every 25th position */
        tokens[i] = i % 25 ? (int32_t)(i * 7919 % V) : 11;
    check(cudaMemcpy(f.tokens.data, tokens, (size_t)n * sizeof *tokens, cudaMemcpyHostToDevice),
          "tokens");
    free(tokens);
    print_bytes("embed_fwd 65536x768", dtype, time_of(run_embed_fwd, &f),
                2.0 * (double)(n * C) * (double)dtype_bytes(dtype));
    struct embed_bwd b = {.dwte = take((int64_t)V * C, DTYPE_F32),
                          .dwpe = take(T * C, DTYPE_F32),
                          .dx = f.x,
                          .tokens = f.tokens,
                          .n = n,
                          .t = T,
                          .c = C,
                          .v = V,
                          .context = T};
    print_bytes("embed_bwd 65536x768", dtype, time_of(run_embed_bwd, &b),
                (double)(n * C) * (double)dtype_bytes(dtype) + 4.0 * V * C);
}

/* ---- what multiplies ---- */

static void bench_attention(enum dtype dtype, int64_t d)
{
    const int64_t b = 16, t = 1024, h = 768 / d, n = b * t * h * d;
    /* two products, half of each */
    const double flops = 2.0 * (double)(b * h * t) * (double)t * (double)d;
    char name[48];
    begin_case();
    struct attention_fwd f = {.out = take(n, dtype),
                              .lse = take(b * h * t, DTYPE_F32),
                              .qkv = take(3 * n, dtype),
                              .b = b,
                              .t = t,
                              .h = h,
                              .d = d};
    snprintf(name, sizeof name, "attention_fwd T1024 D%d", (int)d);
    say_flops(name, dtype, time_of(run_attention_fwd, &f), flops);
    struct attention_bwd g = {.dqkv = take(3 * n, dtype),
                              .dout = take(n, dtype),
                              .out = f.out,
                              .qkv = f.qkv,
                              .lse = f.lse,
                              .b = b,
                              .t = t,
                              .h = h,
                              .d = d};
    snprintf(name, sizeof name, "attention_bwd T1024 D%d", (int)d);
    say_flops(name, dtype, time_of(run_attention_bwd, &g), 2.5 * flops);
}

static void bench_matmul(enum dtype dtype, int64_t in, int64_t out)
{
    const int64_t n = 16384;
    char name[64];
    begin_case();
    struct matmul_fwd f = {.y = take(n * out, dtype),
                           .x = take(n * in, dtype),
                           .w = take(in * out, dtype),
                           .n = n,
                           .in = in,
                           .out = out};
    snprintf(name, sizeof name, "own matmul_fwd 16384 %dx%d", (int)in, (int)out);
    say_flops(name, dtype, time_of(run_matmul_fwd, &f), 2.0 * (double)(n * in) * (double)out);
    struct matmul_bwd_x x = {.dx = take(n * in, dtype),
                             .dy = take(n * out, dtype),
                             .w = f.w,
                             .n = n,
                             .in = in,
                             .out = out};
    snprintf(name, sizeof name, "own matmul_bwd_x 16384 %dx%d", (int)in, (int)out);
    say_flops(name, dtype, time_of(run_matmul_bwd_x, &x), 2.0 * (double)(n * in) * (double)out);
    struct matmul_bwd_w w = {
        .dw = take(in * out, DTYPE_F32), .x = f.x, .dy = x.dy, .n = n, .in = in, .out = out};
    snprintf(name, sizeof name, "own matmul_bwd_w 16384 %dx%d", (int)in, (int)out);
    say_flops(name, dtype, time_of(run_matmul_bwd_w, &w), 2.0 * (double)(n * in) * (double)out);
}

/* ---- products as a step asks for them: through the device, by cuBLASLt where it is, with all that
 * is folded in ---- */

static struct {
    struct dev *dev;
    struct stream *stream;
    void *own; /* the stream of the kernels' cases */
} device;

static int done(enum status st)
{
    if (st == ST_OK)
        return 0;
    fprintf(stderr, "gpu_bench: %s\n", status_message());
    return 1;
}

#define RUN_OP(name)                                                \
    static int run_op_##name(const void *args)                      \
    {                                                               \
        return done(dev_op(device.dev)->name(device.stream, args)); \
    }
RUN_OP(matmul_fwd)
RUN_OP(matmul_bwd_x)
RUN_OP(matmul_bwd_w)

static int run_column_sum(const void *args) { return column_sum_cuda(&cuda, args); }

/* What a layer of GPT-2 124M does with one of its matrices, 65,536 rows at a time. */
enum folded { FOLDED_BIAS, FOLDED_RESIDUAL, FOLDED_GELU };

static void bench_layer(enum dtype dtype, const char *layer, int64_t in, int64_t out,
                        enum folded with)
{
    const int64_t n = 65536;
    const double flops = 2.0 * (double)(n * in) * (double)out;
    const struct tensor none = {0};
    char name[80];
    begin_case();
    struct tensor x = take(n * in, dtype), w = take(in * out, dtype), y = take(n * out, dtype),
                  bias = take(out, dtype);
    struct tensor other = with == FOLDED_BIAS ? none : take(n * out, dtype);
    struct matmul_fwd f = {.y = y,
                           .pre = with == FOLDED_GELU ? other : none,
                           .x = x,
                           .w = w,
                           .b = bias,
                           .residual = with == FOLDED_RESIDUAL ? other : none,
                           .n = n,
                           .in = in,
                           .out = out,
                           .layout = MATMUL_LAYOUT_IO,
                           .act = with == FOLDED_GELU ? MATMUL_ACT_GELU : MATMUL_ACT_NONE};
    snprintf(name, sizeof name, "step matmul_fwd %s %s", layer,
             with == FOLDED_GELU   ? "bias gelu"
             : with == FOLDED_BIAS ? "bias"
                                   : "bias residual");
    say_flops(name, dtype, time_of(run_op_matmul_fwd, &f), flops);
    struct matmul_bwd_x g = {.dx = x,
                             .dy = y,
                             .w = w,
                             .pre = in > out ? take(n * in, dtype) : none,
                             .n = n,
                             .in = in,
                             .out = out,
                             .layout = MATMUL_LAYOUT_IO};
    snprintf(name, sizeof name, "step matmul_bwd_x %s%s", layer, g.pre.data ? " gelu" : "");
    say_flops(name, dtype, time_of(run_op_matmul_bwd_x, &g), flops);
    struct matmul_bwd_w h = {.dw = take(in * out, DTYPE_F32),
                             .db = take(out, DTYPE_F32),
                             .x = x,
                             .dy = y,
                             .n = n,
                             .in = in,
                             .out = out,
                             .layout = MATMUL_LAYOUT_IO};
    for (int form = 0; form < 3; form++) {
        if (form == 2)
            h.db = none;
        h.accumulate = form == 1;
        snprintf(name, sizeof name, "step matmul_bwd_w %s %s", layer,
                 form == 0   ? "db"
                 : form == 1 ? "db, added"
                             : "alone");
        say_flops(name, dtype, time_of(run_op_matmul_bwd_w, &h), flops);
    }
}

/* The classifier's three products, for as many rows as there are logits at a time. */
static void bench_vocabulary(enum dtype dtype)
{
    const int64_t n = 8192, c = 768, v = 50257, stride = 50304;
    const double flops = 2.0 * (double)(n * c) * (double)v;
    begin_case();
    struct tensor x = take(n * c, dtype), w = take(v * c, dtype), y = take(n * stride, dtype);
    struct matmul_fwd f = {.y = y,
                           .x = x,
                           .w = w,
                           .n = n,
                           .in = c,
                           .out = v,
                           .y_stride = stride,
                           .layout = MATMUL_LAYOUT_OI};
    say_flops("step matmul_fwd 8192 768x50257", dtype, time_of(run_op_matmul_fwd, &f), flops);
    struct matmul_bwd_x g = {.dx = x,
                             .dy = y,
                             .w = w,
                             .n = n,
                             .in = c,
                             .out = v,
                             .dy_stride = stride,
                             .layout = MATMUL_LAYOUT_OI};
    say_flops("step matmul_bwd_x 8192 768x50257", dtype, time_of(run_op_matmul_bwd_x, &g), flops);
    struct matmul_bwd_w h = {.dw = take(v * c, DTYPE_F32),
                             .x = x,
                             .dy = y,
                             .n = n,
                             .in = c,
                             .out = v,
                             .dy_stride = stride,
                             .layout = MATMUL_LAYOUT_OI,
                             .accumulate = true};
    say_flops("step matmul_bwd_w 8192 768x50257", dtype, time_of(run_op_matmul_bwd_w, &h), flops);
}

static void bench_column(enum dtype dtype)
{
    const int64_t n = 65536, c = 3072;
    begin_case();
    struct column_sum a = {
        .out = take(c, DTYPE_F32), .x = take(n * c, dtype), .n = n, .c = c, .stride = c};
    print_bytes("column_sum 65536x3072", dtype, time_of(run_column_sum, &a),
                (double)(n * c) * (double)dtype_bytes(dtype));
}

static void bench_step_products(void)
{
    if (done(dev_cuda_open(0, false, &device.dev)) ||
        done(dev_stream_open(device.dev, &device.stream)))
        exit(1);
    device.own = cuda.stream;
    cuda.stream = dev_stream_handle(device.stream); /* where time_of puts its events */
    bench_layer(DTYPE_BF16, "768x2304", 768, 2304, FOLDED_BIAS);
    bench_layer(DTYPE_BF16, "768x768", 768, 768, FOLDED_RESIDUAL);
    bench_layer(DTYPE_BF16, "768x3072", 768, 3072, FOLDED_GELU);
    bench_layer(DTYPE_BF16, "3072x768", 3072, 768, FOLDED_RESIDUAL);
    bench_vocabulary(DTYPE_BF16);
    cuda.stream = device.own;
    dev_stream_close(device.stream);
    dev_close(device.dev);
}

int real_bench(void)
{
    struct cudaDeviceProp prop;
    cudaStream_t stream;
    void *scratch, *all;
    check(cudaGetDeviceProperties(&prop, 0), "the GPU");
    check(cudaStreamCreate(&stream), "a stream");
    check(cudaMalloc(&scratch, CUDA_SCRATCH_BYTES), "scratch");
    check(cudaMalloc(&all, MEMORY_BYTES), "memory");
    memory = all;
    cuda = (struct cuda){.stream = stream,
                         .scratch = scratch,
                         .scratch_bytes = CUDA_SCRATCH_BYTES,
                         .sm_count = prop.multiProcessorCount};
    printf("# %s, %d multiprocessors, %.1f GB\n", prop.name, prop.multiProcessorCount,
           (double)prop.totalGlobalMem * 1e-9);
    bench_copy();
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    for (int i = 0; i < 2; i++) {
        bench_norm(dtypes[i]);
        bench_gelu(dtypes[i]);
        bench_xent(dtypes[i]);
        bench_embed(dtypes[i]);
        bench_column(dtypes[i]);
        bench_attention(dtypes[i], 64);
        bench_attention(dtypes[i], 128);
        bench_matmul(dtypes[i], 768, 3072);
        bench_matmul(dtypes[i], 3072, 768);
    }
    bench_adamw();
    bench_step_products();
    return 0;
}
