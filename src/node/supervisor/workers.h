/* workers — the worker processes of this node: start, watch, end and start them again.
 *
 * One process for each device, all with the same arguments. exit_policy.c decides what an exit
 * means, watchdog.c what silence means. on_end is called once for every worker that ended:
 * supervisor/recover.c then starts workers again, or ends the run. All functions are called on the
 * supervisor's one thread and do not block, except workers_close. Must not know other
 * nodes, HTTP or signals to this process. */
#ifndef CONVOY_NODE_WORKERS_H
#define CONVOY_NODE_WORKERS_H

#include "base/board.h"
#include "mesh/mesh.h"
#include "node/process/exit_policy.h"

struct workers;

/* How a worker ended. */
struct workers_end {
    int worker_i;
    bool is_exit;   /* by exit(), not by a signal and not because of its silence */
    bool is_killed; /* by workers_kill or workers_kill_loading */
    struct exit_policy_decision decision;
    const struct board_worker *last; /* its last numbers; step -1: it has published none */
};

struct workers_config {
    struct board *board;
    int workers_n;
    int rank_first;          /* of worker 0 */
    const struct mesh *mesh; /* of all ranks, for messages; borrowed; NULL: it is not said */
    int args_n;
    char *const *args;    /* settings, as the supervisor was given them; borrowed */
    int shm_fd;           /* shared memory of the node's workers; -1: none */
    bool has_peer_copies; /* each worker has memory for copies of the state, which outlives it */
    int64_t limit_set_ms; /* STEP_TIMEOUT; 0: automatic */
    /* A worker whose comm heartbeat stops for longer than this is frozen. */
    int64_t comm_heartbeat_limit_ms;
    void (*on_end)(void *arg, const struct workers_end *end);
    void *arg;
};

enum status workers_open(const struct workers_config *config, struct workers **out);
/* workers_close — SIGKILL to every worker, and wait for at most 2 s. Accepts NULL. */
void workers_close(struct workers *workers);

/* workers_start — start every worker that does not run. */
enum status workers_start(struct workers *workers);
/* workers_start_later — start a worker that ended again, delay_ms from now. The board forgets its
 * numbers at once. */
void workers_start_later(struct workers *workers, int worker_i, int64_t delay_ms);
/* workers_rearm — a generation is over: silence counts from now on, because a rank that waited in
 * that generation waited for others. */
void workers_rearm(struct workers *workers, int64_t now_ms);
/* workers_forbid_start — cancel every workers_start_later. */
void workers_forbid_start(struct workers *workers);
/* workers_tick — start the workers that are due, and SIGKILL those that have been silent for too
 * long. */
enum status workers_tick(struct workers *workers, int64_t now_ms);
/* workers_reap — collect ended processes after SIGCHLD; calls on_end. */
void workers_reap(struct workers *workers);
/* workers_kill — SIGKILL to all; workers_kill_loading — to those that have not begun to train. */
void workers_kill(struct workers *workers);
void workers_kill_loading(struct workers *workers);

/* workers_limit_ms — the longest silence in a step that any of them is allowed. */
int64_t workers_limit_ms(const struct workers *workers);
/* workers_alive — how many run. */
int workers_alive(const struct workers *workers);
bool workers_is_alive(const struct workers *workers, int worker_i);
/* workers_is_start_due — does a workers_start_later still wait? Only for tests. */
bool workers_is_start_due(const struct workers *workers);

#endif
