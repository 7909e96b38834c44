/* reduce — sums of whole tensors in double (reduce.h), in two stages whose order depends only on
 * the length: a block sums its run of the elements, then one block sums the runs. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;
constexpr int64_t RUN
= REDUCE_BLOCK_ELEMS, RUNS_MOST = 2048;

/* load_group — loads `of` elements from p, by one access or, without alignment, one by one. */
template <int W, int G, typename T>
__device__ static inline void load_group(float (&x)[G], const T *p, int of)
{
    if constexpr (W > 1) {
        load_n(x, p);
    } else {
#pragma unroll
        for (int j = 0; j < G; j++)
            x[j] = j < of ? to_float(p[j]) : 0;
    }
}

/* A thread adds groups of WIDE<T> neighbours, whatever the alignment: the order depends only on the
 * position in the run. */
template <typename T, int W, bool SQUARED>
__global__ void reduce_runs(double *partial, const T *x, int64_t n, int64_t run)
{
    constexpr int GROUP = WIDE<T>;
    int64_t first = blockIdx.x * run, end = first + run < n ? first + run : n;
    double sum = 0;
    for (int64_t i = first + threadIdx.x * GROUP; i < end; i += THREADS * GROUP) {
        float v[GROUP];
        load_group<W>(v, x + i, end - i < GROUP ? (int)(end - i) : GROUP);
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            sum += SQUARED ? (double)v[j] * v[j] : (double)v[j];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void reduce_partials(double *out, const double *partial, int64_t partials_n,
                                       bool accumulate)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < partials_n; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = accumulate ? *out + sum : sum;
}

/* Computes the sum of each run of `run` elements. */
template <bool SQUARED>
static int sum_runs(const struct cuda *cuda, double *partial, struct tensor x, int64_t n,
                    int64_t run)
{
    int64_t runs = ceil_div(n, run);
    if (runs == 0)
        return 0;
    return cuda_floats(x.dtype, [&](auto t) {
        using T = decltype(t);
        return cuda_wide<T>(all_aligned<T>(n, {x.data}), [&](auto w) {
            return cuda_launch(reduce_runs<T, decltype(w)::value, SQUARED>, (unsigned)runs, THREADS,
                               0, cuda->stream, partial, (const T *)x.data, n, run);
        });
    });
}

template <bool SQUARED>
static int launch_reduce(const struct cuda *cuda, struct tensor out, struct tensor x, int64_t n,
                         bool accumulate)
{
    int64_t run = round_up(n > RUN * RUNS_MOST ? ceil_div(n, RUNS_MOST) : RUN, RUN),
            runs = ceil_div(n, run);
    double *partial = (double *)cuda->scratch;
    CUDA_TRY(sum_runs<SQUARED>(cuda, partial, x, n, run));
    return cuda_launch(reduce_partials, 1, THREADS, 0, cuda->stream, (double *)out.data,
                       (const double *)partial, runs, accumulate);
}

extern "C" int sum_cuda(const struct cuda *cuda, const struct sum *a)
{
    return launch_reduce<false>(cuda, a->out, a->x, a->n, a->accumulate);
}

extern "C" int sumsq_cuda(const struct cuda *cuda, const struct sumsq *a)
{
    if (a->by_block)
        return sum_runs<true>(cuda, (double *)a->out.data, a->x, a->n, RUN);
    return launch_reduce<true>(cuda, a->out, a->x, a->n, a->accumulate);
}
