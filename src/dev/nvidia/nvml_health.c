/* nvml_health — see nvml_health.h. */
#include "dev/nvidia/nvml_health.h"

#include <ctype.h>
#include <dlfcn.h>
#include <string.h>

#include "base/text.h"
#include "dev/nvidia/nvml.h"

/* The library's types, as its binary interface has them. */
enum { SUCCESS = 0, NO_PERMISSION = 4 };
enum { CORRECTED = 0, UNCORRECTED = 1, VOLATILE = 0, AGGREGATE = 1 };
enum { SENSOR_GPU = 0, NVLINKS_MAX = 18, NVLINK_COUNTERS = 4 };

struct device; /* opaque */
struct pci {
    char bus_legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};

/* The functions, with the names of the library, which are the same in every version that this
 * program can meet. */
struct table {
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    const char *(*nvmlErrorString)(int result);
    int (*nvmlSystemGetDriverVersion)(char *out, unsigned cap);
    int (*nvmlDeviceGetCount_v2)(unsigned *out);
    int (*nvmlDeviceGetHandleByIndex_v2)(unsigned i, struct device **out);
    int (*nvmlDeviceGetPciInfo_v3)(struct device *device, struct pci *out);
    int (*nvmlDeviceGetName)(struct device *device, char *out, unsigned cap);
};
#define ROW(name) LIBRARY_SYMBOL(table, name)
static const struct library_symbol symbols[] = {
    ROW(nvmlInit_v2),
    ROW(nvmlShutdown),
    ROW(nvmlErrorString),
    ROW(nvmlSystemGetDriverVersion),
    ROW(nvmlDeviceGetCount_v2),
    ROW(nvmlDeviceGetHandleByIndex_v2),
    ROW(nvmlDeviceGetPciInfo_v3),
    ROW(nvmlDeviceGetName),
};

struct reader {
    struct library library;
    struct table table;
    struct device *device;
};

/* ---- one number ---- */

/* Returns a function, or NULL if an older library lacks it; its number is -1 then. */
static void *find_symbol(struct reader *r, const char *name)
{
    return dlsym(r->library.handle, name);
}

static int64_t query_number(struct reader *r, const char *name)
{
    unsigned value = 0;
    int (*get)(struct device *, unsigned *) = find_symbol(r, name);
    return get && get(r->device, &value) == SUCCESS ? (int64_t)value : -1;
}

/* Returns a mode as it is now, not as it will be after a reset. */
static int64_t query_mode(struct reader *r, const char *name)
{
    unsigned now = 0, later = 0;
    int (*get)(struct device *, unsigned *, unsigned *) = find_symbol(r, name);
    return get && get(r->device, &now, &later) == SUCCESS ? (int64_t)now : -1;
}

static int64_t query_errors(struct reader *r, int kind, int counter)
{
    unsigned long long n = 0;
    int (*get)(struct device *, int, int, unsigned long long *) =
        find_symbol(r, "nvmlDeviceGetTotalEccErrors");
    return get && get(r->device, kind, counter, &n) == SUCCESS && n <= INT64_MAX ? (int64_t)n : -1;
}

static void read_rows(struct reader *r, struct nvml_health_gpu *out)
{
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    int (*get)(struct device *, unsigned *, unsigned *, unsigned *, unsigned *) =
        find_symbol(r, "nvmlDeviceGetRemappedRows");
    if (!get || get(r->device, &corrected, &uncorrected, &pending, &failed) != SUCCESS)
        return;
    out->remapped_corrected = corrected;
    out->remapped_uncorrected = uncorrected;
    out->remap_pending = pending;
    out->remap_failed = failed;
}

static int64_t link_errors(struct reader *r, unsigned link)
{
    int64_t sum = 0;
    int (*get)(struct device *, unsigned, int, unsigned long long *) =
        find_symbol(r, "nvmlDeviceGetNvLinkErrorCounter");
    for (int counter = 0; get && counter < NVLINK_COUNTERS; counter++) {
        unsigned long long n = 0;
        if (get(r->device, link, counter, &n) == SUCCESS && n < INT32_MAX)
            sum += (int64_t)n;
    }
    return sum;
}

static void read_nvlinks(struct reader *r, struct nvml_health_gpu *out)
{
    unsigned is_active;
    int (*get)(struct device *, unsigned, unsigned *) = find_symbol(r, "nvmlDeviceGetNvLinkState");
    out->nvlinks = get ? 0 : -1;
    out->nvlinks_active = out->nvlink_errors = get ? 0 : -1;
    for (unsigned i = 0; get && i < NVLINKS_MAX; i++) {
        if (get(r->device, i, &is_active) != SUCCESS)
            continue;
        out->nvlinks++;
        out->nvlinks_active += is_active != 0;
        if (is_active)
            out->nvlink_errors += link_errors(r, i);
    }
}

