/* runtime — the calls of the CUDA runtime that src/dev makes, over ordinary memory: a test that includes this links no
 * CUDA runtime and needs no driver.
 *
 * Memory of the "device" may be touched by copies, fills and (through runtime_open, runtime_shut) kernels only: at all
 * other times its pages are closed, so that a host that reads it crashes, as it would on a GPU. Copies are put off until
 * somebody waits, so that what is used too early is seen. runtime_fail makes a call fail. */
#ifndef CONVOY_TESTS_RUNTIME_H
#define CONVOY_TESTS_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RUNTIME_PIECES 256
#define RUNTIME_LATE 4096
#define RUNTIME_CALLS 32

struct runtime_piece {
    char *data;
    size_t bytes;
    int is_fresh; /* zero and never touched: to zero it would only take memory */
};
struct runtime_copy {
    void *dst;
    const void *src;
    size_t bytes;
    int byte; /* of a fill: src NULL */
};
static struct {
    struct runtime_piece piece[RUNTIME_PIECES];
    struct runtime_copy late[RUNTIME_LATE];
    int pieces_n, late_n, devices_n, major, driver, events_n, streams_n;
    size_t free_bytes;
    const char *fail_call; /* name of the call that fails, the fail_after-th from now; NULL: none */
    int fail_after;
    cudaError_t fail_with, last;
    struct {
        const char *name;
        int n;
    } calls[RUNTIME_CALLS]; /* how often each was called, in the order of first calls */
} runtime = {.devices_n = 1, .major = 9, .driver = 13000, .free_bytes = (size_t)8 << 30};

static inline void runtime_fail(const char *call, int after, cudaError_t error)
{
    runtime.fail_call = call;
    runtime.fail_after = after;
    runtime.fail_with = error;
}

/* runtime_calls — how often a call was made so far. Calls that are not here do not link: waiting for the whole device is
 * one. */
static inline int *runtime_calls(const char *name)
{
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
    return runtime.last = runtime.fail_with;
}

#define RUNTIME_CALL(name)                                                                                     \
    do {                                                                                                       \
        cudaError_t runtime_error_ = runtime_call(name);                                                       \
        if (runtime_error_ != cudaSuccess)                                                                     \
            return runtime_error_;                                                                             \
    } while (0)

static void runtime_protect(int how)
{
    for (int i = 0; i < runtime.pieces_n; i++)
        if (mprotect(runtime.piece[i].data, runtime.piece[i].bytes, how) != 0)
            abort();
}
static void runtime_open(void) { runtime_protect(PROT_READ | PROT_WRITE); }
static void runtime_shut(void) { runtime_protect(PROT_NONE); }

/* Do what was put off, in order. */
static void runtime_settle(void)
{
    runtime_open();
    for (int i = 0; i < runtime.late_n; i++) {
        struct runtime_copy *c = &runtime.late[i];
        if (c->src)
            memmove(c->dst, c->src, c->bytes);
        else
            memset(c->dst, c->byte, c->bytes);
    }
    runtime.late_n = 0;
    runtime_shut();
}

static cudaError_t runtime_later(struct runtime_copy copy)
{
    if (runtime.late_n == RUNTIME_LATE)
        runtime_settle();
    runtime.late[runtime.late_n++] = copy;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    RUNTIME_CALL("cudaGetDeviceCount");
    *count = runtime.devices_n;
    return runtime.devices_n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    RUNTIME_CALL("cudaGetDeviceProperties");
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Emulated %d", device);
    p->major = runtime.major;
    p->multiProcessorCount = 4;
    p->totalGlobalMem = runtime.free_bytes;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = runtime.driver;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    RUNTIME_CALL("cudaSetDevice");
    return device < runtime.devices_n ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = runtime.free_bytes;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    RUNTIME_CALL("cudaMalloc");
    if (bytes > runtime.free_bytes || runtime.pieces_n == RUNTIME_PIECES)
        return runtime.last = cudaErrorMemoryAllocation;
    struct runtime_piece *p = &runtime.piece[runtime.pieces_n++];
    p->bytes = (bytes + 4095) / 4096 * 4096;
    p->data = mmap(NULL, p->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    p->is_fresh = 1;
    *out = p->data;
    return cudaSuccess;
}
cudaError_t cudaFree(void *data)
{
    runtime_settle();
    for (int i = 0; i < runtime.pieces_n; i++)
        if (runtime.piece[i].data == data) {
            munmap(data, runtime.piece[i].bytes);
            runtime.piece[i] = runtime.piece[--runtime.pieces_n];
            return cudaSuccess;
        }
    abort();
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    RUNTIME_CALL("cudaHostAlloc");
    *out = malloc(bytes);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *data)
{
    free(data);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind, (void)stream;
    RUNTIME_CALL("cudaMemcpyAsync");
    return runtime_later((struct runtime_copy){dst, src, bytes, 0});
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    RUNTIME_CALL("cudaMemsetAsync");
    for (int i = 0; i < runtime.pieces_n; i++)
        if (dst == runtime.piece[i].data && byte == 0 && runtime.piece[i].is_fresh) {
            runtime.piece[i].is_fresh = 0;
            return cudaSuccess;
        }
    return runtime_later((struct runtime_copy){dst, NULL, bytes, byte});
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    RUNTIME_CALL("cudaStreamCreateWithFlags");
    runtime.streams_n++;
    *out = malloc(1);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    runtime.streams_n--;
    free(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    RUNTIME_CALL("cudaStreamSynchronize");
    runtime_settle();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    RUNTIME_CALL("cudaStreamQuery");
    if (runtime.late_n == 0)
        return cudaSuccess;
    runtime_settle();
    return cudaErrorNotReady; /* the next time it will have */
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int cap, int device)
{
    RUNTIME_CALL("cudaDeviceGetPCIBusId");
    snprintf(out, (size_t)cap, "0000:%02x:00.0", 0x3b + device);
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    RUNTIME_CALL("cudaStreamWaitEvent");
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    RUNTIME_CALL("cudaEventCreateWithFlags");
    runtime.events_n++;
    *out = malloc(1);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    runtime.events_n--;
    free(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event, (void)stream;
    RUNTIME_CALL("cudaEventRecord");
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    RUNTIME_CALL("cudaEventSynchronize");
    runtime_settle();
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t last = runtime.last;
    runtime.last = cudaSuccess;
    return last;
}
const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "an error";
}

#endif
