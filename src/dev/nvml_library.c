/* nvml_library — see nvml_library.h. */
#include "dev/nvml_library.h"

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
