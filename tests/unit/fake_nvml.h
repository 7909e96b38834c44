/* fake_nvml — the tests' own libnvidia-ml.so.1, beside the programs that use it (fake_nvml.c). */
#ifndef CONVOY_TESTS_FAKE_NVML_H
#define CONVOY_TESTS_FAKE_NVML_H

#include "harness.h"

#include <dlfcn.h>

#include "dev/nvidia/library.h"

/* fake_nvml_use — from now on that is what is found. Returns the fake's own numbers by name. */
static inline int *fake_nvml_use(const char *name)
{
    char path[700];
    ssize_t n = readlink("/proc/self/exe", path, 512);
    assert_true(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/nvml");
    library_dir(path);
    strcat(path, "/libnvidia-ml.so.1");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);
    int *value = dlsym(handle, name);
    assert_non_null(value);
    return value;
}

#endif
