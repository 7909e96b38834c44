/* tensor_core — a warp's matrix products, the loads that feed them, and asynchronous copies into
 * shared memory. Must not know operations.
 *
 * All inline PTX of the program except exp2_quick and rcp_quick (common.cuh), for sm_80 and later;
 * under the emulation the same wrappers call tests/emu. Fragments are laid out as in the PTX manual
 * (lane = 4·g + t):
 *   m16n8k16 (bf16, f16), two elements a word, the lower one in the low half
 *     a[0] rows g,   columns 2t,2t+1    a[1] rows g+8 | a[2], a[3] the same at columns 2t+8,2t+9
 *     b[0] rows (k) 2t,2t+1 of column g | b[1] rows 2t+8,2t+9
 *   m16n8k8 (tf32)
 *     a[0] (g,t)  a[1] (g+8,t)  a[2] (g,t+4)  a[3] (g+8,t+4) | b[0] (t,g)  b[1] (t+4,g)
 *   d[0], d[1] row g, columns 2t, 2t+1; d[2], d[3] row g+8
 * So d of one product, packed in pairs, is a of the next: a[0] = d[0],d[1]; a[1] = d[2],d[3]; a[2],
 * a[3] of the next 8 columns. */
#ifndef CONVOY_KERNELS_TENSOR_CORE_CUH
#define CONVOY_KERNELS_TENSOR_CORE_CUH

#include "kernels/common.cuh"

#ifdef CONVOY_HIP
/* ---- AMD GPUs: the same fragments. A warp is half of a wavefront and exchanges factors by
 * shuffles. This is right and slow: no matrix instruction (MFMA) is used, whose fragments are laid
 * out over 64 lanes. The emulation runs it as it is. ---- */

/* An address in shared memory; in the emulation an offset in the launch's. HIP_AT is the
 * pointer. */
using shared_at = uint32_t;
#ifdef CONVOY_EMU
#define HIP_AT(type, at) ((type *)(emu_shared() + (at)))
__device__ static inline shared_at shared_address(const void *p)
{
    return (shared_at)((const unsigned char *)p - emu_shared());
}
#else
#define HIP_AT(type, at) ((__attribute__((address_space(3))) type *)(uintptr_t)(at))
__device__ static inline shared_at shared_address(const void *p)
{
    return (shared_at)(uintptr_t)(const __attribute__((address_space(3))) void *)p;
}
#endif

/* warp_words — N words of each lane, which the lanes of the warp read from one another; all lanes
 * call `of` together. */
#ifndef CONVOY_EMU
template <int N> struct warp_words {
    const uint32_t (&own)[N];
    __device__ explicit warp_words(const uint32_t (&x)[N]) : own(x) {}
    __device__ uint32_t of(int lane, int i) const { return __shfl_sync(WARP_ALL, own[i], lane); }
};
#endif

/* Adds to d, for two numbers of k, the products of two rows of a and two columns of b. */
template <typename T>
__device__ static inline void mma_pairs(float (&d)[4], const uint32_t (&row)[2],
                                        const uint32_t (&column)[2])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        d[i] = fmaf(unpack_low<T>(row[i / 2]), unpack_low<T>(column[i % 2]), d[i]);
        d[i] = fmaf(unpack_high<T>(row[i / 2]), unpack_high<T>(column[i % 2]), d[i]);
    }
}

/* The words of row g lie in the lanes 4g … 4g+3, those of column 2t in the lanes 8t … 8t+3. */
template <typename T>
__device__ static inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    int lane = (int)threadIdx.x % WARP, row = lane / 4 * 4, column = lane % 4 * 8;
    const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const warp_words<6> warp(own);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll 1 /* kernels unroll their products, and the code would be eight times as long */
        for (int i = 0; i < 4; i++) { /* k 8·half + 2i and the next */
            const uint32_t rows[2] = {warp.of(row + i, 2 * half), warp.of(row + i, 2 * half + 1)};
            const uint32_t columns[2] = {warp.of(column + i, 4 + half),
                                         warp.of(column + 4 + i, 4 + half)};
            mma_pairs<T>(d, rows, columns);
        }
}

__device__ static inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2])
{
    int lane = (int)threadIdx.x % WARP, row = lane / 4 * 4, column = lane % 4 * 8;
    const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const warp_words<6> warp(own);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll 1
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                d[i] = fmaf(__uint_as_float(warp.of(row + k, 2 * half + i / 2)),
                            __uint_as_float(warp.of(column + i % 2 * 4 + k, 4 + half)), d[i]);
}

__device__ static inline uint32_t to_tf32(float x)
{
    uint32_t u = __float_as_uint(x);
    return (u & 0x7F800000u) == 0x7F800000u ? u : (u + 0x1000u) & 0xFFFFE000u;
}

__device__ static inline void ldmatrix_x4(uint32_t (&r)[4], shared_at row)
{
    int lane = (int)threadIdx.x % WARP;
    const uint32_t own[1] = {row};
    const warp_words<1> rows(own);
#pragma unroll
    for (int m = 0; m < 4; m++)
        r[m] = HIP_AT(const uint32_t, rows.of(8 * m + lane / 4, 0))[lane % 4];
}
__device__ static inline void ldmatrix_x4_trans(uint32_t (&r)[4], shared_at row)
{
    int lane = (int)threadIdx.x % WARP;
    const uint32_t own[1] = {row};
    const warp_words<1> rows(own);
#pragma unroll
    for (int m = 0; m < 4; m++) {
        shared_at low = rows.of(8 * m + lane % 4 * 2, 0),
                  high = rows.of(8 * m + lane % 4 * 2 + 1, 0);
        r[m] = (uint32_t)HIP_AT(const uint16_t, low)[lane / 4] |
               (uint32_t)HIP_AT(const uint16_t, high)[lane / 4] << 16;
    }
}

