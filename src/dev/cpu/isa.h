/* dev_cpu_isa — the kernels of each ISA level, and the choice of a level for this processor: four
 * of x86-64, one of aarch64. Other architectures have one level: plain. Must not know threads,
 * memory or streams. */
#ifndef CONVOY_DEV_DEV_CPU_ISA_H
#define CONVOY_DEV_DEV_CPU_ISA_H

#include "base/status.h"
#include "kernels/cpu.h"

struct dev_cpu_kernels {
#define DEV_CPU_ISA_ENTRY(name) void (*name)(const struct cpu *cpu, const struct name *a);
    OP_LIST(DEV_CPU_ISA_ENTRY)
#undef DEV_CPU_ISA_ENTRY
};

/* dev_cpu_isa_choose — chooses a level: the requested enum cpu_isa, or the best for CPU_ISA_N.
 * ST_NO_DEVICE: this processor, or its kernel, does not have it. */
enum status dev_cpu_isa_choose(int asked, enum cpu_isa *out);
/* dev_cpu_isa_kernels — returns the kernels of a level that dev_cpu_isa_choose has returned. */
struct dev_cpu_kernels dev_cpu_isa_kernels(enum cpu_isa isa);
/* dev_cpu_isa_bf16 — replaces the products of this level by products with factors rounded to bf16.
 * False: the level, or this processor, has none. */
bool dev_cpu_isa_bf16(enum cpu_isa isa, struct dev_cpu_kernels *kernels);
const char *dev_cpu_isa_name(enum cpu_isa isa); /* "avx2" */

/* dev_cpu_isa_peak — returns fp32 FLOP/s of the best level of this machine, whatever level is in
 * use. Measures for some milliseconds. 0: unknown. */
double dev_cpu_isa_peak(const struct cpu *cpu);

/* dev_cpu_isa_copy — copies past the cache, if the processor can. A line that is written whole need
 * not be read first, which saves a third of a copy's traffic, and data of training stays in the
 * cache. For copies larger than any cache. */
void dev_cpu_isa_copy(char *dst, const char *src, size_t bytes);

#endif
