/* The tests of the kernels' families and products in the form for AMD GPUs, on the emulation:
 * tests/unit/kernels, tests/cuda/test_matmul.c and test_rows.c (emu.mk). */
#include "tests/harness_groups.c"
