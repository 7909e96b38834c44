/* gpu_sensors — see gpu_sensors.h. */
#include "dev/gpu_sensors.h"

#include "base/text.h"
#include "dev/amd/amd_sysfs.h"
#include "dev/nvidia/nvml.h"

enum status gpu_sensors_open(const char *bus, const char *amd_root, struct gpu_sensors *out)
{
    *out = (struct gpu_sensors){0};
    if (amd_root == NULL)
        return nvml_open(bus, &out->nvml);
    text_copy(out->root, sizeof out->root, amd_root);
    text_copy(out->bus, sizeof out->bus, bus);
    return amd_sysfs_find(amd_root, bus);
}

void gpu_sensors_read(const struct gpu_sensors *sensors, struct gpu_reading *out)
{
    struct amd_sysfs_reading amd;
    if (sensors->nvml != NULL) {
        nvml_read(sensors->nvml, out);
        return;
    }
    amd_sysfs_read(sensors->root, sensors->bus, &amd);
    *out = amd.gpu;
}

void gpu_sensors_close(struct gpu_sensors *sensors) { nvml_close(sensors->nvml); }
