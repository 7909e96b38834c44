/* The table of chips' peaks: what users have, by the names that drivers give; parts of chips, chips
 * of the same size under other names, and names that are none, are not known. */
#include "harness.h"

#include "dev/cuda/peak.h"

static void known_chips(void **state)
{
    static const struct {
        const char *name;
        int major, minor, sm_count;
        double f16, tf32, f32;
    } cases[] = {{"NVIDIA A100-SXM4-80GB", 8, 0, 108, 312, 156, 19.5},
                 {"NVIDIA A100-PCIE-40GB", 8, 0, 108, 312, 156, 19.5},
                 {"NVIDIA H100 80GB HBM3", 9, 0, 132, 989.4, 494.7, 66.9},
                 {"NVIDIA H200", 9, 0, 132, 989.4, 494.7, 66.9},
                 {"NVIDIA GH200 480GB", 9, 0, 132, 989.4, 494.7, 66.9},
                 {"NVIDIA H100 PCIe", 9, 0, 114, 756, 378, 51.2},
                 {"NVIDIA B200", 10, 0, 148, 2250, 1125, 75},
                 {"NVIDIA L40S", 8, 9, 142, 362.05, 183, 91.6},
                 {"NVIDIA L4", 8, 9, 58, 121, 60, 30.3},
                 {"NVIDIA GeForce RTX 4090", 8, 9, 128, 165.2, 82.6, 82.6},
                 {"NVIDIA A10", 8, 6, 72, 125, 62.5, 31.2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dev_cuda_peak p =
            dev_cuda_peak(cases[i].name, cases[i].major, cases[i].minor, cases[i].sm_count);
        if (p.f16 != cases[i].f16 * 1e12 || p.tf32 != cases[i].tf32 * 1e12 ||
            p.f32 != cases[i].f32 * 1e12)
            fail_msg("%s: %g %g %g", cases[i].name, p.f16, p.tf32, p.f32);
        assert_true(p.f16 > p.tf32 && p.tf32 >= p.f32);
    }
}

static void other_chips_are_unknown(void **state)
{
    static const struct {
        const char *name;
        int major, minor, sm_count;
    } cases[] = {{"NVIDIA H100 80GB HBM3 MIG 7g.80gb", 9, 0, 132},
                 {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9, 0, 16},
                 {"NVIDIA A100-SXM4-40GB MIG 4g.20gb", 8, 0, 56},
                 {"NVIDIA A30", 8, 0, 56},
                 {"NVIDIA H100 NVL", 9, 0, 132},
                 {"NVIDIA H200 NVL", 9, 0, 132},
                 {"NVIDIA H20", 9, 0, 78},
                 {"NVIDIA GB200", 10, 0, 148},
                 {"NVIDIA B100", 10, 0, 148},
                 {"NVIDIA L40", 8, 9, 142},
                 {"NVIDIA GeForce RTX 4090 Laptop GPU", 8, 9, 76},
                 {"NVIDIA GeForce RTX 4090 D", 8, 9, 114},
                 {"NVIDIA A10G", 8, 6, 80},
                 {"Emulated 0", 9, 0, 4},
                 {"", 0, 0, 0},
                 {"NVIDIA A100", 8, 0, -108}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dev_cuda_peak p =
            dev_cuda_peak(cases[i].name, cases[i].major, cases[i].minor, cases[i].sm_count);
        if (p.f16 != 0 || p.tf32 != 0 || p.f32 != 0)
            fail_msg("%s: %g %g %g", cases[i].name, p.f16, p.tf32, p.f32);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(known_chips),
                                          cmocka_unit_test(other_chips_are_unknown)};
HARNESS_MAIN(tests)
