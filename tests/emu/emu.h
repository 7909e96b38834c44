/* emu — enough of CUDA C++ for the host's compiler to run the kernels and to show their mistakes.
 * With EMU_HIP: enough of HIP for kernels/hip.cuh, on wavefronts of 64 lanes and 64 KiB of shared
 * memory, as AMD's gfx90a and gfx942 have.
 *
 * Every kernels/x.cu is compiled with `g++ -x c++ -include tests/emu/emu.h`. Blocks run one after
 * the other, in an order shuffled by a seed. The threads of a block are fibers; each runs until it
 * meets others (a barrier, a warp operation). The same seed draws the fiber that continues: evenly
 * in some blocks, with one warp far ahead in most. So what a missing barrier leaves open differs
 * from seed to seed. Shared memory starts as NaN and lies between guards. A cp.async lands at once
 * or only when it is waited for, as the seed draws. What CUDA leaves undefined is an error, kept in
 * emu_error(): threads of a block at different barriers or gone, lanes of a warp in different
 * operations, an unaligned address, a block of broken warps.
 *
 * It has only what the kernels use, and must not know them. Rounding of __half and __nv_bfloat16 is
 * exact. Sums of mma are rounded toward zero, as the chips do, in a fixed order, which no chip
 * promises. The errors of CUDA's functions, and subnormal numbers that become zero, are options
 * (emu_control.h); contraction of products and sums is one of the compiler's (emu.mk). */
#ifndef CONVOY_TESTS_EMU_H
#define CONVOY_TESTS_EMU_H

#ifndef __cplusplus
#error "emu.h is for .cu files; tests in C include tests/emu/emu_control.h"
#endif

#define CONVOY_EMU 1

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef EMU_HIP
#include <utility>
#endif

#include "tests/emu/emu_control.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

/* ---- the current thread ---- */

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
    unsigned x, y, z;
};

struct emu_fiber;
struct emu_where {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    int lane;
};
extern struct emu_where emu_where; /* of the fiber that runs */
#define threadIdx (emu_where.thread)
#define blockIdx (emu_where.block)
#define blockDim (emu_where.block_dim)
#define gridDim (emu_where.grid_dim)
#define warpSize 32

/* A launch as the runtime gets it; `kernel` is the address of its function. */
struct emu_launch {
    const void *kernel;
    size_t param_bytes;
    dim3 grid, block;
    size_t shared_bytes;
};
/* emu_param_bytes — the bytes of a kernel's parameters, each at its alignment. */
template <typename... Params> constexpr size_t emu_param_bytes(void)
{
    size_t bytes = 0;
    ((bytes = (bytes + alignof(Params) - 1) / alignof(Params) * alignof(Params) + sizeof(Params)),
     ...);
    return bytes;
}
int emu_launch_raw(const struct emu_launch *launch, void (*run)(void *), void *arg);
template <typename... Params, typename Run>
static inline int emu_launch_kernel(void (*kernel)(Params...), dim3 grid, dim3 block,
                                    size_t shared_bytes, Run run)
{
    struct emu_launch launch = {(const void *)kernel, emu_param_bytes<Params...>(), grid, block,
                                shared_bytes};
    return emu_launch_raw(
        &launch, [](void *arg) { (*(Run *)arg)(); }, &run);
}
/* emu_submit — submits work to the stream, through emu_device. */
template <typename Run> static inline int emu_submit(void *stream, Run run)
{
    static_assert(__is_trivially_copyable(Run), "what is kept is copied as bytes");
    int (*call)(void *) = [](void *arg) { return (*(Run *)arg)(); };
    return emu_device ? emu_device(stream, call, &run, sizeof run) : call(&run);
}
#ifdef EMU_HIP
template <typename... Params>
int emu_unpack(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, void *stream,
               void **args);
