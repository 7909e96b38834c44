/* runtime_cuda — CUDA's runtime, which is linked statically, as a table. The only file that
 * includes its header. Must not know the purpose of a call. */
#include "dev/cuda/internal.h"

#ifndef CONVOY_CUDA
static const struct gpu_runtime *const of_cuda = NULL;
const struct gpu_runtime *dev_runtime;

const char *dev_cuda_built(void) { return NULL; }
#else
#include <cuda_runtime_api.h>
#include <string.h>

#include "base/text.h"
#include "dev/nvidia/driver.h"

#define SAME(ours, cudas) _Static_assert((int)ours == (int)cudas, #ours)
SAME(GPU_SUCCESS, cudaSuccess);
SAME(GPU_ERROR_NO_DEVICE, cudaErrorNoDevice);
SAME(GPU_ERROR_NOT_READY, cudaErrorNotReady);
SAME(GPU_TO_DEVICE, cudaMemcpyHostToDevice);
SAME(GPU_TO_HOST, cudaMemcpyDeviceToHost);
SAME(GPU_WITHIN_DEVICE, cudaMemcpyDeviceToDevice);
SAME(GPU_HOST_DEFAULT, cudaHostAllocDefault);
SAME(GPU_HOST_PORTABLE, cudaHostAllocPortable);
SAME(GPU_REGISTER_PORTABLE, cudaHostRegisterPortable);
SAME(GPU_STREAM_NON_BLOCKING, cudaStreamNonBlocking);
SAME(GPU_EVENT_DEFAULT, cudaEventDefault);
SAME(GPU_EVENT_NO_TIMING, cudaEventDisableTiming);
SAME(GPU_EVENT_EXTERNAL, cudaEventRecordExternal);
SAME(GPU_CAPTURE_THREAD, cudaStreamCaptureModeThreadLocal);

const char *dev_cuda_built(void)
{
    static char text[80];
    text_format(text, sizeof text, "%d.%d: %s", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                CONVOY_CUDA);
    return text;
}

/* Returns cause and remedy of a driver's error that does not depend on the program. */
static const char *hint_of_driver(gpu_error error)
{
    switch (error) {
    case cudaErrorSystemNotReady:
        return "nvidia-fabricmanager, which sets up NVSwitches, does not run: `systemctl enable "
               "--now nvidia-fabricmanager` on the host (its package has the driver's version)";
    case cudaErrorSystemDriverMismatch:
        return "libcuda.so.1 and the driver in the kernel are of different versions: restart the "
               "machine after an update of the driver, and then its containers";
    case cudaErrorCompatNotSupportedOnDevice:
        return "libcuda.so.1 is of a package cuda-compat, which does not support this GPU: remove "
               "its folder from LD_LIBRARY_PATH";
    case cudaErrorStubLibrary:
        return "libcuda.so.1 is the toolkit's stub: remove the folder stubs from LD_LIBRARY_PATH";
    default:
        if (nvidia_driver_has_file())
            return "see `nvidia-smi` and CUDA_VISIBLE_DEVICES";
        return "there is no /dev/nvidia*: the machine has no NVIDIA GPU, or its container was "
               "given none; start it with --gpus all";
    }
}

/* Fails with the missing or unfit part of a driver, and the remedy. */
static enum status no_driver(gpu_error error)
{
    int version = 0;
    if (!nvidia_driver_has_library()) {
        /* Fails because the loader does not find libcuda.so.1. */
        char release[NVIDIA_DRIVER_RELEASE_MAX], though[80] = "";
        if (nvidia_driver_has_file())
            text_copy(though, sizeof though, ", though a device file /dev/nvidia* is here");
        else if (nvidia_driver_release("", release))
            text_format(though, sizeof though, ", though this machine's kernel has driver %s",
                        release);
        return FAIL(
            ST_NO_DEVICE,
            "no NVIDIA driver: libcuda.so.1 is not in the loader's paths%s; start a container "
            "with --gpus all (nvidia-container-toolkit), else install the driver (Debian: "
            "nvidia-driver, Ubuntu: nvidia-driver-%d), or use DEVICE=cpu",
            though, dev_cuda_driver_least());
    }
    (void)cudaDriverGetVersion(&version);
    if (error == cudaErrorInsufficientDriver && version > 0) {
        char release[NVIDIA_DRIVER_RELEASE_MAX];
        bool is_known = nvidia_driver_release("", release);
        return FAIL(ST_NO_DEVICE,
                    "the NVIDIA driver%s%s is too old: it supports CUDA %d.%d, this program needs "
                    "%d.0; install driver %d or newer, or use DEVICE=cpu",
                    is_known ? " " : "", release, version / 1000, version % 1000 / 10,
                    CUDART_VERSION / 1000, dev_cuda_driver_least());
    }
    return FAIL(ST_NO_DEVICE,
                "the NVIDIA driver gives this process no GPU (CUDA error %u, %s): %s, or use "
                "DEVICE=cpu",
                error, cudaGetErrorString((cudaError_t)error), hint_of_driver(error));
}

