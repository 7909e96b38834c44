/* runtime — the calls of the CUDA runtime that src/dev makes, over ordinary memory. A test that
 * includes this links no CUDA runtime and needs no driver.
 *
 *   device memory  only copies, fills and kernels (runtime_device) may touch it. At all other times
 *                  its pages are closed: a host that reads it crashes, as it would on a GPU.
 *   copies         run when the host waits or a kernel comes; to the host they arrive when it has
 *                  waited for them, so a result that is used too early is an old one
 *   capture        keeps work, with its arguments by value, for graphs. A call that CUDA forbids in
 *                  a capture fails and invalidates it
 *   failures       runtime_fail makes a call fail
 *   threads        one call at a time; all streams run in the order of calls; a capture belongs to
 *                  its thread
 *   waits          two operations on the same bytes that no wait orders end the program, whatever
 *                  the order of calls (clocks.h) */
#ifndef CONVOY_TESTS_RUNTIME_H
#define CONVOY_TESTS_RUNTIME_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda/clocks.h"

#define RUNTIME_BLOCKS 256
#define RUNTIME_SPACE ((size_t)1 << 40)
#define RUNTIME_DEFERRED 4096
#define RUNTIME_CALLS 40

struct runtime_block {
    char *data;
    size_t bytes;
    int is_fresh; /* zero and never touched: to zero it would only take memory */
};
/* What a stream is given while it is captured, and what a graph does again. */
struct runtime_node {
    int (*run)(void *arg);
    void *arg;
    size_t bytes;
};
struct CUstream_st {
    int clock;
    int is_asked; /* a query has found copies that had not arrived */
};
struct CUevent_st {
    struct clocks_time time;
    int settled, is_pending, is_in_graph;
    int is_timed, at; /* at: kernels and products launched when it was recorded */
};
struct CUgraph_st {
    struct runtime_node *node;
    size_t n;
};
struct CUgraphExec_st {
    struct CUgraph_st graph;
};
struct runtime_copy {
    void *dst;
    const void *src;
    size_t bytes;
    int byte; /* of a fill: src NULL */
};
/* A copy that has not run; one to the host that has, but has not arrived: src is its own then. */
struct runtime_late {
    struct runtime_copy copy;
    int clock; /* it is the at-th operation there */
    uint32_t at;
};
static struct {
    char *space; /* of all blocks, by address */
    struct runtime_block block[RUNTIME_BLOCKS];
    struct runtime_late deferred[RUNTIME_DEFERRED];
    struct runtime_block pinned[RUNTIME_BLOCKS];
    struct runtime_late *out;     /* on their way to the host */
    int pinned_n, out_n, settled; /* settled: how often */
    int clock;                    /* of the stream that runs an operation */
    /* an event that a graph records is reported as reached because of an earlier record */
    int is_stale;
    int launches_before_wait; /* of graphs, so far, when the host last waited for an event */
    size_t nodes_after_event; /* of the graph last launched, behind its event's node */
    int sm_count;             /* of each device */
    int blocks_n, deferred_n, devices_n, major, driver, events_n, streams_n, graphs_n;
    int in_graph;                 /* what comes to the device is a graph's */
    int launched, launched_graph; /* so far: kernels and products one by one; nodes of graphs */
    int priority;                 /* of the stream that was opened last */
    size_t free_bytes;
    const char *fail_call; /* name of the call that fails, the fail_after-th from now; NULL: none */
    int fail_after;
    cudaError_t fail_with;
    struct {
        const char *name;
        int n;
    } calls[RUNTIME_CALLS]; /* how often each was called, in the order of first calls */
} runtime = {
    .sm_count = 4, .devices_n = 1, .major = 9, .driver = 13000, .free_bytes = (size_t)8 << 30};
static _Thread_local struct {
    cudaStream_t captured; /* NULL: nothing is */
    int is_invalid;        /* the capture, by a call that it forbids */
    struct CUgraph_st capture;
    cudaError_t last;
    int syncs;  /* of streams, by this thread */
    int device; /* the current one */
} runtime_mine;

/* RUNTIME_ONE — until the end of the block no other thread is in the runtime, or on the device. */
static pthread_mutex_t runtime_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static inline void runtime_leave(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&runtime_mutex);
}
#define RUNTIME_ONE() \
    __attribute__((cleanup(runtime_leave))) int runtime_one_ = pthread_mutex_lock(&runtime_mutex)

