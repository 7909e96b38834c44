/* amd_sysfs — reads a GPU's temperature, power limit and errors from the files of AMD's kernel
 * driver amdgpu below /sys/bus/pci/devices. Written from the documentation of Linux; no AMD GPU has
 * been read with it. Must not know which value is good. */
#ifndef CONVOY_DEV_AMD_SYSFS_H
#define CONVOY_DEV_AMD_SYSFS_H

#include <stdint.h>

/* A number that the driver does not report is NAN, or -1. */
struct amd_sysfs_reading {
    double temperature;                     /* the hottest sensor, in degrees Celsius */
    double power_limit, power_default;      /* limit now and after a start, in watts */
    int64_t ecc_corrected, ecc_uncorrected; /* errors of memories since the driver was loaded */
    int64_t link_errors;                    /* corrected errors of XGMI links */
    int hot;                                /* 1: a sensor is at its critical temperature */
};

/* amd_sysfs_read — reads the GPU at a PCI address, such as "0000:c1:00.0". May block when it is in
 * trouble: do not call it in the thread that trains. root: the folder that contains sys/, "" except
 * in tests. */
void amd_sysfs_read(const char *root, const char *bus, struct amd_sysfs_reading *out);

#endif
