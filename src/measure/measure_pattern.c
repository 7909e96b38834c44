/* measure_pattern — see measure_pattern.h. */
#include "measure/measure_pattern.h"

#include <string.h>

#include "base/assert.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

#define SUM_PERIOD 13   /* summands are 0 to 12: sums of 4,096 ranks stay below 2^24 */
#define COPY_PERIOD 211 /* whole numbers below 256: exact in bf16 too */
#define SUMMANDS 16     /* ranks that contribute to one element in 16 bits */

static void store_element(struct measure_pattern *p, int i, float value)
{
    if (p->dtype == DTYPE_F32)
        ((float *)p->data)[i] = value;
    else
        ((uint16_t *)p->data)[i] =
            p->dtype == DTYPE_BF16 ? bf16_from_float(value) : f16_from_float(value);
}

static void begin_pattern(struct measure_pattern *p, enum dtype dtype, int period)
{
    p->dtype = dtype;
    p->period = period;
    ASSERTF(period * dtype_bytes(dtype) <= sizeof p->data, "a period of %d elements", period);
}

/* Returns the number of turns in which the ranks contribute to an element. */
static int turns_of(enum dtype dtype, int ranks)
{
    return dtype == DTYPE_F32 ? 1 : (ranks + SUMMANDS - 1) / SUMMANDS;
}

static int compute_summand(int rank, int i, int turns)
{
    return (i + rank) % turns == 0 ? (i + 3 * rank) % SUM_PERIOD : 0;
}

void measure_pattern_summand(struct measure_pattern *p, enum dtype dtype, int rank, int ranks)
{
    const int turns = turns_of(dtype, ranks);
    begin_pattern(p, dtype, SUM_PERIOD * turns);
    for (int i = 0; i < p->period; i++)
        store_element(p, i, (float)compute_summand(rank, i, turns));
}

void measure_pattern_sum(struct measure_pattern *p, enum dtype dtype, int ranks)
{
    const int turns = turns_of(dtype, ranks);
    begin_pattern(p, dtype, SUM_PERIOD * turns);
    for (int i = 0; i < p->period; i++) {
        int sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += compute_summand(r, i, turns);
        store_element(p, i, (float)sum);
    }
}

void measure_pattern_copy(struct measure_pattern *p, enum dtype dtype, int from, int to)
{
    begin_pattern(p, dtype, COPY_PERIOD);
    for (int i = 0; i < p->period; i++)
        store_element(p, i, (float)((i + 31 * from + 17 * to) % COPY_PERIOD));
}

/* Returns the number of elements from element i on that lie in one period, at most n. */
static int64_t run_of(const struct measure_pattern *p, int64_t i, int64_t n)
{
    const int64_t left = p->period - i % p->period;
    return left < n ? left : n;
}

void measure_pattern_fill(const struct measure_pattern *p, void *data, int64_t first, int64_t n)
{
    const int64_t each = (int64_t)dtype_bytes(p->dtype);
    for (int64_t i = first, run; i < first + n; i += run) {
        run = run_of(p, i, first + n - i);
        memcpy((char *)data + i * each, p->data + i % p->period * each, (size_t)(run * each));
    }
}

int64_t measure_pattern_wrong(const struct measure_pattern *p, const void *data, int64_t first,
                              int64_t n)
{
    const int64_t each = (int64_t)dtype_bytes(p->dtype);
    int64_t wrong = 0;
    for (int64_t i = first, run; i < first + n; i += run) {
        const char *is = (const char *)data + i * each, *want = p->data + i % p->period * each;
        run = run_of(p, i, first + n - i);
        if (memcmp(is, want, (size_t)(run * each)) == 0)
            continue;
        for (int64_t k = 0; k < run; k++)
            wrong += memcmp(is + k * each, want + k * each, (size_t)each) != 0;
    }
    return wrong;
}

void measure_pattern_random(void *data, enum dtype dtype, int64_t n, uint64_t seed)
{
    /* exponents of numbers from ½ to 1 */
    static const uint64_t one[DTYPE_N] = {[DTYPE_F32] = 0x3F0000003F000000u,
                                          [DTYPE_BF16] = 0x3F003F003F003F00u,
                                          [DTYPE_F16] = 0x3800380038003800u},
                          keep[DTYPE_N] = {[DTYPE_F32] = 0x807FFFFF807FFFFFu,
                                           [DTYPE_BF16] = 0x807F807F807F807Fu,
                                           [DTYPE_F16] = 0x83FF83FF83FF83FFu,
                                           [DTYPE_U8] = UINT64_MAX};
    const size_t bytes = (size_t)n * dtype_bytes(dtype);
    uint64_t state = (seed * 2 + 1) * 0x9E3779B97F4A7C15u; /* odd, so never 0 */
    ASSERTF(keep[dtype] != 0, "dtype %d", dtype);
    for (size_t at = 0; at < bytes; at += sizeof state) {
        state ^= state << 13; /* Marsaglia 2003: xorshift */
        state ^= state >> 7;
        state ^= state << 17;
        const uint64_t word = one[dtype] | (state & keep[dtype]);
        memcpy((char *)data + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}
