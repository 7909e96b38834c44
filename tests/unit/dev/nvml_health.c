/* nvml_health — the health of all GPUs from the tests' own libnvidia-ml.so.1, and what a check
 * makes of a library that does not answer. */
#include "unit/fake_nvml.h"

#include "check/host/static.h"
#include "dev/nvidia/nvml_health.h"

TEST(reads_everything)
{
    struct nvml_health health;
    int *begun = fake_nvml_use("fake_nvml_begun");
    assert_int_equal(nvml_health_read(&health), ST_OK);
    const struct nvml_health_gpu *gpu = &health.gpu[0];
    assert_string_equal(health.driver, "580.95.05");
    assert_int_equal(health.gpus_n, 2);
    assert_string_equal(gpu->bus, "0000:3b:00.0");
    assert_string_equal(gpu->name, "NVIDIA H100 80GB HBM3");
    assert_string_equal(gpu->error, "");
    assert_true(gpu->ecc_default == 1 && gpu->ecc_enabled == 0);
    assert_true(gpu->ecc_corrected == 12 && gpu->ecc_uncorrected == 1 &&
                gpu->ecc_uncorrected_ever == 1);
    assert_true(gpu->remapped_corrected == 5 && gpu->remapped_uncorrected == 6);
    assert_true(gpu->remap_pending == 1 && gpu->remap_failed == 0);
    assert_true(gpu->pcie_gen == 4 && gpu->pcie_gen_max == 5);
    assert_true(gpu->pcie_width == 8 && gpu->pcie_width_max == 16 && gpu->perf_state == 2);
    assert_true(gpu->nvlinks == 3 && gpu->nvlinks_active == 2);
    assert_int_equal(gpu->nvlink_errors, 4 * 11 + 4 * 13);
    assert_int_equal(gpu->throttle, NVML_THROTTLE_HW_THERMAL);
    assert_true(gpu->persistence == 1 && gpu->temperature == 63);
    assert_true(gpu->power_limit_mw == 700000 && gpu->power_default_mw == 650000);
    assert_true(gpu->fabric_state == 3 && gpu->fabric_error == 7);
    assert_int_equal(gpu->display, -1); /* this library does not have the function */
    assert_int_equal(gpu->mig, 1);
    assert_string_equal(health.gpu[1].error, "GPU is lost");
    assert_int_equal(health.gpu[1].withheld, 0);
    assert_int_equal(health.gpu[1].ecc_uncorrected, -1);
    assert_int_equal(*begun, 0);
}

/* What is not reported is -1, and no zero. */
TEST(reads_what_there_is)
{
    struct nvml_health health;
    int *mode = fake_nvml_use("fake_nvml_mode");
    *mode = 1;
    assert_int_equal(nvml_health_read(&health), ST_OK);
    *mode = 0;
    struct nvml_health_gpu unknown = nvml_health_unknown(), *gpu = &health.gpu[0];
#define IS_UNKNOWN(field)                                                          \
    if (strcmp(#field, "nvlinks") != 0 && strcmp(#field, "nvlinks_active") != 0 && \
        strcmp(#field, "nvlink_errors") != 0)                                      \
        assert_int_equal(gpu->field, unknown.field);
    NVML_HEALTH_LIST(IS_UNKNOWN)
    assert_int_equal(gpu->nvlinks, 0);
}

/* A device control group gives the second one to another job. */
TEST(withheld)
{
    struct nvml_health health;
    int *mode = fake_nvml_use("fake_nvml_mode");
    *mode = 3;
    assert_int_equal(nvml_health_read(&health), ST_OK);
    *mode = 0;
    assert_int_equal(health.gpus_n, 2);
    assert_int_equal(health.gpu[1].withheld, 1);
    assert_string_equal(health.gpu[1].error, "Insufficient Permissions");
}

TEST(refused)
{
    struct nvml_health health;
    int *mode = fake_nvml_use("fake_nvml_mode");
    *mode = 2;
    assert_int_equal(nvml_health_read(&health), ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "does not start: Driver Not Loaded"));
    *mode = 0;
    assert_int_equal(*fake_nvml_use("fake_nvml_begun"), 0);
}

TEST(addresses)
{
    static const char *const pairs[][2] = {{"00000000:3B:00.0", "0000:3b:00.0"},
                                           {"0000:3b:00", "0000:3b:00.0"},
                                           {"0000:3b:00.0", "0000:3b:00.0"},
                                           {"00010000:C1:00.0", "10000:c1:00.0"},
                                           {"", ""},
                                           {":", ":.0"},
                                           {"0123456789abcdef0123456789", "0123456789abcdef0123"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char out[24];
        nvml_health_bus(out, pairs[i][0]);
        assert_string_equal(out, pairs[i][1]);
    }
}

/* The limit is over long before the driver answers; later the thread ends by itself. */
TEST(hangs)
{
    static struct nvml_health health;
    int *stuck = fake_nvml_use("fake_nvml_hangs"), *begun = fake_nvml_use("fake_nvml_begun");
    __atomic_store_n(stuck, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(check_gpu_list_read("", false, 20, &health), ST_PEER);
    assert_non_null(strstr(status_message(), "has not answered for 20 ms"));
    while (__atomic_load_n(begun, __ATOMIC_SEQ_CST) != 1)
        clock_sleep_ms(1);
    __atomic_store_n(stuck, 0, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(begun, __ATOMIC_SEQ_CST) != 0)
        clock_sleep_ms(1);
    assert_int_equal(check_gpu_list_read("", false, 60000, &health), ST_OK);
    assert_int_equal(health.gpus_n, 2);
}

HARNESS_RUN_ALL()
