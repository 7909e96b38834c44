/* headers — compares src/dev/cuda/runtime.h with HIP's own header: every call has its name and its
 * arguments, and every constant its value. Compiled by test_device.sh; nothing is run. */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

/* HIP's handles, under the tags of runtime.h; and its enumerations, which are unsigned there. */
#define CUstream_st ihipStream_t
#define CUevent_st ihipEvent_t
#define CUgraph_st ihipGraph
#define CUgraphExec_st hipGraphExec
#define CUgraphNode_st hipGraphNode
#include "dev/cuda/runtime.h"

#define SAME(ours, hips) _Static_assert((int)ours == (int)hips, #ours)
SAME(GPU_SUCCESS, hipSuccess);
SAME(GPU_ERROR_NO_DEVICE, hipErrorNoDevice);
SAME(GPU_ERROR_NOT_READY, hipErrorNotReady);
SAME(GPU_TO_DEVICE, hipMemcpyHostToDevice);
SAME(GPU_TO_HOST, hipMemcpyDeviceToHost);
SAME(GPU_WITHIN_DEVICE, hipMemcpyDeviceToDevice);
SAME(GPU_HOST_DEFAULT, hipHostMallocDefault);
SAME(GPU_HOST_PORTABLE, hipHostMallocPortable);
SAME(GPU_REGISTER_PORTABLE, hipHostRegisterPortable);
SAME(GPU_STREAM_NON_BLOCKING, hipStreamNonBlocking);
SAME(GPU_EVENT_DEFAULT, hipEventDefault);
SAME(GPU_EVENT_NO_TIMING, hipEventDisableTiming);
SAME(GPU_CAPTURE_THREAD, hipStreamCaptureModeThreadLocal);
SAME(GPU_HIP_COMPUTE_UNITS, hipDeviceAttributeMultiprocessorCount);
SAME(GPU_HIP_BLOCK_SHARED, hipDeviceAttributeMaxSharedMemoryPerBlock);
SAME(GPU_HIP_MEMORY, hipErrorOutOfMemory);
SAME(GPU_HIP_NOT_INITIALIZED, hipErrorNotInitialized);
SAME(GPU_HIP_OLD_DRIVER, hipErrorInsufficientDriver);
SAME(GPU_HIP_INVALID_FUNCTION, hipErrorInvalidDeviceFunction);
SAME(GPU_HIP_INVALID_DEVICE, hipErrorInvalidDevice);
SAME(GPU_HIP_NO_CODE, hipErrorNoBinaryForGpu);
SAME(GPU_HIP_ECC, hipErrorECCNotCorrectable);
SAME(GPU_HIP_ADDRESS, hipErrorIllegalAddress);
SAME(GPU_HIP_TIMEOUT, hipErrorLaunchTimeOut);
SAME(GPU_HIP_ASSERT, hipErrorAssert);
SAME(GPU_HIP_LAUNCH, hipErrorLaunchFailure);
SAME(GPU_HIP_UNKNOWN, hipErrorUnknown);

#define CALL_ROW(name, theirs, parameters) .name = hip##theirs,
struct gpu_runtime headers = {GPU_CALLS(CALL_ROW).GetErrorString = NULL};
