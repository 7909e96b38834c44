/* kernel_test — compares every kernel with its plain truth: the same inputs on a device of each ISA
 * level that this machine has, with 1, 2 and 3 threads. Errors stay within a limit, guard areas
 * stay untouched, and the bits are the same for any number of threads. */
#ifndef CONVOY_TESTS_KERNEL_TEST_H
#define CONVOY_TESTS_KERNEL_TEST_H

#include "harness.h"

#include "base/rand.h"
#include "dev/dev.h"
#include "kernels/cpu.h"
#include "kernels/dropout.h"

#define KT_GUARD 64 /* elements on both sides that no kernel may touch */
#define KT_CANARY 12345.678f
#define KT_THREADS 3
#define KT_SEED 11
#define KT_OUTS 4

/* KT_SEEN — a function that a program defines to collect errors and their limits (tests/gpu/real.c
 * prints the worst); calls compile to nothing without it. */
#ifdef KT_SEEN
void KT_SEEN(const char *what, double error, double limit);
#else
#define KT_SEEN(what, error, limit) ((void)0)
#endif

enum kt_fill { KT_RANDOM, KT_RAMP, KT_ONES };

struct kt_device {
    struct dev *dev;
    struct stream *stream;
    int level; /* set by kt_after */
};

/* kt_device — level × threads, opened at first use and kept; dev NULL: this machine has not the
 * level. A program that holds other kernels against the truth (tests/cuda/emulated.h) brings its
 * own. */
#ifndef KT_DEVICE
static struct kt_device *kt_device(int level, int threads_n)
{
    static struct kt_device devices[CPU_ISA_N][KT_THREADS + 1];
    struct kt_device *d = &devices[level][threads_n];
    if (!d->dev && dev_cpu_open(threads_n, level, &d->dev) == ST_OK)
        assert_int_equal(dev_stream_open(d->dev, &d->stream), ST_OK);
    return d;
}
#else
static struct kt_device *kt_device(int level, int threads_n);
#endif

/* kt_after — the device of the next level after this one that this machine has; -1: of the first;
 * NULL: there is none. */
static inline struct kt_device *kt_after(int level, int threads_n)
{
    for (level++; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, threads_n);
        d->level = level;
        if (d->dev)
            return d;
    }
    return NULL;
}

static void kt_ok(enum status st)
{
    if (st != ST_OK)
        fail_msg("%s: %s", status_name(st), status_message());
}

static float kt_value(enum kt_fill fill, uint64_t draw, int64_t i)
{
    if (fill == KT_ONES)
        return 1.0f;
    if (fill == KT_RAMP)
        return (float)(i % 23) / 8.0f - 1.25f;
    return (float)rand_normal(KT_SEED, RAND_STREAM(TEST, draw), (uint64_t)i);
}

/* kt_floats — n values between guards; the caller frees with kt_free. `draw` names the random
 * numbers. */
static float *kt_floats(int64_t n, enum kt_fill fill, uint64_t draw)
{
    float *all = malloc((size_t)(n + 2 * KT_GUARD) * sizeof *all);
    assert_non_null(all);
    for (int64_t i = 0; i < n + 2 * KT_GUARD; i++)
        all[i] = KT_CANARY;
    for (int64_t i = 0; i < n; i++)
        all[KT_GUARD + i] = kt_value(fill, draw, i);
    return all + KT_GUARD;
}

static void kt_free(void *data)
{
    if (data)
        free((float *)data - KT_GUARD);
}

static inline struct tensor kt_f32(const float *data)
{
    return (struct tensor){(void *)(uintptr_t)data, DTYPE_F32};
}
static inline struct tensor kt_i32(const int32_t *data)
{
    return (struct tensor){(void *)(uintptr_t)data, DTYPE_I32};
}
static inline struct tensor kt_f64(const double *data)
{
    return (struct tensor){(void *)(uintptr_t)data, DTYPE_F64};
}

static inline struct dropout kt_dropout(float p)
{
    return (struct dropout){.p = p, .seed = 99, .stream = RAND_STREAM(DROPOUT, 5), .offset = 1000};
}

/* A kernel with its inputs in `arg` and up to KT_OUTS outputs, each starting as `init` says (so
 * in-place forms work). */
struct kt_case {
    const char *what;
    enum status (*run)(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS]);
    void *arg;
    const float *init[KT_OUTS]; /* NULL: no such output */
    int64_t elems[KT_OUTS];
    double nmse_max;
};

