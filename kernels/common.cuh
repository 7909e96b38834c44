/* common — code that all .cu files share: element types, 16-byte accesses, reductions, dropout,
 * launches.
 *
 * Three compilers read it: nvcc; clang for AMD GPUs (CONVOY_HIP), with CUDA's names from hip.cuh;
 * and g++ after the emulation of tests/emu/emu.h (CONVOY_EMU), which runs either form, so every
 * kernel is tested without a GPU. A kernel uses only CUDA C++ that all compile. Instructions of one
 * kind of chip are wrapped here and in tensor_core.cuh. Must not know operations. Sums in a warp or
 * a block have one fixed order. */
#ifndef CONVOY_KERNELS_COMMON_CUH
#define CONVOY_KERNELS_COMMON_CUH

#ifdef CONVOY_HIP
#include "kernels/hip.cuh"
#elif !defined(CONVOY_EMU)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif
#include <math.h>
#include <stdint.h>

#include "kernels/cuda.h"

using bf16 = __nv_bfloat16;
using f16 = __half;

constexpr int WARP = 32;
constexpr unsigned WARP_ALL = 0xFFFFFFFFu;

/* BLOCK_SHARED — the most shared memory that any chip of the build gives a block. Tiles are picked
 * by it when a kernel is compiled. HIP_ROLLED — precedes a loop that clang would otherwise unroll
 * for AMD GPUs until registers spill. */
#ifdef CONVOY_HIP
constexpr size_t BLOCK_SHARED = 64 * 1024;
#define HIP_ROLLED _Pragma("unroll 1")
#else
constexpr size_t BLOCK_SHARED = 227 * 1024;
#define HIP_ROLLED
#endif

/* CUDA_SHARED — the launch's dynamic shared memory, 128-byte aligned, as unsigned char *name. */
#ifdef CONVOY_EMU
#define CUDA_SHARED(name) unsigned char *name = emu_shared()
#else
#define CUDA_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

/* ---- launches ---- */

#ifndef CONVOY_HIP
/* Allows a kernel, at its first launch on the current device, to use all the shared memory of the
 * device that the kernel's static memory leaves. The limit is never lowered again: a graph may hold
 * an earlier launch that needs more than a later one. Returns 0 or a cudaError_t. */
static inline int cuda_opt_in(const void *kernel)
{
    int device = 0, most = 0;
    cudaFuncAttributes has = {};
    cudaError_t e = cudaFuncGetAttributes(&has, kernel);
    if (e == cudaSuccess)
        e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    most -= (int)has.sharedSizeBytes;
    if (e == cudaSuccess && has.maxDynamicSharedSizeBytes < most)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    return (int)e;
}
#else
/* AMD GPUs give a kernel all of their shared memory. */
static inline int cuda_opt_in(const void *) { return 0; }
#endif

/* cuda_launch — runs kernel<<<grid, block, shared_bytes, stream>>>(args...). It opts in to shared
 * memory from 48 KiB on; whether exactly 48 KiB needs that is documented nowhere. Returns 0 or a
 * cudaError_t. A block is a whole number of warps. */
template <typename... Params, typename... Args>
static inline int cuda_launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                              void *stream, Args... args)
{
    int refused = shared_bytes >= 48 * 1024 ? cuda_opt_in((const void *)kernel) : 0;
    if (refused != 0)
        return refused;
#ifdef CONVOY_EMU
    return emu_launch_args<Params...>(kernel, grid, block, shared_bytes, stream,
                                      static_cast<Params>(args)...);
#else
    kernel<<<grid, block, shared_bytes, (cudaStream_t)stream>>>(static_cast<Params>(args)...);
    return (int)cudaGetLastError();
#endif
}

/* cuda_shares — returns true if a block can have that much shared memory on this device. */
static inline bool cuda_shares(const struct cuda *cuda, size_t bytes)
{
    return bytes <= BLOCK_SHARED && (cuda->shared_bytes == 0 || bytes <= cuda->shared_bytes);
}

