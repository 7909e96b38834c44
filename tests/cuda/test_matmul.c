/* The dense products for CUDA, on the emulation, against the CPU truth: dtypes, layouts, odd sizes,
 * epilogues. */
#include "cuda_test.h"

struct shape {
    int64_t n, in, out, wider; /* rows of y and dy are out + wider apart */
    enum dtype dtype;
    enum matmul_layout layout;
    bool is_tf32;
};

static const enum dtype all_dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* Sums in float of k products; results rounded to 16 bits. */
static double limit(const struct shape *x, enum dtype out)
{
    return x->is_tf32 ? 1e-6 : out == DTYPE_F32 ? 1e-12 : out == DTYPE_F16 ? 3e-7 : 2e-5;
}

static struct cuda cuda_of(const struct shape *x)
{
    struct cuda cuda = ct_cuda((size_t)1 << 20);
    cuda.is_tf32 = x->is_tf32;
    return cuda;
}

static struct tensor random_tensor(int64_t n, enum dtype dtype, uint64_t draw)
{
    float *x = ct_random(n, draw, 1);
    struct tensor t = ct_tensor(n, dtype, x);
    free(x);
    return t;
}

/* Forward with what `with` says: 0 alone, 1 bias, 2 bias and GELU, 3 the same and u kept, 4 bias,
 * residual and dropout. */
static void check_fwd(const struct shape *x, int with)
{
    int64_t n = x->n * x->out, stride = x->out + x->wider, all = x->n * stride;
    struct cuda cuda = cuda_of(x);
    struct matmul_fwd a = {.x = random_tensor(x->n * x->in, x->dtype, 1),
                           .w = random_tensor(x->in * x->out, x->dtype, 2),
                           .n = x->n,
                           .in = x->in,
                           .out = x->out,
                           .y_stride = x->wider ? stride : 0,
                           .layout = x->layout};
    a.y = ct_tensor(all, x->dtype, NULL);
    if (with >= 1)
        a.b = random_tensor(x->out, with == 1 ? DTYPE_F32 : x->dtype, 3);
    a.act = with == 2 || with == 3 ? MATMUL_ACT_GELU : MATMUL_ACT_NONE;
    if (with == 3)
        a.pre = ct_tensor(n, x->dtype, NULL);
    if (with == 4)
        a.residual = random_tensor(all, x->dtype, 4), a.dropout = kt_dropout(0.25f);
    struct matmul_fwd plain = a;
    float *xs = ct_floats(a.x, x->n * x->in), *ws = ct_floats(a.w, x->in * x->out),
          *ys = ct_floats(a.y, all);
    float *bs = ct_floats(a.b, a.b.data ? x->out : 0), *pre = ct_random(n, 0, 1),
          *rs = ct_floats(a.residual, a.residual.data ? all : 0);
    plain.x = kt_f32(xs), plain.w = kt_f32(ws), plain.y = kt_f32(ys);
    plain.b = kt_f32(a.b.data ? bs : NULL), plain.pre = kt_f32(a.pre.data ? pre : NULL);
    plain.residual = kt_f32(a.residual.data ? rs : NULL);
    kt_ok(dev_op(kt_plain()->dev)->matmul_fwd(kt_plain()->stream, &plain));
    ct_ok(matmul_fwd_cuda(&cuda, &a), "matmul_fwd");
    /* what lies between the rows stays NaN in both */
    ct_near("y", a.y, ys, all, limit(x, x->dtype));
    if (a.pre.data)
        ct_near("pre", a.pre, pre, n, limit(x, x->dtype));
    ct_free(a.x, x->n * x->in), ct_free(a.w, x->in * x->out), ct_free(a.y, all);
    ct_free(a.b, x->out), ct_free(a.pre, n), ct_free(a.residual, all);
    free(xs), free(ws), free(ys), free(bs), free(pre), free(rs);
    ct_cuda_free(&cuda);
}

