/* plan_machine_inside — what the files of plan_machine share: plan_machine.c (the order, what a
 * step takes besides), plan_machine_time.c (how times are taken), plan_machine_device.c
 * (operations), plan_machine_link.c (calls). */
#ifndef CONVOY_PLAN_PLAN_MACHINE_INSIDE_H
#define CONVOY_PLAN_PLAN_MACHINE_INSIDE_H

#include "plan/plan_machine.h"
#include "plan/plan_ops.h"

struct plan_machine {
    const struct plan_machine_config *config;
    struct plan_cluster *cluster;
    struct dev_info info;
    struct stream *stream;
    enum dtype dtype; /* of activations: what trains fastest on the device */
    char *memory;     /* of the device */
    int64_t bytes;
    char *zeros;  /* behind it */
    char *shared; /* of comm_alloc, several ranks */
    int64_t shared_bytes;
    double slice; /* seconds of one measurement */
    int ranks, rank;
    bool shares_cores; /* the workers of a node have more threads than there are cores */
};

/* plan_machine_time — seconds of one run of `work`: of the rank that takes longest, while all ranks
 * run theirs at once. Runs are begun one after another, and the device is waited for at the end.
 * _time_largest: the greatest value of all ranks. Both collective. */
typedef enum status (*plan_machine_work)(const struct plan_machine *m, const void *args);
enum status plan_machine_time(const struct plan_machine *m, plan_machine_work work,
                              const void *args, double *seconds_out);
enum status plan_machine_time_largest(const struct plan_machine *m, double *value);
int plan_machine_time_by_value(const void *a, const void *b); /* doubles, for qsort */

/* Memory for arguments, one behind the other: taken so far. _take_shared: of what travels between
 * workers, parameters and gradients. On a CPU it lies in memory that they share, in small pages. */
struct plan_machine_taken {
    const struct plan_machine *m;
    int64_t at, shared_at;
};
struct tensor plan_machine_turn_take(struct plan_machine_taken *t, int64_t elems, enum dtype dtype);
struct tensor plan_machine_turn_take_shared(struct plan_machine_taken *t, int64_t elems,
                                            enum dtype dtype);

/* Work that is repeated has its arguments in another place each time, all over the memory. So it
 * finds as little of them in caches as in a step, where other operations were between.
 * plan_machine_turn_open — of what was taken; false: there is no memory for it. at: which turn it
 * is, 0 at first. _next: the next one, to take from. */
struct plan_machine_turns {
    const struct plan_machine *m;
    int64_t bytes, shared_bytes, n, shared_n, *at;
};
bool plan_machine_turn_open(const struct plan_machine_taken *t, int64_t *at,
                            struct plan_machine_turns *out);
struct plan_machine_taken plan_machine_turn_next(const struct plan_machine_turns *turns);

/* plan_machine_share — rates become shares of a peak. _add: a point with its rate. _within: a share
 * that a file may hold, however disturbed its measurement was. _best: the largest rate, at least
 * `best`. _divide: points become shares of it. _peak: both, with the data sheet's peak. */
#define PLAN_MACHINE_SHARE_LEAST 1e-6
void plan_machine_share_add(struct plan_share *share, double size, double rate);
double plan_machine_share_within(double share, double least);
double plan_machine_share_best(const struct plan_share *share, double best);
void plan_machine_share_divide(struct plan_share *share, double best);
double plan_machine_share_peak(double sheet, struct plan_share *share);

/* plan_machine_product — peak and product, or product_rows and product_wide.
 * plan_machine_device — peaks, shares, operation_us. plan_machine_link — inside, across and
 * overlap_cost; the device is measured. */
enum status plan_machine_product(struct plan_machine *m);
enum status plan_machine_device(struct plan_machine *m);
enum status plan_machine_link(struct plan_machine *m);
/* Called in one file, and for tests:
 * plan_machine_link_fit — the link with which calls like this one take these times: n sizes from
 * the smallest on, at least 2. The least time is the latency; a rate is at most four times the
 * memory's, and a share one that a file may hold, however disturbed a time is. */
void plan_machine_link_fit(struct plan_cluster *cluster, struct plan_link *link,
                           const struct plan_call *like, const double *bytes, const double *seconds,
                           int n);
/* plan_machine_link_overlap — overlap_cost of n tries, which are put in order: their median. False:
 * they differ too much to be a measurement, and what is given is at most 1. */
bool plan_machine_link_overlap(double *part, int n, double *out);

#endif
