/* check_links — decides which of many measured links are bad, and whether a bad link is a bad node.
 * Pure: all ranks decide from the same numbers. Must not know how a link is measured, nor how it is
 * reported.
 *
 * First look: a link that is worse than the others is only a suspect, because the pairs of a round,
 * and other processes, share the cores. Second look: each suspect is measured again while no other
 * link is, in turn with a few links that look normal. Only a link that is worse than those each
 * time is bad. */
#ifndef CONVOY_CHECK_CHECK_LINKS_H
#define CONVOY_CHECK_CHECK_LINKS_H

#include "check/check_row.h"
#include "measure/measure_link.h"

/* Possible problems of a link; way 1 is from b to a. */
enum {
    CHECK_LINKS_LATENCY = 1,
    CHECK_LINKS_RATE = 2, /* << way */
    CHECK_LINKS_RATE_BACK = 4,
    CHECK_LINKS_LOSS = 8, /* << way */
    CHECK_LINKS_LOSS_BACK = 16
};

/* The normal values of links of one kind. */
struct check_links_norm {
    int n;     /* number of links; below 3 there is no relative verdict */
    int pings; /* number of pings that most links had at least */
    double best_us, slack_us, floor_us;
    double early_us, early_slack_us; /* latency of the first pings only */
    double best_most_us;             /* latency that at most one link in ten exceeds */
    double rate, rate_slack;         /* GB/s */
    double rate_least;               /* GB/s that at most one way in ten does not reach */
    double bulk_resent;              /* share of segments */
};

/* check_links_norm — computes the normal values from the measured links among n. quantile: selects
 * the norm; 0: the best value, 0.5: the median. floor_us: a difference in latency that is not
 * significant. */
void check_links_norm(const struct measure_link_found *links, int n, double quantile,
                      double floor_us, struct check_links_norm *out);
/* check_links_suspect — first look: returns the possible problems of the link. */
unsigned check_links_suspect(const struct measure_link_found *link,
                             const struct check_links_norm *norm);
/* check_links_severity — returns how much worse than the norm a link is; the worst suspects come
 * first. Public for tests. */
double check_links_severity(const struct measure_link_found *link,
                            const struct check_links_norm *norm);
/* check_links_slower — first look: returns the ways that are slower by a fifth, even if the others
 * scatter so much that this is no outlier. On a busy machine such scatter hides a link with half of
 * the rate. *share_out: rate of the slower way as a share of the norm; 1: neither is slower. Public
 * for tests. */
unsigned check_links_slower(const struct measure_link_found *link,
                            const struct check_links_norm *norm, double *share_out);
/* check_links_rate_limit — returns the rate in GB/s below which a way is slow, in both looks. It is
 * below the norm by at least a fifth, and by more than the scatter of the normal links; but at
 * least half of the smallest rate that these had. */
double check_links_rate_limit(const struct check_links_norm *norm);

/* check_links_merge — adds one more measurement to the best of the earlier ones (zeroed: none). */
void check_links_merge(struct measure_link_found *best, const struct measure_link_found *more);
/* check_links_confirm — second look: returns the problems in `flags` that a suspect still has.
 * alone: the normal links, measured in the same way. is_last: it is not measured again.
 *
 * Latency. The link is late, also without the time in which a rank waited for a core. In the end it
 * must also be later than their best_most_us, which the caller sets from all measurements of the
 * normal links. If the link had fewer pings than the normal ones, the first pings of each are
 * compared, because the best of 200 is lower than the best of 20. If the link is also slow, only
 * the share that its rate does not explain counts, because a frame waits for the previous one.
 *
 * Rate. The link is slow, also without that time; or equally slow in all slices and, after the last
 * measurement, in two of them. In the end it must also be slower than their rate_least, which the
 * caller sets from all measurements of the normal links, because two ends that share a core look
 * like a slow link. */
unsigned check_links_confirm(const struct measure_link_found *link, unsigned flags,
                             const struct check_links_norm *alone, bool is_last);

/* A link with all its results. */
struct check_link {
    struct measure_link_found found, again;
    unsigned flags; /* problems that the first look suspects */
    unsigned bad;   /* problems that the second look has confirmed */
    bool is_tested; /* it was measured again */
    int suspect; /* rank at the end that causes the problem, from check_links_blame; -1: unknown */
};
/* check_links_blame — sets `suspect` of each bad link: the end that has two or more bad links, most
 * of its links bad and none of them cleared, while a smaller share of the other end's links is
 * bad. */
void check_links_blame(struct check_link *links, int n);

/* Links between nodes, or between the ranks of a node. */
struct check_links_kind {
    bool is_local;
    bool is_host_memory;   /* the bytes go through host memory: values are shown and not judged */
    int locals;            /* ranks of each node */
    const char *transport; /* "tcp" */
    const char *device;    /* this node's main interface; "": unknown */
    struct check_links_norm norm, alone;
};

/* ---- the second look ---- */

#define CHECK_LINKS_AGAIN_MAX 64
#define CHECK_LINKS_AGAIN_NORMAL 3 /* number of links that look normal */
#define CHECK_LINKS_AGAIN_TIMES 3  /* a bad link must be bad in this number of measurements */

/* Suspects, the worst first, then links that look normal. */
struct check_links_again {
    int link[CHECK_LINKS_AGAIN_MAX + CHECK_LINKS_AGAIN_NORMAL];
    int n, suspects;
    unsigned open[CHECK_LINKS_AGAIN_MAX]; /* problems that a suspect still has */
    /* each measuring of a link that looks normal */
    struct measure_link_found normal[CHECK_LINKS_AGAIN_NORMAL * CHECK_LINKS_AGAIN_TIMES];
    int normal_n;
};

/* check_links_list — lists at most `max` suspects of the n links of a kind, which have the flags of
 * the first look. Sets the flags of links that are only slower than the others. If too few links
 * look normal, clears the flags of suspects that are regarded as normal. */
void check_links_list(struct check_link *links, int n, const struct check_links_kind *kind, int max,
                      struct check_links_again *out);

/* ---- clocks: certificates, logs of several nodes and file times need clocks that agree ---- */

#define CHECK_SKEW_WARN_MS 100
#define CHECK_SKEW_FAIL_MS 1000

/* One node's clock. */
struct check_skew {
    bool is_known;
    int64_t ms;      /* milliseconds ahead of the nodes' median; with two nodes: ahead of node 0 */
    double error_ms; /* uncertainty: the round trips of the measurement */
};

/* check_skew_find — computes the clocks of the nodes. links: between the first ranks of nodes with
 * `locals` ranks each; links that are not measured are skipped. The offset to node 0 is computed
 * along the fastest links, so not every pair is needed. out: nodes. */
void check_skew_find(const struct measure_link_found *links, int n, int nodes, int locals,
                     struct check_skew *out);

/* check_skew_row — returns the row "clock skew" of this node. root: as CHECK_ROOT. Its remedy is a
 * command for the clock's daemon on this machine. */
struct check_row check_skew_row(const struct check_skew *skew, const char *root, int node,
                                int nodes);

#endif
