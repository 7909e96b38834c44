/* far — a device for tests whose memory is apart from the host's: the CPU's operations behind
 * addresses that fault when the host touches them, and work that is done as late as it may be.
 *
 * The memory is mapped twice: device addresses without any right, and an alias that only this
 * device (and fake_nccl) knows. What is put on a stream (copies, fills, operations) waits there
 * until somebody asks whether it is done, or another stream waits for it: what relies on unfinished
 * work is found. Copies from ordinary memory take it along. */
#ifndef CONVOY_TESTS_COMM_FAR_H
#define CONVOY_TESTS_COMM_FAR_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/dev.h"
#include "fake_nccl.h"
#include "kernels/cpu.h"

#define FAR_BYTES ((size_t)2 << 30)
#define FAR_BLOCKS 512
#define FAR_ALIGN ((size_t)4096)
#define FAR_LATE 64

struct far_block {
    size_t first, bytes;
};
struct far_stream;
struct far_work {
    void (*run)(struct far_stream *s, const void *args); /* an operation; NULL: a copy, or a fill */
    char *dst;
    const char *src; /* NULL: fill with byte */
    char *own;       /* src, freed afterwards */
    size_t bytes;
    int byte;
    _Alignas(16) char args[512];
};
struct far_stream {
    struct stream_head head;
    struct fake_stream fake;
    struct far_work late[FAR_LATE];
    int late_n, asked;
    pthread_mutex_t mutex;
};
static struct {
    char *base, *alias;
    struct far_block block[FAR_BLOCKS]; /* ascending */
    int blocks_n;
    pthread_mutex_t mutex;
    struct dev_ops ops;
    const struct dev_ops *cpu;
    char bus[24];
    /* for a library that is on streams without looking at what is put off (fake_nccl.c) */
    bool waits_at_once;
    _Atomic int64_t carried; /* bytes copied between the two memories */
} far = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool far_is_far(const void *p)
{
    return (const char *)p >= far.base && (const char *)p < far.base + FAR_BYTES;
}

/* far_at — where a device address is really. */
static void *far_at(const void *p)
{
    return far_is_far(p) ? far.alias + ((const char *)p - far.base) : (void *)(uintptr_t)p;
}

static enum status far_alloc(struct dev *dev, size_t bytes, void **out)
{
    (void)dev;
    size_t size = (bytes / FAR_ALIGN + 1) * FAR_ALIGN, at = 0;
    int i = 0;
    pthread_mutex_lock(&far.mutex);
    for (; i < far.blocks_n && far.block[i].first - at < size; i++)
        at = far.block[i].first + far.block[i].bytes;
    bool is_full = far.blocks_n == FAR_BLOCKS || at + size > FAR_BYTES;
    if (!is_full) {
        memmove(&far.block[i + 1], &far.block[i],
                (size_t)(far.blocks_n++ - i) * sizeof far.block[0]);
        far.block[i] = (struct far_block){at, size};
    }
    pthread_mutex_unlock(&far.mutex);
    if (is_full)
        return status_fail_at(__FILE__, __LINE__, ST_RETRY, "the tests' device is full");
    memset(far.alias + at, 0, size);
    *out = far.base + at;
    return ST_OK;
}

static void far_free(struct dev *dev, void *data, size_t bytes)
{
    (void)dev, (void)bytes;
    pthread_mutex_lock(&far.mutex);
    for (int i = 0; i < far.blocks_n; i++)
        if (far.base + far.block[i].first == data) {
            madvise(far.alias + far.block[i].first, far.block[i].bytes, MADV_REMOVE);
            memmove(&far.block[i], &far.block[i + 1],
                    (size_t)(--far.blocks_n - i) * sizeof far.block[0]);
            data = NULL;
        }
    pthread_mutex_unlock(&far.mutex);
    if (data)
        abort();
}

static enum status far_pin(struct dev *dev, size_t bytes, void **out)
{
    (void)dev;
    *out = aligned_alloc(FAR_ALIGN, (bytes / FAR_ALIGN + 1) * FAR_ALIGN);
    memset(*out, 0xAB, bytes);
    return ST_OK;
}
static void far_unpin(struct dev *dev, void *data)
{
    (void)dev;
    free(data);
}
static bool far_holds(const struct dev *dev, const void *data)
{
    (void)dev;
    return far_is_far(data);
}
static enum status far_enter(struct dev *dev)
{
    (void)dev;
    return ST_OK;
}

