/* nvidia_driver — signs of NVIDIA's driver on this machine, read without starting it, in programs
 * with and without CUDA. Must not know whether the driver can be used. */
#ifndef CONVOY_DEV_NVIDIA_DRIVER_H
#define CONVOY_DEV_NVIDIA_DRIVER_H

#include <stdbool.h>

#define NVIDIA_DRIVER_RELEASE_MAX 32

/* Returns true if the loader finds libcuda.so.1, the driver's library. */
bool nvidia_driver_has_library(void);

/* Returns true if there is a device file of NVIDIA's driver: /dev/nvidiactl, /dev/nvidia0 … */
bool nvidia_driver_has_file(void);

/* Writes the release of the driver in the kernel, such as "550.54.14". A container without a GPU
 * sees it, too. root: the folder that contains sys/, "" except in tests. Returns false, and writes
 * "", if the kernel has no such driver. */
bool nvidia_driver_release(const char *root, char out[NVIDIA_DRIVER_RELEASE_MAX]);

/* Returns true if the library, a device file or the kernel's driver is present. */
bool nvidia_driver_is_here(void);

#endif
