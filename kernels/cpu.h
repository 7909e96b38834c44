/* cpu — the arguments that every CPU kernel gets besides its own, and the prototypes of all CPU
 * kernels.
 *
 * A family has a plain truth (norm.c: norm_fwd_plain; one thread, no tricks, sums in double where a
 * sum decides) and a fast version (norm_cpu.c). The Makefile compiles the fast version for
 * x86-64-v2, -v3 (AVX2) and -v4 (AVX-512); CPU_FN(norm_fwd) names it norm_fwd_v2, _v3 or _v4. On
 * aarch64 it compiles it once, for NEON: norm_fwd_neon. Dense products are compiled once more for
 * AMX tiles, _amx, and twice for factors rounded to bf16: _amx_bf16, _v4_bf16. The device picks one
 * version when it opens (dev/cpu/isa.h). All versions have one signature, so a whole model also
 * runs on the plain one.
 *
 * The result of a fast kernel does not depend on the number of threads: work is cut by shape, never
 * by thread. Must not know streams or devices. */
#ifndef CONVOY_KERNELS_CPU_H
#define CONVOY_KERNELS_CPU_H

#include "base/assert.h"
#include "base/thread_pool.h"
#include "kernels/op_list.h"

#define CPU_SCRATCH_BYTES ((size_t)8 << 20) /* scratch of each thread; page-aligned */
/* memory shared by all threads within one operation */
#define CPU_SHARED_BYTES ((size_t)32 << 20)

struct cpu {
    struct thread_pool *pool;
    char *scratch[THREAD_POOL_MAX]; /* thread_i's own CPU_SCRATCH_BYTES */
    char *shared;                   /* CPU_SHARED_BYTES */
};

/* cpu_ranges — returns the number of ranges of `each` elements that cover n elements. */
static inline int cpu_ranges(int64_t n, int64_t each)
{
    int64_t ranges = n / each + (n % each != 0);
    ASSERTF(ranges <= INT32_MAX, "%lld by %lld", (long long)n, (long long)each);
    return (int)ranges;
}

/* cpu_range_end — returns the end of range range_i; each range but the last has `each` elements. */
static inline int64_t cpu_range_end(int64_t n, int64_t each, int range_i)
{
    int64_t first = range_i * each;
    return n - first < each ? n : first + each;
}

/* The instruction set of the kernels. AMX: products (CPU_AMX_LIST) in AMX tiles, the rest as V4.
 * NEON is aarch64's; V2 to AMX are x86-64's. */
enum cpu_isa {
    CPU_ISA_PLAIN,
    CPU_ISA_V2,
    CPU_ISA_V3,
    CPU_ISA_V4,
    CPU_ISA_AMX,
    CPU_ISA_NEON,
    CPU_ISA_N
};
#define CPU_AMX_LIST(X) \
    X(matmul_fwd)       \
    X(matmul_bwd_x)     \
    X(matmul_bwd_w)

#define CPU_DECLARE(name)                                           \
    void name##_plain(const struct cpu *cpu, const struct name *a); \
    void name##_v2(const struct cpu *cpu, const struct name *a);    \
    void name##_v3(const struct cpu *cpu, const struct name *a);    \
    void name##_v4(const struct cpu *cpu, const struct name *a);    \
    void name##_neon(const struct cpu *cpu, const struct name *a);
OP_LIST(CPU_DECLARE)
#undef CPU_DECLARE
#define CPU_DECLARE_AMX(name)                                          \
    void name##_amx(const struct cpu *cpu, const struct name *a);      \
    void name##_amx_bf16(const struct cpu *cpu, const struct name *a); \
    void name##_v4_bf16(const struct cpu *cpu, const struct name *a);
CPU_AMX_LIST(CPU_DECLARE_AMX)
#undef CPU_DECLARE_AMX

/* In a *_cpu.c file, CPU_ISA is 2, 3 or 4, set by the Makefile. CPU_AMX: the vectors of 4, and
 * tiles. CPU_BF16: products of bf16, in tiles or without. CPU_NEON: CPU_ISA is 0. */
#if defined(CPU_NEON)
#define CPU_FN(name) name##_neon
#elif defined(CPU_AMX) && defined(CPU_BF16)
#define CPU_FN(name) name##_amx_bf16
#elif defined(CPU_BF16)
#define CPU_FN(name) name##_v4_bf16
#elif defined(CPU_AMX)
#define CPU_FN(name) name##_amx
#else
#define CPU_PASTE2(name, level) name##_v##level
#define CPU_PASTE(name, level) CPU_PASTE2(name, level)
#define CPU_FN(name) CPU_PASTE(name, CPU_ISA)
#endif

#endif
