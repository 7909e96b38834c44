/* Races, unset memory and limits of the kernels in the form for AMD GPUs:
 * tests/cuda/test_access_shapes.c. */
#include "tests/cuda/test_access_shapes.c"
