/* peak — what this machine's arithmetic and memory give at most: the ceilings that times are
 * compared with. Not an operation of the model; must not know of one. One version a level, as the
 * kernels have. */
#ifndef CONVOY_KERNELS_PEAK_H
#define CONVOY_KERNELS_PEAK_H

#include <stdint.h>

struct cpu;

#define PEAK_DECLARE(level)                                                                  \
    double peak_fma_v##level(const struct cpu *cpu, double seconds);                         \
    double peak_update_v##level(const struct cpu *cpu, float *data, int64_t n, int repeats); \
    double peak_read_v##level(const struct cpu *cpu, float *data, int64_t n, int repeats);

/* peak_fma — FLOP/s of fp32 multiply-adds (2 each; level 2 has no FMA and multiplies, then adds)
 * in registers, all
 *   threads together, measured for `seconds` (5 ms is enough for 1 %).
 * peak_update — bytes/s of data[i] += 1 over n elements on all threads, 8 bytes an element (read
 * and written), best of
 *   `repeats` ≥ 1 passes. With n·4 bytes far beyond the caches this is the bandwidth an optimiser
 *   can reach. peak_read — the same of summing the elements, 4 bytes each: what can be had of
 *   weights that are only read. */
PEAK_DECLARE(2)
PEAK_DECLARE(3)
PEAK_DECLARE(4)
#undef PEAK_DECLARE

/* peak_amx — the same as peak_fma of products made of AMX tiles as kernels/gemm_amx_tile_cpu.h
 * makes them: FLOP/s of
 *   fp32 multiply-adds, six bf16 ones each, operands in the first cache. Where the level `amx` is
 *   open only. */
double peak_amx(const struct cpu *cpu, double seconds);

#endif
