/* embed_rows — rows that are added to a table (embed_rows.h). The ids of one list differ, so a
 * launch for each list adds to each element once: no atomics, and sums in the order of lists. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* W columns a thread. first, elems and c are multiples of W. */
template <int W>
__global__ void __launch_bounds__(THREADS)
    embed_rows_list(float *out, const float *rows, const int32_t *ids, int64_t n, int64_t c,
                    int64_t first, int64_t elems)
{
    const int64_t groups = c / W;
    for (int64_t i = thread_first(); i < n * groups; i += thread_step()) {
        const int64_t row = i / groups, id = ids[row], at = id * c + i % groups * W - first;
        if (id < 0 || at < 0 || at >= elems)
            continue;
        float sum[W], x[W];
        load_n(sum, out + at);
        load_n(x, rows + i * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += x[j];
        store_n(out + at, sum);
    }
}

template <int W> static int launch(const struct cuda *cuda, const struct embed_rows_add *a)
{
    const unsigned blocks = cuda_blocks(cuda, a->n * (a->c / W), THREADS);
    for (int64_t list = 0; list < a->lists; list++)
        CUDA_TRY(cuda_launch(embed_rows_list<W>, blocks, THREADS, 0, cuda->stream,
                             (float *)a->out.data, (const float *)a->rows.data + list * a->n * a->c,
                             (const int32_t *)a->ids.data + list * a->n, a->n, a->c, a->first,
                             a->elems));
    return 0;
}

extern "C" int embed_rows_add_cuda(const struct cuda *cuda, const struct embed_rows_add *a)
{
    constexpr int W = 4;
    if (a->out.dtype != DTYPE_F32 || a->rows.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (a->n == 0 || a->elems == 0)
        return 0;
    const bool is_wide = a->first % W == 0 && a->elems % W == 0 &&
                         all_aligned<float>(a->c, {a->out.data, a->rows.data});
    return is_wide ? launch<W>(cuda, a) : launch<1>(cuda, a);
}
