/* The CPU device: opening levels, memory, copies, and refusing what an operation cannot do. */
#include "harness.h"

#include "dev/dev.h"
#include "kernels/cpu.h"

static struct dev *dev;
static struct stream *stream;

static int open_device(void **state)
{
    return dev_cpu_open(2, CPU_ISA_N, &dev) != ST_OK || dev_stream_open(dev, &stream) != ST_OK;
}

static int close_device(void **state)
{
    dev_stream_close(stream);
    dev_close(dev);
    return 0;
}

TEST(info_describes_the_cpu)
{
    struct dev_info info;
    dev_info(dev, &info);
    assert_int_equal(info.kind, DEV_KIND_CPU);
    assert_int_equal(info.threads_n, 2);
    assert_true(strncmp(info.name, "cpu 2 threads ", 14) == 0);
    assert_true(info.memory_bytes > 0 && info.peak_flops > 1e8);
}

TEST(isa_levels_open_or_refuse)
{
    int opened = 0;
    for (int level = 0; level <= CPU_ISA_N; level++) {
        struct dev *other = NULL;
        enum status st = dev_cpu_open(level == CPU_ISA_N ? 0 : 1, level, &other);
        if (st == ST_OK) {
            struct dev_info info;
            dev_info(other, &info);
            assert_true(info.threads_n >= 1);
            opened++;
        } else {
            assert_int_equal(st, ST_NO_DEVICE);
            assert_non_null(strstr(status_message(), "choose another level"));
            assert_null(other);
        }
        dev_close(other);
    }
    assert_true(opened >= 2); /* plain, and the best there is */
}

TEST(memory_is_zero_and_aligned)
{
    static const size_t sizes[] = {0, 1, 4095, 4097, (size_t)2 << 20, ((size_t)5 << 20) + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *data = NULL;
        assert_int_equal(dev_alloc(dev, sizes[i], &data), ST_OK);
        assert_true((uintptr_t)data % 64 == 0);
        unsigned char any = 0;
        for (size_t k = 0; k < sizes[i]; k++)
            any |= ((unsigned char *)data)[k];
        assert_int_equal(any, 0);
        memset(data, 0xff, sizes[i]);
        dev_free(dev, data, sizes[i]);
    }
    dev_free(dev, NULL, 100);
}

TEST(refused_memory_is_reported)
{
    static const size_t sizes[] = {SIZE_MAX, (size_t)PTRDIFF_MAX, (size_t)1 << 46};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *data = NULL;
        /* no machine ever has it */
        assert_int_equal(dev_alloc(dev, sizes[i], &data), ST_BAD_SETTING);
        assert_null(data);
        assert_non_null(strstr(status_message(), "out of memory"));
    }
}

TEST(copies_and_fills)
{
    size_t n = ((size_t)3 << 20) + 77; /* several parts */
    char *host = malloc(n), *back = malloc(n);
    void *data = NULL;
    assert_non_null(host);
    assert_non_null(back);
    for (size_t i = 0; i < n; i++)
        host[i] = (char)(i * 31 >> 3);
    assert_int_equal(dev_alloc(dev, n, &data), ST_OK);
    assert_int_equal(dev_copy(stream, data, host, n), ST_OK);
    assert_int_equal(dev_copy(stream, back, data, n), ST_OK);
    assert_int_equal(dev_copy(stream, back, NULL, 0), ST_OK);
    assert_int_equal(dev_sync(stream), ST_OK);
    assert_memory_equal(back, host, n);
    assert_int_equal(dev_fill(stream, (char *)data + 1, 7, n - 2), ST_OK);
    assert_int_equal(dev_stream_wait_stream(stream, stream), ST_OK);
    assert_true(((char *)data)[0] == host[0] && ((char *)data)[1] == 7);
    assert_true(((char *)data)[n - 2] == 7 && ((char *)data)[n - 1] == host[n - 1]);
    dev_free(dev, data, n);
    free(host);
    free(back);
}

