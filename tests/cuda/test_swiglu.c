/* SwiGLU on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(swiglu_fwd)        \
    X(swiglu_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_swiglu.c"
