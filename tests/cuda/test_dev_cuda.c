/* The CUDA device without a GPU (guarded.h): memory, copies, events, faults and their messages,
 * products in every form, and a step of GPT-2 against the CPU's. A product that cuBLASLt leaves to
 * the program's kernel is computed by the plain truth here. */
#ifndef CONVOY_CUDA
#include "tests/cuda/absent.h"
#else
#include "kernel_test.h"

#include <sys/wait.h>

#include "tests/cuda/guarded.h"
#include "train/step.h"

static int own_products;
#define OWN_PRODUCT(name, take_scalars)                                                          \
    struct own_##name {                                                                          \
        struct name a;                                                                           \
        const struct step_scalars *scalars;                                                      \
    };                                                                                           \
    static int own_##name(void *arg)                                                             \
    {                                                                                            \
        struct own_##name *own = arg;                                                            \
        take_scalars(&own->a, own->scalars);                                                     \
        name##_plain(NULL, &own->a);                                                             \
        return 0;                                                                                \
    }                                                                                            \
    int name##_cuda(const struct cuda *cuda, const struct name *a)                               \
    {                                                                                            \
        own_products++;                                                                          \
        return runtime_device(cuda->stream, own_##name, &(struct own_##name){*a, cuda->scalars}, \
                              sizeof(struct own_##name));                                        \
    }
#define OWN_NOTHING(a, scalars) (void)(scalars)
static void own_dropout(struct matmul_fwd *a, const struct step_scalars *scalars)
{
    if (scalars)
        a->dropout.seed = scalars->seed, a->dropout.offset = scalars->offset;
}
OWN_PRODUCT(matmul_fwd, own_dropout)
OWN_PRODUCT(matmul_bwd_x, OWN_NOTHING)
OWN_PRODUCT(matmul_bwd_w, OWN_NOTHING)

/* ---- device, memory, copies ---- */

static void it_says_what_it_is(void **state)
{
    (void)state;
    struct dev_info info;
    struct dev *dev = open_device();
    dev_info(dev, &info);
    assert_int_equal(info.kind, DEV_KIND_CUDA);
    assert_string_equal(info.name, "cuda 0 Emulated 0 sm_90 driver 13.0");
    assert_non_null(strstr(dev_cuda_built(), "sm_90a"));
    assert_true(info.peak_flops == 0 && info.peak_flops_16 == 0);
    dev_close(dev);
    runtime.sm_count = 132; /* as an H200 */
    for (int is_tf32 = 0; is_tf32 < 2; is_tf32++) {
        dev = open_device_as(is_tf32);
        dev_info(dev, &info);
        assert_true(info.peak_flops == (is_tf32 ? 494.7 : 66.9) * 1e12 &&
                    info.peak_flops_16 == 989.4 * 1e12);
        dev_close(dev);
    }
    runtime.sm_count = 4;
}

/* For who moves elements between devices: pinned memory, streams that are asked instead of waited
 * for. */
static void is_discrete(void **state)
{
    (void)state;
    enum { N = 70001 };
    struct dev_info info;
    struct dev *dev = open_device();
    struct stream *s = NULL;
    void *data = NULL, *pinned = NULL, *back = NULL;
    bool is_idle = false;
    char ordinary;
    kt_ok(dev_make_current(dev));
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_alloc(dev, N, &data));
    kt_ok(dev_pin(dev, N, &pinned));
    kt_ok(dev_pin(dev, N, &back));
    dev_info(dev, &info);
    assert_string_equal(info.bus, "0000:3b:00.0");
    assert_true(dev_is_discrete(dev) && dev_holds(dev, data) &&
                dev_holds(dev, (char *)data + N - 1));
    assert_false(dev_holds(dev, (char *)data + N) || dev_holds(dev, pinned) ||
                 dev_holds(dev, &ordinary));
    assert_non_null(dev_stream_handle(s));
    for (int i = 0; i < N; i++)
        ((unsigned char *)pinned)[i] = (unsigned char)(i * 31 >> 3);
    kt_ok(dev_copy(s, data, pinned, N));
    kt_ok(dev_copy(s, back, data, N));
    for (int turns = 0; !is_idle; turns++) {
        kt_ok(dev_stream_query(s, &is_idle));
        assert_true(turns < 10);
    }
    assert_memory_equal(back, pinned, N);
    /* "not ready" was an answer, no error of what comes next */
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    struct dev_event *event = NULL, *same;
    kt_ok(dev_stream_wait(s, NULL));
    kt_ok(dev_event_record(s, &event));
    same = event;
    kt_ok(dev_event_record(s, &event));
    assert_true(event && event == same);
    kt_ok(dev_stream_wait(s, event));
    dev_event_free(event);
    dev_event_free(NULL);
    runtime_fail("cudaStreamQuery", 0, cudaErrorIllegalAddress);
    assert_int_equal(dev_stream_query(s, &is_idle), ST_FAULT);
    dev_unpin(dev, pinned);
    dev_unpin(dev, back);
    dev_free(dev, data, N);
    dev_stream_close(s);
    dev_close(dev);
}

/* As tests/unit/test_dev.c for the CPU: what dev.h promises. */
static void copies_and_fills(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, (size_t)1 << 20, ((size_t)9 << 20) + 77};
    struct dev *dev = open_device();
    struct stream *s = NULL, *other = NULL;
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_stream_open(dev, &other));
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        char *host = malloc(n), *back = malloc(n);
        void *data = NULL, *twin = NULL;
        kt_ok(dev_alloc(dev, n, &data));
        kt_ok(dev_alloc(dev, n, &twin));
        kt_ok(dev_copy(s, back, data, n)); /* zeroed */
        kt_ok(dev_sync(s));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(back[i], 0), host[i] = (char)(i * 31 >> 3);
        kt_ok(dev_copy(s, data, host, n));
        memset(host, 9, n); /* what was given may be used again */
        kt_ok(dev_copy(s, twin, data, n));
        kt_ok(dev_stream_wait_stream(other, s));
        kt_ok(dev_copy(s, back, twin, n));
        kt_ok(dev_fill(s, twin, 7, n));
        kt_ok(dev_copy(s, data, back, n)); /* not yet arrived on the host: waits for it */
        kt_ok(dev_copy(s, host, twin, n));
        kt_ok(dev_copy(s, back, data, n));
        kt_ok(dev_sync(s));
        for (size_t i = 0; i < n; i++)
            assert_true(back[i] == (char)(i * 31 >> 3) && host[i] == 7);
        dev_free(dev, data, n);
        dev_free(dev, twin, n);
        free(host);
        free(back);
    }
    /* that a slot was "not ready" was an answer */
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    dev_stream_close(s);
    dev_stream_close(other);
    dev_close(dev);
    assert_int_equal(runtime.pieces_n + runtime.events_n + runtime.streams_n, 0);
}