static void read_rest(struct reader *r, struct nvml_health_gpu *out)
{
    unsigned long long reasons = 0;
    struct fabric fabric = {0};
    unsigned degrees = 0;
    int (*throttle)(struct device *, unsigned long long *) =
        find_symbol(r, "nvmlDeviceGetCurrentClocksThrottleReasons");
    int (*heat)(struct device *, int, unsigned *) = find_symbol(r, "nvmlDeviceGetTemperature");
    int (*join)(struct device *, struct fabric *) = find_symbol(r, "nvmlDeviceGetGpuFabricInfo");
    if (throttle && throttle(r->device, &reasons) == SUCCESS)
        out->throttle = (int64_t)(reasons & INT32_MAX);
    if (heat && heat(r->device, SENSOR_GPU, &degrees) == SUCCESS)
        out->temperature = degrees;
    if (join && join(r->device, &fabric) == SUCCESS) {
        out->fabric_state = fabric.state;
        out->fabric_error = fabric.status;
    }
    out->power_limit_mw = query_number(r, "nvmlDeviceGetEnforcedPowerLimit");
    out->power_default_mw = query_number(r, "nvmlDeviceGetPowerManagementDefaultLimit");
    out->persistence = query_number(r, "nvmlDeviceGetPersistenceMode");
    out->display = query_number(r, "nvmlDeviceGetDisplayActive");
}

/* ---- all GPUs ---- */

struct nvml_health_gpu nvml_health_unknown(void)
{
    return (struct nvml_health_gpu){
#define NVML_HEALTH_UNKNOWN(field) .field = -1,
        NVML_HEALTH_LIST(NVML_HEALTH_UNKNOWN)
#undef NVML_HEALTH_UNKNOWN
    };
}

void nvml_health_bus(char *out, const char *bus)
{
    const char *colon = strchr(bus, ':');
    while (colon && colon - bus > 4 && bus[0] == '0')
        bus++;
    bool has_function = colon && strchr(colon, '.') != NULL;
    text_format(out, 24, "%.20s%s", bus, colon && !has_function ? ".0" : "");
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
}

static void read_gpu(struct reader *r, unsigned i, struct nvml_health_gpu *out)
{
    struct pci pci = {0};
    *out = nvml_health_unknown();
    int result = r->table.nvmlDeviceGetHandleByIndex_v2(i, &r->device);
    if (result != SUCCESS) {
        text_copy(out->error, sizeof out->error, r->table.nvmlErrorString(result));
        out->withheld = result == NO_PERMISSION;
        return;
    }
    if (r->table.nvmlDeviceGetPciInfo_v3(r->device, &pci) == SUCCESS) {
        pci.bus_id[sizeof pci.bus_id - 1] = 0;
        nvml_health_bus(out->bus, pci.bus_id);
    }
    if (r->table.nvmlDeviceGetName(r->device, out->name, sizeof out->name) != SUCCESS)
        out->name[0] = 0;
    out->mig = query_mode(r, "nvmlDeviceGetMigMode");
    out->ecc_enabled = query_mode(r, "nvmlDeviceGetEccMode");
    out->ecc_default = query_number(r, "nvmlDeviceGetDefaultEccMode");
    out->ecc_corrected = query_errors(r, CORRECTED, VOLATILE);
    out->ecc_uncorrected = query_errors(r, UNCORRECTED, VOLATILE);
    out->ecc_uncorrected_ever = query_errors(r, UNCORRECTED, AGGREGATE);
    read_rows(r, out);
    out->pcie_gen = query_number(r, "nvmlDeviceGetCurrPcieLinkGeneration");
    out->pcie_gen_max = query_number(r, "nvmlDeviceGetMaxPcieLinkGeneration");
    out->pcie_width = query_number(r, "nvmlDeviceGetCurrPcieLinkWidth");
    out->pcie_width_max = query_number(r, "nvmlDeviceGetMaxPcieLinkWidth");
    out->perf_state = query_number(r, "nvmlDeviceGetPerformanceState");
    read_nvlinks(r, out);
    read_rest(r, out);
}

static enum status read_all(struct reader *r, struct nvml_health *out)
{
    unsigned n = 0;
    int result = r->table.nvmlInit_v2();
    if (result != SUCCESS)
        return FAIL(ST_NO_DEVICE, "NVML from %s does not start: %s", r->library.path,
                    r->table.nvmlErrorString(result));
    if (r->table.nvmlSystemGetDriverVersion(out->driver, sizeof out->driver) != SUCCESS)
        out->driver[0] = 0;
    if (r->table.nvmlDeviceGetCount_v2(&n) != SUCCESS)
        n = 0;
    out->gpus_n = n < NVML_HEALTH_GPUS_MAX ? (int)n : NVML_HEALTH_GPUS_MAX;
    for (unsigned i = 0; i < (unsigned)out->gpus_n; i++)
        read_gpu(r, i, &out->gpu[i]);
    (void)r->table.nvmlShutdown();
    return ST_OK;
}

enum status nvml_health_read(struct nvml_health *out)
{
    struct reader r = {0};
    *out = (struct nvml_health){0};
    TRY(nvml_library_open(symbols, sizeof symbols / sizeof *symbols, &r.library, &r.table));
    enum status st = read_all(&r, out);
    library_close(&r.library);
    return st;
}
