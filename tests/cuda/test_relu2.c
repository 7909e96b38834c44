/* The squared ReLU on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(relu2_fwd)         \
    X(relu2_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_relu2.c"
