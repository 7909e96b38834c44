/* Sums along a tree on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) X(combine)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_combine.c"
