/* Optimisers on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(adamw)             \
    X(sgd)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_adamw.c"
