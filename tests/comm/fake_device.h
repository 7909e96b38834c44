/* fake_device — a device for tests whose memory the host cannot touch: the CPU's operations behind
 * addresses that fault on the host. Work is done as late as allowed.
 *
 * The memory is mapped twice: device addresses without access rights, and an alias that only this
 * device and fake_nccl know. Copies, fills and operations stay on their stream until its state is
 * queried, or until a stream that waits for it is. So code that relies on unfinished work fails. A
 * stream does its work in order: nothing is done behind a wait for an event that is not reached, or
 * behind a call of NCCL that other ranks have not joined. A copy from host memory takes the bytes
 * at once. */
#ifndef CONVOY_TESTS_COMM_FAKE_DEVICE_H
#define CONVOY_TESTS_COMM_FAKE_DEVICE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "dev/dev.h"
#include "kernels/cuda.h"
#include "fake_nccl.h"
#include "kernels/cpu.h"

#define FAKE_DEVICE_BYTES ((size_t)2 << 30)
#define FAKE_DEVICE_BLOCKS 512
#define FAKE_DEVICE_ALIGN ((size_t)4096)
#define FAKE_DEVICE_LATE 64

struct fake_device_block {
    size_t first, bytes;
};
struct fake_device_stream;
struct fake_device_work {
    /* an operation; returns 1, or 0: not possible yet. NULL: a copy, or a fill */
    int (*run)(struct fake_device_stream *s, const void *args);
    char *dst;
    const char *src; /* NULL: fill with byte */
    char *own;       /* freed afterwards */
    size_t bytes;
    int byte;
    _Alignas(16) char args[1024]; /* rope_table has its frequencies among them */
};
struct fake_device_stream {
    struct stream_head head;
    struct fake_stream fake;
    struct fake_device_work *late; /* [late_first, late_n) are to be done */
    int late_first, late_n, late_cap, asked;
    _Atomic int64_t posted, finished; /* operations, so far */
    _Atomic int64_t busy_since_ns, busy_ns;
    pthread_mutex_t mutex;
    struct fake_device_stream *next_closed;
};
static struct {
    char *base, *alias;
    struct fake_device_block block[FAKE_DEVICE_BLOCKS]; /* ascending */
    int blocks_n;
    void *mapping[FAKE_DEVICE_BLOCKS]; /* of dev_pin_mapping */
    int mappings_n;
    pthread_mutex_t mutex;
    struct dev_ops ops;
    const struct dev_ops *cpu;
    char bus[24];
    char uuid[16];
    atomic_int mig_n; /* over 0: each question for the uuid has another answer, as for MIG */
    struct fake_device_stream *closed;
    atomic_int left_sms;     /* of dev_leave_sms */
    atomic_int high_n;       /* streams of high priority that were opened */
    atomic_int query_hangs;  /* queries do not return until it is 0, as in a broken driver */
    atomic_int hanging_n;    /* threads in such a query */
    atomic_int late_n;       /* queries of an event before its work is done */
    _Atomic int64_t carried; /* bytes copied between the two memories */
} fake_device = {.mutex = PTHREAD_MUTEX_INITIALIZER, .late_n = 2};

static bool fake_device_contains(const void *p)
{
    return (const char *)p >= fake_device.base &&
           (const char *)p < fake_device.base + FAKE_DEVICE_BYTES;
}

/* fake_device_at — the alias of a device address. */
static void *fake_device_at(const void *p)
{
    return fake_device_contains(p) ? fake_device.alias + ((const char *)p - fake_device.base)
                                   : (void *)(uintptr_t)p;
}

