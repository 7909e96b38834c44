/* runtime — the calls of a vendor's GPU runtime, as one table that CUDA (runtime_cuda.c) and HIP
 * (runtime_hip.c) fill. Everything else of the device is the same for both: HIP has CUDA's calls
 * with the same arguments, and its constants have CUDA's values. For src/dev only. Must not know
 * streams of dev/, or the purpose of a call. */
#ifndef CONVOY_DEV_GPU_RUNTIME_H
#define CONVOY_DEV_GPU_RUNTIME_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/column.h"
#include "kernels/cuda.h"

/* Handles have the tags of CUDA's, and an error has the type of its enumeration, so the compiler
 * compares each entry with the toolkit's prototype. */
typedef unsigned gpu_error; /* cudaError_t, hipError_t */
typedef struct CUstream_st *gpu_stream;
typedef struct CUevent_st *gpu_event;
typedef struct CUgraph_st *gpu_graph;
typedef struct CUgraphExec_st *gpu_graph_exec;
struct CUgraphNode_st;

enum { GPU_SUCCESS, GPU_ERROR_NO_DEVICE = 100, GPU_ERROR_NOT_READY = 600 };
enum { GPU_TO_DEVICE = 1, GPU_TO_HOST, GPU_WITHIN_DEVICE };
enum {
    GPU_HOST_DEFAULT,
    GPU_HOST_PORTABLE,
    GPU_REGISTER_PORTABLE = 1,
    GPU_STREAM_NON_BLOCKING = 1
};
enum { GPU_EVENT_DEFAULT, GPU_EVENT_NO_TIMING = 2, GPU_EVENT_EXTERNAL = 1 };
enum { GPU_CAPTURE_THREAD = 1 };

/* HIP's own numbers, of version 5.2.3 (tests/hip/headers.c compares all with its header). */
enum {
    GPU_HIP_COMPUTE_UNITS = 63,
    GPU_HIP_BLOCK_SHARED = 74,
    GPU_HIP_MEMORY = 2,
    GPU_HIP_NOT_INITIALIZED = 3,
    GPU_HIP_OLD_DRIVER = 35,
    GPU_HIP_INVALID_FUNCTION = 98,
    GPU_HIP_INVALID_DEVICE = 101,
    GPU_HIP_NO_CODE = 209,
    GPU_HIP_ECC = 214,
    GPU_HIP_ADDRESS = 700,
    GPU_HIP_TIMEOUT = 702,
    GPU_HIP_ASSERT = 710,
    GPU_HIP_LAUNCH = 719,
    GPU_HIP_UNKNOWN = 999
};

/* GPU_CALLS — X(CUDA's name, HIP's name, parameters), without the prefixes. */
#define GPU_CALLS(X)                                                                               \
    X(GetDeviceCount, GetDeviceCount, (int *n))                                                    \
    X(SetDevice, SetDevice, (int device))                                                          \
    X(DriverGetVersion, DriverGetVersion, (int *version))                                          \
    X(DeviceGetPCIBusId, DeviceGetPCIBusId, (char *out, int cap, int device))                      \
    X(DeviceGetStreamPriorityRange, DeviceGetStreamPriorityRange, (int *low, int *high))           \
    X(MemGetInfo, MemGetInfo, (size_t * free_bytes, size_t * total))                               \
    X(Malloc, Malloc, (void **out, size_t bytes))                                                  \
    X(Free, Free, (void *data))                                                                    \
    X(HostAlloc, HostMalloc, (void **out, size_t bytes, unsigned flags))                           \
    X(FreeHost, HostFree, (void *data))                                                            \
    X(HostRegister, HostRegister, (void *data, size_t bytes, unsigned flags))                      \
    X(HostUnregister, HostUnregister, (void *data))                                                \
    X(MemcpyAsync, MemcpyAsync,                                                                    \
      (void *dst, const void *src, size_t bytes, unsigned kind, gpu_stream s))                     \
    X(MemsetAsync, MemsetAsync, (void *dst, int byte, size_t bytes, gpu_stream s))                 \
    X(StreamCreateWithPriority, StreamCreateWithPriority,                                          \
      (gpu_stream * out, unsigned flags, int priority))                                            \
    X(StreamDestroy, StreamDestroy, (gpu_stream s))                                                \
    X(StreamSynchronize, StreamSynchronize, (gpu_stream s))                                        \
    X(StreamQuery, StreamQuery, (gpu_stream s))                                                    \
    X(StreamWaitEvent, StreamWaitEvent, (gpu_stream s, gpu_event event, unsigned flags))           \
    X(StreamBeginCapture, StreamBeginCapture, (gpu_stream s, unsigned mode))                       \
    X(StreamEndCapture, StreamEndCapture, (gpu_stream s, gpu_graph * out))                         \
    X(EventCreateWithFlags, EventCreateWithFlags, (gpu_event * out, unsigned flags))               \
    X(EventDestroy, EventDestroy, (gpu_event event))                                               \
    X(EventRecord, EventRecord, (gpu_event event, gpu_stream s))                                   \
    X(EventQuery, EventQuery, (gpu_event event))                                                   \
    X(EventSynchronize, EventSynchronize, (gpu_event event))                                       \
    X(EventElapsedTime, EventElapsedTime, (float *ms, gpu_event from, gpu_event to))               \
    X(GraphGetNodes, GraphGetNodes, (gpu_graph graph, struct CUgraphNode_st * *nodes, size_t * n)) \
    X(GraphInstantiate, GraphInstantiateWithFlags,                                                 \
      (gpu_graph_exec * out, gpu_graph graph, unsigned long long flags))                           \
    X(GraphLaunch, GraphLaunch, (gpu_graph_exec exec, gpu_stream s))                               \
    X(GraphDestroy, GraphDestroy, (gpu_graph graph))                                               \
    X(GraphExecDestroy, GraphExecDestroy, (gpu_graph_exec exec))                                   \
    X(GetLastError, GetLastError, (void))