#endif
/* emu_launch_args — submits kernel<<<grid, block, shared_bytes, stream>>>(args...). */
template <typename... Params>
static inline int emu_launch_args(void (*kernel)(Params...), dim3 grid, dim3 block,
                                  size_t shared_bytes, void *stream, Params... args)
{
#ifdef EMU_HIP
    asm volatile("" : : "r"(&emu_unpack<Params...>)); /* keeps this instance */
#endif
    return emu_submit(stream, [=] {
        return emu_launch_kernel(kernel, grid, block, shared_bytes, [&] { kernel(args...); });
    });
}
#ifdef EMU_HIP
/* emu_unpack — submits a launch as hipModuleLaunchKernel gets it: args has the address of each
 * parameter. emu_symbol.cc finds the instance for a kernel by the names of its parameters. */
template <typename... Params, size_t... I>
static inline int emu_unpack_at(void (*kernel)(Params...), dim3 grid, dim3 block,
                                size_t shared_bytes, void *stream, void **args,
                                std::index_sequence<I...>)
{
    return emu_launch_args<Params...>(kernel, grid, block, shared_bytes, stream,
                                      *(const Params *)args[I]...);
}
template <typename... Params>
int emu_unpack(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, void *stream,
               void **args)
{
    return emu_unpack_at((void (*)(Params...))kernel, grid, block, shared_bytes, stream, args,
                         std::index_sequence_for<Params...>());
}
#endif
unsigned char *emu_shared(void);
void emu_check_aligned(const void *p, size_t bytes, const char *what);
float emu_quick(float x); /* with emu_quick_error */
void emu_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- instrumented kernels ----
 *
 * With EMU_ACCESS, kernels are compiled with -fsanitize=thread, so the compiler calls a hook of
 * emu_access.cc for each load and store. What the compiler would split or leave out reports itself:
 * vectors, atomics, copies by the host. */

#ifdef EMU_ACCESS
#define EMU_PLAIN __attribute__((no_sanitize("thread"), noinline))
/* emu_access_move — copies a vector in one access. emu_access_atomic — the bytes are read and
 * written at once. emu_access_host — the host sets bytes between two launches. */
void emu_access_move(void *to, const void *from, int bytes);
void emu_access_atomic(const void *p, int bytes);
void emu_access_host(const void *p, size_t bytes);
#else
#define EMU_PLAIN inline
static inline void emu_access_atomic(const void *, int) {}
static inline void emu_access_host(const void *, size_t) {}
#endif

/* What an observer of launches is told. barrier: all threads of the block have met. warp: lanes of
 * a warp have; is_sync: they see each other's writes. copied: a cp.async began, or it ended: its
 * bytes may be read by the thread. rows: those of an ldmatrix, 8 for each matrix. pc: the address
 * in the kernel. */
struct emu_watch {
    void (*launch)(const struct emu_launch *launch);
    void (*block)(const unsigned char *shared, size_t shared_bytes);
    void (*block_end)(void);
    void (*barrier)(void);
    void (*warp)(int warp, unsigned mask, bool is_sync);
    void (*copy)(const void *to, const void *from, int bytes, int valid_bytes, const void *pc);
    void (*copied)(const void *to, int bytes, int valid_bytes);
    void (*ldmatrix)(const void *const *rows, int matrices, const void *pc);
};
extern const struct emu_watch *emu_watch; /* NULL: none */
/* emu_is_stack — the address is on the stack of a fiber or of the launch. */
bool emu_is_stack(const void *p);

/* ---- meeting ---- */

enum emu_vote { EMU_VOTE_COUNT, EMU_VOTE_AND, EMU_VOTE_OR };
int emu_barrier(const char *file, int line, enum emu_vote vote, int value);
#define __syncthreads() ((void)emu_barrier(__FILE__, __LINE__, EMU_VOTE_COUNT, 0))
#define __syncthreads_count(value) emu_barrier(__FILE__, __LINE__, EMU_VOTE_COUNT, (value) != 0)
#define __syncthreads_and(value) emu_barrier(__FILE__, __LINE__, EMU_VOTE_AND, (value) != 0)
#define __syncthreads_or(value) emu_barrier(__FILE__, __LINE__, EMU_VOTE_OR, (value) != 0)

