/* supervisor_inside — the state of a node's supervisor, and what its files call of each other:
 *
 *   supervisor.c          start, signals, the event loop, the end
 *   supervisor/recover.c  what the end of a worker means for the node and the job
 *
 * Everything runs on the one thread of the event loop. Must not know devices, data or models. */
#ifndef CONVOY_NODE_SUPERVISOR_INSIDE_H
#define CONVOY_NODE_SUPERVISOR_INSIDE_H

#include <event2/event.h>

#include "base/board.h"
#include "base/file.h"
#include "base/log_tail.h"
#include "base/machine_stats.h"
#include "base/text.h"
#include "cluster/restart_budget.h"
#include "conf/conf.h"
#include "node/check/output.h"
#include "node/supervisor/cluster_bridge.h"
#include "node/process/process.h"
#include "node/supervisor/workers.h"
#include "serve/serve.h"

#define SUPERVISOR_SIGNALS_N (5 + PROCESS_STOP_SIGNALS_N)

/* What HTTP shows of a run in addition to the board. */
struct supervisor_info {
    struct log_tail tail; /* the supervisor's newest log lines */
    struct text settings; /* those that differ from their defaults: a line of JSON */
    /* the file of the curves, next to node 0's checkpoints; "": none */
    char archive[FILE_PATH_MAX];
};

struct supervisor {
    const struct conf *conf;
    bool is_check;        /* `check`: nothing is trained, and nothing started again */
    int64_t max_restarts; /* of the job; -1: it knows none */
    int args_n;
    char **args;
    struct event_base *loop;
    struct event *signals[SUPERVISOR_SIGNALS_N], *tick;
    struct board *board;
    int shm_fd;       /* -1: none */
    struct mesh mesh; /* of the job's ranks */
    struct workers *workers;
    struct cluster_bridge *bridge; /* NULL: one worker alone */
    struct check_view *check_view;
    struct serve *serve; /* NULL: STATUS_PORT=0 */
    struct board_node node;
    struct machine_counters counters; /* of the last reading */
    struct machine_stats machine;
    struct supervisor_info *info; /* NULL: nothing is served */
    struct restart_budget budget; /* with only one worker */
    int64_t losses;               /* of this node's workers in a row, without a finished step */
    int64_t checkpoints, checkpoint_step; /* that node 0's first worker made, and the last one */
    enum board_request stop;              /* the stop requested so far, here or on another node */
    int64_t stop_ms;                      /* when */
    enum board_request signalled;         /* the stop requested by a signal to this process */
    int64_t signalled_ms;
    bool was_asked;     /* by SIGINT, SIGTERM or SIGHUP: a second one ends at once */
    int64_t leave_ms;   /* ON_LOSS=shrink: this node leaves then; 0: it does not */
    bool was_preempted; /* SIGUSR1 came first */
    bool ends_at_once;  /* a second signal came */
    bool has_trained; /* a worker has published a step, so it knew whether there is a checkpoint */
    bool is_leaving;  /* the other nodes are being informed; the end follows */
    bool is_over;
    enum status result; /* its sentence is in status_message */
};

/* Collects the log's lines from now on. Called here, and for tests. */
struct supervisor_info *supervisor_open_info(const struct conf *conf);
/* Accepts NULL. Called here, and for tests. */
void supervisor_close_info(struct supervisor_info *info);
void supervisor_set_phase(struct supervisor *s, enum board_phase phase);
/* supervisor_end — leave the event loop with this status. FAIL() comes first unless it is ST_OK. */
void supervisor_end(struct supervisor *s, enum status st);
/* supervisor_leave — as supervisor_end, but inform the other nodes first. FAIL() comes first. */
void supervisor_leave(struct supervisor *s, enum status st);
/* supervisor_leaves_alone — ON_LOSS=shrink: a job goes on without a node that has to end. Node 0's
 * end is that of all. */
bool supervisor_leaves_alone(const struct supervisor *s);
bool supervisor_has_checkpoint_dir(const struct supervisor *s);

/* supervisor_recover_worker_ended — a workers_config.on_end: end the run, or start the worker
 * again. */
void supervisor_recover_worker_ended(void *arg, const struct workers_end *worker);
/* supervisor_recover_watch — node 0: counts checkpoints and, with only one worker, notes its first
 * step. Call it several times a second. */
void supervisor_recover_watch(struct supervisor *s, int64_t now_ms);
/* supervisor_recover_keep_stats — keep what must outlive worker 0, which is about to be
 * replaced. */
void supervisor_recover_keep_stats(struct supervisor *s);
/* supervisor_recover_set_resume — set node.resume_step, as far as this node knows it; returns out,
 * the same for people: "the checkpoint of step 40". */
const char *supervisor_recover_set_resume(struct supervisor *s, char *out, size_t cap);

#endif
