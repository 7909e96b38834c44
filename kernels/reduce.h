/* reduce — sums of whole tensors in double, in an order fixed by the length (blocks of 4096, then
 * pairwise). */
#ifndef CONVOY_KERNELS_REDUCE_H
#define CONVOY_KERNELS_REDUCE_H
#include "kernels/tensor.h"

/* sum — *out (+)= Σ x;  sumsq — *out (+)= Σ x². out (1) f64: added to when accumulate, else written
 *   | in x (n). */
struct sum {
    struct tensor out, x;
    int64_t n;
    bool accumulate;
};
struct sumsq {
    struct tensor out, x;
    int64_t n;
    bool accumulate;
};
#endif
