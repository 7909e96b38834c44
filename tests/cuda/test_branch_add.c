/* The end of a branch on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) X(branch_add)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_branch_add.c"
