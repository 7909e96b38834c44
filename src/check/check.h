/* check — `convoy check` on one rank: inspects the node, measures it, its links and its groups, and
 * compares all nodes. The stages have files of their own: check_agree, check_static, check_node,
 * check_pairs, check_groups. The caller supplies the soak, because it trains.
 *
 * All ranks call check_run with the same config. Measuring and judging are separate: stages write
 * rows (check_row.h), rank 0 collects and judges the rows of all ranks (check_judge.h), and every
 * rank gets the judged rows. Must not know processes, settings or the format of reports. */
#ifndef CONVOY_CHECK_CHECK_H
#define CONVOY_CHECK_CHECK_H

#include "check/report/host.h"
#include "check/check_row.h"
#include "comm/core/comm.h"
#include "dev/dev.h"

/* A property that should be equal on all ranks, such as ("settings", "LR", "3e-4"). */
struct check_fact {
    const char *group; /* the row's name: "settings", "version", "libraries", "data" */
    enum check_point point;
    const char *name, *value; /* value "": unknown on this rank, which is no difference */
    bool is_warning;          /* a difference is WARN, not FAIL */
    const char *remedy;
};

/* QUICK: a run can afford it before each start. FULL: every size, every pair, every core. */
enum check_depth { CHECK_DEPTH_QUICK, CHECK_DEPTH_STANDARD, CHECK_DEPTH_FULL };

struct check_config {
    struct comm *comm; /* comm of all ranks; NULL: one rank */
    struct comm_place place;
    struct dev *dev;
    enum check_depth depth;
    int64_t budget_ms; /* milliseconds for all stages but the soak */
    int64_t soak_ms;   /* milliseconds; 0: no soak */
    /* a folder that replaces / above /sys, /proc, /dev and so on; "": the machine itself */
    const char *root;
    const char *dir;       /* folder of checkpoints; "": none */
    const char *data_addr; /* the interface or address of data; "" or NULL: not set */
    int gpus_expected;     /* GPUs expected on a node; -1: not set */
    int gpus_allotted;     /* GPUs of a node that Slurm allotted; 0: not set */
    int gpus_used;         /* GPUs used on a node: its workers that have a GPU */
    bool is_amd;           /* DEVICE=hip: the GPUs are AMD's, also on a node with NVIDIA's */
    /* for tests: one bit of this rank's sums is wrong; milliseconds by which its wall clock is
     * wrong */
    bool flips_sums;
    int64_t clock_offset_ms;
    /* this node's scheduler, and the name that the scheduler and the remedies use for the node */
    enum check_scheduler scheduler;
    const char *host;
    /* the caller's facts about this rank; facts of one group are adjacent */
    const struct check_fact *facts;
    int facts_n;
    /* rows of check_static_run from before the ranks connected; NULL: check_run calls it */
    const struct check_rows *found;
    /* BASELINE=: compares the judged rows with a file, and adds rows. Called on rank 0. NULL:
     * none */
    enum status (*compare)(void *arg, struct check_rows *rows);
    /* The soak of this rank, for checks deeper than a quick one or with soak_ms: adds rows. ms 0:
     * as short as possible. check: the config of the stages. NULL: there is none. */
    enum status (*soak)(void *arg, const struct check_config *check, int64_t ms,
                        struct check_rows *rows);
    /* Called between measurements, several times a second; NULL: never. A stage passes the share of
     * itself that is done, 0 to 1; the caller of check_run gets the share of the whole check. Any
     * status but ST_OK ends the check. */
    enum status (*progress)(void *arg, enum check_stage stage, double done);
    /* Called after each stage: rank 0 gets the judged rows of all ranks so far, another rank gets
     * its own rows; NULL: never. */
    void (*stage_ended)(void *arg, enum check_stage stage, const struct check_rows *rows);
    void *arg;
};

/* check_run — runs all stages. out: the judged rows of all ranks. Blocks for about budget_ms +
 * soak_ms. ST_PEER: a rank was lost. A problem of a machine is a row, not a failure. */
enum status check_run(const struct check_config *config, struct check_rows *out);

/* The stages, each in its own file. They are collective, with the same budget on all ranks, and add
 * rows of this rank. One rank of a node reports for the node if a thing exists once per node. */

/* check_agree_run — compares the facts of all ranks, which should be equal; rank 0 adds the rows.
 * One rank of each node adds the name of the node. Ignores the budget. */
enum status check_agree_run(const struct check_config *config, int64_t budget_ms,
                            struct check_rows *rows);
/* check_static_run — checks properties of the node that need no computation (host/static.h). Does
 * nothing on ranks whose local number is not 0. */
void check_static_run(const struct check_config *config, int64_t budget_ms,
                      struct check_rows *rows);
/* check_node_run — measures the performance of this rank's device and node: products, memory,
 * copies, cores, disk. */
enum status check_node_run(const struct check_config *config, int64_t budget_ms,
                           struct check_rows *rows);
/* check_pairs_run — measures each link between two ranks. With one rank it adds a row SKIPPED. */
enum status check_pairs_run(const struct check_config *config, int64_t budget_ms,
                            struct check_rows *rows);
/* check_groups_run — checks the results of collectives, then measures their speed. With one rank it
 * adds a row SKIPPED. */
enum status check_groups_run(const struct check_config *config, int64_t budget_ms,
                             struct check_rows *rows);

#endif
