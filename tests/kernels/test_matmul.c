/* The fast products against the plain truth: every ISA level of this machine, 1, 2 and 3 threads,
 * every option. */
#include "harness.h"

#include "base/rand.h"
#include "dev/dev.h"
#include "kernels/bf16.h"
#include "kernels/cpu.h"

#define GUARD 64 /* elements before and after each output that no kernel may touch */
#define CANARY 12345.678f
#define THREADS 3
#define NMSE_MAX 1e-12

static struct cpu cpus[THREADS + 1]; /* by number of threads */

struct level {
    const char *name;
    void (*fwd)(const struct cpu *cpu, const struct matmul_fwd *a);
    void (*bwd_x)(const struct cpu *cpu, const struct matmul_bwd_x *a);
    void (*bwd_w)(const struct cpu *cpu, const struct matmul_bwd_w *a);
};
/* of fp32; of factors rounded to bf16, which tests give bf16 only, so that the plain truth holds */
static struct level levels_f32[4], levels_bf16[2], *levels = levels_f32;
static int levels_f32_n, levels_bf16_n, levels_n;
static bool is_bf16;

/* One product and its options; `draw` names the random numbers of its inputs. */
struct shape {
    int64_t n, in, out;
};
struct option {
    enum matmul_layout layout;
    int64_t pad; /* row stride of y or dy beyond O */
    unsigned bits;
    enum { FILL_RANDOM, FILL_RAMP, FILL_ONES, FILL_POSITIVE } fill;
};

struct buf {
    float *all, *data;
    int64_t n;
};

static float fill_value(int fill, uint64_t draw, int64_t i)
{
    if (fill == FILL_ONES)
        return 1.0f;
    if (fill == FILL_RAMP)
        return (float)(i % 17) / 8.0f - 1.0f;
    float u = (float)rand_u32(7, RAND_STREAM(TEST, draw), (uint64_t)i) / 4294967296.0f;
    u = fill == FILL_POSITIVE ? u : 2.0f * u - 1.0f;
    return is_bf16 ? bf16_to_float(bf16_from_float(u)) : u;
}

static struct buf buf_new(int64_t n)
{
    struct buf b = {.n = n};
    b.all = malloc((size_t)(n + 2 * GUARD) * sizeof *b.all);
    assert_non_null(b.all);
    b.data = b.all + GUARD;
    for (int64_t i = 0; i < n + 2 * GUARD; i++)
        b.all[i] = CANARY;
    return b;
}

static struct buf buf_fill(int64_t n, int fill, uint64_t draw)
{
    struct buf b = buf_new(n);
    for (int64_t i = 0; i < n; i++)
        b.data[i] = fill_value(fill, draw, i);
    return b;
}

static struct buf buf_copy(struct buf from)
{
    struct buf b = buf_new(from.n);
    memcpy(b.data, from.data, (size_t)from.n * sizeof *b.data);
    return b;
}

static void buf_check_guard(struct buf b)
{
    for (int64_t i = 0; i < GUARD; i++)
        if (b.all[i] != CANARY || b.data[b.n + i] != CANARY)
            fail_msg("wrote %lld elements outside an output", (long long)(GUARD - i));
}

static double buf_nmse(struct buf got, struct buf want)
{
    double error = 0, power = 0;
    for (int64_t i = 0; i < want.n; i++) {
        double d = (double)got.data[i] - (double)want.data[i];
        error += d * d;
        power += (double)want.data[i] * (double)want.data[i];
    }
    return power > 0 ? error / power : error;
}

static struct tensor as_tensor(struct buf b) { return (struct tensor){b.data, DTYPE_F32}; }

/* An operation ready to run on two outputs; run(level NULL) is the plain truth. */
struct job {
    struct buf out[2];
    int out_n;
    void (*run)(const struct job *job, const struct level *level, const struct cpu *cpu,
                struct buf *out);
    union {
        struct matmul_fwd fwd;
        struct matmul_bwd_x bwd_x;
        struct matmul_bwd_w bwd_w;
    } op;
    bool in_place; /* fwd: residual is y itself */
};

