/* gpu_sensors — the numbers of a GPU of either vendor: AMD's from made-up files of /sys. */
#include "unit/fake_nvml.h"

#include <sys/stat.h>

#include "dev/gpu_sensors.h"

#define BUS "0000:c1:00.0"
#define DEVICE "/sys/bus/pci/devices/" BUS "/"

/* Writes a file of the GPU below the test's folder, and the folders above it. */
static void write_file(const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s" DEVICE "%s", harness_tmpdir(), name);
    for (char *at = strchr(path + strlen(harness_tmpdir()) + 1, '/'); at;
         at = strchr(at + 1, '/')) {
        *at = 0;
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void read_amd(struct gpu_reading *out)
{
    struct gpu_sensors sensors;
    assert_int_equal(gpu_sensors_open(BUS, harness_tmpdir(), &sensors), ST_OK);
    gpu_sensors_read(&sensors, out);
    gpu_sensors_close(&sensors);
}

TEST(amd)
{
    struct gpu_sensors sensors;
    struct gpu_reading now;
    assert_int_equal(gpu_sensors_open(BUS, harness_tmpdir(), &sensors), ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "/sys/bus/pci/devices/" BUS " of the driver amdgpu"));

    /* A driver that reports nothing: no number is 0. */
    write_file("vendor", "0x1002\n");
    read_amd(&now);
    assert_true(isnan(now.busy) && isnan(now.memory_busy) && isnan(now.temperature) &&
                isnan(now.power) && isnan(now.power_limit) && isnan(now.clock) &&
                isnan(now.memory_clock));
    assert_true(now.memory_used == -1 && now.memory_total == -1 && now.ecc_corrected == -1 &&
                now.ecc_uncorrected == -1 && now.xids == -1 && now.xid_last == -1);

    write_file("gpu_busy_percent", "97\n");
    write_file("mem_busy_percent", "41\n");
    write_file("mem_info_vram_used", "54760833024\n");
    write_file("mem_info_vram_total", "206141652992\n");
    write_file("ras/umc_err_count", "ue: 1\nce: 12\n");
    write_file("ras/gfx_err_count", "ue: 2\nce: 30\n");
    write_file("hwmon/hwmon7/temp1_input", "41000\n");
    write_file("hwmon/hwmon7/temp3_input", "63500\n");
    write_file("hwmon/hwmon7/power1_input", "612500000\n");
    write_file("hwmon/hwmon7/power1_cap", "750000000\n");
    write_file("hwmon/hwmon7/freq1_input", "2100000000\n");
    write_file("hwmon/hwmon7/freq2_input", "1300000000\n");
    read_amd(&now);
    assert_true(fabs(now.busy - 0.97) < 1e-9 && fabs(now.memory_busy - 0.41) < 1e-9);
    assert_true(now.memory_used == 54760833024 && now.memory_total == 206141652992);
    assert_true(fabs(now.temperature - 63.5) < 1e-9 && fabs(now.power - 612.5) < 1e-9 &&
                fabs(now.power_limit - 750) < 1e-9);
    assert_true(now.clock == 2100e6 && now.memory_clock == 1300e6);
    assert_true(now.ecc_corrected == 42 && now.ecc_uncorrected == 3 && now.xids == -1);

    /* The average power is preferred; a file that is no number is unknown. */
    write_file("hwmon/hwmon7/power1_average", "600000000\n");
    write_file("gpu_busy_percent", "busy\n");
    read_amd(&now);
    assert_true(fabs(now.power - 600) < 1e-9 && isnan(now.busy));
}

TEST(nvidia)
{
    struct gpu_sensors sensors;
    struct gpu_reading now;
    int *begun = fake_nvml_use("fake_nvml_begun");
    assert_int_equal(gpu_sensors_open("0000:3b:00.0", NULL, &sensors), ST_OK);
    gpu_sensors_read(&sensors, &now);
    assert_true(fabs(now.busy - 0.97) < 1e-9 && now.memory_used == 51ll << 30);
    gpu_sensors_close(&sensors);
    assert_int_equal(*begun, 0);
}

HARNESS_RUN_ALL()
