/* crew — see crew.h. */
#include "node/crew.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "node/spawn.h"
#include "node/watch.h"

#define NEVER (-1)
#define CLOSE_MS 2000 /* a killed process is gone at once; one in a disk's hands is left to init */

struct crew_worker {
    pid_t pid;        /* 0: none */
    int64_t start_ms; /* when to start it; NEVER: not waiting */
    bool is_hung;     /* we killed it for its silence */
    bool is_cut;      /* we killed it because somebody cannot wait */
    int64_t silent_ms;
    char state; /* of the hung process */
    struct watch watch;
};

struct crew {
    struct crew_config config;
    struct crew_worker workers[BOARD_WORKERS_MAX];
};

enum status crew_open(const struct crew_config *config, struct crew **out)
{
    struct crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return FAIL(ST_RETRY, "out of memory: the list of workers");
    crew->config = *config;
    for (int i = 0; i < config->workers_n; i++) {
        crew->workers[i].start_ms = NEVER;
        crew->workers[i].watch.limit_set_ms = config->limit_set_ms;
    }
    *out = crew;
    return ST_OK;
}

void crew_close(struct crew *crew)
{
    if (!crew)
        return;
    crew_cut(crew);
    int64_t until_ms = clock_ms() + CLOSE_MS;
    for (int i = 0; i < crew->config.workers_n; i++)
        while (crew->workers[i].pid && waitpid(crew->workers[i].pid, NULL, WNOHANG) == 0 &&
               clock_ms() < until_ms)
            clock_sleep_ms(1);
    free(crew);
}

/* ---- the beginning ---- */

static enum status start(struct crew *crew, int worker_i)
{
    struct crew_worker *worker = &crew->workers[worker_i];
    worker->start_ms = NEVER;
    worker->is_hung = worker->is_cut = false;
    board_worker_clear(crew->config.board, worker_i);
    watch_start(&worker->watch, clock_ms());
    struct spawn_config config = {crew->config.words_n, crew->config.words, worker_i,
                                  board_fd(crew->config.board), crew->config.share_fd};
    enum status st = spawn_worker(&config, &worker->pid);
    if (st != ST_OK) {
        worker->pid = 0;
        return st;
    }
    LOG_DEBUG("worker pid %ld started", (long)worker->pid);
    return ST_OK;
}

enum status crew_start(struct crew *crew)
{
    for (int i = 0; i < crew->config.workers_n; i++)
        if (!crew->workers[i].pid)
            TRY(start(crew, i));
    return ST_OK;
}

void crew_start_later(struct crew *crew, int worker_i, int64_t delay_ms)
{
    crew->workers[worker_i].start_ms = clock_ms() + delay_ms;
    board_worker_clear(crew->config.board, worker_i);
}

void crew_anew(struct crew *crew, int64_t now_ms)
{
    for (int i = 0; i < crew->config.workers_n; i++)
        watch_anew(&crew->workers[i].watch, now_ms);
}

void crew_stay_away(struct crew *crew)
{
    for (int i = 0; i < crew->config.workers_n; i++)
        crew->workers[i].start_ms = NEVER;
}

/* ---- the end ---- */

/* last_words — what a worker posted; step -1 when it never spoke. */
static void last_words(const struct crew *crew, int worker_i, struct board_worker *out)
{
    if (board_worker_copy(crew->config.board, worker_i, out))
        return;
    memset(out, 0, sizeof *out);
    out->step = -1;
    out->rank = crew->config.rank_first + worker_i;
}

static void ended(struct crew *crew, int worker_i, int wait_status)
{
    struct crew_worker *worker = &crew->workers[worker_i];
    struct board_worker last;
    last_words(crew, worker_i, &last);
    struct crew_end end = {.worker_i = worker_i,
                           .is_exit = WIFEXITED(wait_status) && !worker->is_hung,
                           .is_cut = worker->is_cut,
                           .last = &last};
    verdict_of(&(struct verdict_facts){.wait_status = wait_status,
                                       .was_hung = worker->is_hung,
                                       .silent_ms = worker->silent_ms,
                                       .process_state = worker->state,
                                       .pid = (int32_t)worker->pid,
                                       .rank = last.rank,
                                       .phase = last.phase,
                                       .step = last.step,
                                       .message = last.error.message},
               &end.verdict);
    worker->pid = 0;
    crew->config.on_end(crew->config.arg, &end);
}

