/* isa — the x86-64 level (of the psABI) that the processor and its kernel support, NEON, and the
 * sizes of the caches. Reads them from the processor itself, because compilers use different names.
 * Must not know kernels. */
#ifndef CONVOY_BASE_ISA_H
#define CONVOY_BASE_ISA_H

#include <stdbool.h>
#include <stdint.h>

int isa_level(void); /* 1 to 4: x86-64, -v2, -v3, -v4; 0: another architecture */
/* isa_has_amx_bf16 — returns true if the processor has -v4 and AMX tiles of bf16. The kernel must
 * also grant the tiles' state. */
bool isa_has_amx_bf16(void);
bool isa_has_avx512_bf16(void); /* -v4 and dot products of bf16 */
/* isa_has_neon — returns true if the processor has aarch64's vectors (Advanced SIMD); false on
 * other architectures. */
bool isa_has_neon(void);
/* isa_l2_bytes — returns the size of a core's second-level cache; 0: unknown. */
int64_t isa_l2_bytes(void);
/* isa_l3_bytes — returns the size of a third-level cache, which cores share; 0: unknown. */
int64_t isa_l3_bytes(void);

#endif
