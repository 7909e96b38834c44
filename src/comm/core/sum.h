/* sum — the sum of several buffers, element by element, along the tree of sum_tree.h, at the speed
 * of memory. Must not know ranks or transports.
 *
 * There is a version for each of three ISA levels of x86-64, one for NEON and a plain one; the
 * level is chosen once. All give the same bits: the sum of an element depends only on its sources
 * and their tree. Its position, the number of elements, the ISA level and the chunking do not
 * matter. Single-threaded. */
#ifndef CONVOY_COMM_SUM_H
#define CONVOY_COMM_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

/* sum_run — out[o][i] = Σ_s in[s][i] along sum_tree_plan_nodes(nodes, locals); slot s of that plan
 * holds in[s].
 *   in     nodes·locals sources of `elems` elements; dtype_in F32, F64, BF16 or F16
 *   out    outs_n buffers; dtype_out = dtype_in, or F32 from BF16 or F16, or these from F32. An out
 *          may be one of the sources (same address); otherwise they do not overlap.
 *   is_nt  use non-temporal stores, which bypass the caches: for data larger than the caches. Other
 *          threads may read the result after sum_run has returned and this thread has executed a
 *          release.
 * BF16 and F16 are summed in fp32 and rounded once, to nearest even. */
struct sum_args {
    const void *const *in;
    void *const *out;
    int nodes, locals, outs_n;
    enum dtype dtype_in, dtype_out;
    int64_t elems;
    bool is_nt;
};
void sum_run(const struct sum_args *a);

/* sum_copy — copies `bytes` bytes, with non-temporal stores if is_nt. */
void sum_copy(void *out, const void *in, int64_t bytes, bool is_nt);

#endif