static enum gpu_failure classify(gpu_error error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return GPU_FAILURE_MEMORY;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorOperatingSystem:
    case cudaErrorStubLibrary:
        return GPU_FAILURE_NO_DRIVER;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
        return GPU_FAILURE_UNUSABLE;
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
        return GPU_FAILURE_DAMAGE;
    case cudaErrorLaunchTimeout:
        return GPU_FAILURE_TIMEOUT;
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
        return GPU_FAILURE_PROGRAM;
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
        return GPU_FAILURE_LOST;
    default:
        return GPU_FAILURE_OTHER;
    }
}

static enum status describe(int device, struct gpu_props *out)
{
    struct cudaDeviceProp prop;
    const gpu_error error = cudaGetDeviceProperties(&prop, device);
    if (error != GPU_SUCCESS)
        return dev_cuda_error_fail(error, "reading the properties of a GPU");
    *out = (struct gpu_props){.major = prop.major,
                              .minor = prop.minor,
                              .sm_count = prop.multiProcessorCount,
                              .memory_bytes = prop.totalGlobalMem,
                              .shared_bytes = prop.sharedMemPerBlockOptin};
    text_copy(out->name, sizeof out->name, prop.name);
    memcpy(out->uuid, prop.uuid.bytes, sizeof out->uuid);
    text_format(out->chip, sizeof out->chip, " sm_%d%d", prop.major, prop.minor);
    if (prop.major < 8)
        return FAIL(ST_NO_DEVICE,
                    "GPU %d (%s) is sm_%d%d; this program needs sm_80 or newer; use another GPU or "
                    "DEVICE=cpu",
                    device, prop.name, prop.major, prop.minor);
    return ST_OK;
}

static void text_version(int driver, char *out, size_t cap)
{
    text_format(out, cap, "%d.%d", driver / 1000, driver % 1000 / 10);
}

#define CALL_ROW(name, hip, parameters) .name = cuda##name,
#define LAUNCH_ROW(name) .launch_##name = name##_cuda,
static const struct gpu_runtime cuda = {.vendor = "CUDA",
                                        .kind = "cuda",
                                        .memory_tool = "nvidia-smi -q -d ECC,ROW_REMAPPER",
                                        .log_word = "an Xid",
                                        .visible = "CUDA_VISIBLE_DEVICES",
                                        .has_cudnn = true,
                                        .built = dev_cuda_built,
                                        .EventRecordWithFlags = cudaEventRecordWithFlags,
                                        .GetErrorString = cudaGetErrorString,
                                        .classify = classify,
                                        .no_driver = no_driver,
                                        .describe = describe,
                                        .version = text_version,
                                        GPU_CALLS(CALL_ROW) GPU_LAUNCHERS(LAUNCH_ROW)};

static const struct gpu_runtime *const of_cuda = &cuda;
const struct gpu_runtime *dev_runtime = &cuda;
#endif

enum dev_gpu dev_cuda_chosen(void) { return dev_runtime == of_cuda ? DEV_GPU_CUDA : DEV_GPU_HIP; }

enum status dev_cuda_check_built(void)
{
    return of_cuda != NULL
               ? ST_OK
               : FAIL(ST_NO_DEVICE, "this program was built without CUDA; build it with "
                                    "CUDA=1 where nvcc is, use the image gpu, or use "
                                    "DEVICE=cpu");
}

enum status dev_cuda_choose(enum dev_gpu vendor)
{
    if (vendor == DEV_GPU_HIP)
        return dev_hip_open(&dev_runtime);
    TRY(dev_cuda_check_built());
    dev_runtime = of_cuda;
    return ST_OK;
}
