/* Cross-entropy of both heads: fast against plain, ignored targets, extreme logits, and gradients
 * against finite differences. A vocabulary in shards gives what the whole gives. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, v, stride;
    const int32_t *targets;
    bool want_grad;
    float cap; /* as if a soft cap had made the logits */
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct xent a = {kt_f32(out[0]), kt_f32(out[1]), kt_i32(in->targets), in->n,   in->v,
                     in->stride,     0.125f,         in->want_grad,       in->cap, {0}};
    return op->xent(s, &a);
}

static int32_t *targets_new(int64_t n, int64_t v)
{
    int32_t *targets = malloc((size_t)n * sizeof *targets);
    assert_non_null(targets);
    for (int64_t i = 0; i < n; i++)
        targets[i] = i % 5 == 3 ? -100 : (int32_t)(rand_u32(1, 1, (uint64_t)i) % (uint32_t)v);
    return targets;
}

static void check(int64_t n, int64_t v, int64_t pad, enum kt_fill fill, float gain)
{
    int64_t stride = v + pad;
    float *logits = kt_floats(n * stride, fill, 1), *losses = kt_floats(n, KT_ONES, 0);
    int32_t *targets = targets_new(n, v);
    for (int64_t i = 0; i < n * stride; i++)
        logits[i] *= gain;
    for (int form = 0; form < 3; form++) {
        struct input in = {n, v, stride, targets, form > 0, form > 1 ? 4 * gain : 0};
        kt_check(&(struct kt_case){"xent", run, &in, {logits, losses}, {n * stride, n}, 1e-12});
    }
    free(targets);
    kt_free(logits);
    kt_free(losses);
}

TEST(fast_matches_plain)
{
    static const int64_t shapes[][3] = {{1, 1, 0},    {3, 2, 1},    {7, 33, 0},    {5, 1024, 8},
                                        {6, 1025, 7}, {4, 5003, 0}, {3, 50257, 47}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            check(shapes[i][0], shapes[i][1], shapes[i][2], (enum kt_fill)fill, 3);
    check(9, 3000, 0, KT_RANDOM, 1e4f);
    check(9, 3000, 0, KT_RANDOM, 1e-20f);
}

/* Logits of ±1e4, -inf for what cannot be chosen, and a row that is not a number: as torch does. */
TEST(extreme_rows)
{
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        float x[3][2000], losses[3];
        int32_t targets[3] = {0, 1999, 5};
        for (int i = 0; i < 2000; i++)
            x[0][i] = -1e4f, x[1][i] = -INFINITY, x[2][i] = 1;
        x[0][0] = 1e4f, x[1][1999] = 0, x[1][3] = 0, x[2][1500] = NAN;
        struct xent a = {kt_f32(x[0]), kt_f32(losses), kt_i32(targets), 3, 2000, 2000, 1, true, 0,
                         {0}};
        kt_ok(dev_op(d->dev)->xent(d->stream, &a));
        assert_true(losses[0] == 0 && x[0][0] == 0 && x[0][1999] == 0);
        assert_true(fabs(losses[1] - log(2)) < 1e-6 && fabs(x[1][3] - 0.5) < 1e-6 &&
                    fabs(x[1][1999] + 0.5) < 1e-6);
        assert_true(x[1][4] == 0 && isnan(losses[2]));
    }
}

/* Four rows of seven logits. */
static double half_of_losses(void *arg)
{
    const struct xent *a = arg;
    double sum = 0;
    kt_ok(dev_op(kt_plain()->dev)->xent(kt_plain()->stream, a));
    for (int row = 0; row < 4; row++)
        sum += 0.5 * ((const float *)a->losses.data)[row];
    return sum;
}

TEST(gradient_matches_finite_differences)
{
    int32_t targets[4] = {2, -1, 0, 6};
    float *logits = kt_floats(28, KT_RANDOM, 9), grad[28], losses[4];
    memcpy(grad, logits, sizeof grad);
    struct xent a = {kt_f32(grad), kt_f32(losses), kt_i32(targets), 4, 7, 7, 0.5f, true, 0, {0}};
    half_of_losses(&a);
    a.logits = kt_f32(logits), a.want_grad = false;
    kt_check_slopes(&(struct kt_slopes){half_of_losses, &a, logits, 28, grad, 0.015625f, 1e-4, 0});
    kt_free(logits);
}

/* ---- a vocabulary in shards ---- */

#define SHARDS_MOST 3

struct shards {
    int64_t n, v, pad, shards, stats_stride;
    const float *logits; /* (n, v) of the whole vocabulary */
    const int32_t *targets;
    bool want_grad;
    float cap;
};

static int64_t shard_first(const struct shards *in, int64_t i) { return in->v * i / in->shards; }

