/* The CUDA device without a GPU (guarded.h): memory, copies, events, libraries, faults and their
 * messages. */
#include "kernel_test.h"

#include <sys/mman.h>

#include "tests/cuda/guarded.h"

/* ---- device, memory, copies ---- */

TEST(info_describes_the_gpu)
{
    struct dev_info info;
    struct dev *dev = open_device();
    dev_info(dev, &info);
    assert_int_equal(info.kind, DEV_KIND_GPU);
    assert_string_equal(info.name, "cuda 0 Emulated 0 sm_90 driver 13.0");
    assert_non_null(strstr(dev_cuda_built(), "sm_90a"));
    assert_true(info.peak_flops == 0 && info.peak_flops_16 == 0);
    dev_close(dev);
    runtime.sm_count = 132; /* as an H200 */
    for (int is_tf32 = 0; is_tf32 < 2; is_tf32++) {
        dev = open_device_as(is_tf32);
        dev_info(dev, &info);
        assert_true(info.is_tf32 == (is_tf32 == 1));
        assert_true(info.peak_flops == (is_tf32 ? 494.7 : 66.9) * 1e12 &&
                    info.peak_flops_16 == 989.4 * 1e12);
        dev_close(dev);
    }
    runtime.sm_count = 4;
}

/* The calling thread has another GPU current. */
TEST(free_memory_is_of_the_right_gpu)
{
    struct dev_info info[2];
    struct dev *dev[2];
    runtime.devices_n = 2;
    for (int i = 0; i < 2; i++)
        kt_ok(dev_cuda_open(i, false, &dev[i]));
    for (int i = 0; i < 2; i++)
        dev_info(dev[i], &info[i]);
    assert_int_equal(info[0].free_bytes, runtime.free_bytes);
    assert_int_equal(info[1].free_bytes, runtime.free_bytes / 2);
    for (int i = 0; i < 2; i++)
        dev_close(dev[i]);
    runtime.devices_n = 1;
}

/* The first GPU of the tests' driver tells its granularity, the second does not, and without the
 * driver's library it is unknown. On a machine with a driver this one comes first. */
TEST(the_driver_tells_the_granularity)
{
    struct dev_info info;
    for (int i = 0; i < 2; i++) {
        struct dev *dev = open_device();
        void *driver = i == 1 ? dlopen(here("/driver/libcuda.so.1"), RTLD_NOW) : NULL;
        assert_true(i == 0 || driver != NULL);
        dev_info(dev, &info);
        dev_close(dev);
        assert_int_equal(info.granularity_bytes, i == 1 ? 4 << 20 : 0);
        runtime.devices_n = 2;
        kt_ok(dev_cuda_open(1, false, &dev));
        dev_info(dev, &info);
        dev_close(dev);
        runtime.devices_n = 1;
        assert_int_equal(info.granularity_bytes, 0);
        if (driver != NULL)
            dlclose(driver);
    }
}

/* What a communicator uses: pinned memory, streams that are queried instead of waited for,
 * events. */