/* So large that the copy goes past the cache: from and to any place. */
TEST(large_copies)
{
    const size_t n = ((size_t)32 << 20) + 133;
    void *from = NULL, *to = NULL;
    assert_int_equal(dev_alloc(dev, n + 64, &from), ST_OK);
    assert_int_equal(dev_alloc(dev, n + 64, &to), ST_OK);
    for (size_t i = 0; i < (n + 64) / 4; i++)
        ((uint32_t *)from)[i] = (uint32_t)i * 2654435761u;
    for (int shift = 0; shift < 64; shift += 21) {
        char *src = (char *)from + (shift * 5) % 64, *dst = (char *)to + shift;
        memset(to, 1, n + 64);
        assert_int_equal(dev_copy(stream, dst, src, n), ST_OK);
        assert_int_equal(dev_sync(stream), ST_OK);
        assert_memory_equal(dst, src, n);
        assert_true(shift == 0 || dst[-1] == 1);
        assert_true(dst[n] == 1);
    }
    dev_free(dev, from, n + 64);
    dev_free(dev, to, n + 64);
}

static void refused(enum status st, const char *word)
{
    assert_int_equal(st, ST_BUG);
    if (!strstr(status_message(), word))
        fail_msg("\"%s\" does not mention %s", status_message(), word);
}

TEST(needs_are_checked)
{
    const struct op_table *op = dev_op(dev);
    float data[64] = {0};
    struct tensor f = {data, DTYPE_F32}, wrong = {data, DTYPE_BF16};
    refused(op->gelu_fwd(stream, &(struct gelu_fwd){.x = f, .n = 4}),
            "gelu_fwd: tensor y is missing");
    refused(op->gelu_fwd(stream, &(struct gelu_fwd){.y = f, .x = wrong, .n = 4}),
            "tensor x has dtype");
    refused(op->gelu_fwd(stream, &(struct gelu_fwd){.y = f, .x = f, .n = -1}), "n is -1");
    refused(op->norm_fwd(stream, &(struct norm_fwd){.y = f, .x = f, .w = f, .n = 1, .c = 4}),
            "eps > 0");
    refused(
        op->norm_fwd(stream, &(struct norm_fwd){.y = f, .x = f, .w = f, .n = 1, .c = 0, .eps = 1}),
        "c is 0");
    refused(op->norm_fwd(stream,
                         &(struct norm_fwd){
                             .y = f, .x = f, .w = f, .n = INT64_MAX, .c = INT64_MAX, .eps = 1}),
            "expected 0 to");
    refused(op->drop(stream, &(struct drop){f, f, 1, {.p = 1}}), "dropout 1");
    struct attention_fwd attention = {.out = f, .lse = f, .qkv = f, .b = 1, .t = 1, .h = 6, .d = 1};
    refused(op->attention_fwd(stream, &attention), "hk is 0, expected 1 to 6");
    attention.hk = 4;
    refused(op->attention_fwd(stream, &attention), "a->h % a->hk == 0 does not hold");
    attention.hk = 3, attention.layout = ATTENTION_LAYOUT_HEADS;
    refused(op->attention_fwd(stream, &attention), "a->hk == a->h does not hold");
    attention.layout = (enum attention_layout)2;
    refused(op->attention_fwd(stream, &attention), "layout is 2, expected 0 to 1");
    attention.layout = ATTENTION_LAYOUT_QKV, attention.mask = f;
    refused(op->attention_fwd(stream, &attention), "tensor mask has dtype");
    struct optim_span overlap[] = {{0, 10, 0}, {9, 10, 0}};
    refused(
        op->sgd(stream, &(struct sgd){.p = f, .g = f, .spans = overlap, .spans_n = 2, .step = 1}),
        "span's offset is 9");
    refused(op->adamw(stream, &(struct adamw){.p = f, .g = f, .m = f, .v = f, .step = 0}),
            "step is 0");
    refused(op->sumsq(stream, &(struct sumsq){f, f, 1, false, false}), "tensor out has dtype");
}

/* Every row of the table has a function: nothing is refused half-way through a step. */
TEST(table_is_full)
{
    const struct op_table *op = dev_op(dev);
#define ROW_IS_THERE(name) assert_true(op->name != NULL);
    OP_LIST(ROW_IS_THERE)
#undef ROW_IS_THERE
    dev_close(NULL);
    dev_stream_close(NULL);
}

HARNESS_RUN_ALL_WITH(open_device, close_device)
