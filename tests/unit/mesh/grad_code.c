/* grad_code — quantised blocks and coded messages: exact round trips, what they lose, the bits
 * that they take at most, and messages that no rank would send. */
#include "harness.h"

#include "base/rand.h"
#include "mesh/grad/code.h"

#define MOST 40000

enum shape { NORMAL, HEAVY, UNIFORM, ONE_HOT, TWO_VALUES, ZERO, SHAPE_N };

static float value(enum shape shape, int64_t i)
{
    float n = (float)rand_normal(7, RAND_STREAM(TEST, 1), (uint64_t)i);
    switch (shape) {
    case NORMAL:
        return n * 1e-4f;
    case HEAVY:
        return n * n * n * n * n * 1e-6f;
    case UNIFORM:
        return (float)(rand_below(7, RAND_STREAM(TEST, 2), (uint64_t)i, 2001)) - 1000;
    case ONE_HOT:
        return i % 256 == 17 ? 3e20f : 0;
    case TWO_VALUES:
        return n > 0 ? 1e-20f : -1e-20f;
    default:
        return 0;
    }
}

static void fill(enum shape shape, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value(shape, i);
}

/* Q(y) and what it loses are y; nothing behind the ends is written. */
static void check_exact(enum grad_quant_kind kind, enum shape shape, int64_t n)
{
    int64_t bytes = grad_quant_bytes(kind, n);
    float *x = malloc((size_t)n * sizeof *x), *r = malloc((size_t)n * sizeof *r),
          *y = malloc((size_t)n * sizeof *y);
    uint8_t *packed = malloc((size_t)bytes);
    fill(shape, x, n);
    memset(r, 0, (size_t)n * sizeof *r);
    grad_quant_pack(kind, x, r, n, packed);
    grad_quant_unpack(kind, packed, n, y);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(y[i] + r[i] - x[i]) <= 2e-7f * (fabsf(x[i]) + fabsf(y[i]))))
            fail_msg("kind %d shape %d element %lld of %lld: %g became %g and %g", (int)kind,
                     (int)shape, (long long)i, (long long)n, x[i], y[i], r[i]);
    free(x);
    free(r);
    free(y);
    free(packed);
}

static void test_exact(void **state)
{
    static const int64_t sizes[] = {1, 2, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 9000};
    for (int kind = 0; kind < GRAD_QUANT_KIND_N; kind++)
        for (int shape = 0; shape < SHAPE_N; shape++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                check_exact((enum grad_quant_kind)kind, (enum shape)shape, sizes[i]);
}

/* A block that cannot be packed is NaN, leaves no residual, and its neighbours are as ever. */
static void test_not_finite(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    static float x[8192], r[8192], y[8192];
    static uint8_t packed[8192 * 2];
    for (int kind = 0; kind < GRAD_QUANT_KIND_N; kind++)
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            fill(NORMAL, x, 8192);
            memset(r, 0, sizeof r);
            x[5] = odd[i];
            grad_quant_pack((enum grad_quant_kind)kind, x, r, 8192, packed);
            grad_quant_unpack((enum grad_quant_kind)kind, packed, 8192, y);
            assert_true(isnan(y[5]) && isnan(y[0]) && r[5] == 0);
            for (int k = 0; k < 8192; k++)
                assert_true(isfinite(r[k]) && (k < 256 || isfinite(y[k])));
        }
}

/* ---- messages ---- */

static struct grad_code_block block_of(enum grad_quant_kind kind)
{
    struct grad_quant_block b = grad_quant_block(kind);
    return (struct grad_code_block){b.bytes, b.scale_bytes};
}

/* The message of n elements, in memory that ends where the message ends: AddressSanitizer then
 * reports each read behind it. */
static uint8_t *message_of(struct grad_code *code, enum grad_quant_kind kind, enum shape shape,
                           int64_t n, uint8_t **packed_out, int64_t *bytes_out)
{
    struct grad_code_block block = block_of(kind);
    int64_t bytes = grad_quant_bytes(kind, n), blocks_n = bytes / block.bytes,
            bound = grad_code_bound(block, blocks_n);
    float *x = malloc((size_t)n * sizeof *x);
    uint8_t *coded = malloc((size_t)bound);
    *packed_out = malloc((size_t)bytes);
    fill(shape, x, n);
    grad_quant_pack(kind, x, NULL, n, *packed_out);
    *bytes_out = grad_code_encode(code, block, *packed_out, blocks_n, coded);
    assert_true(*bytes_out <= bound);
    free(x);
    return realloc(coded, (size_t)*bytes_out);
}