static void job_check_one(const struct job *job, const struct level *level, const struct buf *want,
                          const char *what)
{
    struct buf first[2] = {{0}};
    for (int threads = 1; threads <= THREADS; threads++) {
        struct buf out[2] = {{0}};
        for (int i = 0; i < job->out_n; i++)
            out[i] = buf_copy(job->out[i]);
        job->run(job, level, &cpus[threads], out);
        for (int i = 0; i < job->out_n; i++) {
            buf_check_guard(out[i]);
            double nmse = buf_nmse(out[i], want[i]);
            if (!(nmse <= NMSE_MAX))
                fail_msg("%s, level %s, %d threads, output %d: nmse %.3g", what, level->name,
                         threads, i, nmse);
            if (threads > 1 &&
                memcmp(out[i].data, first[i].data, (size_t)out[i].n * sizeof(float)) != 0)
                fail_msg("%s, level %s: %d threads give other bits than 1", what, level->name,
                         threads);
            if (threads > 1)
                free(out[i].all);
            else
                first[i] = out[i];
        }
    }
    free(first[0].all);
    free(first[1].all);
}

static void job_check(struct job *job, const char *what)
{
    if (levels_n == 0) {
        free(job->out[0].all);
        free(job->out[1].all);
        return;
    }
    struct buf want[2] = {{0}};
    for (int i = 0; i < job->out_n; i++)
        want[i] = buf_copy(job->out[i]);
    job->run(job, NULL, NULL, want);
    for (int i = 0; i < job->out_n; i++)
        buf_check_guard(want[i]);
    for (int l = 0; l < levels_n; l++)
        job_check_one(job, &levels[l], want, what);
    for (int i = 0; i < job->out_n; i++) {
        free(want[i].all);
        free(job->out[i].all);
    }
}

static void name_job(char *to, size_t bytes, const char *op, struct shape s, struct option o)
{
    snprintf(to, bytes, "%s n %lld in %lld out %lld layout %d pad %lld options %u fill %d", op,
             (long long)s.n, (long long)s.in, (long long)s.out, (int)o.layout, (long long)o.pad,
             o.bits, (int)o.fill);
}

static void run_fwd(const struct job *job, const struct level *level, const struct cpu *cpu,
                    struct buf *out)
{
    struct matmul_fwd op = job->op.fwd;
    op.y = as_tensor(out[0]);
    if (job->out_n > 1)
        op.pre = as_tensor(out[1]);
    if (job->in_place)
        op.residual = op.y;
    (level ? level->fwd : matmul_fwd_plain)(cpu, &op);
}

/* bits: 1 bias; 2 GELU, 4 and pre kept; 8 residual (no GELU), 16 in place, 32 with dropout. */
static void check_fwd(struct shape s, struct option o)
{
    bool gelu = o.bits & 2, residual = (o.bits & 8) && !gelu;
    int64_t stride = residual ? s.out : s.out + o.pad;
    struct buf x = buf_fill(s.n * s.in, o.fill, 1), w = buf_fill(s.in * s.out, o.fill, 2),
               b = buf_fill(s.out, o.fill, 3), r = buf_fill(s.n * s.out, o.fill, 4);
    struct job job = {.run = run_fwd,
                      .out_n = gelu && (o.bits & 4) ? 2 : 1,
                      .in_place = residual && (o.bits & 16)};
    job.op.fwd = (struct matmul_fwd){.x = as_tensor(x),
                                     .w = as_tensor(w),
                                     .n = s.n,
                                     .in = s.in,
                                     .out = s.out,
                                     .y_stride = stride == s.out ? 0 : stride,
                                     .layout = o.layout,
                                     .act = gelu ? MATMUL_ACT_GELU : MATMUL_ACT_NONE};
    if (o.bits & 1)
        job.op.fwd.b = as_tensor(b);
    if (residual)
        job.op.fwd.residual = as_tensor(r);
    if (residual && (o.bits & 32))
        job.op.fwd.dropout = (struct dropout){0.25f, 11, RAND_STREAM(DROPOUT, 5), (uint64_t)s.in};
    job.out[0] = buf_fill(s.n * stride, FILL_RANDOM, 5);
    job.out[1] = job.out_n > 1 ? buf_fill(s.n * s.out, FILL_RANDOM, 6) : (struct buf){0};
    char name[160];
    name_job(name, sizeof name, "fwd", s, o);
    job_check(&job, name);
    free(x.all), free(w.all), free(b.all), free(r.all);
}