static inline void runtime_fail(const char *call, int after, cudaError_t error)
{
    runtime.fail_call = call;
    runtime.fail_after = after;
    runtime.fail_with = error;
}

/* runtime_calls — how often a call was made so far. Calls that are not here do not link: waiting
 * for the whole device is one. */
static inline int *runtime_calls(const char *name)
{
    RUNTIME_ONE();
    for (int i = 0; i < RUNTIME_CALLS; i++) {
        if (!runtime.calls[i].name)
            runtime.calls[i].name = name;
        if (strcmp(runtime.calls[i].name, name) == 0)
            return &runtime.calls[i].n;
    }
    abort();
}

static cudaError_t runtime_call(const char *name)
{
    ++*runtime_calls(name);
    if (!runtime.fail_call || strcmp(runtime.fail_call, name) != 0 || runtime.fail_after-- > 0)
        return cudaSuccess;
    runtime.fail_call = NULL;
    return runtime_mine.last = runtime.fail_with;
}

#define RUNTIME_CALL(name)                               \
    do {                                                 \
        cudaError_t runtime_error_ = runtime_call(name); \
        if (runtime_error_ != cudaSuccess)               \
            return runtime_error_;                       \
    } while (0)

/* Blocks lie one behind the other, so that one call opens many. */
static void runtime_protect(int how)
{
    for (int i = 0, next; i < runtime.blocks_n; i = next) {
        size_t bytes = runtime.block[i].bytes;
        for (next = i + 1;
             next < runtime.blocks_n && runtime.block[next].data == runtime.block[i].data + bytes;
             next++)
            bytes += runtime.block[next].bytes;
        if (mprotect(runtime.block[i].data, bytes, how) != 0)
            abort();
    }
}
static void runtime_open(void) { runtime_protect(PROT_READ | PROT_WRITE); }
static void runtime_shut(void) { runtime_protect(PROT_NONE); }

static void runtime_move(const struct runtime_copy *c)
{
    if (c->src)
        memmove(c->dst, c->src, c->bytes);
    else
        memset(c->dst, c->byte, c->bytes);
}

/* Notes what a library's call reads and writes, while it runs. */
static void runtime_touch(const char *who, const void *at, size_t bytes, int is_write)
{
    emu_touch(who, at, bytes, is_write != 0);
}

static void runtime_touch_copy(const struct runtime_copy *c)
{
    const char *who = c->src ? "cudaMemcpyAsync" : "cudaMemsetAsync";
    if (c->src)
        runtime_touch(who, c->src, c->bytes, 0);
    runtime_touch(who, c->dst, c->bytes, 1);
}

static int runtime_clock(cudaStream_t stream) { return stream ? stream->clock : 0; }

/* Checks what was noted of an operation. */
static void runtime_operate(cudaStream_t stream)
{
    clocks_operate(runtime_clock(stream), runtime.in_graph != 0, emu_touch_take());
}

static int runtime_copy_now(void *arg)
{
    runtime_touch_copy(arg);
    runtime_move(arg);
    return 0;
}

static int runtime_is_in(const struct runtime_block *block, int n, const void *p)
{
    for (int i = 0; i < n; i++)
        if ((uintptr_t)p - (uintptr_t)block[i].data < block[i].bytes)
            return 1;
    return 0;
}
static int runtime_is_block(const void *p)
{
    return runtime_is_in(runtime.block, runtime.blocks_n, p);
}
static int runtime_is_pinned(const void *p)
{
    return runtime_is_in(runtime.pinned, runtime.pinned_n, p);
}

/* Brings to the host what it has waited for, and what a copy from there, [from, end), needs. */
static void runtime_hand_over(const char *from, const char *end)
{
    int left = 0;
    for (int i = 0; i < runtime.out_n; i++) {
        const struct runtime_late *o = &runtime.out[i];
        const char *dst = o->copy.dst;
        if (o->at > clocks.host.at[o->clock] && !(dst < end && from < dst + o->copy.bytes)) {
            runtime.out[left++] = *o;
            continue;
        }
        runtime_move(&o->copy);
        free((void *)(uintptr_t)o->copy.src);
    }
    runtime.out_n = left;
}

