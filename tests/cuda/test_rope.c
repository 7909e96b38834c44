/* Rotary positions on the emulation of CUDA: the tests of the CPU's kernels (emulated.h). */
#define EMULATED_LIST(X) \
    X(rope_table)        \
    X(rope)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_rope.c"