static void run_bwd_x(const struct job *job, const struct level *level, const struct cpu *cpu,
                      struct buf *out)
{
    struct matmul_bwd_x op = job->op.bwd_x;
    op.dx = as_tensor(out[0]);
    (level ? level->bwd_x : matmul_bwd_x_plain)(cpu, &op);
}

/* bits: 1 gelu' by pre. */
static void check_bwd_x(struct shape s, struct option o)
{
    int64_t stride = s.out + o.pad;
    struct buf dy = buf_fill(s.n * stride, o.fill, 1), w = buf_fill(s.in * s.out, o.fill, 2),
               pre = buf_fill(s.n * s.in, o.fill, 3);
    struct job job = {.run = run_bwd_x, .out_n = 1};
    job.op.bwd_x = (struct matmul_bwd_x){.dy = as_tensor(dy),
                                         .w = as_tensor(w),
                                         .n = s.n,
                                         .in = s.in,
                                         .out = s.out,
                                         .dy_stride = o.pad ? stride : 0,
                                         .layout = o.layout};
    if (o.bits & 1)
        job.op.bwd_x.pre = as_tensor(pre);
    job.out[0] = buf_fill(s.n * s.in, FILL_RANDOM, 5);
    char name[160];
    name_job(name, sizeof name, "bwd_x", s, o);
    job_check(&job, name);
    free(dy.all), free(w.all), free(pre.all);
}

static void run_bwd_w(const struct job *job, const struct level *level, const struct cpu *cpu,
                      struct buf *out)
{
    struct matmul_bwd_w op = job->op.bwd_w;
    op.dw = as_tensor(out[0]);
    if (job->out_n > 1)
        op.db = as_tensor(out[1]);
    (level ? level->bwd_w : matmul_bwd_w_plain)(cpu, &op);
}

/* bits: 1 with db; 2 accumulate. */
static void check_bwd_w(struct shape s, struct option o)
{
    int64_t stride = s.out + o.pad;
    struct buf x = buf_fill(s.n * s.in, o.fill, 1), dy = buf_fill(s.n * stride, o.fill, 2);
    struct job job = {.run = run_bwd_w, .out_n = o.bits & 1 ? 2 : 1};
    job.op.bwd_w = (struct matmul_bwd_w){.x = as_tensor(x),
                                         .dy = as_tensor(dy),
                                         .n = s.n,
                                         .in = s.in,
                                         .out = s.out,
                                         .dy_stride = o.pad ? stride : 0,
                                         .layout = o.layout,
                                         .accumulate = o.bits & 2};
    job.out[0] = buf_fill(s.in * s.out, FILL_RANDOM, 5);
    job.out[1] = job.out_n > 1 ? buf_fill(s.out, FILL_RANDOM, 6) : (struct buf){0};
    char name[160];
    name_job(name, sizeof name, "bwd_w", s, o);
    job_check(&job, name);
    free(x.all), free(dy.all);
}

static void check_all_options(struct shape s, int fill)
{
    for (int layout = MATMUL_LAYOUT_IO; layout <= (int)MATMUL_LAYOUT_OI; layout++)
        for (unsigned bits = 0; bits < 64; bits++) {
            struct option o = {(enum matmul_layout)layout, bits & 1 ? 5 : 0, bits, fill};
            bool gelu = bits & 2, residual = bits & 8;
            if (!(gelu && residual) && (gelu || !(bits & 4)) && (residual || bits < 16))
                check_fwd(s, o);
            if (bits < 2)
                check_bwd_x(s, o);
            if (bits < 4)
                check_bwd_w(s, o);
        }
}

