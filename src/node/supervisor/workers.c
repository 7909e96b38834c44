/* workers — see workers.h. */
#include "node/supervisor/workers.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "node/process/spawn.h"
#include "node/process/watchdog.h"

#define NEVER (-1)
#define CLOSE_MS \
    2000 /* a killed process ends immediately; a process that waits for a disk is left to init */

struct workers_process {
    pid_t pid;        /* 0: none */
    int64_t start_ms; /* time of the next start; NEVER: none is scheduled */
    bool is_hung;     /* killed because it was silent */
    bool is_killed;   /* killed by workers_kill or workers_kill_loading */
    int64_t silent_ms;
    char state;       /* state of the hung process */
    int peer_copy_fd; /* -1: none */
    struct watchdog watchdog;
};

struct workers {
    struct workers_config config;
    struct workers_process processes[BOARD_WORKERS_MAX];
};

enum status workers_open(const struct workers_config *config, struct workers **out)
{
    ASSERTF(config->workers_n > 0 && config->workers_n <= BOARD_WORKERS_MAX, "%d workers",
            config->workers_n);
    struct workers *workers = memory_new(1, sizeof *workers);
    workers->config = *config;
    for (int i = 0; i < config->workers_n; i++) {
        workers->processes[i].start_ms = NEVER;
        workers->processes[i].watchdog.limit_set_ms = config->limit_set_ms;
        workers->processes[i].peer_copy_fd = -1;
    }
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && config->has_peer_copies && i < config->workers_n; i++)
        st = spawn_peer_copy_fd(&workers->processes[i].peer_copy_fd);
    if (st == ST_OK)
        *out = workers;
    else
        workers_close(workers);
    return st;
}

void workers_close(struct workers *workers)
{
    if (!workers)
        return;
    workers_kill(workers);
    int64_t until_ms = clock_ms() + CLOSE_MS;
    for (int i = 0; i < workers->config.workers_n; i++)
        if (workers->processes[i].peer_copy_fd >= 0)
            close(workers->processes[i].peer_copy_fd);
    for (int i = 0; i < workers->config.workers_n; i++)
        while (workers->processes[i].pid &&
               waitpid(workers->processes[i].pid, NULL, WNOHANG) == 0 && clock_ms() < until_ms)
            clock_sleep_ms(1);
    free(workers);
}

/* ---- start ---- */

static enum status start_worker(struct workers *workers, int worker_i)
{
    struct workers_process *worker = &workers->processes[worker_i];
    ASSERTF(worker->pid == 0, "worker %d runs as pid %ld", worker_i, (long)worker->pid);
    worker->start_ms = NEVER;
    worker->is_hung = worker->is_killed = false;
    board_worker_clear(workers->config.board, worker_i);
    watchdog_start(&worker->watchdog, clock_ms());
    struct spawn_config config = {
        workers->config.args_n,          workers->config.args,   worker_i,
        board_fd(workers->config.board), workers->config.shm_fd, worker->peer_copy_fd};
    enum status st = spawn_worker(&config, &worker->pid);
    if (st != ST_OK) {
        worker->pid = 0;
        return st;
    }
    LOG_DEBUG("worker pid %ld started", (long)worker->pid);
    return ST_OK;
}

enum status workers_start(struct workers *workers)
{
    for (int i = 0; i < workers->config.workers_n; i++)
        if (!workers->processes[i].pid)
            TRY(start_worker(workers, i));
    return ST_OK;
}

void workers_start_later(struct workers *workers, int worker_i, int64_t delay_ms)
{
    ASSERTF(workers->processes[worker_i].pid == 0 && delay_ms >= 0, "worker %d, %lld ms", worker_i,
            (long long)delay_ms);
    workers->processes[worker_i].start_ms = clock_ms() + delay_ms;
    board_worker_clear(workers->config.board, worker_i);
}

void workers_rearm(struct workers *workers, int64_t now_ms)
{
    for (int i = 0; i < workers->config.workers_n; i++)
        watchdog_rearm(&workers->processes[i].watchdog, now_ms);
}

void workers_forbid_start(struct workers *workers)
{
    for (int i = 0; i < workers->config.workers_n; i++)
        workers->processes[i].start_ms = NEVER;
}

/* ---- end ---- */

/* last_stats — copies the numbers that a worker published last; step -1 if there are none. */
static void last_stats(const struct workers *workers, int worker_i, struct board_worker *out)
{
    if (board_worker_copy(workers->config.board, worker_i, out))
        return;
    memset(out, 0, sizeof *out);
    out->step = -1;
    out->rank = workers->config.rank_first + worker_i;
}

