/* dev_cuda — a GPU as a device, through its vendor's runtime (runtime.h). A struct stream is a
 * stream of that runtime with a pinned ring for its copies and scratch memory for its kernels. No
 * function here waits for the whole device. Must not know the meaning of the kernels.
 *
 * Copies. A table of the allocations of dev_alloc identifies device memory, and a table of dev_pin
 * identifies pinned host memory. Pageable host memory goes through the pinned ring
 * (cuda/ring.c). */
#include "dev/cuda/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "base/text.h"
#include "dev/blas/plan.h"
#include "dev/dev_check.h"
#include "dev/cuda/peak.h"

/* ---- memory ---- */

/* Returns the mutex of a const device: a reader of the tables has a const device, but must lock. */
static pthread_mutex_t *mutex_of(const struct dev *dev)
{
    return (pthread_mutex_t *)(uintptr_t)&dev->mutex;
}

static bool is_in(const struct dev *dev, const struct cuda_ranges *ranges, const void *p)
{
    bool is_found = false;
    pthread_mutex_lock(mutex_of(dev));
    for (size_t i = 0; i < ranges->n && !is_found; i++)
        is_found = (uintptr_t)p - (uintptr_t)ranges->range[i].data < ranges->range[i].bytes;
    pthread_mutex_unlock(mutex_of(dev));
    return is_found;
}

static bool is_on_device(const struct dev *dev, const void *p) { return is_in(dev, &dev->own, p); }

static void add_range(struct dev *dev, struct cuda_ranges *to, struct cuda_range range)
{
    pthread_mutex_lock(&dev->mutex);
    to->range = memory_resize(to->range, to->n + 1, sizeof *to->range);
    to->range[to->n++] = range;
    pthread_mutex_unlock(&dev->mutex);
}

/* Removes a range from the table and returns it; bytes 0: it is not in the table. */
static struct cuda_range drop_range(struct dev *dev, struct cuda_ranges *from, const void *data)
{
    struct cuda_range dropped = {.bytes = 0};
    pthread_mutex_lock(&dev->mutex);
    for (size_t i = 0; i < from->n && dropped.bytes == 0; i++)
        if (from->range[i].data == data) {
            dropped = from->range[i];
            from->range[i] = from->range[--from->n];
        }
    pthread_mutex_unlock(&dev->mutex);
    return dropped;
}

static enum status zero_memory(void *data, size_t bytes)
{
    gpu_error error = dev_runtime->MemsetAsync(data, 0, bytes, NULL);
    error = error == GPU_SUCCESS ? dev_runtime->StreamSynchronize(NULL) : error;
    return error == GPU_SUCCESS ? ST_OK : dev_cuda_error_fail(error, "zeroing new memory");
}

static enum status allocate_zeroed(const struct dev *dev, size_t bytes, void **out)
{
    char text[32];
    void *data = NULL;
    CUDA_CHECK(dev_runtime->SetDevice(dev->device_i));
    gpu_error error = dev_runtime->Malloc(&data, bytes);
    if (error != GPU_SUCCESS) {
        char what[80];
        text_format(what, sizeof what, "%s of device memory were requested",
                    text_format_bytes(text, sizeof text, (double)bytes));
        enum status st = dev_cuda_error_fail(error, what);
        /* more than the device has: no retry helps */
        return st == ST_RETRY && bytes > dev->prop.memory_bytes ? ST_BAD_SETTING : st;
    }
    enum status st = zero_memory(data, bytes);
    if (st == ST_OK)
        *out = data;
    else
        (void)dev_runtime->Free(data);
    return st;
}

/* Allocates device memory and adds it to the table `to`. */
static enum status allocate_range(struct dev *dev, struct cuda_ranges *to, size_t bytes, void **out)
{
    void *data = NULL;
    TRY(allocate_zeroed(dev, bytes, &data));
    add_range(dev, to, (struct cuda_range){.data = data, .bytes = bytes});
    *out = data;
    return ST_OK;
}

static enum status cuda_alloc(struct dev *dev, size_t bytes, void **out)
{
    return allocate_range(dev, &dev->own, bytes ? bytes : 1, out);
}

static void cuda_free(struct dev *dev, void *data, size_t bytes)
{
    size_t released = drop_range(dev, &dev->own, data).bytes;
    ASSERTF(released == (bytes ? bytes : 1), "%p: %zu bytes, released %zu", data, bytes, released);
    (void)dev_runtime->Free(data); /* a fault was reported before */
}

