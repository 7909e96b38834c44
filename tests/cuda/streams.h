/* streams — the calls of the CUDA runtime that src/dev makes, with streams that run at the same
 * time, for tests of several ranks with a library of collectives. In place of runtime.h, which runs
 * all streams in the order of calls.
 *
 *   streams   each is a queue. Its items run when a thread waits or asks, and on a thread of their
 *             own; an item may have to wait for other streams or other ranks, and the items after
 *             it wait too
 *   graphs    a captured stream keeps its work, and a graph runs it again in this order. Calls that
 *             CUDA forbids in a capture fail and invalidate it; so do waits for other streams:
 *             src/dev captures none. A graph lives until its last launch has ended
 *   time      each stream has a clock of its own: a kernel takes streams_pace milliseconds of the
 *             thread that opened the stream, copies take none, and a wait moves the clock to the
 *             time of the stream that is waited for; a library's call to the latest of all
 * Memory of the device is ordinary memory here; runtime.h checks who touches it. */
#ifndef CONVOY_TESTS_STREAMS_H
#define CONVOY_TESTS_STREAMS_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/fake_nccl.h"
#include "tests/emu/emu_control.h"

#define STREAMS_SPACE ((size_t)1 << 36)
#define STREAMS_PINNED 512
#define STREAMS_DEVICES 16

struct streams_item {
    int (*run)(void *arg); /* 1: done */
    void *arg;
};
struct CUgraph_st {
    struct streams_node {
        int (*run)(void *arg);
        void *arg;
        cudaEvent_t recorded; /* by this node, which runs nothing */
    } * node;
    int n, uses;
};
struct CUgraphExec_st {
    struct CUgraph_st *graph;
};
struct CUstream_st {
    struct fake_stream fake; /* the first: as a library sees the stream */
    struct CUstream_st *next;
    struct streams_item *item;
    long posted, finished, cap;  /* items [finished, posted) are left */
    struct CUgraph_st *captured; /* NULL: not captured */
    int is_invalid, is_destroyed;
    double ms, pace; /* its time; milliseconds of a kernel */
};
struct CUevent_st {
    struct CUevent_st *next; /* all: a graph that was launched may still record them */
    cudaStream_t stream;     /* recorded there behind so many items; NULL: never */
    long position;
    int graphs_n; /* launched graphs that have not recorded it yet */
    int is_timed;
    double ms; /* when it was reached */
};
static struct {
    pthread_mutex_t mutex;
    char *space;
    size_t used;
    struct CUstream_st *streams; /* those that exist or have work left */
    struct CUstream_st *gone;    /* the others: events refer to them */
    struct CUevent_st *events;
    void *pinned[STREAMS_PINNED];
    void *kept[STREAMS_PINNED]; /* given back while work was left that could write it */
    int kept_n;
    size_t pinned_bytes[STREAMS_PINNED];
    int pinned_n, graphs_n, launches, captures;
    int devices_n, device[STREAMS_DEVICES]; /* numbers on the machine of the visible devices */
    /* names of the machine's devices, with commas between them; a device after the last name has
     * the last one */
    const char *names;
} streams = {
    .mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, .devices_n = 1, .names = "Emulated GPU"};
static _Thread_local double streams_pace = 1;   /* of streams that this thread opens */
static cudaStream_t streams_running;            /* whose item runs */
static _Thread_local cudaStream_t streams_mine; /* captured by this thread */
static _Thread_local cudaError_t streams_last;

static void streams_leave(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&streams.mutex);
}
#define STREAMS_ONE() \
    __attribute__((cleanup(streams_leave))) int streams_one_ = pthread_mutex_lock(&streams.mutex)

static cudaError_t streams_error(cudaError_t error) { return streams_last = error; }

/* In a capture of this thread: what CUDA forbids there. */
static cudaError_t streams_forbidden(void)
{
    if (!streams_mine)
        return cudaSuccess;
    streams_mine->is_invalid = 1;
    return streams_error(cudaErrorStreamCaptureUnsupported);
}
#define STREAMS_FORBIDDEN()                               \
    do {                                                  \
        cudaError_t streams_error_ = streams_forbidden(); \
        if (streams_error_ != cudaSuccess)                \
            return streams_error_;                        \
    } while (0)

