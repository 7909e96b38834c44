/* Rows that are added to a table, on the emulation of CUDA: the tests of the CPU's kernels
 * (emulated.h). */
#define EMULATED_LIST(X) X(embed_rows_add)
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_embed_rows.c"
