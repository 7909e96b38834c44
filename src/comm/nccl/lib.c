/* nccl_lib — loads libnccl.so.2 or librccl.so.1 and keeps it loaded. */
#include "comm/nccl/lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "dev/nvidia/library.h"

#define ROW(name) LIBRARY_SYMBOL(nccl_lib, name)

static const struct library_symbol symbols[] = {
    ROW(ncclGetVersion),
    ROW(ncclGetErrorString),
    ROW(ncclGetLastError),
    ROW(ncclGetUniqueId),
    ROW(ncclCommInitRankConfig),
    ROW(ncclCommAbort),
    ROW(ncclCommFinalize),
    ROW(ncclCommDestroy),
    ROW(ncclCommGetAsyncError),
    ROW(ncclGroupStart),
    ROW(ncclGroupEnd),
    ROW(ncclAllReduce),
    ROW(ncclReduce),
    ROW(ncclReduceScatter),
    ROW(ncclAllGather),
    ROW(ncclBroadcast),
    ROW(ncclSend),
    ROW(ncclRecv),
};
static const struct library_symbol memory_symbols[] = {
    ROW(ncclMemAlloc), ROW(ncclMemFree), ROW(ncclCommRegister), ROW(ncclCommDeregister)};
/* Returns false and the reason if the library is older than NCCL_VERSION_LEAST. */
static bool fits(const void *opened, char *why, size_t cap)
{
    const struct nccl_lib *table = opened;
    char has[24], needs[24];
    int version = 0;
    if (table->ncclGetVersion(&version) == NCCL_SUCCESS && version >= NCCL_VERSION_LEAST)
        return true;
    text_format(why, cap, "%s is too old: this program needs %s or newer",
                nccl_lib_version_text(version, has, sizeof has),
                nccl_lib_version_text(NCCL_VERSION_LEAST, needs, sizeof needs));
    return false;
}

#define SPEC_SYMBOLS .symbols = symbols, .symbols_n = sizeof symbols / sizeof *symbols, .fits = fits
static const char *const nccl_names[] = {"libnccl.so.2", NULL};
static const char *const rccl_names[] = {"librccl.so.1", NULL};
static const struct library_spec nccl_spec = {
    .what = "NCCL",
    .names = nccl_names,
    .packages = "libnccl2 (NVIDIA's repository) or nvidia-nccl-cu13 (PyPI; for drivers before 580 "
                "nvidia-nccl-cu12)",
    SPEC_SYMBOLS};
static const struct library_spec rccl_spec = {
    .what = "RCCL", .names = rccl_names, .packages = "rccl of ROCm 6.0 or newer", SPEC_SYMBOLS};

/* A library of a vendor. If it is loaded it stays loaded, because its threads may outlive every
 * communicator. */
struct vendor {
    const struct library_spec *spec;
    const char *fault; /* for messages: where to look after a failed call of the GPU's runtime */
    const void *runtime;
    struct library library;
    struct nccl_lib table;
    int version; /* 0: not loaded */
    char about[LIBRARY_PATH_MAX + 32];
};
static struct vendor of_nvidia = {.spec = &nccl_spec, .fault = "see dmesg for an Xid"},
                     of_amd = {.spec = &rccl_spec, .fault = "see dmesg for errors of amdgpu"};
static struct vendor *chosen = &of_nvidia;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void nccl_lib_choose(bool is_rccl, const void *runtime)
{
    chosen = is_rccl ? &of_amd : &of_nvidia;
    chosen->runtime = runtime;
}

const char *nccl_lib_name(void) { return chosen->spec->what; }
bool nccl_lib_is_rccl(void) { return chosen == &of_amd; }

