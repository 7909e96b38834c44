/* access_kernels — small kernels, each with one planted mistake and its correct twin, to test what
 * instrumented kernels report (tests/emu/emu_access.h) and the limits of launches. */
#ifndef CONVOY_TESTS_ACCESS_KERNELS_H
#define CONVOY_TESTS_ACCESS_KERNELS_H

#include "kernels/cuda.h"

enum access_mistake {
    ACCESS_RACE_BLOCK,     /* a neighbour's word is read without a barrier */
    ACCESS_RACE_WARP,      /* the same in a warp, without __syncwarp; a shuffle does not help */
    ACCESS_RACE_AFTER,     /* a word is written again without a barrier after it was read */
    ACCESS_RACE_GLOBAL,    /* two blocks write one word */
    ACCESS_RACE_READ,      /* a block reads what another one writes */
    ACCESS_RACE_ATOMIC,    /* atomics of all threads, and a plain read without a barrier */
    ACCESS_RACE_COPY,      /* a cp.async is read without cp_wait */
    ACCESS_RACE_COPY_OVER, /* a cp.async begins while other threads still read its target */
    ACCESS_UNSET_SHARED,   /* a word of shared memory that no thread has written is read */
    ACCESS_UNSET_SCRATCH,  /* the same of scratch */
    ACCESS_BESIDE,         /* a read behind the end of a tensor */
    ACCESS_MISTAKES
};

/* 64 threads in 2 blocks; out (256), in (256), scratch (256) are words. */
#define ACCESS_WORDS 256

/* What a warp's accesses look like. */
enum access_shape {
    ACCESS_ROWS,        /* 32 lanes, 32 words in a row */
    ACCESS_BROADCAST,   /* all lanes the same word */
    ACCESS_EIGHT_WAY,   /* words 8 apart: 8 lanes in a bank */
    ACCESS_WIDE,        /* 16 bytes a lane, in a row */
    ACCESS_WIDE_STRIDE, /* 16 bytes a lane, 32 bytes apart: two of a quarter-warp in a bank */
    ACCESS_HALVES,      /* 2 bytes a lane, in a row */
    ACCESS_COPIES,      /* cp.async of 16 bytes a lane, in a row */
    ACCESS_MATRIX,      /* ldmatrix, rows 128 bytes apart: all eight in the same banks */
    ACCESS_MATRIX_SWIZZLED,
    ACCESS_SHAPES
};

/* What breaks a limit of a launch; each has a twin at the limit. */
enum access_limit {
    ACCESS_LIMIT_SHARED, /* 48 KiB without cudaFuncSetAttribute */
    ACCESS_LIMIT_PARAMS, /* more than 4 KiB of parameters */
    ACCESS_LIMIT_GRID,
    ACCESS_LIMIT_THREADS,
    ACCESS_LIMITS
};

#ifdef __cplusplus
extern "C" {
#endif
int access_kernels_mistake(int *out, const int *in, int *scratch, enum access_mistake mistake,
                           bool is_made);
/* Loads from global memory, through shared memory, stores to global memory. in, out: 512 words. */
int access_kernels_shape(int *out, const int *in, enum access_shape shape, bool is_shared);
int access_kernels_limit(enum access_limit limit, bool is_broken);
#ifdef __cplusplus
}
#endif
#endif
