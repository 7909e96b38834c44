/* combine — the sum of many sources, element by element, along a fixed tree: how contributions of
 * ranks to gradients that lie in a device's memory are added (comm/p2p/p2p_pipeline.h). */
#ifndef CONVOY_KERNELS_COMBINE_H
#define CONVOY_KERNELS_COMBINE_H
#include "kernels/tensor.h"

#define COMBINE_SOURCES_MAX 4096 /* sources */

/* combine — out[i] = sum of the sources' i-th elements. The sum of sources [first, first+n) is that
 * of the left half plus that of the right half, the left one being the greatest power of two below
 * n: the order of comm/order.h over one node, so the same bits as comm/add.h. In f32 for f32 and
 * bf16 (rounded once, to nearest even, where out is bf16), in f64 for f64.
 * out   (elems), dtype of the sources, or f32 from bf16, or bf16 from f32
 * in    source s: elems elements from element s·stride on, f32, bf16 or f64; not read for s = own_i
 * own   (elems) source own_i, dtype of in
 * out may be one of the sources (the same address and dtype), else it must not overlap any. 1 ≤
 *   sources_n ≤ COMBINE_SOURCES_MAX, 0 ≤ own_i < sources_n. Exact: the same bits on every level and
 *   device, but for which NaN. */
struct combine {
    struct tensor out, in, own;
    int64_t elems, stride;
    int sources_n, own_i;
};
#endif
