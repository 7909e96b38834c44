/* check_node_inside — what the parts of the node stage share: check_node*.c alone include it. Must
 * not know other stages. */
#ifndef CONVOY_CHECK_CHECK_NODE_INSIDE_H
#define CONVOY_CHECK_CHECK_NODE_INSIDE_H

#include "check/check.h"

/* Rates that all ranks measure at once. A CPU has the first product alone. */
enum check_node_kind {
    CHECK_NODE_KIND_F32,
    CHECK_NODE_KIND_BF16,
    CHECK_NODE_KIND_F16,
    CHECK_NODE_KIND_COPY,
    CHECK_NODE_KIND_TRIAD,
    CHECK_NODE_KIND_N
};
#define CHECK_NODE_PRODUCTS 3 /* the first ones */

/* Sizes of what is measured, the same on all ranks with one kind of device; 0: is not measured. */
struct check_node_sizes {
    int64_t side[CHECK_NODE_PRODUCTS]; /* of square matrices */
    int64_t elems;                     /* f32, of each of two buffers */
};

/* The best of short slices. */
struct check_node_best {
    double seconds; /* 0: not measured */
    /* the share of that time by which others that had the cores may have made it longer, 0 … 1 */
    double waited;
    int slices;
};

struct check_node {
    const struct check_config *config;
    struct check_rows *rows;
    struct stream *stream;
    struct dev_info info;
    bool is_gpu;
    char subject[64];  /* "GPU 3", "worker 1"; "": the node's only worker, on a CPU */
    char hardware[32]; /* NVML's name of a GPU; "": a CPU */
    int64_t limit_ms;  /* for one measurement */
    struct check_node_sizes sizes;
    void *buffer[2]; /* for the bandwidth of memory; NULL: it is not measured */
    size_t buffer_bytes;
    struct check_node_best rate[CHECK_NODE_KIND_N];
};

/* check_node_time_best — runs work, which waits until the device has done it, in slices until
 * limit_ms are used, at least eight times. *best: replaced where a slice
 * was better. */
enum status check_node_time_best(const struct check_node *n, int64_t limit_ms,
                                 enum status (*work)(void *arg), void *arg,
                                 struct check_node_best *best);
/* check_node_time_once — seconds of the faster of two runs, the first of which warms up. */
enum status check_node_time_once(const struct check_node *n, enum status (*work)(void *arg),
                                 void *arg, double *seconds_out);
/* check_node_time_slack — the difference to a peer's value that means nothing: 5 %, and what other
 * processes may have taken of the best slice. */
double check_node_time_slack(const struct check_node_best *best, double value);
/* check_node_time_done — reports progress: `done` of 1. ST_OK, or what ends the check. */
enum status check_node_time_done(const struct check_node *n, double done);

/* check_node_add — a row of this rank's device, MEASURED. */
enum status check_node_add(struct check_node *n, const char *name, const char *unit, double value,
                           double slack, const char *why);
/* check_node_failed — what went wrong on this device becomes a row that fails: ST_OK. A lost rank
 * and memory that is short stay what they are. */
enum status check_node_failed(struct check_node *n, const char *name, enum status st);

/* check_node_rates_measure — all kinds of check_node_kind, on all ranks at once; collective. A rate
 * that is worse than the peers' is measured again while most of them rest, so what other processes
 * took for a moment is no verdict. Adds the rows. */
enum status check_node_rates_measure(struct check_node *n);

/* Products: y = x·w, square. _begin: finds the sides at which a slice is short. _rate: measures for
 * limit_ms. _value: in `unit`. */
enum status check_node_product_begin(struct check_node *n);
enum status check_node_product_rate(struct check_node *n, enum check_node_kind kind,
                                    int64_t limit_ms);
const char *check_node_product_name(const struct check_node *n, enum check_node_kind kind);
double check_node_product_value(const struct check_node *n, enum check_node_kind kind,
                                const char **unit_out);

/* Memory: a copy and a triad (p ← p - a·g). A quick check leaves out a CPU's, whose buffers take
 * longer to get than to copy. _begin takes the buffers, _end frees them. _host, on a GPU: copies
 * from and to the host, which adds its rows; collective: the ranks of a node take turns. */
enum status check_node_memory_begin(struct check_node *n);
void check_node_memory_end(struct check_node *n);
enum status check_node_memory_rate(struct check_node *n, enum check_node_kind kind,
                                   int64_t limit_ms);
const char *check_node_memory_name(enum check_node_kind kind);
double check_node_memory_value(const struct check_node *n, enum check_node_kind kind,
                               const char **unit_out);
enum status check_node_memory_host(struct check_node *n);

/* check_node_core_measure — the cores of this rank's share: the clock of each by itself, and
 * whether each computes the same. Its thread is pinned to one core after the other. */
enum status check_node_core_measure(struct check_node *n);

#endif
