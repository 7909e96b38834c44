/* dropout — alone, where no product folds it in: y = keep(i) ? x/(1-p) : 0. It is its own adjoint (same numbers, on dy). */
#ifndef CONVOY_KERNELS_DROPOUT_H
#define CONVOY_KERNELS_DROPOUT_H
#include "kernels/tensor.h"

/* out y (n) may be x | in x (n). Element index = its number. Exact. */
struct drop {
    struct tensor y, x;
    int64_t n;
    struct dropout dropout;
};
#endif