/* emu_warp — the lanes of `mask` meet, each with its own `args`; the last to come runs all(args of
 * each lane, mask). */
typedef void emu_warp_fn(void **args, unsigned mask);
void emu_warp(unsigned mask, emu_warp_fn *all, void *args);

struct emu_shuffle {
    uint64_t in, out;
    int from; /* lane */
};
emu_warp_fn emu_shuffle_all, emu_ballot_all, emu_nothing_all;

static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu)
{
    emu_warp(mask, emu_nothing_all, nullptr);
}

template <typename T> static inline T emu_shuffle_from(unsigned mask, T value, int from)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    struct emu_shuffle s = {0, 0, from};
    memcpy(&s.in, &value, sizeof value);
    emu_warp(mask, emu_shuffle_all, &s);
    memcpy(&value, &s.out, sizeof value);
    return value;
}
#ifdef EMU_HIP
/* HIP's functions of a wavefront, which have no mask. With a width of 32 or less, the lanes that
 * kernels call a warp meet: the other half may be at the same instruction or elsewhere, and its
 * votes are drawn. With a width of 64 and in matrix instructions all lanes meet. */
int emu_wave_lane(void); /* of 64 */
uint64_t emu_draw(void);
void emu_wave(emu_warp_fn *all, void *args);
emu_warp_fn emu_wave_shuffle_all; /* of 64 lanes */
static inline unsigned __lane_id(void) { return (unsigned)emu_wave_lane(); }
template <typename T> static inline T emu_wave_from(T value, int from, int width)
{
    if (width <= 32)
        return emu_shuffle_from(0xFFFFFFFFu, value, from % 32);
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    struct emu_shuffle s = {0, 0, from};
    memcpy(&s.in, &value, sizeof value);
    emu_wave(emu_wave_shuffle_all, &s);
    memcpy(&value, &s.out, sizeof value);
    return value;
}
template <typename T> static inline T __shfl(T value, int from, int width = 64)
{
    return emu_wave_from(value, (emu_wave_lane() & ~(width - 1)) + (from & (width - 1)), width);
}
template <typename T> static inline T __shfl_xor(T value, int bits, int width = 64)
{
    int lane = emu_wave_lane(), to = lane ^ bits, end = (lane & ~(width - 1)) + width;
    return emu_wave_from(value, to < end ? to : lane, width);
}
static inline unsigned long long __ballot(int value)
{
    struct emu_shuffle s = {value != 0, 0, 0};
    emu_warp(0xFFFFFFFFu, emu_ballot_all, &s);
    uint64_t other = emu_draw() & 0xFFFFFFFFu;
    return emu_wave_lane() < 32 ? s.out | other << 32 : s.out << 32 | other;
}
#else
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    int base = emu_where.lane & ~(width - 1);
    return emu_shuffle_from(mask, value, base + (from & (width - 1)));
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    int to = emu_where.lane ^ bits, end = (emu_where.lane & ~(width - 1)) + width;
    return emu_shuffle_from(mask, value, to < end ? to : emu_where.lane);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int to = emu_where.lane + (int)by, end = (emu_where.lane & ~(width - 1)) + width;
    return emu_shuffle_from(mask, value, to < end ? to : emu_where.lane);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int to = emu_where.lane - (int)by, first = emu_where.lane & ~(width - 1);
    return emu_shuffle_from(mask, value, to >= first ? to : emu_where.lane);
}
static inline unsigned __ballot_sync(unsigned mask, int value)
{
    struct emu_shuffle s = {value != 0, 0, 0};
    emu_warp(mask, emu_ballot_all, &s);
    return (unsigned)s.out;
}
static inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }
static inline int __all_sync(unsigned mask, int value)
{
    return __ballot_sync(mask, value) == mask;
}
#endif
/* missing on purpose: no kernel may rely on the lanes that happen to be together */
unsigned __activemask(void);

static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}

