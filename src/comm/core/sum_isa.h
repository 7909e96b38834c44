/* sum_isa — sum_run for one ISA level each, three of x86-64 and NEON of aarch64 (sum_cpu.c,
 * compiled once per level), and a plain version for any processor. sum.c chooses. Must not know how
 * it is chosen. */
#ifndef CONVOY_COMM_SUM_ISA_H
#define CONVOY_COMM_SUM_ISA_H

#include "comm/core/sum.h"

/* sum_isa_plain — computes the sums of sum_run on any processor. The caller fences non-temporal
 * stores. */
void sum_isa_plain(const struct sum_args *a);
/* sum_isa_v2 — computes the same on x86-64-v2. */
void sum_isa_v2(const struct sum_args *a);
/* sum_isa_v3 — computes the same on x86-64-v3. */
void sum_isa_v3(const struct sum_args *a);
/* sum_isa_v4 — computes the same on x86-64-v4. */
void sum_isa_v4(const struct sum_args *a);
/* sum_isa_neon — computes the same on aarch64 with NEON. */
void sum_isa_neon(const struct sum_args *a);

#endif