static enum status cuda_adopt(struct dev *dev, void *data, size_t bytes)
{
    CUDA_CHECK(dev_runtime->SetDevice(dev->device_i));
    TRY(zero_memory(data, bytes));
    add_range(dev, &dev->own, (struct cuda_range){.data = data, .bytes = bytes});
    return ST_OK;
}

static void cuda_disown(struct dev *dev, void *data)
{
    size_t released = drop_range(dev, &dev->own, data).bytes;
    ASSERTF(released > 0, "%p was not adopted", data);
}

static enum status cuda_make_current(struct dev *dev)
{
    CUDA_CHECK(dev_runtime->SetDevice(dev->device_i));
    return ST_OK;
}

static enum status cuda_pin(struct dev *dev, size_t bytes, void **out)
{
    void *data = NULL;
    bytes = bytes ? bytes : 1;
    TRY(dev_cuda_error_pin(dev_runtime->HostAlloc(&data, bytes, GPU_HOST_PORTABLE), bytes));
    add_range(dev, &dev->pinned, (struct cuda_range){.data = data, .bytes = bytes});
    *out = data;
    return ST_OK;
}

static enum status cuda_pin_mapping(struct dev *dev, void *data, size_t bytes)
{
    TRY(dev_cuda_error_pin(dev_runtime->HostRegister(data, bytes, GPU_REGISTER_PORTABLE), bytes));
    add_range(dev, &dev->pinned,
              (struct cuda_range){.data = data, .bytes = bytes, .is_mapping = true});
    return ST_OK;
}

static void free_pinned(const struct cuda_range *range)
{
    if (range->is_mapping)
        (void)dev_runtime->HostUnregister(range->data);
    else
        (void)dev_runtime->FreeHost(range->data);
}

static void cuda_unpin(struct dev *dev, void *data)
{
    const struct cuda_range range = drop_range(dev, &dev->pinned, data);
    ASSERTF(range.bytes > 0, "%p was not pinned here", data);
    free_pinned(&range);
}

/* ---- information about the GPU, and memory that this process has allocated on it ---- */

static int64_t sum_ranges(const struct dev *dev, const struct cuda_ranges *ranges)
{
    int64_t bytes = 0;
    pthread_mutex_lock(mutex_of(dev));
    for (size_t i = 0; i < ranges->n; i++)
        bytes += (int64_t)ranges->range[i].bytes;
    pthread_mutex_unlock(mutex_of(dev));
    return bytes;
}

static void get_info(const struct dev *dev, struct dev_info *out)
{
    char driver[24];
    const struct gpu_props *prop = &dev->prop;
    struct dev_cuda_peak peak = dev_cuda_peak(prop->name, prop->major, prop->minor, prop->sm_count);
    size_t free_bytes = 0, total_bytes = 0;
    /* the calling thread may have another device current */
    bool is_known = dev_runtime->SetDevice(dev->device_i) == GPU_SUCCESS &&
                    dev_runtime->MemGetInfo(&free_bytes, &total_bytes) == GPU_SUCCESS;
    *out = (struct dev_info){.kind = DEV_KIND_GPU,
                             .memory_bytes = (int64_t)prop->memory_bytes,
                             .free_bytes = is_known ? (int64_t)free_bytes : -1,
                             .allocated_bytes =
                                 sum_ranges(dev, &dev->own) + sum_ranges(dev, &dev->scratch),
                             .scratch_bytes = (int64_t)CUDA_SCRATCH_BYTES,
                             .granularity_bytes = dev_cuda_driver_granularity(dev->device_i),
                             .peak_flops = dev->is_tf32 ? peak.tf32 : peak.f32,
                             .peak_flops_16 = peak.f16,
                             .is_tf32 = dev->is_tf32,
                             .threads_n = 1};
    text_copy(out->bus, sizeof out->bus, dev->bus);
    memcpy(out->uuid, prop->uuid, sizeof out->uuid);
    dev_runtime->version(dev->driver, driver, sizeof driver);
    text_format(out->name, sizeof out->name, "%s %d %.30s%s driver %s", dev_runtime->kind,
                dev->device_i, prop->name, prop->chip, driver);
}

