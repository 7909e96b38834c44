/* measure_link — measures the link between two ranks with messages alone: latency, bandwidth both
 * ways, TCP's retransmissions, and how far apart the wall clocks are. Must not know which links
 * there are, nor which values are good.
 *
 * The rank with the lower number leads: it measures, and each of its messages has what the other
 * one is to do. So both agree on the end, and only the leader's clock counts.
 *
 * On a busy machine a rank waits for a core while its bytes wait for it. Each slice of bandwidth
 * therefore has two rates: what was seen, and what it may have been without those waits
 * (/proc/thread-self/schedstat). A link is as fast as something between the two. */
#ifndef CONVOY_MEASURE_LINK_H
#define CONVOY_MEASURE_LINK_H

#include "comm/core/comm.h"
#include "dev/dev.h"

#define MEASURE_LINK_PINGS_MAX 2048
#define MEASURE_LINK_SLICES_MAX 16
#define MEASURE_LINK_EARLY 20 /* pings; a link that loses segments may have fewer */

/* What to measure. The leader's counts. */
struct measure_link_plan {
    int pings, pings_min;      /* at most; and at least, however long they take */
    int64_t ping_ms;           /* after so long there are no more than pings_min */
    int resent_max;            /* so many retransmissions end the pings */
    int slices;                /* each way; 0: no bandwidth */
    int64_t slice_ms, bulk_ms; /* of one slice; of all slices of a way */
    int64_t end_ms; /* clock_ms from which on only pings_min and a few slices are measured */
};

/* One way of a link: [0] from a to b, [1] from b to a. */
struct measure_link_way {
    double rate, rate_max; /* GB/s of the best slice: seen; without waits for a core */
    /* (best - median) / best of the slices; small: a steady limit; 1: of too few to tell */
    double spread;
    double second;            /* rate of the second best measuring; 0: there was one */
    int64_t bulk_bytes;       /* what the slices carried; 0: bandwidth is not known */
    int64_t segments, resent; /* TCP's, of the pings alone, when nothing else used the link */
    int64_t bulk_segments, bulk_resent;
};

/* Plain data: ranks send it to each other. pings 0: not measured. */
struct measure_link_found {
    int32_t a, b; /* ranks; a leads */
    int32_t pings, knows_segments;
    double best_us, p50_us, p99_us; /* one way: half of a round trip */
    double early_us;                /* the best of the first MEASURE_LINK_EARLY pings */
    double net_us;                  /* at least so long without the waits of both ends for a core */
    int64_t offset_ms;              /* b's wall clock less a's, of the fastest ping */
    struct measure_link_way way[2];
};

struct measure_link {
    struct comm *comm;
    int rank;
    int64_t clock_offset_ms; /* added to this rank's wall clock: for tests */
    struct dev *dev;         /* the bulk lies in its memory; NULL: the host's */
    void *bulk;
    int64_t bulk_cap;
    double *samples; /* 2 × MEASURE_LINK_PINGS_MAX */
    int stat_fd;     /* -1: the kernel does not tell how long a thread waits for a core */
};

/* measure_link_open — memory for measuring: a bulk of bulk_cap bytes, in the device's memory where
 * the device executes calls. measure_link_close — may be called after a failed open. */
enum status measure_link_open(struct measure_link *link, struct comm *comm, struct dev *dev,
                              int64_t bulk_cap);
void measure_link_close(struct measure_link *link);

/* measure_link_measure — with `peer`, which calls it too, at about the same time; blocks until both
 * are done. found: set on the leader, zeroed on the other rank. */
enum status measure_link_measure(struct measure_link *link, int peer,
                                 const struct measure_link_plan *plan,
                                 struct measure_link_found *found);

#endif
