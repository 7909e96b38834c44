/* Embedding on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(embed_fwd)         \
    X(embed_bwd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_embed.c"
