/* runtime_hip — AMD's runtime, libamdhip64, as a table, and the functions by which objects of
 * clang (kernels/hip.mk) launch kernels.
 *
 * Such an object holds a bundle with the code of each chip, and registers it and its kernels before
 * main, here instead of in libamdhip64. So the program needs no ROCm to start. A bundle is loaded
 * for a device at its first launch there, by hipModuleLoadData, which picks the code for the chip.
 * The library's header of version 5.2.3 was compared (tests/hip/headers.c); later versions are
 * expected to keep these functions and numbers. Must not know the purpose of a call. */
#include "dev/cuda/internal.h"

#ifndef CONVOY_HIP
const char *dev_hip_built(void) { return NULL; }
const void *dev_hip_function(void) { return NULL; }

enum status dev_hip_find(char *about, size_t cap)
{
    const struct gpu_runtime *runtime;
    (void)about, (void)cap;
    return dev_hip_open(&runtime);
}

enum status dev_hip_open(const struct gpu_runtime **out)
{
    (void)out;
    return FAIL(ST_NO_DEVICE,
                "this program was built without HIP, so it has no code for AMD GPUs; build it with "
                "HIP=1 where clang-19 and HIP's headers are, or use DEVICE=cpu");
}
#else
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "dev/nvidia/library.h"

#define DEVICES_MAX 64
#define DEVICE_FILE "/dev/kfd"
#define NO_FUNCTION 10000 /* an error of no_flags; HIP has none with this number */

const char *dev_hip_built(void) { return CONVOY_HIP; }

/* ---- the library ---- */

/* Calls of HIP only: X(name, parameters). */
#define HIP_CALLS(X)                                                                              \
    X(hipGetDevice, (int *device))                                                                \
    X(hipDeviceGetName, (char *out, int cap, int device))                                         \
    X(hipDeviceGetUuid, (char *out, int device))                                                  \
    X(hipDeviceTotalMem, (size_t * bytes, int device))                                            \
    X(hipDeviceGetAttribute, (int *out, int attribute, int device))                               \
    X(hipModuleLoadData, (void **module, const void *image))                                      \
    X(hipModuleGetFunction, (void **function, void *module, const char *name))                    \
    X(hipModuleLaunchKernel,                                                                      \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, \
       unsigned z, unsigned shared_bytes, gpu_stream s, void **args, void **extra))

struct hip_calls {
#define MEMBER(name, theirs, parameters) gpu_error(*hip##theirs) parameters;
#define MEMBER_OWN(name, parameters) gpu_error(*name) parameters;
    GPU_CALLS(MEMBER) HIP_CALLS(MEMBER_OWN) const char *(*hipGetErrorString)(gpu_error error);
};
static struct hip_calls hip;
static struct library library; /* handle NULL: not loaded yet */

#define SYMBOL(name, theirs, parameters) LIBRARY_SYMBOL(hip_calls, hip##theirs),
#define SYMBOL_OWN(name, parameters) LIBRARY_SYMBOL(hip_calls, name),
static const struct library_symbol symbols[] = {GPU_CALLS(SYMBOL) HIP_CALLS(SYMBOL_OWN)
                                                    LIBRARY_SYMBOL(hip_calls, hipGetErrorString)};
static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                    NULL};
static const struct library_spec spec = {.what = "AMD's runtime (libamdhip64)",
                                         .names = names,
                                         .packages = "hip-runtime-amd of ROCm 5.2 or newer, or "
                                                     "libamdhip64-5 of Debian",
                                         .symbols = symbols,
                                         .symbols_n = sizeof symbols / sizeof *symbols};

/* ---- objects of clang ---- */

struct bundle {
    const void *image;
    void *module[DEVICES_MAX]; /* NULL: not loaded on this device */
};
struct kernel {
    const void *stub; /* the address by which the object launches it */
    const char *name; /* in the bundle */
    int bundle_i;
    void *function[DEVICES_MAX];
};
static struct bundle *bundles;
static struct kernel *kernels;
static size_t bundles_n, kernels_n;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for these tables, from main on */

