/* test_sum — sum_run against the plan of sum.h, element by element, bit for bit: layouts,
 * dtypes, counts around every block, any alignment, in place, several outs, both kinds of stores.
 * Nothing is written beside the outs. */
#include "harness.h"

#include "comm/core/sum.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

#define N_MAX 70
#define ELEMS_MAX 2100
#define GUARD 16

static unsigned char *in[N_MAX], *out[N_MAX];
static uint64_t seed = 1;
static double number(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ldexp((double)(int32_t)(seed >> 32), -20 - (int)(seed >> 27 & 15));
}

static void store(void *to, enum dtype dtype, int64_t i, double x)
{
    if (dtype == DTYPE_F64)
        ((double *)to)[i] = x;
    else if (dtype == DTYPE_F32)
        ((float *)to)[i] = (float)x;
    else
        ((uint16_t *)to)[i] =
            dtype == DTYPE_BF16 ? bf16_from_float((float)x) : f16_from_float((float)x);
}

static void want_sum(void *to, const void *const *from, int nodes, int locals, enum dtype dtype_in,
                     enum dtype dtype_out, int64_t i)
{
    struct sum_tree_step steps[N_MAX];
    double wide[N_MAX];
    float f32[N_MAX];
    sum_tree_plan_nodes(nodes, locals, steps);
    for (int s = 0; s < nodes * locals; s++)
        if (dtype_in == DTYPE_F64)
            wide[s] = ((const double *)from[s])[i];
        else
            f32[s] = dtype_in == DTYPE_F32    ? ((const float *)from[s])[i]
                     : dtype_in == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)from[s])[i])
                                              : f16_to_float(((const uint16_t *)from[s])[i]);
    for (int k = 0; k < nodes * locals - 1; k++)
        if (dtype_in == DTYPE_F64)
            wide[steps[k].to] += wide[steps[k].from];
        else
            f32[steps[k].to] += f32[steps[k].from];
    store(to, dtype_out, i, dtype_in == DTYPE_F64 ? wide[0] : (double)f32[0]);
}

static void try_one(int nodes, int locals, enum dtype dtype_in, enum dtype dtype_out, int64_t elems,
                    int shift, int outs_n, bool in_place, bool stream)
{
    int n = nodes * locals;
    size_t size = dtype_bytes(dtype_in), size_out = dtype_bytes(dtype_out);
    const void *from[N_MAX];
    void *to[N_MAX];
    unsigned char *want = malloc((size_t)elems * size_out + 1);
    for (int s = 0; s < n; s++) {
        unsigned char *at = in[s] + GUARD * 8 + (size_t)shift * size;
        from[s] = at;
        for (int64_t i = 0; i < elems; i++)
            store(at, dtype_in, i, number());
    }
    for (int64_t i = 0; i < elems; i++)
        want_sum(want, from, nodes, locals, dtype_in, dtype_out, i);
    for (int o = 0; o < outs_n; o++) {
        memset(out[o], 0xa5, ELEMS_MAX * 8 + 512);
        to[o] = in_place ? in[o] + GUARD * 8 + (size_t)shift * size
                         : out[o] + GUARD * 8 + (size_t)shift * size_out;
    }
    sum_run(&(struct sum_args){.in = from,
                               .out = to,
                               .nodes = nodes,
                               .locals = locals,
                               .outs_n = outs_n,
                               .dtype_in = dtype_in,
                               .dtype_out = dtype_out,
                               .elems = elems,
                               .is_nt = stream});
    for (int o = 0; o < outs_n; o++) {
        assert_memory_equal(to[o], want, (size_t)elems * size_out);
        if (!in_place)
            for (int g = 0; g < GUARD; g++) {
                assert_int_equal(((unsigned char *)to[o])[-1 - g], 0xa5);
                assert_int_equal(((unsigned char *)to[o])[(size_t)elems * size_out + (size_t)g],
                                 0xa5);
            }
    }
    free(want);
}

static const int64_t counts[] = {0, 1, 15, 16, 17, 63, 64, 65, 511, 512, 513, 700, 2048, 2050};

