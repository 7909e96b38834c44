/* emu_kernels — small kernels, correct ones and ones with a planted mistake, to test the
 * emulation. */
#ifndef CONVOY_TESTS_EMU_KERNELS_H
#define CONVOY_TESTS_EMU_KERNELS_H

#include <stdint.h>

#include "kernels/cuda.h"

enum emu_mistake {
    EMU_MISTAKE_NONE,
    EMU_MISTAKE_NO_BARRIER,   /* a sum through shared memory without the barrier before reading */
    EMU_MISTAKE_NO_WARP,      /* the same within a warp, without __syncwarp */
    EMU_MISTAKE_TWO_BARRIERS, /* half of the threads at another barrier */
    EMU_MISTAKE_EARLY_RETURN, /* threads beyond the end leave before a barrier */
    EMU_MISTAKE_LANES,        /* lanes of a warp in different operations */
    EMU_MISTAKE_NO_WAIT,      /* a copy is read without cp_wait */
    EMU_MISTAKE_SHARED_END,   /* a write just behind the shared memory */
    EMU_MISTAKE_ALIGNMENT,    /* a copy of 16 bytes from an odd address */
    EMU_MISTAKE_N
};

/* What emu_kernels_number computes of x. */
enum emu_number {
    EMU_NUMBER_EXP,
    EMU_NUMBER_EXP2,
    EMU_NUMBER_LOG,
    EMU_NUMBER_LOG2,
    EMU_NUMBER_TANH,
    EMU_NUMBER_RSQRT,
    EMU_NUMBER_EXP2_QUICK,
    EMU_NUMBER_RCP_QUICK,
    EMU_NUMBER_TWICE,   /* 2x */
    EMU_NUMBER_HALF,    /* x/2 */
    EMU_NUMBER_SQUARE,  /* x·x - 1, which a compiler may contract to one operation */
    EMU_NUMBER_ROUNDED, /* the same with __fmul_rn, which it may not */
    EMU_NUMBER_N
};

#ifdef __cplusplus
extern "C" {
#endif
/* out[block] = Σ in[block·256 …] by 256 threads, in a way that needs `mistake` not to be made. */
int emu_kernels_sum(int *out, const int *in, int blocks, enum emu_mistake mistake);
/* d (16,8) f32 = a (16,k) · b (k,8), k 16 (bf16, f16) or 8 (f32 as tf32), through fragments filled
 * by the PTX manual's formulas. */
int emu_kernels_mma(float *d, struct tensor a, struct tensor b);
/* The same for bf16, fragments by ldmatrix (b by its transpose) from a swizzled tile of copies. */
int emu_kernels_ldmatrix(float *d, struct tensor a, struct tensor b);
/* out[i] = factor of element first + i, out[n + i] the same through drop_factors<8>. */
int emu_kernels_drop(float *out, int n, uint64_t first, const struct dropout *d);
/* bits[i] = in[i] rounded to dtype (16 bits); back[i] = that as float, through store_floats and
 * load_floats. n % 8 == 0. */
int emu_kernels_round(uint16_t *bits, float *back, const float *in, int n, enum dtype dtype);
/* out[0 … 3] = sum, maximum, count of in > 0 and lowest in of 256 floats, through block_sum,
 * block_max, votes, atomics. */
int emu_kernels_reduce(float *out, const float *in);
/* *out = kernel, by one of EMU_KERNELS_LARGE kernels with as much shared memory as must be allowed
 * beforehand. */
#define EMU_KERNELS_LARGE 16
int emu_kernels_large(int *out, int kernel);
/* Launches a kernel that writes 7 to the last word of its `bytes` of dynamic shared memory, and to
 * *out. */
int emu_kernels_shared(int *out, size_t bytes);
/* Computes out[i] = number of in[i], n numbers. */
int emu_kernels_number(float *out, const float *in, int n, enum emu_number number);
#ifdef __cplusplus
}
#endif
#endif
