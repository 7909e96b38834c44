/* measure_link — measures the link between two ranks, only with messages: latency, bandwidth both
 * ways, TCP's retransmissions, and the difference of the wall clocks. Must not know which links
 * there are, nor which values are good.
 *
 * The rank with the lower number leads: it measures, and each of its messages contains the next
 * action of the other rank. So both agree on the end, and only the leader's clock counts.
 *
 * On a busy machine a rank waits for a core while its bytes wait for it. Each slice of bandwidth
 * therefore has two rates: the measured rate, and the rate that it may have had without those waits
 * (/proc/thread-self/schedstat). The speed of a link is between the two. */
#ifndef CONVOY_MEASURE_LINK_H
#define CONVOY_MEASURE_LINK_H

#include "comm/core/comm.h"
#include "dev/dev.h"

#define MEASURE_LINK_PINGS_MAX 2048
#define MEASURE_LINK_SLICES_MAX 16
#define MEASURE_LINK_EARLY 20 /* pings; a link that loses segments may have fewer */

/* The measurements to make. The leader's plan counts. */
struct measure_link_plan {
    int pings, pings_min;      /* most pings; least pings, however much time they need */
    int64_t ping_ms;           /* milliseconds after which there are no more than pings_min */
    int resent_max;            /* number of retransmissions that ends the pings */
    int slices;                /* slices each way; 0: no bandwidth */
    int64_t slice_ms, bulk_ms; /* milliseconds of one slice; of all slices of a way */
    int64_t end_ms; /* clock_ms from which on only pings_min and a few slices are measured */
};

/* One way of a link: [0] from a to b, [1] from b to a. */
struct measure_link_way {
    double rate, rate_max; /* GB/s of the best slice: measured; without waits for a core */
    /* (best - median) / best of the slices; small: a steady limit; 1: too few slices */
    double spread;
    double second;      /* rate of the second best measurement; 0: there was one */
    int64_t bulk_bytes; /* bytes of the slices; 0: bandwidth was not measured */
    /* TCP's counts of the pings only, during which nothing else used the link */
    int64_t segments, resent;
    int64_t bulk_segments, bulk_resent;
};

/* Plain data: ranks send it to each other. pings 0: not measured. */
struct measure_link_found {
    int32_t a, b; /* ranks; a leads */
    int32_t pings, knows_segments;
    double best_us, p50_us, p99_us; /* microseconds one way: half of a round trip */
    double early_us;   /* microseconds of the best of the first MEASURE_LINK_EARLY pings */
    double net_us;     /* least microseconds without the waits of both ends for a core */
    int64_t offset_ms; /* b's wall clock minus a's, measured by the fastest ping */
    struct measure_link_way way[2];
};

struct measure_link {
    struct comm *comm;
    int rank;
    int64_t clock_offset_ms; /* added to this rank's wall clock: for tests */
    struct dev *dev;         /* the bulk lies in its memory; NULL: the host's */
    void *bulk;
    int64_t bulk_cap;
    double *samples; /* 2 × MEASURE_LINK_PINGS_MAX numbers */
    int stat_fd;     /* -1: the kernel does not report for how long a thread waits for a core */
};

/* measure_link_open — allocates memory for measuring: a bulk of bulk_cap bytes, in the device's
 * memory if the device executes calls. */
enum status measure_link_open(struct measure_link *link, struct comm *comm, struct dev *dev,
                              int64_t bulk_cap);
/* measure_link_close — frees it. May be called after a failed open. */
void measure_link_close(struct measure_link *link);

/* measure_link_measure — measures the link to `peer`, which calls it too, at about the same time;
 * blocks until both are done. found: set on the leader, zeroed on the other rank. */
enum status measure_link_measure(struct measure_link *link, int peer,
                                 const struct measure_link_plan *plan,
                                 struct measure_link_found *found);

#endif