/* ---- the library that computes the products of a stream ---- */

bool dev_cuda_driver_fits(size_t cudart_version, char *why, size_t cap)
{
    int version = 0;
    if (dev_runtime)
        (void)dev_runtime->DriverGetVersion(&version);
    if (version == 0 || cudart_version / 1000 <= (size_t)version / 1000)
        return true;
    text_format(why, cap, "is for CUDA %zu, and the driver supports CUDA %d.%d",
                cudart_version / 1000, version / 1000, version % 1000 / 10);
    return false;
}

enum status dev_cuda_blas(enum dev_gpu vendor, char *about, size_t cap)
{
    if (vendor == DEV_GPU_CUDA)
        TRY(dev_cuda_check_built());
    return blas_plan_find(vendor == DEV_GPU_HIP, about, cap);
}

const char *dev_cuda_blas_name(void)
{
    return dev_cuda_chosen() == DEV_GPU_HIP ? "hipBLASLt" : "cuBLASLt";
}

static enum dev_cuda_blas_kind blas_use;

void dev_cuda_blas_use(enum dev_cuda_blas_kind use) { blas_use = use; }

/* Opens the vendor's library. Without it the kernels of this program compute products, which is
 * logged once. */
static void open_blas(struct stream *s)
{
    static atomic_bool is_reported;
    const struct gpu_props *prop = &s->head.dev->prop;
    struct blas_chip chip = {.sm_count = prop->sm_count};
    text_copy(chip.name, sizeof chip.name, prop->name);
    const enum status st = blas_use == DEV_CUDA_BLAS_OFF ? FAIL(ST_NO_DEVICE, "CONVOY_BLAS=off")
                                                         : blas_plan_open(&chip, &s->blas);
    s->is_blas_plain = blas_use == DEV_CUDA_BLAS_PLAIN;
    if (atomic_exchange(&is_reported, true))
        return;
    if (st == ST_OK)
        LOG_INFO("products by %s %s%s", dev_cuda_blas_name(), blas_plan_about(s->blas),
                 s->is_blas_plain ? ", without epilogues (CONVOY_BLAS=plain)" : "");
    else
        LOG_WARN("products by the program's own kernels, %s: %s",
                 dev_cuda_chosen() == DEV_GPU_HIP ? "at an unknown speed"
                                                  : "at an estimated half of the speed",
                 status_message());
}

/* ---- streams ---- */

static void cuda_stream_close(struct stream *s)
{
    if (s->stream)
        (void)dev_runtime->StreamSynchronize(s->stream);
    dev_cuda_graph_close(s->graphs);
    dev_cuda_times_close(s->times);
    dev_cuda_busy_close(s->busy);
    dev_cuda_attention_close(s->attention);
    blas_plan_close(s->blas);
    dev_cuda_ring_close(&s->ring);
    if (s->cuda.scratch) {
        (void)drop_range(s->head.dev, &s->head.dev->scratch, s->cuda.scratch);
        (void)dev_runtime->Free(s->cuda.scratch);
    }
    if (s->event)
        dev_cuda_event_free(s->event);
    if (s->stream)
        (void)dev_runtime->StreamDestroy(s->stream);
    free(s);
}

static enum status fill_stream(struct stream *s, bool is_high)
{
    const struct dev *dev = s->head.dev;
    int low = 0, high = 0;
    CUDA_CHECK(dev_runtime->SetDevice(dev->device_i));
    if (is_high)
        CUDA_CHECK(dev_runtime->DeviceGetStreamPriorityRange(&low, &high));
    CUDA_CHECK(dev_runtime->StreamCreateWithPriority(&s->stream, GPU_STREAM_NON_BLOCKING, high));
    TRY(dev_cuda_event_record(s, &s->event));
    s->cuda = (struct cuda){.stream = s->stream,
                            .sm_count = dev->prop.sm_count,
                            .shared_bytes = dev->prop.shared_bytes,
                            .is_tf32 = dev->is_tf32};
    return dev_cuda_ring_open(&s->ring);
}

/* Allocates the scratch and opens the library that operations need, before a stream's first
 * operation: streams that only copy do not need them. */