TEST(sums)
{
    static const int layouts[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {3, 1}, {2, 2}, {1, 4}, {5, 1},
                                     {1, 5}, {2, 3}, {3, 2}, {1, 7}, {4, 2}, {3, 3}, {5, 13}};
    static const enum dtype dtypes[][2] = {{DTYPE_F32, DTYPE_F32},   {DTYPE_F64, DTYPE_F64},
                                           {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F32},
                                           {DTYPE_F32, DTYPE_BF16},  {DTYPE_F16, DTYPE_F16},
                                           {DTYPE_F16, DTYPE_F32},   {DTYPE_F32, DTYPE_F16}};
    for (int s = 0; s < N_MAX; s++) {
        in[s] = aligned_alloc(64, (ELEMS_MAX * 8 + 1024) / 64 * 64);
        out[s] = aligned_alloc(64, (ELEMS_MAX * 8 + 1024) / 64 * 64);
    }
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++)
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (int how = 0; how < 8; how++) {
                    int n = layouts[l][0] * layouts[l][1];
                    bool in_place = (how & 1) != 0 && dtypes[d][0] == dtypes[d][1];
                    try_one(layouts[l][0], layouts[l][1], dtypes[d][0], dtypes[d][1], counts[c],
                            (how & 2) != 0 ? 3 : 0,
                            how == 0 ? 1
                            : n < 5  ? n
                                     : 2,
                            in_place, (how & 4) != 0);
                }
}

/* Infinities, NaN and ties keep their meaning in bf16. */
TEST(edges_of_bf16)
{
    static const float a[] = {INFINITY, -INFINITY, NAN, 1, 1, -1, 3.0e38f, 0x1.01p0f},
                       b[] = {1, 1, 1, 0x1p-8f, 0x1.8p-7f, -0x1p-8f, 3.0e38f, 0x1p-9f};
    const void *from[2] = {a, b};
    uint16_t got[8];
    void *to[1] = {got};
    sum_run(&(struct sum_args){.in = from,
                               .out = to,
                               .nodes = 1,
                               .locals = 2,
                               .outs_n = 1,
                               .dtype_in = DTYPE_F32,
                               .dtype_out = DTYPE_BF16,
                               .elems = 8});
    for (int i = 0; i < 8; i++)
        if (isnan(a[i] + b[i]))
            assert_true(isnan(bf16_to_float(got[i])));
        else
            assert_int_equal(got[i], bf16_from_float(a[i] + b[i]));
    assert_true(isinf(bf16_to_float(got[0])) && isinf(bf16_to_float(got[6])));
}

/* The same for f16: what is too large becomes infinite; beside 8 numbers at a time, the rest. */
TEST(edges_of_f16)
{
    enum { N = 19 };
    static const float special[] = {INFINITY, -INFINITY,  NAN,       65504,        65519.996f,
                                    65520,    -70000,     0x1p-14f,  0x1.1p-20f,   0x1p-24f,
                                    0x1p-25f, 0x1.8p-25f, -0x1p-26f, 1 + 0x1p-11f, 1 + 0x1.8p-10f};
    float a[N], zero[N] = {0};
    const void *from[2] = {a, zero};
    uint16_t got[N];
    void *to[1] = {got};
    for (int i = 0; i < N; i++)
        a[i] = special[i % (int)(sizeof special / sizeof *special)];
    sum_run(&(struct sum_args){.in = from,
                               .out = to,
                               .nodes = 1,
                               .locals = 2,
                               .outs_n = 1,
                               .dtype_in = DTYPE_F32,
                               .dtype_out = DTYPE_F16,
                               .elems = N});
    for (int i = 0; i < N; i++)
        if (isnan(a[i]))
            assert_true(isnan(f16_to_float(got[i])));
        else
            assert_int_equal(got[i], f16_from_float(a[i]));
    assert_true(isinf(f16_to_float(got[0])) && isinf(f16_to_float(got[5])));
    assert_int_equal(got[4], 0x7bff); /* 65504 */
    assert_int_equal(got[9], 1);      /* the smallest */
}

TEST(copies)
{
    unsigned char from[600], to[600];
    for (int i = 0; i < 600; i++)
        from[i] = (unsigned char)(i * 7);
    for (int n = 0; n < 300; n++)
        for (int shift = 0; shift < 40; shift += 3) {
            memset(to, 0, sizeof(to));
            sum_copy(to + shift, from + 5, n, n % 2 == 0);
            assert_memory_equal(to + shift, from + 5, (size_t)n);
            assert_int_equal(to[shift + n], 0);
        }
}

HARNESS_RUN_ALL()