/* ---- what runs ---- */

/* Destroyed streams without work change lists. */
static void streams_sort(void)
{
    for (struct CUstream_st **link = &streams.streams, *s; (s = *link) != NULL;)
        if (s->is_destroyed && s->finished == s->posted) {
            *link = s->next;
            s->next = streams.gone;
            streams.gone = s;
        } else {
            link = &s->next;
        }
}

static int streams_advance_all(void)
{
    int more = 1, ran = 0;
    while (more) {
        more = 0;
        for (struct CUstream_st *s = streams.streams; s; s = s->next)
            while (s->finished < s->posted &&
                   (streams_running = s, s->item[s->finished].run(s->item[s->finished].arg))) {
                s->finished++;
                more = ran = 1;
            }
    }
    streams_sort();
    return ran;
}

static void streams_post(cudaStream_t s, int (*run)(void *arg), void *arg)
{
    if (s->posted == s->cap) {
        s->cap = 2 * s->cap + 256;
        s->item = realloc(s->item, (size_t)s->cap * sizeof *s->item);
    }
    s->item[s->posted++] = (struct streams_item){run, arg};
}

/* Where an item runs, no caller is left that a mistake could be returned to. */
static void streams_run_work(int (*run)(void *arg), void *arg)
{
    int rc = run(arg);
    if (rc == 0)
        return;
    const char *error = emu_error();
    fprintf(stderr, "# work of a stream returned %d: %s\n", rc, error ? error : "no mistake seen");
    abort();
}

struct streams_once { /* work that is done when it was run */
    int (*run)(void *arg);
    char arg[];
};
static int streams_run_once(void *arg)
{
    struct streams_once *once = arg;
    streams_run_work(once->run, once->arg);
    free(once);
    return 1;
}

static struct streams_node *streams_add_node(struct CUgraph_st *g)
{
    g->node = realloc(g->node, (size_t)(g->n + 1) * sizeof *g->node);
    memset(&g->node[g->n], 0, sizeof *g->node);
    return &g->node[g->n++];
}

/* Work of a stream: run(arg) later, or in a graph. */
static void streams_give(cudaStream_t s, int (*run)(void *arg), const void *arg, size_t bytes)
{
    if (s->captured) {
        struct streams_node *node = streams_add_node(s->captured);
        node->run = run;
        node->arg = malloc(bytes + 1);
        memcpy(node->arg, arg, bytes);
        return;
    }
    struct streams_once *once = malloc(sizeof *once + bytes);
    once->run = run;
    memcpy(once->arg, arg, bytes);
    streams_post(s, streams_run_once, once);
}

/* runtime_device — kernels and products: as emu_control.h says. */
struct streams_kernel {
    int (*run)(void *arg);
    char arg[];
};
static int streams_run_kernel(void *arg)
{
    struct streams_kernel *k = arg;
    streams_running->ms += streams_running->pace;
    return k->run(k->arg);
}
static int runtime_device(void *stream, int (*run)(void *arg), const void *arg, size_t bytes)
{
    STREAMS_ONE();
    struct streams_kernel *k = malloc(sizeof *k + bytes);
    k->run = run;
    memcpy(k->arg, arg, bytes);
    streams_give(stream, streams_run_kernel, k, sizeof *k + bytes);
    free(k);
    return 0;
}

/* Accesses are followed by runtime.h only. */
static void (*const runtime_touch)(const char *who, const void *at, size_t bytes,
                                   int is_write) = NULL;

/* ---- a library of collectives ---- */

