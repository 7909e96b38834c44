/* nvml — see nvml.h. */
#include "dev/nvidia/nvml.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"

enum status nvml_library_open(const struct library_symbol *symbols, size_t symbols_n,
                              struct library *out, void *table)
{
    static const char *const names[] = {"libnvidia-ml.so.1", NULL};
    const struct library_spec spec = {
        .what = "NVML",
        .names = names,
        .packages = "the driver's package (Debian: libnvidia-ml1; in containers "
                    "NVIDIA_DRIVER_CAPABILITIES with utility)",
        .symbols = symbols,
        .symbols_n = symbols_n,
    };
    return library_open(&spec, out, table);
}

/* The library's types, as its binary interface has them. */
enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_SENSOR_GPU = 0 };
enum { NVML_ECC_CORRECTED = 0, NVML_ECC_UNCORRECTED = 1, NVML_ECC_VOLATILE = 0 };
#define NVML_EVENT_XID 8ull
#define XIDS_AT_ONCE 64

struct device; /* opaque */
struct events;
struct utilisation {
    unsigned gpu, memory; /* per cent */
};
struct memory_info {
    unsigned long long total, free, used;
};
struct event {
    struct device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* The functions, with the names of the library. */
struct table {
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    const char *(*nvmlErrorString)(int result);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus, struct device **out);
    int (*nvmlDeviceGetUtilizationRates)(struct device *device, struct utilisation *out);
    int (*nvmlDeviceGetMemoryInfo)(struct device *device, struct memory_info *out);
    int (*nvmlDeviceGetTemperature)(struct device *device, int sensor, unsigned *out);
    int (*nvmlDeviceGetPowerUsage)(struct device *device, unsigned *milliwatts);
    int (*nvmlDeviceGetEnforcedPowerLimit)(struct device *device, unsigned *milliwatts);
    int (*nvmlDeviceGetClockInfo)(struct device *device, int clock, unsigned *megahertz);
    int (*nvmlDeviceGetTotalEccErrors)(struct device *device, int kind, int counter,
                                       unsigned long long *out);
    int (*nvmlEventSetCreate)(struct events **out);
    int (*nvmlEventSetFree)(struct events *events);
    int (*nvmlDeviceRegisterEvents)(struct device *device, unsigned long long types,
                                    struct events *events);
    int (*nvmlEventSetWait_v2)(struct events *events, struct event *out, unsigned timeout_ms);
};

#define ROW(name) LIBRARY_SYMBOL(table, name)
static const struct library_symbol symbols[] = {
    ROW(nvmlInit_v2),
    ROW(nvmlShutdown),
    ROW(nvmlErrorString),
    ROW(nvmlDeviceGetHandleByPciBusId_v2),
    ROW(nvmlDeviceGetUtilizationRates),
    ROW(nvmlDeviceGetMemoryInfo),
    ROW(nvmlDeviceGetTemperature),
    ROW(nvmlDeviceGetPowerUsage),
    ROW(nvmlDeviceGetEnforcedPowerLimit),
    ROW(nvmlDeviceGetClockInfo),
    ROW(nvmlDeviceGetTotalEccErrors),
    ROW(nvmlEventSetCreate),
    ROW(nvmlEventSetFree),
    ROW(nvmlDeviceRegisterEvents),
    ROW(nvmlEventSetWait_v2),
};

struct nvml {
    struct library library;
    struct table table;
    struct device *device;
    struct events *events; /* NULL: this driver does not report critical errors */
    int64_t xids, xid_last;
    int is_begun;
};

static enum status find_device(struct nvml *n, const char *bus)
{
    int result = n->table.nvmlInit_v2();
    if (result != NVML_SUCCESS)
        return FAIL(ST_NO_DEVICE, "NVML from %s does not start: %s", n->library.path,
                    n->table.nvmlErrorString(result));
    n->is_begun = 1;
    result = n->table.nvmlDeviceGetHandleByPciBusId_v2(bus, &n->device);
    if (result != NVML_SUCCESS)
        return FAIL(ST_NO_DEVICE, "NVML from %s does not know the GPU at %s: %s", n->library.path,
                    bus, n->table.nvmlErrorString(result));
    return ST_OK;
}

