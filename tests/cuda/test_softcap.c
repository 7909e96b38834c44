/* The soft cap of logits on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(softcap)           \
    X(xent)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_softcap.c"