static enum status prepare_stream(struct stream *s)
{
    void *scratch = NULL;
    if (s->cuda.scratch)
        return ST_OK;
    TRY(allocate_range(s->head.dev, &s->head.dev->scratch, CUDA_SCRATCH_BYTES, &scratch));
    s->cuda.scratch = scratch;
    s->cuda.scratch_bytes = CUDA_SCRATCH_BYTES;
    open_blas(s);
    return ST_OK;
}

static enum status cuda_graph_begin(struct stream *s)
{
    TRY(prepare_stream(s));
    return s->graphs ? ST_OK : dev_cuda_graph_open(s);
}

static enum status cuda_leave_sms(struct stream *s, int sms)
{
    TRY(prepare_stream(s));
    if (s->blas)
        blas_plan_leave(s->blas, sms);
    return ST_OK;
}

static enum status cuda_times_begin(struct stream *s)
{
    TRY(prepare_stream(s));
    dev_cuda_times_open(s);
    return ST_OK;
}

static enum status open_stream(struct dev *dev, bool is_high, struct stream **out)
{
    struct stream *s = memory_new(1, sizeof *s);
    s->head.dev = dev;
    enum status st = fill_stream(s, is_high);
    if (st == ST_OK)
        *out = s;
    else
        cuda_stream_close(s);
    return st;
}

static enum status cuda_stream_open(struct dev *dev, struct stream **out)
{
    return open_stream(dev, false, out);
}

static enum status cuda_stream_open_high(struct dev *dev, struct stream **out)
{
    return open_stream(dev, true, out);
}

static enum status cuda_sync(struct stream *s)
{
    TRY(dev_cuda_graph_flush(s));
    CUDA_CHECK(dev_runtime->StreamSynchronize(s->stream));
    return dev_cuda_ring_drain(&s->ring);
}

static enum status submit_work(struct stream *s, enum cuda_work work, void *args, size_t bytes)
{
    return dev_cuda_graph_is_recording(s) ? dev_cuda_graph_add(s, work, args, bytes)
                                          : dev_cuda_do(s, work, args);
}

static enum status cuda_copy(struct stream *s, void *dst, const void *src, size_t bytes)
{
    bool to_device = is_on_device(s->head.dev, dst), from_device = is_on_device(s->head.dev, src);
    if (to_device && from_device)
        return submit_work(s, CUDA_WORK_COPY, &(struct cuda_copy){dst, src, bytes},
                           sizeof(struct cuda_copy));
    TRY(dev_cuda_graph_flush(s));
    if ((to_device && is_in(s->head.dev, &s->head.dev->pinned, src)) ||
        (from_device && is_in(s->head.dev, &s->head.dev->pinned, dst))) {
        CUDA_CHECK(dev_runtime->MemcpyAsync(dst, src, bytes,
                                            to_device ? GPU_TO_DEVICE : GPU_TO_HOST, s->stream));
        return ST_OK;
    }
    if (to_device)
        return dev_cuda_ring_in(&s->ring, s->stream, dst, src, bytes);
    if (from_device)
        return dev_cuda_ring_out(&s->ring, s->stream, dst, src, bytes);
    TRY(cuda_sync(s)); /* both are host memory: still in the order of the stream */
    memcpy(dst, src, bytes);
    return ST_OK;
}

/* A copy to pageable memory could neither be recorded nor be valid after dev_event_sync. */
static enum status cuda_read_async(struct stream *s, void *pinned, const void *src, size_t bytes)
{
    ASSERT(is_on_device(s->head.dev, src) && is_in(s->head.dev, &s->head.dev->pinned, pinned));
    return submit_work(s, CUDA_WORK_READ, &(struct cuda_copy){pinned, src, bytes},
                       sizeof(struct cuda_copy));
}

static enum status cuda_fill(struct stream *s, void *dst, int byte, size_t bytes)
{
    if (is_on_device(s->head.dev, dst))
        return submit_work(s, CUDA_WORK_FILL, &(struct cuda_fill){dst, bytes, (size_t)byte},
                           sizeof(struct cuda_fill));
    TRY(cuda_sync(s));
    memset(dst, byte, bytes);
    return ST_OK;
}

static void *cuda_stream_handle(struct stream *s)
{
    ASSERT(!s->graphs); /* another library would overtake recorded work */
    return s->stream;
}

static enum status cuda_stream_wait_stream(struct stream *waiting, struct stream *first)
{
    TRY(dev_cuda_event_record(first, &first->event));
    TRY(dev_cuda_graph_flush(first));
    return dev_cuda_event_wait(waiting, first->event);
}

