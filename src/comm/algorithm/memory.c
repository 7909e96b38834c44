/* comm_memory — the memory of the buffers of large calls, and the processor that adds: host memory,
 * or the memory of a GPU that UCX reads and writes itself.
 *
 * One table of functions for each kind of memory. Both kinds add along the same tree (sum.h), so a
 * sum has the same bits in either. Must not know ranks' messages or calls. */
#include "comm/algorithm/direct.h"

#include "comm/core/sum.h"
#include "comm/core/transport.h"

/* ---- the host's ---- */

static enum status host_alloc(const struct comm_memory *memory, int64_t bytes, void **out)
{
    (void)memory;
    return transport_reserve(bytes, out);
}

static void host_free(const struct comm_memory *memory, void *data, int64_t bytes)
{
    (void)memory;
    transport_unmap(data, bytes);
}

static enum status host_sum(const struct comm_memory *memory, const struct comm_memory_sum *sum,
                            bool *is_done_out)
{
    (void)memory;
    for (int s = 0; s < sum->nodes * sum->locals; s++)
        sum->scratch[s] = s == sum->own_i ? sum->own : sum->slots + s * sum->stride_bytes;
    sum_run(&(struct sum_args){.in = sum->scratch,
                               .out = &sum->out,
                               .nodes = sum->nodes,
                               .locals = sum->locals,
                               .outs_n = 1,
                               .dtype_in = sum->dtype,
                               .dtype_out = sum->dtype_out,
                               .elems = sum->elems});
    *is_done_out = true;
    return ST_OK;
}

static enum status host_is_done(const struct comm_memory *memory, bool *out)
{
    (void)memory;
    *out = true;
    return ST_OK;
}

const struct comm_memory_ops comm_memory_host = {
    .alloc = host_alloc, .free = host_free, .sum = host_sum, .is_done = host_is_done};

/* ---- a GPU's ---- */

_Static_assert(COMM_RANKS_MAX <= COMBINE_SOURCES_MAX, "one kernel adds what all ranks send");

static enum status gpu_alloc(const struct comm_memory *memory, int64_t bytes, void **out)
{
    return dev_alloc(memory->dev, (size_t)bytes, out);
}

static void gpu_free(const struct comm_memory *memory, void *data, int64_t bytes)
{
    dev_free(memory->dev, data, (size_t)bytes);
}

static enum status gpu_sum(const struct comm_memory *memory, const struct comm_memory_sum *sum,
                           bool *is_done_out)
{
    const int64_t elem_bytes = (int64_t)dtype_bytes(sum->dtype);
    const struct combine args = {.out = {sum->out, sum->dtype_out},
                                 .in = {(void *)(uintptr_t)sum->slots, sum->dtype},
                                 .own = {(void *)(uintptr_t)sum->own, sum->dtype},
                                 .elems = sum->elems,
                                 .stride = sum->stride_bytes / elem_bytes,
                                 .sources_n = sum->nodes * sum->locals,
                                 .own_i = sum->own_i};
    *is_done_out = false;
    return dev_op(memory->dev)->combine(memory->stream, &args);
}

/* Queries the stream, because a GPU does not report the end of a kernel. */
static enum status gpu_is_done(const struct comm_memory *memory, bool *out)
{
    return dev_stream_query(memory->stream, out);
}

const struct comm_memory_ops comm_memory_gpu = {
    .is_gpu = true, .alloc = gpu_alloc, .free = gpu_free, .sum = gpu_sum, .is_done = gpu_is_done};
