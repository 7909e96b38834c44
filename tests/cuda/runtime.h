/* runtime — the calls of the CUDA runtime that src/dev makes, over ordinary memory. A test that
 * includes this links no CUDA runtime and needs no driver.
 *
 *   device memory  only copies, fills and kernels (runtime_device) may touch it. At all other times
 *                  its pages are closed: a host that reads it crashes, as it would on a GPU.
 *   copies         run when the host waits, so a result that is used too early shows
 *   capture        keeps work, with its arguments by value, for graphs. A call that CUDA forbids in
 *                  a capture fails and invalidates it. Data that a graph copies to pinned memory is
 *                  there when the host has waited.
 *   failures       runtime_fail makes a call fail
 *   threads        one call at a time; all streams run in the order of calls; a capture belongs to
 *                  its thread */
#ifndef CONVOY_TESTS_RUNTIME_H
#define CONVOY_TESTS_RUNTIME_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RUNTIME_PIECES 256
#define RUNTIME_SPACE ((size_t)1 << 40)
#define RUNTIME_DEFERRED 4096
#define RUNTIME_OUT 16
#define RUNTIME_CALLS 40

struct runtime_piece {
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
struct CUevent_st {
    int settled, is_pending;
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
static struct {
    char *space; /* of all pieces, by address */
    struct runtime_piece piece[RUNTIME_PIECES];
    struct runtime_copy deferred[RUNTIME_DEFERRED];
    struct runtime_piece pinned[RUNTIME_PIECES];
    struct runtime_copy out[RUNTIME_OUT]; /* src: a copy of what a graph brings */
    int pinned_n, out_n, settled;         /* settled: how often */
    /* an event is reported as reached because of an earlier record */
    int is_stale;
    int launches_before_wait; /* of graphs, so far, when the host last waited for an event */
    size_t nodes_after_event; /* of the graph last launched, behind its event's node */
    int sm_count;             /* of each device */
    int pieces_n, deferred_n, devices_n, major, driver, events_n, streams_n, graphs_n;
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

/* Pieces lie one behind the other, so that one call opens many. */
static void runtime_protect(int how)
{
    for (int i = 0, next; i < runtime.pieces_n; i = next) {
        size_t bytes = runtime.piece[i].bytes;
        for (next = i + 1;
             next < runtime.pieces_n && runtime.piece[next].data == runtime.piece[i].data + bytes;
             next++)
            bytes += runtime.piece[next].bytes;
        if (mprotect(runtime.piece[i].data, bytes, how) != 0)
            abort();
    }
}
static void runtime_open(void) { runtime_protect(PROT_READ | PROT_WRITE); }
static void runtime_shut(void) { runtime_protect(PROT_NONE); }

static int runtime_copy_now(void *arg)
{
    struct runtime_copy *c = arg;
    if (c->src)
        memmove(c->dst, c->src, c->bytes);
    else
        memset(c->dst, c->byte, c->bytes);
    return 0;
}

/* Do what was put off, in order. */
static void runtime_settle(void)
{
    runtime_open();
    for (int i = 0; i < runtime.deferred_n; i++)
        (void)runtime_copy_now(&runtime.deferred[i]);
    runtime.deferred_n = 0;
    runtime.settled++;
    runtime_shut();
}

/* What graphs have brought: to whoever has waited for it. */
static void runtime_hand_over(void)
{
    for (int i = 0; i < runtime.out_n; i++) {
        memcpy(runtime.out[i].dst, runtime.out[i].src, runtime.out[i].bytes);
        free((void *)(uintptr_t)runtime.out[i].src);
    }
    runtime.out_n = 0;
}
static int runtime_read(void *arg)
{
    const struct runtime_copy *c = arg;
    void *copy = malloc(c->bytes);
    if (runtime.out_n == RUNTIME_OUT)
        abort();
    memcpy(copy, c->src, c->bytes);
    runtime.out[runtime.out_n++] = (struct runtime_copy){c->dst, copy, c->bytes, 0};
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
    int rc = run((void *)(uintptr_t)arg);
    runtime_shut();
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

static int runtime_is_in(const struct runtime_piece *piece, int n, const void *p)
{
    for (int i = 0; i < n; i++)
        if ((uintptr_t)p - (uintptr_t)piece[i].data < piece[i].bytes)
            return 1;
    return 0;
}
static int runtime_is_piece(const void *p)
{
    return runtime_is_in(runtime.piece, runtime.pieces_n, p);
}
static int runtime_is_pinned(const void *p)
{
    return runtime_is_in(runtime.pinned, runtime.pinned_n, p);
}

static cudaError_t runtime_defer(struct runtime_copy copy)
{
    if (runtime.deferred_n == RUNTIME_DEFERRED)
        runtime_settle();
    runtime.deferred[runtime.deferred_n++] = copy;
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
    if (bytes > runtime.free_bytes || runtime.pieces_n == RUNTIME_PIECES)
        return runtime_mine.last = cudaErrorMemoryAllocation;
    if (runtime.space == NULL)
        runtime.space = runtime_nothing(NULL, RUNTIME_SPACE);
    const struct runtime_piece *last =
        runtime.pieces_n > 0 ? &runtime.piece[runtime.pieces_n - 1] : NULL;
    struct runtime_piece *p = &runtime.piece[runtime.pieces_n++];
    p->bytes = (bytes + 4095) / 4096 * 4096;
    /* never where something was freed before the last one */
    p->data = last ? last->data + last->bytes : runtime.space;
    if (p->data + p->bytes > runtime.space + RUNTIME_SPACE)
        abort();
    p->is_fresh = 1;
    *out = p->data;
    return cudaSuccess;
}
cudaError_t cudaFree(void *data)
{
    RUNTIME_ONE();
    RUNTIME_FORBIDDEN();
    runtime_settle();
    for (int i = 0; i < runtime.pieces_n; i++)
        if (runtime.piece[i].data == data) {
            runtime_nothing(data, runtime.piece[i].bytes);
            runtime.pieces_n--;
            memmove(&runtime.piece[i], &runtime.piece[i + 1],
                    (size_t)(runtime.pieces_n - i) * sizeof *runtime.piece);
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
    if (runtime.pinned_n == RUNTIME_PIECES)
        abort();
    *out = malloc(bytes);
    if (!*out)
        return cudaErrorMemoryAllocation;
    runtime.pinned[runtime.pinned_n++] = (struct runtime_piece){.data = *out, .bytes = bytes};
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *data)
{
    RUNTIME_ONE();
    RUNTIME_FORBIDDEN();
    for (int i = 0; i < runtime.pinned_n; i++)
        if (runtime.pinned[i].data == data) {
            runtime.pinned[i] = runtime.pinned[--runtime.pinned_n];
            free(data);
            return cudaSuccess;
        }
    abort();
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    RUNTIME_ONE();
    (void)kind;
    RUNTIME_CALL("cudaMemcpyAsync");
    if (runtime_mine.captured && stream == runtime_mine.captured) {
        if (runtime_is_pinned(dst) && runtime_is_piece(src))
            return runtime_keep(runtime_read, &(struct runtime_copy){dst, src, bytes, 0},
                                sizeof(struct runtime_copy));
        if (!runtime_is_piece(dst) || !runtime_is_piece(src))
            return runtime_forbidden(); /* what the host gives would be given once */
        return runtime_keep(runtime_copy_now, &(struct runtime_copy){dst, src, bytes, 0},
                            sizeof(struct runtime_copy));
    }
    return runtime_defer((struct runtime_copy){dst, src, bytes, 0});
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaMemsetAsync");
    if (runtime_mine.captured && stream == runtime_mine.captured)
        return runtime_keep(runtime_copy_now, &(struct runtime_copy){dst, NULL, bytes, byte},
                            sizeof(struct runtime_copy));
    for (int i = 0; i < runtime.pieces_n; i++)
        if (dst == runtime.piece[i].data && byte == 0 && runtime.piece[i].is_fresh) {
            runtime.piece[i].is_fresh = 0;
            return cudaSuccess;
        }
    return runtime_defer((struct runtime_copy){dst, NULL, bytes, byte});
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
    *out = malloc(1);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    RUNTIME_ONE();
    runtime.streams_n--;
    free(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    RUNTIME_ONE();
    (void)stream;
    RUNTIME_CALL("cudaStreamSynchronize");
    runtime_mine.syncs++;
    RUNTIME_FORBIDDEN();
    runtime_settle();
    runtime_hand_over();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    RUNTIME_ONE();
    (void)stream;
    RUNTIME_CALL("cudaStreamQuery");
    RUNTIME_FORBIDDEN();
    if (runtime.deferred_n + runtime.out_n == 0)
        return cudaSuccess;
    runtime_settle();
    runtime_hand_over();
    return runtime_mine.last = cudaErrorNotReady; /* the next time it will have */
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
    (void)stream, (void)event, (void)flags;
    RUNTIME_CALL("cudaStreamWaitEvent");
    RUNTIME_FORBIDDEN();
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
    (void)stream;
    RUNTIME_CALL("cudaEventRecord");
    RUNTIME_FORBIDDEN();
    *event = (struct CUevent_st){runtime.settled, runtime.deferred_n > 0, event->is_timed,
                                 runtime.launched};
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
    (void)event;
    RUNTIME_CALL("cudaEventSynchronize");
    RUNTIME_FORBIDDEN();
    runtime.launches_before_wait = *runtime_calls("cudaGraphLaunch");
    runtime_settle();
    if (!runtime.is_stale)
        runtime_hand_over();
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    RUNTIME_ONE();
    RUNTIME_CALL("cudaEventQuery");
    RUNTIME_FORBIDDEN();
    return event->is_pending && event->settled == runtime.settled
               ? (runtime_mine.last = cudaErrorNotReady)
               : cudaSuccess;
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
