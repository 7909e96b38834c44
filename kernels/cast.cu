/* cast — 16 bytes of the wider type at a time, if addresses allow (cast.h). */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

template <typename To, typename From, int W>
__global__ void cast_wide(To *y, const From *x, int64_t n)
{
    for (int64_t i = thread_first() * W; i < n; i += thread_step() * W) {
        float v[W];
        load_n(v, x + i);
        store_n(y + i, v);
    }
}

template <typename To, typename From>
static int cast_launch(const struct cuda *cuda, const struct cast *a)
{
    constexpr int W = 4;
    bool is_wide = all_aligned<To>(a->n, {a->y.data}) && all_aligned<From>(a->n, {a->x.data});
    To *y = (To *)a->y.data;
    const From *x = (const From *)a->x.data;
    if (is_wide && a->n % W == 0)
        return cuda_launch(cast_wide<To, From, W>, cuda_blocks(cuda, a->n / W, THREADS), THREADS, 0,
                           cuda->stream, y, x, a->n);
    return cuda_launch(cast_wide<To, From, 1>, cuda_blocks(cuda, a->n, THREADS), THREADS, 0,
                       cuda->stream, y, x, a->n);
}

extern "C" int cast_cuda(const struct cuda *cuda, const struct cast *a)
{
    if (a->n == 0)
        return 0;
    return cuda_floats(a->x.dtype, [&](auto from) {
        return cuda_floats(a->y.dtype, [&](auto to) {
            return cast_launch<decltype(to), decltype(from)>(cuda, a);
        });
    });
}