/* A call ends when all ranks have joined it. */
static int streams_run_call(void *arg)
{
    struct streams_item *call = arg;
    cudaStream_t s = streams_running;
    if (!call->run(call->arg))
        return 0;
    for (const struct CUstream_st *other = streams.streams; other; other = other->next)
        s->ms = other->ms > s->ms ? other->ms : s->ms;
    free(call);
    return 1;
}
static void streams_fake_post(struct fake_stream *fake, int (*run)(void *arg), void *arg)
{
    STREAMS_ONE();
    struct streams_item *call = malloc(sizeof *call);
    *call = (struct streams_item){run, arg};
    streams_post((cudaStream_t)(void *)fake, streams_run_call, call);
}
static int streams_fake_advance(struct fake_stream *fake)
{
    STREAMS_ONE();
    cudaStream_t s = (cudaStream_t)(void *)fake;
    (void)streams_advance_all();
    return (int)(s->posted - s->finished);
}
/* ---- memory ---- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    if (streams.used + bytes + 8192 > STREAMS_SPACE)
        abort();
    *out = streams.space + streams.used;
    streams.used += (bytes + 8191) / 4096 * 4096;
    return cudaSuccess;
}
cudaError_t cudaFree(void *data)
{
    STREAMS_FORBIDDEN();
    (void)data; /* never taken again */
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    STREAMS_ONE();
    (void)flags;
    STREAMS_FORBIDDEN();
    if (streams.pinned_n == STREAMS_PINNED)
        abort();
    streams.pinned_bytes[streams.pinned_n] = bytes;
    return (*out = streams.pinned[streams.pinned_n++] = malloc(bytes)) ? cudaSuccess
                                                                       : cudaErrorMemoryAllocation;
}
/* CUDA waits for the device; here memory that a stream may still write is kept until none has work
 * left. */
static void streams_give_back(void *data)
{
    if (streams.kept_n == STREAMS_PINNED)
        abort();
    streams.kept[streams.kept_n++] = data;
    for (const struct CUstream_st *s = streams.streams; s; s = s->next)
        if (s->finished < s->posted)
            return;
    while (streams.kept_n > 0)
        free(streams.kept[--streams.kept_n]);
}
cudaError_t cudaHostUnregister(void *data)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    for (int i = 0; i < streams.pinned_n; i++)
        if (streams.pinned[i] == data) {
            streams.pinned[i] = streams.pinned[--streams.pinned_n];
            streams.pinned_bytes[i] = streams.pinned_bytes[streams.pinned_n];
            return cudaSuccess;
        }
    abort();
}
cudaError_t cudaFreeHost(void *data)
{
    const cudaError_t error = cudaHostUnregister(data);
    STREAMS_ONE();
    if (error == cudaSuccess)
        streams_give_back(data);
    return error;
}
cudaError_t cudaHostRegister(void *data, size_t bytes, unsigned flags)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    if (streams.pinned_n == STREAMS_PINNED || flags != cudaHostRegisterPortable)
        abort();
    streams.pinned_bytes[streams.pinned_n] = bytes;
    streams.pinned[streams.pinned_n++] = data;
    return cudaSuccess;
}
static int streams_is_device(const void *p)
{
    return (const char *)p >= streams.space && (const char *)p < streams.space + streams.used;
}
static int streams_is_pinned(const void *p)
{
    for (int i = 0; i < streams.pinned_n; i++)
        if ((uintptr_t)p - (uintptr_t)streams.pinned[i] < streams.pinned_bytes[i])
            return 1;
    return 0;
}

struct streams_copy {
    void *dst;
    const void *src;
    size_t bytes;
    int byte;
};
static int streams_run_copy(void *arg)
{
    struct streams_copy *c = arg;
    if (c->src)
        memmove(c->dst, c->src, c->bytes);
    else
        memset(c->dst, c->byte, c->bytes);
    return 0;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    STREAMS_ONE();
    (void)kind;
    int is_out = streams_is_pinned(dst) && streams_is_device(src),
        is_in = streams_is_device(dst) && streams_is_pinned(src),
        is_within = streams_is_device(dst) && streams_is_device(src);
    if (!is_out && !is_in && !is_within)
        abort(); /* src/dev copies through pinned memory */
    if (s->captured && is_in)
        return streams_forbidden(); /* what the host gives would be given once */
    streams_give(s, streams_run_copy, &(struct streams_copy){dst, src, bytes, 0},
                 sizeof(struct streams_copy));
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t s)
{
    STREAMS_ONE();
    if (!s && byte == 0) /* of dev_alloc: what cudaMalloc gives here is zero */
        return cudaSuccess;
    streams_give(s, streams_run_copy, &(struct streams_copy){dst, NULL, bytes, byte},
                 sizeof(struct streams_copy));
    return cudaSuccess;
}

