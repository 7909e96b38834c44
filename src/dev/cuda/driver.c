/* dev_cuda_driver — the driver that this build needs, and properties of a GPU that only the
 * driver's own interface reports. Must not know their users. */
#include "dev/cuda/internal.h"

#ifndef CONVOY_CUDA
int dev_cuda_driver_least(void) { return 0; }

int64_t dev_cuda_driver_granularity(int device_i)
{
    (void)device_i;
    return 0;
}
#else
#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

/* From NVIDIA's table of compatible drivers: a runtime runs on the first driver of its major
 * version and on every newer one. */
int dev_cuda_driver_least(void) { return CUDA_VERSION >= 13000 ? 580 : 525; }

/* The functions, with the names of the driver's library, which the runtime has loaded. */
struct driver {
    CUresult (*cuDeviceGet)(CUdevice *device, int ordinal);
    CUresult (*cuDeviceGetAttribute)(int *out, CUdevice_attribute attribute, CUdevice device);
    CUresult (*cuMemGetAllocationGranularity)(size_t *out, const CUmemAllocationProp *prop,
                                              CUmemAllocationGranularity_flags option);
};

static bool find_symbol(void *library, const char *name, void *function, size_t bytes)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, bytes);
    return symbol != NULL;
}
#define FIND(library, table, name) find_symbol(library, #name, &(table)->name, sizeof(table)->name)

static bool has_attribute(const struct driver *d, CUdevice device, CUdevice_attribute attribute)
{
    int value = 0;
    return d->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

/* Returns the granularity for memory as ncclMemAlloc allocates it: shared by file descriptors, by
 * fabric handles and with network cards if the GPU can. 0: the driver refuses. */
static int64_t query_granularity(const struct driver *d, int device_i)
{
    size_t bytes = 0;
    CUdevice device = 0;
    if (d->cuDeviceGet(&device, device_i) != CUDA_SUCCESS)
        return 0;
    bool is_fabric = has_attribute(d, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .requestedHandleTypes =
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (is_fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0),
        .allocFlags.gpuDirectRDMACapable =
            has_attribute(d, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)};
    CUresult result =
        d->cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    return result == CUDA_SUCCESS ? (int64_t)bytes : 0;
}

int64_t dev_cuda_driver_granularity(int device_i)
{
    struct driver driver;
    int64_t bytes = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL)
        return 0;
    if (FIND(library, &driver, cuDeviceGet) && FIND(library, &driver, cuDeviceGetAttribute) &&
        FIND(library, &driver, cuMemGetAllocationGranularity))
        bytes = query_granularity(&driver, device_i);
    dlclose(library);
    return bytes;
}
#endif