/* CUDA_TRY — returns from a launcher with the first error. */
#define CUDA_TRY(call)                \
    do {                              \
        int cuda_try_status = (call); \
        if (cuda_try_status != 0)     \
            return cuda_try_status;   \
    } while (0)

/* cuda_floats — calls run(T()) with the C++ type of a floating dtype: float, bf16 or f16. run is a
 * generic lambda that returns the launcher's status: cuda_floats(a->x.dtype, [&](auto t) { using T
 * = decltype(t); return cuda_launch(k<T>, …); }) */
template <typename Run> static inline int cuda_floats(enum dtype dtype, Run run)
{
    switch (dtype) {
    case DTYPE_F32:
        return run(float());
    case DTYPE_BF16:
        return run(bf16());
    case DTYPE_F16:
        return run(f16());
    default:
        return CUDA_REFUSAL_DTYPE;
    }
}

__host__ __device__ static inline int64_t ceil_div(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}
__host__ __device__ static inline int64_t round_up(int64_t n, int64_t each)
{
    return ceil_div(n, each) * each;
}

/* cuda_aligned — returns true if 16-byte accesses can start at p and at every row of row_elems
 * elements after it. */
template <typename T> static inline bool cuda_aligned(const T *p, int64_t row_elems)
{
    return (uintptr_t)p % 16 == 0 && row_elems * (int64_t)sizeof(T) % 16 == 0;
}

/* ---- element types ---- */

__device__ static inline float to_float(float x) { return x; }
__device__ static inline float to_float(bf16 x) { return __bfloat162float(x); }
__device__ static inline float to_float(f16 x) { return __half2float(x); }

/* from_float — rounds to nearest, ties to even. */
template <typename T> __device__ static inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) { return x; }
template <> __device__ inline bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ inline f16 from_float<f16>(float x) { return __float2half_rn(x); }

/* words — N elements of T as the 4, 8 or 16 bytes that one instruction moves. Element 0 is in the
 * low bits of word 0. */
template <typename T, int N> struct alignas(N * sizeof(T)) words {
    static_assert(N * sizeof(T) == 4 || N * sizeof(T) == 8 || N * sizeof(T) == 16, "one access");
    uint32_t w[N * sizeof(T) / 4];
};

/* WIDE<T> — elements in 16 bytes. */
template <typename T> constexpr int WIDE = 16 / (int)sizeof(T);

/* Two floats in one word of 16-bit elements, and back. */
template <typename T> __device__ static inline uint32_t pack2(float low, float high)
{
    T a = from_float<T>(low), b = from_float<T>(high);
    uint16_t x, y;
    memcpy(&x, &a, 2);
    memcpy(&y, &b, 2);
    return (uint32_t)x | (uint32_t)y << 16;
}
template <typename T> __device__ static inline float unpack_low(uint32_t w);
template <typename T> __device__ static inline float unpack_high(uint32_t w);
template <> __device__ inline float unpack_low<bf16>(uint32_t w)
{
    return __uint_as_float(w << 16);
}
template <> __device__ inline float unpack_high<bf16>(uint32_t w)
{
    return __uint_as_float(w & 0xFFFF0000u);
}
template <> __device__ inline float unpack_low<f16>(uint32_t w)
{
    uint16_t x = (uint16_t)w;
    f16 h;
    memcpy(&h, &x, 2);
    return __half2float(h);
}
template <> __device__ inline float unpack_high<f16>(uint32_t w)
{
    return unpack_low<f16>(w >> 16);
}

template <typename T, int N>
__device__ static inline void unpack(float (&x)[N], const words<T, N> &p)
{
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __uint_as_float(p.w[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            x[2 * i] = unpack_low<T>(p.w[i]);
            x[2 * i + 1] = unpack_high<T>(p.w[i]);
        }
    }
}
template <typename T, int N> __device__ static inline words<T, N> pack(const float (&x)[N])
{
    words<T, N> p;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < N; i++)
            p.w[i] = __float_as_uint(x[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            p.w[i] = pack2<T>(x[2 * i], x[2 * i + 1]);
    }
    return p;
}