/* ---- device ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = streams.devices_n;
    return streams.devices_n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    const char *name = streams.names, *next;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < streams.device[device] && (next = strchr(name, ',')) != NULL; i++)
        name = next + 1;
    snprintf(p->name, sizeof p->name, "%.*s", (int)strcspn(name, ","), name);
    p->uuid.bytes[0] = (char)(1 + streams.device[device]);
    p->major = 9;
    p->multiProcessorCount = 4;
    p->totalGlobalMem = (size_t)8 << 30;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
#ifndef STREAMS_OWN_SET_DEVICE
cudaError_t cudaSetDevice(int device)
{
    return device < streams.devices_n ? cudaSuccess : streams_error(cudaErrorInvalidDevice);
}
#endif
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)8 << 30;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int cap, int device)
{
    snprintf(out, (size_t)cap, "0000:%02x:00.0", 0x3b + streams.device[device]);
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t last = streams_last;
    streams_last = cudaSuccess;
    return last;
}
const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorStreamCaptureInvalidated ? "the capture is invalid" : "an error";
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = 0, *high = -5;
    return cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    if (flags != cudaStreamNonBlocking)
        return streams_error(cudaErrorInvalidValue);
    cudaStream_t s = calloc(1, sizeof *s);
    (void)priority;
    s->fake = (struct fake_stream){streams_fake_post, streams_fake_advance};
    s->pace = streams_pace;
    s->next = streams.streams;
    streams.streams = s;
    *out = s;
    return cudaSuccess;
}

/* Is it done? Does what can be done, unless another thread is at that. */
static int streams_ask(int (*is_done)(const void *arg), const void *arg)
{
    if (pthread_mutex_trylock(&streams.mutex) != 0)
        return 0;
    (void)streams_advance_all();
    int done = is_done(arg);
    pthread_mutex_unlock(&streams.mutex);
    return done;
}

/* Until `is_done`; other threads may have to come first. */
static cudaError_t streams_wait(int (*is_done)(const void *arg), const void *arg)
{
    while (!streams_ask(is_done, arg))
        usleep(50);
    return cudaSuccess;
}
static int streams_is_idle(const void *stream)
{
    const struct CUstream_st *s = stream;
    return s->finished == s->posted;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    STREAMS_FORBIDDEN();
    return s ? streams_wait(streams_is_idle, s) : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    STREAMS_FORBIDDEN();
    return streams_ask(streams_is_idle, s) ? cudaSuccess : streams_error(cudaErrorNotReady);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    STREAMS_ONE();
    s->is_destroyed = 1;
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    *out = calloc(1, sizeof **out);
    (*out)->is_timed = flags == cudaEventDefault;
    (*out)->next = streams.events;
    streams.events = *out;
    return cudaSuccess;
}
/* The event stays. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}
static int streams_run_stamp(void *arg)
{
    ((struct CUevent_st *)arg)->ms = streams_running->ms;
    return 1;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    if (event->is_timed)
        streams_post(s, streams_run_stamp, event);
    event->stream = s, event->position = s->posted;
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags)
{
    STREAMS_ONE();
    if (!s->captured || flags != cudaEventRecordExternal)
        return streams_error(cudaErrorInvalidValue);
    streams_add_node(s->captured)->recorded = event;
    return cudaSuccess;
}
static int streams_is_reached(const void *arg)
{
    const struct CUevent_st *e = arg;
    return e->graphs_n == 0 && (!e->stream || e->stream->finished >= e->position);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    if (!from->is_timed || !to->is_timed)
        return streams_error(cudaErrorInvalidResourceHandle);
    if (!streams_is_reached(from) || !streams_is_reached(to))
        return streams_error(cudaErrorNotReady);
    *ms = (float)(to->ms - from->ms);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    STREAMS_FORBIDDEN();
    return streams_wait(streams_is_reached, event);
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    STREAMS_FORBIDDEN();
    return streams_ask(streams_is_reached, event) ? cudaSuccess : streams_error(cudaErrorNotReady);
}

/* What a stream waits for: the event as it is now. */
static int streams_run_wait(void *arg)
{
    struct CUevent_st *e = arg;
    if (e->stream->finished < e->position)
        return 0;
    if (e->stream->ms > streams_running->ms)
        streams_running->ms = e->stream->ms;
    free(e);
    return 1;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    (void)flags;
    if (!event->stream)
        return cudaSuccess;
    struct CUevent_st *now = malloc(sizeof *now);
    *now = *event;
    streams_post(s, streams_run_wait, now);
    return cudaSuccess;
}

