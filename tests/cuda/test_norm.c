/* LayerNorm on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(norm_fwd)          \
    X(norm_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_norm.c"
