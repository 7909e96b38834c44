/* Sums along a tree: cases by hand, and against a tree of halves that is built here; every type,
 * number of sources and place of the own source; in place; the same bits on every ISA level. */
#include "kernels/kernel_test.h"
#include "kernels/f16.h"

struct input {
    int64_t elems, stride;
    int n, own_i;
    enum dtype from, to;
    bool is_in_place; /* out lies where source 0 does */
    const float *in, *own;
};

static struct tensor at(const float *data, enum dtype dtype)
{
    return (struct tensor){(void *)(uintptr_t)data, dtype};
}

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct combine a = {.out = at(out[0], in->to),
                        .in = at(in->is_in_place ? out[0] : in->in, in->from),
                        .own = at(in->own, in->from),
                        .elems = in->elems,
                        .stride = in->stride,
                        .sources_n = in->n,
                        .own_i = in->own_i};
    return op->combine(s, &a);
}

static int64_t floats_of(enum dtype dtype, int64_t elems)
{
    return (elems * (int64_t)dtype_bytes(dtype) + 3) / 4;
}

/* Values whose sums round, of one type. */
static float *values(enum dtype dtype, int64_t n, uint64_t draw)
{
    float *x = kt_floats(floats_of(dtype, n), KT_RANDOM, draw);
    for (int64_t i = 0; i < n && dtype != DTYPE_F32; i++) {
        float v = kt_value(KT_RANDOM, draw, i);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (dtype == DTYPE_BF16)
            ((uint16_t *)x)[i] = (uint16_t)(bits >> 16);
        else if (dtype == DTYPE_F16)
            ((uint16_t *)x)[i] = f16_from_float(v);
        else
            ((double *)(void *)x)[i] = v / 3.0;
    }
    return x;
}

static void check(struct input in)
{
    float *source = values(in.from, in.stride * in.n, 1), *own = values(in.from, in.elems, 2);
    int64_t out_floats =
        in.is_in_place ? floats_of(in.from, in.stride * in.n) : floats_of(in.to, in.elems);
    float *init = in.is_in_place ? source : kt_floats(out_floats, KT_ONES, 3);
    in.in = source;
    in.own = own;
    kt_check(&(struct kt_case){"combine", run, &in, {init}, {out_floats}, 0});
    if (!in.is_in_place)
        kt_free(init);
    kt_free(source);
    kt_free(own);
}

static const struct {
    enum dtype from, to;
} pairs[] = {{DTYPE_F32, DTYPE_F32},  {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32},
             {DTYPE_F32, DTYPE_BF16}, {DTYPE_F16, DTYPE_F16},   {DTYPE_F16, DTYPE_F32},
             {DTYPE_F32, DTYPE_F16},  {DTYPE_F64, DTYPE_F64}};

TEST(all_isa_levels_agree)
{
    static const int counts[] = {1, 2, 3, 5, 8, 15, 16, 37};
    static const int64_t sizes[] = {0, 1, 7, 64, 1001};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t e = 0; e < sizeof sizes / sizeof *sizes; e++) {
                struct input in = {.elems = sizes[e],
                                   .stride = sizes[e] + (int64_t)(c % 2) * 3,
                                   .n = counts[c],
                                   .own_i = (int)e % counts[c],
                                   .from = pairs[p].from,
                                   .to = pairs[p].to};
                check(in);
                in.stride = sizes[e] + 16;
                in.is_in_place = in.from == in.to && in.own_i != 0;
                check(in);
            }
    check((struct input){.elems = 65600, .stride = 65600, .n = 3, .own_i = 1});
    check((struct input){.elems = 4, .stride = 4, .n = 4096, .own_i = 4095});
}

/* ((1 + ε) + ε) and (1 + (ε + ε)) differ: three sources are two and one, five are four and one. */
TEST(halves_are_powers_of_two)
{
    const float e = 0x1p-24f;
    const float three[3] = {1, e, e}, turned[3] = {e, e, 1}, five[5] = {e, e, e, e, 1};
    const struct {
        const float *in;
        int n;
        float want;
    } cases[] = {{three, 3, 1}, {turned, 3, 1 + 0x1p-23f}, {five, 5, 1 + 0x1p-22f}};
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 1);
        for (size_t i = 0; d->dev && i < 3; i++) {
            float got = 0;
            kt_ok(dev_op(d->dev)->combine(d->stream, &(struct combine){.out = kt_f32(&got),
                                                                       .in = kt_f32(cases[i].in),
                                                                       .own = kt_f32(cases[i].in),
                                                                       .elems = 1,
                                                                       .stride = 1,
                                                                       .sources_n = cases[i].n}));
            if (got != cases[i].want)
                fail_msg("level %d, %d sources: %a, want %a", level, cases[i].n, (double)got,
                         (double)cases[i].want);
        }
    }
}

TEST(a_broken_contract_is_refused)
{
    float x[8] = {0};
    const struct combine good = {.out = kt_f32(x),
                                 .in = kt_f32(x + 2),
                                 .own = kt_f32(x + 6),
                                 .elems = 2,
                                 .stride = 2,
                                 .sources_n = 2};
    struct kt_device *d = kt_device(CPU_ISA_V2, 1);
    struct combine bad[7];
    if (!d->dev)
        return;
    for (int i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].sources_n = 0;
    bad[1].sources_n = COMBINE_SOURCES_MAX + 1;
    bad[2].own_i = 2;
    bad[3].stride = 1;
    bad[4].out.dtype = DTYPE_F64;
    bad[5].own.dtype = DTYPE_BF16;
    bad[6].in.dtype = bad[6].own.dtype = DTYPE_F16, bad[6].out.dtype = DTYPE_BF16;
    kt_ok(dev_op(d->dev)->combine(d->stream, &good));
    for (int i = 0; i < 7; i++) {
        if (dev_op(d->dev)->combine(d->stream, &bad[i]) != ST_BUG)
            fail_msg("case %d was taken", i);
        status_clear();
    }
}

HARNESS_RUN_ALL()