/* A launch between <<< >>> and the call of its stub. */
struct extent {
    unsigned x, y, z;
};
static _Thread_local struct {
    struct extent grid, block;
    size_t shared_bytes;
    gpu_stream stream;
    gpu_error error; /* until hipGetLastError */
} launch;

static int compare_stubs(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct kernel *)a)->stub,
                    y = (uintptr_t)((const struct kernel *)b)->stub;
    return (x > y) - (x < y);
}

/* Loads a bundle for the current device, once. */
static gpu_error load_bundle(struct bundle *b, int device)
{
    return b->module[device] ? GPU_SUCCESS : hip.hipModuleLoadData(&b->module[device], b->image);
}

static gpu_error find_function(const void *stub, int device, void **out)
{
    gpu_error error = GPU_HIP_INVALID_FUNCTION;
    pthread_mutex_lock(&mutex);
    struct kernel *k =
        bsearch(&(struct kernel){.stub = stub}, kernels, kernels_n, sizeof *kernels, compare_stubs);
    if (k && device < DEVICES_MAX) {
        struct bundle *b = &bundles[k->bundle_i];
        error = load_bundle(b, device);
        if (error == GPU_SUCCESS && !k->function[device])
            error = hip.hipModuleGetFunction(&k->function[device], b->module[device], k->name);
        *out = k->function[device];
    }
    pthread_mutex_unlock(&mutex);
    return error;
}

/* The functions that these objects call; names and arguments are HIP's ABI. */
struct hip_fat_binary {
    uint32_t magic, version;
    const void *image, *unused;
};
void **__hipRegisterFatBinary(const struct hip_fat_binary *binary);
void __hipUnregisterFatBinary(void **bundle);
void __hipRegisterFunction(void **bundle, const void *stub, char *kernel, const char *name,
                           unsigned threads, void *tid, void *bid, void *block, void *grid,
                           int *wave);
gpu_error __hipPushCallConfiguration(struct extent grid, struct extent block, size_t shared_bytes,
                                     gpu_stream stream);
gpu_error __hipPopCallConfiguration(struct extent *grid, struct extent *block, size_t *shared_bytes,
                                    gpu_stream *stream);
gpu_error hipLaunchKernel(const void *stub, struct extent grid, struct extent block, void **args,
                          size_t shared_bytes, gpu_stream stream);
gpu_error hipGetLastError(void);

/* Before main. The handle that is returned is the bundle's number, from 1. */
void **__hipRegisterFatBinary(const struct hip_fat_binary *binary)
{
    bundles = memory_resize(bundles, bundles_n + 1, sizeof *bundles);
    bundles[bundles_n++] = (struct bundle){.image = binary->image};
    return (void **)bundles_n;
}

void __hipUnregisterFatBinary(void **bundle) { (void)bundle; }

void __hipRegisterFunction(void **bundle, const void *stub, char *kernel, const char *name,
                           unsigned threads, void *tid, void *bid, void *block, void *grid,
                           int *wave)
{
    (void)kernel, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)wave;
    kernels = memory_resize(kernels, kernels_n + 1, sizeof *kernels);
    kernels[kernels_n++] =
        (struct kernel){.stub = stub, .name = name, .bundle_i = (int)((uintptr_t)bundle - 1)};
}

gpu_error __hipPushCallConfiguration(struct extent grid, struct extent block, size_t shared_bytes,
                                     gpu_stream stream)
{
    launch.grid = grid, launch.block = block;
    launch.shared_bytes = shared_bytes, launch.stream = stream;
    return GPU_SUCCESS;
}

gpu_error __hipPopCallConfiguration(struct extent *grid, struct extent *block, size_t *shared_bytes,
                                    gpu_stream *stream)
{
    *grid = launch.grid, *block = launch.block;
    *shared_bytes = launch.shared_bytes, *stream = launch.stream;
    return GPU_SUCCESS;
}

