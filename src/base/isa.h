/* isa — which level of x86-64 (the psABI's) the processor and its kernel have. Asked of the
 * processor itself, for compilers know different names. Must not know kernels. */
#ifndef CONVOY_BASE_ISA_H
#define CONVOY_BASE_ISA_H

#include <stdbool.h>

int isa_level(void); /* 1 to 4: x86-64, -v2, -v3, -v4; 0: another architecture */
/* -v4 and AMX tiles of bf16; the kernel is still to be asked for the state of tiles */
bool isa_has_amx_bf16(void);

#endif