/* Fibers change only where they meet, so a plain read and write is atomic. */
template <typename T> EMU_PLAIN static T emu_atomic(T *p, T value)
{
    emu_check_aligned(p, sizeof *p, "atomic");
    emu_access_atomic(p, sizeof *p);
    T old = *p;
    *p = value;
    return old;
}
template <typename T> EMU_PLAIN static T atomicAdd(T *p, T x) { return emu_atomic(p, (T)(*p + x)); }
template <typename T> EMU_PLAIN static T atomicMax(T *p, T x)
{
    return emu_atomic(p, *p > x ? *p : x);
}
template <typename T> EMU_PLAIN static T atomicMin(T *p, T x)
{
    return emu_atomic(p, *p < x ? *p : x);
}
template <typename T> EMU_PLAIN static T atomicOr(T *p, T x) { return emu_atomic(p, (T)(*p | x)); }
template <typename T> EMU_PLAIN static T atomicExch(T *p, T x) { return emu_atomic(p, x); }
template <typename T> EMU_PLAIN static T atomicCAS(T *p, T expected, T x)
{
    return emu_atomic(p, *p == expected ? x : *p);
}

/* ---- vectors and memory ---- */

#ifdef EMU_ACCESS
#define EMU_VECTOR(name)                                             \
    name() = default;                                                \
    __attribute__((always_inline)) name(const name &from)            \
    {                                                                \
        emu_access_move(this, &from, sizeof *this);                  \
    }                                                                \
    __attribute__((always_inline)) name &operator=(const name &from) \
    {                                                                \
        emu_access_move(this, &from, sizeof *this);                  \
        return *this;                                                \
    }
