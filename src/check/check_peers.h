/* check_peers — what the peers of a measured value measured: their median and their scatter, both
 * robust against a few bad ones. Pure. Must not know verdicts. */
#ifndef CONVOY_CHECK_CHECK_PEERS_H
#define CONVOY_CHECK_CHECK_PEERS_H

#include "check/check_row.h"

struct check_peers {
    int n;          /* values, or for links nodes */
    double median;  /* NAN: none */
    double scatter; /* standard deviation, estimated; NAN: none */
};

/* check_peers_of — of n rows of the same name and unit; values that are not finite do not count.
 *
 * Scatter is the larger of 1.4826 times the median absolute deviation (Iglewicz, Hoaglin 1993) and
 * the root mean square of the better half's deviations. Both stay small while less than half of the
 * values are bad. The first also sees a long tail of slow values, which a busy machine makes; the
 * second depends less on luck where there are few values.
 *
 * Links (the first row has a peer): the median over nodes of each node's median link. Of two middle
 * links of a node, the better. A bad node spoils n - 1 links, but only one of these medians. So it
 * is found among three nodes; the plain median of links fails when 30 % of the nodes are bad.
 * ST_RETRY: out of memory. O(n log n). */
enum status check_peers_of(struct check_row *const *row, int n, struct check_peers *out);

#endif