/* Many small copies to the device share slots: the host does not wait for the first of them, nor
 * are they mixed up, with others on their way back between them, and when slots come round. */
static void small_copies_do_not_wait(void **state)
{
    (void)state;
    enum { N = 1000, TURNS = 3000 };
    struct dev *dev = open_device();
    struct stream *s = NULL;
    void *data = NULL;
    char *back = malloc((size_t)N * TURNS), part[N], old[2] = {1, 1};
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_alloc(dev, (size_t)N * TURNS, &data));
    for (int round = 0; round < 4; round++) { /* 12 MB in all */
        const int waits = *runtime_calls("cudaEventSynchronize");
        for (int i = 0; i < TURNS; i++) {
            memset(part, round + i, sizeof part);
            kt_ok(dev_copy(s, (char *)data + (size_t)i * N, part, sizeof part));
            if (i == TURNS / 2)
                kt_ok(dev_copy(s, &old[round % 2], (char *)data + (size_t)(TURNS / 2 + 1) * N, 1));
        }
        assert_int_equal(*runtime_calls("cudaEventSynchronize"), waits);
        kt_ok(dev_copy(s, back, data, (size_t)N * TURNS));
        kt_ok(dev_sync(s));
        assert_int_equal(old[round % 2], round == 0 ? 0 : (char)(round - 1 + TURNS / 2 + 1));
        for (int i = 0; i < N * TURNS; i++)
            assert_true(back[i] == (char)(round + i / N));
    }
    free(back);
    dev_free(dev, data, (size_t)N * TURNS);
    dev_stream_close(s);
    dev_close(dev);
}

