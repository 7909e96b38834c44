/* plan_cluster — what the planner knows of a machine: devices, links, price. One file of JSON each
 * (docs/cluster-files.md lists the keys); those that come with the program are found by name.
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
 * logarithm of the size, outside it is that of the nearest point. n 0: 1 everywhere. */
struct plan_share {
    int n;
    struct {
        double size, share; /* size ascending, above 0; share in (0, 1] */
    } point[PLAN_CLUSTER_POINTS_MAX];
};
double plan_cluster_share(const struct plan_share *share, double size);

/* The same by the rows of a product, for linear layers of some widths (the smaller of in and out);
 * between two widths linear in the logarithm. n 0: nothing is known. */
#define PLAN_CLUSTER_WIDTHS_MAX 8
struct plan_rows {
    int n;
    struct plan_rows_width {
        double width; /* ascending, above 0 */
        struct plan_share share;
    } width[PLAN_CLUSTER_WIDTHS_MAX];
};
double plan_cluster_rows_share(const struct plan_rows *of, double rows, double width);
#define PLAN_CLUSTER_WIDE 16384 /* from this larger width on a layer is wide, */
#define PLAN_CLUSTER_BLOCK 4096 /* and is not up to this one */

/* A message of b bytes takes latency_us + b / (bytes_per_second · share), where share is by the
 * bytes of the call's whole buffer. bytes_per_second 0: there is no such link.
 * scatter_part, gather_part: the time of a reduce-scatter and of an all-gather as a part of that of
 * an all-reduce of as many bytes. 0: not measured: one way around the ring, which moves half of the
 * bytes of an all-reduce. In shared memory the parts follow from what is read and written. */
struct plan_link {
    double latency_us, bytes_per_second;
    double scatter_part, gather_part;
    struct plan_share share;
};

/* What products compute in. fp16 counts as bf16. */
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
    int nodes;                /* 0: as many as are asked for */
    int locals;               /* devices (GPUs, or worker processes of a CPU) of a node */
    double memory_bytes;      /* of a device; of a CPU, of the node */
    double host_memory_bytes; /* GPU: of the node; 0: unknown */
    /* FLOP/s of a device's dense products; 0: it has none. CPU: of one worker that has threads_n
     * threads while `locals` of them compute at once */
    double peak[PLAN_PRECISION_N];
    double memory_bytes_per_second; /* device memory, of one device while all compute */
    /* by FLOPs of one product. A precision without points of its own has those of bf16, else of
     * f32 (plan_cluster_parse copies them) */
    struct plan_share product[PLAN_PRECISION_N];
    /* CPU: of all precisions, in place of `product`; of wide layers, n 0: as of others */
    struct plan_rows product_rows, product_wide;
    struct plan_share attention; /* of the product peak, by FLOPs of one attention */
    /* GPU: of the program's own kernels in place of `attention`, by direction; n 0: unknown */
    struct plan_share attention_own_forward, attention_own_backward;
    struct plan_share attention_width;    /* of that share, by the width of a head */
    double memory_share, optimizer_share; /* of memory_bytes_per_second */
    double operation_us;                  /* what each operation takes besides: its launch */
    double step_us;          /* what each step takes besides: samples, results, agreement */
    int threads_n;           /* CPU: of a worker */
    int cores;               /* CPU: of a node; 0: unknown, at least one for each thread */
    struct plan_link inside; /* between two devices of a node: each way, of one device */
    struct plan_link across; /* between two nodes: each way, of one node, all its ports */
    /* what computation loses to collectives beside it, of their time; on a CPU it can be over 1 */
    double overlap_cost;
    double disk_bytes_per_second; /* checkpoints, of a node; 0: unknown */
    double price_per_hour;        /* of a device, in US dollars; 0: unknown */
    double watts; /* of a device under load, with its share of the node; 0: unknown */
};

/* plan_cluster_open — CLUSTER=: the name of a built-in file, or the path of a file (a name with a
 * slash or a dot). ST_BAD_SETTING: no such name (the message lists all). ST_BAD_DATA: the file is
 * not right, with the key. ST_NO_INPUT: it cannot be read.
 * plan_cluster_nth — built-in number i; false: there are no more. */
enum status plan_cluster_open(const char *name, struct plan_cluster *out);
bool plan_cluster_nth(int i, struct plan_cluster *out);

/* plan_cluster_parse — public for tests: one JSON object; what: its name for failures. ST_BAD_DATA.
 * plan_cluster_write — appends the same object on several lines, without what
 * the machine does not compute in. */
enum status plan_cluster_parse(const char *bytes, size_t n, const char *what,
                               struct plan_cluster *out);
void plan_cluster_write(const struct plan_cluster *cluster, struct text *out);

#endif
