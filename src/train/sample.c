/* sample — see sample.h. */
#include "train/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/must.h"

static int64_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (!(logits[i] <= logits[best]) && isfinite(logits[i]))
            best = i;
    return best;
}

static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The k-th largest finite logit; the smallest of them when there are fewer. */
static double threshold(const float *logits, int64_t n, int64_t k, float *work)
{
    int64_t finite_n = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(logits[i]))
            work[finite_n++] = logits[i];
    if (finite_n == 0)
        return INFINITY;
    qsort(work, (size_t)finite_n, sizeof *work, falling);
    return work[k > 0 && k < finite_n ? k - 1 : finite_n - 1];
}

int64_t sample_pick(const float *logits, int64_t n, double temperature, int64_t top_k, double u, float *work)
{
    ASSERTF(n > 0 && temperature >= 0 && top_k >= 0 && u >= 0 && u < 1, "n %lld temperature %g top_k %lld u %g",
            (long long)n, temperature, (long long)top_k, u);
    int64_t best = largest(logits, n);
    if (temperature == 0 || top_k == 1)
        return best;
    double least = threshold(logits, n, top_k, work), max = logits[best], total = 0;
    for (int64_t i = 0; i < n; i++) {
        bool is_in = isfinite(logits[i]) && logits[i] >= least;
        work[i] = is_in ? (float)exp((logits[i] - max) / temperature) : 0;
        total += work[i];
    }
    double left = u * total;
    int64_t last = best;
    for (int64_t i = 0; i < n; i++) {
        if (work[i] <= 0)
            continue;
        last = i;
        left -= work[i];
        if (left < 0)
            break;
    }
    return last;
}

/* Length of the sequence that this byte begins; 1 for what begins none. */
static size_t sequence_bytes(uint8_t first)
{
    return first >= 0xC2 && first <= 0xDF   ? 2
           : first >= 0xE0 && first <= 0xEF ? 3
           : first >= 0xF0 && first <= 0xF4 ? 4
                                            : 1;
}

size_t sample_utf8_whole(const uint8_t *bytes, size_t n)
{
    size_t tail = 0; /* continuation bytes at the end */
    while (tail < 3 && tail < n && (bytes[n - 1 - tail] & 0xC0) == 0x80)
        tail++;
    if (tail == n)
        return n;
    size_t first = n - 1 - tail;
    return sequence_bytes(bytes[first]) > tail + 1 ? first : n;
}