static void test_every_option(void **state)
{
    for (int fill = FILL_RANDOM; fill <= FILL_POSITIVE; fill++)
        check_all_options((struct shape){19, 37, 101}, fill);
    check_all_options((struct shape){1, 1, 1}, FILL_RANDOM);
    check_all_options((struct shape){16, 64, 96}, FILL_RANDOM);
}

static void check_shape(struct shape s, unsigned draw)
{
    uint32_t r = rand_u32(3, RAND_STREAM(TEST, 9), draw);
    for (int layout = 0; layout < 2; layout++) {
        struct option o = {(enum matmul_layout)layout, r % 3 * 3, r >> 8 & 63, (int)(r >> 16 & 3)};
        check_fwd(s, o);
        check_bwd_x(s, o);
        check_bwd_w(s, o);
    }
}

/* Sizes around the edges of vectors and tiles of every level, against each other. */
static void test_small_sizes(void **state)
{
    static const int64_t sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11, 13, 15, 16,
                                    17, 23, 31, 32, 33, 47, 48, 49, 53, 64, 65, 97};
    const unsigned n = sizeof sizes / sizeof *sizes;
    for (unsigned draw = 0; draw < 400; draw++) {
        struct rand4 r = rand_philox(5, RAND_STREAM(TEST, 8), draw);
        check_shape((struct shape){sizes[r.v[0] % n], sizes[r.v[1] % n], sizes[r.v[2] % n]}, draw);
    }
}

/* More than one block of rows, of columns, of k; rows of the generation kind; the question head. */
static void test_large_sizes(void **state)
{
    static const struct shape shapes[] = {{256, 96, 144},
                                          {67, 129, 211},
                                          {9, 1025, 53},
                                          {5, 53, 1031},
                                          {1031, 7, 50},
                                          {1, 768, 2304},
                                          {1, 2304, 96},
                                          {1, 3072, 77},
                                          {1, 70, 1031},
                                          {4, 96, 2503},
                                          {23, 2051, 17},
                                          {17, 23, 4099},
                                          {1030, 50, 13},
                                          {300, 768, 2},
                                          {2100, 9, 11},
                                          {100, 400, 390},
                                          {530, 3, 2},
#ifndef HARNESS_EMULATED
                                          /* the last: its dx takes k in two slabs */
                                          {1040, 19, 9001}
#endif
    };
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(shapes[i], 1000 + i);
}

/* ---- inputs that do not forgive: every level against sums in double, by what the terms
 * weigh ---- */

/* Largest of |got - want| / Σ|x·w| over y = x·w, elements whose terms leave fp32 apart. */
static double weighed_error(struct shape s, const float *x, const float *w, const float *y)
{
    double worst = 0;
    for (int64_t i = 0; i < s.n; i++)
        for (int64_t j = 0; j < s.out; j++) {
            double sum = 0, weight = 0;
            for (int64_t k = 0; k < s.in; k++) {
                double term = (double)x[i * s.in + k] * (double)w[k * s.out + j];
                sum += term;
                weight += fabs(term);
            }
            double error = fabs((double)y[i * s.out + j] - sum) / (weight + 1e-30);
            worst = error > worst || isnan(error) ? error : worst;
        }
    return worst;
}

enum hard { HARD_RANDOM, HARD_CANCEL, HARD_RANGE, HARD_TINY, HARD_N };
static const char *const hard_names[] = {"random", "cancelling pairs", "1e-15 to 1e15",
                                         "around the denormals"};

static float hard_value(enum hard hard, uint64_t draw, int64_t i, int64_t pair)
{
    float u = fill_value(FILL_RANDOM, draw, i);
    if (hard == HARD_CANCEL) /* neighbours in k cancel but for the last bits */
        return (pair & 1) ? -fill_value(FILL_RANDOM, draw, i - 1) * (1 + 1e-6f * u) : u;
    if (hard == HARD_RANGE)
        return u * powf(10.0f, 15.0f * fill_value(FILL_RANDOM, draw + 10, i));
    if (hard == HARD_TINY)
        return u * powf(10.0f, -20.0f + 20.0f * fill_value(FILL_RANDOM, draw + 10, i));
    return u;
}