/* The host that touches the device's memory crashes, as on a GPU: else the tests below would prove
 * little. */
static void memory_is_the_devices(void **state)
{
    (void)state;
    struct dev *dev = open_device();
    void *data = NULL;
    int ended = 0;
    kt_ok(dev_alloc(dev, 64, &data));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)data);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(ended != 0);
    dev_free(dev, data, 64);
    dev_close(dev);
}

/* ---- faults ---- */

static void said(enum status st, enum status want, const char *word)
{
    if (st != want || !strstr(status_message(), word))
        fail_msg("%s \"%s\", want %s with \"%s\"", status_name(st), status_message(),
                 status_name(want), word);
}

static void no_device(void **state)
{
    (void)state;
    struct dev *dev = NULL;
    int count = 0;
    runtime_fail("cudaGetDeviceCount", 0, cudaErrorInsufficientDriver);
    said(dev_cuda_count(&count), ST_NO_DEVICE, "DEVICE=cpu");
    runtime.devices_n = 0;
    said(dev_cuda_count(&count), ST_NO_DEVICE, "DEVICE=cpu");
    runtime.devices_n = 1;
    said(dev_cuda_open(1, false, &dev), ST_NO_DEVICE,
         "GPU 1 was asked for, but this process sees 1");
    runtime.major = 7;
    said(dev_cuda_open(0, false, &dev), ST_NO_DEVICE, "needs sm_80");
    runtime.major = 9;
    runtime_fail("cudaSetDevice", 0, cudaErrorDevicesUnavailable);
    said(dev_cuda_open(0, false, &dev), ST_NO_DEVICE, "the GPU cannot be used");
    assert_null(dev);
}

static void faults_have_their_status(void **state)
{
    (void)state;
    static const struct {
        cudaError_t error;
        enum status st;
        int exit_code;
        const char *word;
    } trials[] = {{cudaErrorECCUncorrectable, ST_FAULT, 80, "drain the node"},
                  {cudaErrorIllegalAddress, ST_FAULT, 80, "a guess: a bug of this program"},
                  {cudaErrorLaunchFailure, ST_FAULT, 80, "Xid"},
                  {cudaErrorInvalidValue, ST_BUG, 70, "cudaStreamSynchronize"}};
    struct dev *dev = open_device();
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        runtime_fail("cudaStreamSynchronize", 0, trials[i].error);
        enum status st = dev_sync(s);
        said(st, trials[i].st, trials[i].word);
        assert_int_equal(status_exit(st), trials[i].exit_code);
    }
    dev_stream_close(s);
    dev_close(dev);
}

/* use — what a stream needs, from opening it to its first operation. */
static enum status use(struct dev *dev, struct stream **s)
{
    void *data = NULL;
    TRY(dev_stream_open(dev, s));
    TRY(dev_alloc(dev, 1000, &data));
    struct tensor x = {data, DTYPE_F32};
    return dev_op(dev)->gelu_fwd(*s, &(struct gelu_fwd){.y = x, .x = x, .n = 100});
}

/* Every call of the runtime fails once: nothing leaks, nothing crashes, memory that is refused is
 * ST_RETRY with numbers. */
