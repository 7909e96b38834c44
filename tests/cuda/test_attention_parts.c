/* Attention of a part of a model on the emulation of CUDA: the tests of the CPU's kernels
 * (emulated.h). */
#define EMULATED_LIST(X) \
    X(attention_fwd)     \
    X(attention_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_attention_parts.c"
