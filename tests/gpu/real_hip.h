/* real_hip — the calls of CUDA's runtime that real.c makes, on the first AMD GPU: through the table
 * of src/dev, which has AMD's runtime. Kernels run on a stream of their own. */
#ifndef CONVOY_TESTS_GPU_REAL_HIP_H
#define CONVOY_TESTS_GPU_REAL_HIP_H

#include "dev/cuda/runtime.h"

typedef gpu_error cudaError_t;
enum { cudaSuccess, cudaHostAllocDefault = GPU_HOST_DEFAULT, cudaMemcpyDefault = 4 };

static const struct gpu_runtime *real_hip;
static gpu_stream real_hip_stream;

/* real_hip_open — opens the GPU. Returns the reason why it cannot be used; NULL: it can. */
static const char *real_hip_open(void)
{
    int low = 0, high = 0;
    if (dev_hip_open(&real_hip) != ST_OK)
        return status_message();
    gpu_error error = real_hip->SetDevice(0);
    if (error == GPU_SUCCESS)
        error = real_hip->DeviceGetStreamPriorityRange(&low, &high);
    if (error == GPU_SUCCESS)
        error = real_hip->StreamCreateWithPriority(&real_hip_stream, GPU_STREAM_NON_BLOCKING, low);
    if (error == GPU_SUCCESS)
        return NULL;
    (void)real_hip->no_driver(error);
    return status_message();
}

static cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    return real_hip->HostAlloc(out, bytes, flags);
}
static cudaError_t cudaFreeHost(void *data) { return real_hip->FreeHost(data); }
static cudaError_t cudaMalloc(void **out, size_t bytes) { return real_hip->Malloc(out, bytes); }
static cudaError_t cudaGetLastError(void) { return real_hip->GetLastError(); }
static const char *cudaGetErrorString(cudaError_t error) { return real_hip->GetErrorString(error); }
static cudaError_t cudaDeviceSynchronize(void)
{
    return real_hip->StreamSynchronize(real_hip_stream);
}
static cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, unsigned kind)
{
    const gpu_error error = real_hip->MemcpyAsync(to, from, bytes, kind, real_hip_stream);
    return error == GPU_SUCCESS ? cudaDeviceSynchronize() : error;
}

#endif
