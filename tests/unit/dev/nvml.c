/* nvml — the numbers of a GPU, from the tests' own libnvidia-ml.so.1. */
#include "unit/fake_nvml.h"

#include "dev/nvidia/nvml.h"

TEST(reads_everything)
{
    struct nvml *n = NULL;
    struct gpu_reading now;
    int *xids = fake_nvml_use("fake_nvml_xids"), *xids_n = fake_nvml_use("fake_nvml_xids_n");
    assert_int_equal(nvml_open("0000:3b:00.0", &n), ST_OK);
    nvml_read(n, &now);
    assert_true(fabs(now.busy - 0.97) < 1e-9 && fabs(now.memory_busy - 0.41) < 1e-9);
    assert_true(now.memory_used == 51ll << 30 && now.memory_total == 151ll << 30);
    assert_true(now.temperature == 63 && fabs(now.power - 612.5) < 1e-9 &&
                fabs(now.power_limit - 700) < 1e-9);
    assert_true(now.clock == 1980e6 && now.memory_clock == 3201e6);
    assert_true(now.ecc_corrected == 12 && now.ecc_uncorrected == 1);
    assert_true(now.xids == 0 && now.xid_last == -1);
    xids[0] = 48;
    xids[1] = 94;
    *xids_n = 2;
    nvml_read(n, &now);
    assert_true(now.xids == 2 && now.xid_last == 48);
    nvml_close(n);
    assert_int_equal(*fake_nvml_use("fake_nvml_begun"), 0);
    assert_int_equal(*fake_nvml_use("fake_nvml_sets"), 0);
}

/* What is not told is not known, and no zero. */
TEST(reads_what_there_is)
{
    struct nvml *n = NULL;
    struct gpu_reading now;
    int *mode = fake_nvml_use("fake_nvml_mode");
    *mode = 1;
    assert_int_equal(nvml_open("0000:3b:00.0", &n), ST_OK);
    nvml_read(n, &now);
    assert_true(now.memory_used == 51ll << 30);
    assert_true(isnan(now.busy) && isnan(now.temperature) && isnan(now.power) && isnan(now.clock));
    assert_true(now.ecc_corrected == -1 && now.ecc_uncorrected == -1 && now.xids == -1 &&
                now.xid_last == -1);
    nvml_close(n);
    *mode = 0;
    assert_int_equal(*fake_nvml_use("fake_nvml_begun"), 0);
    assert_int_equal(*fake_nvml_use("fake_nvml_sets"), 0);
}

TEST(refused)
{
    struct nvml *n = NULL;
    int *mode = fake_nvml_use("fake_nvml_mode");
    assert_int_equal(nvml_open("0000:ff:00.0", &n), ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "does not know the GPU at 0000:ff:00.0: Not Found"));
    *mode = 2;
    assert_int_equal(nvml_open("0000:3b:00.0", &n), ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "does not start: Driver Not Loaded"));
    *mode = 0;
    assert_null(n);
    assert_int_equal(*fake_nvml_use("fake_nvml_begun"), 0);
    nvml_close(NULL);
}

TEST(absent)
{
    struct nvml *n = NULL;
    library_dir("/nowhere");
    if (dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) ||
        access("/dev/nvidiactl", F_OK) == 0)
        HARNESS_SKIP("this machine has a GPU or its management library");
    assert_int_equal(nvml_open("0000:3b:00.0", &n), ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "libnvidia-ml.so.1"));
}

/* absent comes first: a library that is open under its name is found without a folder. */
HARNESS_RUN_ALL()