/* Bits of an element: of 10,000 and more int8 stays below 5.5 whatever they are (grad_quant.h). */
static void check_message(struct grad_code *code, enum grad_quant_kind kind, enum shape shape,
                          int64_t n)
{
    struct grad_code_block block = block_of(kind);
    uint8_t *packed, *back = malloc((size_t)grad_quant_bytes(kind, n));
    int64_t bytes, blocks_n = grad_quant_bytes(kind, n) / block.bytes;
    uint8_t *coded = message_of(code, kind, shape, n, &packed, &bytes);
    double bits = 8 * (double)bytes / (double)n;
    assert_int_equal(grad_code_decode(code, block, coded, bytes, back, blocks_n), ST_OK);
    assert_memory_equal(back, packed, (size_t)(blocks_n * block.bytes));
    if (n > 10000)
        print_message("# kind %d, shape %d: %.3f bits an element\n", (int)kind, (int)shape, bits);
    assert_true(n < 10000 || bits <= (kind == GRAD_QUANT_KIND_INT8_RMS ? 5.5 : 4.2));
    free(packed);
    free(back);
    free(coded);
}

static void test_messages(void **state)
{
    static const int64_t sizes[] = {1, 256, 257, 5000, 262144, 262145, 700000};
    struct grad_code *code;
    assert_int_equal(grad_code_open(&code), ST_OK);
    for (int kind = 0; kind < GRAD_QUANT_KIND_N; kind++)
        for (int shape = 0; shape < SHAPE_N; shape++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                check_message(code, (enum grad_quant_kind)kind, (enum shape)shape, sizes[i]);
    print_message("# zstd took %lld bytes\n", (long long)grad_code_zstd_bytes(code));
    assert_in_range(grad_code_zstd_bytes(code), GRAD_CODE_ZSTD_BYTES / 2, GRAD_CODE_ZSTD_BYTES);
    grad_code_close(code);
}

/* Cut at each byte: refused. A byte altered: refused, or as many blocks of something. */
static void test_damaged(void **state)
{
    struct grad_code_block block = block_of(GRAD_QUANT_KIND_INT4);
    struct grad_code *code;
    uint8_t *packed, *back = malloc((size_t)grad_quant_bytes(GRAD_QUANT_KIND_INT4, 3000));
    int64_t bytes, blocks_n = 12;
    int refused = 0;
    assert_int_equal(grad_code_open(&code), ST_OK);
    uint8_t *coded = message_of(code, GRAD_QUANT_KIND_INT4, HEAVY, 3000, &packed, &bytes);
    assert_true(bytes < blocks_n * block.bytes); /* it is a frame */
    for (int64_t cut = 0; cut < bytes; cut++) {
        uint8_t *copy = malloc(cut ? (size_t)cut : 1);
        memcpy(copy, coded, (size_t)cut);
        assert_int_equal(grad_code_decode(code, block, copy, cut, back, blocks_n), ST_PEER);
        free(copy);
    }
    for (int64_t i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            coded[i] ^= (uint8_t)(1 << bit);
            enum status st = grad_code_decode(code, block, coded, bytes, back, blocks_n);
            assert_true(st == ST_OK || st == ST_PEER);
            refused += st != ST_OK;
            coded[i] ^= (uint8_t)(1 << bit);
        }
    print_message("# %d of %lld altered bits are refused\n", refused, (long long)bytes * 8);
    assert_true(refused > 32 * 3 / 4); /* most of the length's bits at least */
    for (int n = 0; n < 40; n++)       /* other numbers of blocks */
        assert_int_equal(grad_code_decode(code, block, coded, bytes, packed, n) == ST_OK,
                         n == 0 || n == blocks_n);
    grad_code_close(code);
    free(coded);
    free(packed);
    free(back);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_exact), cmocka_unit_test(test_not_finite),
    cmocka_unit_test(test_messages), cmocka_unit_test(test_damaged)};
HARNESS_MAIN(tests)
