/* check_worker — a check in a worker process, for `check` and for CHECK of `train`: settings to
 * check_config, the progress and the rows to the board and to the console. Must not know how
 * anything is checked. */
#ifndef CONVOY_NODE_CHECK_WORKER_H
#define CONVOY_NODE_CHECK_WORKER_H

#include "base/board.h"
#include "check/check.h"
#include "conf/conf.h"

struct check_worker;

struct check_worker_config {
    const struct conf *conf;
    struct board *board;
    int worker_i;
    struct board_worker *stats; /* what this worker publishes; its phase becomes CHECKING */
    struct comm_place place;
    bool has_gpus;   /* each worker of this node has a GPU, or is about to open one */
    bool is_command; /* `check`, not `train` */
};

/* check_worker_open — and look at this node, before its device is opened, which may fail or hang
 * where a GPU is lost, and before the ranks are connected: what is found is on the board at once
 * (check_result.h). *out: to be closed, after a failure too.
 * check_worker_device — this rank's device, which the worker borrows; before check_worker_run. */
enum status check_worker_open(const struct check_worker_config *config, struct check_worker **out);
void check_worker_device(struct check_worker *worker, struct dev *dev);
void check_worker_close(struct check_worker *worker); /* accepts NULL */
/* check_worker_run — the whole check with the ranks of comm; the result is on the board. Returns as
 * check_run does; a stop that is requested ends it. */
enum status check_worker_run(struct check_worker *worker, struct comm *comm);

/* check_worker_before — CHECK of `train`, at the start of a generation. Collective: where the
 * process of one rank was not checked yet, all ranks are checked together. ST_UNHEALTHY on every
 * rank: a row fails, with its node and remedy in the sentence; ST_DISAGREE: no row that fails names
 * a node. Every node has the result on its board before a rank fails. */
enum status check_worker_before(const struct check_worker_config *config, struct dev *dev,
                                struct comm *comm, bool *is_checked);

#endif