void workers_reap(struct workers *workers)
{
    pid_t pid;
    int wait_status;
    while (spawn_reap(&pid, &wait_status))
        for (int i = 0; i < workers->config.workers_n; i++)
            if (workers->processes[i].pid && workers->processes[i].pid == pid) {
                struct workers_process *worker = &workers->processes[i];
                struct board_worker last;
                char place[64] = "";
                last_stats(workers, i, &last);
                if (workers->config.mesh)
                    mesh_place(workers->config.mesh, last.rank, 1, place, sizeof place);
                struct workers_end end = {.worker_i = i,
                                          .is_exit = WIFEXITED(wait_status) && !worker->is_hung,
                                          .is_killed = worker->is_killed,
                                          .last = &last};
                exit_policy_classify(&(struct exit_policy_facts){.wait_status = wait_status,
                                                                 .was_hung = worker->is_hung,
                                                                 .silent_ms = worker->silent_ms,
                                                                 .process_state = worker->state,
                                                                 .pid = (int32_t)worker->pid,
                                                                 .rank = last.rank,
                                                                 .place = place,
                                                                 .phase = last.phase,
                                                                 .step = last.step,
                                                                 .message = last.error.message},
                                     &end.decision);
                worker->pid = 0;
                workers->config.on_end(workers->config.arg, &end);
            }
}

void workers_kill(struct workers *workers)
{
    for (int i = 0; i < workers->config.workers_n; i++) {
        workers->processes[i].is_killed = true;
        if (workers->processes[i].pid)
            kill(workers->processes[i].pid, SIGKILL);
    }
}

/* is_loading — returns true if the worker is not training yet. A worker that waits for other ranks
 * checks for a stop itself; a loading worker may be in a long call. */
static bool is_loading(const struct workers *workers, int worker_i)
{
    struct board_worker stats;
    bool has_published = board_worker_copy(workers->config.board, worker_i, &stats);
    return !has_published || stats.phase == BOARD_PHASE_LOADING ||
           stats.phase == BOARD_PHASE_RECOVERING || stats.phase == BOARD_PHASE_CHECKING;
}

void workers_kill_loading(struct workers *workers)
{
    for (int i = 0; i < workers->config.workers_n; i++) {
        struct workers_process *worker = &workers->processes[i];
        if (!worker->pid || worker->is_killed || !is_loading(workers, i))
            continue;
        worker->is_killed = true;
        kill(worker->pid, SIGKILL);
    }
}

/* ---- running ---- */

/* check_worker — kills a worker that hangs. A worker that waits in a collective is not silent: its
 * comm heartbeat reports the wait. A worker whose comm heartbeat stops is frozen, whatever it was
 * doing. */
static void check_worker(struct workers *workers, int worker_i, int64_t now_ms)
{
    struct workers_process *worker = &workers->processes[worker_i];
    struct board_worker stats;
    struct board_call call;
    ASSERTF(worker->pid > 0 && worker->start_ms == NEVER, "worker %d", worker_i);
    last_stats(workers, worker_i, &stats);
    watchdog_learn(&worker->watchdog, &stats);
    if (worker->is_hung || worker->is_killed)
        return;
    bool has_comm_heartbeat = board_call_copy(workers->config.board, worker_i, &call);
    int64_t heartbeat_ms = board_heartbeat_ms(workers->config.board, worker_i);
    enum board_phase phase = stats.step < 0 && stats.pid == 0 ? BOARD_PHASE_STARTING : stats.phase;
    bool is_silent =
        watchdog_check(&worker->watchdog, now_ms,
                       watchdog_last_sign_ms(heartbeat_ms, has_comm_heartbeat ? &call : NULL),
                       phase, &worker->silent_ms);
    if (!is_silent && has_comm_heartbeat)
        is_silent = watchdog_is_frozen(&worker->watchdog, now_ms, call.published_ms,
                                       workers->config.comm_heartbeat_limit_ms, &worker->silent_ms);
    if (!is_silent)
        return;
    worker->is_hung = true;
    worker->state = spawn_state(worker->pid);
    kill(worker->pid, SIGKILL); /* workers_reap follows on SIGCHLD */
}

enum status workers_tick(struct workers *workers, int64_t now_ms)
{
    for (int i = 0; i < workers->config.workers_n; i++) {
        struct workers_process *worker = &workers->processes[i];
        if (worker->pid)
            check_worker(workers, i, now_ms);
        else if (worker->start_ms != NEVER && now_ms >= worker->start_ms)
            TRY(start_worker(workers, i));
    }
    return ST_OK;
}

int64_t workers_limit_ms(const struct workers *workers)
{
    int64_t longest = 0;
    for (int i = 0; i < workers->config.workers_n; i++) {
        int64_t limit = watchdog_limit_ms(&workers->processes[i].watchdog, BOARD_PHASE_TRAINING);
        longest = limit > longest ? limit : longest;
    }
    return longest;
}

int workers_alive(const struct workers *workers)
{
    int alive = 0;
    for (int i = 0; i < workers->config.workers_n; i++)
        alive += workers->processes[i].pid != 0;
    return alive;
}

bool workers_is_alive(const struct workers *workers, int worker_i)
{
    return workers->processes[worker_i].pid != 0;
}

bool workers_is_start_due(const struct workers *workers)
{
    for (int i = 0; i < workers->config.workers_n; i++)
        if (workers->processes[i].start_ms != NEVER)
            return true;
    return false;
}
