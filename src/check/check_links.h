/* check_links — which of many measured links are bad, and whether a bad link is a bad node. Pure:
 * all ranks decide from the same numbers. Must not know how a link is measured, nor how it is
 * reported.
 *
 * First look: a link that is worse than the others is a suspect, no more: the pairs of a round, and
 * other processes, share the cores. Second look: each suspect is measured again while no other link
 * is, in turn with a few links that look normal. Only what is worse than those each time is bad. */
#ifndef CONVOY_CHECK_CHECK_LINKS_H
#define CONVOY_CHECK_CHECK_LINKS_H

#include "measure/measure_link.h"

/* What may be wrong with a link; way 1 is from b to a. */
enum {
    CHECK_LINKS_LATENCY = 1,
    CHECK_LINKS_RATE = 2, /* << way */
    CHECK_LINKS_RATE_BACK = 4,
    CHECK_LINKS_LOSS = 8, /* << way */
    CHECK_LINKS_LOSS_BACK = 16
};

/* What is normal for links of one kind. */
struct check_links_norm {
    int n;     /* links; below 3 there is no relative verdict */
    int pings; /* that most of them had at least */
    double best_us, slack_us, floor_us;
    double early_us, early_slack_us; /* of the first pings alone */
    double best_most_us;             /* that all had at most, but one in ten */
    double rate, rate_slack;         /* GB/s */
    double rate_least;               /* that all ways had, but one in ten */
    double bulk_resent;              /* share of segments */
};

/* check_links_norm — of the measured ones among n links. quantile: which value is the norm, 0: the
 * best one, 0.5: the median. floor_us: a difference in latency that means nothing. ST_RETRY: out of
 * memory. */
enum status check_links_norm(const struct measure_link_found *links, int n, double quantile,
                             double floor_us, struct check_links_norm *out);
/* check_links_suspect — first look: what may be wrong with the link. check_links_severity — how
 * much worse than the norm it is; of several suspects the worst come first. */
unsigned check_links_suspect(const struct measure_link_found *link,
                             const struct check_links_norm *norm);
double check_links_severity(const struct measure_link_found *link,
                            const struct check_links_norm *norm);
/* check_links_slower — first look: the ways that are slower by a fifth, also where the others
 * scatter so much that this is no outlier: on a busy machine that hides a link of half the rate.
 * *share_out: of the norm, of the slower way; 1: neither is slower. */
unsigned check_links_slower(const struct measure_link_found *link,
                            const struct check_links_norm *norm, double *share_out);
/* check_links_rate_limit — GB/s: a way below it is slow, in both looks. Below the norm by a fifth
 * at least, and by more than the normal ones scatter; or half of the least that they had. */
double check_links_rate_limit(const struct check_links_norm *norm);

/* check_links_merge — adds one more measuring to the best of those before it (zeroed: none). */
void check_links_merge(struct measure_link_found *best, const struct measure_link_found *more);
/* check_links_confirm — second look: what of `flags` is still wrong with a suspect. alone: the
 * normal links, measured in the same way. is_last: it is not measured again.
 *
 * Latency: late, also without the time in which a rank waited for a core, and in the end later than
 * alone->best_most_us, which the caller sets to that of all measurings of the normal links. Of a
 * link with fewer pings than the normal ones, the first pings of each are compared: the best of 200
 * is less than that of 20. Of a link that is slow too, only what its rate does not explain: a frame
 * waits for the one before it. Rate: slow, also without that time, or equally in all slices and,
 * after the last one, in two measurings; and in the end slower than alone->rate_least, which the
 * caller sets to that of all measurings of the normal links: two ends that share a core look like a
 * slow link. */
unsigned check_links_confirm(const struct measure_link_found *link, unsigned flags,
                             const struct check_links_norm *alone, bool is_last);

/* A link with its verdict. */
struct check_links_end {
    int a, b;
    unsigned bad, cleared; /* flags: confirmed; suspected, and not confirmed */
    bool is_measured;
    int suspect; /* the end that makes it bad, of check_links_blame; -1: not known */
};
/* check_links_blame — sets `suspect`: the end with two or more bad links, most of its links bad,
 * and none of them cleared, while the other end has a smaller part of its links bad. */
void check_links_blame(struct check_links_end *links, int n, int ends);

#endif
