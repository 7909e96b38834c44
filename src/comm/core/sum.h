/* sum — the sum of several buffers, element by element, in the order of sum_tree.h, at the speed of
 * memory.
 *
 * Vectorised for three levels of x86-64, picked once. The sum of an element depends on nothing but
 * the sources and their tree: not on its place, the number of elements, the level, or how a buffer
 * is cut. Single thread. Must not know ranks or transports. */
#ifndef CONVOY_COMM_SUM_H
#define CONVOY_COMM_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

/* out[o][i] = Σ_s in[s][i] along sum_tree_plan_nodes(nodes, locals), the source of a slot being
 * in[slot].
 * in   nodes·locals sources of elems elements, dtype_in F32, F64 or BF16
 * out  outs_n buffers; dtype_out = dtype_in, or F32 from BF16, or BF16 from F32. Sums of BF16 are
 *   taken in fp32 and rounded
 *      once, to nearest even. An out may be one of the in (the same address), else they do not
 *      overlap.
 * stream  store past the caches: for what is larger than they are. Readable by others once sum_run
 *   has returned and this
 *      thread has passed a release. */
struct sum_args {
    const void *const *in;
    void *const *out;
    int nodes, locals, outs_n;
    enum dtype dtype_in, dtype_out;
    int64_t elems;
    bool is_nt;
};
void sum_run(const struct sum_args *a);

/* sum_copy — elems bytes, past the caches if stream. */
void sum_copy(void *out, const void *in, int64_t bytes, bool is_nt);

#endif