static void check_bwd_x(const struct shape *x, bool with_pre)
{
    int64_t n = x->n * x->in, stride = x->out + x->wider, all = x->n * stride;
    struct cuda cuda = cuda_of(x);
    struct matmul_bwd_x a = {.dx = ct_tensor(n, x->dtype, NULL),
                             .dy = random_tensor(all, x->dtype, 5),
                             .n = x->n,
                             .in = x->in,
                             .w = random_tensor(x->in * x->out, x->dtype, 6),
                             .out = x->out,
                             .dy_stride = x->wider ? stride : 0,
                             .layout = x->layout};
    if (with_pre)
        a.pre = random_tensor(n, x->dtype, 7);
    struct matmul_bwd_x plain = a;
    float *dy = ct_floats(a.dy, all), *w = ct_floats(a.w, x->in * x->out),
          *pre = ct_floats(a.pre, with_pre ? n : 0), *dx = ct_random(n, 0, 1);
    plain.dx = kt_f32(dx), plain.dy = kt_f32(dy), plain.w = kt_f32(w),
    plain.pre = kt_f32(with_pre ? pre : NULL);
    kt_ok(dev_op(kt_plain()->dev)->matmul_bwd_x(kt_plain()->stream, &plain));
    ct_ok(matmul_bwd_x_cuda(&cuda, &a), "matmul_bwd_x");
    ct_near("dx", a.dx, dx, n, limit(x, x->dtype));
    ct_free(a.dx, n), ct_free(a.dy, all), ct_free(a.w, x->in * x->out), ct_free(a.pre, n);
    free(dy), free(w), free(pre), free(dx);
    ct_cuda_free(&cuda);
}

/* dw is kept in float or in the factors' type. */
static void check_bwd_w(const struct shape *x, bool accumulate, enum dtype dw_dtype)
{
    int64_t n = x->in * x->out, stride = x->out + x->wider, all = x->n * stride;
    struct cuda cuda = cuda_of(x);
    struct matmul_bwd_w a = {.dw = random_tensor(n, dw_dtype, 8),
                             .db = random_tensor(x->out, DTYPE_F32, 9),
                             .n = x->n,
                             .in = x->in,
                             .x = random_tensor(x->n * x->in, x->dtype, 10),
                             .dy = random_tensor(all, x->dtype, 11),
                             .out = x->out,
                             .dy_stride = x->wider ? stride : 0,
                             .layout = x->layout,
                             .accumulate = accumulate};
    struct matmul_bwd_w plain = a;
    float *dw = ct_floats(a.dw, n), *db = ct_floats(a.db, x->out),
          *xs = ct_floats(a.x, x->n * x->in), *dy = ct_floats(a.dy, all);
    plain.dw = kt_f32(dw), plain.db = kt_f32(db), plain.x = kt_f32(xs), plain.dy = kt_f32(dy);
    kt_ok(dev_op(kt_plain()->dev)->matmul_bwd_w(kt_plain()->stream, &plain));
    ct_ok(matmul_bwd_w_cuda(&cuda, &a), "matmul_bwd_w");
    ct_near("dw", a.dw, dw, n, limit(x, dw_dtype));
    ct_near("db", a.db, db, x->out, 1e-12);
    ct_free(a.dw, n), ct_free(a.db, x->out), ct_free(a.x, x->n * x->in), ct_free(a.dy, all);
    free(dw), free(db), free(xs), free(dy);
    ct_cuda_free(&cuda);
}

static void check(struct shape x, int with)
{
    check_fwd(&x, with);
    check_bwd_x(&x, with % 2);
    check_bwd_w(&x, with % 2, with < 2 ? DTYPE_F32 : x.dtype);
}

TEST(every_dtype_and_layout)
{
    static const struct shape shapes[] = {{.n = 70, .in = 72, .out = 136},
                                          {.n = 1, .in = 8, .out = 200}};
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 4; n++)
            for (int layout = 0; layout < 2; layout++) {
                struct shape x = shapes[i];
                x.dtype = all_dtypes[n % 3], x.is_tf32 = n == 3,
                x.layout = (enum matmul_layout)layout;
                emu_seed((uint64_t)n);
                check(x, n + i);
            }
}