static void every_call_fails_once(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "cudaMalloc",    "cudaMemsetAsync",          "cudaStreamSynchronize",
        "cudaHostAlloc", "cudaEventCreateWithFlags", "cudaStreamCreateWithFlags",
        "cudaSetDevice"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int after = 0; after < 8; after++) {
            struct dev *dev = open_device();
            struct stream *s = NULL;
            runtime_fail(calls[i], after, cudaErrorMemoryAllocation);
            enum status st = use(dev, &s);
            if (st != ST_OK)
                said(st, ST_RETRY,
                     strcmp(calls[i], "cudaHostAlloc") == 0 ? "8.0 MiB of pinned host memory"
                                                            : "the GPU has 8");
            assert_true(st == ST_OK ? runtime.fail_call != NULL && after > 0
                                    : runtime.fail_call == NULL);
            runtime.fail_call = NULL;
            if (s)
                dev_stream_close(s);
            dev_close(dev);
            assert_int_equal(runtime.pieces_n + runtime.events_n + runtime.streams_n, 0);
        }
}

/* Streams that only copy take no memory of the device; the first operation does, and no later
 * one. */
static void streams_take_what_they_use(void **state)
{
    (void)state;
    struct dev *dev = open_device();
    struct stream *copies = NULL, *s = NULL;
    void *data = NULL;
    int *taken = runtime_calls("cudaMalloc"), before = *taken;
    kt_ok(dev_stream_open(dev, &copies));
    kt_ok(dev_stream_open(dev, &s));
    assert_int_equal(*taken, before);
    kt_ok(dev_alloc(dev, 1000, &data));
    struct tensor x = {data, DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        kt_ok(dev_copy(copies, data, here(""), 100));
        kt_ok(dev_op(dev)->gelu_fwd(s, &(struct gelu_fwd){.y = x, .x = x, .n = 100}));
        assert_int_equal(*taken, before + 2);
        struct dev_info info;
        dev_info(dev, &info);
        assert_int_equal(info.taken_bytes, 1000 + info.scratch_bytes);
    }
    dev_stream_close(copies);
    dev_stream_close(s);
    dev_close(dev);
    assert_int_equal(runtime.pieces_n + runtime.events_n + runtime.streams_n, 0);
}

/* ---- libraries ---- */

struct one_symbol {
    void (*no_such_thing)(void);
};

static void libraries_are_found_or_named(void **state)
{
    (void)state;
    static const char *const names[] = {"libcublasLt.so.13", NULL}, *const absent[] = {
                                                                        "libnowhere.so.7", NULL};
    static const struct library_symbol symbols[] = {LIBRARY_SYMBOL(one_symbol, no_such_thing)};
    struct library_spec spec = {"cuBLASLt", names, "libcublas-13-0", symbols, 1};
    struct library l;
    struct one_symbol table;
    use_fake();
    said(library_open(&spec, &l, &table), ST_NO_DEVICE, "has no no_such_thing");
    assert_non_null(strstr(status_message(), here("")));
    assert_null(l.handle);
    spec.symbols_n = 0;
    kt_ok(library_open(&spec, &l, &table));
    assert_string_equal(l.path, here("/libcublasLt.so.13"));
    library_close(&l);
    library_close(&l);
    spec.names = absent;
    said(library_open(&spec, &l, &table), ST_NO_DEVICE, "no libnowhere.so.7 in ");
    assert_non_null(strstr(status_message(), "/usr/local/cuda/lib64"));
    assert_non_null(strstr(status_message(), "install libcublas-13-0"));
    library_dir(NULL);
}

/* ---- products ---- */

struct product {
    int64_t n, in, out, pad;
    enum matmul_layout layout;
    unsigned bits;
};

/* on_device — n floats between guards of its own; the caller frees none of it: the device does when
 * it closes. */
