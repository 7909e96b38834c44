/* dev_cpu_level — see dev_cpu_level.h. */
#include "dev/dev_cpu_level.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <string.h>

#include "base/isa.h"
#include "base/must.h"
#include "kernels/probe.h"

static const char *const level_name[CPU_LEVEL_N] = {"plain", "sse4", "avx2", "avx512", "amx"};

#define ROW_PLAIN(name) .name = name##_plain,
#if defined(__x86_64__)
#define ROW_V2(name) .name = name##_v2,
#define ROW_V3(name) .name = name##_v3,
#define ROW_V4(name) .name = name##_v4,
static const struct dev_cpu_kernels level_kernels[CPU_LEVEL_N] = {
    [CPU_LEVEL_PLAIN] = {OP_LIST(ROW_PLAIN)}, [CPU_LEVEL_V2] = {OP_LIST(ROW_V2)},
    [CPU_LEVEL_V3] = {OP_LIST(ROW_V3)},       [CPU_LEVEL_V4] = {OP_LIST(ROW_V4)},
    [CPU_LEVEL_AMX] = {OP_LIST(ROW_V4)}, /* but for its products, see dev_cpu_level_kernels */
};

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

/* Tiles are 8 KiB of state that a process must ask for before a thread of it uses them; asking
 * twice is no harm. The kernel refuses where it has no AMX, or where an alternate signal stack
 * could not hold them. */
static bool amx_is_here(void)
{
    return isa_has_amx_bf16() &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool level_is_here(enum cpu_level level)
{
    return level == CPU_LEVEL_PLAIN ||
           (level < CPU_LEVEL_AMX ? isa_level() > (int)level : amx_is_here());
}

struct dev_cpu_kernels dev_cpu_level_kernels(enum cpu_level level)
{
    struct dev_cpu_kernels kernels = level_kernels[level];
#define SET_AMX(name) kernels.name = name##_amx;
    if (level == CPU_LEVEL_AMX) {
        CPU_AMX_LIST(SET_AMX)
    }
#undef SET_AMX
    return kernels;
}

static double peak_once(const struct cpu *cpu)
{
    return level_is_here(CPU_LEVEL_AMX)  ? probe_amx(cpu, 0.002)
           : level_is_here(CPU_LEVEL_V4) ? probe_fma_v4(cpu, 0.002)
           : level_is_here(CPU_LEVEL_V3) ? probe_fma_v3(cpu, 0.002)
           : level_is_here(CPU_LEVEL_V2) ? probe_fma_v2(cpu, 0.002)
                                         : 0;
}

void dev_cpu_level_copy(char *dst, const char *src, size_t bytes)
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
static bool level_is_here(enum cpu_level level) { return level == CPU_LEVEL_PLAIN; }

struct dev_cpu_kernels dev_cpu_level_kernels(enum cpu_level level)
{
    (void)level;
    return (struct dev_cpu_kernels){OP_LIST(ROW_PLAIN)};
}

static double peak_once(const struct cpu *cpu)
{
    (void)cpu;
    return 0;
}

void dev_cpu_level_copy(char *dst, const char *src, size_t bytes) { memcpy(dst, src, bytes); }
#endif

enum status dev_cpu_level_choose(int asked, enum cpu_level *out)
{
    ASSERTF(asked >= 0 && asked <= CPU_LEVEL_N, "level %d", asked);
    int level = asked;
    if (asked == CPU_LEVEL_N)
        for (level = CPU_LEVEL_N - 1; !level_is_here((enum cpu_level)level);)
            level--;
    if (!level_is_here((enum cpu_level)level))
        return FAIL(ST_NO_DEVICE, "this processor has no %s (x86-64-v%d%s); choose a lower level",
                    level_name[level], level < CPU_LEVEL_AMX ? level + 1 : 4,
                    level < CPU_LEVEL_AMX ? "" : " with AMX tiles of bf16");
    *out = (enum cpu_level)level;
    return ST_OK;
}

const char *dev_cpu_level_name(enum cpu_level level) { return level_name[level]; }

/* The best of three short looks: a core may wake up slowly, or be shared for a moment. */
double dev_cpu_level_peak(const struct cpu *cpu)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double flops = peak_once(cpu);
        best = flops > best ? flops : best;
    }
    return best;
}
