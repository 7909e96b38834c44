/* matmul_levels — finds the levels of this machine for test_matmul.c, which includes this after its
 * struct level and levels_f32, levels_bf16. */
#ifndef CONVOY_TESTS_MATMUL_LEVELS_H
#define CONVOY_TESTS_MATMUL_LEVELS_H

#define LEVEL(name) \
    (struct level) { #name, matmul_fwd_##name, matmul_bwd_x_##name, matmul_bwd_w_##name }

#if defined(__x86_64__)
/* Of levels that only an open device may use: opening it asks the system for the tiles. */
static void find_opened(int isa, const struct level *f32, const struct level *bf16)
{
    struct dev *dev;
    if (dev_cpu_open(1, isa, &dev) != ST_OK) {
        printf("# not tested: %s\n", status_message());
        return;
    }
    levels_f32[levels_f32_n++] = *f32;
    if (dev_cpu_bf16(dev) == ST_OK)
        levels_bf16[levels_bf16_n++] = *bf16;
    else
        printf("# bf16 not tested: %s\n", status_message());
    dev_close(dev);
}

static void find_levels(void)
{
    if (__builtin_cpu_supports("sse4.2"))
        levels_f32[levels_f32_n++] = LEVEL(v2);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        levels_f32[levels_f32_n++] = LEVEL(v3);
    find_opened(CPU_ISA_V4, &LEVEL(v4), &LEVEL(v4_bf16));
    find_opened(CPU_ISA_AMX, &LEVEL(amx), &LEVEL(amx_bf16));
}
#elif defined(__aarch64__)
static void find_levels(void) { levels_f32[levels_f32_n++] = LEVEL(neon); }
#else
static void find_levels(void) {}
#endif

#endif