/* The own columns of shard i, in rows with `pad` elements more. */
static float *shard_logits(const struct shards *in, int64_t i)
{
    int64_t first = shard_first(in, i), v_n = shard_first(in, i + 1) - first,
            stride = v_n + in->pad;
    float *x = kt_floats(in->n * stride, KT_ONES, 0);
    for (int64_t n = 0; n < in->n; n++)
        memcpy(x + n * stride, in->logits + n * in->v + first, (size_t)v_n * sizeof *x);
    return x;
}

/* out[0]: gradients of all shards, put together as (n, v); out[1], out[2]: the losses that the
 * first and the last shard have; out[3]: stats. */
static enum status run_shards(const struct op_table *op, struct stream *s, void *arg,
                              float *out[KT_OUTS])
{
    const struct shards *in = arg;
    float *x[SHARDS_MOST];
    for (int64_t i = 0; i < in->shards; i++) {
        int64_t first = shard_first(in, i), v_n = shard_first(in, i + 1) - first;
        x[i] = shard_logits(in, i);
        TRY(op->xent_shard(s, &(struct xent_shard){.stats = kt_f32(out[3] + i * in->stats_stride),
                                                   .logits = kt_f32(x[i]),
                                                   .targets = kt_i32(in->targets),
                                                   .n = in->n,
                                                   .v_first = first,
                                                   .v_n = v_n,
                                                   .stride = v_n + in->pad}));
    }
    for (int64_t i = 0; i < in->shards; i++) {
        int64_t first = shard_first(in, i), v_n = shard_first(in, i + 1) - first;
        TRY(op->xent_join(s, &(struct xent_join){.logits = kt_f32(x[i]),
                                                 .losses = kt_f32(out[i == 0 ? 1 : 2]),
                                                 .stats = kt_f32(out[3]),
                                                 .targets = kt_i32(in->targets),
                                                 .n = in->n,
                                                 .v_first = first,
                                                 .v_n = v_n,
                                                 .stride = v_n + in->pad,
                                                 .shards = in->shards,
                                                 .stats_stride = in->stats_stride,
                                                 .scale = 0.125f,
                                                 .want_grad = in->want_grad,
                                                 .cap = in->cap}));
        for (int64_t n = 0; n < in->n; n++) {
            float *row = x[i] + n * (v_n + in->pad);
            memcpy(out[0] + n * in->v + first, row, (size_t)v_n * sizeof *row);
            for (int64_t k = v_n; k < v_n + in->pad; k++)
                assert_true(row[k] == 1); /* the padding is not touched */
        }
        kt_free(x[i]);
    }
    return ST_OK;
}

/* One level against xent over the whole vocabulary. */
static void check_whole(const struct shards *in, const struct kt_device *d)
{
    int64_t elems = in->n * in->v;
    float *logits = kt_floats(elems, KT_ONES, 0), *losses = kt_floats(in->n, KT_ONES, 0),
          *got[KT_OUTS] = {kt_floats(elems, KT_ONES, 0), kt_floats(in->n, KT_ONES, 0),
                           kt_floats(in->n, KT_ONES, 0),
                           kt_floats(in->shards * in->stats_stride, KT_ONES, 0)};
    memcpy(logits, in->logits, (size_t)elems * sizeof *logits);
    struct input whole = {in->n, in->v, in->v, in->targets, in->want_grad, in->cap};
    kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, &whole,
              (float *[KT_OUTS]){logits, losses}));
    kt_ok(run_shards(dev_op(d->dev), d->stream, (void *)(uintptr_t)in, got));
    assert_true(kt_nmse(got[0], logits, elems) <= 1e-12);
    assert_true(kt_nmse(got[1], losses, in->n) <= 1e-12);
    if (in->shards > 1)
        assert_memory_equal(got[1], got[2], (size_t)in->n * sizeof(float));
    for (int i = 0; i < KT_OUTS; i++)
        kt_free(got[i]);
    kt_free(logits);
    kt_free(losses);
}

static void check_shards(int64_t n, int64_t v, int64_t pad, float gain)
{
    float *logits = kt_floats(n * v, KT_RANDOM, 5), *losses = kt_floats(n, KT_ONES, 0);
    int32_t *targets = targets_new(n, v);
    for (int64_t i = 0; i < n * v; i++)
        logits[i] *= gain;
    for (int form = 0; form < 3 * SHARDS_MOST; form++) {
        int64_t shards = form / 3 + 1, step = 3 * n + (form == 4 ? 13 : 0);
        float cap = form % 3 > 1 ? 4 * gain : 0;
        struct shards in = {n, v, pad, shards, step, logits, targets, form % 3 > 0, cap};
        float *stats = kt_floats(shards * step, KT_ONES, 0);
        kt_check(&(struct kt_case){"xent in shards",
                                   run_shards,
                                   &in,
                                   {logits, losses, losses, stats},
                                   {n * v, n, n, shards * step},
                                   1e-12});
        for (int level = 0; level < CPU_ISA_N; level++)
            if (kt_device(level, 2)->dev)
                check_whole(&in, kt_device(level, 2));
        kt_free(stats);
    }
    free(targets);
    kt_free(logits);
    kt_free(losses);
}