static void test_hard_inputs(void **state)
{
    struct shape s = {61, 770, 67};
    struct buf x = buf_new(s.n * s.in), w = buf_new(s.in * s.out), y = buf_new(s.n * s.out);
    for (enum hard hard = 0; hard < HARD_N; hard++) {
        for (int64_t i = 0; i < x.n; i++)
            x.data[i] = hard_value(hard, 21, i, i % s.in);
        for (int64_t i = 0; i < w.n; i++) /* the same for both of a pair */
            w.data[i] = hard == HARD_CANCEL
                            ? fill_value(FILL_POSITIVE, 22, i / s.out / 2 * s.out + i % s.out)
                            : hard_value(hard, 22, i, 0);
        for (int l = 0; l < levels_n; l++) {
            struct matmul_fwd op = {.y = as_tensor(y),
                                    .x = as_tensor(x),
                                    .w = as_tensor(w),
                                    .n = s.n,
                                    .in = s.in,
                                    .out = s.out};
            levels[l].fwd(&cpus[2], &op);
            double worst = weighed_error(s, x.data, w.data, y.data);
            print_message("# %s, level %s: error %.2e of the terms' weight\n", hard_names[hard],
                          levels[l].name, worst);
            assert_true(worst < 5e-7);
        }
    }
    free(x.all), free(w.all), free(y.all);
}

/* What is not finite stays so in its row and column, at every level, and nowhere else. */
static void test_not_finite(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    struct shape s = {35, 70, 41};
    struct buf x = buf_new(s.n * s.in), w = buf_fill(s.in * s.out, FILL_POSITIVE, 2),
               y = buf_new(s.n * s.out);
    for (unsigned draw = 0; draw < 40; draw++) {
        int64_t at = rand_u32(9, RAND_STREAM(TEST, 3), draw) % (uint32_t)x.n;
        for (int64_t i = 0; i < x.n; i++)
            x.data[i] = fill_value(FILL_POSITIVE, 1, i);
        x.data[at] = bad[draw % 4];
        for (int l = 0; l < levels_n; l++) {
            struct matmul_fwd op = {.y = as_tensor(y),
                                    .x = as_tensor(x),
                                    .w = as_tensor(w),
                                    .n = s.n,
                                    .in = s.in,
                                    .out = s.out};
            levels[l].fwd(&cpus[2], &op);
            for (int64_t i = 0; i < y.n; i++)
                if ((isfinite(y.data[i]) == 0) != (i / s.out == at / s.in))
                    fail_msg("level %s: row %lld of x holds %g, y[%lld] is %g", levels[l].name,
                             (long long)(at / s.in), (double)bad[draw % 4], (long long)i,
                             (double)y.data[i]);
        }
    }
    free(x.all), free(w.all), free(y.all);
}

/* The level amx, by its contract: whole to 3.39e38, not finite above; every NaN stays one;
 * denormals count as zero. */
static void test_amx_edges(void **state)
{
    float x[2] = {3.39e38f, 0}, w[1] = {0.5f}, y[2] = {0};
    struct matmul_fwd op = {
        .y = {y, DTYPE_F32}, .x = {x, DTYPE_F32}, .w = {w, DTYPE_F32}, .n = 2, .in = 1, .out = 1};
    const struct level *amx = &levels[levels_n - 1];
    if (strcmp(amx->name, "amx") != 0)
        return;
    amx->fwd(&cpus[1], &op);
    assert_true(y[0] == 0.5f * 3.39e38f && y[1] == 0);
    x[0] = 3.4028234e38f;
    amx->fwd(&cpus[1], &op);
    assert_false(isfinite(y[0]));
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xffffffff,
                                    0xff800001, 0x7fc00000, 0x7fff8000};
    for (unsigned i = 0; i < sizeof nans / sizeof *nans; i++) {
        memcpy(x, &nans[i], sizeof *x);
        amx->fwd(&cpus[1], &op);
        assert_true(isnan(y[0]));
    }
    x[0] = 1e-40f, x[1] = 3e-38f;
    amx->fwd(&cpus[1], &op);
    assert_true(fabsf(y[0]) < 1e-39f && fabsf(y[1] - 1.5e-38f) < 1e-39f + 2e-2f * 1.5e-38f);
}

