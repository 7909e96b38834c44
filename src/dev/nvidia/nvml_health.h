/* nvml_health — reports from NVIDIA's management library about the health of all GPUs that this
 * process can see: errors of their memory, their PCIe and NVLink connections, causes of a
 * slowdown.
 *
 * Read once, before training; nvml.h reads the numbers that change during it. Must not know which
 * value is good. */
#ifndef CONVOY_DEV_NVML_HEALTH_H
#define CONVOY_DEV_NVML_HEALTH_H

#include <stdint.h>

#include "base/status.h"

#define NVML_HEALTH_GPUS_MAX 64

/* The numbers of a GPU; -1: this GPU or its driver does not report it.
 *   withheld                            1: the device control group reserves it for other jobs;
 *                                       error is set too
 *   mig                                 1: divided into instances (MIG)
 *   ecc_default, ecc_enabled            is ECC on when new, is it on now
 *   ecc_corrected, ecc_uncorrected      since the driver was loaded; _ever: since it was made
 *   remapped_*, remap_*                 rows of memory that spare rows replace; pending: needs a
 *                                       reset; failed: no spare row is left
 *   pcie_*, *_max                       generation and lanes now, and the most of card and slot
 *   perf_state                          0: fastest … 15: idle
 *   nvlinks, nvlinks_active             links of the chip; active links
 *   throttle                            bits NVML_THROTTLE_*
 *   fabric_state                        0: has no fabric, 1: not started, 2: in progress, 3: done
 *   fabric_error                        in state 3: an NVML error, 0: none */
#define NVML_HEALTH_LIST(X) \
    X(withheld)             \
    X(mig)                  \
    X(ecc_default)          \
    X(ecc_enabled)          \
    X(ecc_corrected)        \
    X(ecc_uncorrected)      \
    X(ecc_uncorrected_ever) \
    X(remapped_corrected)   \
    X(remapped_uncorrected) \
    X(remap_pending)        \
    X(remap_failed)         \
    X(pcie_gen)             \
    X(pcie_gen_max)         \
    X(pcie_width)           \
    X(pcie_width_max)       \
    X(perf_state)           \
    X(nvlinks)              \
    X(nvlinks_active)       \
    X(nvlink_errors)        \
    X(throttle)             \
    X(persistence)          \
    X(display)              \
    X(temperature)          \
    X(power_limit_mw)       \
    X(power_default_mw)     \
    X(fabric_state)         \
    X(fabric_error)

#define NVML_THROTTLE_HW_SLOWDOWN 0x8
#define NVML_THROTTLE_SW_THERMAL 0x20
#define NVML_THROTTLE_HW_THERMAL 0x40
#define NVML_THROTTLE_POWER_BRAKE 0x80

struct nvml_health_gpu {
    char bus[24]; /* PCI address, "0000:3b:00.0"; "": unknown */
    char name[64];
    char error[64]; /* "": NVML returned a handle; else its reason, and all else is unknown */
#define NVML_HEALTH_FIELD(field) int64_t field;
    NVML_HEALTH_LIST(NVML_HEALTH_FIELD)
#undef NVML_HEALTH_FIELD
};

struct nvml_health {
    char driver[40];
    int gpus_n;
    struct nvml_health_gpu gpu[NVML_HEALTH_GPUS_MAX]; /* in the order of NVML and nvidia-smi */
};

/* nvml_health_read — needs milliseconds; may block for long, or for ever, when a GPU is in trouble.
 * ST_NO_DEVICE: the library is missing or does not start, with its reason. */
enum status nvml_health_read(struct nvml_health *out);
/* nvml_health_unknown — returns a GPU whose numbers are all unknown. */
struct nvml_health_gpu nvml_health_unknown(void);
/* nvml_health_bus — writes a PCI address in the form of dev_info, from "00000000:3B:00.0" or
 * "0000:3b:00". out has 24 bytes. */
void nvml_health_bus(char *out, const char *bus);

#endif
