/* exp2_cpu — the exponential of a softmax: 2^y, for a third less work than vec_exp. Included by
 * *_cpu.c files only; it must not know operations. */
#ifndef CONVOY_KERNELS_EXP2_CPU_H
#define CONVOY_KERNELS_EXP2_CPU_H

#include "kernels/vec_cpu.h"

#define EXP2_LOG2E 1.44269504088896341 /* log2 e */
#define EXP2_LN2 0.693147180559945309  /* ln 2 */

/* exp2_vec — 2^y for y ≤ 127, within 2 ulp. Exactly 0 for y ≤ -126, where results would be
 * subnormal and slow, and for -inf. NaN stays NaN. y is split at the nearest whole number; the rest
 * f goes through a polynomial that meets 2^f at the Chebyshev points of [-½, ½] (relative error
 * 2.6e-9). */
static inline vec exp2_vec(vec y)
{
    vec n = vec_round(y), f = y - n, lowest = vec_set(-126.0f);
    vec p = vec_fma(vec_set(1.5461444e-4f), f, vec_set(1.3400428e-3f));
    p = vec_fma(p, f, vec_set(9.6180567e-3f));
    p = vec_fma(p, f, vec_set(5.5503272e-2f));
    p = vec_fma(p, f, vec_set(2.40226509e-1f));
    p = vec_fma(p, f, vec_set(6.93147207e-1f));
    p = vec_fma(p, f, vec_set(1.0f));
#if CPU_ISA == 4
    /* also true for NaN */
    __mmask16 is_normal = _mm512_cmp_ps_mask((__m512)y, (__m512)lowest, _CMP_NLE_UQ);
    return (vec)_mm512_maskz_scalef_ps(is_normal, (__m512)p, (__m512)n);
#else
    return vec_select(y <= lowest, vec_set(0.0f), vec_pow2(p, n));
#endif
}

#endif