static float *on_device(struct dev *dev, struct stream *s, int64_t n, uint64_t draw)
{
    void *data = NULL;
    float *host = kt_floats(n, KT_RANDOM, draw);
    kt_ok(dev_alloc(dev, (size_t)n * sizeof *host, &data));
    kt_ok(dev_copy(s, data, host, (size_t)n * sizeof *host));
    kt_free(host);
    return data;
}

static void same(struct stream *s, const char *what, const struct product *p, const float *got,
                 const float *want, int64_t n)
{
    float *host = kt_floats(n, KT_ONES, 0);
    kt_ok(dev_copy(s, host, got, (size_t)n * sizeof *host));
    kt_ok(dev_sync(s));
    double nmse = kt_nmse(host, want, n);
    if (!(nmse <= 1e-12))
        fail_msg("%s %lldx%lldx%lld layout %d bits %x: nmse %g", what, (long long)p->n,
                 (long long)p->in, (long long)p->out, p->layout, p->bits, nmse);
    kt_free(host);
}

static struct tensor maybe(bool is_there, float *data)
{
    return is_there ? kt_f32(data) : (struct tensor){0};
}

static void forward(struct dev *dev, struct stream *s, const struct product *p)
{
    int64_t stride = p->out + p->pad, sizes[] = {p->n * stride,  p->n * p->out, p->n * p->in,
                                                 p->in * p->out, p->out,        p->n * p->out};
    float *d[6], *h[6];
    bool is_gelu = p->bits & 1;
    for (int i = 0; i < 6; i++) {
        d[i] = on_device(dev, s, sizes[i], (uint64_t)i);
        h[i] = kt_floats(sizes[i], KT_RANDOM, (uint64_t)i);
    }
    for (int side = 0; side < 2; side++) {
        float **x = side ? d : h;
        struct matmul_fwd a = {.y = kt_f32(x[0]),
                               .pre = maybe(is_gelu && p->bits & 4, x[1]),
                               .x = kt_f32(x[2]),
                               .w = kt_f32(x[3]),
                               .b = maybe(p->bits & 2, x[4]),
                               .residual = maybe(!is_gelu && p->bits & 4, x[5]),
                               .n = p->n,
                               .in = p->in,
                               .out = p->out,
                               .y_stride = p->pad ? stride : 0,
                               .layout = p->layout,
                               .act = is_gelu ? MATMUL_ACT_GELU : MATMUL_ACT_NONE,
                               .dropout =
                                   kt_dropout(!is_gelu && p->bits & 4 && p->bits & 8 ? 0.2f : 0)};
        if (!is_gelu && p->bits & 4 && !p->pad && p->n % 2)
            a.residual = a.y;
        kt_ok(side ? dev_op(dev)->matmul_fwd(s, &a)
                   : dev_op(kt_plain()->dev)->matmul_fwd(kt_plain()->stream, &a));
    }
    same(s, "matmul_fwd y", p, d[0], h[0], sizes[0]);
    same(s, "matmul_fwd pre", p, d[1], h[1], sizes[1]);
    for (int i = 0; i < 6; i++) {
        kt_free(h[i]);
        dev_free(dev, d[i], (size_t)sizes[i] * sizeof(float));
    }
}

