/* supervisor_inside — the state of a node's supervisor, and the functions that its files call of
 * each other:
 *
 *   supervisor.c          start, signals, the event loop, the end
 *   supervisor/recover.c  the consequences of a worker's end for the node and the job
 *   supervisor/upload.c   CHECKPOINT_DIR in a bucket
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

/* Data of a run that HTTP shows in addition to the board. */
struct supervisor_info {
    struct log_tail tail; /* the supervisor's newest log lines */
    struct text settings; /* the settings that differ from their defaults, as a line of JSON */
    /* the file of the curves, next to node 0's checkpoints; "": none */
    char archive[FILE_PATH_MAX];
};

struct supervisor {
    const struct conf *conf;
    bool is_check;        /* `check`: nothing is trained, and no worker is restarted */
    int64_t max_restarts; /* restart budget of the job; -1: unknown here */
    int args_n;
    char **args;
    struct event_base *loop;
    struct event *signals[SUPERVISOR_SIGNALS_N], *tick;
    struct board *board;
    int shm_fd;       /* -1: none */
    struct mesh mesh; /* mesh of the job's ranks */
    struct workers *workers;
    struct uploader *uploader;     /* NULL: CHECKPOINT_DIR is not in a bucket, or not node 0 */
    struct cluster_bridge *bridge; /* NULL: the job has only one worker */
    struct check_view *check_view;
    struct serve *serve; /* NULL: STATUS_PORT=0 */
    struct board_node node;
    struct machine_counters counters; /* values of the last reading */
    struct machine_stats machine;
    struct supervisor_info *info; /* NULL: nothing is served */
    struct restart_budget budget; /* used only with one worker */
    /* while the job recovers: time of the loss, 0: it does not; generation and process of this
     * node's first worker before it */
    int64_t recovering_ms, recovering_generation;
    int32_t recovering_pid;
    int64_t losses; /* consecutive losses of this node's workers without a finished step */
    /* number of checkpoints that node 0's first worker made, and the step of the last one */
    int64_t checkpoints, checkpoint_step;
    enum board_request stop;      /* the stop requested so far, here or on another node */
    int64_t stop_ms;              /* time of that request */
    enum board_request signalled; /* the stop requested by a signal to this process */
    int64_t signalled_ms;
    bool was_asked; /* SIGINT, SIGTERM or SIGHUP came: a second one ends the process immediately */
    int64_t leave_ms;   /* ON_LOSS=shrink: time at which this node leaves; 0: it does not */
    bool was_preempted; /* SIGUSR1 came first */
    bool ends_at_once;  /* a second signal came */
    /* a worker has published a step, so it has determined whether there is a checkpoint */
    bool has_trained;
    bool has_started;  /* the workers were started */
    bool is_uploading; /* the run is over, and its last checkpoint is being uploaded */
    /* Node 0 cannot begin: the failure, and the time until which other nodes may join to get it; 0:
     * it can. */
    enum status refused;
    struct status_saved refused_text;
    int64_t refused_ms;
    bool is_leaving; /* the other nodes are being informed; the end follows */
    bool is_over;
    enum status result; /* its message is in status_message */
};

/* supervisor_open_info — starts collecting the lines of the log. Public for tests. */
struct supervisor_info *supervisor_open_info(const struct conf *conf);
/* supervisor_close_info — stops collecting. Accepts NULL. Public for tests. */
void supervisor_close_info(struct supervisor_info *info);
/* supervisor_set_phase — sets the node's phase and publishes it on the board. */
void supervisor_set_phase(struct supervisor *s, enum board_phase phase);
/* supervisor_end — leaves the event loop with this status. Call FAIL() before it unless st is
 * ST_OK. */
void supervisor_end(struct supervisor *s, enum status st);
/* supervisor_set_result — sets the status with which the node ends, and publishes it. Call FAIL()
 * before it unless st is ST_OK. */
void supervisor_set_result(struct supervisor *s, enum status st);
/* supervisor_leave — informs the other nodes, then does the same as supervisor_end. Call FAIL()
 * before it. */
void supervisor_leave(struct supervisor *s, enum status st);
/* supervisor_leaves_alone — returns true if the job goes on without this node when the node has to
 * end (ON_LOSS=shrink). The end of the node that leads the job is the end of all nodes. */
bool supervisor_leaves_alone(const struct supervisor *s);
/* supervisor_has_checkpoint_dir — returns true if CHECKPOINT_DIR is set. */
bool supervisor_has_checkpoint_dir(const struct supervisor *s);

/* supervisor_recover_worker_ended — ends the run or starts the worker again. It is the on_end of
 * workers_config. */
void supervisor_recover_worker_ended(void *arg, const struct workers_end *worker);
/* supervisor_recover_watch — counts checkpoints on node 0 and, with only one worker, records its
 * first step. Call it several times a second. */
void supervisor_recover_watch(struct supervisor *s, int64_t now_ms);
/* supervisor_recover_keep_stats — keeps the values of worker 0 that are needed after it is
 * replaced. */
void supervisor_recover_keep_stats(struct supervisor *s);
/* supervisor_recover_set_resume — sets node.resume_step, as far as this node can determine it.
 * Returns out with a text for the log: "the checkpoint of step 40". */
const char *supervisor_recover_set_resume(struct supervisor *s, char *out, size_t cap);

/* supervisor_upload_open — on node 0, if CHECKPOINT_DIR is in a bucket: opens the uploader. Errors
 * as uploader_open. */
enum status supervisor_upload_open(struct supervisor *s);
/* supervisor_upload_tick — publishes the numbers of the uploads. *is_ready_out: the workers may
 * start. Fails if the download failed, or if another run uploads to the same place. */
enum status supervisor_upload_tick(struct supervisor *s, bool *is_ready_out);
/* supervisor_upload_signal — handles a signal while supervisor_upload_finish waits. */
void supervisor_upload_signal(struct supervisor *s, int signal_n, enum board_request request);
/* supervisor_upload_finish — after the workers have ended with st: waits for the last upload, for
 * at most UPLOAD_TIMEOUT, while HTTP is served. Returns st, or ST_STORE if a run that ended well
 * has an upload that is missing; the message of a stopped run then contains it. */
enum status supervisor_upload_finish(struct supervisor *s, enum status st);

#endif
