/* check_judge — turns measured values into verdicts. Pure: the same rows give the same verdicts on
 * any machine.
 *
 * 1. A limit that check_limits has for a row's name, unit and hardware.
 * 2. The peers: the rows of the same name, unit and hardware, over all nodes and subjects. A value
 *    that is worse than their median by CHECK_JUDGE_WARN or CHECK_JUDGE_FAIL warns or fails; a row
 *    of the static stage only warns: a node may have less on purpose. The difference must also be
 *    larger than the row's slack, and than a multiple of the peers' scatter (check_peers.h): a busy
 *    machine spreads all values, and then none is an outlier.
 * 3. The worse of both decides. With fewer than CHECK_JUDGE_PEERS values there is no relative
 *    verdict: the row passes. With fewer than CHECK_JUDGE_WARN_PEERS a value fails or passes,
 *    because the scatter of so few is not known well enough for a difference of 5 %.
 *
 * Must not know how a value was measured, nor how a report looks. */
#ifndef CONVOY_CHECK_CHECK_JUDGE_H
#define CONVOY_CHECK_CHECK_JUDGE_H

#include "check/check_row.h"

#define CHECK_JUDGE_WARN 0.05
#define CHECK_JUDGE_FAIL 0.20
#define CHECK_JUDGE_PEERS 3
#define CHECK_JUDGE_WARN_PEERS 8

/* check_judge_outlier — for tests: of n values that scatter like a normal distribution, the worst
 * is so many of check_peers' scatters from the median in one of 1,000 groups. Few values say little
 * of their scatter: 9.6 for 8 values, 4.9 for 32, 4.4 for very many. */
double check_judge_outlier(int n);

/* check_judge — gives each row of verdict MEASURED its verdict, limit and why, and each row that
 * warns or fails a remedy if it has none (check_host.h). What `why` says already stays behind the
 * values. ST_RETRY: out of memory. O(n log n).
 *
 * Links (peer >= 0) are judged by the median over nodes of each node's median link, so one bad node
 * among three does not become the norm. Where most links of one node warn or fail, and a smaller
 * part of those of the other ends, `suspect` is that node.
 *
 * A link of an end with a failing cpu quota or core clock is SKIPPED where it warns or fails by its
 * speed: that node sends as slowly as it computes.
 *
 * A value of NAN is SKIPPED. An infinite one fails if infinitely bad, else it is SKIPPED. */
enum status check_judge(struct check_rows *rows);
/* check_judge_remedies — the last part of check_judge, for rows that warn or fail for a reason of
 * the caller's. ST_RETRY: out of memory. */
enum status check_judge_remedies(struct check_rows *rows);

#endif
