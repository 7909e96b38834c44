/* amd_sysfs — see amd_sysfs.h. */
#include "dev/amd/amd_sysfs.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define DEVICE "%s/sys/bus/pci/devices/%s"
#define FOLDERS_N 64 /* the most sensors of a machine, of all its devices */

/* Returns the number after `key` in folder/name; -1: there is none, or it is negative. Only regular
 * files are opened, because a pipe would block. */
static int64_t read_number(const char *folder, const char *name, const char *key)
{
    char path[FILE_PATH_MAX], text[256] = "", *at;
    struct stat about;
    int64_t value;
    if (!text_format(path, sizeof path, "%s/%s", folder, name))
        return -1;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
        read(fd, text, sizeof text - 1) < 0)
        text[0] = 0;
    if (fd >= 0)
        close(fd);
    if ((at = strstr(text, key)) == NULL)
        return -1;
    at += strlen(key);
    at[strcspn(at, " \n")] = 0;
    return text_parse_i64(at, 0, INT64_MAX / 16, &value) == TEXT_OK ? value : -1;
}

static double read_scaled(const char *folder, const char *name, double unit)
{
    int64_t value = read_number(folder, name, "");
    return value < 0 ? NAN : (double)value * unit;
}

static void read_sensors(const char *folder, struct amd_sysfs_reading *out)
{
    /* edge, junction and memory */
    static const char *const sensors[][2] = {{"temp1_input", "temp1_crit"},
                                             {"temp2_input", "temp2_crit"},
                                             {"temp3_input", "temp3_crit"}};
    for (int i = 0; i < 3; i++) {
        double now = read_scaled(folder, sensors[i][0], 1e-3),
               limit = read_scaled(folder, sensors[i][1], 1e-3);
        out->gpu.temperature = fmax(out->gpu.temperature, now); /* ignores NAN */
        if (now >= 0 && limit > 0)
            out->hot = out->hot == 1 || now >= limit;
    }
    /* A driver has the average, the present power, or both. */
    out->gpu.power = read_scaled(folder, "power1_average", 1e-6);
    if (isnan(out->gpu.power))
        out->gpu.power = read_scaled(folder, "power1_input", 1e-6);
    out->gpu.power_limit = read_scaled(folder, "power1_cap", 1e-6);
    out->gpu.clock = read_scaled(folder, "freq1_input", 1);
    out->gpu.memory_clock = read_scaled(folder, "freq2_input", 1);
    out->power_default = read_scaled(folder, "power1_cap_default", 1e-6);
}

/* Returns the sum of the errors of blocks; -1: none is reported. */
static int64_t add_errors(const char *folder, const char *const *files, int n, const char *key)
{
    int64_t sum = -1;
    for (int i = 0; i < n; i++) {
        int64_t errors = read_number(folder, files[i], key);
        sum = errors < 0 ? sum : errors + (sum > 0 ? sum : 0);
    }
    return sum;
}

enum status amd_sysfs_find(const char *root, const char *bus)
{
    char folder[FILE_PATH_MAX];
    text_format(folder, sizeof folder, DEVICE, root, bus);
    return file_is_dir(folder) ? ST_OK
                               : FAIL(ST_NO_DEVICE,
                                      "there is no folder %s of the driver amdgpu; a container "
                                      "needs the host's /sys",
                                      folder);
}

void amd_sysfs_read(const char *root, const char *bus, struct amd_sysfs_reading *out)
{
    static const char *const memory[] = {"ras/umc_err_count", "ras/gfx_err_count",
                                         "ras/sdma_err_count", "ras/mmhub_err_count"},
                             *const links[] = {"ras/xgmi_wafl_err_count"};
    char folder[FILE_PATH_MAX], sensors[FILE_PATH_MAX];
    text_format(folder, sizeof folder, DEVICE, root, bus);
    *out = (struct amd_sysfs_reading){.gpu =
                                          {
#define GPU_STAT(field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#include "base/rank_stats.def"
                                          },
                                      .power_default = NAN,
                                      .link_errors = add_errors(folder, links, 1, "ce: "),
                                      .hot = -1};
    out->gpu.busy = read_scaled(folder, "gpu_busy_percent", 0.01);
    out->gpu.memory_busy = read_scaled(folder, "mem_busy_percent", 0.01);
    out->gpu.memory_used = read_number(folder, "mem_info_vram_used", "");
    out->gpu.memory_total = read_number(folder, "mem_info_vram_total", "");
    out->gpu.ecc_corrected = add_errors(folder, memory, 4, "ce: ");
    out->gpu.ecc_uncorrected = add_errors(folder, memory, 4, "ue: ");
    for (int i = 0; i < FOLDERS_N; i++)
        if (text_format(sensors, sizeof sensors, "%s/hwmon/hwmon%d", folder, i) &&
            file_is_dir(sensors))
            read_sensors(sensors, out);
}
