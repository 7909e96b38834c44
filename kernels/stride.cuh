/* stride — loops over rows and whole tensors: 16 bytes at a time if addresses allow, else one
 * element.
 *
 * A kernel is a template over the width W, and the launcher picks W by alignment, so both ways are
 * the same lines. Must not know operations. */
#ifndef CONVOY_KERNELS_STRIDE_CUH
#define CONVOY_KERNELS_STRIDE_CUH

#include <initializer_list>

#include "kernels/common.cuh"

/* load_n — loads W elements from p, which is aligned to W elements unless W is 1. */
template <int W, typename T> __device__ static inline void load_n(float (&x)[W], const T *p)
{
    if constexpr (W == 1)
        x[0] = to_float(*p);
    else
        load_floats(x, p);
}
/* store_n — stores W elements at p, which is aligned to W elements unless W is 1. */
template <int W, typename T> __device__ static inline void store_n(T *p, const float (&x)[W])
{
    if constexpr (W == 1)
        *p = from_float<T>(x[0]);
    else
        store_floats(p, x);
}

/* width — a number as a type: the argument of a launcher's lambda. */
template <int W> struct width {
    static constexpr int value = W;
};

/* cuda_wide — calls run(width<WIDE<T>>) if 16-byte accesses are possible, else run(width<1>). */
template <typename T, typename Run> static inline int cuda_wide(bool is_aligned, Run run)
{
    return is_aligned ? run(width<WIDE<T>>()) : run(width<1>());
}

/* all_aligned — returns true if the addresses of a launcher's tensors of one element type are
 * aligned; NULL counts as aligned. */
template <typename T>
static inline bool all_aligned(int64_t row_elems, std::initializer_list<const void *> list)
{
    for (const void *p : list)
        if (!cuda_aligned((const T *)p, row_elems))
            return false;
    return true;
}

/* cuda_blocks — returns the blocks of `threads` for n elements of work that a kernel strides
 * over. */
static inline unsigned cuda_blocks(const struct cuda *cuda, int64_t n, int threads)
{
    int64_t blocks = ceil_div(n, threads), most = (int64_t)cuda->sm_count * 16;
    return (unsigned)(blocks < most ? blocks : most);
}

/* thread_first — returns the thread's first index in a loop over a whole launch:
 * for (i = thread_first(); i < n; i += thread_step()) */
__device__ static inline int64_t thread_first(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
/* thread_step — returns the threads of the launch: the step of that loop. */
__device__ static inline int64_t thread_step(void) { return (int64_t)gridDim.x * blockDim.x; }

/* cuda_ranges — calls run(first, n) for one range of n elements after the other of elems_n, until
 * one fails. An int counts a range and the stride of a grid beyond its end, so a kernel's index
 * needs one register and no carry. The first address of a range has the alignment of the tensor. */
#ifdef CONVOY_EMU
constexpr int64_t RANGE_MOST = 1 << 16; /* for tests: several in a tensor that the host can hold */
#else
constexpr int64_t RANGE_MOST = 1 << 30;
#endif
template <typename Run> static inline int cuda_ranges(int64_t elems_n, Run run)
{
    int rc = 0;
    for (int64_t first = 0; first < elems_n && rc == 0; first += RANGE_MOST)
        rc = run(first, (int)(elems_n - first < RANGE_MOST ? elems_n - first : RANGE_MOST));
    return rc;
}

#endif
