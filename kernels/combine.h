/* combine — the sum of many sources, element by element, along a fixed tree. It adds the ranks'
 * contributions to gradients that lie in a device's memory. Must not know ranks or transports. */
#ifndef CONVOY_KERNELS_COMBINE_H
#define CONVOY_KERNELS_COMBINE_H
#include "kernels/tensor.h"

#define COMBINE_SOURCES_MAX 4096

/* combine — out[i] = the sum of the sources' i-th elements. The sum of sources [first, first+n) is
 * the sum of the left half plus the sum of the right half; the left half has the greatest power of
 * two below n. Within one node, comm's sum tree (sum.h) has the same order, so the bits are the
 * bits of comm's sums on the CPU.
 * out  out (elems)  dtype of the sources, or f32 from bf16 or f16, or these from f32; may be one of
 *      the sources (same address and dtype)
 * in   in  source s begins at element s·stride: elems elements of f32, bf16, f16 or f64; not read
 *      for s = own_i
 *      own (elems)  source own_i, dtype of in
 * Needs  1 ≤ sources_n ≤ COMBINE_SOURCES_MAX, 0 ≤ own_i < sources_n.
 * f64 is summed in f64, the others in f32 (rounded once, to nearest even, if out has 16 bits).
 * Exact, the same bits on every device, except for which NaN. */
struct combine {
    struct tensor out, in, own;
    int64_t elems, stride;
    int sources_n, own_i;
};
#endif
