/* fake_nvml — a libnvidia-ml.so.1 for tests, with one GPU at 0000:3b:00.0. What it tells changes by
 * fake_nvml_mode: 0 all of it; 1 nothing but memory, as some GPUs and containers; 2 it does not
 * start. Each Xid that is put in comes out once. fake_nvml_hangs: readings do not end while it is
 * not 0; fake_nvml_held: how many readings have met that. By its number there is also a second GPU,
 * which is lost. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_FOUND = 6, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };
enum { GPU_IS_LOST = 15 };
struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

int fake_nvml_mode, fake_nvml_begun, fake_nvml_sets, fake_nvml_xids[8], fake_nvml_xids_n;
volatile int fake_nvml_hangs, fake_nvml_held;
static int gpu;

#define TELLS (fake_nvml_mode == 0 ? SUCCESS : NOT_SUPPORTED)

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    __atomic_fetch_add(&fake_nvml_begun, fake_nvml_mode != 2, __ATOMIC_SEQ_CST);
    return fake_nvml_mode == 2 ? DRIVER_NOT_LOADED : SUCCESS;
}
int nvmlShutdown(void);
int nvmlShutdown(void)
{
    __atomic_fetch_sub(&fake_nvml_begun, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}
const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result)
{
    return result == NOT_FOUND     ? "Not Found"
           : result == GPU_IS_LOST ? "GPU is lost"
           : result == 4           ? "Insufficient Permissions"
                                   : "Driver Not Loaded";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
    *out = &gpu;
    return strcmp(bus, "0000:3b:00.0") == 0 ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]);
int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2])
{
    while (fake_nvml_hangs) {
        fake_nvml_held = 1;
        usleep(1000);
    }
    out[0] = 97;
    out[1] = 41;
    return device == &gpu ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
    out[0] = 151ull << 30;
    out[1] = 100ull << 30;
    out[2] = 51ull << 30;
    return device == &gpu ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    *out = 63;
    return device == &gpu && sensor == 0 ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *out);
int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    *out = 612500;
    return device == &gpu ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out)
{
    *out = 700000;
    return device == &gpu ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *out);
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *out)
{
    *out = clock == 1 ? 1980 : 3201;
    return device == &gpu && (clock == 1 || clock == 2) ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *out);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *out)
{
    *out = kind == 0 ? 12 : 1;
    return device == &gpu && (counter == 0 || kind == 1) ? TELLS : NOT_FOUND;
}
int nvmlEventSetCreate(void **out);
int nvmlEventSetCreate(void **out)
{
    fake_nvml_sets++;
    *out = &fake_nvml_sets;
    return SUCCESS;
}
int nvmlEventSetFree(void *events);
int nvmlEventSetFree(void *events)
{
    (void)events;
    fake_nvml_sets--;
    return SUCCESS;
}
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events);
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *events)
{
    return device == &gpu && types == 8 && events ? TELLS : NOT_FOUND;
}
int nvmlEventSetWait_v2(void *events, struct event *out, unsigned timeout_ms);
int nvmlEventSetWait_v2(void *events, struct event *out, unsigned timeout_ms)
{
    if (!events || timeout_ms > 0 || fake_nvml_xids_n == 0)
        return TIMEOUT;
    *out = (struct event){
        .device = &gpu, .type = 8, .data = (unsigned long long)fake_nvml_xids[--fake_nvml_xids_n]};
    return SUCCESS;
}

/* ---- by number, and the health of a GPU ---- */

int nvmlSystemGetDriverVersion(char *out, unsigned cap);
int nvmlSystemGetDriverVersion(char *out, unsigned cap)
{
    strncpy(out, "580.95.05", cap);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *out);
int nvmlDeviceGetCount_v2(unsigned *out)
{
    while (__atomic_load_n(&fake_nvml_hangs, __ATOMIC_SEQ_CST))
        usleep(1000);
    *out = 2;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
    *out = &gpu;
    return i == 0 ? SUCCESS : fake_nvml_mode == 3 ? 4 : GPU_IS_LOST;
}
struct pci {
    char bus_legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out)
{
    *out = (struct pci){.bus = 0x3b, .bus_id = "00000000:3B:00.0"};
    return device == &gpu ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetName(void *device, char *out, unsigned cap);
int nvmlDeviceGetName(void *device, char *out, unsigned cap)
{
    strncpy(out, "NVIDIA H100 80GB HBM3", cap);
    return device == &gpu ? SUCCESS : NOT_FOUND;
}
/* Those that report one number. */
#define NUMBER(name, value)                        \
    int name(void *device, unsigned *out);         \
    int name(void *device, unsigned *out)          \
    {                                              \
        *out = value;                              \
        return device == &gpu ? TELLS : NOT_FOUND; \
    }
NUMBER(nvmlDeviceGetDefaultEccMode, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 4)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 8)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPerformanceState, 2)
NUMBER(nvmlDeviceGetPersistenceMode, 1)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 650000)
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later);
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later)
{
    *now = 1;
    *later = 0;
    return device == &gpu ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetEccMode(void *device, unsigned *now, unsigned *later);
int nvmlDeviceGetEccMode(void *device, unsigned *now, unsigned *later)
{
    *now = 0;
    *later = 1;
    return device == &gpu ? TELLS : NOT_FOUND;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    *corrected = 5;
    *uncorrected = 6;
    *pending = 1;
    *failed = 0;
    return device == &gpu ? TELLS : NOT_FOUND;
}
/* Three links, of which the second is down; the others have 11 and 13 errors of each kind. */
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out)
{
    *out = link != 1;
    return device == &gpu && link < 3 ? TELLS : NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter,
                                    unsigned long long *out);
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter,
                                    unsigned long long *out)
{
    *out = 11 + link;
    return device == &gpu && counter < 4 ? TELLS : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out)
{
    *out = 0x40;
    return device == &gpu ? TELLS : NOT_FOUND;
}
struct fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
};
int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *out);
int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *out)
{
    *out = (struct fabric){.status = 7, .clique = 9, .state = 3};
    return device == &gpu ? TELLS : NOT_FOUND;
}