TEST(shards_give_what_the_whole_gives)
{
    static const int64_t shapes[][3] = {
        {1, 3, 0}, {7, 33, 0}, {5, 1024, 8}, {6, 1531, 7}, {3, 50257, 47}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shards(shapes[i][0], shapes[i][1], shapes[i][2], 3);
    check_shards(9, 3000, 0, 1e4f);
    check_shards(9, 3000, 0, 1e-20f);
}

/* A target is a hit if no logit is larger and no earlier one is equal, whichever shards hold them;
 * one shard has the hit. Logits are whole numbers, so most rows have several largest ones. */
static void check_hits(const struct kt_device *d, int64_t shards, const float *logits,
                       const int32_t *targets, int64_t n, int64_t v)
{
    float *stats = kt_floats(3 * n * shards, KT_ONES, 0), *losses = kt_floats(n, KT_ONES, 0),
          *hits = kt_floats(n, KT_ONES, 0), *sum = kt_floats(n, KT_ONES, 0);
    struct shards in = {n, v, 2, shards, 3 * n, logits, targets, false, 0};
    float *got[KT_OUTS] = {kt_floats(n * v, KT_ONES, 0), losses, losses, stats};
    kt_ok(run_shards(dev_op(d->dev), d->stream, &in, got));
    for (int64_t i = 0; i < shards; i++) {
        int64_t first = shard_first(&in, i), v_n = shard_first(&in, i + 1) - first;
        float *x = shard_logits(&in, i);
        kt_ok(dev_op(d->dev)->xent_join(d->stream, &(struct xent_join){.logits = kt_f32(x),
                                                                       .losses = kt_f32(losses),
                                                                       .stats = kt_f32(stats),
                                                                       .targets = kt_i32(targets),
                                                                       .n = n,
                                                                       .v_first = first,
                                                                       .v_n = v_n,
                                                                       .stride = v_n + 2,
                                                                       .shards = shards,
                                                                       .hits = kt_f32(hits)}));
        for (int64_t row = 0; row < n; row++)
            sum[row] = (i == 0 ? 0 : sum[row]) + hits[row];
        kt_free(x);
    }
    memcpy(got[0], logits, (size_t)(n * v) * sizeof *logits);
    kt_ok(dev_op(d->dev)->xent(d->stream, &(struct xent){.logits = kt_f32(got[0]),
                                                         .losses = kt_f32(losses),
                                                         .targets = kt_i32(targets),
                                                         .n = n,
                                                         .v = v,
                                                         .stride = v,
                                                         .hits = kt_f32(hits)}));
    int hits_n = 0;
    for (int64_t row = 0; row < n; row++) {
        int64_t argmax = 0;
        for (int64_t i = 1; i < v; i++)
            argmax = logits[row * v + i] > logits[row * v + argmax] ? i : argmax;
        const float want = targets[row] == argmax;
        hits_n += want > 0;
        if (hits[row] != want || sum[row] != want)
            fail_msg("row %lld: hit %g, in %lld shards %g, expected %g", (long long)row,
                     (double)hits[row], (long long)shards, (double)sum[row], (double)want);
    }
    assert_true(hits_n > 0 && hits_n < n);
    kt_free(got[0]);
    kt_free(stats);
    kt_free(losses);
    kt_free(hits);
    kt_free(sum);
}

TEST(a_hit_is_the_first_of_the_largest_logits)
{
    enum { N = 60 };
    static const int64_t widths[] = {3, 33, 700};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        const int64_t v = widths[w];
        float *logits = kt_floats(N * v, KT_RANDOM, 6);
        int32_t targets[N];
        for (int64_t i = 0; i < N * v; i++)
            logits[i] = roundf(logits[i]);
        for (int64_t n = 0; n < N; n++) {
            int64_t last = 0, first = 0; /* of the largest */
            for (int64_t i = 1; i < v; i++) {
                last = logits[n * v + i] >= logits[n * v + last] ? i : last;
                first = logits[n * v + i] > logits[n * v + first] ? i : first;
            }
            targets[n] = n % 7 == 0 ? -1
                                    : (int32_t)(n % 3 == 0   ? last
                                                : n % 3 == 1 ? first
                                                             : v / 2);
        }
        for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2))
            for (int64_t shards = 1; shards <= SHARDS_MOST; shards++)
                check_hits(d, shards, logits, targets, N, v);
        kt_free(logits);
    }
}

