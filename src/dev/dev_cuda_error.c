/* dev_cuda_error — failures of the CUDA runtime as statuses, each with a message. Must not know
 * which call failed, or why it was made. */
#include "dev/dev_cuda_internal.h"

#ifdef CONVOY_CUDA
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

/* The message for a driver that is missing or unfit: what it lacks, and which package has it. */
static enum status no_driver(cudaError_t error)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    if (driver == NULL)
        return FAIL(ST_NO_DEVICE,
                    "no NVIDIA driver: libcuda.so.1 is not in the loader's paths%s; in a container "
                    "start it with --gpus all (nvidia-container-toolkit), else install the driver "
                    "(Debian: nvidia-driver, Ubuntu: nvidia-driver-580), or use DEVICE=cpu",
                    access("/dev/nvidiactl", F_OK) == 0 ? ", though /dev/nvidiactl is here" : "");
    dlclose(driver);
    (void)cudaDriverGetVersion(&version);
    if (error == cudaErrorInsufficientDriver && version > 0)
        return FAIL(ST_NO_DEVICE,
                    "the NVIDIA driver is too old: it knows CUDA %d.%d, this program needs %d.%d; "
                    "install a newer driver, or use DEVICE=cpu",
                    version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
                    CUDART_VERSION % 1000 / 10);
    return FAIL(ST_NO_DEVICE,
                "the NVIDIA driver finds no GPU for this process (CUDA error %d, %s)%s; see "
                "`nvidia-smi` and CUDA_VISIBLE_DEVICES, or use DEVICE=cpu",
                error, cudaGetErrorString(error),
                access("/dev/nvidiactl", F_OK) == 0
                    ? ""
                    : ": there is no /dev/nvidiactl, so no GPU was given to this container");
}

static enum status no_memory(const char *what)
{
    char free_text[32], total_text[32];
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError(); /* this one does not stick */
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return FAIL(ST_RETRY,
                "out of memory: %s; the GPU has %s free of %s; use a smaller BATCH_SIZE or "
                "SEQ_LEN, RECOMPUTE=block, or a smaller model",
                what, text_format_bytes(free_text, sizeof free_text, (double)free_bytes),
                text_format_bytes(total_text, sizeof total_text, (double)total_bytes));
}

enum status dev_cuda_error_pin(cudaError_t error, size_t bytes)
{
    char text[32], free_text[32];
    if (error == cudaSuccess)
        return ST_OK;
    if (error != cudaErrorMemoryAllocation)
        return dev_cuda_error_fail(error, "taking pinned host memory");
    (void)cudaGetLastError(); /* this one does not stick */
    return FAIL(
        memory_status((int64_t)bytes),
        "out of memory: %s of pinned host memory were asked for, which CUDA refuses; the "
        "host has %s free. Give this process more host memory (of a container its limit: "
        "--memory, --ulimit memlock=-1)",
        text_format_bytes(text, sizeof text, (double)bytes),
        text_format_bytes(free_text, sizeof free_text,
                          (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)));
}

/* Errors after which every call of this process fails: the context is lost. */
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
        return "a guess: a bug of this program; if it comes on one machine only, drain that node "
               "(dmesg has an Xid)";
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
        return "see dmesg for an Xid; if it comes again on this machine, drain the node";
    default:
        return NULL;
    }
}

static bool is_absence(cudaError_t error)
{
    return error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
           error == cudaErrorInitializationError || error == cudaErrorSystemNotReady ||
           error == cudaErrorSystemDriverMismatch || error == cudaErrorCompatNotSupportedOnDevice ||
           error == cudaErrorOperatingSystem || error == cudaErrorStubLibrary;
}

enum status dev_cuda_error_fail(cudaError_t error, const char *what)
{
    if (error == cudaErrorMemoryAllocation)
        return no_memory(what);
    if (is_absence(error))
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