static void backward(struct dev *dev, struct stream *s, const struct product *p)
{
    int64_t stride = p->out + p->pad, sizes[] = {p->n * p->in, p->in * p->out, p->out,
                                                 p->n * p->in, p->n * stride,  p->in * p->out};
    float *d[6], *h[6];
    for (int i = 0; i < 6; i++) {
        d[i] = on_device(dev, s, sizes[i], (uint64_t)i);
        h[i] = kt_floats(sizes[i], KT_RANDOM, (uint64_t)i);
    }
    for (int side = 0; side < 2; side++) {
        float **x = side ? d : h;
        struct kt_device on = side ? (struct kt_device){dev, s} : *kt_plain();
        struct matmul_bwd_x a = {.dx = kt_f32(x[0]),
                                 .dy = kt_f32(x[4]),
                                 .w = kt_f32(x[5]),
                                 .pre = maybe(p->bits & 1, x[3]),
                                 .n = p->n,
                                 .in = p->in,
                                 .out = p->out,
                                 .dy_stride = p->pad ? stride : 0,
                                 .layout = p->layout};
        struct matmul_bwd_w b = {.dw = kt_f32(x[1]),
                                 .db = maybe(p->bits & 2, x[2]),
                                 .x = kt_f32(x[3]),
                                 .dy = kt_f32(x[4]),
                                 .n = p->n,
                                 .in = p->in,
                                 .out = p->out,
                                 .dy_stride = p->pad ? stride : 0,
                                 .layout = p->layout,
                                 .accumulate = p->bits & 4};
        kt_ok(dev_op(on.dev)->matmul_bwd_x(on.stream, &a));
        kt_ok(dev_op(on.dev)->matmul_bwd_w(on.stream, &b));
    }
    same(s, "matmul_bwd_x dx", p, d[0], h[0], sizes[0]);
    same(s, "matmul_bwd_w dw", p, d[1], h[1], sizes[1]);
    same(s, "matmul_bwd_w db", p, d[2], h[2], sizes[2]);
    for (int i = 0; i < 6; i++) {
        kt_free(h[i]);
        dev_free(dev, d[i], (size_t)sizes[i] * sizeof(float));
    }
}

static void products_are_ours(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 7, 2}, {8, 16, 24}, {33, 20, 32}};
    struct dev *dev = open_device();
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    own_products = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (unsigned form = 0; form < 64; form++) {
            struct product p = {shapes[k][0],
                                shapes[k][1],
                                shapes[k][2],
                                form & 32 ? 3 : 0,
                                form & 16 ? MATMUL_LAYOUT_OI : MATMUL_LAYOUT_IO,
                                form & 15};
            forward(dev, s, &p);
            backward(dev, s, &p);
        }
    const int *counts = fake_counts();
    print_message("# %d with an epilogue or none needed, %d apart, %d refused, %d shapes, %d left "
                  "to our own\n",
                  counts[0], counts[1], counts[2], counts[3], own_products);
    assert_true(counts[0] > 20 && counts[1] > 20 && counts[2] > 5 && own_products > 5);
    assert_true(counts[3] < counts[0] + counts[1]); /* what was found for a shape is kept */
    dev_stream_close(s);
    dev_close(dev);
}

/* Bias and what is kept for GELU must be multiples of 16, else our own kernel makes the product;
 * more changes nothing. */
static void addresses_of_16(void **state)
{
    (void)state;
    struct dev *dev = open_device();
    struct stream *s = NULL;
    kt_ok(dev_stream_open(dev, &s));
    struct matmul_fwd a = {.y = kt_f32(on_device(dev, s, 192, 0)),
                           .x = kt_f32(on_device(dev, s, 128, 1)),
                           .w = kt_f32(on_device(dev, s, 384, 2)),
                           .n = 8,
                           .in = 16,
                           .out = 24,
                           .act = MATMUL_ACT_GELU};
    float *bias = on_device(dev, s, 40, 3), *pre = on_device(dev, s, 208, 4);
    /* GELU apart: to any address */
    static const int from[][2] = {{0, 0}, {4, 8}, {1, 0}, {2, 0}, {0, 1}, {0, 2}, {8, 4}};
    int with = fake_counts()[0], own = own_products;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        a.b = kt_f32(bias + from[i][0]), a.pre = kt_f32(pre + from[i][1]);
        kt_ok(dev_op(dev)->matmul_fwd(s, &a));
    }
    kt_ok(dev_sync(s));
    assert_int_equal(fake_counts()[0] - with, 5);
    assert_int_equal(own_products - own, 2);
    dev_stream_close(s);
    dev_close(dev);
}

