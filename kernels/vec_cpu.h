/* vec_cpu — the vectors of the fast kernels: VEC_W floats, as wide as the ISA level supports, and
 * their functions. CPU_ISA 2: SSE4.2, 4 floats; 3: AVX2 and FMA, 8; 4: AVX-512, 16. CPU_NEON: 4.
 *
 * Included by *_cpu.c files only. GCC's vector type has + - * / and comparisons; the rest is
 * here. Sums over lanes have one fixed order. A partial vector has n < VEC_W elements: loads fill
 * with zeros, stores do not touch the other elements. Must not know operations or shapes. */
#ifndef CONVOY_KERNELS_VEC_CPU_H
#define CONVOY_KERNELS_VEC_CPU_H

#ifdef CPU_NEON
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>

#if CPU_ISA == 4
#define VEC_W 16
#elif CPU_ISA == 3
#define VEC_W 8
#else
#define VEC_W 4
#endif

typedef float vec __attribute__((vector_size(VEC_W * 4)));
/* also the result of a comparison of two vec: 0 or -1 */
typedef int32_t veci __attribute__((vector_size(VEC_W * 4)));

#if CPU_ISA == 4
static inline vec vec_load(const float *p) { return (vec)_mm512_loadu_ps(p); }
static inline void vec_store(float *p, vec x) { _mm512_storeu_ps(p, (__m512)x); }
/* vec_stream — stores past the caches; p is aligned to a vector. Call vec_fence before another
 * thread reads. */