static void runtime_send_out(const struct runtime_copy *c, int clock, uint32_t at)
{
    char *own = malloc(c->bytes);
    memcpy(own, c->src, c->bytes);
    runtime.out = realloc(runtime.out, (size_t)(runtime.out_n + 1) * sizeof *runtime.out);
    runtime.out[runtime.out_n++] = (struct runtime_late){{c->dst, own, c->bytes, 0}, clock, at};
}

/* Does what was put off, in order. */
static void runtime_settle(void)
{
    runtime_open();
    for (int i = 0; i < runtime.deferred_n; i++) {
        const struct runtime_late *d = &runtime.deferred[i];
        const char *src = d->copy.src;
        if (src && !runtime_is_block(src))
            runtime_hand_over(src, src + d->copy.bytes);
        if (src && !runtime_is_block(d->copy.dst))
            runtime_send_out(&d->copy, d->clock, d->at);
        else
            runtime_move(&d->copy);
    }
    runtime.deferred_n = 0;
    runtime.settled++;
    runtime_shut();
}

/* Settles, and brings to the host what it has waited for by now. */
static void runtime_host_waited(void)
{
    runtime_settle();
    runtime_hand_over(NULL, NULL);
}

static int runtime_read(void *arg)
{
    const struct runtime_copy *c = arg;
    runtime_touch_copy(c);
    runtime_send_out(c, runtime.clock, clocks.stream[runtime.clock].time.at[runtime.clock] + 1);
    return 0;
}

/* Keeps what was given while a stream is captured. */
static int runtime_keep(int (*run)(void *arg), const void *arg, size_t bytes)
{
    struct CUgraph_st *g = &runtime_mine.capture;
    g->node = realloc(g->node, (g->n + 1) * sizeof *g->node);
    struct runtime_node node = {run, malloc(bytes), bytes};
    memcpy(node.arg, arg, bytes);
    g->node[g->n++] = node;
    return cudaSuccess;
}

/* runtime_device — kernels and products: as emu_control.h says. What is put off comes first; memory
 * is open to them only. */
static int runtime_device(void *stream, int (*run)(void *arg), const void *arg, size_t bytes)
{
    RUNTIME_ONE();
    if (runtime_mine.captured && stream == runtime_mine.captured)
        return runtime_keep(run, arg, bytes);
    *(runtime.in_graph ? &runtime.launched_graph : &runtime.launched) += 1;
    runtime_settle();
    runtime_open();
    runtime.clock = runtime_clock(stream);
    int rc = run((void *)(uintptr_t)arg);
    runtime_shut();
    runtime_operate(stream);
    return rc;
}

/* What a thread may not do while it captures: the capture is lost. */
static cudaError_t runtime_forbidden(void)
{
    if (!runtime_mine.captured)
        return cudaSuccess;
    runtime_mine.is_invalid = 1;
    return runtime_mine.last = cudaErrorStreamCaptureUnsupported;
}
#define RUNTIME_FORBIDDEN()                               \
    do {                                                  \
        cudaError_t runtime_error_ = runtime_forbidden(); \
        if (runtime_error_ != cudaSuccess)                \
            return runtime_error_;                        \
    } while (0)