TEST(is_discrete)
{
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
    assert_int_equal(info.uuid[0], 1);
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

/* As tests/unit/dev/dev.c for the CPU: what dev.h promises. */
TEST(copies_and_fills)
{
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
    assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

/* Many small copies to the device share slots: the host does not wait for the first of them, nor
 * are they mixed up, with others on their way back between them, and when slots come round. */
TEST(small_copies_do_not_wait)
{
    enum { N = 1000, TURNS = 3000 };
    struct dev *dev = open_device();
    struct stream *s = NULL;
    void *data = NULL;
    char *back = malloc((size_t)N * TURNS), chunk[N], old[2] = {1, 1};
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_alloc(dev, (size_t)N * TURNS, &data));
    for (int round = 0; round < 4; round++) { /* 12 MB in all */
        const int waits = *runtime_calls("cudaEventSynchronize");
        for (int i = 0; i < TURNS; i++) {
            memset(chunk, round + i, sizeof chunk);
            kt_ok(dev_copy(s, (char *)data + (size_t)i * N, chunk, sizeof chunk));
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
TEST(memory_is_out_of_the_hosts_reach)
{
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

static void expect_failure(enum status st, enum status want, const char *word)
{
    if (st != want || !strstr(status_message(), word))
        fail_msg("%s \"%s\", want %s with \"%s\"", status_name(st), status_message(),
                 status_name(want), word);
}

/* Memory that the caller has mapped counts as pinned, and stays as it is when it is unpinned. */
TEST(pins_a_mapping)
{
    enum { N = 70001 };
    struct dev *dev = open_device();
    struct stream *s = NULL;
    struct dev_event *event = NULL;
    void *data = NULL;
    unsigned char *mapped =
        mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    kt_ok(dev_stream_open(dev, &s));
    kt_ok(dev_alloc(dev, N, &data));
    runtime_fail("cudaHostRegister", 0, cudaErrorMemoryAllocation);
    expect_failure(dev_pin_mapping(dev, mapped, N), ST_RETRY, "68.4 KiB of pinned host memory");
    kt_ok(dev_pin_mapping(dev, mapped, N));
    memset(mapped, 0x5A, N);
    kt_ok(dev_copy(s, data, mapped, N));
    kt_ok(dev_sync(s));
    memset(mapped, 0, N);
    kt_ok(dev_read_async(s, mapped, data, N)); /* only to pinned memory */
    kt_ok(dev_event_record(s, &event));
    kt_ok(dev_event_sync(event));
    dev_event_free(event);
    dev_unpin(dev, mapped);
    for (int i = 0; i < N; i++)
        assert_int_equal(mapped[i], 0x5A);
    munmap(mapped, N);
    dev_free(dev, data, N);
    dev_stream_close(s);
    dev_close(dev);
}

TEST(no_device)
{
    struct dev *dev = NULL;
    int count = 0;
    runtime_fail("cudaGetDeviceCount", 0, cudaErrorInsufficientDriver);
    expect_failure(dev_cuda_count(&count), ST_NO_DEVICE, "DEVICE=cpu");
    runtime.devices_n = 0;
    expect_failure(dev_cuda_count(&count), ST_NO_DEVICE, "DEVICE=cpu");
    runtime.devices_n = 1;
    expect_failure(dev_cuda_open(1, false, &dev), ST_NO_DEVICE,
                   "GPU 1 was requested, but this process sees 1");
    runtime.major = 7;
    expect_failure(dev_cuda_open(0, false, &dev), ST_NO_DEVICE, "needs sm_80");
    runtime.major = 9;
    runtime_fail("cudaSetDevice", 0, cudaErrorDevicesUnavailable);
    expect_failure(dev_cuda_open(0, false, &dev), ST_NO_DEVICE, "the GPU cannot be used");
    assert_null(dev);
}

TEST(faults_have_their_status)
{
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
        expect_failure(st, trials[i].st, trials[i].word);
        assert_int_equal(status_exit_code(st), trials[i].exit_code);
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
TEST(every_call_fails_once)
{
    static const char *const calls[] = {
        "cudaMalloc",    "cudaMemsetAsync",          "cudaStreamSynchronize",
        "cudaHostAlloc", "cudaEventCreateWithFlags", "cudaStreamCreateWithPriority",
        "cudaSetDevice"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int after = 0; after < 8; after++) {
            struct dev *dev = open_device();
            struct stream *s = NULL;
            runtime_fail(calls[i], after, cudaErrorMemoryAllocation);
            enum status st = use(dev, &s);
            if (st != ST_OK)
                expect_failure(st, ST_RETRY,
                               strcmp(calls[i], "cudaHostAlloc") == 0
                                   ? "8.0 MiB of pinned host memory"
                                   : "the GPU has 8");
            assert_true(st == ST_OK ? runtime.fail_call != NULL && after > 0
                                    : runtime.fail_call == NULL);
            runtime.fail_call = NULL;
            if (s)
                dev_stream_close(s);
            dev_close(dev);
            assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
        }
}

/* Streams that only copy take no memory of the device; the first operation does, and no later
 * one. */
TEST(streams_take_what_they_use)
{
    struct dev *dev = open_device();
    struct stream *copies = NULL, *s = NULL;
    void *data = NULL;
    int *allocations = runtime_calls("cudaMalloc"), before = *allocations;
    kt_ok(dev_stream_open(dev, &copies));
    kt_ok(dev_stream_open(dev, &s));
    assert_int_equal(*allocations, before);
    kt_ok(dev_alloc(dev, 1000, &data));
    struct tensor x = {data, DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        kt_ok(dev_stream_wait_stream(copies, s));
        kt_ok(dev_copy(copies, data, here(""), 100));
        kt_ok(dev_stream_wait_stream(s, copies));
        kt_ok(dev_op(dev)->gelu_fwd(s, &(struct gelu_fwd){.y = x, .x = x, .n = 100}));
        assert_int_equal(*allocations, before + 2);
        struct dev_info info;
        dev_info(dev, &info);
        assert_int_equal(info.allocated_bytes, 1000 + info.scratch_bytes);
    }
    dev_stream_close(copies);
    dev_stream_close(s);
    dev_close(dev);
    assert_int_equal(runtime.blocks_n + runtime.events_n + runtime.streams_n, 0);
}

/* ---- libraries ---- */

struct one_symbol {
    void (*no_such_thing)(void);
};

TEST(libraries_are_found_or_named)
{
    static const char *const names[] = {"libcublasLt.so.13", NULL}, *const absent[] = {
                                                                        "libnowhere.so.7", NULL};
    static const struct library_symbol symbols[] = {LIBRARY_SYMBOL(one_symbol, no_such_thing)};
    struct library_spec spec = {"cuBLASLt", names, "libcublas-13-0", symbols, 1, NULL};
    struct library l;
    struct one_symbol table;
    use_fake();
    library_root("/nowhere"); /* without this machine's own libraries */
    expect_failure(library_open(&spec, &l, &table), ST_NO_DEVICE,
                   "libcublasLt.so.13: has no no_such_thing");
    assert_non_null(strstr(status_message(), here("")));
    assert_null(l.handle);
    spec.symbols_n = 0;
    kt_ok(library_open(&spec, &l, &table));
    assert_string_equal(l.path, here("/libcublasLt.so.13"));
    library_close(&l);
    library_close(&l);
    spec.names = absent;
    expect_failure(library_open(&spec, &l, &table), ST_NO_DEVICE, "no libnowhere.so.7 in ");
    assert_non_null(strstr(status_message(), "CUDA's folders"));
    assert_non_null(strstr(status_message(), "install libcublas-13-0"));
    library_root(NULL);
    library_dir(NULL);
}

static enum status find_blas(char *about, size_t cap)
{
    return dev_cuda_blas(DEV_GPU_CUDA, about, cap);
}

/* The tests' own libraries are for CUDA 13: with a driver for 12.4 they are passed over. */
TEST(libraries_fit_the_driver)
{
    char about[LIBRARY_PATH_MAX + 32];
    enum status (*const find[])(char *, size_t) = {find_blas, dev_cuda_attention_find};
    int driver = runtime.driver;
    use_fake();
    library_root("/nowhere");
    for (int i = 0; i < 2; i++) {
        runtime.driver = 12040;
        expect_failure(find[i](about, sizeof about), ST_NO_DEVICE,
                       ": is for CUDA 13, and the driver supports CUDA 12.4");
        runtime.driver = 13000;
        kt_ok(find[i](about, sizeof about));
    }
    assert_int_equal(dev_cuda_driver_least(), CUDART_VERSION / 1000 == 13 ? 580 : 525);
    runtime.driver = driver;
    library_root(NULL);
    library_dir(NULL);
}

HARNESS_RUN_ALL()
