/* Embedding: fast against plain (the same bits where sums have one order), repeated tokens,
 * dropout, finite differences. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, t, c, v, context;
    int32_t *tokens;
    float *wte, *wpe, *dx;
    struct dropout d;
    bool accumulate, without_positions;
    int64_t first, rows;      /* the shard of the vocabulary that the tables have; rows 0: all */
    const int32_t *positions; /* NULL: n mod t */
};

static struct input input_new(int64_t b, int64_t t, int64_t c, int64_t v, float p)
{
    struct input in = {.n = b * t, .t = t, .c = c, .v = v, .context = t + 3, .d = kt_dropout(p)};
    in.tokens = malloc((size_t)in.n * sizeof *in.tokens);
    assert_non_null(in.tokens);
    for (int64_t i = 0; i < in.n; i++) /* every third is the same one */
        in.tokens[i] =
            i % 3 ? (int32_t)(rand_u32(1, 1, (uint64_t)i) % (uint32_t)v) : (int32_t)v - 1;
    in.wte = kt_floats(v * c, KT_RANDOM, 1);
    in.wpe = kt_floats(in.context * c, KT_RANDOM, 2);
    in.dx = kt_floats(in.n * c, KT_RANDOM, 3);
    return in;
}

static void input_free(struct input *in)
{
    free(in->tokens);
    kt_free(in->wte);
    kt_free(in->wpe);
    kt_free(in->dx);
}

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct embed_fwd a = {.x = kt_f32(out[0]),
                          .tokens = kt_i32(in->tokens),
                          .wte = kt_f32(in->wte),
                          .wpe = kt_f32(in->without_positions ? NULL : in->wpe),
                          .positions = kt_i32(in->positions),
                          .n = in->n,
                          .t = in->t,
                          .c = in->c,
                          .dropout = in->d,
                          .first = in->first,
                          .rows = in->rows};
    return op->embed_fwd(s, &a);
}

static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct embed_bwd a;
    memset(&a, 0, sizeof a); /* padding, too: a frame that looks for addresses reads it */
    a.dwte = kt_f32(out[0]);
    a.dwpe = kt_f32(in->without_positions ? NULL : out[1]);
    a.dx = kt_f32(in->dx);
    a.tokens = kt_i32(in->tokens);
    a.n = in->n;
    a.t = in->t;
    a.c = in->c;
    a.v = in->v;
    a.context = in->without_positions ? 0 : in->context;
    a.accumulate = in->accumulate;
    a.dropout = in->d;
    a.first = in->first;
    a.rows = in->rows;
    return op->embed_bwd(s, &a);
}

TEST(fast_matches_plain)
{
    static const int64_t shapes[][4] = {
        {1, 1, 1, 1}, {2, 7, 5, 3}, {3, 20, 130, 50}, {1, 40, 768, 11}, {4, 9, 257, 100}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 8; form++) {
            struct input in = input_new(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
                                        form & 1 ? 0.2f : 0);
            in.accumulate = form & 2, in.without_positions = form & 4;
            kt_check(&(struct kt_case){"embed_fwd", run_fwd, &in, {in.dx}, {in.n * in.c}, 0});
            kt_check(&(struct kt_case){"embed_bwd",
                                       run_bwd,
                                       &in,
                                       {in.wte, in.wpe},
                                       {in.v * in.c, in.context * in.c},
                                       1e-14});
            input_free(&in);
        }
}

/* Forward is linear in both tables, so the adjoint holds exactly: Σ x·dx = Σ wte·dwte + Σ
 * wpe·dwpe. */
TEST(backward_is_the_adjoint)
{
    for (int form = 0; form < 4; form++) {
        struct input in = input_new(3, 11, 10, 7, form & 1 ? 0.3f : 0);
        in.without_positions = form & 2;
        float *x = kt_floats(330, KT_ONES, 0), *dwte = kt_floats(70, KT_ONES, 0),
              *dwpe = kt_floats(140, KT_ONES, 0);
        memset(dwte, 0, 70 * sizeof *dwte);
        kt_ok(run_fwd(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){x}));
        kt_ok(run_bwd(dev_op(kt_plain()->dev), kt_plain()->stream, &in,
                      (float *[KT_OUTS]){dwte, dwpe}));
        double left = 0, right = 0;
        for (int64_t i = 0; i < 330; i++)
            left += (double)x[i] * in.dx[i];
        for (int64_t i = 0; i < 70; i++)
            right += (double)in.wte[i] * dwte[i];
        for (int64_t i = 0; i < 140 && !in.without_positions; i++)
            right += (double)in.wpe[i] * dwpe[i];
        if (fabs(left - right) > 1e-4)
            fail_msg("forward %.9g, backward %.9g", left, right);
        for (int64_t i = 110; i < 140; i++)
            /* positions without a token are written too */
            assert_true(dwpe[i] == (in.without_positions ? 1 : 0));
        kt_free(x);
        kt_free(dwte);
        kt_free(dwpe);
        input_free(&in);
    }
}

