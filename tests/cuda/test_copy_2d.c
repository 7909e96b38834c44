/* Rows from one stride to another on the emulation of CUDA: the tests of the CPU's kernels
 * (emulated.h). */
#define EMULATED_LIST(X) X(copy_2d)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_copy_2d.c"