static enum status fake_device_alloc(struct dev *dev, size_t bytes, void **out)
{
    (void)dev;
    size_t size = (bytes / FAKE_DEVICE_ALIGN + 1) * FAKE_DEVICE_ALIGN, at = 0;
    int i = 0;
    pthread_mutex_lock(&fake_device.mutex);
    for (; i < fake_device.blocks_n && fake_device.block[i].first - at < size; i++)
        at = fake_device.block[i].first + fake_device.block[i].bytes;
    bool is_full = fake_device.blocks_n == FAKE_DEVICE_BLOCKS || at + size > FAKE_DEVICE_BYTES;
    if (!is_full) {
        memmove(&fake_device.block[i + 1], &fake_device.block[i],
                (size_t)(fake_device.blocks_n++ - i) * sizeof fake_device.block[0]);
        fake_device.block[i] = (struct fake_device_block){at, size};
    }
    pthread_mutex_unlock(&fake_device.mutex);
    if (is_full)
        return status_fail_at(__FILE__, __LINE__, ST_RETRY, "the tests' device is full");
    memset(fake_device.alias + at, 0, size);
    *out = fake_device.base + at;
    return ST_OK;
}

static void fake_device_free(struct dev *dev, void *data, size_t bytes)
{
    (void)dev, (void)bytes;
    pthread_mutex_lock(&fake_device.mutex);
    for (int i = 0; i < fake_device.blocks_n; i++)
        if (fake_device.base + fake_device.block[i].first == data) {
            madvise(fake_device.alias + fake_device.block[i].first, fake_device.block[i].bytes,
                    MADV_REMOVE);
            memmove(&fake_device.block[i], &fake_device.block[i + 1],
                    (size_t)(--fake_device.blocks_n - i) * sizeof fake_device.block[0]);
            data = NULL;
        }
    pthread_mutex_unlock(&fake_device.mutex);
    if (data)
        abort();
}

static enum status fake_device_pin(struct dev *dev, size_t bytes, void **out)
{
    (void)dev;
    *out = aligned_alloc(FAKE_DEVICE_ALIGN, (bytes / FAKE_DEVICE_ALIGN + 1) * FAKE_DEVICE_ALIGN);
    memset(*out, 0xAB, bytes);
    return ST_OK;
}
/* The bytes stay as they are: a copy of an earlier process may lie there. */
static enum status fake_device_pin_mapping(struct dev *dev, void *data, size_t bytes)
{
    (void)dev, (void)bytes;
    pthread_mutex_lock(&fake_device.mutex);
    if (fake_device.mappings_n == FAKE_DEVICE_BLOCKS)
        abort();
    fake_device.mapping[fake_device.mappings_n++] = data;
    pthread_mutex_unlock(&fake_device.mutex);
    return ST_OK;
}
static void fake_device_unpin(struct dev *dev, void *data)
{
    bool is_mapping = false;
    (void)dev;
    pthread_mutex_lock(&fake_device.mutex);
    for (int i = 0; i < fake_device.mappings_n && !is_mapping; i++)
        if (fake_device.mapping[i] == data) {
            fake_device.mapping[i] = fake_device.mapping[--fake_device.mappings_n];
            is_mapping = true;
        }
    pthread_mutex_unlock(&fake_device.mutex);
    if (!is_mapping)
        free(data);
}
static bool fake_device_holds(const struct dev *dev, const void *data)
{
    (void)dev;
    return fake_device_contains(data);
}
static enum status fake_device_make_current(struct dev *dev)
{
    (void)dev;
    return ST_OK;
}

static struct fake_device_stream *fake_device_of(struct stream *s)
{
    return (struct fake_device_stream *)(void *)s;
}

static void fake_device_settle_locked(struct fake_device_stream *s)
{
    for (; s->late_first < s->late_n; s->late_first++) {
        struct fake_device_work *w = &s->late[s->late_first];
        if (w->run && !w->run(s, w->args))
            return;
        if (!w->run && w->src)
            memmove(fake_device_at(w->dst), fake_device_at(w->src), w->bytes);
        else if (!w->run)
            memset(fake_device_at(w->dst), w->byte, w->bytes);
        free(w->own);
        s->finished++;
    }
    s->late_first = s->late_n = s->asked = 0;
}
static void fake_device_settle(struct fake_device_stream *s)
{
    pthread_mutex_lock(&s->mutex);
    fake_device_settle_locked(s);
    pthread_mutex_unlock(&s->mutex);
}