/* Shards of a vocabulary: the sum of their outputs is the whole's, and the rows of their gradients
 * are the whole's, bit for bit. One shard has no token at all; a token may have no row (-1). */
static void shards_make_the_whole(const struct kt_device *d, float p)
{
    static const int64_t firsts[] = {0, 3, 4, 11, 13};
    const int64_t c = 12, v = 13;
    struct input in = input_new(2, 9, c, v, p);
    float *whole = kt_floats(in.n * c, KT_ONES, 0), *x = kt_floats(in.n * c, KT_ONES, 0),
          *sum = kt_floats(in.n * c, KT_ONES, 0), *dwte = kt_floats(2 * v * c, KT_ONES, 0);
    memset(dwte, 0, (size_t)(2 * v * c) * sizeof *dwte);
    memset(sum, 0, (size_t)(in.n * c) * sizeof *sum);
    for (int64_t i = 0; i < in.n; i++)
        in.tokens[i] = in.tokens[i] == 3 ? 4 : in.tokens[i];
    float *wte = in.wte;
    in.without_positions = true;
    kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){whole}));
    kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dwte, NULL}));
    for (int i = 0; i < 4; i++) {
        in.first = firsts[i], in.rows = firsts[i + 1] - firsts[i];
        in.wte = wte + in.first * c;
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){x}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in,
                      (float *[KT_OUTS]){dwte + (v + in.first) * c, NULL}));
        for (int64_t n = 0; n < in.n * c; n++)
            sum[n] += x[n];
    }
    assert_memory_equal(dwte, dwte + v * c, (size_t)(v * c) * sizeof *dwte);
    for (int64_t n = 0; n < in.n * c; n++)
        assert_true(sum[n] == whole[n]);
    in.wte = wte;
    kt_free(whole);
    kt_free(x);
    kt_free(sum);
    kt_free(dwte);
    input_free(&in);
}

TEST(own_rows_of_the_vocabulary)
{
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int form = 0; form < 2 && kt_device(level, 2)->dev; form++)
            shards_make_the_whole(kt_device(level, 2), form ? 0.25f : 0);
    for (int form = 0; form < 4; form++) { /* tokens below, in and above the rows, and -1 */
        struct input in = input_new(3, 20, 130, 50, form & 1 ? 0.2f : 0);
        in.without_positions = form & 2;
        in.first = 10, in.rows = 17, in.tokens[5] = -1;
        kt_check(&(struct kt_case){"embed_fwd", run_fwd, &in, {in.dx}, {in.n * in.c}, 0});
        kt_check(&(struct kt_case){"embed_bwd",
                                   run_bwd,
                                   &in,
                                   {in.wte, in.wpe},
                                   {in.rows * in.c, in.context * in.c},
                                   1e-14});
        input_free(&in);
    }
}

/* Positions of their own: those of the rows that embed_fwd finds by itself give the same bits, and
 * others the rows that they name. */
TEST(positions_of_documents)
{
    enum { B = 3, T = 20 };
    int32_t positions[B * T];
    struct input in = input_new(B, T, 130, 50, 0.2f);
    float *by_row = kt_floats(in.n * in.c, KT_ONES, 0), *given = kt_floats(in.n * in.c, KT_ONES, 0);
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        in.positions = NULL;
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){by_row}));
        for (int64_t n = 0; n < in.n; n++)
            positions[n] = (int32_t)(n % T);
        in.positions = positions;
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){given}));
        assert_memory_equal(by_row, given, (size_t)(in.n * in.c) * sizeof *given);
        in.d.p = 0;
        for (int64_t n = 0; n < in.n; n++)
            positions[n] = (int32_t)(n % T < 7 ? n % T : n % T - 7);
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){given}));
        for (int64_t i = 0; i < in.n * in.c; i++) {
            int64_t n = i / in.c, c = i % in.c;
            assert_true(given[i] ==
                        in.wte[in.tokens[n] * in.c + c] + in.wpe[positions[n] * in.c + c]);
        }
        in.d.p = 0.2f;
    }
    kt_check(&(struct kt_case){"embed_fwd", run_fwd, &in, {in.dx}, {in.n * in.c}, 0});
    kt_free(by_row);
    kt_free(given);
    input_free(&in);
}

HARNESS_RUN_ALL()
