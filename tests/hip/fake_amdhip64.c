/* fake_amdhip64 — AMD's runtime for tests without a GPU: the streams of tests/cuda/streams.h, whose
 * functions get HIP's names when this is built (tests/hip/hip.mk), and kernels in the form for AMD
 * GPUs on the emulation. A module is a bundle of clang; its code is not read, only its list of
 * chips, and kernels are found by their names.
 *
 *   EMULATED_GPUS   number of GPUs; not set: 1. 0: calls fail as without a GPU
 *   EMULATED_CHIP   architecture of the GPUs; not set: gfx90a */
#include <dlfcn.h>
#include <stdint.h>

#define STREAMS_OWN_SET_DEVICE
#include "tests/cuda/streams.h"

#define KERNELS_MAX 1024
#define NO_CODE 209 /* hipErrorNoBinaryForGpu */

static pthread_once_t begun = PTHREAD_ONCE_INIT;
static _Thread_local int current;

/* The table of registers lies beside this library. */
static void begin_runtime(void)
{
    Dl_info here;
    char path[4200];
    streams_begin();
    if (dladdr(&begun, &here) == 0)
        abort();
    snprintf(path, sizeof path, "%.*s/isa.tsv",
             (int)(strrchr(here.dli_fname, '/') - here.dli_fname), here.dli_fname);
    if (emu_limits_table(path) == 0)
        abort();
    emu_device = runtime_device;
}

/* For the tests' hipBLASLt (tests/cuda/fake_blas.c): runs a product on a stream. */
int fake_hip_device(void *stream, int (*run)(void *arg), const void *arg, size_t bytes)
{
    return runtime_device(stream, run, arg, bytes);
}

/* Runs when the library is opened. */
__attribute__((constructor)) static void begin(void)
{
    const char *count = getenv("EMULATED_GPUS");
    streams.devices_n = count != NULL ? atoi(count) : 1;
    for (int i = 0; i < streams.devices_n; i++)
        streams.device[i] = i;
}

cudaError_t cudaSetDevice(int device)
{
    if (device >= streams.devices_n)
        return streams_error(cudaErrorInvalidDevice);
    pthread_once(&begun, begin_runtime);
    current = device;
    return cudaSuccess;
}

/* ---- calls of HIP only ---- */

cudaError_t hipGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t hipDeviceGetName(char *out, int cap, int device)
{
    snprintf(out, (size_t)cap, "Emulated %d", device);
    return cudaSuccess;
}

cudaError_t hipDeviceGetUuid(char *out, int device)
{
    memset(out, 0, 16);
    out[0] = (char)(1 + device);
    return cudaSuccess;
}

cudaError_t hipDeviceTotalMem(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)8 << 30;
    return cudaSuccess;
}

/* 63: compute units. 74: shared memory of a block. */
cudaError_t hipDeviceGetAttribute(int *out, int attribute, int device)
{
    (void)device;
    if (attribute != 63 && attribute != 74)
        return streams_error(cudaErrorInvalidValue);
    *out = attribute == 63 ? 4 : 64 << 10;
    return cudaSuccess;
}

/* A bundle has its magic word, the number of its entries, and for each: offset, size, and length of
 * its name, which ends with the chip. */
cudaError_t hipModuleLoadData(void **module, const void *image)
{
    const char *at = image, *chip = getenv("EMULATED_CHIP");
    uint64_t n, entry[3];
    if (memcmp(at, "__CLANG_OFFLOAD_BUNDLE__", 24) != 0)
        return streams_error(cudaErrorInvalidKernelImage);
    memcpy(&n, at + 24, sizeof n);
    at += 24 + sizeof n;
    for (uint64_t i = 0; i < n; i++) {
        char name[128];
        memcpy(entry, at, sizeof entry);
        at += sizeof entry;
        snprintf(name, sizeof name, "%.*s", (int)entry[2], at);
        at += entry[2];
        if (entry[1] > 0 && strstr(name, chip != NULL ? chip : "gfx90a") != NULL) {
            *module = (void *)(uintptr_t)image;
            return cudaSuccess;
        }
    }
    return streams_error((cudaError_t)NO_CODE);
}

cudaError_t hipModuleGetFunction(void **function, void *module, const char *name)
{
    struct emu_kernel *k = malloc(sizeof *k);
    if (module == NULL || !emu_find_kernel(name, k)) {
        fprintf(stderr, "fake_amdhip64: no kernel %s\n", name);
        return streams_error(cudaErrorSymbolNotFound);
    }
    *function = k;
    return cudaSuccess;
}

cudaError_t hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned x, unsigned y, unsigned z, unsigned shared_bytes,
                                  cudaStream_t s, void **args, void **extra)
{
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {x, y, z};
    if (extra != NULL || args == NULL)
        return streams_error(cudaErrorInvalidValue);
    return streams_error((cudaError_t)emu_run_kernel(function, grid, block, shared_bytes, s, args));
}
