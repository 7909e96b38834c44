/* The division of neurons by their root mean square on the emulation of CUDA: the tests of the
 * CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) X(normuon)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_normuon.c"
