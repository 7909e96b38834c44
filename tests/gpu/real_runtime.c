/* real_runtime — checks on a real GPU what src/dev relies on and CUDA's manual does not say
 * clearly. TAP; no kernel is needed.
 *
 * The graph here is like the program's own: a long copy, a number copied to pinned memory, the
 * record of an event as a node of its own (cudaEventRecordExternal), then a much longer piece of
 * work. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"

#define BYTES ((size_t)256 << 20)
#define BEFORE 20 /* copies of BYTES: milliseconds */
#define AFTER 200
#define LAUNCHES 5

static int tests_n, failed_n;

static void report(int is_ok, const char *what, const char *more)
{
    printf("%s %d - %s%s%s\n", is_ok ? "ok" : "not ok", ++tests_n, what, more[0] ? ": " : "", more);
    fflush(stdout);
    failed_n += !is_ok;
}

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("Bail out! %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

struct rig {
    cudaStream_t stream;
    cudaEvent_t event;
    char *memory;          /* 2·BYTES */
    uint64_t *number;      /* on the device */
    volatile uint64_t *at; /* pinned: the number that came */
    cudaGraphExec_t graph;
};

static void copies(const struct rig *r, int n)
{
    for (int i = 0; i < n; i++)
        check(cudaMemcpyAsync(r->memory, r->memory + BYTES, BYTES, cudaMemcpyDeviceToDevice,
                              r->stream),
              "a copy");
}

static void rig_open(struct rig *r)
{
    void *p = NULL;
    cudaGraph_t graph = NULL;
    check(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "a stream");
    check(cudaEventCreateWithFlags(&r->event, cudaEventDisableTiming), "an event");
    check(cudaMalloc(&p, 2 * BYTES), "memory");
    r->memory = p;
    check(cudaMalloc(&p, sizeof *r->number), "memory");
    r->number = p;
    check(cudaHostAlloc(&p, sizeof *r->at, cudaHostAllocDefault), "pinned memory");
    r->at = p;
    *r->at = 0;
    check(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal), "a capture");
    copies(r, BEFORE);
    check(cudaMemcpyAsync((void *)(uintptr_t)r->at, r->number, sizeof *r->number,
                          cudaMemcpyDeviceToHost, r->stream),
          "a read");
    check(cudaEventRecordWithFlags(r->event, r->stream, cudaEventRecordExternal),
          "an event's record");
    copies(r, AFTER);
    check(cudaStreamEndCapture(r->stream, &graph), "a capture's end");
    check(cudaGraphInstantiate(&r->graph, graph, 0), "a graph");
    check(cudaGraphDestroy(graph), "a graph");
}

/* An event in a graph is reached by the newest launch, and only when the nodes before it are
 * done. */
static void events_in_graphs(struct rig *r)
{
    int reached = 0, ahead = 0;
    char more[96];
    for (uint64_t i = 1; i <= LAUNCHES; i++) {
        check(cudaMemcpyAsync(r->number, &i, sizeof i, cudaMemcpyHostToDevice, r->stream),
              "a number");
        check(cudaStreamSynchronize(r->stream), "the stream");
        check(cudaGraphLaunch(r->graph, r->stream), "a launch");
        check(cudaEventSynchronize(r->event), "waiting for the event");
        reached += *r->at == i;
        cudaError_t query = cudaStreamQuery(r->stream);
        ahead += query == cudaErrorNotReady;
        if (query == cudaErrorNotReady)
            (void)cudaGetLastError();
        check(cudaStreamSynchronize(r->stream), "the stream");
    }
    snprintf(more, sizeof more, "%d of %d (else dev_event_sync waits for the whole stream)",
             reached, LAUNCHES);
    report(reached == LAUNCHES, "an event in a graph is reached by this launch", more);
    snprintf(more, sizeof more, "%d of %d", ahead, LAUNCHES);
    report(ahead == LAUNCHES, "the host goes on while the graph's later work is under way", more);
}

static void *use_memory(void *arg)
{
    void *p = NULL;
    cudaError_t *error = arg;
    *error = cudaMalloc(&p, 1 << 20);
    if (*error == cudaSuccess)
        *error = cudaFree(p);
    return NULL;
}

/* Another thread may take memory and give it back while this one captures
 * (cudaStreamCaptureModeThreadLocal). */
static void captures_are_of_a_thread(struct rig *r)
{
    pthread_t thread;
    cudaError_t other = cudaErrorUnknown;
    cudaGraph_t graph = NULL;
    check(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal), "a capture");
    copies(r, 1);
    if (pthread_create(&thread, NULL, use_memory, &other) == 0)
        pthread_join(thread, NULL);
    cudaError_t end = cudaStreamEndCapture(r->stream, &graph);
    report(end == cudaSuccess, "a capture outlives another thread's cudaMalloc and cudaFree",
           end == cudaSuccess ? "" : cudaGetErrorString(end));
    report(other == cudaSuccess, "which succeed meanwhile",
           other == cudaSuccess ? "" : cudaGetErrorString(other));
    if (graph)
        check(cudaGraphDestroy(graph), "a graph");
    (void)cudaGetLastError();
}

int real_runtime(void)
{
    struct rig r;
    memset(&r, 0, sizeof r);
    rig_open(&r);
    events_in_graphs(&r);
    captures_are_of_a_thread(&r);
    printf("1..%d\n", tests_n);
    return failed_n > 0;
}