/* ---- a whole step ---- */

struct outcome {
    double loss, norm;
    float *params;
    int64_t elems;
};

static struct outcome train(struct dev *dev, enum model_task task, enum model_recompute recompute)
{
    struct step_config c = {.dev = dev,
                            .batch_samples = 2,
                            .global_samples = 4,
                            .seq_tokens = 9,
                            .seed = 3,
                            .recompute = recompute,
                            .dropout = 0.1f,
                            .dims = {.name = "tiny",
                                     .task = task,
                                     .layers = 2,
                                     .heads = 2,
                                     .embed = 16,
                                     .context = 12,
                                     .vocab = 37},
                            .optim = {.kind = OPTIM_KIND_ADAMW,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .grad_clip = 1}};
    struct step *step = NULL;
    struct batch b;
    struct step_result r = {0};
    kt_ok(step_open(&c, &step));
    kt_ok(batch_init(&b, task == MODEL_TASK_LM ? FEED_TASK_LM : FEED_TASK_QA, 4, 9));
    for (int i = 0; i < 36; i++) {
        b.host.tokens[i] = (int32_t)(rand_u32(5, 1, (uint64_t)i) % 37);
        if (b.host.targets)
            b.host.targets[i] = i % 5 ? (int32_t)(rand_u32(5, 2, (uint64_t)i) % 37) : -1;
        if (b.host.mask)
            b.host.mask[i] = i % 7 != 3;
    }
    for (int i = 0; b.host.starts && i < 4; i++)
        b.host.starts[i] = i * 2, b.host.ends[i] = i * 2 + 1;
    for (int i = 0; i < 3; i++)
        kt_ok(step_run_batch(step, &b, i, i * 4, 1e-3, false, &r));
    struct outcome out = {r.loss, r.grad_norm, NULL, step_table(step)->total_elems};
    out.params = kt_floats(out.elems, KT_ONES, 0);
    kt_ok(step_read(step, 0, 0, out.elems, out.params));
    batch_free(&b);
    step_close(step);
    return out;
}

/* Language model and question answering, with dropout, two micro-batches, with and without
 * recomputation; the losses after two updates and the parameters after three are the CPU's. */
static void gpt2_learns_the_same(void **state)
{
    (void)state;
    struct dev *dev = open_device();
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int recompute = 0; recompute < 2; recompute++) {
            emu_seed((uint64_t)(task * 2 + recompute));
            enum model_recompute kind = recompute ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE;
            struct outcome want = train(kt_plain()->dev, (enum model_task)task, kind);
            struct outcome got = train(dev, (enum model_task)task, kind);
            double nmse = kt_nmse(got.params, want.params, want.elems);
            print_message(
                "# task %d: loss %.7f, CPU %.7f; norm %.6f, CPU %.6f; parameters' nmse %.2g\n",
                task, got.loss, want.loss, got.norm, want.norm, nmse);
            assert_true(fabs(got.loss - want.loss) <= 1e-5 * want.loss &&
                        fabs(got.norm - want.norm) <= 1e-4 * want.norm);
            assert_true(nmse <= 1e-7);
            kt_free(got.params);
            kt_free(want.params);
        }
    dev_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_says_what_it_is),         cmocka_unit_test(copies_and_fills),
    cmocka_unit_test(small_copies_do_not_wait),   cmocka_unit_test(is_discrete),
    cmocka_unit_test(memory_is_the_devices),      cmocka_unit_test(no_device),
    cmocka_unit_test(faults_have_their_status),   cmocka_unit_test(every_call_fails_once),
    cmocka_unit_test(streams_take_what_they_use), cmocka_unit_test(libraries_are_found_or_named),
    cmocka_unit_test(products_are_ours),          cmocka_unit_test(addresses_of_16),
    cmocka_unit_test(gpt2_learns_the_same),
};
HARNESS_MAIN(tests)
#endif