void crew_reap(struct crew *crew)
{
    pid_t pid;
    int wait_status;
    while (spawn_reap(&pid, &wait_status))
        for (int i = 0; i < crew->config.workers_n; i++)
            if (crew->workers[i].pid && crew->workers[i].pid == pid)
                ended(crew, i, wait_status);
}

void crew_cut(struct crew *crew)
{
    for (int i = 0; i < crew->config.workers_n; i++) {
        crew->workers[i].is_cut = true;
        if (crew->workers[i].pid)
            kill(crew->workers[i].pid, SIGKILL);
    }
}

/* A worker that waits for others looks for a stop itself; one that loads may be in a call that
 * takes long. */
static bool is_loading(const struct crew *crew, int worker_i)
{
    struct board_worker post;
    bool has_spoken = board_worker_copy(crew->config.board, worker_i, &post);
    return !has_spoken || post.phase == BOARD_PHASE_LOADING || post.phase == BOARD_PHASE_RECOVERING;
}

void crew_cut_loading(struct crew *crew)
{
    for (int i = 0; i < crew->config.workers_n; i++) {
        struct crew_worker *worker = &crew->workers[i];
        if (!worker->pid || worker->is_cut || !is_loading(crew, i))
            continue;
        worker->is_cut = true;
        kill(worker->pid, SIGKILL);
    }
}

/* ---- in between ---- */

/* look — a worker that waits for others in a call is not silent: its pulse says so. One whose pulse
 * stopped is frozen, whatever it was doing. */
static void look(struct crew *crew, int worker_i, int64_t now_ms)
{
    struct crew_worker *worker = &crew->workers[worker_i];
    struct board_worker post;
    struct board_call call;
    last_words(crew, worker_i, &post);
    watch_steps(&worker->watch, &post);
    if (worker->is_hung || worker->is_cut)
        return;
    bool has_pulse = board_call_copy(crew->config.board, worker_i, &call);
    int64_t beat_ms = board_beat_ms(crew->config.board, worker_i);
    enum board_phase phase = post.step < 0 && post.pid == 0 ? BOARD_PHASE_STARTING : post.phase;
    bool is_silent =
        watch_look(&worker->watch, now_ms, watch_heard_ms(beat_ms, has_pulse ? &call : NULL), phase,
                   &worker->silent_ms);
    if (!is_silent && has_pulse)
        is_silent = watch_is_frozen(&worker->watch, now_ms, call.posted_ms,
                                    crew->config.pulse_limit_ms, &worker->silent_ms);
    if (!is_silent)
        return;
    worker->is_hung = true;
    worker->state = spawn_state(worker->pid);
    kill(worker->pid, SIGKILL); /* SIGCHLD brings the rest */
}

enum status crew_tick(struct crew *crew, int64_t now_ms)
{
    for (int i = 0; i < crew->config.workers_n; i++) {
        struct crew_worker *worker = &crew->workers[i];
        if (worker->pid)
            look(crew, i, now_ms);
        else if (worker->start_ms != NEVER && now_ms >= worker->start_ms)
            TRY(start(crew, i));
    }
    return ST_OK;
}

int64_t crew_limit_ms(const struct crew *crew)
{
    int64_t longest = 0;
    for (int i = 0; i < crew->config.workers_n; i++) {
        int64_t limit = watch_limit_ms(&crew->workers[i].watch, BOARD_PHASE_TRAINING);
        longest = limit > longest ? limit : longest;
    }
    return longest;
}

int crew_alive(const struct crew *crew)
{
    int alive = 0;
    for (int i = 0; i < crew->config.workers_n; i++)
        alive += crew->workers[i].pid != 0;
    return alive;
}

bool crew_is_alive(const struct crew *crew, int worker_i)
{
    return crew->workers[worker_i].pid != 0;
}

bool crew_is_due(const struct crew *crew)
{
    for (int i = 0; i < crew->config.workers_n; i++)
        if (crew->workers[i].start_ms != NEVER)
            return true;
    return false;
}