gpu_error hipLaunchKernel(const void *stub, struct extent grid, struct extent block, void **args,
                          size_t shared_bytes, gpu_stream stream)
{
    int device = 0;
    void *function = NULL;
    gpu_error error = hip.hipGetDevice(&device);
    if (error == GPU_SUCCESS)
        error = find_function(stub, device, &function);
    if (error == GPU_SUCCESS)
        error = hip.hipModuleLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                          block.z, (unsigned)shared_bytes, stream, args, NULL);
    if (error != GPU_SUCCESS)
        launch.error = error;
    return error;
}

gpu_error hipGetLastError(void)
{
    const gpu_error own = launch.error, error = hip.hipGetLastError();
    launch.error = GPU_SUCCESS;
    return own != GPU_SUCCESS ? own : error;
}

/* ---- the table ---- */

static enum gpu_failure classify(gpu_error error)
{
    switch (error) {
    case GPU_HIP_MEMORY:
        return GPU_FAILURE_MEMORY;
    case GPU_HIP_NOT_INITIALIZED:
    case GPU_HIP_OLD_DRIVER:
    case GPU_ERROR_NO_DEVICE:
        return GPU_FAILURE_NO_DRIVER;
    case GPU_HIP_INVALID_FUNCTION:
    case GPU_HIP_INVALID_DEVICE:
    case GPU_HIP_NO_CODE:
        return GPU_FAILURE_UNUSABLE;
    case GPU_HIP_ECC:
        return GPU_FAILURE_DAMAGE;
    case GPU_HIP_TIMEOUT:
        return GPU_FAILURE_TIMEOUT;
    case GPU_HIP_ADDRESS:
    case GPU_HIP_ASSERT:
        return GPU_FAILURE_PROGRAM;
    case GPU_HIP_LAUNCH:
    case GPU_HIP_UNKNOWN:
        return GPU_FAILURE_LOST;
    default:
        return GPU_FAILURE_OTHER;
    }
}

static enum status no_driver(gpu_error error)
{
    if (access(DEVICE_FILE, F_OK) != 0)
        return FAIL(ST_NO_DEVICE,
                    "there is no " DEVICE_FILE
                    " (HIP error %u, %s): the machine has no AMD GPU, its "
                    "driver amdgpu is not loaded, or its container was given none; start a "
                    "container with --device /dev/kfd --device /dev/dri --group-add video, or use "
                    "DEVICE=cpu",
                    error, hip.hipGetErrorString(error));
    if (access(DEVICE_FILE, R_OK | W_OK) != 0) {
        const char *reason = strerror(errno);
        struct stat about = {0};
        (void)stat(DEVICE_FILE, &about);
        return FAIL(ST_NO_DEVICE,
                    "this user may not open " DEVICE_FILE
                    " (%s): add the user to the groups render "
                    "and video, start a container with --group-add video --group-add %u (group of "
                    "the file, mostly render), or use DEVICE=cpu",
                    reason, (unsigned)about.st_gid);
    }
    return FAIL(ST_NO_DEVICE,
                "AMD's driver gives this process no GPU (HIP error %u, %s): see `rocminfo`, "
                "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, or use DEVICE=cpu",
                error, hip.hipGetErrorString(error));
}