/* Both factors are rounded to the nearest bf16, halves to even, in each of the three products. */
static void test_bf16_rounds(void **state)
{
    /* 1 + 2^-8 lies half way to 1 + 2^-7: to 1; 1 + 3·2^-8: to 1 + 2^-6; just above half: up */
    static const float in[] = {1.00390625f, 1.01171875f, 1.00390637f, -1.00390625f},
                       want[] = {1.0f, 1.015625f, 1.0078125f, -1.0f};
    float x[2], w[1], y[2];
    for (int l = 0; l < levels_n; l++)
        for (int i = 0; i < 4; i++)
            for (int side = 0; side < 2; side++) {
                x[0] = x[1] = side ? 1 : in[i], w[0] = side ? in[i] : 1;
                struct tensor tx = {x, DTYPE_F32}, tw = {w, DTYPE_F32}, ty = {y, DTYPE_F32};
                struct matmul_fwd fwd = {.y = ty, .x = tx, .w = tw, .n = 2, .in = 1, .out = 1};
                levels[l].fwd(&cpus[1], &fwd);
                assert_true(y[0] == want[i] && y[1] == want[i]);
                struct matmul_bwd_x bwd_x = {
                    .dx = ty, .dy = tx, .w = tw, .n = 2, .in = 1, .out = 1};
                levels[l].bwd_x(&cpus[1], &bwd_x);
                assert_true(y[0] == want[i] && y[1] == want[i]);
                struct matmul_bwd_w bwd_w = {
                    .dw = ty, .dy = tx, .x = tw, .n = 1, .in = 1, .out = 1};
                levels[l].bwd_w(&cpus[1], &bwd_w);
                assert_true(y[0] == want[i]);
            }
}

static void test_odd_sizes(void **state)
{
    for (int64_t size = 1; size <= 70; size++) {
        check_shape((struct shape){size, 71 - size, (size * 37) % 70 + 1}, (unsigned)(5000 + size));
        check_shape((struct shape){71 - size, size, size}, (unsigned)(6000 + size));
    }
}

static void open_cpu(struct cpu *cpu, int threads)
{
    assert_int_equal(thread_pool_open(threads, &cpu->pool), ST_OK);
    for (int i = 0; i < threads; i++)
        assert_int_equal(posix_memalign((void **)&cpu->scratch[i], 4096, CPU_SCRATCH_BYTES), 0);
    assert_int_equal(posix_memalign((void **)&cpu->shared, 4096, CPU_SHARED_BYTES), 0);
}

#include "matmul_levels.h"

static int set_up(void **state)
{
    for (int threads = 1; threads <= THREADS; threads++)
        open_cpu(&cpus[threads], threads);
    find_levels();
    levels_n = levels_f32_n;
    return 0;
}

static int to_bf16(void **state)
{
    levels = levels_bf16;
    levels_n = levels_bf16_n;
    is_bf16 = true;
    return 0;
}

static int tear_down(void **state)
{
    for (int threads = 1; threads <= THREADS; threads++) {
        thread_pool_close(cpus[threads].pool);
        for (int i = 0; i < threads; i++)
            free(cpus[threads].scratch[i]);
        free(cpus[threads].shared);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option),
        cmocka_unit_test(test_small_sizes),
        cmocka_unit_test(test_large_sizes),
        cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_hard_inputs),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_amx_edges),
        /* from here on products of bf16 */
        {"bf16: test_every_option", test_every_option, to_bf16, NULL, NULL},
        {"bf16: test_small_sizes", test_small_sizes, NULL, NULL, NULL},
        {"bf16: test_large_sizes", test_large_sizes, NULL, NULL, NULL},
        {"bf16: test_odd_sizes", test_odd_sizes, NULL, NULL, NULL},
        {"bf16: test_not_finite", test_not_finite, NULL, NULL, NULL},
        cmocka_unit_test(test_bf16_rounds)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(__FILE__, tests, set_up, tear_down);
}