/* One access of 4, 8 or 16 bytes. STREAM: the data is used once, so caches need not keep it. */
enum cache { CACHE_KEEP, CACHE_STREAM };
template <cache C> __device__ static inline void move_words(uint32_t (&to)[4], const uint32_t *from)
{
    uint4 v = C == CACHE_STREAM ? __ldcs((const uint4 *)from) : *(const uint4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
template <cache C> __device__ static inline void move_words(uint32_t (&to)[2], const uint32_t *from)
{
    uint2 v = C == CACHE_STREAM ? __ldcs((const uint2 *)from) : *(const uint2 *)from;
    to[0] = v.x, to[1] = v.y;
}
template <cache C> __device__ static inline void move_words(uint32_t (&to)[1], const uint32_t *from)
{
    to[0] = C == CACHE_STREAM ? __ldcs(from) : *from;
}
template <cache C> __device__ static inline void move_words(uint32_t *to, const uint32_t (&from)[4])
{
    uint4 v = make_uint4(from[0], from[1], from[2], from[3]);
    C == CACHE_STREAM ? __stcs((uint4 *)to, v) : (void)(*(uint4 *)to = v);
}
template <cache C> __device__ static inline void move_words(uint32_t *to, const uint32_t (&from)[2])
{
    uint2 v = make_uint2(from[0], from[1]);
    C == CACHE_STREAM ? __stcs((uint2 *)to, v) : (void)(*(uint2 *)to = v);
}
template <cache C> __device__ static inline void move_words(uint32_t *to, const uint32_t (&from)[1])
{
    C == CACHE_STREAM ? __stcs(to, from[0]) : (void)(*to = from[0]);
}

/* load_floats — loads N elements at p as floats; p is aligned to N·sizeof(T) bytes, which is 4, 8,
 * 16 or 32. */
template <cache C = CACHE_KEEP, typename T, int N>
__device__ static inline void load_floats(float (&x)[N], const T *p)
{
    if constexpr (N * sizeof(T) > 16) {
        float low[N / 2], high[N / 2];
        load_floats<C>(low, p);
        load_floats<C>(high, p + N / 2);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            x[i] = low[i], x[N / 2 + i] = high[i];
    } else {
        words<T, N> v;
        move_words<C>(v.w, (const uint32_t *)p);
        unpack<T, N>(x, v);
    }
}
/* store_floats — stores N floats at p, rounded; p is aligned as for load_floats. */
template <cache C = CACHE_KEEP, typename T, int N>
__device__ static inline void store_floats(T *p, const float (&x)[N])
{
    if constexpr (N * sizeof(T) > 16) {
        float low[N / 2], high[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            low[i] = x[i], high[i] = x[N / 2 + i];
        store_floats<C>(p, low);
        store_floats<C>(p + N / 2, high);
    } else {
        words<T, N> v = pack<T, N>(x);
        move_words<C>((uint32_t *)p, v.w);
    }
}

/* forget — hides the origin of the value from the compiler. So the compiler computes the value
 * again instead of keeping it in registers from one pass over data to the next. */
__device__ static inline void forget(uint32_t &x)
{
#ifdef CONVOY_EMU
    (void)x;
#elif defined(CONVOY_HIP)
    asm volatile("" : "+v"(x));
#else
    asm volatile("" : "+r"(x));
#endif
}
template <typename T> __device__ static inline void forget(const T *&x)
{
#ifdef CONVOY_EMU
    (void)x;
#elif defined(CONVOY_HIP)
    asm volatile("" : "+v"(x));
#else
    asm volatile("" : "+l"(x));
#endif
}

/* ---- reductions: every lane, or thread, gets the result ---- */

__device__ static inline float warp_sum(float x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, step);
    return x;
}
__device__ static inline double warp_sum(double x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(WARP_ALL, x, step);
    return x;
}
__device__ static inline float warp_max(float x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, step));
    return x;
}