static double kt_nmse(const float *got, const float *want, int64_t n)
{
    double error = 0, power = 0;
    for (int64_t i = 0; i < n; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))) {
            power += isfinite(want[i]) ? (double)want[i] * want[i] : 0;
            continue;
        }
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        power += (double)want[i] * want[i];
    }
    return power > 0 ? error / power : error;
}

static void kt_run(const struct kt_case *c, int level, int threads_n, float *out[KT_OUTS])
{
    struct kt_device *d = kt_device(level, threads_n);
    for (int i = 0; i < KT_OUTS; i++) {
        out[i] = NULL;
        if (!c->init[i])
            continue;
        out[i] = kt_floats(c->elems[i], KT_ONES, 0);
        memcpy(out[i], c->init[i], (size_t)c->elems[i] * sizeof(float));
    }
    kt_ok(c->run(dev_op(d->dev), d->stream, c->arg, out));
    for (int i = 0; i < KT_OUTS; i++)
        for (int64_t g = 0; out[i] && g < KT_GUARD; g++)
            if (out[i][-1 - g] != KT_CANARY || out[i][c->elems[i] + g] != KT_CANARY)
                fail_msg("%s, level %d, output %d: wrote outside", c->what, level, i);
}

static void kt_run_free(float *out[KT_OUTS])
{
    for (int i = 0; i < KT_OUTS; i++)
        kt_free(out[i]);
}

/* One level with one number of threads, against the truth and against the first number of
 * threads. */
static void kt_check_one(const struct kt_case *c, int level, int threads_n, float *want[KT_OUTS],
                         float *first[KT_OUTS])
{
    float *out[KT_OUTS];
    kt_run(c, level, threads_n, out);
    for (int i = 0; i < KT_OUTS; i++) {
        if (!out[i])
            continue;
        double nmse = kt_nmse(out[i], want[i], c->elems[i]);
        KT_SEEN(c->what, nmse, c->nmse_max);
        if (!(nmse <= c->nmse_max))
            fail_msg("%s, level %d, output %d: nmse %g, allowed %g", c->what, level, i, nmse,
                     c->nmse_max);
        if (memcmp(out[i], first[i], (size_t)c->elems[i] * sizeof(float)) != 0)
            fail_msg("%s, level %d, output %d: %d threads give other bits than 1", c->what, level,
                     i, threads_n);
    }
    kt_run_free(out);
}

/* kt_check — all levels, all numbers of threads. */
static inline void kt_check(const struct kt_case *c)
{
    float *want[KT_OUTS], *first[KT_OUTS];
    kt_run(c, CPU_ISA_PLAIN, 1, want);
    for (int level = CPU_ISA_V2; level < CPU_ISA_N; level++) {
        if (!kt_device(level, 1)->dev)
            continue;
        kt_run(c, level, 1, first);
        for (int threads_n = 1; threads_n <= KT_THREADS; threads_n++)
            kt_check_one(c, level, threads_n, want, first);
        kt_run_free(first);
    }
    kt_run_free(want);
}

/* kt_plain — run on the plain device; for finite differences and hand-computed cases. */
static inline struct kt_device *kt_plain(void) { return kt_device(CPU_ISA_PLAIN, 1); }

static inline void kt_run_plain(enum status (*run)(const struct op_table *op, struct stream *s,
                                                   void *arg, float *out[KT_OUTS]),
                                void *arg, float *out[KT_OUTS])
{
    kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, arg, out));
}

/* A loss as a function of n numbers x, and its gradient, which finite differences check. Outputs
 * are float, so steps are wide, and limits are those of the sums: limit·(1 + relative·|slope|). */
struct kt_slopes {
    double (*loss)(void *arg);
    void *arg;
    float *x;
    int64_t n;
    const float *gradient;
    float step;
    double limit, relative;
};

static inline void kt_check_slopes(const struct kt_slopes *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const float at = s->x[i];
        s->x[i] = at + s->step;
        const double up = s->loss(s->arg);
        s->x[i] = at - s->step;
        const double slope = (up - s->loss(s->arg)) / (2 * (double)s->step);
        s->x[i] = at;
        if (!(fabs(slope - s->gradient[i]) <= s->limit * (1 + s->relative * fabs(slope))))
            fail_msg("element %lld: slope %g, gradient %g", (long long)i, slope,
                     (double)s->gradient[i]);
    }
}

/* kt_dot — Σ y·dy, the loss of most tests. */
static inline double kt_dot(const float *y, const float *dy, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)y[i] * dy[i];
    return sum;
}

#endif
