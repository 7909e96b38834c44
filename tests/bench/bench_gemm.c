/* bench_gemm — the dense products of GPT-2 124M: this program's against OpenBLAS's, both as a part
 * of the FMA peak of the same run.
 *
 *   bench_gemm [level=avx2] [gates] [threads [rounds [what [product]]]]
 *   bench_gemm levels     prints the levels of this machine
 *     level: sse4, avx2, avx512 or amx; default: the best of this machine
 *     gates: ends with 1 where a level's gate is missed
 *     what: shapes, step, all (default); with _bare: without OpenBLAS
 *     product: only this one, as "256 qkv fwd"
 *
 * The level `amx` makes fp32 products from bf16 tiles at fp32 accuracy: its limit is not the FMA
 * peak but the peak of its tiles for six bf16 products each, which stands beside it. Rounds are
 * interleaved (peak, ours, OpenBLAS, peak, …), so that other load on the machine disturbs all
 * alike. OpenBLAS is loaded at run time; without it its columns stay empty. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench_level.h"
#include "base/clock.h"
#include "base/quantile.h"
#include "base/text.h"
#include "kernels/cpu.h"

enum {
    LAYERS = 12,
    WIDTH = 768,
    VOCAB = 50257,
    VOCAB_STRIDE = 50272,
    ROUNDS_MAX = 64,
    PARAMS = VOCAB * WIDTH + LAYERS * 12 * WIDTH * WIDTH,
    HEAD_ROWS = 512
};

typedef void blas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const float *a, int a_step, const float *b, int b_step, float beta,
                        float *c, int c_step);
enum { BLAS_ROWS = 101, BLAS_PLAIN = 111, BLAS_TRANS = 112 };

static struct cpu cpu;
static blas_sgemm *blas;
static struct bench_level level;
static struct dev_cpu_kernels kernels;
static float *weights, *grads, *x, *y, *pre, *logits, *bias;

static float *allocate(int64_t n)
{
    size_t bytes = ((size_t)n * sizeof(float) + (2u << 20) - 1) / (2u << 20) * (2u << 20);
    float *p = aligned_alloc(2u << 20, bytes);
    if (!p) {
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)((uint32_t)i * 2654435761u >> 8 & 1023) * 1e-4f - 0.05f;
    return p;
}

static struct tensor at(float *p) { return (struct tensor){p, DTYPE_F32}; }

/* Products as a share of the level's own peak: what each shape must reach. */
static int missed_n;
static double gate_of(int64_t rows)
{
    return level.isa == CPU_ISA_AMX ? 0 : rows <= 256 ? 0.86 : 0.92;
}

static double seconds_of(int64_t from) { return (double)(clock_ns() - from) * 1e-9; }

enum kind { FWD, BWD_X, BWD_W };
static const char *const kind_names[] = {"fwd", "bwd_x", "bwd_w"};
struct shape {
    const char *name;
    int64_t in, out;
    enum matmul_layout layout;
};
static const struct shape shapes[] = {{"qkv", WIDTH, 3 * WIDTH, MATMUL_LAYOUT_IO},
                                      {"proj", WIDTH, WIDTH, MATMUL_LAYOUT_IO},
                                      {"fc", WIDTH, 4 * WIDTH, MATMUL_LAYOUT_IO},
                                      {"fc2", 4 * WIDTH, WIDTH, MATMUL_LAYOUT_IO},
                                      {"head", WIDTH, VOCAB, MATMUL_LAYOUT_OI}};

