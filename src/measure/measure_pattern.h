/* measure_pattern — numbers for measured work. Exact patterns are whole numbers whose sums over any
 * ranks have no rounding, in any order of additions: one wrong bit is a wrong element. Random
 * numbers are for rates: a GPU that multiplies zeros needs less power and runs at a higher clock.
 * Must not know their use. */
#ifndef CONVOY_MEASURE_PATTERN_H
#define CONVOY_MEASURE_PATTERN_H

#include "kernels/tensor.h"

#define MEASURE_PATTERN_BYTES 8192 /* holds a period for COMM_RANKS_MAX ranks */

/* An exact pattern: element i of a buffer is element i mod `period` here. */
struct measure_pattern {
    enum dtype dtype; /* F32, BF16, F16 */
    int period;
    _Alignas(8) char data[MEASURE_PATTERN_BYTES];
};

/* Makes the contribution of one of `ranks` ranks to a sum. In bf16, which holds whole numbers up to
 * 256 only, at most 16 ranks contribute to an element. */
void measure_pattern_summand(struct measure_pattern *p, enum dtype dtype, int rank, int ranks);
/* Makes the sum of all ranks' contributions. */
void measure_pattern_sum(struct measure_pattern *p, enum dtype dtype, int ranks);
/* Makes the numbers that rank `from` sends to rank `to`, which are copied and not added. */
void measure_pattern_copy(struct measure_pattern *p, enum dtype dtype, int from, int to);

/* Writes elements first … first + n - 1 of a buffer that begins at `data`. */
void measure_pattern_fill(const struct measure_pattern *p, void *data, int64_t first, int64_t n);
/* Returns the number of these elements that differ from the pattern. */
int64_t measure_pattern_wrong(const struct measure_pattern *p, const void *data, int64_t first,
                              int64_t n);

/* Fills n elements with random numbers of ½ to 1 and any sign; U8: with random bytes, which no file
 * system compresses. The same numbers for the same seed. */
void measure_pattern_random(void *data, enum dtype dtype, int64_t n, uint64_t seed);

#endif