/* GPU_LAUNCHERS — X(operation) for each launcher of a kernel. */
#define GPU_LAUNCHERS(X)     \
    OP_LIST(X) X(column_sum) \
    X(column_add)

/* Kinds of failure, each with its own status and remedy (cuda/error.c). */
enum gpu_failure {
    GPU_FAILURE_OTHER,
    GPU_FAILURE_MEMORY,    /* out of memory; the error is not sticky */
    GPU_FAILURE_NO_DRIVER, /* no driver, or an unfit one, or no GPU */
    GPU_FAILURE_UNUSABLE,  /* the GPU cannot run this program */
    GPU_FAILURE_DAMAGE,    /* uncorrectable error of a memory or a link */
    GPU_FAILURE_TIMEOUT,   /* the watchdog of a display or a debugger */
    GPU_FAILURE_PROGRAM,   /* illegal address, illegal instruction, … */
    GPU_FAILURE_LOST       /* the device stopped without a reason */
};

/* A GPU, as its runtime describes it. */
struct gpu_props {
    char name[256], uuid[16];
    char chip[16];                     /* " sm_90"; "": unknown */
    int major, minor;                  /* compute capability; 0: the vendor has none */
    int sm_count;                      /* multiprocessors, compute units */
    size_t memory_bytes, shared_bytes; /* shared_bytes: of a block, at most */
};

struct gpu_runtime {
    const char *vendor, *kind;  /* "CUDA", "cuda" */
    const char *memory_tool;    /* a command that reports damaged memory */
    const char *log_word;       /* the kernel's log names a fault by it */
    const char *visible;        /* the variable that hides GPUs */
    bool has_cudnn;             /* cuDNN may compute */
    const char *(*built)(void); /* the chips that this build has code for */
#define GPU_MEMBER(name, hip, parameters) gpu_error(*name) parameters;
    GPU_CALLS(GPU_MEMBER)
#undef GPU_MEMBER
    /* Older versions of HIP lack it; then it returns an error, and steps are not captured. */
    gpu_error (*EventRecordWithFlags)(gpu_event event, gpu_stream s, unsigned flags);
    const char *(*GetErrorString)(gpu_error error);
    enum gpu_failure (*classify)(gpu_error error);
    /* Fails with the missing or unfit part of a driver, and the remedy. */
    enum status (*no_driver)(gpu_error error);
    /* Describes a GPU. ST_NO_DEVICE: this build has no code for it. */
    enum status (*describe)(int device, struct gpu_props *out);
    /* Writes the version of CUDA or HIP that the driver supports. */
    void (*version)(int driver, char *out, size_t cap);
#define GPU_LAUNCHER(name) int (*launch_##name)(const struct cuda *cuda, const struct name *a);
    GPU_LAUNCHERS(GPU_LAUNCHER)
#undef GPU_LAUNCHER
};

/* dev_cuda_check_built — returns ST_NO_DEVICE if this program was built without CUDA. */
enum status dev_cuda_check_built(void);
/* dev_hip_open — loads libamdhip64 once, and fills its table. ST_NO_DEVICE: there is none, it lacks
 * a function, or this program was built without HIP. */
enum status dev_hip_open(const struct gpu_runtime **out);

/* The runtime of this process (dev_cuda_choose); at first CUDA's, NULL in a build without CUDA. */
extern const struct gpu_runtime *dev_runtime;

#endif