static void ours(enum kind kind, const struct shape *s, int64_t n, float *w, float *dw,
                 bool epilogue)
{
    bool head = s->out == VOCAB;
    float *wide = head ? logits : y;
    int64_t stride = head ? VOCAB_STRIDE : 0;
    if (kind == FWD) {
        struct matmul_fwd a = {.y = at(wide),
                               .x = at(x),
                               .w = at(w),
                               .n = n,
                               .in = s->in,
                               .out = s->out,
                               .y_stride = stride,
                               .layout = s->layout};
        if (epilogue && !head) {
            a.b = at(bias);
            if (s->out == 4 * WIDTH)
                a.act = MATMUL_ACT_GELU, a.pre = at(pre);
            else if (s->out == WIDTH)
                a.residual = at(pre);
        }
        kernels.matmul_fwd(&cpu, &a);
    } else if (kind == BWD_X) {
        struct matmul_bwd_x a = {.dx = at(x),
                                 .dy = at(wide),
                                 .w = at(w),
                                 .n = n,
                                 .in = s->in,
                                 .out = s->out,
                                 .dy_stride = stride,
                                 .layout = s->layout};
        if (epilogue && s->in == 4 * WIDTH)
            a.pre = at(pre);
        kernels.matmul_bwd_x(&cpu, &a);
    } else {
        struct matmul_bwd_w a = {.dw = at(dw),
                                 .x = at(x),
                                 .dy = at(wide),
                                 .n = n,
                                 .in = s->in,
                                 .out = s->out,
                                 .dy_stride = stride,
                                 .layout = s->layout};
        if (epilogue && !head)
            a.db = at(bias);
        kernels.matmul_bwd_w(&cpu, &a);
    }
}

static void theirs(enum kind kind, const struct shape *s, int64_t n, float *w, float *dw)
{
    bool head = s->out == VOCAB, io = s->layout == MATMUL_LAYOUT_IO;
    float *wide = head ? logits : y;
    int in = (int)s->in, out = (int)s->out, wide_step = head ? VOCAB_STRIDE : out,
        w_step = io ? out : in, rows = (int)n;
    if (kind == FWD)
        blas(BLAS_ROWS, BLAS_PLAIN, io ? BLAS_PLAIN : BLAS_TRANS, rows, out, in, 1, x, in, w,
             w_step, 0, wide, wide_step);
    else if (kind == BWD_X)
        blas(BLAS_ROWS, BLAS_PLAIN, io ? BLAS_TRANS : BLAS_PLAIN, rows, in, out, 1, wide, wide_step,
             w, w_step, 0, x, in);
    else if (io)
        blas(BLAS_ROWS, BLAS_TRANS, BLAS_PLAIN, in, out, rows, 1, x, in, wide, wide_step, 0, dw,
             w_step);
    else
        blas(BLAS_ROWS, BLAS_TRANS, BLAS_PLAIN, out, in, rows, 1, wide, wide_step, x, in, 0, dw,
             w_step);
}

/* Weights of layer l as the model keeps them: one after the other, behind the embedding. */
static int64_t weight_offset(const struct shape *s, int layer)
{
    int64_t offset = 0;
    if (s->out == VOCAB)
        return 0;
    for (const struct shape *t = shapes; t != s; t++)
        offset += t->in * t->out;
    return (int64_t)VOCAB * WIDTH + layer * (int64_t)12 * WIDTH * WIDTH + offset;
}

/* Times one product over weights that are not in cache (another layer's each time); seconds a
 * product. */
static double time_one(enum kind kind, const struct shape *s, int64_t n, int lib)
{
    int repeats = s->out == VOCAB ? 1 : LAYERS;
    int64_t start = clock_ns();
    for (int l = 0; l < repeats; l++) {
        float *w = weights + weight_offset(s, l), *dw = grads + weight_offset(s, l);
        if (lib < 2)
            ours(kind, s, n, w, dw, lib == 1);
        else
            theirs(kind, s, n, w, dw);
    }
    return seconds_of(start) / repeats;
}

static void rest(void) /* until the other library's threads have gone to sleep */
{
    clock_sleep_ms(blas ? 60 : 1);
}

