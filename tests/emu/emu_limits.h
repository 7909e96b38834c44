/* emu_limits — whether a GPU would accept a launch. For the emulation; must not know kernels. */
#ifndef CONVOY_TESTS_EMU_LIMITS_H
#define CONVOY_TESTS_EMU_LIMITS_H

#include "tests/emu/emu.h"

/* emu_limits_hold — checks the limits of CUDA that hold on every chip from sm_80 on:
 *   block        whole warps, at most 1024 threads, 64 in z; grid 2^31-1, 65535, 65535 blocks
 *   parameters   at most 4096 bytes
 *   shared       static and dynamic at most shared_most bytes; from 48 KiB on only after
 *                cudaFuncSetAttribute
 *   registers    threads × registers of the kernel, in eights, at most 65,536
 * With EMU_HIP those of gfx90a and gfx942: no cudaFuncSetAttribute, 2^32-1 threads in x, and 512
 * registers of a SIMD. Returns false and writes the reason when one is broken. Registers and static
 * shared memory are the most of all chips in tests/cuda/sass.tsv (tests/hip/isa.tsv); a kernel that
 * is not in it has neither. */
bool emu_limits_hold(const struct emu_launch *launch, size_t shared_most, char *why,
                     size_t why_bytes);

/* emu_symbol — the name of the function or variable of this program that contains the address, as
 * the linker knows it, or "?"; *offset: the bytes from its beginning. */
const char *emu_symbol(const void *p, size_t *offset);

#endif
