/* check — `convoy check` on one rank: looks at the node, measures it, its links and its groups, and
 * compares all nodes. The stages are files of their own: check_agree, check_static, check_node,
 * check_pairs, check_groups; the soak is the caller's, because it trains.
 *
 * All ranks call check_run with the same config. Measuring and judging are apart: stages write rows
 * (check_row.h), rank 0 collects and judges those of all ranks (check_judge.h), and every rank gets
 * the judged rows. Must not know processes, settings or how a report looks. */
#ifndef CONVOY_CHECK_CHECK_H
#define CONVOY_CHECK_CHECK_H

#include "check/report/host.h"
#include "check/check_row.h"
#include "comm/core/comm.h"
#include "dev/dev.h"

/* One thing that ranks are expected to have in common, such as ("settings", "LR", "3e-4"). */
struct check_fact {
    const char *group; /* the row's name: "settings", "version", "libraries", "data" */
    enum check_point point;
    const char *name, *value; /* value "": this rank cannot say, which is no difference */
    bool is_warning;          /* a difference is WARN, not FAIL */
    const char *remedy;
};

/* QUICK: what a run can afford before each start. FULL: every size, every pair, every core. */
enum check_depth { CHECK_DEPTH_QUICK, CHECK_DEPTH_STANDARD, CHECK_DEPTH_FULL };

struct check_config {
    struct comm *comm; /* of all ranks; NULL: one rank */
    struct comm_place place;
    struct dev *dev;
    enum check_depth depth;
    int64_t budget_ms; /* for all stages but the soak */
    int64_t soak_ms;   /* 0: none */
    /* a folder that stands before /sys, /proc, /dev and so on; "": the machine itself */
    const char *root;
    const char *dir;       /* where checkpoints go; "": nowhere */
    const char *data_addr; /* the interface or address of data; "" or NULL: not given */
    int gpus_expected;     /* of a node; -1: not given */
    int gpus_allotted;     /* of a node, by Slurm; 0: not given */
    int gpus_used;         /* of a node: its workers that have one */
    /* for tests: this rank's sums are wrong by one bit; its wall clock is wrong by so much */
    bool flips_sums;
    int64_t clock_offset_ms;
    /* how this node's scheduler, and so the remedies, name the node */
    enum check_scheduler scheduler;
    const char *host;
    /* what the caller knows of this rank; the facts of one group are neighbours */
    const struct check_fact *facts;
    int facts_n;
    /* rows of check_static_run, made before the ranks connected; NULL: check_run calls it */
    const struct check_rows *found;
    /* BASELINE=: compares the judged rows with a file, and adds rows; on rank 0; NULL: none */
    enum status (*compare)(void *arg, struct check_rows *rows);
    /* The soak of this rank, of more than a quick check, or with soak_ms: adds rows; ms 0: as short
     * as it can be. check: as the stages get it. NULL: there is none. */
    enum status (*soak)(void *arg, const struct check_config *check, int64_t ms,
                        struct check_rows *rows);
    /* Called between measurements, several times a second; NULL: never. A stage gives the share of
     * itself that is done, 0 to 1; the caller of check_run gets the share of the whole check.
     * Anything but ST_OK ends the check. */
    enum status (*progress)(void *arg, enum check_stage stage, double done);
    /* Called after each stage: rank 0 gets the judged rows of all ranks so far, another rank its
     * own; NULL: never. */
    void (*stage_ended)(void *arg, enum check_stage stage, const struct check_rows *rows);
    void *arg;
};

/* check_run — out: the judged rows of all ranks. Blocks for about budget_ms + soak_ms. ST_PEER: a
 * rank was lost. What is wrong with a machine is a row, not a failure. */
enum status check_run(const struct check_config *config, struct check_rows *out);

/* The stages, each in its own file. Collective, with the same budget on all ranks; rows of this
 * rank. One rank of a node speaks for the node where a thing exists once per node. */
enum status check_agree_run(const struct check_config *config, int64_t budget_ms,
                            struct check_rows *rows);
void check_static_run(const struct check_config *config, int64_t budget_ms,
                      struct check_rows *rows);
enum status check_node_run(const struct check_config *config, int64_t budget_ms,
                           struct check_rows *rows);
enum status check_pairs_run(const struct check_config *config, int64_t budget_ms,
                            struct check_rows *rows);
enum status check_groups_run(const struct check_config *config, int64_t budget_ms,
                             struct check_rows *rows);

#endif