static void bench_shape(enum kind kind, const struct shape *s, int64_t n, int rounds)
{
    double rate[3][ROUNDS_MAX], best[3] = {0}, peaks[ROUNDS_MAX], limits[ROUNDS_MAX], mid[3] = {0};
    double flops = 2.0 * (double)n * (double)s->in * (double)s->out * 1e-9;
    for (int r = 0; r < rounds; r++) {
        peaks[r] = level.fma(&cpu, 0.03) * 1e-9;
        limits[r] = level.products(&cpu, 0.03) * 1e-9;
        for (int lib = 0; lib < (blas ? 3 : 2); lib++) {
            if (lib == 2)
                time_one(kind, s, n, lib); /* wake its threads */
            rate[lib][r] = flops / time_one(kind, s, n, lib);
        }
        rest();
    }
    double peak = quantile_median(peaks, rounds), limit = quantile_median(limits, rounds);
    for (int lib = 0; lib < (blas ? 3 : 2); lib++) {
        mid[lib] = quantile_median(rate[lib], rounds);
        best[lib] = rate[lib][rounds - 1];
    }
    bool is_missed = mid[0] < gate_of(n) * limit;
    missed_n += is_missed;
    printf("%-5s %-5s %4lld x %5lld x %5lld   %4.0f %4.0f (%4.1f %%)   %4.0f %4.0f   %4.0f %4.0f   "
           "%4.0f %4.0f%s\n",
           s->name, kind_names[kind], (long long)n, (long long)s->in, (long long)s->out, mid[0],
           best[0], 100 * mid[0] / limit, mid[1], best[1], mid[2], best[2], peak, limit,
           is_missed ? "   below its gate" : "");
    fflush(stdout);
}

static void bench_shapes(int rounds, const char *only)
{
    static const int64_t rows[] = {256, 1024};
    puts("GFLOP/s, median and best of interleaved rounds\n"
         "                  N     I       O   ours (of limit)      with epilogue   OpenBLAS   FMA "
         "peak, limit");
    for (int i = 0; i < 2; i++)
        for (enum kind kind = FWD; kind <= BWD_W; kind++)
            for (int s = 0; s < 5; s++) {
                char name[32];
                snprintf(name, sizeof name, "%lld %s %s", (long long)rows[i], shapes[s].name,
                         kind_names[kind]);
                if (only && strcmp(only, name) != 0)
                    continue;
                bench_shape(kind, &shapes[s], s == 4 && rows[i] > HEAD_ROWS ? HEAD_ROWS : rows[i],
                            rounds);
            }
}

/* Every dense product of one training step, in its order; the head in chunks of rows, as training
 * does. */
static double step_seconds(int64_t n, int lib)
{
    int64_t start = clock_ns();
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < 4; s++)
            lib < 2
                ? ours(FWD, &shapes[s], n, weights + weight_offset(&shapes[s], l), NULL, lib == 1)
                : theirs(FWD, &shapes[s], n, weights + weight_offset(&shapes[s], l), NULL);
    for (int64_t row = 0; row < n; row += HEAD_ROWS)
        for (enum kind kind = FWD; kind <= BWD_W; kind++) {
            int64_t rows = n - row < HEAD_ROWS ? n - row : HEAD_ROWS;
            lib < 2 ? ours(kind, &shapes[4], rows, weights, grads, lib == 1)
                    : theirs(kind, &shapes[4], rows, weights, grads);
        }
    for (int l = LAYERS - 1; l >= 0; l--)
        for (int s = 3; s >= 0; s--)
            for (enum kind kind = BWD_X; kind <= BWD_W; kind++) {
                float *w = weights + weight_offset(&shapes[s], l),
                      *dw = grads + weight_offset(&shapes[s], l);
                lib < 2 ? ours(kind, &shapes[s], n, w, dw, lib == 1)
                        : theirs(kind, &shapes[s], n, w, dw);
            }
    return seconds_of(start);
}

