/* Cross-entropy on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(xent)              \
    X(qa_xent)           \
    X(xent_part)         \
    X(xent_join)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_xent.c"