/* fake_device_reach — until the stream has done so much. */
static void fake_device_reach(struct fake_device_stream *s, int64_t position)
{
    for (int tries = 0; s->finished < position; tries++) {
        fake_device_settle(s);
        if (s->finished < position)
            usleep(100);
        if (tries == 600000) {
            fprintf(stderr, "# a stream of the tests' device stands still\n");
            abort();
        }
    }
}

/* What NCCL puts on a stream. */
struct fake_device_posted {
    int (*run)(void *arg);
    void *arg;
};
static void fake_device_put(struct fake_device_stream *s, const struct fake_device_work *work);
static int fake_device_run_posted(struct fake_device_stream *s, const void *args)
{
    const struct fake_device_posted *posted = args;
    (void)s;
    return posted->run(posted->arg);
}
static struct fake_device_stream *fake_device_of_nccl(struct fake_stream *fake)
{
    return (struct fake_device_stream *)(void *)((char *)fake -
                                                 offsetof(struct fake_device_stream, fake));
}
static void fake_device_post(struct fake_stream *fake, int (*run)(void *arg), void *arg)
{
    struct fake_device_work work = {.run = fake_device_run_posted};
    memcpy(work.args, &(struct fake_device_posted){run, arg}, sizeof(struct fake_device_posted));
    fake_device_put(fake_device_of_nccl(fake), &work);
}
static int fake_device_advance(struct fake_stream *fake)
{
    struct fake_device_stream *s = fake_device_of_nccl(fake);
    fake_device_settle(s);
    return (int)(s->posted - s->finished);
}

static enum status fake_device_stream_open(struct dev *dev, struct stream **out)
{
    struct fake_device_stream *s = calloc(1, sizeof *s);
    s->head.dev = dev;
    s->fake = (struct fake_stream){.post = fake_device_post, .advance = fake_device_advance};
    pthread_mutex_init(&s->mutex, NULL);
    *out = (struct stream *)(void *)s;
    return ST_OK;
}
static enum status fake_device_stream_open_high(struct dev *dev, struct stream **out)
{
    fake_device.high_n++;
    return fake_device_stream_open(dev, out);
}
static void fake_device_stream_close(struct stream *s)
{
    fake_device_reach(fake_device_of(s), fake_device_of(s)->posted);
    pthread_mutex_lock(&fake_device.mutex);
    fake_device_of(s)->next_closed = fake_device.closed;
    fake_device.closed = fake_device_of(s);
    pthread_mutex_unlock(&fake_device.mutex);
}
/* An event may be queried after its stream was closed, as on a GPU. So streams stay to the end. */
__attribute__((destructor)) static void fake_device_free_streams(void)
{
    while (fake_device.closed) {
        struct fake_device_stream *s = fake_device.closed;
        fake_device.closed = s->next_closed;
        pthread_mutex_destroy(&s->mutex);
        free(s->late);
        free(s);
    }
}

static void fake_device_put(struct fake_device_stream *s, const struct fake_device_work *work)
{
    pthread_mutex_lock(&s->mutex);
    if (s->late_n - s->late_first >= FAKE_DEVICE_LATE)
        fake_device_settle_locked(s);
    if (s->late_n == s->late_cap) {
        s->late_cap = 2 * s->late_cap + FAKE_DEVICE_LATE;
        s->late = realloc(s->late, (size_t)s->late_cap * sizeof *s->late);
        if (!s->late)
            abort();
    }
    s->late[s->late_n++] = *work;
    s->posted++;
    pthread_mutex_unlock(&s->mutex);
}