const char *nccl_lib_version_text(int version, char *out, size_t cap)
{
    if (version < 10000)
        text_format(out, cap, "%d.%d.%d", version / 1000, version % 1000 / 100, version % 100);
    else
        text_format(out, cap, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    return out;
}

/* Returns the value of a variable of the environment; NULL: it is not set. name: including its
 * "=". */
static const char *get_variable(const char *name)
{
    extern char **environ;
    for (char **at = environ; at != NULL && *at != NULL; at++)
        if (strncmp(*at, name, strlen(name)) == 0)
            return *at + strlen(name);
    return NULL;
}

/* Refuses NCCL_COMM_BLOCKING: a blocking communicator would wait for a missing rank without end,
 * inside the library. NCCL obeys the variable, not the config. */
static enum status check_environment(void)
{
    const char *blocking = get_variable("NCCL_COMM_BLOCKING=");
    if (blocking == NULL || strcmp(blocking, "0") == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "NCCL_COMM_BLOCKING=%.32s (environment) is refused: with it a call would wait "
                "forever for a lost rank; unset it, or set it to 0",
                blocking);
}

bool nccl_lib_shares_gpus(int version)
{
    const char *enabled = get_variable("NCCL_MULTI_RANK_GPU_ENABLE=");
    return chosen == &of_nvidia && version >= 23000 && enabled != NULL && strcmp(enabled, "1") == 0;
}

struct nccl_config nccl_lib_config(int version, int max_ctas)
{
    struct nccl_config config = {.magic = NCCL_CONFIG_MAGIC,
                                 .version = (unsigned)version,
                                 .blocking = 0,
                                 .cga_cluster_size = NCCL_UNDEFINED,
                                 .min_ctas = NCCL_UNDEFINED,
                                 .max_ctas = max_ctas > 0 ? max_ctas : NCCL_UNDEFINED,
                                 .split_share = NCCL_UNDEFINED,
                                 .traffic_class = NCCL_UNDEFINED,
                                 .collnet_enable = NCCL_UNDEFINED,
                                 .cta_policy = NCCL_UNDEFINED,
                                 .shrink_share = NCCL_UNDEFINED,
                                 .nvls_ctas = NCCL_UNDEFINED,
                                 .channels_per_net_peer = NCCL_UNDEFINED,
                                 .nvlink_centric_sched = NCCL_UNDEFINED};
    if (version >= 22800)
        config.size = sizeof config;
    else if (version >= 22700)
        config.size = offsetof(struct nccl_config, channels_per_net_peer);
    else
        config.size = offsetof(struct nccl_config, comm_name);
    return config;
}

/* 2.28.3 and 2.29.3 round to the granularity of shared memory and to nothing else (src/allocator.cc
 * of both). The sources of 2.19 also round to the requirement of a multicast object, if the GPU has
 * multicast; that is 512 MiB at most. It is unknown which version was the last. */
#define ROUNDING_MOST ((int64_t)512 << 20)
int64_t nccl_lib_rounding(int version, int64_t granularity_bytes)
{
    if (version < 21900)
        return 0;
    return version >= 22803 && granularity_bytes > 0 ? granularity_bytes : ROUNDING_MOST;
}

static enum status open_vendor(struct vendor *v)
{
    char has[24];
    struct library library;
    struct nccl_lib table;
    int version = 0;
    TRY(check_environment());
    TRY(library_open(v->spec, &library, &table));
    TRY(library_check_runtime(v->spec, &library, v->runtime));
    (void)table.ncclGetVersion(&version);
    void *handle = library.handle;
    table.has_memory = true;
    for (size_t i = 0; i < sizeof memory_symbols / sizeof *memory_symbols; i++) {
        void *symbol = dlsym(handle, memory_symbols[i].name);
        table.has_memory = table.has_memory && symbol != NULL;
        memcpy((char *)&table + memory_symbols[i].offset, &symbol, sizeof symbol);
    }
    v->library = library;
    v->table = table;
    v->version = version;
    text_format(v->about, sizeof v->about, "%s from %s",
                nccl_lib_version_text(version, has, sizeof has), library.path);
    return ST_OK;
}

enum status nccl_lib_open(const struct nccl_lib **out)
{
    pthread_mutex_lock(&mutex);
    enum status st = chosen->version > 0 ? ST_OK : open_vendor(chosen);
    pthread_mutex_unlock(&mutex);
    if (st == ST_OK)
        *out = &chosen->table;
    return st;
}

int nccl_lib_version(void) { return chosen->version; }
const char *nccl_lib_about(void) { return chosen->about; }

enum status nccl_lib_fail(const struct nccl_lib *nccl, struct nccl_comm *comm, int result,
                          const char *what)
{
    const char *name = nccl->ncclGetErrorString(result), *last = nccl->ncclGetLastError(comm);
    const char *library = nccl_lib_name();
    char more[256] = "";
    if (last && last[0])
        text_format(more, sizeof more, "; its last error: %s", last);
    switch (result) {
    case NCCL_REMOTE_ERROR:
    case NCCL_SYSTEM_ERROR:
        return FAIL(ST_PEER,
                    "%s failed in %s: %s (%d)%s; a rank was lost, or the network between them: "
                    "see the other ranks' logs, and NCCL_DEBUG=INFO",
                    library, what, name, result, more);
    case NCCL_UNHANDLED_CUDA_ERROR:
        return FAIL(ST_FAULT, "%s failed in %s: %s (%d)%s; %s, and NCCL_DEBUG=INFO", library, what,
                    name, result, more, chosen->fault);
    case NCCL_INVALID_USAGE:
        return FAIL(ST_BAD_SETTING,
                    "%s refuses %s: %s (%d)%s; two ranks on one GPU are refused, too: give each "
                    "a GPU of its own, or use BACKEND=ucx",
                    library, what, name, result, more);
    default:
        return FAIL(ST_BUG,
                    "%s failed in %s: %s (%d)%s; NCCL_DEBUG=INFO logs more; BACKEND=ucx does "
                    "not use it",
                    library, what, name, result, more);
    }
}
