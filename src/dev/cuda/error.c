/* dev_cuda_error — turns failures of the CUDA runtime into statuses, each with a message. Must not
 * know which call failed, or why it was made. */
#include "dev/cuda/internal.h"

#ifdef CONVOY_CUDA
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "dev/nvidia/driver.h"

/* Returns cause and remedy of a driver's error that does not depend on the program. */
static const char *hint_of_driver(cudaError_t error)
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
static enum status no_driver(cudaError_t error)
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
                "the NVIDIA driver gives this process no GPU (CUDA error %d, %s): %s, or use "
                "DEVICE=cpu",
                error, cudaGetErrorString(error), hint_of_driver(error));
}

enum status dev_cuda_error_pin(cudaError_t error, size_t bytes)
{
    char text[32], free_text[32];
    if (error == cudaSuccess)
        return ST_OK;
    if (error != cudaErrorMemoryAllocation)
        return dev_cuda_error_fail(error, "allocating pinned host memory");
    (void)cudaGetLastError(); /* this error is not sticky */
    return FAIL(
        memory_status((int64_t)bytes),
        "out of memory: CUDA refuses %s of pinned host memory; the host has %s free. Give this "
        "process more host memory (in a container raise the limits: --memory, --ulimit memlock=-1)",
        text_format_bytes(text, sizeof text, (double)bytes),
        text_format_bytes(free_text, sizeof free_text,
                          (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)));
}

/* Returns cause and remedy of errors after which every call of this process fails: the context is
 * lost. */
static const char *hint_of_fault(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
        return "memory or a link of this GPU is damaged: drain the node, see `nvidia-smi -q -d "
               "ECC,ROW_REMAPPER` and dmesg (Xid)";
    case cudaErrorLaunchTimeout:
        return "a display or a debugger is on this GPU: use another one";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
        return "a guess: a bug of this program; if it happens on one machine only, drain that node "
               "(dmesg has an Xid)";
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
        return "see dmesg for an Xid; if it happens again on this machine, drain the node";
    default:
        return NULL;
    }
}

enum status dev_cuda_error_fail(cudaError_t error, const char *what)
{
    if (error == cudaErrorMemoryAllocation) {
        char free_text[32], total_text[32];
        size_t free_bytes = 0, total_bytes = 0;
        (void)cudaGetLastError(); /* this error is not sticky */
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return FAIL(ST_RETRY,
                    "out of memory: %s; the GPU has %s free of %s; use a smaller BATCH_SIZE or "
                    "SEQ_LEN, RECOMPUTE=block, or a smaller model",
                    what, text_format_bytes(free_text, sizeof free_text, (double)free_bytes),
                    text_format_bytes(total_text, sizeof total_text, (double)total_bytes));
    }
    if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
        error == cudaErrorInitializationError || error == cudaErrorSystemNotReady ||
        error == cudaErrorSystemDriverMismatch || error == cudaErrorCompatNotSupportedOnDevice ||
        error == cudaErrorOperatingSystem || error == cudaErrorStubLibrary)
        return no_driver(error);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion ||
        error == cudaErrorInvalidDevice || error == cudaErrorDevicesUnavailable)
        return FAIL(ST_NO_DEVICE,
                    "the GPU cannot be used: %s (CUDA error %d); built in is %s; use another GPU "
                    "or DEVICE=cpu",
                    cudaGetErrorString(error), error, dev_cuda_built());
    const char *hint = hint_of_fault(error);
    if (hint)
        return FAIL(ST_FAULT, "the GPU failed: %s (CUDA error %d) at %s; %s",
                    cudaGetErrorString(error), error, what, hint);
    return FAIL(ST_BUG, "CUDA error %d (%s) at %s", error, cudaGetErrorString(error), what);
}

enum status dev_cuda_error_launched(int rc, const char *op)
{
    if (rc == 0)
        return ST_OK;
    if (rc > 0)
        return dev_cuda_error_fail((cudaError_t)rc, op);
    if (rc == CUDA_REFUSAL_SHARED)
        return FAIL(
            ST_NO_DEVICE,
            "operation %s needs more shared memory than this GPU has for a block; train such a "
            "model (heads wider than 128) with PRECISION=bf16, or on an A100, H100 or newer",
            op);
    return FAIL(ST_BUG, "operation %s: the kernel refuses %s", op,
                rc == CUDA_REFUSAL_DTYPE   ? "these element types"
                : rc == CUDA_REFUSAL_SHAPE ? "this shape"
                                           : "work that does not fit into its scratch");
}
#endif