static enum status fake_device_copy(struct stream *stream, void *dst, const void *src, size_t bytes)
{
    struct fake_device_work work = {.dst = dst, .src = src, .bytes = bytes};
    bool is_pinned = (uintptr_t)src % FAKE_DEVICE_ALIGN == 0;
    if (!fake_device_contains(src) && !is_pinned) {
        work.src = work.own = malloc(bytes);
        memcpy(work.own, src, bytes);
    }
    fake_device.carried +=
        fake_device_contains(src) != fake_device_contains(dst) ? (int64_t)bytes : 0;
    fake_device_put(fake_device_of(stream), &work);
    return ST_OK;
}
static enum status fake_device_fill(struct stream *s, void *dst, int byte, size_t bytes)
{
    fake_device_put(fake_device_of(s),
                    &(struct fake_device_work){.dst = dst, .byte = byte, .bytes = bytes});
    return ST_OK;
}
/* An event is a stream, and how much it had been given. */
struct dev_event {
    struct dev_event_head head;
    struct fake_device_stream *stream;
    int64_t position;
};
/* Another thread may be at work on that stream, or on a stream that waits for this one. */
static int fake_device_run_wait(struct fake_device_stream *s, const void *args)
{
    struct dev_event event;
    (void)s;
    memcpy(&event, args, sizeof event);
    if (event.stream->finished < event.position &&
        pthread_mutex_trylock(&event.stream->mutex) == 0) {
        fake_device_settle_locked(event.stream);
        pthread_mutex_unlock(&event.stream->mutex);
    }
    return event.stream->finished >= event.position;
}
static enum status fake_device_event_record(struct stream *s, struct dev_event **event)
{
    if (!*event)
        *event = calloc(1, sizeof **event);
    **event = (struct dev_event){
        .head.dev = fake_device_of(s)->head.dev,
        .stream = fake_device_of(s),
        .position = fake_device_of(s)->posted,
    };
    return ST_OK;
}
static enum status fake_device_stream_wait(struct stream *s, struct dev_event *event)
{
    struct fake_device_work work = {.run = fake_device_run_wait};
    memcpy(work.args, event, sizeof *event);
    fake_device_put(fake_device_of(s), &work);
    return ST_OK;
}
static enum status fake_device_stream_wait_stream(struct stream *waiting, struct stream *first)
{
    struct dev_event event = {.stream = fake_device_of(first),
                              .position = fake_device_of(first)->posted};
    return fake_device_stream_wait(waiting, &event);
}
/* fake_device_hold — stops a stream for some milliseconds. */
static int fake_device_run_hold(struct fake_device_stream *s, const void *args)
{
    int64_t until_ns;
    (void)s;
    memcpy(&until_ns, args, sizeof until_ns);
    return clock_ns() >= until_ns;
}
static inline void fake_device_hold(struct stream *s, int64_t ms)
{
    struct fake_device_work work = {.run = fake_device_run_hold};
    const int64_t until_ns = clock_ns() + ms * 1000000;
    memcpy(work.args, &until_ns, sizeof until_ns);
    fake_device_put(fake_device_of(s), &work);
}
/* The time is that in which the work was done, late as it is. */
static int fake_device_run_mark(struct fake_device_stream *s, const void *args)
{
    bool is_begin;
    memcpy(&is_begin, args, sizeof is_begin);
    s->busy_ns += is_begin ? 0 : clock_ns() - s->busy_since_ns;
    s->busy_since_ns = clock_ns();
    return 1;
}
static enum status fake_device_busy_mark(struct stream *s, bool is_begin)
{
    struct fake_device_work work = {.run = fake_device_run_mark};
    memcpy(work.args, &is_begin, sizeof is_begin);
    fake_device_put(fake_device_of(s), &work);
    return ST_OK;
}
static enum status fake_device_busy_ms(struct stream *s, double *out)
{
    *out = (double)atomic_exchange(&fake_device_of(s)->busy_ns, 0) * 1e-6;
    return ST_OK;
}
static void fake_device_event_free(struct dev_event *event) { free(event); }
/* Done only when it was asked for a few times. */
static bool fake_device_has_reached(struct fake_device_stream *s, int64_t position, int late_n)
{
    pthread_mutex_lock(&s->mutex);
    if (s->finished < position && ++s->asked > late_n)
        fake_device_settle_locked(s);
    pthread_mutex_unlock(&s->mutex);
    return s->finished >= position;
}
static void fake_device_query_begins(void)
{
    atomic_fetch_add(&fake_device.hanging_n, 1);
    while (atomic_load(&fake_device.query_hangs))
        clock_sleep_us(200);
    atomic_fetch_sub(&fake_device.hanging_n, 1);
}
static enum status fake_device_stream_query(struct stream *stream, bool *out)
{
    fake_device_query_begins();
    struct fake_device_stream *s = fake_device_of(stream);
    *out = fake_device_has_reached(s, s->posted, 2);
    return ST_OK;
}
static enum status fake_device_event_query(struct dev_event *event, bool *out)
{
    fake_device_query_begins();
    *out = fake_device_has_reached(event->stream, event->position, fake_device.late_n);
    return ST_OK;
}
static enum status fake_device_sync(struct stream *stream)
{
    fake_device_reach(fake_device_of(stream), fake_device_of(stream)->posted);
    return ST_OK;
}
static enum status fake_device_event_sync(struct dev_event *event)
{
    fake_device_reach(event->stream, event->position);
    return ST_OK;
}
/* What NCCL's own allocator takes lies in this memory too. */
static enum status fake_device_adopt(struct dev *dev, void *data, size_t bytes)
{
    (void)dev;
    memset(fake_device_at(data), 0, bytes);
    return ST_OK;
}
static void fake_device_disown(struct dev *dev, void *data) { (void)dev, (void)data; }
static void *fake_device_stream_handle(struct stream *s) { return &fake_device_of(s)->fake; }

