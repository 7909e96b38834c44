/* combine — sums of many sources along a fixed tree (combine.h).
 *
 * A thread adds the sources in their order and keeps the sums of finished left halves, one for each
 * power of two, like the digits of a binary counter: source s closes one half for each trailing one
 * bit of s. So the tree needs registers only, and each source is read once. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* levels_of — returns the number of digits of a counter up to n. */
constexpr int levels_of(int n) { return n == 0 ? 0 : 1 + levels_of(n / 2); }
constexpr int FEW = 15; /* sources: fewer digits, fewer registers */

struct combine_sources {
    const char *in, *own;
    int64_t stride; /* bytes */
    int n, own_i;
};

/* load_sum, store_sum — move W elements in the type in which they are added. */
template <typename T, int W> __device__ static inline void load_sum(float (&x)[W], const T *p)
{
    load_n(x, p);
}
__device__ static inline void load_sum(double (&x)[1], const double *p) { x[0] = *p; }
template <typename T, int W> __device__ static inline void store_sum(T *p, const float (&x)[W])
{
    store_n(p, x);
}
__device__ static inline void store_sum(double *p, const double (&x)[1]) { *p = x[0]; }

template <typename Sum, int W>
__device__ static inline void add_left(Sum (&right)[W], const Sum (&left)[W])
{
#pragma unroll
    for (int j = 0; j < W; j++)
        right[j] = left[j] + right[j];
}

template <typename Sum, int W>
__device__ static inline void keep(Sum (&to)[W], const Sum (&from)[W])
{
#pragma unroll
    for (int j = 0; j < W; j++)
        to[j] = from[j];
}

template <typename To, typename From, typename Sum, int W, int LEVELS>
__global__ void __launch_bounds__(THREADS) combine_tree(To *out, combine_sources sources, int64_t n)
{
    for (int64_t i = thread_first() * W; i < n; i += thread_step() * W) {
        Sum left[LEVELS][W], sum[W] = {};
        for (int s = 0; s < sources.n; s++) {
            const char *from = s == sources.own_i ? sources.own : sources.in + s * sources.stride;
            bool is_open = true;
            load_sum(sum, (const From *)from + i);
#pragma unroll
            for (int level = 0; level < LEVELS; level++) {
                if (is_open && (s >> level & 1))
                    add_left(sum, left[level]);
                else if (is_open) {
                    keep(left[level], sum);
                    is_open = false;
                }
            }
        }
        bool is_first = true; /* the remaining halves, from the smallest on */
#pragma unroll
        for (int level = 0; level < LEVELS; level++) {
            if (!(sources.n >> level & 1))
                continue;
            if (is_first)
                keep(sum, left[level]);
            else
                add_left(sum, left[level]);
            is_first = false;
        }
        store_sum(out + i, sum);
    }
}

template <typename To, typename From, typename Sum, int W>
static int launch_combine(const struct cuda *cuda, const struct combine *a)
{
    const combine_sources sources = {(const char *)a->in.data, (const char *)a->own.data,
                                     a->stride * (int64_t)sizeof(From), a->sources_n, a->own_i};
    const unsigned blocks = cuda_blocks(cuda, ceil_div(a->elems, W), THREADS);
    auto kernel = a->sources_n <= FEW
                      ? combine_tree<To, From, Sum, W, levels_of(FEW)>
                      : combine_tree<To, From, Sum, W, levels_of(COMBINE_SOURCES_MAX)>;
    return cuda_launch(kernel, blocks, THREADS, 0, cuda->stream, (To *)a->out.data, sources,
                       a->elems);
}

template <typename To, typename From>
static int launch_wide(const struct cuda *cuda, const struct combine *a)
{
    constexpr int W = 4;
    bool is_wide = a->elems % W == 0 && a->stride % W == 0 &&
                   all_aligned<To>(a->elems, {a->out.data}) &&
                   all_aligned<From>(a->elems, {a->in.data, a->own.data}) &&
                   (a->sources_n == 1 || all_aligned<From>(a->stride, {a->in.data}));
    return is_wide ? launch_combine<To, From, float, W>(cuda, a)
                   : launch_combine<To, From, float, 1>(cuda, a);
}

/* Combines 16-bit elements, or converts from or to them; half: the dtype of Half. */
template <typename Half>
static int launch_half(const struct cuda *cuda, const struct combine *a, enum dtype half)
{
    const enum dtype from = a->in.dtype, to = a->out.dtype;
    if ((from != half && from != DTYPE_F32) || (to != half && to != DTYPE_F32))
        return CUDA_REFUSAL_DTYPE;
    if (to == DTYPE_F32)
        return launch_wide<float, Half>(cuda, a);
    return from == half ? launch_wide<Half, Half>(cuda, a) : launch_wide<Half, float>(cuda, a);
}

extern "C" int combine_cuda(const struct cuda *cuda, const struct combine *a)
{
    if (a->elems == 0)
        return 0;
    if (a->sources_n < 1 || a->sources_n > COMBINE_SOURCES_MAX)
        return CUDA_REFUSAL_SHAPE;
    const enum dtype from = a->in.dtype, to = a->out.dtype;
    if (from == DTYPE_F64 && to == DTYPE_F64)
        return launch_combine<double, double, double, 1>(cuda, a);
    if (from == DTYPE_F32 && to == DTYPE_F32)
        return launch_wide<float, float>(cuda, a);
    if (from == DTYPE_BF16 || to == DTYPE_BF16)
        return launch_half<bf16>(cuda, a, DTYPE_BF16);
    return launch_half<f16>(cuda, a, DTYPE_F16);
}
