/* isa — see isa.h. Bits: Intel SDM, CPUID leaves 1, 7, 0x80000001; x86-64 psABI, micro-architecture
 * levels. */
#include "base/isa.h"

#include <unistd.h>

#if defined(__aarch64__)
#include <sys/auxv.h>

/* Every processor that runs Linux in 64 bits has it so far; the architecture allows it to be
 * absent. */
bool isa_has_neon(void) { return getauxval(AT_HWCAP) & HWCAP_ASIMD; }
#else
bool isa_has_neon(void) { return false; }
#endif

#if defined(__x86_64__)
#include <cpuid.h>

/* 1: SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; FMA, MOVBE, OSXSAVE, AVX, F16C. */
#define V2_1C (1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23)
#define V3_1C (1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29)
/* 7: BMI1, AVX2, BMI2; AVX-512 F, DQ, CD, BW, VL; AMX-BF16, AMX-TILE. 7.1: AVX512_BF16.
 * 0x80000001: LAHF; LZCNT. */
#define V3_7B (1u << 3 | 1u << 5 | 1u << 8)
#define V4_7B (1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)
#define AMX_7D (1u << 22 | 1u << 24)
#define BF16_71A (1u << 5)
#define V2_EC (1u << 0)
#define V3_EC (1u << 5)

struct isa {
    unsigned c1, b7, d7, a71, ce; /* registers of the leaves */
};

static struct isa query_cpuid(void)
{
    unsigned a, b, c, d;
    struct isa isa = {0};
    if (__get_cpuid(1, &a, &b, &c, &d))
        isa.c1 = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        isa.b7 = b, isa.d7 = d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d))
        isa.a71 = a;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d))
        isa.ce = c;
    return isa;
}

static bool has(unsigned bits, unsigned want) { return (bits & want) == want; }

/* Returns isa_level. For AVX and AVX-512, __builtin_cpu_supports checks whether the kernel saves
 * the registers. */
static int level_of(const struct isa *isa)
{
    __builtin_cpu_init();
    if (!has(isa->c1, V2_1C) || !has(isa->ce, V2_EC))
        return 1;
    if (!has(isa->c1, V3_1C) || !has(isa->b7, V3_7B) || !has(isa->ce, V3_EC) ||
        !__builtin_cpu_supports("avx2"))
        return 2;
    return has(isa->b7, V4_7B) && __builtin_cpu_supports("avx512f") ? 4 : 3;
}

int isa_level(void)
{
    static _Atomic int known; /* cached, because CPUID leaves a virtual machine */
    if (known == 0) {
        const struct isa isa = query_cpuid();
        known = level_of(&isa);
    }
    return known;
}

bool isa_has_amx_bf16(void) { return isa_level() == 4 && has(query_cpuid().d7, AMX_7D); }
bool isa_has_avx512_bf16(void) { return isa_level() == 4 && has(query_cpuid().a71, BF16_71A); }
#else
int isa_level(void) { return 0; }
bool isa_has_amx_bf16(void) { return false; }
bool isa_has_avx512_bf16(void) { return false; }
#endif

/* Returns the size of a cache; reads it from the system only once. */
static int64_t cache_bytes(int name, _Atomic int64_t *known)
{
    if (*known < 0) {
        long bytes = sysconf(name);
        *known = bytes > 0 ? bytes : 0;
    }
    return *known;
}

int64_t isa_l2_bytes(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
    static _Atomic int64_t known = -1;
    return cache_bytes(_SC_LEVEL2_CACHE_SIZE, &known);
#else
    return 0;
#endif
}

int64_t isa_l3_bytes(void)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
    static _Atomic int64_t known = -1;
    return cache_bytes(_SC_LEVEL3_CACHE_SIZE, &known);
#else
    return 0;
#endif
}
