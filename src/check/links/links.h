/* check_links — which of many measured links are bad, and whether a bad link is a bad node. Pure:
 * all ranks decide from the same numbers. Must not know how a link is measured, nor how it is
 * reported.
 *
 * First look: a link that is worse than the others is a suspect, no more: the pairs of a round, and
 * other processes, share the cores. Second look: each suspect is measured again while no other link
 * is, in turn with a few links that look normal. Only what is worse than those each time is bad. */
#ifndef CONVOY_CHECK_CHECK_LINKS_H
#define CONVOY_CHECK_CHECK_LINKS_H

#include "check/check_row.h"
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
 * best one, 0.5: the median. floor_us: a difference in latency that means nothing. */
void check_links_norm(const struct measure_link_found *links, int n, double quantile,
                      double floor_us, struct check_links_norm *out);
/* First look: returns what may be wrong with the link. */
unsigned check_links_suspect(const struct measure_link_found *link,
                             const struct check_links_norm *norm);
/* Returns how much worse than the norm a link is (for tests); of several suspects the worst come
 * first. */
double check_links_severity(const struct measure_link_found *link,
                            const struct check_links_norm *norm);
/* First look: returns the ways that are slower by a fifth (for tests), also where the others
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

/* A link in all that was found. */
struct check_link {
    struct measure_link_found found, again;
    unsigned flags; /* of the first look */
    unsigned bad;   /* flags that the second look has confirmed */
    bool is_tested; /* it was measured again */
    int suspect;    /* the end that makes it bad, of check_links_blame; -1: not known */
};
/* Sets `suspect` of each link: the end with two or more bad links, most of its links bad, and none
 * of them cleared, while the other end has a smaller part of its links bad. */
void check_links_blame(struct check_link *links, int n);

/* Links between nodes, or between the ranks of a node. */
struct check_links_kind {
    bool is_local;
    bool is_host_memory;   /* the bytes go through it: values are shown and not judged */
    int locals;            /* ranks of each node */
    const char *transport; /* "tcp" */
    const char *device;    /* this node's main interface; "": not known */
    struct check_links_norm norm, alone;
};

/* ---- the second look ---- */

#define CHECK_LINKS_AGAIN_MAX 64
#define CHECK_LINKS_AGAIN_NORMAL 3 /* links that look normal */
#define CHECK_LINKS_AGAIN_TIMES 3  /* a link that is bad was bad so often */

/* Suspects, the worst first, then links that look normal. */
struct check_links_again {
    int link[CHECK_LINKS_AGAIN_MAX + CHECK_LINKS_AGAIN_NORMAL];
    int n, suspects;
    unsigned open[CHECK_LINKS_AGAIN_MAX]; /* what is still wrong with a suspect */
    /* each measuring of a link that looks normal */
    struct measure_link_found normal[CHECK_LINKS_AGAIN_NORMAL * CHECK_LINKS_AGAIN_TIMES];
    int normal_n;
};

/* Lists at most `max` suspects of the n links of a kind, which have the flags of the first look.
 * Sets the flags of links that are only slower than the others, and clears those of suspects that
 * are taken for normal, where too few look so. */
void check_links_list(struct check_link *links, int n, const struct check_links_kind *kind, int max,
                      struct check_links_again *out);

/* ---- clocks: certificates, logs of several nodes and file times need clocks that agree ---- */

#define CHECK_SKEW_WARN_MS 100
#define CHECK_SKEW_FAIL_MS 1000

/* One node's clock. */
struct check_skew {
    bool is_known;
    int64_t ms;      /* ahead of the nodes' median; of two nodes: of node 0 */
    double error_ms; /* the round trips by which it was measured */
};

/* check_skew_find — links: between the first ranks of nodes of `locals` ranks each; those that are
 * not measured are skipped. The offset to node 0 goes along the fastest links, so not every pair is
 * needed. out: nodes. */
void check_skew_find(const struct measure_link_found *links, int n, int nodes, int locals,
                     struct check_skew *out);

/* check_skew_row — the row "clock skew" of this node. root: as CHECK_ROOT. Its remedy is a command
 * of the clock's daemon that the machine has. */
struct check_row check_skew_row(const struct check_skew *skew, const char *root, int node,
                                int nodes);

#endif