/* Sizes no 16-byte access fits, one short of a tile and one over, rows that lie apart. */
TEST(odd_sizes)
{
    static const struct shape shapes[] = {{.n = 1, .in = 1, .out = 1},
                                          {.n = 33, .in = 65, .out = 129},
                                          {.n = 129, .in = 63, .out = 15, .wider = 1},
                                          {.n = 5, .in = 200, .out = 21, .wider = 3},
                                          {.n = 10, .in = 24, .out = 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 0; n < 2; n++) {
            struct shape x = shapes[i];
            x.dtype = all_dtypes[n], x.layout = (enum matmul_layout)((i + (size_t)n) % 2);
            emu_seed(i + 1);
            check(x, (int)(i % 5));
        }
}

TEST(every_epilogue)
{
    for (int n = 0; n < 2; n++)
        for (int with = 0; with < 5; with++) {
            struct shape x = {.n = 40,
                              .in = 48,
                              .out = 64,
                              .wider = 8,
                              .dtype = all_dtypes[n],
                              .layout = (enum matmul_layout)(with % 2)};
            check_fwd(&x, with);
        }
}

/* More rows of tiles than a band, columns of tiles, several turns of the buffers; residual in
 * place. */
TEST(many_tiles_in_any_order)
{
    struct shape x = {.n = 9 * 128 + 1, .in = 8, .out = 130, .dtype = DTYPE_BF16};
    emu_seed(5);
    check_fwd(&x, 1);
    struct shape deep = {
        .n = 16, .in = 520, .out = 16, .dtype = DTYPE_BF16, .layout = MATMUL_LAYOUT_OI};
    for (uint64_t seed = 0; seed < 4; seed++) {
        emu_seed(seed);
        check(deep, 4);
    }
}

struct again {
    const struct cuda *cuda;
    const struct matmul_fwd *a;
};
static int forward_again(void *arg)
{
    const struct again *x = arg;
    return matmul_fwd_cuda(x->cuda, x->a);
}

TEST(barriers_are_needed)
{
    for (int n = 0; n < 2; n++) {
        enum dtype dtype = n ? DTYPE_F32 : DTYPE_BF16;
        int64_t elems = 128 * 16, k = n ? 48 : 304;
        struct cuda cuda = ct_cuda(1024);
        struct matmul_fwd a = {.x = random_tensor(128 * k, dtype, 1),
                               .w = random_tensor(16 * k, dtype, 2),
                               .y = ct_tensor(elems, dtype, NULL),
                               .n = 128,
                               .in = k,
                               .out = 16,
                               .layout = MATMUL_LAYOUT_OI};
        struct again again = {&cuda, &a};
        assert_int_equal(ct_barriers_unneeded(forward_again, &again, a.y, elems, 4), 0);
        ct_free(a.x, 128 * k), ct_free(a.w, 16 * k), ct_free(a.y, elems);
        ct_cuda_free(&cuda);
    }
}

TEST(needs_are_checked)
{
    float x[16] = {0};
    struct cuda cuda = {.sm_count = 1};
    struct matmul_fwd a = {
        .y = kt_f32(x), .x = kt_f32(x), .w = {x, DTYPE_BF16}, .n = 1, .in = 1, .out = 1};
    assert_int_equal(matmul_fwd_cuda(&cuda, &a), CUDA_REFUSAL_DTYPE);
    a.w = kt_f32(x), a.n = 0;
    assert_int_equal(matmul_fwd_cuda(&cuda, &a), CUDA_REFUSAL_SHAPE);
    a.n = (int64_t)1 << 31;
    assert_int_equal(matmul_fwd_cuda(&cuda, &a), CUDA_REFUSAL_SHAPE);
}

HARNESS_RUN_ALL()
