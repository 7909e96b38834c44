/* amd_sysfs — reads a GPU's load, memory, temperature, power, clocks and errors from the files of
 * AMD's kernel driver amdgpu below /sys/bus/pci/devices. Written from the documentation of Linux;
 * no AMD GPU has been read with it. Must not know which value is good. */
#ifndef CONVOY_DEV_AMD_SYSFS_H
#define CONVOY_DEV_AMD_SYSFS_H

#include <stdint.h>

#include "base/rank_stats.h"
#include "base/status.h"

/* A number that the driver does not report is NAN, or -1. */
struct amd_sysfs_reading {
    struct gpu_reading gpu; /* temperature: of the hottest sensor */
    double power_default;   /* power limit after a start, in watts */
    int64_t link_errors;    /* corrected errors of XGMI links */
    int hot;                /* 1: a sensor is at its critical temperature */
};

/* amd_sysfs_find — returns ST_NO_DEVICE if /sys has no GPU at that PCI address. root: as below. */
enum status amd_sysfs_find(const char *root, const char *bus);
/* amd_sysfs_read — reads the GPU at a PCI address, such as "0000:c1:00.0". May block when it is in
 * trouble: do not call it in the thread that trains. root: the folder that contains sys/, "" except
 * in tests. */
void amd_sysfs_read(const char *root, const char *bus, struct amd_sysfs_reading *out);

#endif