#else
#define EMU_VECTOR(name) name() = default;
#endif
template <typename T> struct alignas(2 * sizeof(T)) emu_vec2 {
    T x, y;
    EMU_VECTOR(emu_vec2)
    emu_vec2(T x_, T y_) : x(x_), y(y_) {}
};
template <typename T> struct alignas(16) emu_vec4 {
    T x, y, z, w;
    EMU_VECTOR(emu_vec4)
    emu_vec4(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
};
using float2 = emu_vec2<float>;
using int2 = emu_vec2<int>;
using uint2 = emu_vec2<unsigned>;
using float4 = emu_vec4<float>;
using int4 = emu_vec4<int>;
using uint4 = emu_vec4<unsigned>;
using double2 = emu_vec2<double>;
struct float3 {
    float x, y, z;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

template <typename T> static inline T emu_load(const T *p)
{
    emu_check_aligned(p, alignof(T), "load");
#ifdef EMU_ACCESS
    return *p; /* the compiler's hook sees it */
#else
    T x;
    memcpy((void *)&x, p, sizeof x);
    return x;
#endif
}
template <typename T> static inline void emu_store(T *p, T x)
{
    emu_check_aligned(p, alignof(T), "store");
#ifdef EMU_ACCESS
    *p = x;
#else
    memcpy((void *)p, &x, sizeof x);
#endif
}
template <typename T> static inline T __ldg(const T *p) { return emu_load(p); }
template <typename T> static inline T __ldcs(const T *p) { return emu_load(p); }
template <typename T> static inline T __ldcg(const T *p) { return emu_load(p); }
template <typename T> static inline T __ldca(const T *p) { return emu_load(p); }
template <typename T> static inline void __stcs(T *p, T x) { emu_store(p, x); }
template <typename T> static inline void __stcg(T *p, T x) { emu_store(p, x); }

/* ---- arithmetic ---- */

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
template <typename To, typename From> static inline To emu_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy((void *)&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
/* Hides a result from the compiler, so that it is not contracted into a later operation. */
static inline float emu_rounded(float x)
{
    __asm__("" : "+x"(x));
    return x;
}
static inline float __fmul_rn(float a, float b) { return emu_rounded(a * b); }
static inline float __fadd_rn(float a, float b) { return emu_rounded(a + b); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }

/* Functions that CUDA does not round correctly: emu_noise() in emu_control.h adds errors. Division
 * and sqrtf are exact by nvcc's defaults (-prec-div=true, -prec-sqrt=true). */
extern enum emu_noise emu_noise_now;
float emu_noisy(float x, double exact);
#define EMU_FUNCTION(name, in_float, in_double)                        \
    static inline float emu_##name(float x)                            \
    {                                                                  \
        return emu_noise_now ? emu_noisy(x, (in_double)) : (in_float); \
    }
EMU_FUNCTION(expf, expf(x), exp((double)x))
EMU_FUNCTION(exp2f, exp2f(x), exp2((double)x))
EMU_FUNCTION(logf, logf(x), log((double)x))
EMU_FUNCTION(log2f, log2f(x), log2((double)x))
EMU_FUNCTION(tanhf, tanhf(x), tanh((double)x))
EMU_FUNCTION(rsqrtf, 1.0f / sqrtf(x), 1.0 / sqrt((double)x))
EMU_FUNCTION(rcp, 1.0f / x, 1.0 / (double)x)
/* Macros: the C library has functions of these names. */
#define expf(x) emu_expf(x)
#define exp2f(x) emu_exp2f(x)
#define logf(x) emu_logf(x)
#define log2f(x) emu_log2f(x)
#define tanhf(x) emu_tanhf(x)
#define rsqrtf(x) emu_rsqrtf(x)
/* Missing on purpose, until a kernel needs them: their errors, some of them larger than two units,
 * have to be added here first. */
#define __expf(x) emu_has_no_expf
#define __logf(x) emu_has_no_logf
#define __log2f(x) emu_has_no_log2f
#define __powf(x, y) emu_has_no_powf
#define powf(x, y) emu_has_no_powf
#define erff(x) emu_has_no_erff
#define sinf(x) emu_has_no_sinf
#define cosf(x) emu_has_no_cosf
template <typename T> static inline T emu_min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T emu_max(T a, T b) { return a < b ? b : a; }
#define EMU_MIN_MAX(T)                                         \
    static inline T min(T a, T b) { return emu_min<T>(a, b); } \
    static inline T max(T a, T b) { return emu_max<T>(a, b); }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(float)
EMU_MIN_MAX(double)

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __half {
    uint16_t bits;
};
float emu_half_to_float(uint16_t bits);
uint16_t emu_float_to_half(float x);
static inline float __bfloat162float(__nv_bfloat16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    unsigned u = __float_as_uint(x);
    if (x != x)
        return {0x7FFF};
    return {(uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
static inline float __half2float(__half x) { return emu_half_to_float(x.bits); }
static inline __half __float2half_rn(float x) { return {emu_float_to_half(x)}; }
static inline __half __float2half(float x) { return __float2half_rn(x); }

/* ---- tensor cores and copies, behind the wrappers of kernels/tensor_core.cuh ---- */

void emu_mma_bf16(float *d, const uint32_t *a, const uint32_t *b);
void emu_mma_f16(float *d, const uint32_t *a, const uint32_t *b);
void emu_mma_tf32(float *d, const uint32_t *a, const uint32_t *b);
void emu_ldmatrix(uint32_t *r, int matrices, bool trans, const void *row);
#ifdef EMU_HIP
void emu_mfma_k16(float *d, const uint32_t *first, const uint32_t *second, bool is_bf16);
void emu_mfma_k4(float *d, float first, float second);
#endif
void emu_cp_async(void *to, const void *from, int bytes, int valid_bytes);
void emu_cp_commit(void);
void emu_cp_wait(int groups_left);

/* ---- the runtime's few calls that launchers make ---- */

typedef void *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    int maxDynamicSharedSizeBytes;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel);
/* A limit that is lowered, or above what a block may have, is refused. */
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value);
size_t emu_shared_most(void); /* of emu_shared_max */
static inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    return *value = (int)emu_shared_most(), cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t stream)
{
    return emu_submit(stream, [=] {
        emu_access_host(p, bytes);
        return memset(p, byte, bytes), (int)cudaSuccess;
    });
}
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                                          cudaStream_t stream)
{
    (void)kind;
    return emu_submit(stream, [=] {
        emu_access_host(to, bytes);
        return memcpy(to, from, bytes), (int)cudaSuccess;
    });
}

#endif
