/* nvidia_driver — see nvidia/driver.h. */
#include "dev/nvidia/driver.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>

#include "base/file.h"
#include "base/text.h"

bool nvidia_driver_has_library(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library)
        dlclose(library);
    return library != NULL;
}

bool nvidia_driver_has_file(void)
{
    glob_t found;
    if (glob("/dev/nvidia[c0-9]*", GLOB_NOSORT, NULL, &found) != 0)
        return false;
    globfree(&found);
    return true;
}

bool nvidia_driver_release(const char *root, char out[NVIDIA_DRIVER_RELEASE_MAX])
{
    char path[FILE_PATH_MAX];
    FILE *file = NULL;
    if (text_format(path, sizeof path, "%s/sys/module/nvidia/version", root))
        file = fopen(path, "re");
    bool has = file != NULL && fscanf(file, "%31[0-9.]", out) == 1;
    if (file != NULL)
        fclose(file);
    if (!has)
        out[0] = 0;
    return has;
}

bool nvidia_driver_is_here(void)
{
    char release[NVIDIA_DRIVER_RELEASE_MAX];
    return nvidia_driver_has_file() || nvidia_driver_release("", release) ||
           nvidia_driver_has_library();
}