/* ---- graphs ---- */

static void streams_unuse(struct CUgraph_st *g)
{
    if (--g->uses > 0)
        return;
    for (int i = 0; i < g->n; i++)
        free(g->node[i].arg);
    streams.graphs_n--;
    free(g->node);
    free(g);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    STREAMS_ONE();
    streams.captures++;
    if (s->captured || streams_mine || mode != cudaStreamCaptureModeThreadLocal)
        return streams_error(cudaErrorStreamCaptureUnsupported);
    streams_mine = s;
    s->is_invalid = 0;
    s->captured = calloc(1, sizeof *s->captured);
    s->captured->uses = 1;
    streams.graphs_n++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    STREAMS_ONE();
    *out = NULL;
    if (!s->captured || streams_mine != s)
        return streams_error(cudaErrorIllegalState);
    struct CUgraph_st *graph = s->captured;
    s->captured = NULL;
    streams_mine = NULL;
    if (s->is_invalid) {
        streams_unuse(graph);
        return streams_error(cudaErrorStreamCaptureInvalidated);
    }
    *out = graph;
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    (void)nodes;
    *n = (size_t)graph->n;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    if (flags != 0)
        return streams_error(cudaErrorInvalidValue);
    *out = malloc(sizeof **out);
    (*out)->graph = graph;
    graph->uses++;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    STREAMS_ONE();
    streams_unuse(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    STREAMS_ONE();
    streams_unuse(exec->graph);
    free(exec);
    return cudaSuccess;
}

static int streams_run_graph(void *arg)
{
    struct CUgraph_st *graph = arg;
    for (int i = 0; i < graph->n; i++)
        if (graph->node[i].recorded)
            graph->node[i].recorded->graphs_n--;
        else
            streams_run_work(graph->node[i].run, graph->node[i].arg);
    streams_unuse(graph);
    return 1;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    STREAMS_ONE();
    STREAMS_FORBIDDEN();
    exec->graph->uses++;
    for (int i = 0; i < exec->graph->n; i++)
        if (exec->graph->node[i].recorded) {
            exec->graph->node[i].recorded->graphs_n++;
            exec->graph->node[i].recorded->stream = NULL;
        }
    streams.launches++;
    streams_post(s, streams_run_graph, exec->graph);
    return cudaSuccess;
}

static void *streams_go_on(void *unused)
{
    for (;; usleep(200)) {
        if (pthread_mutex_trylock(&streams.mutex) != 0)
            continue;
        (void)streams_advance_all();
        pthread_mutex_unlock(&streams.mutex);
    }
    return unused;
}

/* streams_begin — call it once, first. */
static void streams_begin(void)
{
    pthread_t thread;
    streams.space = mmap(NULL, STREAMS_SPACE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (streams.space == MAP_FAILED || pthread_create(&thread, NULL, streams_go_on, NULL) != 0)
        abort();
    pthread_detach(thread);
}

#endif
