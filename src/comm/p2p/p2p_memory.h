/* p2p_memory — where the buffers of large calls lie and what adds there: the host's memory, or the
 * memory of a GPU that UCX reads and writes itself.
 *
 * One table of functions for each kind of memory. Both kinds add along the same tree (sum_tree.h),
 * so a sum has the same bits in either. Must not know ranks' messages or calls. */
#ifndef CONVOY_COMM_P2P_MEMORY_H
#define CONVOY_COMM_P2P_MEMORY_H

#include "dev/dev.h"
#include "kernels/tensor.h"

struct p2p_memory {
    const struct p2p_memory_ops *ops;
    struct dev *dev;       /* GPU: the device; else NULL */
    struct stream *stream; /* GPU: runs the sums */
};

/* The sum of n sources of `elems` elements. Source s lies at slots + s·stride, but source own_i,
 * which lies at `own`. */
struct p2p_memory_sum {
    const char *slots, *own;
    int64_t stride_bytes;
    int own_i, nodes, locals; /* nodes·locals sources: the shape of the tree */
    enum dtype dtype, dtype_out;
    void *out;
    int64_t elems;
    const void **scratch; /* room for n pointers */
};

struct p2p_memory_ops {
    bool is_gpu;
    enum status (*alloc)(const struct p2p_memory *memory, int64_t bytes, void **out);
    void (*free)(const struct p2p_memory *memory, void *data, int64_t bytes); /* NULL data: no-op */
    /* sum: begins the sum; *is_done_out: it is over already. One sum at a time.
     * is_done: for a sum that was not over at once. */
    enum status (*sum)(const struct p2p_memory *memory, const struct p2p_memory_sum *sum,
                       bool *is_done_out);
    enum status (*is_done)(const struct p2p_memory *memory, bool *out);
};
extern const struct p2p_memory_ops p2p_memory_host, p2p_memory_gpu;

/* p2p_memory_alloc — host memory costs nothing until it is touched. p2p_memory_free — accepts a
 * zeroed memory with NULL data. */
static inline enum status p2p_memory_alloc(const struct p2p_memory *memory, int64_t bytes,
                                           void **out)
{
    return memory->ops->alloc(memory, bytes, out);
}
static inline void p2p_memory_free(const struct p2p_memory *memory, void *data, int64_t bytes)
{
    if (data != NULL)
        memory->ops->free(memory, data, bytes);
}

#endif
