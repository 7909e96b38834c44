/* RMSNorm of heads on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(head_norm_fwd)     \
    X(head_norm_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_head_norm.c"
