/* workers — the workers of this node: started, watched, ended, started again.
 *
 * One process each, all from the same words. What an end means is decided in exit_policy.c, what
 * silence means in watchdog.c; what becomes of the job is the owner's affair: it is told of every
 * end, once. Must not know other nodes, HTTP or signals to this process. */
#ifndef CONVOY_NODE_WORKERS_H
#define CONVOY_NODE_WORKERS_H

#include "base/board.h"
#include "node/exit_policy.h"

struct workers;

/* How a worker ended. */
struct workers_end {
    int worker_i;
    bool is_exit;   /* by itself, not by a signal or for its silence */
    bool is_killed; /* workers_kill did it */
    struct exit_policy_decision decision;
    const struct board_worker *last; /* what it posted last; step -1: it never spoke */
};

struct workers_config {
    struct board *board;
    int workers_n;
    int rank_first; /* of worker 0 */
    int args_n;
    char *const *args;
    int shm_fd;           /* what workers of a node exchange numbers in; -1: none */
    int64_t limit_set_ms; /* STEP_TIMEOUT */
    /* a worker with a comm heartbeat that has none for so long is frozen */
    int64_t comm_heartbeat_limit_ms;
    void (*on_end)(void *arg, const struct workers_end *end);
    void *arg;
};

enum status workers_open(const struct workers_config *config, struct workers **out);
void workers_close(struct workers *workers); /* ends what still lives; accepts NULL */

enum status workers_start(struct workers *workers); /* all that are not there */
/* workers_start_later — the one that ended, delay_ms from now; the board forgets the old one at
 * once. */
void workers_start_later(struct workers *workers, int worker_i, int64_t delay_ms);
/* workers_rearm — a generation is over: silence counts from here: a rank that waited in it waited
 * for others. */
void workers_rearm(struct workers *workers, int64_t now_ms);
void workers_forbid_start(struct workers *workers); /* nobody is started any more */
/* starts who is due, looks after who is silent */
enum status workers_tick(struct workers *workers, int64_t now_ms);
void workers_reap(struct workers *workers); /* after SIGCHLD; calls on_end */
void workers_kill(struct workers *workers); /* SIGKILL to all */
/* to those that have not begun to train */
void workers_kill_loading(struct workers *workers);

/* workers_limit_ms — the longest silence in a step that one of them is allowed. */
int64_t workers_limit_ms(const struct workers *workers);
int workers_alive(const struct workers *workers);
bool workers_is_alive(const struct workers *workers, int worker_i);
bool workers_is_start_due(const struct workers *workers); /* somebody waits to be started */

#endif