static inline void vec_stream(float *p, vec x) { _mm512_stream_ps(p, (__m512)x); }
static inline vec vec_set(float x) { return (vec)_mm512_set1_ps(x); }
static inline vec vec_max(vec a, vec b)
{
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
} /* a NaN in b stays */
static inline vec vec_min(vec a, vec b)
{
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
} /* a NaN in b stays */
static inline vec vec_sqrt(vec a) { return (vec)_mm512_sqrt_ps((__m512)a); }
static inline vec vec_round(vec a) { return (vec)_mm512_roundscale_ps((__m512)a, 8); }
static inline vec vec_load_n(const float *p, int n)
{
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void vec_store_n(float *p, int n, vec x)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
}
#elif CPU_ISA == 3
static inline vec vec_load(const float *p) { return (vec)_mm256_loadu_ps(p); }
static inline void vec_store(float *p, vec x) { _mm256_storeu_ps(p, (__m256)x); }
static inline void vec_stream(float *p, vec x) { _mm256_stream_ps(p, (__m256)x); }
static inline vec vec_set(float x) { return (vec)_mm256_set1_ps(x); }
static inline vec vec_max(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vec vec_min(vec a, vec b) { return (vec)_mm256_min_ps((__m256)a, (__m256)b); }
static inline vec vec_sqrt(vec a) { return (vec)_mm256_sqrt_ps((__m256)a); }
static inline vec vec_round(vec a) { return (vec)_mm256_round_ps((__m256)a, 8); }
static inline __m256i vec_mask_n(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vec vec_load_n(const float *p, int n)
{
    return (vec)_mm256_maskload_ps(p, vec_mask_n(n));
}
static inline void vec_store_n(float *p, int n, vec x)
{
    _mm256_maskstore_ps(p, vec_mask_n(n), (__m256)x);
}
#elif defined(CPU_NEON)
static inline vec vec_load(const float *p) { return (vec)vld1q_f32(p); }
static inline void vec_store(float *p, vec x) { vst1q_f32(p, (float32x4_t)x); }
/* NEON has no store of one vector past the caches; this is an ordinary store. */
static inline void vec_stream(float *p, vec x) { vec_store(p, x); }
static inline vec vec_set(float x) { return (vec)vdupq_n_f32(x); }
/* a NaN in a or b stays */
static inline vec vec_max(vec a, vec b) { return (vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
static inline vec vec_min(vec a, vec b) { return (vec)vminq_f32((float32x4_t)a, (float32x4_t)b); }
static inline vec vec_sqrt(vec a) { return (vec)vsqrtq_f32((float32x4_t)a); }
static inline vec vec_round(vec a) { return (vec)vrndnq_f32((float32x4_t)a); }
#else
static inline vec vec_load(const float *p) { return (vec)_mm_loadu_ps(p); }
static inline void vec_store(float *p, vec x) { _mm_storeu_ps(p, (__m128)x); }
static inline void vec_stream(float *p, vec x) { _mm_stream_ps(p, (__m128)x); }
static inline vec vec_set(float x) { return (vec)_mm_set1_ps(x); }
static inline vec vec_max(vec a, vec b) { return (vec)_mm_max_ps((__m128)a, (__m128)b); }
static inline vec vec_min(vec a, vec b) { return (vec)_mm_min_ps((__m128)a, (__m128)b); }
static inline vec vec_sqrt(vec a) { return (vec)_mm_sqrt_ps((__m128)a); }
static inline vec vec_round(vec a) { return (vec)_mm_round_ps((__m128)a, 8); }
#endif
#if CPU_ISA < 3
static inline vec vec_load_n(const float *p, int n)
{
    vec x = {0};
    for (int i = 0; i < n; i++)
        x[i] = p[i];
    return x;
}
static inline void vec_store_n(float *p, int n, vec x)
{
    for (int i = 0; i < n; i++)
        p[i] = x[i];
}
#endif

static inline void vec_fence(void)
{
#ifndef CPU_NEON
    _mm_sfence();
#endif
}

/* vec_fma — returns a·b + c; one rounding if the ISA level has FMA. */
static inline vec vec_fma(vec a, vec b, vec c) { return a * b + c; }

/* vec_select — returns, lane by lane: mask (0 or -1) ? a : b. */
static inline vec vec_select(veci mask, vec a, vec b)
{
    return (vec)((mask & (veci)a) | (~mask & (veci)b));
}

/* vec_shuffle — returns, lane by lane, the lane of a, then of b, with the number in `from` (0 …
 * 2·VEC_W - 1), a compile-time constant. */
#if defined(__clang__)
static inline __attribute__((always_inline)) vec vec_shuffle(vec a, vec b, veci from)
{
    vec r = a;
#pragma clang loop unroll(full)
    for (int i = 0; i < VEC_W; i++)
        r[i] = from[i] < VEC_W ? a[from[i]] : b[from[i] - VEC_W];
    return r;
}
#else
#define vec_shuffle(a, b, from) __builtin_shuffle(a, b, from)
#endif

/* vec_sum, vec_top — return the sum and the maximum over lanes (halves folded onto each other: lane
 * i + lane i+W/2, and so on). */
#if CPU_ISA == 3
static inline float vec_sum(vec x)
{
    __m128 four =
        _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
static inline float vec_top(vec x)
{
    __m128 four =
        _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
#else
static inline float vec_sum(vec x)
{
    float v[VEC_W];
    memcpy(v, &x, sizeof v);
    for (int half = VEC_W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] += v[i + half];
    return v[0];
}
static inline float vec_top(vec x)
{
    float v[VEC_W];
    memcpy(v, &x, sizeof v);
    for (int half = VEC_W / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
    return v[0];
}
#endif

/* Number of vectors that a chain of dependent steps computes side by side, step by step. AVX-512's
 * processors overlap chains by themselves. */
#define VEC_SOME (CPU_ISA == 4 ? 1 : 4)
#define VEC_EACH(i, n) _Pragma("GCC unroll 4") for (int i = 0; i < (n); i++)

/* vec_exp_low — replaces n vectors by e^x within about 1 ulp, for x ≤ 88.37 (n is constant after
 * inlining). Below -87.3 it is 0 (so exp(-inf) is 0); NaN stays NaN. x = k·ln2 + r with |r| ≤ ln2/2
 * in two steps (Cody, Waite 1980); e^r by a polynomial that is 1 at 0 (relative error 2.0e-9).
 * Without scalef, k comes from adding 1.5·2^23 + 127: that leaves the exponent's bits of 2^k in the
 * lower bits of the sum. */
static inline __attribute__((always_inline)) void vec_exp_low(vec *x, const int n)
{
    vec shifted[4], k[4], r[4], p[4];
#if CPU_ISA == 4
    VEC_EACH(i, n) k[i] = vec_round(x[i] * vec_set(1.44269504f));
    (void)shifted;
#else
    VEC_EACH(i, n) shifted[i] = vec_fma(x[i], vec_set(1.44269504f), vec_set(12583039.0f));
    VEC_EACH(i, n) k[i] = shifted[i] - vec_set(12583039.0f);
#endif
    VEC_EACH(i, n) r[i] = vec_fma(k[i], vec_set(-0.693145752f), x[i]);
    VEC_EACH(i, n) r[i] = vec_fma(k[i], vec_set(-1.42860677e-6f), r[i]);
    VEC_EACH(i, n) p[i] = vec_fma(vec_set(1.38436537e-3f), r[i], vec_set(8.3741555e-3f));
    VEC_EACH(i, n) p[i] = vec_fma(p[i], r[i], vec_set(4.16680016e-2f));
    VEC_EACH(i, n) p[i] = vec_fma(p[i], r[i], vec_set(1.66664317e-1f));
    VEC_EACH(i, n) p[i] = vec_fma(p[i], r[i], vec_set(4.9999994e-1f));
    VEC_EACH(i, n) p[i] = vec_fma(p[i], r[i], vec_set(1.0f));
    VEC_EACH(i, n) p[i] = vec_fma(p[i], r[i], vec_set(1.0f));
#if CPU_ISA == 4
    VEC_EACH(i, n) p[i] = (vec)_mm512_scalef_ps((__m512)p[i], (__m512)k[i]);
#else
    VEC_EACH(i, n) p[i] = p[i] * (vec)((veci)shifted[i] << 23);
#endif
    VEC_EACH(i, n) x[i] = (vec)(~(veci)(x[i] < vec_set(-87.3f)) & (veci)p[i]);
}

/* vec_exp — returns e^x for any x; above 88.37 it is clamped (2.3e38). */
static inline vec vec_exp(vec x)
{
    x = vec_min(vec_set(88.37f), x);
    vec_exp_low(&x, 1);
    return x;
}

/* vec_recip — returns 1/x within about 1 ulp, for x in [1e-30, 1e30]; if division is slow, by an
 * estimate and a Newton step. */
static inline vec vec_recip(vec x)
{
#if CPU_ISA == 4
    vec r = (vec)_mm512_rcp14_ps((__m512)x);
    return vec_fma(r, vec_fma(-x, r, vec_set(1.0f)), r);
#else
    return vec_set(1.0f) / x;
#endif
}

/* vec_sigmoid — returns 1/(1+e^-x), at least e^-60. */
static inline vec vec_sigmoid(vec x)
{
    vec e = vec_min(vec_set(60.0f), -x);
    vec_exp_low(&e, 1);
    return vec_recip(vec_set(1.0f) + e);
}
/* vec_tanh — returns tanh(x) by vec_sigmoid; absolute error about 1e-7. */
static inline vec vec_tanh(vec x)
{
    return vec_fma(vec_set(2.0f), vec_sigmoid(x + x), vec_set(-1.0f));
}

#define VEC_GELU_A 0.797884560802865356f /* √(2/π) */
#define VEC_GELU_B 0.044715f

/* vec_gelu — returns 0.5u(1+tanh(z)), z = √(2/π)(u+0.044715u³), as u·sigmoid(2z). */
static inline vec vec_gelu(vec u)
{
    vec z2 = u * vec_fma(u * u, vec_set(2 * VEC_GELU_A * VEC_GELU_B), vec_set(2 * VEC_GELU_A));
    return u * vec_sigmoid(z2);
}
/* Writes n vectors of vec_gelu to y; n is constant after inlining. */
static inline __attribute__((always_inline)) void vec_gelu_some(float *y, const float *x,
                                                                const int n)
{
    vec u[4], e[4];
    VEC_EACH(i, n) u[i] = vec_load(x + i * VEC_W);
    VEC_EACH(i, n)
    e[i] = vec_fma(u[i] * u[i], vec_set(2 * VEC_GELU_A * VEC_GELU_B), vec_set(2 * VEC_GELU_A));
    VEC_EACH(i, n) e[i] = vec_min(vec_set(60.0f), -(u[i] * e[i]));
    vec_exp_low(e, n);
    VEC_EACH(i, n) vec_store(y + i * VEC_W, u[i] * vec_recip(vec_set(1.0f) + e[i]));
}
/* vec_gelu_grad — returns the derivative of vec_gelu. */
static inline vec vec_gelu_grad(vec u)
{
    vec uu = u * u;
    vec z2 = u * vec_fma(uu, vec_set(2 * VEC_GELU_A * VEC_GELU_B), vec_set(2 * VEC_GELU_A));
    vec dz2 = vec_fma(uu, vec_set(6 * VEC_GELU_A * VEC_GELU_B), vec_set(2 * VEC_GELU_A));
    vec s = vec_sigmoid(z2);
    return vec_fma(u * dz2, s * (vec_set(1.0f) - s), s);
}

#endif
