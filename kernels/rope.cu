/* rope — the table of rotations, and the rotation of query and key heads (rope.h).
 *
 * A warp processes a row. A group of lanes rotates one head, each lane W pairs, and the warp's
 * groups alternate over the heads, so a lane reads its entries of the table once for all heads. A
 * pair's two elements are R/2 apart: both are read and written by one lane. */
#include "kernels/stride.cuh"

constexpr int WARPS = 8, THREADS = 256;

/* ---- the table ---- */

/* Returns cosine and sine of an angle up to 2^24, to the last bit of f32 or its neighbour: in
 * double, the angle minus a multiple of π/2 in two terms, then their Taylor series. CUDA's own
 * functions need local memory for such large angles. */
__device__ static inline float2 rotation_of(float angle)
{
    double turns = rint((double)angle * 0.63661977236758134308);
    double r = fma(-turns, 1.57079632679489655800, (double)angle);
    r = fma(-turns, 6.12323399573676603587e-17, r);
    double z = r * r, s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = fma(s, z, 1.0 / 362880), c = fma(c, z, -1.0 / 3628800);
    s = fma(s, z, -1.0 / 5040), c = fma(c, z, 1.0 / 40320);
    s = fma(s, z, 1.0 / 120), c = fma(c, z, -1.0 / 720);
    s = fma(s, z, -1.0 / 6), c = fma(c, z, 1.0 / 24);
    s = fma(s * z, r, r), c = fma(fma(c, z, -0.5), z, 1.0);
    int quadrant = (int)turns & 3;
    double cosine = quadrant & 1 ? s : c, sine = quadrant & 1 ? c : s;
    return make_float2((float)(quadrant == 1 || quadrant == 2 ? -cosine : cosine),
                       (float)(quadrant >= 2 ? -sine : sine));
}

struct frequencies {
    float of[ROPE_FREQ_MAX];
};

static __global__ void __launch_bounds__(THREADS)
    rope_table_pairs(float *table, struct frequencies freq, int64_t first, int64_t t, int pairs,
                     float scale)
{
    for (int64_t i = thread_first(); i < t * pairs; i += thread_step()) {
        float position = (float)(first + i / pairs);
        float2 x = rotation_of(position * freq.of[i % pairs]);
        const float both[2] = {x.x * scale, x.y * scale};
        store_floats(table + 2 * i, both);
    }
}

extern "C" int rope_table_cuda(const struct cuda *cuda, const struct rope_table *a)
{
    struct frequencies freq = {};
    if (a->table.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (a->rot < 2 || a->rot > 2 * ROPE_FREQ_MAX || (uintptr_t)a->table.data % 8 != 0)
        return CUDA_REFUSAL_SHAPE;
    if (a->t == 0)
        return 0;
    for (int i = 0; i < (int)a->rot / 2; i++)
        freq.of[i] = a->freq[i];
    return cuda_launch(rope_table_pairs, cuda_blocks(cuda, a->t * (a->rot / 2), THREADS), THREADS,
                       0, cuda->stream, (float *)a->table.data, freq, a->first, a->t,
                       (int)a->rot / 2, a->scale);
}

/* ---- the rotation ---- */

struct rope_args {
    const float *table;
    struct attention_row at;
    int64_t n, t, heads, h;
    int pairs, lanes; /* lanes: lanes for one head */
    bool inverse;
};

/* Rotates W pairs of one head. */
template <typename T, int W>
__device__ static inline void rope_pairs(T *x, int pairs, const float (&rotation)[2 * W],
                                         float sign)
{
    float a[W], b[W];
    load_n(a, x);
    load_n(b, x + pairs);
#pragma unroll
    for (int j = 0; j < W; j++) {
        float c = rotation[2 * j], s = sign * rotation[2 * j + 1], x1 = a[j];
        a[j] = x1 * c - b[j] * s;
        b[j] = b[j] * c + x1 * s;
    }
    store_n(x, a);
    store_n(x + pairs, b);
}

template <typename T, int W>
__global__ void __launch_bounds__(WARPS *WARP) rope_rows(T *x, struct rope_args r)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP, group = lane / r.lanes, groups = WARP / r.lanes;
    if (row >= r.n || group >= groups)
        return;
    const float *table = r.table + row % r.t * 2 * r.pairs;
    float sign = r.inverse ? -1.0f : 1.0f;
    for (int pair = lane % r.lanes * W; pair < r.pairs; pair += r.lanes * W) {
        float rotation[2 * W];
        load_floats(rotation, table + 2 * pair);
        for (int64_t i = group; i < r.heads; i += groups) {
            int64_t head = i < r.h ? i * r.at.head : r.at.k + (i - r.h) * r.at.head;
            rope_pairs<T, W>(x + row * r.at.row + head + pair, r.pairs, rotation, sign);
        }
    }
}

extern "C" int rope_cuda(const struct cuda *cuda, const struct rope *a)
{
    int64_t pairs = a->rot / 2;
    if (a->n == 0)
        return 0;
    if (a->table.dtype != DTYPE_F32)
        return CUDA_REFUSAL_DTYPE;
    if (a->rot > 2 * ROPE_FREQ_MAX || ceil_div(a->n, WARPS) > INT32_MAX ||
        (uintptr_t)a->table.data % 8 != 0)
        return CUDA_REFUSAL_SHAPE;
    return cuda_floats(a->x.dtype, [&](auto t) {
        using T = decltype(t);
        bool is_aligned = all_aligned<T>(a->d, {a->x.data}) && all_aligned<T>(pairs, {a->x.data}) &&
                          all_aligned<float>(a->rot, {a->table.data});
        return cuda_wide<T>(is_aligned, [&](auto w) {
            constexpr int W = decltype(w)::value;
            int64_t lanes = ceil_div(pairs, W);
            struct rope_args r = {(const float *)a->table.data,
                                  attention_row_of(a->layout, a->h, a->hk, a->d),
                                  a->n,
                                  a->t,
                                  a->h + a->hk,
                                  a->h,
                                  (int)pairs,
                                  (int)(lanes < WARP ? lanes : WARP),
                                  a->inverse};
            return cuda_launch(rope_rows<T, W>, (unsigned)ceil_div(a->n, WARPS), WARPS * WARP, 0,
                               cuda->stream, (T *)a->x.data, r);
        });
    });
}
