/* check_worker — a check in a worker process, for `check` and for CHECK of `train`: maps settings
 * to check_config, and sends the progress and the rows to the board and to the console. Must not
 * know how anything is checked. */
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
    /* statistics that this worker publishes; their phase becomes CHECKING */
    struct board_worker *stats;
    struct comm_place place;
    bool has_gpus;   /* each worker of this node has a GPU, or will open one */
    bool is_command; /* true for `check`, false for `train` */
};

/* check_worker_open — opens a check and checks this node before its device is opened, because
 * opening may fail or hang if a GPU is lost, and before the ranks are connected. The findings are
 * on the board immediately (check_result.h). *out must be closed, also after a failure. */
enum status check_worker_open(const struct check_worker_config *config, struct check_worker **out);
/* check_worker_device — sets this rank's device, which the worker borrows. Call it before
 * check_worker_run. */
void check_worker_device(struct check_worker *worker, struct dev *dev);
void check_worker_close(struct check_worker *worker); /* accepts NULL */
/* check_worker_run — runs the whole check with the ranks of comm, and publishes the result on the
 * board. Returns the status of check_run; a requested stop ends it. */
enum status check_worker_run(struct check_worker *worker, struct comm *comm);

/* check_worker_before — runs the CHECK of `train` at the start of a generation. Collective: if the
 * process of any rank was not checked yet, all ranks are checked together. ST_UNHEALTHY on every
 * rank: a row fails; the message contains its node and remedy. ST_DISAGREE: no failed row is about
 * a node. Every node has the result on its board before a rank fails. */
enum status check_worker_before(const struct check_worker_config *config, struct dev *dev,
                                struct comm *comm, bool *is_checked);

#endif
