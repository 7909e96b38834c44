/* Kernels that read each row once: the same bits as the form that reads it again, for rows of every
 * alignment, dtype and width. */
#include "cuda_test.h"

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* ---- xent: a row that fits is kept in shared memory ---- */

struct rows {
    int64_t n, v, stride;
    struct tensor logits, losses;
    int32_t *targets;
};

/* Logits of all kinds: a hidden first one, a row of equal ones, a NaN. */
static struct rows rows_new(int64_t v, int64_t stride, enum dtype dtype)
{
    enum { N = 5 };
    struct rows r = {.n = N, .v = v, .stride = stride};
    float *x = ct_random(N * stride, 3, 4);
    x[0] = -INFINITY;
    for (int64_t i = 0; i < v; i++)
        x[stride + i] = 1;
    x[4 * stride + v / 2] = NAN;
    r.logits = ct_tensor(N * stride, dtype, x);
    r.losses = ct_tensor(N, DTYPE_F32, NULL);
    r.targets = calloc(N, sizeof *r.targets);
    assert_non_null(r.targets);
    r.targets[0] = 0, r.targets[1] = (int32_t)v - 1, r.targets[2] = -1;
    r.targets[3] = (int32_t)(v / 2), r.targets[4] = (int32_t)(v / 3);
    free(x);
    return r;
}

static void rows_free(struct rows *r)
{
    ct_free(r->logits, r->n * r->stride);
    ct_free(r->losses, r->n);
    free(r->targets);
}

static int xent_of(const struct rows *r, size_t shared_bytes)
{
    struct cuda cuda = {.sm_count = 4, .shared_bytes = shared_bytes};
    struct xent a = {r->logits, r->losses, kt_i32(r->targets), r->n, r->v, r->stride, 0.5f, true,
                     0,         {0}};
    return xent_cuda(&cuda, &a);
}

static void same_bits(const char *what, struct tensor a, struct tensor b, int64_t n)
{
    size_t each = dtype_bytes(a.dtype);
    for (int64_t i = 0; i < n; i++)
        if (memcmp((char *)a.data + i * (int64_t)each, (char *)b.data + i * (int64_t)each, each))
            fail_msg("%s, dtype %d: element %lld differs", what, a.dtype, (long long)i);
}

TEST(xent_kept_and_read_again)
{
    static const int64_t shapes[][2] = {{1, 1},       {5, 7},         {17, 17},      {1000, 1024},
                                        {4099, 4101}, {20000, 20001}, {50257, 50304}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 3; t++) {
            struct rows kept = rows_new(shapes[i][0], shapes[i][1], dtypes[t]),
                        again = rows_new(shapes[i][0], shapes[i][1], dtypes[t]);
            emu_seed(i);
            ct_ok(xent_of(&kept, 0), "kept");
            ct_ok(xent_of(&again, 1), "read again");
            same_bits("dlogits", kept.logits, again.logits, kept.n * kept.stride);
            same_bits("losses", kept.losses, again.losses, kept.n);
            rows_free(&kept);
            rows_free(&again);
        }
}

/* A launch asks for the row's bytes where a block can have them, and for none where it cannot. */
TEST(xent_keeps_what_fits)
{
    static const struct {
        int64_t v;
        enum dtype dtype;
        size_t shared_bytes;
        bool is_kept;
    } cases[] = {
        {50257, DTYPE_BF16, 0, true},         {50257, DTYPE_F16, 163 << 10, true},
        {40000, DTYPE_BF16, 99 << 10, true},  {50257, DTYPE_BF16, 99 << 10, false},
        {57000, DTYPE_BF16, 227 << 10, true}, {58000, DTYPE_BF16, 0, false},
        {50257, DTYPE_F32, 227 << 10, false}, {20000, DTYPE_F32, 0, true},
        {20000, DTYPE_F32, 64 << 10, false},  {31000, DTYPE_BF16, 0, true},
    };
    struct rows one = rows_new(1, 1, DTYPE_F32);
    emu_barriers();
    ct_ok(xent_of(&one, 0), "one logit");
    rows_free(&one);
    if (emu_barriers() == 0) {
        print_message("# skipped: the shared memory of a GPU cannot be made smaller, only the "
                      "emulation's\n");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rows r = rows_new(cases[i].v, cases[i].v, cases[i].dtype);
        emu_shared_max(16 << 10);
        int rc = xent_of(&r, cases[i].shared_bytes);
        const char *error = emu_error();
        bool is_kept = cases[i].is_kept && (!emu_is_hip() || cases[i].v == 31000);
        if ((rc == 0 && !error) == is_kept)
            fail_msg("case %zu: status %d, %s", i, rc, error ? error : "no mistake seen");
        emu_shared_max(0);
        rows_free(&r);
    }
}

HARNESS_RUN_ALL()
