/* peak — measures the highest arithmetic rate and memory bandwidth of this machine: the limits with
 * which times are compared. Not an operation, and must not know any. One version for each ISA
 * level. */
#ifndef CONVOY_KERNELS_PEAK_H
#define CONVOY_KERNELS_PEAK_H

#include <stdint.h>

struct cpu;

#define PEAK_DECLARE(level)                                                                 \
    double peak_fma_##level(const struct cpu *cpu, double seconds);                         \
    double peak_update_##level(const struct cpu *cpu, float *data, int64_t n, int repeats); \
    double peak_read_##level(const struct cpu *cpu, float *data, int64_t n, int repeats);

/* peak_fma — measures FLOP/s of fp32 multiply-adds in registers, on all threads together, two for
 * each multiply-add. Measures for `seconds` (5 ms is enough for 1 %). Level v2 has no FMA: it
 * multiplies, then adds.
 *
 * peak_update — measures bytes/s of data[i] += 1 over n elements on all threads, 8 bytes an element
 * (read and written); the best of `repeats` ≥ 1 passes. With n·4 bytes far beyond the caches, this
 * is the bandwidth that an optimiser can reach.
 *
 * peak_read — measures bytes/s of summing n elements, 4 bytes each: the bandwidth for weights that
 * are only read. */
PEAK_DECLARE(v2)
PEAK_DECLARE(v3)
PEAK_DECLARE(v4)
PEAK_DECLARE(neon)
#undef PEAK_DECLARE

/* peak_amx — measures FLOP/s of fp32 multiply-adds in AMX tiles, computed as in
 * gemm_amx_tile_cpu.h: six bf16 multiply-adds for each, operands in the first-level cache. Only if
 * the level `amx` is open. */
double peak_amx(const struct cpu *cpu, double seconds);

#endif