/* This device captures no graphs and takes no times. */
static enum status fake_device_do_nothing(struct stream *s)
{
    (void)s;
    return ST_OK;
}

static enum status fake_device_leave_sms(struct stream *s, int sms)
{
    (void)s;
    fake_device.left_sms = sms;
    return ST_OK;
}

static void fake_device_info(const struct dev *dev, struct dev_info *out)
{
    fake_device.cpu->info(dev, out);
    out->kind = DEV_KIND_GPU;
    out->scratch_bytes = (int64_t)CUDA_SCRATCH_BYTES; /* as on a GPU, for the memory plan */
    strcpy(out->bus, fake_device.bus);
    memcpy(out->uuid, fake_device.uuid, sizeof out->uuid);
    if (fake_device.mig_n > 0)
        out->uuid[0] = (char)atomic_fetch_add(&fake_device.mig_n, 1);
}

static const struct op_table *fake_device_cpu_op;

/* The only operation that takes device addresses (fake_device_map) and runs on several threads. */
static void fake_device_combine(const struct combine *a)
{
    struct combine here = *a;
    here.out.data = fake_device_at(a->out.data);
    here.in.data = fake_device_at(a->in.data);
    here.own.data = fake_device_at(a->own.data);
    combine_plain(NULL, &here);
}

/* Spans lie in host memory, which lasts only until the launch, as on a GPU. */
static void fake_device_keep_spans(struct fake_device_work *work, size_t at, int64_t n)
{
    const struct optim_span *spans;
    size_t bytes = (size_t)n * sizeof *spans;
    memcpy(&spans, work->args + at, sizeof(void *));
    work->own = malloc(bytes + 1);
    memcpy(work->own, spans, bytes);
    memcpy(work->args + at, &work->own, sizeof work->own);
}

