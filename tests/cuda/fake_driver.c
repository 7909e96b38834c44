/* fake_driver — the part of the driver's library that src/dev/cuda/driver.c asks, for tests
 * without a GPU. Of its two devices the first can share memory in every way, and then rounds to 4
 * MiB; the second refuses to say. Anything that was not expected is answered with 1 byte. */
#include <cuda.h>

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = 40 + ordinal;
    return ordinal < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    *out = attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED ||
           attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    return device == 40 || device == 41 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    int is_expected = option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED &&
                      prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                      prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                      prop->requestedHandleTypes ==
                          (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC) &&
                      prop->allocFlags.gpuDirectRDMACapable == 1;
    *out = is_expected ? (size_t)4 << 20 : 1;
    return prop->location.id == 40 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}
