/* check_row — one row of a check's result: the subject on a node, device or link, the value, the
 * verdict and the remedy. Every stage of `convoy check` writes rows; judging and reports read them.
 *
 * A row is plain data: ranks send rows to each other as bytes, and all ranks run the same program.
 * Must not know how anything is measured. */
#ifndef CONVOY_CHECK_CHECK_ROW_H
#define CONVOY_CHECK_CHECK_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* The stages, in their order. X(NAME, name) */
#define CHECK_STAGE_LIST(X)   \
    X(AGREEMENT, "agreement") \
    X(STATIC, "static")       \
    X(NODE, "node")           \
    X(PAIRS, "pairs")         \
    X(GROUPS, "groups")       \
    X(SOAK, "soak")
enum check_stage {
#define CHECK_STAGE_ENUM(name, text) CHECK_STAGE_##name,
    CHECK_STAGE_LIST(CHECK_STAGE_ENUM)
#undef CHECK_STAGE_ENUM
        CHECK_STAGE_N
};

/* The eighteen tests that Lamini lists for a training cluster (2024), in its order, and HOST for
 * rows that belong to none of them. */
#define CHECK_POINT_LIST(X)                           \
    X(GPUS, "GPU enumeration")                        \
    X(WORKERS, "worker enumeration")                  \
    X(GRES, "Slurm GRES")                             \
    X(INTERFACES, "network interfaces")               \
    X(TOPOLOGY, "network topology")                   \
    X(LAUNCH, "launch")                               \
    X(COMMUNICATION, "communication between ranks")   \
    X(LATENCY, "latency and bandwidth")               \
    X(COLLECTIVES, "collective function")             \
    X(COLLECTIVE_SPEED, "collective performance")     \
    X(SCHEDULING, "scheduling and priority")          \
    X(QOS, "quality of service")                      \
    X(CHECKPOINT, "checkpoint and restart")           \
    X(DISTRIBUTION, "model distribution among ranks") \
    X(ONE_DEVICE, "training on one GPU")              \
    X(ONE_NODE, "training on many GPUs of a node")    \
    X(MANY_NODES, "training on many nodes")           \
    X(PARTITIONING, "data partitioning among nodes")  \
    X(HOST, "host")
enum check_point {
#define CHECK_POINT_ENUM(name, text) CHECK_POINT_##name,
    CHECK_POINT_LIST(CHECK_POINT_ENUM)
#undef CHECK_POINT_ENUM
        CHECK_POINT_N
};

/* MEASURED: a value that check_judge has not judged yet. */
enum check_verdict {
    CHECK_VERDICT_PASS,
    CHECK_VERDICT_SKIPPED,
    CHECK_VERDICT_WARN,
    CHECK_VERDICT_FAIL,
    CHECK_VERDICT_MEASURED
};

enum check_better { CHECK_BETTER_HIGHER, CHECK_BETTER_LOWER };

/* Rows of one name, unit and hardware are compared with one another, over all nodes and subjects.
 * An unknown number is NAN; a node, a peer or a rank that the row is not about is -1. */
struct check_row {
    enum check_stage stage;
    enum check_point point;
    enum check_verdict verdict;
    int node, peer; /* the node that the row is about; for a link, also the node at its other end */
    /* for a link: the end whose other links are also worse, written by check_judge; -1: unknown */
    int suspect;
    int rank;
    char name[40]; /* name of the quantity: "memlock", "product bf16", "link latency" */
    /* the measured thing: "GPU 3", "core 1", "mlx5_0 port 1", "tcp"; "": the node */
    char subject[64];
    char unit[16]; /* unit of value, limit and slack: "us", "GB/s", "" */
    double value;
    double limit; /* limit that decided the verdict; written by check_judge */
    /* MEASURED: which values are good, and the largest difference to the peers' median that is not
     * significant. slack stays NAN in rows that were never measured. */
    enum check_better better;
    double slack;
    char hardware[32]; /* key of an absolute limit in check_limits.def: "NVIDIA H100 80GB HBM3" */
    char why[256];     /* one sentence about the finding, with values; for SKIPPED: the reason */
    char remedy[192];  /* a command, or a setting, that repairs it or drains the node */
};

/* The rows of a check. Zero-initialised is valid and empty. */
struct check_rows {
    struct check_row *row;
    int n, cap;
};

/* Copies a row to the end. */
void check_row_add(struct check_rows *rows, const struct check_row *row);
/* Frees the rows; may be called twice. */
void check_row_free(struct check_rows *rows);

/* Returns a row with a verdict but without a number, for node `node`. why is formatted like
 * printf's. The caller sets subject, value and remedy, if there are any. */
struct check_row check_row_found(enum check_stage stage, enum check_point point, int node,
                                 const char *name, enum check_verdict verdict, const char *why, ...)
    __attribute__((format(printf, 6, 7)));
/* Returns a row that check_judge will judge. */
struct check_row check_row_measured(enum check_stage stage, enum check_point point, int node,
                                    const char *name, const char *unit, double value,
                                    enum check_better better, double slack);

/* Returns the name of a stage: "pairs". */
const char *check_row_stage(enum check_stage stage);
/* Returns the name of a point: "Slurm GRES". */
const char *check_row_point(enum check_point point);
/* Returns the name of a verdict: "fail". */
const char *check_row_verdict(enum check_verdict verdict);
/* Returns true for a row that warns or fails. */
bool check_row_is_bad(const struct check_row *row);
/* Returns true if the row is about `node`. A link's row is about its suspect, or about both ends if
 * there is none. node -1: any node. */
bool check_row_is_about(const struct check_row *row, int node);
/* Returns the worst verdict of the rows that are about `node` (-1: of all rows): FAIL, else WARN,
 * else PASS. */
enum check_verdict check_row_worst(const struct check_rows *rows, int node);

/* A member of a row. One table of members is used for JSON and its reader, /status, and messages
 * between ranks. */
struct check_row_field {
    const char *name;
    enum {
        CHECK_ROW_WORD,  /* int: an index of `words` */
        CHECK_ROW_INDEX, /* int: a node or a rank; -1: none */
        CHECK_ROW_NUMBER,
        CHECK_ROW_TEXT
    } kind;
    size_t at, bytes; /* position and size in struct check_row */
    const char *const *words;
    int words_n;
    bool is_short; /* also part of the short form in /status */
};
#define CHECK_ROW_FIELDS 17
/* Returns member number i, in the order of JSON. */
const struct check_row_field *check_row_field(int i);

#define CHECK_ROW_BYTES_MAX ((size_t)1 << 30) /* limit for a text of packed rows */
/* Appends a row as bytes, for other ranks and for the supervisor. The bytes are valid between
 * processes of one version on machines of one kind. Sets out->overflow if memory is short. */
void check_row_pack(const struct check_row *row, struct text *out);
/* Appends all rows as bytes. ST_RETRY: memory is short. */
enum status check_row_pack_all(const struct check_rows *rows, struct text *out);
/* Adds the rows in these bytes. ST_BUG: the bytes were not written by check_row_pack. */
enum status check_row_unpack(const void *bytes, size_t n, struct check_rows *rows);

#endif
