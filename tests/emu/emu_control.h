/* emu_control — how a test controls the emulation (see emu.h); for C and C++. */
#ifndef CONVOY_TESTS_EMU_CONTROL_H
#define CONVOY_TESTS_EMU_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a launch returns when the emulation found a mistake; emu_error() describes it. */
#define EMU_MISTAKE (-100)

/* emu_device — runs what a launcher submits to a stream: run(arg). arg is `bytes` bytes that may be
 * copied and kept, as a graph keeps them. NULL: it runs at once. Several threads may submit at the
 * same time; what they submit must run one after the other, on whichever thread. */
extern int (*emu_device)(void *stream, int (*run)(void *arg), const void *arg, size_t bytes);

/* emu_seed — sets the orders of blocks and threads from now on. 0: in order of their numbers, each
 * thread running as far as it can. */
void emu_seed(uint64_t seed);

/* emu_shared_max — sets the bytes of shared memory that a block may have, at most the chip's; 0:
 * the chip's, as at first: 227 KiB (sm_90), or with EMU_HIP 64 KiB. */
void emu_shared_max(size_t bytes);

/* Returns true if kernels are built for AMD GPUs (EMU_HIP). */
bool emu_is_hip(void);

/* Returns how often a kernel's limit of dynamic shared memory was set since the last call
 * (cudaFuncSetAttribute). */
int emu_opt_ins(void);

/* emu_limits_table — registers and shared memory of kernels come from this table from now on; NULL:
 * from tests/cuda/sass.tsv again. Returns how many rows it has. */
int emu_limits_table(const char *path);

/* emu_quick_error — the relative error of the approximate instructions (exp2_quick, rcp_quick);
 * 0: exact. At most 2^-22, which NVIDIA states for ex2.approx. */
extern float emu_quick_error;

/* The errors of the functions that CUDA does not round correctly (expf, exp2f, logf, log2f, tanhf,
 * rsqrtf and the approximate instructions), at most two units in the last place. An error depends
 * on the argument only, so equal arguments give equal results. */
enum emu_noise {
    EMU_NOISE_NONE,  /* as the host's C library rounds */
    EMU_NOISE_DRAWN, /* drawn from the bits of the argument */
    EMU_NOISE_UP,    /* one to two units, all upwards: such errors add up in a sum */
    EMU_NOISE_DOWN   /* the same downwards */
};

/* Sets the errors from now on. The environment sets them for a whole program: EMU_NOISE=none,
 * drawn, up or down. */
void emu_noise(enum emu_noise noise);

/* Makes subnormal floats in kernels zero from now on, operands and results, as nvcc's -ftz=true and
 * approximate instructions do; false: no more. The environment sets it for a whole program:
 * EMU_FLUSH=1. */
void emu_flush(bool flush);

/* emu_error — the first mistake since the last call, or NULL. The string is valid until the next
 * call. */
const char *emu_error(void);

/* emu_skip_barrier — skips the n-th __syncthreads (from 0) of each thread in each block; -1: none.
 * So a test can show that a missing barrier would be found. emu_barriers — how many barriers the
 * longest thread met since the last call. */
void emu_skip_barrier(int n);
int emu_barriers(void);

/* A kernel of the form for AMD GPUs (EMU_HIP), as a runtime library launches it.
 * emu_find_kernel — finds it by its mangled name, which is the same in an object of clang; returns
 * 0 if there is none. emu_run_kernel — submits a launch; args has the address of each parameter. */
struct emu_kernel {
    const void *kernel, *unpack;
};
int emu_find_kernel(const char *name, struct emu_kernel *out);
int emu_run_kernel(const struct emu_kernel *k, const unsigned *grid, const unsigned *block,
                   size_t shared_bytes, void *stream, void **args);

#ifdef __cplusplus
}
#endif
#endif