/* Describes a GPU and loads the first bundle, to find out if this build has code for the GPU. */
static enum status describe(int device, struct gpu_props *out)
{
    int shared_bytes = 0;
    *out = (struct gpu_props){0};
    CUDA_CHECK(hip.hipSetDevice(device));
    CUDA_CHECK(hip.hipDeviceGetName(out->name, sizeof out->name, device));
    CUDA_CHECK(hip.hipDeviceGetUuid(out->uuid, device));
    CUDA_CHECK(hip.hipDeviceTotalMem(&out->memory_bytes, device));
    CUDA_CHECK(hip.hipDeviceGetAttribute(&out->sm_count, GPU_HIP_COMPUTE_UNITS, device));
    CUDA_CHECK(hip.hipDeviceGetAttribute(&shared_bytes, GPU_HIP_BLOCK_SHARED, device));
    out->shared_bytes = (size_t)shared_bytes;
    pthread_mutex_lock(&mutex);
    gpu_error error =
        device < DEVICES_MAX ? load_bundle(&bundles[0], device) : GPU_HIP_INVALID_DEVICE;
    pthread_mutex_unlock(&mutex);
    if (error == GPU_HIP_NO_CODE)
        return FAIL(ST_NO_DEVICE,
                    "GPU %d (%s) is none of %s, for which this program has code (`rocminfo` prints "
                    "its architecture); use another GPU, DEVICE=cpu, or a build with HIP_ARCHS=…",
                    device, out->name, dev_hip_built());
    return error == GPU_SUCCESS ? ST_OK : dev_cuda_error_fail(error, "loading the kernels");
}

static void text_version(int driver, char *out, size_t cap)
{
    text_format(out, cap, "%d.%d", driver / 10000000, driver / 100000 % 100);
}

/* Stands for hipEventRecordWithFlags if the library lacks it. */
static gpu_error no_flags(gpu_event event, gpu_stream s, unsigned flags)
{
    (void)event, (void)s, (void)flags;
    return NO_FUNCTION;
}

static const char *text_error(gpu_error error)
{
    static char lacks[LIBRARY_PATH_MAX + 64];
    if (error != NO_FUNCTION)
        return hip.hipGetErrorString(error);
    text_format(lacks, sizeof lacks, "%s has no hipEventRecordWithFlags; ROCm 7.0 has it",
                library.path);
    return lacks;
}

#define DECLARE(name) int name##_hip(const struct cuda *cuda, const struct name *a);
GPU_LAUNCHERS(DECLARE)
#define LAUNCH_ROW(name) .launch_##name = name##_hip,
static struct gpu_runtime table = {.vendor = "HIP",
                                   .kind = "hip",
                                   .memory_tool = "amd-smi metric --ecc",
                                   .log_word = "amdgpu",
                                   .visible = "HIP_VISIBLE_DEVICES",
                                   .built = dev_hip_built,
                                   .EventRecordWithFlags = no_flags,
                                   .GetErrorString = text_error,
                                   .classify = classify,
                                   .no_driver = no_driver,
                                   .describe = describe,
                                   .version = text_version,
                                   GPU_LAUNCHERS(LAUNCH_ROW)};

enum status dev_hip_find(char *about, size_t cap)
{
    const struct gpu_runtime *runtime;
    char version[32];
    int driver = 0;
    TRY(dev_hip_open(&runtime));
    (void)hip.hipDriverGetVersion(&driver);
    text_version(driver, version, sizeof version);
    text_format(about, cap, "%s from %s", version, library.path);
    return ST_OK;
}

const void *dev_hip_function(void)
{
    const void *function;
    memcpy(&function, &hip.hipGetDevice, sizeof function);
    return function;
}

enum status dev_hip_open(const struct gpu_runtime **out)
{
    enum status st = ST_OK;
    pthread_mutex_lock(&mutex);
    if (!library.handle) {
        st = library_open(&spec, &library, &hip);
        void *with_flags = st == ST_OK ? dlsym(library.handle, "hipEventRecordWithFlags") : NULL;
        if (with_flags)
            memcpy(&table.EventRecordWithFlags, &with_flags, sizeof with_flags);
#define FILL(name, theirs, parameters) table.name = hip.hip##theirs;
        GPU_CALLS(FILL)
        qsort(kernels, kernels_n, sizeof *kernels, compare_stubs);
    }
    pthread_mutex_unlock(&mutex);
    if (st == ST_OK)
        *out = &table;
    return st;
}
#endif
