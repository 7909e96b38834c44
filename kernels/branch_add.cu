/* branch_add — bias, dropout and residual over whole rows (branch_add.h). x, residual and y have
 * one type; the sum is in float and rounded once. */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

template <typename T> struct branch_args {
    T *y;
    const T *x, *b, *residual; /* b NULL: no bias */
    int64_t n, c;              /* n: elements of all rows */
};

/* No row has the end of a thread's W elements inside: C is a multiple of W. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    branch_add_wide(struct branch_args<T> a, struct drop_args drop)
{
    for (int64_t i = thread_first() * W; i < a.n; i += thread_step() * W) {
        float x[W], b[W] = {}, residual[W], factor[W];
        load_n(x, a.x + i);
        load_n(residual, a.residual + i);
        if (a.b)
            load_n(b, a.b + i % a.c);
        drop_factors(factor, drop, (uint64_t)i);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = residual[j] + (factor[j] == 0 ? 0.0f : (x[j] + b[j]) * factor[j]);
        store_n(a.y + i, x);
    }
}

extern "C" int branch_add_cuda(const struct cuda *cuda, const struct branch_add *a)
{
    if (a->n == 0)
        return 0;
    if (a->y.dtype != a->x.dtype || a->residual.dtype != a->x.dtype ||
        (a->b.data && a->b.dtype != a->x.dtype))
        return CUDA_REFUSAL_DTYPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        struct branch_args<T> args = {
            (T *)a->y.data, (const T *)a->x.data, (const T *)a->b.data,
                (const T *)a->residual.data, a->n * a->c, a->c
        };
        return cuda_wide<T>(
            all_aligned<T>(a->c, {a->y.data, a->x.data, a->b.data, a->residual.data}), [&](auto w) {
                constexpr int W = decltype(w)::value;
                return cuda_launch(branch_add_wide<T, W>, cuda_blocks(cuda, args.n / W, THREADS),
                                   THREADS, 0, cuda->stream, args, drop_args_of(cuda, &a->dropout));
            });
    });
}
