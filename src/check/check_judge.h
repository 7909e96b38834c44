/* check_judge — turns measured values into verdicts. Pure: the same rows give the same verdicts on
 * any machine.
 *
 *   1. A limit in check_limits.def for a row's name, unit and hardware.
 *   2. The peers: the rows of the same name, unit and hardware, over all nodes and subjects. A
 *     value that is worse than their median by CHECK_JUDGE_WARN or CHECK_JUDGE_FAIL warns or fails.
 *     A row of the static stage only warns, because a node may have less on purpose. The difference
 *     must also be larger than the row's slack and than a multiple of the peers' scatter: a busy
 *     machine spreads all values, and then none is an outlier.
 *   3. The worse of both decides. With fewer than CHECK_JUDGE_PEERS values there is no relative
 *     verdict: the row passes. With fewer than CHECK_JUDGE_WARN_PEERS a value fails or passes,
 *     because the scatter of few values is too uncertain to detect a difference of 5 %.
 *
 * Must not know how a value was measured, nor the format of reports. */
#ifndef CONVOY_CHECK_CHECK_JUDGE_H
#define CONVOY_CHECK_CHECK_JUDGE_H

#include <stddef.h>

#include "check/check_row.h"

#define CHECK_JUDGE_WARN 0.05
#define CHECK_JUDGE_FAIL 0.20
#define CHECK_JUDGE_PEERS 3
#define CHECK_JUDGE_WARN_PEERS 8

/* A reference for comparisons. */
struct check_reference {
    const char *name; /* "the median of 8 peers", "the baseline of 2026-11-20" */
    double value;     /* NAN: there is none */
    double scatter;   /* estimated standard deviation of the peers; 0 or NAN: unknown */
    int n;            /* number of peers; from CHECK_JUDGE_WARN_PEERS on a difference may warn */
};

/* Sets verdict, limit and why of each row with verdict MEASURED, and the remedy of each row that
 * warns or fails without one (report/host.h). The stage's `why` stays after the values. O(n log n).
 *
 * Links already have their verdict (links/links.h). If a node at an end of a link has a failing cpu
 * quota or core clock, the link is SKIPPED instead of warning or failing by its speed: that node
 * sends as slowly as it computes.
 *
 * A value of NAN is SKIPPED. An infinite value fails if it is infinitely bad, else it is
 * SKIPPED. */
void check_judge(struct check_rows *rows);
/* Judges a row that has a verdict also by another reference: the worse verdict decides. */
void check_judge_beside(struct check_row *row, const struct check_reference *ref);
/* Adds the remedies of rows that warn or fail: the last step of check_judge. */
void check_judge_remedies(struct check_rows *rows);

/* Returns median and scatter of n rows of one name and unit. Values that are not finite do not
 * count. values: room for n. Public for tests.
 *
 * Scatter is the larger of 1.4826 times the median absolute deviation (Iglewicz, Hoaglin 1993) and
 * the root mean square of the better half's deviations. Both stay small while less than half of the
 * values are bad. The first also detects a long tail of slow values, as a busy machine produces;
 * the second depends less on luck if there are few values. */
struct check_reference check_judge_peers(struct check_row *const *row, int n, double *values);
/* Returns the factor by which the scatter is multiplied for n values: in one of 1,000 groups of
 * normally distributed values, the worst one is further from the median. Few values show little of
 * their scatter: 9.6 for 8 values, 4.9 for 32, 4.4 for very many. Public for tests. */
double check_judge_outlier(int n);

/* An absolute limit of known hardware, with its source: a row of check_limits.def. */
struct check_judge_limit {
    const char *name, *unit, *hardware;
    enum check_better better;
    double expected; /* value of good hardware, from the data sheet or as published; NAN: unknown */
    double warn, fail; /* a worse value warns, fails; NAN: no limit */
    const char *source;
};

/* Returns the limit of this name, unit and hardware; NULL: the table has none. Public for tests. */
const struct check_judge_limit *check_judge_limit(const char *name, const char *unit,
                                                  const char *hardware);
/* Returns limit number i; NULL after the last one. Public for tests. */
const struct check_judge_limit *check_judge_limit_at(int i);
/* Writes the hardware key of a GPU, which is NVML's name, from its name in dev_info: "cuda 3 NVIDIA
 * H200 sm_90 driver 13.0" → "NVIDIA H200". */
void check_judge_gpu(const char *device, char *out, size_t cap);

#endif
