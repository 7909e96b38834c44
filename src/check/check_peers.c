/* check_peers — see check_peers.h. */
#include "check/check_peers.h"

#include <math.h>
#include <stdlib.h>

/* A value with the node that it counts for. */
struct sample {
    int node;
    double value;
};

static int by_value(const void *a, const void *b)
{
    const double x = ((const struct sample *)a)->value, y = ((const struct sample *)b)->value;
    return (x > y) - (x < y);
}

static int by_node(const void *a, const void *b)
{
    const int x = ((const struct sample *)a)->node, y = ((const struct sample *)b)->node;
    return x != y ? (x > y) - (x < y) : by_value(a, b);
}

/* Leaves one sample for each node: its median; of two middle ones the better. Returns their
 * number. */
static int median_of_each(struct sample *sample, int n, enum check_better better)
{
    int nodes = 0;
    qsort(sample, (size_t)n, sizeof *sample, by_node);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && sample[end].node == sample[first].node;)
            end++;
        const int links = end - first;
        const int middle = better == CHECK_BETTER_HIGHER ? links / 2 : (links - 1) / 2;
        sample[nodes++] = sample[first + middle];
    }
    return nodes;
}

static double median(struct sample *sample, int n)
{
    if (n == 0)
        return NAN;
    qsort(sample, (size_t)n, sizeof *sample, by_value);
    return n % 2 ? sample[n / 2].value
                 : sample[n / 2 - 1].value / 2 + sample[n / 2].value / 2; /* may not overflow */
}

/* Of sorted values; 0 for one value. */
static double better_scatter(const struct sample *sample, int n, double median,
                             enum check_better better)
{
    const int half = n / 2, first = better == CHECK_BETTER_HIGHER ? n - half : 0;
    double sum = 0;
    for (int i = first; i < first + half; i++)
        sum += pow(sample[i].value - median, 2);
    return half > 0 ? sqrt(sum / half) : 0;
}

/* The values of the rows, or their distances from `from`; a link counts for both of its ends. */
static int collect(struct check_row *const *row, int n, bool is_link, double from,
                   struct sample *sample)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(row[i]->value))
            continue;
        const double value = isnan(from) ? row[i]->value : fabs(row[i]->value - from);
        sample[count++] = (struct sample){row[i]->node, value};
        if (is_link)
            sample[count++] = (struct sample){row[i]->peer, value};
    }
    return count;
}

enum status check_peers_of(struct check_row *const *row, int n, struct check_peers *out)
{
    *out = (struct check_peers){.median = NAN, .scatter = NAN};
    if (n == 0)
        return ST_OK;
    const bool is_link = row[0]->peer >= 0;
    struct sample *sample = malloc(2 * sizeof *sample * (size_t)n);
    if (!sample)
        return FAIL(ST_RETRY, "out of memory: %d rows of a check; use a machine with more", n);
    int count = collect(row, n, is_link, NAN, sample);
    out->n = is_link ? median_of_each(sample, count, row[0]->better) : count;
    out->median = median(sample, out->n);
    const double better = better_scatter(sample, out->n, out->median, row[0]->better);
    count = collect(row, n, is_link, out->median, sample);
    if (is_link)
        count = median_of_each(sample, count, CHECK_BETTER_LOWER);
    out->scatter = fmax(1.4826 * median(sample, count), better);
    free(sample);
    return ST_OK;
}
