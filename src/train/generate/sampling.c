/* sampling — see sampling.h. */
#include "train/generate/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"

/* find_largest — Returns the index of the first largest logit; -1: not a distribution. */
static int64_t find_largest(const float *logits, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return -1;
        if (isfinite(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    }
    return best;
}

static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The logits to choose from: all above `least`, and the first `equals` logits that are equal to
 * it. */
struct cut {
    float least;
    int64_t equals;
};

/* keep_p — Returns the number of logits, out of n descending ones, that top_p keeps. */
static int64_t keep_p(const float *sorted, int64_t n, double temperature, double p)
{
    double total = 0, sum = 0;
    if (p >= 1)
        return n;
    for (int64_t i = 0; i < n; i++)
        total += exp(((double)sorted[i] - sorted[0]) / temperature);
    int64_t kept = 0;
    do
        sum += exp(((double)sorted[kept++] - sorted[0]) / temperature);
    while (kept < n && sum < p * total);
    return kept;
}

static struct cut cut_of(const float *logits, int64_t n, const struct sampling_params *rule,
                         float *work)
{
    int64_t finite_n = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(logits[i]))
            work[finite_n++] = logits[i];
    qsort(work, (size_t)finite_n, sizeof *work, falling);
    /* The logits that top_k keeps, and all that equal the last of them. */
    int64_t kept = rule->top_k > 0 && rule->top_k < finite_n ? rule->top_k : finite_n;
    while (kept < finite_n && work[kept] == work[kept - 1])
        kept++;
    kept = keep_p(work, kept, rule->temperature, rule->top_p);
    struct cut cut = {.least = work[kept - 1]};
    for (int64_t i = kept; i-- > 0 && work[i] == cut.least;)
        cut.equals++;
    return cut;
}

int64_t sampling_pick(const float *logits, int64_t n, const struct sampling_params *rule, double u,
                      float *work)
{
    ASSERTF(n > 0 && rule->temperature >= 0 && rule->top_k >= 0 && rule->top_p >= 0 &&
                rule->top_p <= 1 && u >= 0 && u < 1,
            "n %lld temperature %g top_k %lld top_p %g u %g", (long long)n, rule->temperature,
            (long long)rule->top_k, rule->top_p, u);
    int64_t best = find_largest(logits, n);
    if (best < 0 || rule->temperature == 0 || rule->top_k == 1 || rule->top_p == 0)
        return best;
    struct cut cut = {-INFINITY, n};
    if (rule->top_k > 0 || rule->top_p < 1)
        cut = cut_of(logits, n, rule, work);
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        bool is_in = logits[i] > cut.least || (logits[i] == cut.least && cut.equals-- > 0);
        work[i] = is_in ? (float)exp(((double)logits[i] - logits[best]) / rule->temperature) : 0;
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

/* sequence_bytes — Returns the length of the UTF-8 sequence that this byte begins; 1 if it begins
 * none. */
static size_t sequence_bytes(uint8_t first)
{
    return first >= 0xC2 && first <= 0xDF   ? 2
           : first >= 0xE0 && first <= 0xEF ? 3
           : first >= 0xF0 && first <= 0xF4 ? 4
                                            : 1;
}

size_t sampling_utf8_whole(const uint8_t *bytes, size_t n)
{
    size_t tail = 0; /* continuation bytes at the end */
    while (tail < 3 && tail < n && (bytes[n - 1 - tail] & 0xC0) == 0x80)
        tail++;
    if (tail == n)
        return n;
    size_t first = n - 1 - tail;
    return sequence_bytes(bytes[first]) > tail + 1 ? first : n;
}
