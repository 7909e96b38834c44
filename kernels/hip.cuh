/* hip — CUDA's names in HIP, so that one source of kernels serves both: AMD GPUs gfx90a (MI250) and
 * gfx942 (MI300X). common.cuh includes it if CONVOY_HIP is defined. Must not know operations.
 *
 * A wavefront has 64 lanes, and kernels count in warps of 32: a warp is half of a wavefront. A
 * shuffle stays in its half by its width, a vote reads the half's bits of the ballot. The other
 * half may be at another instruction; its bits and values mean nothing here. tests/emu provides
 * HIP's functions of a wavefront with CONVOY_EMU and EMU_HIP, so this file is tested, too. */
#ifndef CONVOY_KERNELS_HIP_CUH
#define CONVOY_KERNELS_HIP_CUH

#ifndef CONVOY_EMU
#include <hip/hip_runtime.h>
#include <stdint.h>

using cudaStream_t = hipStream_t;
#define cudaGetLastError hipGetLastError

/* 16-bit floats as bits, with the conversions that kernels use. HIP's own types differ from one
 * version to the next. */
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};
__device__ static inline float __bfloat162float(__nv_bfloat16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
/* Rounds to nearest, ties to even. */
__device__ static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    uint32_t u = __float_as_uint(x);
    return {(uint16_t)(x != x ? 0x7FFF : (u + 0x7FFF + (u >> 16 & 1)) >> 16)};
}
__device__ static inline float __half2float(__half x)
{
    return (float)__builtin_bit_cast(_Float16, x.bits);
}
__device__ static inline __half __float2half_rn(float x)
{
    return {__builtin_bit_cast(uint16_t, (_Float16)x)};
}

/* Accesses of 4, 8 or 16 bytes to data that is used once. */
template <typename T> __device__ static inline T __ldcs(const T *p)
{
    typedef uint32_t native __attribute__((ext_vector_type(sizeof(T) / 4)));
    native v = __builtin_nontemporal_load((const native *)p);
    T x;
    __builtin_memcpy(&x, &v, sizeof x);
    return x;
}
template <typename T> __device__ static inline void __stcs(T *p, T x)
{
    typedef uint32_t native __attribute__((ext_vector_type(sizeof(T) / 4)));
    native v;
    __builtin_memcpy(&v, &x, sizeof v);
    __builtin_nontemporal_store(v, (native *)p);
}

/* A product and a sum that are rounded one by one. HIP's functions of these names leave it to the
 * compiler, which contracts them. */
__device__ static inline float hip_mul_rounded(float a, float b)
{
#pragma clang fp contract(off)
    return a * b;
}
__device__ static inline float hip_add_rounded(float a, float b)
{
#pragma clang fp contract(off)
    return a + b;
}
#define __fmul_rn hip_mul_rounded
#define __fadd_rn hip_add_rounded

/* Orders the accesses of a wavefront's lanes to memory. The hardware runs them in order; the
 * compiler must not change it. */
__device__ static inline void __syncwarp(void)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
#endif

/* ---- warps in a wavefront; every lane of the warp must call them (mask: WARP_ALL) ---- */

template <typename T>
__device__ static inline T __shfl_xor_sync(unsigned, T x, int bits, int width = 32)
{
    return __shfl_xor(x, bits, width);
}
template <typename T>
__device__ static inline T __shfl_sync(unsigned, T x, int from, int width = 32)
{
    return __shfl(x, from, width);
}
__device__ static inline unsigned __ballot_sync(unsigned, int vote)
{
    return (unsigned)(__ballot(vote) >> (__lane_id() & 32));
}
__device__ static inline int __any_sync(unsigned mask, int vote)
{
    return __ballot_sync(mask, vote) != 0;
}
__device__ static inline int __all_sync(unsigned mask, int vote)
{
    return __ballot_sync(mask, vote) == mask;
}

#endif