/* block_sum — returns the sum over all threads of a one-dimensional block. Every thread must call
 * it: it has two barriers. T is float or double. Not static, as block_max: nvcc names the shared
 * memory of static functions after the folder of the source file, and then a release would not be
 * reproducible. */
template <typename T> __device__ inline T block_sum(T x)
{
    __shared__ T partial[WARP];
    int warps_n = (int)blockDim.x / WARP;
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = x;
    __syncthreads();
    T sum = warp_sum((int)(threadIdx.x % WARP) < warps_n ? partial[threadIdx.x % WARP] : (T)0);
    __syncthreads();
    return sum;
}
/* block_max — returns the maximum in the same way. */
__device__ inline float block_max(float x)
{
    __shared__ float partial[WARP];
    int warps_n = (int)blockDim.x / WARP;
    x = warp_max(x);
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = x;
    __syncthreads();
    float max =
        warp_max((int)(threadIdx.x % WARP) < warps_n ? partial[threadIdx.x % WARP] : -INFINITY);
    __syncthreads();
    return max;
}

/* block_add — adds N integers of every thread of a one-dimensional block to to[0], …, to[N-1] in
 * the device's memory. Every thread must call it, once in a kernel: it has one barrier. T is
 * uint32_t or unsigned long long, so the result does not depend on any order. */
template <typename T, int N> __device__ inline void block_add(T *to, const T (&x)[N])
{
    __shared__ T partial[WARP][N];
    int warps_n = (int)blockDim.x / WARP;
#pragma unroll
    for (int i = 0; i < N; i++) {
        T sum = x[i];
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (threadIdx.x % WARP == 0)
            partial[threadIdx.x / WARP][i] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= N)
        return;
    T sum = 0;
    for (int warp = 0; warp < warps_n; warp++)
        sum += partial[warp][threadIdx.x];
    atomicAdd(to + threadIdx.x, sum);
}

/* ---- dropout: the numbers of base/rand.h ---- */

/* The fields of struct dropout that a kernel needs. Off: threshold 0 and factor 1. With `scalars`,
 * seed and offset are read there at each draw: registers cost more than a load that all threads
 * share. */
struct drop_args {
    uint64_t seed, stream, offset;
    const struct step_scalars *scalars;
    uint32_t threshold;
    float factor;
};
static inline struct drop_args drop_args_of(const struct cuda *cuda, const struct dropout *d)
{
    struct drop_args x = {d->seed, d->stream, d->offset, cuda->scalars, 0, 1.0f};
    if (d->p > 0) {
        x.threshold = (uint32_t)((double)d->p * 4294967296.0);
        x.factor = (float)(1.0 / (1.0 - (double)d->p));
    }
    return x;
}