#define FAKE_DEVICE_OP(name)                                                          \
    static int fake_device_run_##name(struct fake_device_stream *s, const void *args) \
    {                                                                                 \
        struct name a;                                                                \
        memcpy(&a, args, sizeof a);                                                   \
        if (!strcmp(#name, "combine"))                                                \
            fake_device_combine((const struct combine *)(const void *)&a);            \
        else if (fake_device_cpu_op->name((struct stream *)(void *)s, &a) != ST_OK)   \
            abort();                                                                  \
        return 1;                                                                     \
    }                                                                                 \
    static enum status fake_device_op_##name(struct stream *s, const struct name *a)  \
    {                                                                                 \
        struct fake_device_work work = {.run = fake_device_run_##name};               \
        _Static_assert(sizeof *a <= sizeof work.args, "room for arguments");          \
        memcpy(work.args, a, sizeof *a);                                              \
        if (!strcmp(#name, "adamw"))                                                  \
            fake_device_keep_spans(&work, offsetof(struct adamw, spans),              \
                                   ((const struct adamw *)(const void *)a)->spans_n); \
        if (!strcmp(#name, "sgd"))                                                    \
            fake_device_keep_spans(&work, offsetof(struct sgd, spans),                \
                                   ((const struct sgd *)(const void *)a)->spans_n);   \
        fake_device_put(fake_device_of(s), &work);                                    \
        return ST_OK;                                                                 \
    }
OP_LIST(FAKE_DEVICE_OP)
#define FAKE_DEVICE_ROW(name) .name = fake_device_op_##name,
static const struct op_table fake_device_op = {OP_LIST(FAKE_DEVICE_ROW)};

/* fake_device_map — maps the memory of this process's fake devices. is_plain: the host may use its
 * addresses too, as operations do. */
static void fake_device_map(bool is_plain)
{
    int fd = memfd_create("far", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)FAKE_DEVICE_BYTES) != 0)
        abort();
    fake_device.alias =
        mmap(NULL, FAKE_DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    fake_device.base = is_plain ? fake_device.alias
                                : mmap(NULL, FAKE_DEVICE_BYTES, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    close(fd);
}

static const struct dev_async_ops fake_device_async = {
    .make_current = fake_device_make_current,
    .holds = fake_device_holds,
    .pin = fake_device_pin,
    .pin_mapping = fake_device_pin_mapping,
    .unpin = fake_device_unpin,
    .stream_handle = fake_device_stream_handle,
    .stream_query = fake_device_stream_query,
    .stream_open_high = fake_device_stream_open_high,
    .adopt = fake_device_adopt,
    .disown = fake_device_disown,
    .event_record = fake_device_event_record,
    .stream_wait = fake_device_stream_wait,
    .event_sync = fake_device_event_sync,
    .event_query = fake_device_event_query,
    .event_free = fake_device_event_free,
    .graph_begin = fake_device_do_nothing,
    .leave_sms = fake_device_leave_sms,
    .flush = fake_device_do_nothing,
    .read_async = fake_device_copy,
    .times_begin = fake_device_do_nothing,
    .times_step = fake_device_do_nothing,
    .busy_mark = fake_device_busy_mark,
    .busy_ms = fake_device_busy_ms,
};

/* Filled once: the first device may compute while the next one is opened. */
static void fake_device_fill_table(const struct dev_head *head)
{
    if (fake_device.cpu)
        return;
    fake_device.cpu = head->ops;
    fake_device_cpu_op = head->op;
    fake_device.ops = (struct dev_ops){.name = "far",
                                       .close = head->ops->close,
                                       .info = fake_device_info,
                                       .alloc = fake_device_alloc,
                                       .free = fake_device_free,
                                       .stream_open = fake_device_stream_open,
                                       .stream_close = fake_device_stream_close,
                                       .copy = fake_device_copy,
                                       .fill = fake_device_fill,
                                       .stream_wait_stream = fake_device_stream_wait_stream,
                                       .sync = fake_device_sync};
}

/* fake_device_wrap — turns a CPU device into a fake device. fake_device_unwrap — before it is
 * closed. */
static void fake_device_wrap(struct dev *dev)
{
    struct dev_head *head = (struct dev_head *)(void *)dev;
    fake_device_fill_table(head);
    head->op = &fake_device_op;
    head->ops = &fake_device.ops;
    head->async = &fake_device_async;
}
static inline void fake_device_unwrap(struct dev *dev)
{
    struct dev_head *head = (struct dev_head *)(void *)dev;
    head->ops = fake_device.cpu;
    head->async = NULL;
}

/* fake_device_open — the process's fake device, whose memory the host cannot touch. */
static inline struct dev *fake_device_open(void)
{
    struct dev *dev = NULL;
    fake_device_map(false);
    if (dev_cpu_open(1, CPU_ISA_N, &dev) != ST_OK)
        abort();
    fake_device_wrap(dev);
    return dev;
}

static inline void fake_device_close(struct dev *dev)
{
    fake_device_unwrap(dev);
    dev_close(dev);
    munmap(fake_device.base, FAKE_DEVICE_BYTES);
    munmap(fake_device.alias, FAKE_DEVICE_BYTES);
}

#endif