/* Of a row, one shard may be all -inf (what cannot be chosen), one may be not a number. */
TEST(extreme_shards)
{
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        float x[3][900], grad[3][900], losses[2][3], stats[27];
        int32_t targets[3] = {0, 899, 5};
        for (int i = 0; i < 900; i++)
            x[0][i] = -1e4f, x[1][i] = -INFINITY, x[2][i] = 1;
        x[0][0] = 1e4f, x[1][899] = 0, x[1][3] = 0, x[2][700] = NAN;
        struct shards in = {3, 900, 0, 3, 9, x[0], targets, true, 0};
        kt_ok(run_shards(dev_op(d->dev), d->stream, &in,
                         (float *[KT_OUTS]){grad[0], losses[0], losses[1], stats}));
        assert_true(losses[0][0] == 0 && grad[0][0] == 0 && grad[0][899] == 0);
        assert_true(fabs(losses[0][1] - log(2)) < 1e-6 && fabs(grad[1][3] * 8 - 0.5) < 1e-6 &&
                    fabs(grad[1][899] * 8 + 0.5) < 1e-6);
        assert_true(grad[1][400] == 0 && isnan(losses[0][2]) && isnan(losses[1][2]));
    }
}

struct qa_input {
    int64_t b, t;
    const float *logits;
    const int32_t *starts, *ends;
    int form; /* 0: gradient apart; 1: in place of the logits; 2: not wanted */
};

static enum status run_qa(const struct op_table *op, struct stream *s, void *arg,
                          float *out[KT_OUTS])
{
    const struct qa_input *in = arg;
    struct qa_xent a = {.losses = kt_f32(out[0]),
                        .logits = kt_f32(in->form == 1 ? out[1] : in->logits),
                        .starts = kt_i32(in->starts),
                        .ends = kt_i32(in->ends),
                        .b = in->b,
                        .t = in->t,
                        .scale_start = 0.25f,
                        .scale_end = 0.5f};
    if (in->form < 2)
        a.dlogits = kt_f32(out[1]);
    return op->qa_xent(s, &a);
}

TEST(qa_fast_matches_plain)
{
    static const int64_t shapes[][2] = {{1, 1}, {2, 3}, {5, 17}, {4, 384}, {3, 1500}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t b = shapes[i][0], t = shapes[i][1];
        int32_t starts[5] = {0, (int32_t)t, -7, (int32_t)t - 1, 1000000},
                ends[5] = {(int32_t)t - 1, 0, (int32_t)t + 1, 0, -1};
        float *logits = kt_floats(b * t * 2, KT_RANDOM, 3), *losses = kt_floats(b * 2, KT_ONES, 0);
        for (int form = 0; form < 3; form++) {
            struct qa_input in = {b, t, logits, starts, ends, form};
            kt_check(&(struct kt_case){
                "qa_xent", run_qa, &in, {losses, logits}, {b * 2, b * t * 2}, 1e-12});
        }
        kt_free(logits);
        kt_free(losses);
    }
}

/* Labels beyond either side: below 0 counts as 0, T and beyond is ignored; and the slope, as
 * above. */
TEST(qa_labels_and_gradient)
{
    int32_t starts[3] = {-5, 9, 2}, ends[3] = {0, 3, 4};
    float *logits = kt_floats(3 * 5 * 2, KT_RANDOM, 4), grad[30], losses[6];
    struct qa_input in = {3, 5, logits, starts, ends, 0};
    kt_ok(
        run_qa(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){losses, grad}));
    assert_true(losses[2] == 0); /* sample 1's start lies past the text */
    for (int i = 0; i < 30; i++) {
        int loss_i = i / 10 * 2 + i % 2;
        float at = logits[i], side[2], unused[30];
        for (int k = 0; k < 2; k++) {
            logits[i] = at + (k ? -0.015625f : 0.015625f);
            kt_ok(run_qa(dev_op(kt_plain()->dev), kt_plain()->stream, &in,
                         (float *[KT_OUTS]){losses, unused}));
            side[k] = losses[loss_i];
        }
        logits[i] = at;
        double slope = (i % 2 ? 0.5 : 0.25) * ((double)side[0] - side[1]) * 32;
        if (fabs(slope - grad[i]) > 1e-4)
            fail_msg("element %d: slope %g, gradient %g", i, slope, (double)grad[i]);
    }
    kt_free(logits);
}

HARNESS_RUN_ALL()
