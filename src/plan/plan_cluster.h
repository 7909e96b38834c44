/* plan_cluster — a machine as the planner sees it: devices, links, price. One file of JSON each
 * (docs/cluster-files.md lists the keys); the files that come with the program are found by name.
 *
 * Peaks come from data sheets, and shares of them are fitted or measured. Must not know models. */
#ifndef CONVOY_PLAN_PLAN_CLUSTER_H
#define CONVOY_PLAN_PLAN_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define PLAN_CLUSTER_POINTS_MAX 16
#define PLAN_CLUSTER_LOCALS_MAX 64
#define PLAN_CLUSTER_NODES_MAX 4096

/* A share of a peak that grows with the size of the work: between two points it is linear in the
 * logarithm of the size, outside it equals the share of the nearest point. n 0: 1 everywhere. */
struct plan_share {
    int n;
    struct {
        double size, share; /* size ascending, above 0; share in (0, 1] */
    } point[PLAN_CLUSTER_POINTS_MAX];
};
/* plan_cluster_share — returns the share for work of this size (> 0), in the unit of the points. */
double plan_cluster_share(const struct plan_share *share, double size);

/* Shares by the rows of a product, for linear layers of some widths (the smaller of in and out);
 * between two widths linear in the logarithm. n 0: not measured. */
#define PLAN_CLUSTER_WIDTHS_MAX 8
struct plan_rows {
    int n;
    struct plan_rows_width {
        double width; /* ascending, above 0 */
        struct plan_share share;
    } width[PLAN_CLUSTER_WIDTHS_MAX];
};
/* plan_cluster_rows_share — returns the share of a product of `rows` rows by a layer of `width`;
 * beyond the first or last width, the share of that width. n must not be 0. */
double plan_cluster_rows_share(const struct plan_rows *of, double rows, double width);
#define PLAN_CLUSTER_WIDE 16384 /* a layer is wide if its larger width is at least this, */
#define PLAN_CLUSTER_BLOCK 4096 /* and not wide if it is at most this */

/* A link. A message of b bytes needs latency_us + b / (bytes_per_second · share); the share depends
 * on the bytes of the call's whole buffer. bytes_per_second 0: there is no such link.
 *
 * scatter_ratio, gather_ratio: the time of a reduce-scatter and of an all-gather, as a ratio to the
 * time of an all-reduce of the same bytes. 0: not measured: one way around the ring, which moves
 * half of the bytes of an all-reduce. In shared memory the ratios follow from the bytes read and
 * written. */
struct plan_link {
    double latency_us, bytes_per_second;
    double scatter_ratio, gather_ratio;
    struct plan_share share;
};

/* The precision of products. fp16 counts as bf16. */
#define PLAN_PRECISION_LIST(X) \
    X(F32, "f32")              \
    X(TF32, "tf32")            \
    X(BF16, "bf16")            \
    X(FP8, "fp8")
enum plan_precision {
#define PLAN_PRECISION_ENUM(name, text) PLAN_PRECISION_##name,
    PLAN_PRECISION_LIST(PLAN_PRECISION_ENUM)
#undef PLAN_PRECISION_ENUM
        PLAN_PRECISION_N
};
const char *plan_cluster_precision(enum plan_precision precision); /* "f32", … */

struct plan_cluster {
    char name[64], source[512];
    bool is_gpu;
    int nodes;                /* 0: any number that the user requests */
    int locals;               /* devices (GPUs, or worker processes of a CPU) of a node */
    double memory_bytes;      /* bytes of a device; CPU: bytes of the node */
    double host_memory_bytes; /* GPU: bytes of the node; 0: unknown */
    /* FLOP/s of a device's dense products; 0: it has none. CPU: FLOP/s of one worker that has
     * threads_n threads while all `locals` of them compute */
    double peak[PLAN_PRECISION_N];
    double memory_bytes_per_second; /* device memory, of one device while all compute */
    /* shares by FLOPs of one product. A precision without points of its own has the points of bf16,
     * else of f32 (plan_cluster_parse copies them) */
    struct plan_share product[PLAN_PRECISION_N];
    /* CPU: shares of all precisions, instead of `product`; product_wide: of wide layers, n 0: as of
     * others */
    struct plan_rows product_rows, product_wide;
    struct plan_share attention; /* share of the product peak, by FLOPs of one attention */
    /* GPU: shares of the program's own kernels instead of `attention`, by direction; n 0:
     * unknown */
    struct plan_share attention_own_forward, attention_own_backward;
    struct plan_share attention_width;    /* factor of that share, by the width of a head */
    double memory_share, optimizer_share; /* shares of memory_bytes_per_second */
    double operation_us;     /* µs that each operation needs in addition: its launch */
    double step_us;          /* µs that each step needs in addition: samples, results, agreement */
    int threads_n;           /* CPU: threads of a worker */
    int cores;               /* CPU: cores of a node; 0: unknown, at least one for each thread */
    struct plan_link inside; /* link between two devices of a node: each way, of one device */
    struct plan_link across; /* link between two nodes: each way, of one node, all its ports */
    /* time that computation loses to concurrent collectives, as a share of their time; on a CPU it
     * can be over 1 */
    double overlap_cost;
    double disk_bytes_per_second; /* checkpoints, for each node; 0: unknown */
    double price_per_hour;        /* US dollars for each device; 0: unknown */
    double watts; /* power of a device under load, with its share of the node; 0: unknown */
};

/* plan_cluster_open — opens CLUSTER=: the name of a built-in file, or the path of a file (a name
 * with a slash or a dot). ST_BAD_SETTING: no such name (the message lists all). ST_BAD_DATA: the
 * file is not right; the message has the key. ST_NO_INPUT: it cannot be read. */
enum status plan_cluster_open(const char *name, struct plan_cluster *out);
/* plan_cluster_nth — returns built-in cluster i; false: there are no more. */
bool plan_cluster_nth(int i, struct plan_cluster *out);

/* plan_cluster_parse — reads one JSON object. what: its name for failures. ST_BAD_DATA. Public for
 * tests. */
enum status plan_cluster_parse(const char *bytes, size_t n, const char *what,
                               struct plan_cluster *out);
/* plan_cluster_write — appends the same object on several lines, without precisions in which the
 * machine cannot compute. */
void plan_cluster_write(const struct plan_cluster *cluster, struct text *out);

#endif
