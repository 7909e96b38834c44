/* emulated — makes build/gpu/convoy_emulated of the program: Convoy as it is built with CUDA, on
 * GPUs that do not exist. Kernels run on the emulation (tests/emu), the runtime is streams.h, and
 * cuBLASLt is the tests' own (fake_blas.c). So scripts can run whole jobs of several processes on
 * GPUs, with kills and restarts. There is no NCCL between processes: ranks exchange through host
 * memory.
 *
 *   EMULATED_GPUS         number of GPUs of the machine; not set: 1
 *   EMULATED_NAMES        their names, with commas between them, as CUDA reports them; a GPU after
 *                         the last name has the last one; not set: all are "Emulated GPU"
 *   EMULATED_PACES        milliseconds of a kernel on each of them, by the clock of events, with
 *                         commas between them; not set, and after the last number: 1
 *   CUDA_VISIBLE_DEVICES  numbers of the GPUs that this process sees, as in CUDA
 *
 * The runtime starts at the first call that needs it: a process that only counts GPUs has no
 * thread. */
#include <stdint.h>

#define STREAMS_OWN_SET_DEVICE
#include "tests/cuda/streams.h"

#define LIBRARY "libcublasLt.so.13"

static pthread_once_t begun = PTHREAD_ONCE_INIT;
static char folder[4096]; /* of this executable; holds the library and the table of registers */

/* open_products — lets the tests' cuBLASLt run its work on the streams. */
static void open_products(void)
{
    char path[4200];
    void (*through)(int (*)(void *, int (*)(void *), const void *, size_t),
                    void (*)(const char *, const void *, size_t, int)) = NULL;
    snprintf(path, sizeof path, "%s/" LIBRARY, folder);
    void *library = dlopen(path, RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_blas_device") : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "convoy_emulated: no %s of the tests: %s\n", path, dlerror());
        abort();
    }
    memcpy(&through, &symbol, sizeof through);
    through(runtime_device, runtime_touch);
}

static void begin_runtime(void)
{
    char path[4200];
    streams_begin();
    open_products();
    snprintf(path, sizeof path, "%s/sass.tsv", folder);
    if (emu_limits_table(path) == 0)
        abort();
    emu_device = runtime_device;
}

/* read_devices — reads the GPUs that this process sees. */
static void read_devices(void)
{
    const char *count = getenv("EMULATED_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES"),
               *names = getenv("EMULATED_NAMES");
    const int all = count != NULL ? atoi(count) : 1;
    streams.names = names != NULL ? names : streams.names;
    streams.devices_n = 0;
    for (int i = 0; visible == NULL && i < all && i < STREAMS_DEVICES; i++)
        streams.device[streams.devices_n++] = i;
    for (const char *at = visible; at != NULL && *at != 0 && streams.devices_n < STREAMS_DEVICES;) {
        char *end;
        const long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number >= all)
            return; /* CUDA also ignores the rest of such a list */
        streams.device[streams.devices_n++] = (int)number;
        at = *end == ',' ? end + 1 : end;
    }
}

/* begin — runs before main. */
__attribute__((constructor)) static void begin(void)
{
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = 0;
    char *end = strrchr(folder, '/');
    if (end != NULL)
        *end = 0;
    setenv("CONVOY_LIB_DIR", folder, 0);
    read_devices();
}

/* pace_of — returns the milliseconds of a kernel on a GPU of the machine. */
static double pace_of(int device)
{
    const char *at = getenv("EMULATED_PACES");
    for (; at != NULL && device > 0; device--)
        at = (at = strchr(at, ',')) != NULL ? at + 1 : NULL;
    const double pace = at != NULL ? strtod(at, NULL) : 0;
    return pace > 0 ? pace : 1;
}

cudaError_t cudaSetDevice(int device)
{
    if (device >= streams.devices_n)
        return streams_error(cudaErrorInvalidDevice);
    pthread_once(&begun, begin_runtime);
    streams_pace = pace_of(streams.device[device]); /* of streams that this thread opens */
    return cudaSuccess;
}