static cudaError_t runtime_defer(struct runtime_copy copy, cudaStream_t stream)
{
    runtime_touch_copy(&copy);
    runtime_operate(stream);
    const int clock = runtime_clock(stream);
    if (runtime.deferred_n == RUNTIME_DEFERRED)
        runtime_settle();
    runtime.deferred[runtime.deferred_n++] =
        (struct runtime_late){copy, clock, clocks.stream[clock].time.at[clock]};
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaGetDeviceCount");
    *count = runtime.devices_n;
    return runtime.devices_n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaGetDeviceProperties");
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Emulated %d", device);
    p->uuid.bytes[0] = (char)(1 + device);
    p->major = runtime.major;
    p->multiProcessorCount = runtime.sm_count;
    p->totalGlobalMem = runtime.free_bytes;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    RUNTIME_ONE();
    *version = runtime.driver;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaSetDevice");
    if (device >= runtime.devices_n)
        return cudaErrorInvalidDevice;
    runtime_mine.device = device;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    RUNTIME_ONE();
    *free_bytes = *total = runtime.free_bytes >> runtime_mine.device; /* each half of the last */
    return cudaSuccess;
}
/* runtime_nothing — pages that cannot be touched and take no memory. */
static char *runtime_nothing(void *at, size_t bytes)
{
    void *p = mmap(at, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaMalloc");
    RUNTIME_FORBIDDEN();
    if (bytes > runtime.free_bytes || runtime.blocks_n == RUNTIME_BLOCKS)
        return runtime_mine.last = cudaErrorMemoryAllocation;
    if (runtime.space == NULL) {
        runtime.space = runtime_nothing(NULL, RUNTIME_SPACE);
        emu_touch_begin(runtime.space, RUNTIME_SPACE);
    }
    const struct runtime_block *last =
        runtime.blocks_n > 0 ? &runtime.block[runtime.blocks_n - 1] : NULL;
    struct runtime_block *p = &runtime.block[runtime.blocks_n++];
    p->bytes = (bytes + 4095) / 4096 * 4096;
    /* never where something was freed before the last one */
    p->data = last ? last->data + last->bytes : runtime.space;
    if (p->data + p->bytes > runtime.space + RUNTIME_SPACE)
        abort();
    p->is_fresh = 1;
    clocks_add_block(p->data, bytes, "device memory");
    *out = p->data;
    return cudaSuccess;
}
cudaError_t cudaFree(void *data)
{
    RUNTIME_ONE();
    RUNTIME_FORBIDDEN();
    clocks_host_waited_all();
    runtime_host_waited();
    for (int i = 0; i < runtime.blocks_n; i++)
        if (runtime.block[i].data == data) {
            clocks_drop_block(data);
            runtime_nothing(data, runtime.block[i].bytes);
            runtime.blocks_n--;
            memmove(&runtime.block[i], &runtime.block[i + 1],
                    (size_t)(runtime.blocks_n - i) * sizeof *runtime.block);
            return cudaSuccess;
        }
    abort();
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    RUNTIME_ONE();
    (void)flags;
    RUNTIME_CALL("cudaHostAlloc");
    RUNTIME_FORBIDDEN();
    if (runtime.pinned_n == RUNTIME_BLOCKS)
        abort();
    *out = malloc(bytes);
    if (!*out)
        return cudaErrorMemoryAllocation;
    runtime.pinned[runtime.pinned_n++] = (struct runtime_block){.data = *out, .bytes = bytes};
    clocks_add_block(*out, bytes, "pinned memory");
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *data)
{
    RUNTIME_ONE();
    RUNTIME_FORBIDDEN();
    clocks_host_waited_all();
    runtime_host_waited();
    for (int i = 0; i < runtime.pinned_n; i++)
        if (runtime.pinned[i].data == data) {
            clocks_drop_block(data);
            runtime.pinned[i] = runtime.pinned[--runtime.pinned_n];
            return cudaSuccess;
        }
    abort();
}
cudaError_t cudaFreeHost(void *data)
{
    const cudaError_t error = cudaHostUnregister(data);
    if (error == cudaSuccess)
        free(data);
    return error;
}
cudaError_t cudaHostRegister(void *data, size_t bytes, unsigned flags)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaHostRegister");
    RUNTIME_FORBIDDEN();
    if (runtime.pinned_n == RUNTIME_BLOCKS || flags != cudaHostRegisterPortable)
        abort();
    runtime.pinned[runtime.pinned_n++] = (struct runtime_block){.data = data, .bytes = bytes};
    clocks_add_block(data, bytes, "a pinned mapping");
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    RUNTIME_ONE();
    (void)kind;
    RUNTIME_CALL("cudaMemcpyAsync");
    if (runtime_mine.captured && stream == runtime_mine.captured) {
        if (runtime_is_pinned(dst) && runtime_is_block(src))
            return runtime_keep(runtime_read, &(struct runtime_copy){dst, src, bytes, 0},
                                sizeof(struct runtime_copy));
        if (!runtime_is_block(dst) || !runtime_is_block(src))
            return runtime_forbidden(); /* what the host gives would be given once */
        return runtime_keep(runtime_copy_now, &(struct runtime_copy){dst, src, bytes, 0},
                            sizeof(struct runtime_copy));
    }
    return runtime_defer((struct runtime_copy){dst, src, bytes, 0}, stream);
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaMemsetAsync");
    if (runtime_mine.captured && stream == runtime_mine.captured)
        return runtime_keep(runtime_copy_now, &(struct runtime_copy){dst, NULL, bytes, byte},
                            sizeof(struct runtime_copy));
    for (int i = 0; i < runtime.blocks_n; i++)
        if (dst == runtime.block[i].data && byte == 0 && runtime.block[i].is_fresh) {
            runtime.block[i].is_fresh = 0;
            runtime_touch_copy(&(struct runtime_copy){dst, NULL, bytes, byte});
            runtime_operate(stream);
            return cudaSuccess;
        }
    return runtime_defer((struct runtime_copy){dst, NULL, bytes, byte}, stream);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaDeviceGetStreamPriorityRange");
    *low = 0, *high = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaStreamCreateWithPriority");
    if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5)
        return runtime_mine.last = cudaErrorInvalidValue;
    runtime.priority = priority;
    RUNTIME_FORBIDDEN();
    runtime.streams_n++;
    *out = malloc(sizeof **out);
    (*out)->clock = clocks_open();
    (*out)->is_asked = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    RUNTIME_ONE();
    runtime.streams_n--;
    clocks_close(stream->clock);
    free(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaStreamSynchronize");
    runtime_mine.syncs++;
    RUNTIME_FORBIDDEN();
    clocks_host_waited_stream(runtime_clock(stream));
    runtime_host_waited();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaStreamQuery");
    RUNTIME_FORBIDDEN();
    int is_pending = runtime.deferred_n > 0;
    for (int i = 0; i < runtime.out_n; i++)
        is_pending |= runtime.out[i].clock == stream->clock;
    if (is_pending && !stream->is_asked) {
        stream->is_asked = 1;
        runtime_settle();
        return runtime_mine.last = cudaErrorNotReady; /* the next time it will have */
    }
    stream->is_asked = 0;
    clocks_host_waited_stream(stream->clock);
    runtime_host_waited();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int cap, int device)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaDeviceGetPCIBusId");
    snprintf(out, (size_t)cap, "0000:%02x:00.0", 0x3b + device);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    RUNTIME_ONE();
    (void)flags;
    RUNTIME_CALL("cudaStreamWaitEvent");
    RUNTIME_FORBIDDEN();
    clocks_wait(runtime_clock(stream), &event->time);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventCreateWithFlags");
    RUNTIME_FORBIDDEN();
    runtime.events_n++;
    *out = calloc(1, sizeof **out);
    (*out)->is_timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    RUNTIME_ONE();
    runtime.events_n--;
    free(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventRecord");
    RUNTIME_FORBIDDEN();
    clocks_record(&event->time, runtime_clock(stream));
    event->settled = runtime.settled;
    event->is_pending = runtime.deferred_n > 0;
    event->is_in_graph = 0;
    event->at = runtime.launched;
    return cudaSuccess;
}
/* One kernel or product takes one millisecond; copies and fills take no time. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventElapsedTime");
    RUNTIME_FORBIDDEN();
    if (!from->is_timed || !to->is_timed)
        return runtime_mine.last = cudaErrorInvalidResourceHandle;
    if (to->is_pending && to->settled == runtime.settled)
        return runtime_mine.last = cudaErrorNotReady;
    *ms = (float)(to->at - from->at);
    return cudaSuccess;
}
static int runtime_record(void *arg)
{
    (*(cudaEvent_t *)arg)->settled = runtime.settled;
    (*(cudaEvent_t *)arg)->is_pending = 1;
    (*(cudaEvent_t *)arg)->is_in_graph = 1;
    return 0;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventRecordWithFlags");
    if (!runtime_mine.captured || stream != runtime_mine.captured ||
        flags != cudaEventRecordExternal)
        return runtime_mine.last = cudaErrorInvalidValue;
    return runtime_keep(runtime_record, &event, sizeof event);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventSynchronize");
    RUNTIME_FORBIDDEN();
    runtime.launches_before_wait = *runtime_calls("cudaGraphLaunch");
    runtime_settle();
    if (runtime.is_stale && event->is_in_graph)
        return cudaSuccess;
    clocks_host_waited(&event->time);
    runtime_hand_over(NULL, NULL);
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventQuery");
    RUNTIME_FORBIDDEN();
    if (event->is_pending && event->settled == runtime.settled)
        return runtime_mine.last = cudaErrorNotReady;
    clocks_host_waited(&event->time);
    runtime_host_waited();
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    RUNTIME_ONE();
    cudaError_t last = runtime_mine.last;
    runtime_mine.last = cudaSuccess;
    return last;
}
const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "an error";
}

#include "tests/cuda/runtime_graph.h"

#endif