static struct far_stream *far_of(struct stream *s) { return (struct far_stream *)(void *)s; }

static void far_settle_locked(struct far_stream *s)
{
    for (int i = 0; i < s->late_n; i++) {
        struct far_work *w = &s->late[i];
        if (w->run)
            w->run(s, w->args);
        else if (w->src)
            memmove(far_at(w->dst), far_at(w->src), w->bytes);
        else
            memset(far_at(w->dst), w->byte, w->bytes);
        free(w->own);
    }
    s->late_n = s->asked = 0;
}
static void far_settle(struct far_stream *s)
{
    pthread_mutex_lock(&s->mutex);
    far_settle_locked(s);
    pthread_mutex_unlock(&s->mutex);
}

static enum status far_stream_open(struct dev *dev, struct stream **out)
{
    struct far_stream *s = calloc(1, sizeof *s);
    s->head.dev = dev;
    pthread_mutex_init(&s->mutex, NULL);
    *out = (struct stream *)(void *)s;
    return ST_OK;
}
static void far_stream_close(struct stream *s)
{
    far_settle(far_of(s));
    pthread_mutex_destroy(&far_of(s)->mutex);
    free(s);
}

static void far_put(struct far_stream *s, const struct far_work *work)
{
    pthread_mutex_lock(&s->mutex);
    if (s->late_n == FAR_LATE)
        far_settle_locked(s);
    s->late[s->late_n++] = *work;
    pthread_mutex_unlock(&s->mutex);
}

static enum status far_copy(struct stream *stream, void *dst, const void *src, size_t bytes)
{
    struct far_work work = {.dst = dst, .src = src, .bytes = bytes};
    bool is_pinned = (uintptr_t)src % FAR_ALIGN == 0;
    if (!far_is_far(src) && !is_pinned) {
        work.src = work.own = malloc(bytes);
        memcpy(work.own, src, bytes);
    }
    far.carried += far_is_far(src) != far_is_far(dst) ? (int64_t)bytes : 0;
    far_put(far_of(stream), &work);
    return ST_OK;
}
static enum status far_fill(struct stream *s, void *dst, int byte, size_t bytes)
{
    far_put(far_of(s), &(struct far_work){.dst = dst, .byte = byte, .bytes = bytes});
    return ST_OK;
}
static enum status far_after(struct stream *late, struct stream *early)
{
    (void)late;
    far_settle(far_of(early));
    return ST_OK;
}

/* A mark is the stream it was set in; who comes to it makes that stream do all it has. */
struct mark {
    struct far_stream *stream;
};
static void far_run_wait(struct far_stream *s, const void *args)
{
    struct mark mark;
    (void)s;
    memcpy(&mark, args, sizeof mark);
    far_settle(mark.stream);
}
static enum status far_mark(struct stream *s, struct mark **mark)
{
    if (!*mark)
        *mark = calloc(1, sizeof **mark);
    (*mark)->stream = far_of(s);
    return ST_OK;
}
static enum status far_wait(struct stream *s, struct mark *mark)
{
    struct far_work work = {.run = far_run_wait};
    memcpy(work.args, mark, sizeof *mark);
    if (far.waits_at_once)
        far_run_wait(far_of(s), mark);
    else
        far_put(far_of(s), &work);
    return ST_OK;
}
static void far_unmark(struct dev *dev, struct mark *mark)
{
    (void)dev;
    free(mark);
}
static enum status far_idle(struct stream *stream, bool *out)
{
    struct far_stream *s = far_of(stream);
    pthread_mutex_lock(&s->mutex);
    if (s->late_n > 0 && ++s->asked > 2)
        far_settle_locked(s);
    *out = s->late_n == 0 && atomic_load(&s->fake.pending) == 0;
    pthread_mutex_unlock(&s->mutex);
    return ST_OK;
}
static enum status far_sync(struct stream *stream)
{
    struct far_stream *s = far_of(stream);
    far_settle(s);
    while (atomic_load(&s->fake.pending) > 0)
        usleep(100);
    return ST_OK;
}
static void *far_handle(struct stream *s) { return &far_of(s)->fake; }

