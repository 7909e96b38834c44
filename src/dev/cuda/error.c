/* dev_cuda_error — turns failures of the GPU runtime into statuses, each with a message. Must not
 * know which call failed, or why it was made. */
#include "dev/cuda/internal.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

enum status dev_cuda_error_pin(gpu_error error, size_t bytes)
{
    char text[32], free_text[32];
    if (error == GPU_SUCCESS)
        return ST_OK;
    if (dev_runtime->classify(error) != GPU_FAILURE_MEMORY)
        return dev_cuda_error_fail(error, "allocating pinned host memory");
    (void)dev_runtime->GetLastError(); /* this error is not sticky */
    return FAIL(
        memory_status((int64_t)bytes),
        "out of memory: %s refuses %s of pinned host memory; the host has %s free. Give this "
        "process "
        "more host memory (in a container raise the limits: --memory, --ulimit memlock=-1)",
        dev_runtime->vendor, text_format_bytes(text, sizeof text, (double)bytes),
        text_format_bytes(free_text, sizeof free_text,
                          (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)));
}

enum status dev_cuda_error_fail(gpu_error error, const char *what)
{
    char free_text[32], total_text[32];
    char call[128];
    const char *text = dev_runtime->GetErrorString(error);
    size_t free_bytes = 0, total_bytes = 0;
    if (text_starts(what, "dev_runtime->")) { /* CUDA_CHECK */
        text_format(call, sizeof call, "%s%s", dev_runtime->kind,
                    what + sizeof "dev_runtime->" - 1);
        what = call;
    }
    switch (dev_runtime->classify(error)) {
    case GPU_FAILURE_MEMORY:
        (void)dev_runtime->GetLastError(); /* this error is not sticky */
        (void)dev_runtime->MemGetInfo(&free_bytes, &total_bytes);
        return FAIL(ST_RETRY,
                    "out of memory: %s; the GPU has %s free of %s; use a smaller BATCH_SIZE or "
                    "SEQ_LEN, RECOMPUTE=block, or a smaller model",
                    what, text_format_bytes(free_text, sizeof free_text, (double)free_bytes),
                    text_format_bytes(total_text, sizeof total_text, (double)total_bytes));
    case GPU_FAILURE_NO_DRIVER:
        return dev_runtime->no_driver(error);
    case GPU_FAILURE_UNUSABLE:
        return FAIL(ST_NO_DEVICE,
                    "the GPU cannot be used: %s (%s error %u); built in is %s; use another GPU or "
                    "DEVICE=cpu",
                    text, dev_runtime->vendor, error, dev_runtime->built());
    case GPU_FAILURE_DAMAGE:
        return FAIL(ST_FAULT,
                    "the GPU failed: %s (%s error %u) at %s; memory or a link of this GPU is "
                    "damaged: drain the node, see `%s` and dmesg (%s)",
                    text, dev_runtime->vendor, error, what, dev_runtime->memory_tool,
                    dev_runtime->log_word);
    case GPU_FAILURE_TIMEOUT:
        return FAIL(ST_FAULT,
                    "the GPU failed: %s (%s error %u) at %s; a display or a debugger is on this "
                    "GPU: use another one",
                    text, dev_runtime->vendor, error, what);
    case GPU_FAILURE_PROGRAM:
        return FAIL(ST_FAULT,
                    "the GPU failed: %s (%s error %u) at %s; a guess: a bug of this program; if it "
                    "happens on one machine only, drain that node (dmesg has %s)",
                    text, dev_runtime->vendor, error, what, dev_runtime->log_word);
    case GPU_FAILURE_LOST:
        return FAIL(ST_FAULT,
                    "the GPU failed: %s (%s error %u) at %s; see dmesg for %s; if it happens again "
                    "on this machine, drain the node",
                    text, dev_runtime->vendor, error, what, dev_runtime->log_word);
    default:
        return FAIL(ST_BUG, "%s error %u (%s) at %s", dev_runtime->vendor, error, text, what);
    }
}

enum status dev_cuda_error_launched(int rc, const char *op)
{
    if (rc == 0)
        return ST_OK;
    if (rc > 0)
        return dev_cuda_error_fail((gpu_error)rc, op);
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
