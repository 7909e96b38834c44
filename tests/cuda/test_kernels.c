/* The tests of the CPU's kernels (tests/unit/kernels) with the CUDA kernels, on the emulation:
 * emu.mk compiles each of its files after emulated.h. */
#include "tests/harness_groups.c"