/* Subscribes to events. Not every driver and container allows this. */
static void subscribe_events(struct nvml *n)
{
    if (n->table.nvmlEventSetCreate(&n->events) != NVML_SUCCESS)
        n->events = NULL;
    if (n->events == NULL ||
        n->table.nvmlDeviceRegisterEvents(n->device, NVML_EVENT_XID, n->events) == NVML_SUCCESS)
        return;
    (void)n->table.nvmlEventSetFree(n->events);
    n->events = NULL;
}

enum status nvml_open(const char *bus, struct nvml **out)
{
    struct nvml *n = memory_new(1, sizeof *n);
    n->xid_last = -1;
    enum status st =
        nvml_library_open(symbols, sizeof symbols / sizeof *symbols, &n->library, &n->table);
    if (st == ST_OK)
        st = find_device(n, bus);
    if (st != ST_OK) {
        nvml_close(n);
        return st;
    }
    subscribe_events(n);
    *out = n;
    return ST_OK;
}

void nvml_close(struct nvml *n)
{
    if (n == NULL)
        return;
    if (n->events != NULL)
        (void)n->table.nvmlEventSetFree(n->events);
    if (n->is_begun)
        (void)n->table.nvmlShutdown();
    library_close(&n->library);
    free(n);
}

/* ---- reading ---- */

static double scale_value(int result, unsigned value, double unit)
{
    return result == NVML_SUCCESS ? (double)value * unit : NAN;
}

static int64_t check_count(int result, unsigned long long value)
{
    return result == NVML_SUCCESS && value <= INT64_MAX ? (int64_t)value : -1;
}

/* Reads events since the last time; a limit, in case they come without end. */
static void read_xids(struct nvml *n)
{
    struct event event;
    for (int i = 0; n->events != NULL && i < XIDS_AT_ONCE; i++) {
        if (n->table.nvmlEventSetWait_v2(n->events, &event, 0) != NVML_SUCCESS)
            return;
        if (event.type != NVML_EVENT_XID)
            continue;
        n->xids++;
        n->xid_last = (int64_t)(event.data & 0xffffffff);
    }
}

void nvml_read(struct nvml *n, struct gpu_reading *out)
{
    const struct table *t = &n->table;
    struct utilisation busy = {0};
    struct memory_info memory = {0};
    unsigned value = 0;
    unsigned long long errors = 0;
    int result = t->nvmlDeviceGetUtilizationRates(n->device, &busy);
    out->busy = scale_value(result, busy.gpu, 0.01);
    out->memory_busy = scale_value(result, busy.memory, 0.01);
    result = t->nvmlDeviceGetMemoryInfo(n->device, &memory);
    out->memory_used = check_count(result, memory.used);
    out->memory_total = check_count(result, memory.total);
    result = t->nvmlDeviceGetTemperature(n->device, NVML_SENSOR_GPU, &value);
    out->temperature = scale_value(result, value, 1);
    result = t->nvmlDeviceGetPowerUsage(n->device, &value);
    out->power = scale_value(result, value, 1e-3);
    result = t->nvmlDeviceGetEnforcedPowerLimit(n->device, &value);
    out->power_limit = scale_value(result, value, 1e-3);
    result = t->nvmlDeviceGetClockInfo(n->device, NVML_CLOCK_SM, &value);
    out->clock = scale_value(result, value, 1e6);
    result = t->nvmlDeviceGetClockInfo(n->device, NVML_CLOCK_MEMORY, &value);
    out->memory_clock = scale_value(result, value, 1e6);
    result =
        t->nvmlDeviceGetTotalEccErrors(n->device, NVML_ECC_CORRECTED, NVML_ECC_VOLATILE, &errors);
    out->ecc_corrected = check_count(result, errors);
    result =
        t->nvmlDeviceGetTotalEccErrors(n->device, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &errors);
    out->ecc_uncorrected = check_count(result, errors);
    read_xids(n);
    out->xids = n->events != NULL ? n->xids : -1;
    out->xid_last = n->xid_last;
}