/* philox4 — returns the words of block `block`: rand_u32(seed, stream, 4·block … 4·block + 3). */
__device__ static inline uint4 philox4(uint64_t seed, uint64_t stream, uint64_t block)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream,
             c3 = (uint32_t)(stream >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t h0 = __umulhi(0xD2511F53u, c0), h1 = __umulhi(0xCD9E8D57u, c2);
        uint32_t l0 = 0xD2511F53u * c0, l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ static inline uint64_t drop_seed(const struct drop_args &d)
{
    return d.scalars ? d.scalars->seed : d.seed;
}
__device__ static inline uint64_t drop_offset(const struct drop_args &d)
{
    return d.scalars ? d.scalars->offset : d.offset;
}

/* drop_factor — returns the factor of element i of the operation: 0 or 1/(1-p). */
__device__ static inline float drop_factor(const struct drop_args &d, uint64_t i)
{
    if (d.threshold == 0)
        return d.factor;
    uint64_t at = drop_offset(d) + i;
    uint4 w = philox4(drop_seed(d), d.stream, at / 4);
    uint32_t r = at % 4 == 0 ? w.x : at % 4 == 1 ? w.y : at % 4 == 2 ? w.z : w.w;
    return r < d.threshold ? 0.0f : d.factor;
}

/* drop_factors — returns the factors of N elements from i on; whole blocks of four are drawn
 * once. */
template <int N>
__device__ static inline void drop_factors(float (&x)[N], const struct drop_args &d, uint64_t i)
{
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = d.factor;
    if (d.threshold == 0)
        return;
    uint64_t at = drop_offset(d) + i, seed = drop_seed(d);
    uint4 w = philox4(seed, d.stream, at / 4);
#pragma unroll
    for (int j = 0; j < N; j++, at++) {
        uint32_t r = at % 4 == 0 ? w.x : at % 4 == 1 ? w.y : at % 4 == 2 ? w.z : w.w;
        x[j] = r < d.threshold ? 0.0f : d.factor;
        if (at % 4 == 3 && j + 1 < N)
            w = philox4(seed, d.stream, at / 4 + 1);
    }
}

/* ---- exponentials ---- */

/* exp2_quick — returns 2^x, within 2^-22 of it, in one instruction; 0 if 2^x is below 2^-126. exp2f
 * and __expf return such small results too, and need four. */
__device__ static inline float exp2_quick(float x)
{
#ifdef CONVOY_EMU
    float y = emu_quick(exp2f(x));
    return y < 0x1p-126f ? 0 : y;
#elif defined(CONVOY_HIP)
    return __builtin_amdgcn_exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* rcp_quick — returns 1/x, within 2^-23 of it; for x in 2^±126. */
__device__ static inline float rcp_quick(float x)
{
#ifdef CONVOY_EMU
    return emu_quick(emu_rcp(x));
#elif defined(CONVOY_HIP)
    return __builtin_amdgcn_rcpf(x);
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* exp_of — returns e^x for a result of type T: for 16 bits faster, and within 2e-6, which is below
 * their rounding. */
template <typename T> __device__ static inline float exp_of(float x)
{
    constexpr float LOG2E = 1.44269504088896341f;
    return sizeof(T) == 4 ? expf(x) : exp2_quick(x * LOG2E);
}

/* ---- GELU, tanh form: 0.5u(1 + tanh(√(2/π)(u + 0.044715u³))) ---- */

constexpr float GELU_A = 0.797884560802865356f, GELU_B = 0.044715f;

/* GELU for a result of type T: for 16 bits with the quick exponential and reciprocal, else exact.
 *
 * ½(1 + tanh(z)) is 1/(1 + e) with e = exp(-2z), which keeps its digits where tanh is near -1.
 * gelu_tail returns e; it is at most exp(60). */
template <typename T> __device__ static inline float gelu_tail(float u)
{
    constexpr float LOG2E = 1.44269504088896341f, MOST = 60.0f;
    float cubic = u + GELU_B * u * u * u;
    return sizeof(T) == 4 ? expf(fminf(MOST, -2.0f * GELU_A * cubic))
                          : exp2_quick(fminf(MOST * LOG2E, -2.0f * GELU_A * LOG2E * cubic));
}
template <typename T> __device__ static inline float gelu(float u)
{
    float sum = 1.0f + gelu_tail<T>(u);
    return sizeof(T) == 4 ? u / sum : u * rcp_quick(sum);
}
/* s + u·(2z)'·s(1-s), s = 1/(1+e), 1-s = e·s; far from 0, s(1-s) is 0 but u·(2z)' may be
 * infinite. */
template <typename T> __device__ static inline float gelu_grad(float u)
{
    float e = gelu_tail<T>(u), s = sizeof(T) == 4 ? 1.0f / (1.0f + e) : rcp_quick(1.0f + e),
          bell = e * s * s;
    return bell < 1e-20f ? (u != u ? u : s)
                         : s + u * (2.0f * GELU_A * (1.0f + 3.0f * GELU_B * u * u)) * bell;
}

#endif
