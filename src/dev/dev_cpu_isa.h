/* dev_cpu_isa — the kernels of each level of x86-64, and which level this processor has. On
 * another architecture there is one: plain. Must not know threads, memory or streams. */
#ifndef CONVOY_DEV_DEV_CPU_LEVEL_H
#define CONVOY_DEV_DEV_CPU_LEVEL_H

#include "base/status.h"
#include "kernels/cpu.h"

struct dev_cpu_kernels {
#define DEV_CPU_ISA_ENTRY(name) void (*name)(const struct cpu *cpu, const struct name *a);
    OP_LIST(DEV_CPU_ISA_ENTRY)
#undef DEV_CPU_ISA_ENTRY
};

enum status dev_cpu_isa_choose(int asked, enum cpu_isa *out); /* asked: CPU_ISA_N the best */
struct dev_cpu_kernels dev_cpu_isa_kernels(enum cpu_isa level);
const char *dev_cpu_isa_name(enum cpu_isa level);
/* dev_cpu_isa_peak — fp32 FLOP/s of the best level here, whatever level computes: it is what the
 * machine could do. 0: not known. */
double dev_cpu_isa_peak(const struct cpu *cpu);
/* dev_cpu_isa_copy — memcpy past the cache, where the processor can: a line written whole need
 * not be read first, which is a third of a plain copy's traffic, and what training has in the cache
 * stays there. For copies that no cache would hold. */
void dev_cpu_isa_copy(char *dst, const char *src, size_t bytes);

#endif
