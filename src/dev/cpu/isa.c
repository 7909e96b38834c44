/* dev_cpu_isa — see cpu/isa.h. */
#include "dev/cpu/isa.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <string.h>

#include "base/isa.h"
#include "base/assert.h"
#include "kernels/peak.h"

static const struct {
    const char *name, *needs;
} isa_rows[CPU_ISA_N] = {[CPU_ISA_PLAIN] = {"plain", "any processor"},
                         [CPU_ISA_V2] = {"sse4", "x86-64-v2"},
                         [CPU_ISA_V3] = {"avx2", "x86-64-v3"},
                         [CPU_ISA_V4] = {"avx512", "x86-64-v4"},
                         [CPU_ISA_AMX] = {"amx", "x86-64-v4 with AMX tiles of bf16"},
                         [CPU_ISA_NEON] = {"neon", "aarch64 with Advanced SIMD"}};

#define ROW_PLAIN(name) .name = name##_plain,
#if defined(__x86_64__)
#define ROW_V2(name) .name = name##_v2,
#define ROW_V3(name) .name = name##_v3,
#define ROW_V4(name) .name = name##_v4,
static const struct dev_cpu_kernels isa_kernels[CPU_ISA_N] = {
    [CPU_ISA_PLAIN] = {OP_LIST(ROW_PLAIN)}, [CPU_ISA_V2] = {OP_LIST(ROW_V2)},
    [CPU_ISA_V3] = {OP_LIST(ROW_V3)},       [CPU_ISA_V4] = {OP_LIST(ROW_V4)},
    [CPU_ISA_AMX] = {OP_LIST(ROW_V4)}, /* except products, see dev_cpu_isa_kernels */
};

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* Tiles are 8 KiB of state that a process must request before one of its threads uses them;
 * requesting twice is harmless. The kernel refuses if it has no AMX, or if an alternate signal
 * stack could not hold the tiles. */
static bool amx_is_here(void)
{
    return isa_has_amx_bf16() &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_isa(enum cpu_isa isa)
{
    if (isa == CPU_ISA_PLAIN || isa == CPU_ISA_NEON)
        return isa == CPU_ISA_PLAIN;
    return isa < CPU_ISA_AMX ? isa_level() > (int)isa : amx_is_here();
}

struct dev_cpu_kernels dev_cpu_isa_kernels(enum cpu_isa isa)
{
    struct dev_cpu_kernels kernels = isa_kernels[isa];
#define SET_AMX(name) kernels.name = name##_amx;
    if (isa == CPU_ISA_AMX) {
        CPU_AMX_LIST(SET_AMX)
    }
#undef SET_AMX
    return kernels;
}

bool dev_cpu_isa_bf16(enum cpu_isa isa, struct dev_cpu_kernels *kernels)
{
#define SET_AMX_BF16(name) kernels->name = name##_amx_bf16;
#define SET_V4_BF16(name) kernels->name = name##_v4_bf16;
    if (isa < CPU_ISA_V4 || !isa_has_avx512_bf16())
        return false;
    if (isa == CPU_ISA_AMX) {
        CPU_AMX_LIST(SET_AMX_BF16)
    } else {
        CPU_AMX_LIST(SET_V4_BF16)
    }
#undef SET_AMX_BF16
#undef SET_V4_BF16
    return true;
}

static double peak_once(const struct cpu *cpu)
{
    return has_isa(CPU_ISA_AMX)  ? peak_amx(cpu, 0.002)
           : has_isa(CPU_ISA_V4) ? peak_fma_v4(cpu, 0.002)
           : has_isa(CPU_ISA_V3) ? peak_fma_v3(cpu, 0.002)
           : has_isa(CPU_ISA_V2) ? peak_fma_v2(cpu, 0.002)
                                 : 0;
}

void dev_cpu_isa_copy(char *dst, const char *src, size_t bytes)
{
    size_t head = -(uintptr_t)dst % 64, at = head < bytes ? head : bytes;
    memcpy(dst, src, at);
    for (; bytes - at >= 64; at += 64) {
        const __m128i *from = (const __m128i *)(const void *)(src + at);
        __m128i *to = (__m128i *)(void *)(dst + at);
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                c = _mm_loadu_si128(from + 2);
        _mm_stream_si128(to + 3, _mm_loadu_si128(from + 3));
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to, a);
    }
    memcpy(dst + at, src + at, bytes - at);
    _mm_sfence();
}
#else
#if defined(__aarch64__)
#define ROW_NEON(name) .name = name##_neon,

static bool has_isa(enum cpu_isa isa)
{
    return isa == CPU_ISA_PLAIN || (isa == CPU_ISA_NEON && isa_has_neon());
}

struct dev_cpu_kernels dev_cpu_isa_kernels(enum cpu_isa isa)
{
    return isa == CPU_ISA_NEON ? (struct dev_cpu_kernels){OP_LIST(ROW_NEON)}
                               : (struct dev_cpu_kernels){OP_LIST(ROW_PLAIN)};
}

static double peak_once(const struct cpu *cpu)
{
    return has_isa(CPU_ISA_NEON) ? peak_fma_neon(cpu, 0.002) : 0;
}
#else
static bool has_isa(enum cpu_isa isa) { return isa == CPU_ISA_PLAIN; }

struct dev_cpu_kernels dev_cpu_isa_kernels(enum cpu_isa isa)
{
    (void)isa;
    return (struct dev_cpu_kernels){OP_LIST(ROW_PLAIN)};
}

static double peak_once(const struct cpu *cpu)
{
    (void)cpu;
    return 0;
}
#endif

bool dev_cpu_isa_bf16(enum cpu_isa isa, struct dev_cpu_kernels *kernels)
{
    (void)isa, (void)kernels;
    return false;
}

void dev_cpu_isa_copy(char *dst, const char *src, size_t bytes) { memcpy(dst, src, bytes); }
#endif

enum status dev_cpu_isa_choose(int asked, enum cpu_isa *out)
{
    ASSERTF(asked >= 0 && asked <= CPU_ISA_N, "level %d", asked);
    int isa = asked;
    if (asked == CPU_ISA_N)
        for (isa = CPU_ISA_N - 1; !has_isa((enum cpu_isa)isa);)
            isa--;
    if (!has_isa((enum cpu_isa)isa))
        return FAIL(ST_NO_DEVICE, "this processor has no %s (%s); choose another level",
                    isa_rows[isa].name, isa_rows[isa].needs);
    *out = (enum cpu_isa)isa;
    return ST_OK;
}

const char *dev_cpu_isa_name(enum cpu_isa isa) { return isa_rows[isa].name; }

/* Returns the best of three short measurements: a core may be waking up, or shared for a moment. */
double dev_cpu_isa_peak(const struct cpu *cpu)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double flops = peak_once(cpu);
        best = flops > best ? flops : best;
    }
    return best;
}
