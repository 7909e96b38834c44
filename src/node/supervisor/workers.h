/* workers — the worker processes of this node: starts, watches, ends and restarts them.
 *
 * There is one process for each device, and all get the same arguments. exit_policy.c interprets an
 * exit, watchdog.c interprets silence. on_end is called once for every worker that ended:
 * supervisor/recover.c then starts workers again or ends the run. All functions are called on the
 * supervisor's one thread and do not block, except workers_close. Must not know other nodes, HTTP
 * or signals to this process. */
#ifndef CONVOY_NODE_WORKERS_H
#define CONVOY_NODE_WORKERS_H

#include "base/board.h"
#include "mesh/mesh.h"
#include "node/process/exit_policy.h"

struct workers;

/* How a worker ended. */
struct workers_end {
    int worker_i;
    /* the worker called exit(); it was not ended by a signal or because of its silence */
    bool is_exit;
    bool is_killed; /* killed by workers_kill or workers_kill_loading */
    struct exit_policy_decision decision;
    const struct board_worker *last; /* its last numbers; step -1: it has published none */
};

struct workers_config {
    struct board *board;
    int workers_n;
    int rank_first; /* rank of worker 0 */
    /* mesh of all ranks, for messages; borrowed; NULL: messages do not mention it */
    const struct mesh *mesh;
    int args_n;
    char *const *args; /* settings from the supervisor's command line; borrowed */
    int shm_fd;        /* shared memory of the node's workers; -1: none */
    /* each worker has memory for copies of the state, which outlives the worker */
    bool has_peer_copies;
    int64_t limit_set_ms; /* STEP_TIMEOUT; 0: automatic */
    /* A worker is frozen if its comm heartbeat stops for longer than this. */
    int64_t comm_heartbeat_limit_ms;
    void (*on_end)(void *arg, const struct workers_end *end);
    void *arg;
};

/* workers_open — sets up the workers, with their memory for copies of the state; starts none. It
 * borrows the config's pointers until close. */
enum status workers_open(const struct workers_config *config, struct workers **out);
/* workers_close — sends SIGKILL to every worker and waits for at most 2 s. Accepts NULL. */
void workers_close(struct workers *workers);

/* workers_start — starts every worker that does not run. */
enum status workers_start(struct workers *workers);
/* workers_start_later — restarts a worker that ended, delay_ms from now. Its numbers on the board
 * are cleared immediately. */
void workers_start_later(struct workers *workers, int worker_i, int64_t delay_ms);
/* workers_rearm — restarts the watchdogs because a generation is over: a rank that was silent in
 * that generation was waiting for other ranks. */
void workers_rearm(struct workers *workers, int64_t now_ms);
/* workers_forbid_start — cancels every workers_start_later. */
void workers_forbid_start(struct workers *workers);
/* workers_tick — starts the workers that are due, and sends SIGKILL to workers that have been
 * silent for too long. */
enum status workers_tick(struct workers *workers, int64_t now_ms);
/* workers_reap — collects ended processes after SIGCHLD; calls on_end. */
void workers_reap(struct workers *workers);
/* workers_kill — sends SIGKILL to all workers. */
void workers_kill(struct workers *workers);
/* workers_kill_loading — sends SIGKILL to the workers that have not begun to train. */
void workers_kill_loading(struct workers *workers);

/* workers_limit_ms — returns the longest silence in a step that any worker is allowed. */
int64_t workers_limit_ms(const struct workers *workers);
/* workers_alive — returns the number of running workers. */
int workers_alive(const struct workers *workers);
/* workers_is_alive — returns true if this worker runs. */
bool workers_is_alive(const struct workers *workers, int worker_i);
/* workers_is_start_due — returns true if a workers_start_later is still pending; only for tests. */
bool workers_is_start_due(const struct workers *workers);

#endif
