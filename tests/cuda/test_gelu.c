/* GELU on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(gelu_fwd)          \
    X(gelu_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_gelu.c"