/* ---- operations ---- */

/* Checks an operation, then submits or records it. Recorded arguments are compared as bytes, so the
 * padding between members must be zero. matmul_*: through s->blas if it can, else by the kernel.
 * combine needs no scratch: it also runs on streams of comms, which have none. */
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(p) __builtin_clear_padding(p)
#else
#define CLEAR_PADDING(p) (void)(p) /* then some repeated work counts as new */
#endif
/* DO_APART — runs the operations that may be done sample by sample: attention
 * (cuda/attention.c). */
static enum status no_apart(struct stream *s, const void *args, bool *is_done)
{
    (void)s, (void)args;
    *is_done = false;
    return ST_OK;
}
#define DO_APART(s, a, is_done) \
    _Generic((a),                                                              \
        const struct attention_fwd *: dev_cuda_attention_fwd_apart,            \
        const struct attention_bwd *: dev_cuda_attention_bwd_apart,            \
        default: no_apart)(s, a, is_done)

#define OP_DEFINE(name)                                                                    \
    static enum status do_##name(struct stream *s, const void *args)                       \
    {                                                                                      \
        return dev_cuda_error_launched(dev_runtime->launch_##name(&s->cuda, args), #name); \
    }                                                                                      \
    static enum status op_##name(struct stream *s, const struct name *a)                   \
    {                                                                                      \
        struct name copy = *a;                                                             \
        bool is_done;                                                                      \
        TRY(dev_check_##name(a, true));                                                    \
        if (CUDA_WORK_##name != CUDA_WORK_combine)                                         \
            TRY(prepare_stream(s));                                                        \
        TRY(DO_APART(s, a, &is_done));                                                     \
        if (is_done)                                                                       \
            return ST_OK;                                                                  \
        if (!s->graphs)                                                                    \
            return dev_cuda_do(s, CUDA_WORK_##name, a);                                    \
        CLEAR_PADDING(&copy);                                                              \
        return dev_cuda_graph_add(s, CUDA_WORK_##name, &copy, sizeof copy);                \
    }
OP_LIST(OP_DEFINE)

#define OP_BLAS(name)                                                              \
    static enum status blas_or_##name(struct stream *s, const void *args)          \
    {                                                                              \
        bool is_done = false;                                                      \
        if (s->blas)                                                               \
            TRY(blas_##name(s->blas, &s->cuda, s->is_blas_plain, args, &is_done)); \
        return is_done ? ST_OK : do_##name(s, args);                               \
    }
OP_BLAS(matmul_fwd)
OP_BLAS(matmul_bwd_x)
OP_BLAS(matmul_bwd_w)

static enum status do_fill(struct stream *s, const void *args)
{
    const struct cuda_fill *a = args;
    CUDA_CHECK(dev_runtime->MemsetAsync(a->dst, (int)a->byte, a->bytes, s->stream));
    return ST_OK;
}

static enum status do_copy(struct stream *s, const void *args)
{
    const struct cuda_copy *a = args;
    CUDA_CHECK(dev_runtime->MemcpyAsync(a->dst, a->src, a->bytes, GPU_WITHIN_DEVICE, s->stream));
    return ST_OK;
}

static enum status do_read(struct stream *s, const void *args)
{
    const struct cuda_copy *a = args;
    CUDA_CHECK(dev_runtime->MemcpyAsync(a->dst, a->src, a->bytes, GPU_TO_HOST, s->stream));
    return ST_OK;
}

static enum status do_event(struct stream *s, const void *args)
{
    return dev_cuda_event_do(s, args);
}

static enum status do_work(struct stream *s, enum cuda_work work, const void *args)
{
#define DO_ROW(name) [CUDA_WORK_##name] = do_##name,
    static enum status (*const kernels[CUDA_WORK_N])(struct stream * s, const void *args) = {
        OP_LIST(DO_ROW)[CUDA_WORK_FILL] = do_fill, [CUDA_WORK_COPY] = do_copy,
        [CUDA_WORK_READ] = do_read, [CUDA_WORK_EVENT] = do_event};
#undef DO_ROW
    switch (work) {
    case CUDA_WORK_attention_fwd:
        return dev_cuda_attention_fwd(s, args);
    case CUDA_WORK_attention_bwd:
        return dev_cuda_attention_bwd(s, args);
    case CUDA_WORK_matmul_fwd:
        return blas_or_matmul_fwd(s, args);
    case CUDA_WORK_matmul_bwd_x:
        return blas_or_matmul_bwd_x(s, args);
    case CUDA_WORK_matmul_bwd_w:
        return blas_or_matmul_bwd_w(s, args);
    default:
        return kernels[work](s, args);
    }
}

enum status dev_cuda_do(struct stream *s, enum cuda_work work, const void *args)
{
    if (!s->times || work == CUDA_WORK_EVENT)
        return do_work(s, work, args);
    TRY(dev_cuda_times_before(s, work, args));
    TRY(do_work(s, work, args));
    return dev_cuda_times_after(s);
}

#define OP_ROW(name) .name = op_##name,
static const struct op_table cuda_op = {OP_LIST(OP_ROW)};

/* ---- open, close ---- */

static void cuda_close(struct dev *dev)
{
    for (size_t i = 0; i < dev->own.n; i++)
        (void)dev_runtime->Free(dev->own.range[i].data);
    for (size_t i = 0; i < dev->pinned.n; i++)
        free_pinned(&dev->pinned.range[i]);
    free(dev->own.range);
    free(dev->scratch.range);
    free(dev->pinned.range);
    pthread_mutex_destroy(&dev->mutex);
    free(dev);
}

static const struct dev_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .info = get_info,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .stream_wait_stream = cuda_stream_wait_stream,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .sync = cuda_sync,
};

static const struct dev_async_ops cuda_async_ops = {
    .make_current = cuda_make_current,
    .holds = is_on_device,
    .pin = cuda_pin,
    .pin_mapping = cuda_pin_mapping,
    .unpin = cuda_unpin,
    .stream_handle = cuda_stream_handle,
    .stream_query = dev_cuda_event_query_stream,
    .stream_open_high = cuda_stream_open_high,
    .adopt = cuda_adopt,
    .disown = cuda_disown,
    .event_record = dev_cuda_event_record,
    .stream_wait = dev_cuda_event_wait,
    .event_sync = dev_cuda_event_sync,
    .event_query = dev_cuda_event_query,
    .event_free = dev_cuda_event_free,
    .graph_begin = cuda_graph_begin,
    .leave_sms = cuda_leave_sms,
    .flush = dev_cuda_graph_flush,
    .read_async = cuda_read_async,
    .times_begin = cuda_times_begin,
    .times_step = dev_cuda_times_step,
    .busy_mark = dev_cuda_busy_mark,
    .busy_ms = dev_cuda_busy_ms,
};

enum status dev_cuda_count(int *count_out)
{
    int count = 0;
    if (dev_runtime == NULL)
        return dev_cuda_check_built();
    CUDA_CHECK(dev_runtime->GetDeviceCount(&count));
    if (count == 0)
        return dev_cuda_error_fail(GPU_ERROR_NO_DEVICE, "counting devices");
    *count_out = count;
    return ST_OK;
}

static enum status select_device(struct dev *dev)
{
    int count = 0;
    TRY(dev_cuda_count(&count));
    if (dev->device_i < 0 || dev->device_i >= count)
        return FAIL(ST_NO_DEVICE,
                    "GPU %d was requested, but this process sees %d; lower N_GPU_EACH_NODE, or "
                    "check %s",
                    dev->device_i, count, dev_runtime->visible);
    CUDA_CHECK(dev_runtime->DriverGetVersion(&dev->driver));
    TRY(dev_runtime->describe(dev->device_i, &dev->prop));
    CUDA_CHECK(dev_runtime->SetDevice(dev->device_i));
    CUDA_CHECK(dev_runtime->DeviceGetPCIBusId(dev->bus, sizeof dev->bus, dev->device_i));
    return ST_OK;
}

enum status dev_cuda_open(int device_i, bool is_tf32, struct dev **out)
{
    struct dev *dev = memory_new(1, sizeof *dev);
    pthread_mutex_init(&dev->mutex, NULL);
    dev->head = (struct dev_head){&cuda_ops, &cuda_async_ops, &cuda_op};
    dev->device_i = device_i;
    dev->is_tf32 = is_tf32;
    enum status st = select_device(dev);
    if (st == ST_OK)
        *out = dev;
    else
        cuda_close(dev);
    return st;
}