static void far_info(const struct dev *dev, struct dev_info *out)
{
    far.cpu->info(dev, out);
    out->kind = DEV_KIND_CUDA;
    strcpy(out->bus, far.bus);
}

static const struct op_table *far_cpu_op;

/* The one operation that runs where addresses are not the host's (far_map), and by several threads
 * on one device. */
static void far_combine(const struct combine *a)
{
    struct combine here = *a;
    here.out.data = far_at(a->out.data);
    here.in.data = far_at(a->in.data);
    here.own.data = far_at(a->own.data);
    combine_plain(NULL, &here);
}

/* What an operation reads on the host (spans) must stay until it is done, as for a GPU until its
 * launch: so those two are done at once. */
#define FAR_OP(name)                                                         \
    static void far_run_##name(struct far_stream *s, const void *args)       \
    {                                                                        \
        struct name a;                                                       \
        memcpy(&a, args, sizeof a);                                          \
        if (!strcmp(#name, "combine"))                                       \
            far_combine((const struct combine *)(const void *)&a);           \
        else if (far_cpu_op->name((struct stream *)(void *)s, &a) != ST_OK)  \
            abort();                                                         \
    }                                                                        \
    static enum status far_op_##name(struct stream *s, const struct name *a) \
    {                                                                        \
        struct far_work work = {.run = far_run_##name};                      \
        _Static_assert(sizeof *a <= sizeof work.args, "room for arguments"); \
        memcpy(work.args, a, sizeof *a);                                     \
        far_put(far_of(s), &work);                                           \
        if (!strcmp(#name, "adamw") || !strcmp(#name, "sgd"))                \
            far_settle(far_of(s));                                           \
        return ST_OK;                                                        \
    }
OP_LIST(FAR_OP)
#define FAR_ROW(name) .name = far_op_##name,
static const struct op_table far_op = {OP_LIST(FAR_ROW)};

/* far_map — the memory of this process's devices of this kind. is_plain: its addresses are the
 * host's, too: for operations, which take them as they are. */
static void far_map(bool is_plain)
{
    int fd = memfd_create("far", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)FAR_BYTES) != 0)
        abort();
    far.alias = mmap(NULL, FAR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    far.base = is_plain ? far.alias
                        : mmap(NULL, FAR_BYTES, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    close(fd);
}

/* The table of all such devices, filled once: the first may compute while the next is opened. */
static void far_fill_table(const struct dev_head *head)
{
    if (far.cpu)
        return;
    far.cpu = head->ops;
    far_cpu_op = head->op;
    far.ops = (struct dev_ops){.name = "far",
                               .close = head->ops->close,
                               .info = far_info,
                               .alloc = far_alloc,
                               .free = far_free,
                               .stream_open = far_stream_open,
                               .stream_close = far_stream_close,
                               .copy = far_copy,
                               .fill = far_fill,
                               .after = far_after,
                               .sync = far_sync,
                               .enter = far_enter,
                               .holds = far_holds,
                               .pin = far_pin,
                               .unpin = far_unpin,
                               .idle = far_idle,
                               .handle = far_handle,
                               .mark = far_mark,
                               .wait = far_wait,
                               .unmark = far_unmark};
}

/* far_wrap — makes a device of the CPU's one of this kind; far_unwrap before it is closed. */
static void far_wrap(struct dev *dev)
{
    struct dev_head *head = (struct dev_head *)(void *)dev;
    far_fill_table(head);
    head->op = &far_op;
    head->ops = &far.ops;
}
static inline void far_unwrap(struct dev *dev) { ((struct dev_head *)(void *)dev)->ops = far.cpu; }

/* far_open — the process's one such device, its memory out of the host's reach. */
static inline struct dev *far_open(void)
{
    struct dev *dev = NULL;
    far_map(false);
    if (dev_cpu_open(1, CPU_LEVEL_N, &dev) != ST_OK)
        abort();
    far_wrap(dev);
    return dev;
}

static inline void far_close(struct dev *dev)
{
    far_unwrap(dev);
    dev_close(dev);
    munmap(far.base, FAR_BYTES);
    munmap(far.alias, FAR_BYTES);
}

#endif
