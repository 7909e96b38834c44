/* reduce — sums of whole tensors in double. The order is fixed by the length: blocks of 4096, then
 * pairwise. Must not know the meaning of the numbers. */
#ifndef CONVOY_KERNELS_REDUCE_H
#define CONVOY_KERNELS_REDUCE_H
#include "kernels/tensor.h"

#define REDUCE_BLOCK_ELEMS 4096

/* sum — *out (+)= Σ x;  sumsq — *out (+)= Σ x².
 * out  out (1) f64  added to when accumulate, else replaced | in  x (n)
 * by_block: out (⌈n / REDUCE_BLOCK_ELEMS⌉) f64 is replaced by the sum of each block, whose bits
 * depend only on the block. Without accumulate. */
struct sum {
    struct tensor out, x;
    int64_t n;
    bool accumulate;
};
struct sumsq {
    struct tensor out, x;
    int64_t n;
    bool accumulate, by_block;
};
#endif
