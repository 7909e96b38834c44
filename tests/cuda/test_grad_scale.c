/* grad_scale on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) X(grad_scale)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_grad_scale.c"
