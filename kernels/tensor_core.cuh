/* tensor_core — matrix products of a warp (NVIDIA) or a wavefront (AMD), the loads that feed them,
 * and asynchronous copies into shared memory. Must not know operations.
 *
 * All inline PTX of the program except exp2_quick and rcp_quick (common.cuh), for sm_80 and later,
 * and all matrix instructions of AMD GPUs (MFMA). Under the emulation the same wrappers call
 * tests/emu.
 *
 * A product is d (16,MMA_N) += a (16,16) · b (16,MMA_N), all lanes together. Factors have 16-bit
 * elements, two a word, the lower one in the low half. With l = MMA_LINE(lane) and p =
 * MMA_PART(lane), a lane holds rows l and, if MMA_ROWS is 2, l+8 of d, MMA_COLS columns from
 * p·MMA_COLS on: d[r·MMA_COLS + c] is row l+8r, column p·MMA_COLS+c. The factors:
 *   NVIDIA (m16n8k16 of the PTX manual)   lane = 4·l + p
 *     a[0] row l, k 2p,2p+1           a[1] row l+8 | a[2], a[3] the same at k 2p+8,2p+9
 *     b[0] k 2p,2p+1 of column l                   | b[1] k 2p+8,2p+9
 *   AMD (v_mfma_f32_16x16x16 of the CDNA manuals)   lane = 16·p + l
 *     a row l, k 4p … 4p+3            b k 4p … 4p+3 of column l
 *   tf32 (m16n8k8; v_mfma_f32_16x16x4 twice)   8 of k
 *     a[i] row l + i%MMA_ROWS·8, k p + i/MMA_ROWS·4     b[i] k p+4i of column l
 * AMD's instruction gets b as its first factor and a as its second, so its result is the transpose
 * of the manual's. So for both, d of 16 columns, packed in pairs, is a of the next product
 * (frag_of_sums in tile.cuh). */
#ifndef CONVOY_KERNELS_TENSOR_CORE_CUH
#define CONVOY_KERNELS_TENSOR_CORE_CUH

#include <type_traits>

#include "kernels/common.cuh"

/* MMA_LINE and MMA_PART are macros: with functions, nvcc spills in attention's backward pass. */
#ifdef CONVOY_HIP
constexpr int MMA_LANES = 64, MMA_N = 16, MMA_ROWS = 1, MMA_COLS = 4;
#define MMA_LINE(lane) ((lane) % 16)
#define MMA_PART(lane) ((lane) % MMA_LANES / 16)
#else
constexpr int MMA_LANES = WARP, MMA_N = 8, MMA_ROWS = 2, MMA_COLS = 2;
#define MMA_LINE(lane) ((lane) / 4)
#define MMA_PART(lane) ((lane) % 4)
#endif
__device__ static inline int mma_lane(void) { return (int)threadIdx.x % MMA_LANES; }

#ifdef CONVOY_HIP
/* ---- AMD GPUs. A matrix instruction runs for all lanes of a wavefront, also for those of a branch
 * not taken. So kernels call products only where all threads of the block are. ---- */

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
#define HIP_AT(type, at) ((type *)(__attribute__((address_space(3))) type *)(uintptr_t)(at))
__device__ static inline shared_at shared_address(const void *p)
{
    return (shared_at)(uintptr_t)(const __attribute__((address_space(3))) void *)p;
}

/* The operands of a matrix instruction. */
typedef short mfma_bf16 __attribute__((ext_vector_type(4)));
typedef _Float16 mfma_f16 __attribute__((ext_vector_type(4)));
typedef float mfma_sums __attribute__((ext_vector_type(4)));
#endif

/* Adds the product of two factors of T to d. gfx90a reads subnormal elements as 0. */
template <typename T>
__device__ static inline void mma(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2])
{
    constexpr bool IS_BF16 = std::is_same<T, bf16>::value;
#ifdef CONVOY_EMU
    emu_mfma_k16(d, b, a, IS_BF16);
#else
    using factor = typename std::conditional<IS_BF16, mfma_bf16, mfma_f16>::type;
    factor x, y;
    mfma_sums sums = {d[0], d[1], d[2], d[3]};
    memcpy(&x, b, sizeof x);
    memcpy(&y, a, sizeof y);
    if constexpr (IS_BF16)
        sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sums, 0, 0, 0);
    else
        sums = __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sums, 0, 0, 0);
    memcpy(d, &sums, sizeof sums);
#endif
}

/* Multiplies floats without rounding them to tf32, which gfx90a does not have. */
__device__ static inline void mma_tf32(float (&d)[4], const uint32_t (&a)[2],
                                       const uint32_t (&b)[2])
{
#ifdef CONVOY_EMU
    for (int i = 0; i < 2; i++)
        emu_mfma_k4(d, __uint_as_float(b[i]), __uint_as_float(a[i]));
#else
    mfma_sums sums = {d[0], d[1], d[2], d[3]};
#pragma unroll
    for (int i = 0; i < 2; i++)
        sums = __builtin_amdgcn_mfma_f32_16x16x4f32(__uint_as_float(b[i]), __uint_as_float(a[i]),
                                                    sums, 0, 0, 0);
    memcpy(d, &sums, sizeof sums);
#endif
}
__device__ static inline uint32_t to_tf32(float x) { return __float_as_uint(x); }

/* Lanes in both halves of a wavefront hold a row, so the shuffle crosses them. */
__device__ static inline float mma_row_peer(float x, int step)
{
    return __shfl_xor(x, 16 << step, MMA_LANES);
}
/* A barrier is more than a wavefront needs; a block calls it twice. */
__device__ static inline void mma_fence(void) { __syncthreads(); }

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

/* mma<T> — adds the product of two factors of T to d; all lanes of the warp call it. */
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

/* mma_row_peer — returns x of a lane that holds other columns of the same row. Exchanges with step
 * 0 and with step 1 reach all lanes of the row. */
__device__ static inline float mma_row_peer(float x, int step)
{
    return __shfl_xor_sync(WARP_ALL, x, 1 << step);
}
/* mma_fence — orders the accesses to shared memory of the lanes of a product. All threads of the
 * block call it. */
__device__ static inline void mma_fence(void) { __syncwarp(); }

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

/* mma_16 — adds the product of a and b (16,16) to d of 16 columns. */
template <typename T>
__device__ static inline void mma_16(float (*d)[4], const uint32_t (&a)[2 * MMA_ROWS],
                                     const uint32_t (&b)[16 / MMA_N][2])
{
#pragma unroll
    for (int i = 0; i < 16 / MMA_N; i++)
        mma<T>(d[i], a, b[i]);
}

/* sums_row — copies the lane's columns of its row r from d. */
__device__ static inline void sums_row(float (&x)[MMA_COLS], const float (&d)[4], int r)
{
#pragma unroll
    for (int c = 0; c < MMA_COLS; c++)
        x[c] = d[r * MMA_COLS + c];
}

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
