/* quantile — medians and percentiles of measured values. Pure. Must not know the meaning of the
 * values. */
#ifndef CONVOY_BASE_QUANTILE_H
#define CONVOY_BASE_QUANTILE_H

/* Standard deviation of a normal distribution whose median absolute deviation is 1 (Iglewicz,
 * Hoaglin 1993). */
#define QUANTILE_SIGMA_OF_MAD 1.4826

/* Sorts values in ascending order; NAN is not allowed. */
void quantile_sort(double *values, int n);
/* Returns the nearest-rank quantile of n > 0 sorted values: the least value that a share q of them
 * does not exceed. q 0: the minimum, 0.5: the lower median, 1: the maximum. */
double quantile_of(const double *sorted, int n, double q);
/* Sorts n values and returns their median: the mean of the two middle ones if n is even; NAN if n
 * is 0. */
double quantile_median(double *values, int n);

#endif
