/* exp2_cpu — the exponential of a softmax: 2^y, for a third less work than vec_exp. Included by
 * *_cpu.c files only; it must not know operations. */
#ifndef CONVOY_KERNELS_EXP2_CPU_H
#define CONVOY_KERNELS_EXP2_CPU_H

#include "kernels/vec_cpu.h"

#define EXP2_LOG2E 1.44269504088896341 /* log2 e */
#define EXP2_LN2 0.693147180559945309  /* ln 2 */

/* 1.5·2^23: added to a small y, it leaves the nearest whole number in the lower bits. The
 * additional 127 is the bias of the exponent. */
#define EXP2_ROUND 12583039.0f

/* exp2_vec — returns 2^y for y ≤ 127, within 2 ulp. Exactly 0 for y ≤ -126, where results would be
 * subnormal and slow, and for -inf. NaN stays NaN. y is split at the nearest whole number; a
 * polynomial computes 2^f of the rest f: it is 1 at 0 and nearest to 2^f on [-½, ½] (relative error
 * 9.2e-8). */
static inline vec exp2_vec(vec y)
{
    vec lowest = vec_set(-126.0f);
#if CPU_ISA == 4
    vec n = vec_round(y);
#else
    vec shifted = y + vec_set(EXP2_ROUND), n = shifted - vec_set(EXP2_ROUND);
#endif
    vec f = y - n, p = vec_fma(vec_set(1.32647273e-3f), f, vec_set(9.67151299e-3f));
    p = vec_fma(p, f, vec_set(5.55073358e-2f));
    p = vec_fma(p, f, vec_set(2.40222424e-1f));
    p = vec_fma(p, f, vec_set(6.93147004e-1f));
    p = vec_fma(p, f, vec_set(1.0f));
#if CPU_ISA == 4
    /* also true for NaN */
    __mmask16 is_normal = _mm512_cmp_ps_mask((__m512)y, (__m512)lowest, _CMP_NLE_UQ);
    return (vec)_mm512_maskz_scalef_ps(is_normal, (__m512)p, (__m512)n);
#else
    vec power = (vec)((veci)shifted << 23); /* 2^n */
    return (vec)(~(veci)(y <= lowest) & (veci)(p * power));
#endif
}

#endif
