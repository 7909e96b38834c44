/* fake_nvml — a libnvidia-ml.so.1 for tests, with one GPU at 0000:3b:00.0. What it tells changes by
 * fake_nvml_mode: 0 all of it; 1 nothing but memory, as some GPUs and containers; 2 it does not
 * start. Each Xid that is put in comes out once. fake_nvml_hangs: readings do not end while it is
 * not 0. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_FOUND = 6, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, TIMEOUT = 10 };
struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

int fake_nvml_mode, fake_nvml_begun, fake_nvml_sets, fake_nvml_xids[8], fake_nvml_xids_n;
volatile int fake_nvml_hangs;
static int gpu;

#define TELLS (fake_nvml_mode == 0 ? SUCCESS : NOT_SUPPORTED)

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    fake_nvml_begun += fake_nvml_mode != 2;
    return fake_nvml_mode == 2 ? DRIVER_NOT_LOADED : SUCCESS;
}
int nvmlShutdown(void);
int nvmlShutdown(void)
{
    fake_nvml_begun--;
    return SUCCESS;
}
const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result)
{
    return result == NOT_FOUND ? "Not Found" : "Driver Not Loaded";
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
    while (fake_nvml_hangs)
        usleep(1000);
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
    return device == &gpu && counter == 0 ? TELLS : NOT_FOUND;
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