/* The copy has ended when the function returns, so groups need not be counted. */
__device__ static inline void cp_async(shared_at to, const void *from, int valid_bytes)
{
    uint32_t x[4] = {};
    if (valid_bytes == 16) {
        move_words<CACHE_KEEP>(x, (const uint32_t *)from);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (2 * i < valid_bytes)
                x[i / 2] |= (uint32_t)((const uint16_t *)from)[i] << i % 2 * 16;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        HIP_AT(uint32_t, to)[i] = x[i];
}
__device__ static inline void cp_commit(void) {}
template <int N> __device__ static inline void cp_wait(void) {}

#else /* ---- NVIDIA GPUs ---- */

/* An address in shared memory as a number, for the instructions below. */
#ifdef CONVOY_EMU
using shared_at = uintptr_t;
__device__ static inline shared_at shared_address(const void *p) { return (uintptr_t)p; }
#else
using shared_at = uint32_t;
__device__ static inline shared_at shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
#endif

/* mma<T> — d (16,8) f32 += a (16,16) T · b (16,8) T; all lanes of the warp. */
template <typename T>
__device__ static inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
__device__ inline void mma<bf16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#ifdef CONVOY_EMU
    emu_mma_bf16(d, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
template <>
__device__ inline void mma<f16>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#ifdef CONVOY_EMU
    emu_mma_f16(d, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* mma_tf32 — d (16,8) f32 += a (16,8) · b (8,8), factors as returned by to_tf32. */
__device__ static inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2])
{
#ifdef CONVOY_EMU
    emu_mma_tf32(d, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* to_tf32 — keeps 10 bits of fraction, rounded to nearest, ties away from zero. */
__device__ static inline uint32_t to_tf32(float x)
{
#ifdef CONVOY_EMU
    uint32_t u = __float_as_uint(x);
    return (u & 0x7F800000u) == 0x7F800000u ? u : (u + 0x1000u) & 0xFFFFE000u;
#else
    uint32_t u;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x));
    return u;
#endif
}

/* ldmatrix_x4 — loads four 8×8 matrices of 16-bit elements from shared memory. Lane 8m+j passes the
 * address (16-byte aligned) of row j of matrix m; r[m] gets row g, columns 2t,2t+1 of it.
 * ldmatrix_x4_trans does the same for the transpose. */
__device__ static inline void ldmatrix_x4(uint32_t (&r)[4], shared_at row)
{
#ifdef CONVOY_EMU
    emu_ldmatrix(r, 4, false, (const void *)row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
#endif
}
__device__ static inline void ldmatrix_x4_trans(uint32_t (&r)[4], shared_at row)
{
#ifdef CONVOY_EMU
    emu_ldmatrix(r, 4, true, (const void *)row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
#endif
}

/* cp_async — copies 16 bytes from global to shared memory, both 16-byte aligned: the first
 * valid_bytes of them, then zeros. With 0, `from` is not read. The thread that copied may read them
 * after cp_wait, other threads after a barrier. cp_commit closes a group; cp_wait<N> waits until at
 * most the N newest groups are in progress. */
__device__ static inline void cp_async(shared_at to, const void *from, int valid_bytes)
{
#ifdef CONVOY_EMU
    emu_cp_async((void *)to, from, 16, valid_bytes);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid_bytes)
                 : "memory");
#endif
}
__device__ static inline void cp_commit(void)
{
#ifdef CONVOY_EMU
    emu_cp_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> __device__ static inline void cp_wait(void)
{
#ifdef CONVOY_EMU
    emu_cp_wait(N);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#endif

/* swizzle — returns the byte offset of 16-byte vector `vector` of row `row` in a tile of VECTORS (a
 * power of two, ≥ 8) vectors a row. The eight rows that one matrix of ldmatrix reads lie in
 * different banks. */
template <int VECTORS> __device__ static inline int swizzle(int row, int vector)
{
    static_assert(VECTORS >= 8 && (VECTORS & (VECTORS - 1)) == 0, "rows of 128 bytes and more");
    return (row * VECTORS + (vector ^ (row & 7))) * 16;
}

/* Returns the same if the row is 8·n + (row & 7) and the vector is even + 0 or 1. (swizzled + (odd
 * ^ row & 7) · 16) is computed once for a lane; `even` is then added by an exclusive or with a
 * constant. */
template <int VECTORS>
__device__ static inline shared_at swizzle_lane(shared_at tile, int row, int odd)
{
    return tile + (shared_at)((row * VECTORS + (odd ^ (row & 7))) * 16);
}
template <int VECTORS>
__device__ static inline shared_at swizzle_at(shared_at lane, int row_of_8, int even)
{
    return (lane ^ (shared_at)((even & 6) * 16)) +
           (shared_at)(row_of_8 * VECTORS * 16 + (even & ~7) * 16);
}

#endif