static void bench_step(const char *name, int64_t n, int rounds)
{
    double elapsed[3][ROUNDS_MAX], peaks[ROUNDS_MAX], limits[ROUNDS_MAX];
    double flops = 6.0 * (double)n * (12.0 * LAYERS * WIDTH * WIDTH + (double)VOCAB * WIDTH) * 1e-9;
    for (int r = 0; r < rounds; r++) {
        peaks[r] = level.fma(&cpu, 0.1) * 1e-9;
        limits[r] = level.products(&cpu, 0.1) * 1e-9;
        for (int lib = 0; lib < (blas ? 3 : 2); lib++) {
            elapsed[lib][r] = step_seconds(n, lib);
            if (lib == 2)
                rest();
        }
    }
    double peak = quantile_median(peaks, rounds), limit = quantile_median(limits, rounds);
    printf("%-9s %6.1f GFLOP, FMA peak %4.0f, our limit %4.0f:", name, flops, peak, limit);
    for (int lib = 0; lib < (blas ? 3 : 2); lib++) {
        static const char *const names[] = {"bare GEMMs of the same shapes, ours", "with epilogues",
                                            "OpenBLAS"};
        double mid = quantile_median(elapsed[lib], rounds);
        printf("  %s %.4f s (best %.4f; %.1f %% of FMA peak, %.1f %% of our limit)", names[lib],
               mid, elapsed[lib][0], 100 * flops / mid / peak, 100 * flops / mid / limit);
    }
    puts("");
    fflush(stdout);
}

static void find_blas(void)
{
    void *lib = NULL;
    if (level.isa == CPU_ISA_V3) /* at a lower level its kernels are those of that level too */
        setenv("OPENBLAS_CORETYPE", "Haswell", 0);
    static const char *const names[] = {
        "libopenblas.so.0", "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
        "/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0"};
    for (int i = 0; !lib && i < 3; i++)
        lib = dlopen(names[i], RTLD_NOW);
    if (lib)
        *(void **)&blas = dlsym(lib, "cblas_sgemm");
    void (*set_threads)(int) = NULL;
    if (lib)
        *(void **)&set_threads = dlsym(lib, "openblas_set_num_threads");
    if (set_threads)
        set_threads(thread_pool_threads(cpu.pool));
    if (!blas)
        puts("OpenBLAS was not found: no peer");
}

static void prepare(int threads)
{
    for (int i = 0; i < threads; i++)
        cpu.scratch[i] = (char *)allocate(CPU_SCRATCH_BYTES / sizeof(float));
    cpu.shared = (char *)allocate(CPU_SHARED_BYTES / sizeof(float));
    weights = allocate(PARAMS), grads = allocate(PARAMS);
    x = allocate(1024 * 4 * WIDTH), y = allocate(1024 * 4 * WIDTH),
    pre = allocate(1024 * 4 * WIDTH), bias = allocate(4 * WIDTH);
    logits = allocate((int64_t)HEAD_ROWS * VOCAB_STRIDE);
}

int main(int argc, char **argv)
{
    if (bench_level_word(&argc, argv, "levels"))
        return bench_level_list(), 0;
    level = bench_level_of(bench_level_pop(&argc, argv));
    kernels = dev_cpu_isa_kernels(level.isa);
    bool has_gates = bench_level_word(&argc, argv, "gates");
    int64_t threads = 2, rounds = 5;
    const char *what = argc > 3 ? argv[3] : "all";
    if ((argc > 1 && text_parse_i64(argv[1], 1, 64, &threads) != TEXT_OK) ||
        (argc > 2 && text_parse_i64(argv[2], 1, ROUNDS_MAX, &rounds) != TEXT_OK))
        return fprintf(stderr, "bench_gemm [level=…] [gates] [threads [rounds [what]]]\n"), 2;
    if (thread_pool_open((int)threads, &cpu.pool) != ST_OK)
        return 1;
    prepare((int)threads);
    if (strstr(what, "bare") == NULL)
        find_blas();
    printf("%s: threads %d, FMA peak %.0f GFLOP/s, update in place %.1f GB/s\n", level.name,
           (int)threads, level.fma(&cpu, 0.05) * 1e-9, level.update(&cpu, grads, PARAMS, 5) * 1e-9);
    if (strncmp(what, "step", 4) != 0)
        bench_shapes((int)rounds, argc > 4 ? argv[4] : NULL);
    if (strncmp(what, "shapes", 6) != 0) {
        bench_step("B4 T64", 256, (int)rounds);
        bench_step("B4 T256", 1024, (int)rounds);
        bench_step("B1 T1024", 1024, (int)rounds);
    }
    thread_pool_close(cpu.pool);
    return has_gates && missed_n > 0 ? 1 : 0;
}
