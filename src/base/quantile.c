/* quantile — see quantile.h. */
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void quantile_sort(double *values, int n) { qsort(values, (size_t)n, sizeof *values, by_value); }

double quantile_of(const double *sorted, int n, double q)
{
    const int rank = (int)ceil(q * n);
    return sorted[rank < 1 ? 0 : rank > n ? n - 1 : rank - 1];
}

double quantile_median(double *values, int n)
{
    if (n == 0)
        return NAN;
    quantile_sort(values, n);
    return n % 2 ? values[n / 2]
                 : values[n / 2 - 1] / 2 + values[n / 2] / 2; /* the sum may overflow */
}
